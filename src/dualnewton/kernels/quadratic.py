"""Coordinate descent on a quadratic model with a separable penalty, compiled; ``solvers/prox`` defines the model.

sweeps(H, slopes, v, ridge, threshold, lower, upper, most, goal)      updates v and slopes in place
column_sweep(*rows, q, diagonal, slopes, v, moved, …)                 one sweep without forming H
minima(H, slopes, V, size, ridges, …, progress, found, done)          rounds of Newton steps and sweeps of several models

``minima`` takes F models from the minimum of one penalty to that of the next, V and slopes in place, using the first ``size``
rows and columns of H[f]. Ridges and thresholds have a row for each penalty, ``goals`` a row with an entry for each model.
``progress`` holds the least violation and the number of consecutive rounds that did not halve it, at first infinity and zero.
``found[k, f]`` receives the minimum of penalty k, and ``done[f]``, at first the number of the first penalty, that of the first
one whose goal was not reached.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import jit
from dualnewton.kernels.models import Kernel

MOST_IN_VAIN = 4
"""Limit on consecutive rounds without a smaller largest violation."""

SWEEPS, RENT = 3, 10
"""Sweeps of coordinate descent after Newton steps; and the divisor of (free)²/size that gives the number of sweeps which cost as
much as a Newton step: this many are tried before a Newton step."""

NOTHING = 1e-3
"""As in ``solvers/prox/subproblem.py``: fraction of the goal by which a coordinate must change its slope to be moved."""

LIFT = 2e-15
"""Fraction of its diagonal that is added to the matrix of a Newton step, since that of constant features is rounding."""


@jit
def _best(curvature, ridge, slope, v, threshold, lower, upper):
    if curvature + ridge <= 0.0:
        return min(max(0.0, lower), upper)
    u = curvature * v - slope
    shrunk = u - min(max(u, -threshold), threshold)
    return min(max(shrunk / (curvature + ridge), lower), upper)


@jit
def _sweeps(H, slopes, v, ridge, threshold, lower, upper, most, goal):
    visited = np.empty(v.size, dtype=np.intp)
    for _ in range(most):
        count = 0
        for j in range(v.size):
            if v[j] != 0.0 or _best(H[j, j], ridge[j], slopes[j], v[j], threshold[j], lower[j], upper[j]) != v[j]:
                visited[count] = j
                count += 1
        largest = 0.0
        for place in range(count):
            j = visited[place]
            new = _best(H[j, j], ridge[j], slopes[j], v[j], threshold[j], lower[j], upper[j])
            change = new - v[j]
            if abs(change) * (H[j, j] + ridge[j]) > NOTHING * goal:
                v[j] = new
                for k in range(v.size):
                    slopes[k] += change * H[j, k]
                largest = max(largest, abs(change) * (H[j, j] + ridge[j]))
        if largest <= goal:
            return True
    return False


@jit
def _column_sweep(data, columns, starts, q, diagonal, slopes, v, moved, ridge, threshold, lower, upper, along_q, every):
    largest = 0.0
    for j in range(v.size):
        if not every and v[j] == 0.0:
            continue
        slope = slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along_q[0]
        new = _best(diagonal[j], ridge[j], slope, v[j], threshold[j], lower[j], upper[j])
        change = new - v[j]
        if change != 0.0:
            v[j] = new
            row.add(data, columns, starts, j, change, moved)
            along_q[0] += change * q[j]
            largest = max(largest, abs(change) * (diagonal[j] + ridge[j]))
    return largest


@jit
def _largest_violation(slopes, v, ridge, threshold, lower, upper):
    """The largest distance of −slopes − ridge v from the subdifferential of threshold |v| and the bounds."""
    largest = 0.0
    for j in range(v.size):
        s = slopes[j] + ridge[j] * v[j]
        right = -s - threshold[j] if v[j] >= 0.0 else -s + threshold[j]
        left = s + threshold[j] if v[j] > 0.0 else s - threshold[j]
        if v[j] < upper[j]:
            largest = max(largest, right)
        if v[j] > lower[j]:
            largest = max(largest, left)
    return largest


@jit
def solve_factored(L, x):
    """Solve L Lᵀ x = x in place."""
    for i in range(x.size):
        total = x[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    for i in range(x.size - 1, -1, -1):
        x[i] /= L[i, i]
        for j in range(i):
            x[j] -= L[i, j] * x[i]


@jit
def _newton_direction(H, slopes, v, ridge, threshold, free):
    """Return the step to the minimum over the free coordinates, and the slope along it, negated; no step if none exists."""
    m = free.size
    M, step = np.empty((m, m)), np.empty(m)
    for a in range(m):
        i = free[a]
        for b in range(m):
            M[a, b] = H[i, free[b]]
        M[a, a] += ridge[i] + LIFT * M[a, a]
        step[a] = -(slopes[i] + ridge[i] * v[i] + threshold[i] * np.sign(v[i]))
    downhill = step.copy()
    try:
        L = np.linalg.cholesky(M)
    except Exception:
        return step[:0], 0.0
    solve_factored(L, step)
    return step, downhill @ step


@jit
def _move(H, slopes, v, free, new):
    for a in range(free.size):
        j = free[a]
        change = new[a] - v[j]
        if change != 0.0:
            v[j] = new[a]
            for k in range(v.size):
                slopes[k] += change * H[j, k]


@jit
def _newton_step(H, slopes, v, ridge, threshold, lower, upper):
    """Minimise over the coordinates away from kinks and bounds, as far as their signs and bounds last.

    Those that would change their sign or leave the bounds stop there. Should that not pay, all go as far as the first of them.
    Return 1 if the minimum over these coordinates was reached, 0 if the step was cut short, and −1 if there was none.
    """
    free = np.nonzero((lower < v) & (v < upper) & ((v != 0.0) | (threshold == 0.0)))[0]
    if free.size == 0:
        return 1
    step, decrease = _newton_direction(H, slopes, v, ridge, threshold, free)
    if step.size == 0:
        return -1
    t, ends, new, old, before = 1.0, np.empty(free.size), np.empty(free.size), v[free], slopes.copy()
    for a in range(free.size):
        j = free[a]
        ends[a] = upper[j] if step[a] > 0.0 else lower[j]
        if threshold[j] > 0.0 and v[j] * step[a] < 0.0:
            ends[a] = max(ends[a], 0.0) if v[j] > 0.0 else min(ends[a], 0.0)
        new[a] = min(v[j] + step[a], ends[a]) if step[a] > 0.0 else max(v[j] + step[a], ends[a])
        if new[a] == ends[a] and step[a] != 0.0:
            t = min(t, (ends[a] - v[j]) / step[a])
    _move(H, slopes, v, free, new)
    if t == 1.0:
        return 1
    gain = 0.0
    for a in range(free.size):
        j = free[a]
        gain += 0.5 * (new[a] - old[a]) * (before[j] + slopes[j])
        gain += 0.5 * ridge[j] * (new[a] ** 2 - old[a] ** 2) + threshold[j] * (abs(new[a]) - abs(old[a]))
    # The shorter way gains t(1 − t/2) of what the whole step would have gained twice.
    if gain > -t * (1.0 - 0.5 * t) * decrease:
        for a in range(free.size):  # loops: assigning arrays would also compile messages about their shapes
            v[free[a]] = old[a]
        for k in range(v.size):
            slopes[k] = before[k]
        for a in range(free.size):
            reaches = step[a] != 0.0 and (ends[a] - old[a]) / step[a] <= t
            new[a] = ends[a] if reaches else old[a] + t * step[a]
        _move(H, slopes, v, free, new)
    return 0


@jit
def _reaches(G, s, v, size, ridge, threshold, lower, upper, goal, rounds, steps, progress):
    """Do rounds of sweeps and Newton steps of one model; return whether the goal was reached."""
    for _ in range(rounds):
        used = 0
        for j in range(v.size):
            used += v[j] != 0.0
        trials = used * used // (RENT * size) if size > 0 else 0
        if trials > 0:
            _sweeps(G, s, v, ridge, threshold, lower, upper, trials, 0.5 * goal)
            if _largest_violation(s, v, ridge, threshold, lower, upper) <= goal:
                return True
        for _ in range(steps):
            if _newton_step(G, s, v, ridge, threshold, lower, upper) != 0:
                break
        left = _largest_violation(s, v, ridge, threshold, lower, upper)
        progress[1] = progress[1] + 1.0 if left > 0.5 * progress[0] else 0.0
        progress[0] = min(progress[0], left)
        if left <= goal:
            return True
        if progress[1] >= MOST_IN_VAIN:
            return False
        _sweeps(G, s, v, ridge, threshold, lower, upper, SWEEPS, 0.5 * goal)
    return False


@jit
def _minima(H, slopes, V, size, ridges, thresholds, lower, upper, goals, rounds, steps, progress, found, done):
    for f in range(V.shape[0]):
        v, s, G, own = V[f], slopes[f], H[f], progress[f]
        while done[f] < goals.shape[0]:
            k = done[f]
            if not _reaches(G, s, v, size, ridges[k], thresholds[k], lower, upper, goals[k, f], rounds, steps, own):
                break
            for j in range(v.size):
                found[k, f, j] = v[j]
            done[f] += 1
            own[0], own[1] = np.inf, 0.0


sweeps, column_sweep, minima = Kernel(_sweeps), Kernel(_column_sweep), Kernel(_minima)
sweeps.rounds = minima
