"""Rounds with one scalar subproblem per example: SDNA and SDCA on single examples, and minibatch SDCA.

    singles(*rows, curvature, indices, ends, counter, models, loss) one round per index
    minibatches(*rows, curvature, indices, starts, models, loss)    one round per set
    squares(*rows, out)                                             ‖a_i‖² of all rows, for the curvature

``curvature`` (K, n) is c_i(‖a_i‖² + ρ) or, for sets of several examples, the ESO vector v; it is divided by λn here.
The models of ``singles`` are independent of each other: threads call it with the same arguments, and each takes models
ends[g] … ends[g + 1] for the next g of the counter, until none is left.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import jit, lean, least, most, overloads, prefetch
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.gradients import call_gradient
from dualnewton.kernels.losses import slopes_at
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.pieces import step_piece
from dualnewton.kernels.team import TeamKernel

ROW_AHEAD = 4
"""Prefetch distance of the entries of a row, in rows: long enough to hide the latency of main memory."""

PLACE_AHEAD = 10
"""Prefetch distance of the row start and of α, y and the curvature, in rows; it must exceed ROW_AHEAD."""

GROUP = 64
"""Number of rows that one model processes before the next model takes its turn: these rows stay in the cache."""

MAX_STEPS = 1100
"""Maximum number of steps of a scalar solve. Newton's method usually needs a handful; 1100 bisections reduce a bracket of width
2^1024, the float64 range, to less than 2^−52."""


@lean
def solve_scalar(u, curvature, alpha, y, loss, tolerance):
    """Return β = −φ′(z) at the root z of F(z) = z − u + curvature(α + φ′(z)), z itself, and (α + φ′)² at the start.

    F has slope at least one, so that the root lies between z and z − F(z). The first evaluation thus gives a bracket, and a
    Newton step that leaves the bracket is replaced by bisection.
    """
    z = u
    first, second = slopes_at(loss, z, y)
    residual = alpha + first
    F = curvature * residual
    low, high = least(z, z - F), most(z, z - F)
    for _ in range(MAX_STEPS):
        if abs(F) <= tolerance:
            return -first, z, residual * residual
        newton = z - F / (1.0 + curvature * second)
        if newton == z:
            break  # F is at rounding level
        z = newton if low < newton < high else 0.5 * (low + high)
        if not (low < z < high):
            break
        first, second = slopes_at(loss, z, y)
        F = z - u + curvature * (alpha + first)
        if F > 0.0:
            high = z
        else:
            low = z
    # By Fenchel–Young at z, D increases by at least h(z − u) − curvature h²/2; reject a step that rounding has made harmful.
    h = -first - alpha
    if h * (z - u) + 1e-15 * abs(h) * (abs(z) + abs(u)) >= 0.5 * curvature * h * h:
        return -first, z, residual * residual
    return alpha, u, residual * residual


@overloads
def solve_one(u, curvature, alpha, labels, at, loss, tolerance):
    """Return the new dual variable of the example whose label is ``labels[at]``, and its residual before the step.

    A piecewise linear loss has a row of numbers where other losses have a label (:class:`Models`), by which the step is exact.
    """

    def smooth(u, curvature, alpha, labels, at, loss, tolerance):
        beta, _, residual = solve_scalar(u, curvature, alpha, labels[at], loss, tolerance)
        return beta, residual

    def pieces(u, curvature, alpha, labels, at, loss, tolerance):
        return step_piece(u, curvature, alpha, labels, at)

    return smooth if labels.ndim == len(at) else pieces


@lean
def _singles(data, columns, row_starts, curvature, indices, ends, counter, models, loss):
    # Several models take turns on groups of rows that stay in the cache; a single model processes all rows at once, in the
    # same groups for any number of threads, since the residuals of a group are added first.
    # A nonseparable ∇g* is called here after each row: a call in the innermost loop slowed all other regularisers by a fifth.
    total, whole = indices.size, models.gradient.size > 0
    group = 1 if whole else total if models.w.shape[0] == 1 else GROUP
    share = next_number(counter)
    while share < ends.size - 1:
        for first in range(0, total, most(1, group)):
            last = least(total, first + group)
            for k in range(ends[share], ends[share + 1]):
                models.b[k], residual = singles_of_one(
                    data, columns, row_starts, curvature[k], indices, first, last,
                    models.w[k], models.w_bar[k], models.alpha[k], models.y[k], models.c[k], models.o[k],
                    models.b[k], models.b_curvature[k], models.scale[k], models.limits,
                    models.tolerance[k], models.inactive_below[k], models.active[k], loss,
                )  # fmt: skip
                models.residual[k] += residual
                if whole:
                    call_gradient(models.gradient, models.w_bar[k], models.w[k])
        share = next_number(counter)


@lean
def singles_of_one(
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
    inactive_below,
    active,
    loss,
):
    """Visit the examples ``indices[first:last]`` of one model; return its intercept and the sum of the residuals."""
    per_row_c, per_row_o = c.size > 1, o.size > 1
    per_label = y.strides[0] // y.itemsize
    total = 0.0
    for p in range(first, last):
        if p + PLACE_AHEAD < last:
            far = indices[p + PLACE_AHEAD]
            row.fetch_place(data, columns, row_starts, far)
            prefetch(alpha, far)
            prefetch(y, far * per_label)
            prefetch(curvature, far)
        if p + ROW_AHEAD < last:
            row.fetch(data, columns, row_starts, indices[p + ROW_AHEAD])
        i = indices[p]
        old, weight = alpha[i], c[i * per_row_c]
        u = row.dot(data, columns, row_starts, i, w) + o[i * per_row_o] + b
        beta, residual = solve_one(u, curvature[i] * scale, old, y, (i,), loss, tolerance)
        alpha[i] = beta
        mass = weight * (beta - old)
        total += weight * residual
        active[i] = weight * residual > inactive_below
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
                beta, residual = solve_one(u, g, old, models.y, (k, i), loss, models.tolerance[k])
                residual *= models.c[k, i * per_row_c]
                models.residual[k] += residual
                models.active[k, i] = residual > models.inactive_below[k]
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
                data, columns, row_starts, indices, starts[s], starts[s + 1],
                models.w_bar[k], models.w[k], models.limits, models.gradient,
            )  # fmt: skip


@lean
def _squares(data, columns, row_starts, out):
    for i in range(out.size):
        out[i] = row.square(data, columns, row_starts, i)


singles, minibatches, squares = TeamKernel(_singles), Kernel(_minibatches), Kernel(_squares)
