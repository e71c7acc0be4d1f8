"""Rounds in which each example moves on its own: SDNA and SDCA one at a time, and minibatch SDCA.

    singles(*rows, curvature, indices, models, loss)                a round for each index
    minibatches(*rows, curvature, indices, starts, models, loss)    a round for each set

``curvature`` (K, n) is c_i(‖a_i‖² + ρ) or, for sets of several examples, the ESO vector v; it is divided by λn here.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import jit, prefetch
from dualnewton.kernels.gradients import call_gradient
from dualnewton.kernels.models import Kernel, slopes_at

ROW_AHEAD = 4
"""Rows to come whose entries are asked for."""

PLACE_AHEAD = 10
"""Rows to come whose places are asked for."""

GROUP = 64
"""Rows that several models visit before they move on."""

MAX_STEPS = 1100
"""So many halvings lead from the largest float to the smallest; a handful of Newton steps are the rule."""


@jit
def solve_scalar(u, curvature, alpha, y, loss, tolerance):
    """Return β = −φ′(z) at the root z of F(z) = z − u + curvature(α + φ′(z)), z itself, and (α + φ′)² at the start.

    F has slope at least one, so the root lies between z and z − F(z): a bracket from the first evaluation on, in which
    Newton's method is kept by bisection.
    """
    z = u
    first, second = slopes_at(loss, z, y)
    away = alpha + first
    F = curvature * away
    low, high = min(z, z - F), max(z, z - F)
    for _ in range(MAX_STEPS):
        if abs(F) <= tolerance:
            return -first, z, away * away
        newton = z - F / (1.0 + curvature * second)
        if newton == z:
            break  # F is no more than what rounding leaves
        z = newton if low < newton < high else 0.5 * (low + high)
        if not (low < z < high):
            break
        first, second = slopes_at(loss, z, y)
        F = z - u + curvature * (alpha + first)
        if F > 0.0:
            high = z
        else:
            low = z
    # The dual gains at least h(z − u) − curvature h²/2, by Fenchel and Young at z; rounding may leave a step that it loses by.
    h = -first - alpha
    if h * (z - u) + 1e-15 * abs(h) * (abs(z) + abs(u)) >= 0.5 * curvature * h * h:
        return -first, z, away * away
    return alpha, u, away * away


@jit
def _singles(data, columns, row_starts, curvature, indices, models, loss):
    # Several models take turns on groups of rows that stay in the cache; one model takes them all at once. Where ∇g* is called
    # it is called here, after each row: a call inside the innermost loop was seen to cost all others a fifth of their time.
    K, total = models.w.shape[0], indices.size
    whole = models.gradient.size > 0
    group = 1 if whole else total if K == 1 else GROUP
    for first in range(0, total, max(1, group)):
        last = min(total, first + group)
        for k in range(K):
            models.b[k], surprise = _singles_of_one(
                data,
                columns,
                row_starts,
                curvature[k],
                indices,
                first,
                last,
                models.w[k],
                models.w_bar[k],
                models.alpha[k],
                models.y[k],
                models.c[k],
                models.o[k],
                models.b[k],
                models.b_curvature[k],
                models.scale[k],
                models.limits,
                models.tolerance[k],
                models.sleepy[k],
                models.awake,
                k == 0,
                loss,
            )
            models.surprise[k] += surprise
            if whole:
                call_gradient(models.gradient, models.w_bar[k], models.w[k])


@jit
def _singles_of_one(
    data,
    columns,
    row_starts,
    curvature,
    indices,
    first,
    last,
    w,
    w_bar,
    alpha,
    y,
    c,
    o,
    b,
    b_curvature,
    scale,
    limits,
    tolerance,
    sleepy,
    awake,
    is_first,
    loss,
):
    per_row_c, per_row_o = c.size > 1, o.size > 1
    total = 0.0
    for p in range(first, last):
        if p + PLACE_AHEAD < last:
            far = indices[p + PLACE_AHEAD]
            row.fetch_place(data, columns, row_starts, far)
            prefetch(alpha, far)
            prefetch(y, far)
            prefetch(curvature, far)
        if p + ROW_AHEAD < last:
            row.fetch(data, columns, row_starts, indices[p + ROW_AHEAD])
        i = indices[p]
        old, weight = alpha[i], c[i * per_row_c]
        u = row.dot(data, columns, row_starts, i, w) + o[i * per_row_o] + b
        beta, _, surprise = solve_scalar(u, curvature[i] * scale, old, y[i], loss, tolerance)
        alpha[i] = beta
        mass = weight * (beta - old)
        total += weight * surprise
        awake[i] = (weight * surprise > sleepy) | (awake[i] & (not is_first))
        if mass != 0.0:
            b += b_curvature * mass
            row.add(data, columns, row_starts, i, mass * scale, w_bar)
            if limits.shape[1] > 0:
                row.shrink(data, columns, row_starts, i, w_bar, w, limits)
    return b, total


@jit
def _minibatches(data, columns, row_starts, curvature, indices, starts, models, loss):
    per_row_c, per_row_o = models.c.shape[1] > 1, models.o.shape[1] > 1
    total = indices.size
    K = models.w.shape[0]
    mass = np.empty((K, np.max(starts[1:] - starts[:-1])))
    for s in range(starts.size - 1):
        for p in range(starts[s], starts[s + 1]):
            if p + PLACE_AHEAD < total:
                row.fetch_place(data, columns, row_starts, indices[p + PLACE_AHEAD])
            if p + ROW_AHEAD < total:
                row.fetch(data, columns, row_starts, indices[p + ROW_AHEAD])
            i = indices[p]
            for k in range(K):
                old = models.alpha[k, i]
                u = row.dot(data, columns, row_starts, i, models.w[k]) + models.o[k, i * per_row_o] + models.b[k]
                g = curvature[k, i] * models.scale[k]
                beta, _, surprise = solve_scalar(u, g, old, models.y[k, i], loss, models.tolerance[k])
                surprise *= models.c[k, i * per_row_c]
                models.surprise[k] += surprise
                models.awake[i] = (surprise > models.sleepy[k]) | (models.awake[i] & (k > 0))
                models.alpha[k, i] = beta
                mass[k, p - starts[s]] = models.c[k, i * per_row_c] * (beta - old)
        for p in range(starts[s], starts[s + 1]):
            i = indices[p]
            for k in range(K):
                m = mass[k, p - starts[s]]
                models.b[k] += models.b_curvature[k] * m
                row.add(data, columns, row_starts, i, m * models.scale[k], models.w_bar[k])
        for k in range(K):
            row.follow(
                data,
                columns,
                row_starts,
                indices,
                starts[s],
                starts[s + 1],
                models.w_bar[k],
                models.w[k],
                models.limits,
                models.gradient,
            )


singles, minibatches = Kernel(_singles), Kernel(_minibatches)
