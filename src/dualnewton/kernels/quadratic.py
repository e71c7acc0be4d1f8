"""Coordinate descent on a quadratic model with a separable penalty, compiled; ``solvers/prox`` defines the model.

sweeps(H, slopes, v, ridge, threshold, lower, upper, most, goal)      updates v and slopes in place
column_sweep(*rows, q, diagonal, slopes, v, moved, …)                 one sweep without forming H
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import jit
from dualnewton.kernels.models import Kernel


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
            if change != 0.0:
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


sweeps, column_sweep = Kernel(_sweeps), Kernel(_column_sweep)
