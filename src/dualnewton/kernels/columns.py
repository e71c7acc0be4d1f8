"""Coordinate descent with extrapolation on a quadratic model of sparse features, whose matrix is not formed, compiled.

column_rounds(*rows, q, diagonal, slopes, v, moved, …, along_q, start, …, sweeps)  rounds of sweeps until the goal is reached

``solvers/prox/column_descent.py`` defines the model and says in NumPy what it does; one row for each feature.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import lean_call, least, most
from dualnewton.kernels._memory import borrowed, give_back
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.quadratic import solve_factored, violation

MEMORY, SWEEPS, INSIDE, LIFT = 5, 25, 0.2, 1e-10
"""As in ``solvers/prox/column_descent.py``."""


@lean_call
def _column_sweep(
    data, columns, starts, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q, visited, count
):
    largest, along = 0.0, along_q[0]
    for place in range(count):
        j = visited[place]
        old = v[j]
        u = diagonal[j] * old - (slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along)
        shrunk = u - least(most(u, -threshold[j]), threshold[j])
        new = least(most(shrunk * inverse[j], lower[j]), upper[j])
        change = new - old
        if change != 0.0:
            v[j] = new
            row.add(data, columns, starts, j, change, moved)
            along += change * q[j]
            largest = most(largest, abs(change) * diagonal[j])
    along_q[0] = along
    return largest


@lean_call
def _go(data, columns, starts, q, v, moved, along_q, visited, count, new):
    """Go to the point with these values of the visited coordinates."""
    for place in range(count):
        j = visited[place]
        change = new[place] - v[j]
        if change != 0.0:
            v[j] = new[place]
            row.add(data, columns, starts, j, change, moved)
            along_q[0] += change * q[j]


@lean_call
def _survey(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, constant, visited, found
):
    """Write the coordinates of the next sweeps, and their number, the largest violation and the relative gap to ``found``."""
    count, largest, shrink, product, penalty, beyond, strong, linear = 0, 0.0, 1.0, 0.0, 0.0, 0.0, True, 0.0
    for j in range(v.size):
        here = slopes[j] + row.dot(data, columns, starts, j, moved) - q[j] * along_q[0]
        own = violation(here + ridge[j] * v[j], v[j], threshold[j], lower[j], upper[j])
        largest = most(largest, own)
        if v[j] != 0.0 or own > 0.0:
            visited[count] = j
            count += 1
            linear += slopes[j] * v[j]
            product += here * v[j]
            penalty += threshold[j] * abs(v[j]) + 0.5 * ridge[j] * v[j] * v[j]
        excess = most(-here if upper[j] > 0.0 else 0.0, here if lower[j] < 0.0 else 0.0) - threshold[j]
        if excess > 0.0:
            shrink = least(shrink, threshold[j] / (threshold[j] + excess))
            beyond += 0.5 * excess * excess / ridge[j] if ridge[j] > 0.0 else 0.0
        strong = strong and ridge[j] > 0.0
    losses = constant + linear - 0.5 * along_q[0] * along_q[0]
    for i in range(moved.size):
        losses += 0.5 * moved[i] * moved[i]
    gap = penalty + product + beyond if strong else penalty + shrink * product + (1.0 - shrink) ** 2 * losses
    found[0], found[1] = largest, gap / (losses + penalty) if losses + penalty > 0.0 else 0.0
    return count


@lean_call
def _weights(history, count, x):
    """Write the weights of the last points whose combination is expected to change least in a sweep (Anderson)."""
    G, total = borrowed((MEMORY, MEMORY), 0.0), 0.0
    for a in range(MEMORY):
        for b in range(a + 1):
            G[a, b] = 0.0
            for k in range(count):
                G[a, b] += (history[a + 1, k] - history[a, k]) * (history[b + 1, k] - history[b, k])
        total += G[a, a]
    for a in range(MEMORY):  # its Cholesky factor, in place
        G[a, a] += LIFT * total
        for b in range(a + 1):
            for k in range(b):
                G[a, b] -= G[a, k] * G[b, k]
            if b < a:
                G[a, b] /= G[b, b]
        G[a, a] = np.sqrt(G[a, a])
        x[a] = 1.0
    solve_factored(G, x)
    total = 0.0
    for a in range(MEMORY):
        total += x[a]
    for a in range(MEMORY):
        x[a] /= total
    give_back(G)


@lean_call
def _extrapolate(
    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, visited, count, history
):
    """Go to the extrapolated point, with coordinates that change their sign at zero, if the model is lower there."""
    x, new, before, along = borrowed(MEMORY, 0.0), borrowed(count, 0.0), borrowed(moved.size, 0.0), along_q[0]
    _weights(history, count, x)
    change = 0.0
    for place in range(count):
        j, own = visited[place], 0.0
        for a in range(MEMORY):
            own += x[a] * history[a + 1, place]
        own = least(most(own, lower[j]), upper[j])
        if threshold[j] > 0.0 and own * v[j] <= 0.0:
            own = 0.0
        new[place] = own
        change += slopes[j] * (own - v[j]) + threshold[j] * (abs(own) - abs(v[j]))
        change += 0.5 * ridge[j] * (own * own - v[j] * v[j])
    for i in range(moved.size):
        before[i] = moved[i]
    _go(data, columns, starts, q, v, moved, along_q, visited, count, new)
    change -= 0.5 * (along_q[0] - along) * (along_q[0] + along)
    for i in range(moved.size):
        change += 0.5 * (moved[i] - before[i]) * (moved[i] + before[i])
    if not change < 0.0:
        for place in range(count):
            v[visited[place]] = history[MEMORY, place]
        for i in range(moved.size):
            moved[i] = before[i]
        along_q[0] = along
    give_back(x)
    give_back(new)
    give_back(before)


@lean_call
def _column_rounds(
    data, columns, starts, q, diagonal, slopes, v, moved, ridge, threshold, lower, upper, along_q, start, constant,
    goal, gap_goal, limit, sweeps,
):  # fmt: skip
    visited, found, history = borrowed(v.size, 0), borrowed(2, 0.0), borrowed((MEMORY + 1, v.size), 0.0)
    inverse = borrowed(v.size, 0.0)
    for j in range(v.size):
        curvature = diagonal[j] + ridge[j]
        visited[j], inverse[j] = j, 1.0 / curvature if curvature > 0.0 else 0.0
    _go(data, columns, starts, q, v, moved, along_q, visited, v.size, start)
    reached = False
    while True:
        count = _survey(
            data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, constant, visited,
            found,
        )  # fmt: skip
        reached = found[0] <= goal or found[1] <= gap_goal
        if reached or sweeps[0] >= limit:
            break
        end, inside, k = least(sweeps[0] + SWEEPS, limit), most(INSIDE * found[0], 0.5 * goal), 0
        while sweeps[0] < end:
            for place in range(count):
                history[k, place] = v[visited[place]]
            if k == MEMORY:
                _extrapolate(
                    data, columns, starts, q, slopes, v, moved, ridge, threshold, lower, upper, along_q, visited,
                    count, history,
                )  # fmt: skip
                k = 0
                continue
            largest = _column_sweep(
                data, columns, starts, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q,
                visited, count,
            )  # fmt: skip
            sweeps[0] += 1
            k += 1
            if largest <= inside:
                break
    give_back(visited)
    give_back(inverse)
    give_back(found)
    give_back(history)
    return reached


column_rounds = Kernel(_column_rounds)
