"""The block subproblem of SDNA, compiled: the Newton iteration of :mod:`dualnewton.solvers.dual.block` without its allocations.

Vectors and matrices have room for whole groups of four numbers. What lies beyond the block is read, too, but never mixed with
what lies inside: it may be anything. The vectors of the iteration are rows of one matrix and are never taken out of it: Numba
counts who holds an array, and with a view of each in each function a block of eight was seen to take a fifth more time.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels._lanes import LANES, fma, load, spread, store, zeros
from dualnewton.kernels.separable import solve_scalar

MAX_STEPS = 50

FAST = 0.5
"""Newton's method needs no values of φ as long as each step leaves at most this part of the misfit."""

VECTORS = 11
Z, FIRST, SECOND, RESIDUAL, K, Q, STEP, PULL, IMAGE, TRIAL, AWAY = range(VECTORS)
"""The rows of ``work``: z, φ′, φ″, c∘F, the diagonal of K, q, Δβ, G(c∘α), G(c∘F) or Δz, margins on trial, c (α + φ′)²."""


@jit
def solve_block(G, u, alpha, y, c, beta, t, tolerance, pointwise, slopes, work, B):
    """Write the new dual variables of a block into ``beta``; return Σ c (α + φ′)² at the start, its terms in work[AWAY].

    Minimises J = Σ c φ(z) + ½ (c∘β)ᵀG(c∘β), z = u + G(c∘(β − α)), by Newton's method, until the margins z fit the dual
    variables −φ′(z) to within the tolerance, and then returns just those, which belong to the domain of the dual
    whatever rounding did. Where the steps do not converge fast, it begins again and halves them until J does not rise. Where that
    does not help either, the block is passed over one example at a time instead, which is always possible.

    Parameters
    ----------
    G : array (≥ t, ≥ t)
        The Gram block over λn, with the curvature of the intercept added, in what :func:`square` returns.
    u, alpha, y, c : arrays (≥ t,)
        Margins, dual variables, labels and weights.
    beta : array (≥ t,)
        The answer.
    t : int
        The number of examples.
    tolerance : float
        Of the margins.
    pointwise, slopes : functions
        (z, y) ↦ φ, φ′, φ″ and (z, y) ↦ φ′, φ″.
    work, B : arrays
        What :func:`scratch` returns.
    """
    worst = _fast(G, u, alpha, y, c, beta, t, tolerance, slopes, work, B)
    surprise = 0.0
    for i in range(t):
        surprise += work[AWAY, i]
    if not worst <= tolerance:
        worst = _safe(G, u, alpha, y, c, beta, t, tolerance, pointwise, work, B)
    # Take −φ′(z) if the margins fit, and beyond doubt; rounding adds to them up to ε max G Σ c|h|. Where that matters, or
    # the iteration has ended for another reason, the step must be seen to gain.
    reach = largest = 0.0
    for i in range(t):
        work[RESIDUAL, i] = c[i] * (-work[FIRST, i] - alpha[i])
        reach += abs(work[RESIDUAL, i])
        largest = max(largest, G[i, i])
    fits = worst <= tolerance and 1e-15 * largest * reach <= tolerance
    if fits or _gains(G, u, t, work):
        for i in range(t):
            beta[i] = -work[FIRST, i]
    else:
        _one_by_one(G, u, alpha, y, c, beta, t, tolerance, slopes, work)
    return surprise


@jit
def _fast(G, u, alpha, y, c, beta, t, tolerance, slopes, work, B):
    """Take whole Newton steps while each of them pays; return the largest misfit of a margin, infinity if one did not.

    With values of the logistic loss, their logarithms would take a third of a visit. Where the margins fit, it does not matter on
    which way they were found: J is convex, and this is its minimum.
    """
    for i in range(t):
        work[Z, i], beta[i] = u[i], alpha[i]
        work[FIRST, i], work[SECOND, i] = slopes(u[i], y[i])
        work[AWAY, i] = c[i] * (alpha[i] + work[FIRST, i]) ** 2
    enough = np.inf
    for _ in range(MAX_STEPS):
        worst, total = _misfit(G, c, beta, t, work)
        if worst <= tolerance and total < np.inf:  # a maximum overlooks what is not a number
            return worst
        if not total < enough:
            return np.inf
        enough = FAST * total
        if not _newton_step(G, c, beta, t, work, B):
            return np.inf
        for i in range(t):
            beta[i] += work[STEP, i]
            work[Z, i] += work[IMAGE, i]
            work[FIRST, i], work[SECOND, i] = slopes(work[Z, i], y[i])
    return np.inf


@jit
def _safe(G, u, alpha, y, c, beta, t, tolerance, pointwise, work, B):
    """Take Newton steps, each halved until J does not rise; return the largest misfit of a margin where they end."""
    # 1. Start where the block is.
    for i in range(t):
        work[RESIDUAL, i] = c[i] * alpha[i]
    _times(G, t, work, RESIDUAL, PULL)
    J = 0.0
    for i in range(t):
        work[Z, i], beta[i] = u[i], alpha[i]
        value, work[FIRST, i], work[SECOND, i] = pointwise(u[i], y[i])
        J += c[i] * (value + 0.5 * alpha[i] * work[PULL, i])
    worst = last = np.inf
    for _ in range(MAX_STEPS):
        # 2. Stop when the margins fit.
        worst, _total = _misfit(G, c, beta, t, work)
        if worst <= tolerance or worst >= last:
            break
        # 3. The Newton step.
        if not _newton_step(G, c, beta, t, work, B):
            break
        # 4. Halve it until J does not rise.
        length = 1.0
        while True:
            J_new = noise = 0.0
            for i in range(t):
                trial = work[TRIAL, i] = work[Z, i] + length * work[IMAGE, i]
                value, work[FIRST, i], work[SECOND, i] = pointwise(trial, y[i])
                quadratic = 0.5 * (beta[i] + length * work[STEP, i]) * (trial - u[i] + work[PULL, i])
                J_new += c[i] * (value + quadratic)
                noise += c[i] * (abs(value) + abs(quadratic))
            if J_new <= J + 1e-15 * noise:
                break
            length *= 0.5
            if length < 1e-10:
                break
        if not length >= 1e-10:
            break
        for i in range(t):
            beta[i] += length * work[STEP, i]
            work[Z, i] = work[TRIAL, i]
        last = worst if J_new >= J - 1e-15 * noise else np.inf
        J = J_new
    return worst


@jit
def _times(G, t, work, x, out):
    """work[out] = G work[x] for symmetric G: its rows are added up, so that no sum runs across a register."""
    width = G.shape[1]
    for p in range(0, t, LANES):
        total = zeros()
        for j in range(t):
            total = fma(load(G, j * width + p, total), spread(work[x, j]), total)
        store(work, out * work.shape[1] + p, total)


@jit
def _misfit(G, c, beta, t, work):
    """Write C F, F = −φ′(z) − β, and G C F, what z would move by if β became −φ′(z); return its largest |entry| and their sum."""
    for i in range(t):
        work[RESIDUAL, i] = c[i] * (-work[FIRST, i] - beta[i])
    _times(G, t, work, RESIDUAL, IMAGE)
    worst = total = 0.0
    for i in range(t):
        worst = max(worst, abs(work[IMAGE, i]))
        total += abs(work[IMAGE, i])
    return worst, total


@jit
def _newton_step(G, c, beta, t, work, B):
    """Write Δβ and Δz from what :func:`_misfit` has left; False if rounding has made the matrix indefinite.

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
    if not _solve(B, t, work):
        return False
    for i in range(t):
        work[RESIDUAL, i] -= work[K, i] * work[Q, i]
    _times(G, t, work, RESIDUAL, IMAGE)
    for i in range(t):
        work[STEP, i] = -work[FIRST, i] - beta[i] - work[SECOND, i] * work[IMAGE, i]
    return True


@jit
def _solve(B, t, work):
    """Solve B x = q in place by elimination in the upper triangle of B; False if a pivot is not positive."""
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


@jit
def _one_by_one(G, u, alpha, y, c, beta, t, tolerance, slopes, work):
    """Visit the examples of a block in turn, each solved on its own with the margins that the others have left."""
    for i in range(t):
        work[Z, i] = u[i]
    for i in range(t):
        beta[i], root, _ = solve_scalar(work[Z, i], G[i, i] * c[i], alpha[i], y[i], slopes, tolerance)
        mass = work[RESIDUAL, i] = c[i] * (beta[i] - alpha[i])
        for j in range(i + 1, t):
            work[Z, j] += G[j, i] * mass
        work[Z, i] = root
    if not _gains(G, u, t, work):  # rounding has the last word: better stay
        for i in range(t):
            beta[i] = alpha[i]


@jit
def _gains(G, u, t, work):
    """Whether D rises by Σ m(z − u) − ½mᵀGm ≥ 0 at least, m = c∘(β − α): the Fenchel–Young inequality at β = −φ′(z)."""
    gain = noise = 0.0
    for i in range(t):
        total = 0.0
        for j in range(t):
            total += G[i, j] * work[RESIDUAL, j]
        mass, z = work[RESIDUAL, i], work[Z, i]
        gain += mass * (z - u[i] - 0.5 * total)
        noise += abs(mass) * (abs(z) + abs(u[i]))
    return gain >= -1e-15 * noise


@jit
def square(size):
    """Room for a matrix on blocks of up to ``size`` examples."""
    padded = (size + LANES - 1) // LANES * LANES
    return np.zeros((padded, padded))


@jit
def scratch(size):
    """Room for the iteration on blocks of up to ``size`` examples."""
    B = square(size)
    return np.zeros((VECTORS, B.shape[1])), B
