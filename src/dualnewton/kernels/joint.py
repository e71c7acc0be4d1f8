"""Block coordinate descent for K columns and a penalty on the norm of each feature's coefficients, compiled.

sweeps(H, slopes, V, ridge, threshold, most, goal)                     updates V and slopes in place
path(H, along, squares, slopes, V, ridges, thresholds, tol, most, models)
                                                                       minima for falling penalties, each from the last; how many
                                                                       were found with ``most`` working sets each
follow(H, inside, steps, slopes)                                       slopes of all features after steps of some

``solvers/prox/joint_subproblem.py`` defines the model, and has the first of them in NumPy. Arrays of K columns have the shape
(K, d): an update adds a multiple of a row of H to each of K contiguous rows.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels.models import Kernel

SWEEPS = 10
"""Sweeps over a working set, which cost about as much as the slopes of all features after them."""


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
def _violators(slopes, V, threshold, inside):
    """Write the features that are in use or whose slope exceeds the threshold; return how many."""
    K, d = V.shape
    count, limit = 0, threshold * threshold
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
def _relative_gap(slopes, along, V, squares, ridge, threshold):
    """(P − D)/P at V, for the dual point that belongs to it: see ``solvers/prox/joint.py``."""
    K, d = V.shape
    penalty = product = fitted = beyond = steepest = 0.0
    for j in range(d):
        length = steep = 0.0
        for k in range(K):
            length += V[k, j] * V[k, j]
            steep += slopes[k, j] * slopes[k, j]
            product += V[k, j] * slopes[k, j]
            fitted += V[k, j] * along[k, j]
        penalty += 0.5 * ridge * length + threshold * math.sqrt(length)
        steepest = max(steepest, steep)
        over = math.sqrt(steep) - threshold
        if over > 0.0:
            beyond += over * over
    losses = max(0.5 * (squares + product - fitted), 0.0)
    if ridge > 0.0:
        gap = penalty + product + beyond / (2.0 * ridge)
    else:
        r = min(1.0, threshold / math.sqrt(steepest)) if steepest > 0.0 else 1.0
        gap = penalty + r * product + (1.0 - r) * (1.0 - r) * losses
    return gap / (losses + penalty) if losses + penalty > 0.0 else 0.0


@jit
def _follow(H, inside, steps, slopes):
    """Add the change of the slopes of all features that belongs to steps of some features."""
    for a in range(inside.size):
        for k in range(slopes.shape[0]):
            step = steps[k, a]
            if step != 0.0:
                for i in range(slopes.shape[1]):
                    slopes[k, i] += step * H[inside[a], i]


@jit
def _over_set(H, slopes, V, ridge, threshold, inside):
    """Sweep over a working set, with a matrix of its own; then bring the slopes of all features up to date."""
    K = V.shape[0]
    count = inside.size
    part, own, now = np.empty((count, count)), np.empty((K, count)), np.empty((K, count))
    for a in range(count):
        for b in range(count):
            part[a, b] = H[inside[a], inside[b]]
        for k in range(K):
            own[k, a] = slopes[k, inside[a]]
            now[k, a] = V[k, inside[a]]
    _sweeps(part, own, now, np.full(count, ridge), np.full(count, threshold), SWEEPS, 0.0)
    for a in range(count):
        for k in range(K):
            now[k, a], V[k, inside[a]] = now[k, a] - V[k, inside[a]], now[k, a]
    _follow(H, inside, now, slopes)


@jit
def _path(H, along, squares, slopes, V, ridges, thresholds, tol, most, models):
    inside = np.empty(V.shape[1], dtype=np.intp)
    for step in range(ridges.size):
        ridge, threshold, sets = ridges[step], thresholds[step], 0
        while _relative_gap(slopes, along, V, squares, ridge, threshold) > tol:
            if sets == most:
                return step
            count = _violators(slopes, V, threshold, inside)
            _over_set(H, slopes, V, ridge, threshold, inside[:count])
            sets += 1
        # By loops: an assignment of whole arrays would also compile the text of the error for shapes that differ, for seconds.
        for k in range(V.shape[0]):
            for j in range(V.shape[1]):
                models[step, k, j] = V[k, j]
    return ridges.size


sweeps, path, follow = Kernel(_sweeps), Kernel(_path), Kernel(_follow)
