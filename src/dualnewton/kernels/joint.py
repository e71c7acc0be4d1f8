"""Block coordinate descent for K columns and a penalty on the norm of each feature's coefficients, compiled.

sweeps(H, slopes, V, ridge, threshold, most, goal)                     updates V and slopes in place
path(H, slopes, V, ridges, thresholds, goals, most, models, reached)   minima for falling penalties, each from the last

``solvers/prox/joint_subproblem.py`` defines the model, and has the first of them in NumPy. Arrays of K columns have the shape
(K, d): an update adds a multiple of a row of H to each of K contiguous rows.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels.models import Kernel

ROUNDS = 50
"""Working sets of one minimum of a path; more are needed only where rounding prevents the goal."""


@jit
def _moved(H, slopes, V, ridge, threshold, j, change):
    """Move feature j to its best coefficients; return by how much that moves its slope, the change in ``change``."""
    K, own = V.shape[0], H[j, j]
    curvature, norm = own + ridge, 0.0
    for k in range(K):
        u = own * V[k, j] - slopes[k, j]
        change[k] = u
        norm += u * u
    norm = math.sqrt(norm)
    shrink = (1.0 - threshold / norm) / curvature if norm > threshold and curvature > 0.0 else 0.0
    size = 0.0
    for k in range(K):
        new = shrink * change[k]
        change[k] = new - V[k, j]
        size += change[k] * change[k]
        V[k, j] = new
    return math.sqrt(size) * curvature


@jit
def _sweeps(H, slopes, V, ridge, threshold, most, goal):
    K, size = V.shape
    change = np.empty(K)
    for _ in range(most):
        largest = 0.0
        for j in range(size):
            moved = _moved(H, slopes, V, ridge[j], threshold[j], j, change)
            if moved > 0.0:
                largest = max(largest, moved)
                for k in range(K):
                    step = change[k]
                    for i in range(size):
                        slopes[k, i] += step * H[j, i]
        if largest <= goal:
            return True
    return False


@jit
def _violators(slopes, V, threshold, slack, inside):
    """Write the features that are in use or whose slope exceeds the threshold by more than the slack; return how many."""
    K, d = V.shape
    count = 0
    limit = (threshold + slack) * (threshold + slack)
    for j in range(d):
        used, norm = False, 0.0
        for k in range(K):
            used = used or V[k, j] != 0.0
            norm += slopes[k, j] * slopes[k, j]
        if used or norm > limit:
            inside[count] = j
            count += 1
    return count


@jit
def _outside(slopes, V, threshold, slack):
    """Whether a feature that is not in use has a slope beyond the threshold."""
    K, d = V.shape
    limit = (threshold + slack) * (threshold + slack)
    for j in range(d):
        used, norm = False, 0.0
        for k in range(K):
            used = used or V[k, j] != 0.0
            norm += slopes[k, j] * slopes[k, j]
        if not used and norm > limit:
            return True
    return False


@jit
def _minimum(H, slopes, V, ridge, threshold, goal, most, inside):
    """Minimise over working sets, each of the features in use and those that violate their conditions."""
    K, d = V.shape
    for _ in range(ROUNDS):
        count = _violators(slopes, V, threshold, 0.0, inside)
        part, own, old = np.empty((count, count)), np.empty((K, count)), np.empty((K, count))
        now = np.empty((K, count))
        for a in range(count):
            for b in range(count):
                part[a, b] = H[inside[a], inside[b]]
            for k in range(K):
                own[k, a] = slopes[k, inside[a]]
                old[k, a] = V[k, inside[a]]
                now[k, a] = old[k, a]
        reached = _sweeps(part, own, now, np.full(count, ridge), np.full(count, threshold), most, goal)
        for a in range(count):
            j = inside[a]
            for k in range(K):
                step = now[k, a] - old[k, a]
                V[k, j] = now[k, a]
                if step != 0.0:
                    for i in range(d):
                        slopes[k, i] += step * H[j, i]
        if not reached:
            return False
        if not _outside(slopes, V, threshold, goal):
            return True
    return False


@jit
def _path(H, slopes, V, ridges, thresholds, goals, most, models, reached):
    inside = np.empty(V.shape[1], dtype=np.intp)
    for step in range(ridges.size):
        reached[step] = _minimum(H, slopes, V, ridges[step], thresholds[step], goals[step], most, inside)
        models[step] = V


sweeps, path = Kernel(_sweeps), Kernel(_path)
