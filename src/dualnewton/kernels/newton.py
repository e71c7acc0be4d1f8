"""The block subproblem of SDNA, compiled: the Newton iteration of :mod:`dualnewton.solvers.dual.block` without its allocations.

Vectors and matrices are padded to multiples of four numbers. The padding is read but never enters the results, so that it may
hold any values. The vectors of the iteration are rows of one matrix ``work`` and are addressed by row index, not as views:
Numba's reference counting of views cost a fifth more time for blocks of eight.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import lean_call, most
from dualnewton.kernels._lanes import LANES, fma, load, spread, store, zeros
from dualnewton.kernels.losses import slopes_at, values_at
from dualnewton.kernels.separable import solve_scalar

MAX_STEPS = 50
"""Maximum number of Newton steps per attempt; after them the point is accepted only if the dual does not decrease."""

FAST = 0.5
"""Largest ratio of the residuals of the margins after and before a full Newton step at which no values of φ are needed."""

SHORTEST = 1e-10
"""Length of a step below which halving ends."""

VECTORS = 11
Z, FIRST, SECOND, RESIDUAL, K, Q, STEP, PULL, IMAGE, TRIAL, START_RESIDUAL = range(VECTORS)
"""The rows of ``work``: z, φ′, φ″, c∘F, the diagonal of K, q, Δβ, G(c∘α), G(c∘F) or Δz, trial z, c (α + φ′)² at the start."""


@lean_call
def solve_block(G, u, alpha, y, c, beta, t, tolerance, loss, work, B):
    """Write the new dual variables of a block into ``beta``; return the dual residual Σ c (α + φ′)² at the start.

    Minimises J = Σ c φ(z) + ½ (c∘β)ᵀG(c∘β), z = u + G(c∘(β − α)), by Newton's method, until replacing β by −φ′(z) would change
    the margins z by at most the tolerance, and returns β = −φ′(z), which lies in the domain of the dual despite rounding. If
    full steps do not converge fast, the iteration restarts and halves each step until J does not rise. If that fails too,
    the examples are updated one at a time, which always works. The terms of the residual are left in work[START_RESIDUAL].

    G is the Gram block divided by λn plus the curvature of the intercept, in rows of :func:`padded` length; u, α, y and c are
    the margins, dual variables, labels and weights of t examples. The tolerance of the margins is absolute. ``work``
    (VECTORS, padded) and ``B`` (padded, padded) are scratch arrays.
    """
    worst = _minimise(G, u, alpha, y, c, beta, t, tolerance, loss, work, B, False)
    residual = 0.0
    for i in range(t):
        residual += work[START_RESIDUAL, i]
    if not worst <= tolerance:
        worst = _minimise(G, u, alpha, y, c, beta, t, tolerance, loss, work, B, True)
    # Accept −φ′(z) if the margins have converged and their rounding error, up to ε max G Σ c|h|, is below the tolerance.
    # Otherwise accept it only if the dual does not decrease.
    reach = largest = 0.0
    for i in range(t):
        work[RESIDUAL, i] = c[i] * (-work[FIRST, i] - alpha[i])
        reach += abs(work[RESIDUAL, i])
        largest = most(largest, G[i, i])
    fits = worst <= tolerance and 1e-15 * largest * reach <= tolerance
    if fits or _gains(G, u, t, work):
        for i in range(t):
            beta[i] = -work[FIRST, i]
    else:
        _one_by_one(G, u, alpha, y, c, beta, t, tolerance, loss, work)
    return residual


@lean_call
def _minimise(G, u, alpha, y, c, beta, t, tolerance, loss, work, B, careful):
    """Take Newton steps; return the largest residual of a margin at the last point, or infinity if full steps converge slowly.

    If ``careful``, each step is halved until J does not rise. Full steps need no values of φ, whose logarithms would take a third
    of the time for the logistic loss: J is convex, so that a point at which the residual vanishes is its minimum.
    """
    # 1. Start at the current dual variables.
    if careful:
        for i in range(t):
            work[RESIDUAL, i] = c[i] * alpha[i]
        _times(G, t, work, RESIDUAL, PULL)
    J = 0.0
    for i in range(t):
        work[Z, i], beta[i] = u[i], alpha[i]
        value = _evaluate(loss, u[i], y[i], work, i, careful)
        if careful:
            J += c[i] * (value + 0.5 * alpha[i] * work[PULL, i])
        else:
            excess = alpha[i] + work[FIRST, i]
            work[START_RESIDUAL, i] = c[i] * (excess * excess)
    worst = last = enough = np.inf
    for _ in range(MAX_STEPS):
        # 2. Stop when the margins have converged, when rounding prevents further progress, or when full steps converge slowly.
        worst, total = _residual(G, c, beta, t, work)
        if worst <= tolerance and (careful or total < np.inf):  # the sum detects NaN, the maximum does not
            return worst
        if worst >= last if careful else not total < enough:
            break
        enough = FAST * total
        # 3. The Newton step.
        if not _newton_step(G, c, beta, t, work, B):
            break
        # 4. Halve it until J does not rise.
        length, J_new, noise = 1.0, 0.0, 0.0
        while length >= SHORTEST:
            J_new = noise = 0.0
            for i in range(t):
                trial = work[TRIAL, i] = work[Z, i] + length * work[IMAGE, i]
                value = _evaluate(loss, trial, y[i], work, i, careful)
                if careful:
                    quadratic = 0.5 * (beta[i] + length * work[STEP, i]) * (trial - u[i] + work[PULL, i])
                    J_new += c[i] * (value + quadratic)
                    noise += c[i] * (abs(value) + abs(quadratic))
            if not careful or J_new <= J + 1e-15 * noise:
                break
            length *= 0.5
        if length < SHORTEST:
            break
        for i in range(t):
            beta[i] += length * work[STEP, i]
            work[Z, i] = work[TRIAL, i]
        last = worst if J_new >= J - 1e-15 * noise else np.inf
        J = J_new
    return worst if careful else np.inf


@lean_call
def _evaluate(loss, z, y, work, i, careful):
    """Write φ′(z) and φ″(z) of example i; return φ(z) if ``careful``, else zero."""
    if careful:
        value, work[FIRST, i], work[SECOND, i] = values_at(loss, z, y)
        return value
    work[FIRST, i], work[SECOND, i] = slopes_at(loss, z, y)
    return 0.0


@lean_call
def _times(G, t, work, x, out):
    """work[out] = G work[x] for symmetric G, as a combination of its rows: this needs no sums across the lanes of a vector."""
    width = G.shape[1]
    for p in range(0, t, LANES):
        total = zeros()
        for j in range(t):
            total = fma(load(G, j * width + p, total), spread(work[x, j]), total)
        store(work, out * work.shape[1] + p, total)


@lean_call
def _residual(G, c, beta, t, work):
    """Write C F, F = −φ′(z) − β, and the change G C F of z if β became −φ′(z); return the maximum and sum of its |entries|."""
    for i in range(t):
        work[RESIDUAL, i] = c[i] * (-work[FIRST, i] - beta[i])
    _times(G, t, work, RESIDUAL, IMAGE)
    worst = total = 0.0
    for i in range(t):
        worst = most(worst, abs(work[IMAGE, i]))
        total += abs(work[IMAGE, i])
    return worst, total


@lean_call
def _newton_step(G, c, beta, t, work, B):
    """Write Δβ and Δz, given the output of :func:`_residual`; return False if rounding has made the matrix indefinite.

    q = (I + KGK)⁻¹ K G C F, C Δβ = C F − K q, Δz = G C Δβ, Δβ = F − φ″ Δz.
    """
    width, k = G.shape[1], K * work.shape[1]
    for i in range(t):
        work[K, i] = math.sqrt(c[i] * work[SECOND, i])
        work[Q, i] = work[K, i] * work[IMAGE, i]
    for i in range(t):
        k_i = spread(work[K, i])
        for p in range(i // LANES * LANES, t, LANES):
            scaled = fma(load(G, i * width + p, k_i), k_i, zeros())
            store(B, i * width + p, fma(scaled, load(work, k + p, k_i), zeros()))
        B[i, i] += 1.0
    if not eliminate(B, t, work):
        return False
    for i in range(t):
        work[RESIDUAL, i] -= work[K, i] * work[Q, i]
    _times(G, t, work, RESIDUAL, IMAGE)
    for i in range(t):
        work[STEP, i] = -work[FIRST, i] - beta[i] - work[SECOND, i] * work[IMAGE, i]
    return True


@lean_call
def eliminate(B, t, work):
    """Solve B x = q in place by elimination in the upper triangle of B; return False if a pivot is not positive."""
    width = B.shape[1]
    for j in range(t):
        if not B[j, j] > 0.0:
            return False
        inverse = work[STEP, j] = 1.0 / B[j, j]
        for i in range(j + 1, t):
            factor = -B[j, i] * inverse
            factors = spread(factor)
            for p in range(i // LANES * LANES, t, LANES):
                place = i * width + p
                store(B, place, fma(load(B, j * width + p, factors), factors, load(B, place, factors)))
            work[Q, i] += factor * work[Q, j]
    for i in range(t - 1, -1, -1):
        x = work[Q, i] = work[Q, i] * work[STEP, i]
        for j in range(i):
            work[Q, j] -= B[j, i] * x
    return True


@lean_call
def _one_by_one(G, u, alpha, y, c, beta, t, tolerance, loss, work):
    """Update the examples of a block one at a time, each with the margins that result from the previous updates."""
    for i in range(t):
        work[Z, i] = u[i]
    for i in range(t):
        beta[i], root, _ = solve_scalar(work[Z, i], G[i, i] * c[i], alpha[i], y[i], loss, tolerance)
        mass = work[RESIDUAL, i] = c[i] * (beta[i] - alpha[i])
        for j in range(i + 1, t):
            work[Z, j] += G[j, i] * mass
        work[Z, i] = root
    if not _gains(G, u, t, work):  # rounding made the dual decrease: keep the old dual variables
        for i in range(t):
            beta[i] = alpha[i]


@lean_call
def _gains(G, u, t, work):
    """Whether D rises by at least Σ m(z − u) − ½mᵀGm ≥ 0, m = c∘(β − α), by the Fenchel–Young inequality at β = −φ′(z)."""
    gain = noise = 0.0
    for i in range(t):
        total = 0.0
        for j in range(t):
            total += G[i, j] * work[RESIDUAL, j]
        mass, z = work[RESIDUAL, i], work[Z, i]
        gain += mass * (z - u[i] - 0.5 * total)
        noise += abs(mass) * (abs(z) + abs(u[i]))
    return gain >= -1e-15 * noise


def padded(size: int) -> int:
    """Return the number of columns of the scratch arrays for blocks of up to ``size`` examples: whole vectors."""
    return (size + LANES - 1) // LANES * LANES
