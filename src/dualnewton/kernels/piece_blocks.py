"""The block subproblem of SDNA for piecewise linear losses, compiled: see :mod:`dualnewton.solvers.dual.piecewise`."""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import lean_call, overloads
from dualnewton.kernels.newton import IMAGE, START_RESIDUAL, STEP, K, Q, Z, eliminate, solve_block
from dualnewton.kernels.pieces import piece_residual, solve_piece

MAX_SWEEPS = 200
"""Maximum number of sweeps over a block; every sweep increases the dual, so that a block may be left unfinished."""

SNAP = 1e-14
"""Distance from the end of a piece, as a fraction of its length, that is taken for rounding: at an end an example is not free."""

LIFT = 1e-10
"""Fraction of the largest diagonal entry of the linear system that is added to its diagonal: rows may repeat."""

TINY = float(np.finfo(np.float64).tiny)


@overloads
def solve_any_block(G, u, alpha, y, c, beta, t, tolerance, loss, work, B):
    """Write the new dual variables of a block into ``beta``; return the sum of the residuals at the start.

    A piecewise linear loss is None and has a row of numbers in ``y`` for each example; any other is what
    :func:`~dualnewton.kernels.newton.solve_block` takes.
    """

    def smooth(G, u, alpha, y, c, beta, t, tolerance, loss, work, B):
        return solve_block(G, u, alpha, y, c, beta, t, tolerance, loss, work, B)

    def pieces(G, u, alpha, y, c, beta, t, tolerance, loss, work, B):
        return solve_pieces(G, u, alpha, y, c, beta, t, tolerance, work, B)

    return smooth if y.ndim == 1 else pieces


@overloads
def copy_label(labels, k, e, y, i):
    """Copy the label of example e of model k to place i, or the numbers that a piecewise linear loss has for it."""

    def smooth(labels, k, e, y, i):
        y[i] = labels[k, e]

    def pieces(labels, k, e, y, i):
        # A loop: assigning a row would also compile the error message for unequal shapes, which takes seconds.
        for p in range(y.shape[1]):
            y[i, p] = labels[k, e, p]

    return smooth if labels.ndim == 2 else pieces


@lean_call
def solve_pieces(G, u, alpha, pieces, c, beta, t, tolerance, work, B):
    """Sweep over the examples of a block by exact steps in one variable, and move the free examples together after each sweep.

    It ends when no step of a sweep changes its own margin by more than the tolerance.
    """
    residual = 0.0
    for i in range(t):
        work[Z, i], beta[i] = u[i], alpha[i]
        work[START_RESIDUAL, i] = c[i] * piece_residual(u[i], alpha[i], pieces, (i,))
        residual += work[START_RESIDUAL, i]
    for _ in range(MAX_SWEEPS):
        largest = 0.0
        for i in range(t):
            new = solve_piece(work[Z, i], G[i, i] * c[i], beta[i], pieces, (i,))
            change = c[i] * (new - beta[i])
            beta[i] = new
            if change != 0.0:
                for j in range(t):
                    work[Z, j] += G[i, j] * change
                largest = max(largest, abs(G[i, i] * change))
        if largest <= tolerance:
            break
        _free_step(G, pieces, c, beta, t, work, B)
    return residual


@lean_call
def _free_step(G, pieces, c, beta, t, work, B):
    """Move the margins of the free examples towards their kinks, as far as no example leaves its piece."""
    # 1. The free examples (row K of the scratch array holds their places), and the distances from their kinks.
    f, largest = 0, 0.0
    for i in range(t):
        for p in range(1, pieces.shape[1], 2):
            if c[i] > 0.0 and pieces[i, p - 1] < -beta[i] < pieces[i, p + 1]:
                work[K, f], work[Q, f] = i, pieces[i, p] - work[Z, i]
                largest = max(largest, G[i, i])
                f += 1
    if f == 0:
        return
    # 2. Their linear system.
    lift = LIFT * largest + TINY
    for a in range(f):
        i = int(work[K, a])
        for e in range(a, f):
            B[a, e] = G[i, int(work[K, e])]
        B[a, a] += lift
    if not eliminate(B, f, work):
        return
    # 3. The longest step on which all stay inside their pieces.
    length = 1.0
    for a in range(f):
        i = int(work[K, a])
        step = work[IMAGE, a] = work[Q, a] / c[i]
        for p in range(1, pieces.shape[1], 2):
            left, right = pieces[i, p - 1], pieces[i, p + 1]
            if left < -beta[i] < right and step != 0.0:
                length = min(length, ((-left if step > 0.0 else -right) - beta[i]) / step)
    for a in range(f):
        i = int(work[K, a])
        new = -beta[i] - length * work[IMAGE, a]
        for p in range(1, pieces.shape[1], 2):
            left, right = pieces[i, p - 1], pieces[i, p + 1]
            if left < -beta[i] < right:
                near = SNAP * (right - left)
                new = left if new - left <= near else right if right - new <= near else new
        work[STEP, a] = c[i] * (-new - beta[i])
        beta[i] = -new
    for a in range(f):
        i = int(work[K, a])
        for j in range(t):
            work[Z, j] += G[i, j] * work[STEP, a]
