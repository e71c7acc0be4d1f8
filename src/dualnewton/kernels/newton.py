"""The block subproblem of SDNA, compiled: the Newton iteration of :mod:`dualnewton.solvers.block` without its allocations."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels.separable import solve_scalar

MAX_STEPS = 50
VECTORS = 11
"""Vectors of the size of a block that the iteration keeps."""


@jit
def solve_block(G, u, alpha, y, c, beta, tolerance, pointwise, slopes, work, B):
    """Write the new dual variables of a block into ``beta``; return Σ c (α + φ′)² at the start, its terms in work[10].

    Minimises J = Σ c φ(z) + ½ (c∘β)ᵀG(c∘β), z = u + G(c∘(β − α)), by Newton's method with step halving, until the margins z fit
    the dual variables −φ′(z) to within the tolerance, and then returns just those, which belong to the domain of the dual
    whatever rounding did. Where that cannot be reached, the block is passed over one example at a time instead, which is
    always possible.

    Parameters
    ----------
    G : array (t, t)
        The Gram block over λn, with the curvature of the intercept added.
    u, alpha, y, c : arrays (t,)
        Margins, dual variables, labels and weights.
    beta : array (t,)
        The answer.
    tolerance : float
        Of the margins.
    pointwise, slopes : functions
        (z, y) ↦ φ, φ′, φ″ and (z, y) ↦ φ′, φ″.
    work, B : arrays (VECTORS, t), (t, t)
        Scratch.
    """
    t = u.size
    z, first, second, residual, k, q, step, pull, image, trial, away = (
        work[0], work[1], work[2], work[3], work[4], work[5], work[6], work[7], work[8], work[9], work[10],
    )  # fmt: skip
    # 1. Start where the block is.
    surprise = J = 0.0
    for i in range(t):
        total = 0.0
        for j in range(t):
            total += G[i, j] * c[j] * alpha[j]
        pull[i] = total
        z[i] = u[i]
        beta[i] = alpha[i]
        value, first[i], second[i] = pointwise(z[i], y[i])
        J += c[i] * (value + 0.5 * alpha[i] * total)
        away[i] = c[i] * (alpha[i] + first[i]) ** 2
        surprise += away[i]
    worst = last = np.inf
    for _ in range(MAX_STEPS):
        # 2. Stop when the margins fit: F = −φ′(z) − β, and G(c∘F) is what z would move by if β became −φ′(z).
        for i in range(t):
            residual[i] = c[i] * (-first[i] - beta[i])
        worst = 0.0
        for i in range(t):
            total = 0.0
            for j in range(t):
                total += G[i, j] * residual[j]
            image[i] = total
            worst = max(worst, abs(total))
        if worst <= tolerance or worst >= last:
            break
        # 3. The Newton step: q = (I + KGK)⁻¹ K G C F, C Δβ = C F − K q, Δz = G C Δβ, Δβ = F − φ″ Δz.
        for i in range(t):
            k[i] = math.sqrt(c[i] * second[i])
        for i in range(t):
            q[i] = k[i] * image[i]
            for j in range(i):
                B[i, j] = k[i] * G[i, j] * k[j]
            B[i, i] = 1.0 + k[i] * G[i, i] * k[i]
        if not _cholesky_solve(B, q, t):
            break
        for i in range(t):
            residual[i] -= k[i] * q[i]
        for i in range(t):
            total = 0.0
            for j in range(t):
                total += G[i, j] * residual[j]
            image[i] = total
        for i in range(t):
            step[i] = -first[i] - beta[i] - second[i] * image[i]
        # 4. Halve it until J does not rise.
        length = 1.0
        while True:
            J_new = noise = 0.0
            for i in range(t):
                trial[i] = z[i] + length * image[i]
                value, first[i], second[i] = pointwise(trial[i], y[i])
                quadratic = 0.5 * (beta[i] + length * step[i]) * (trial[i] - u[i] + pull[i])
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
            beta[i] += length * step[i]
            z[i] = trial[i]
        last = worst if J_new >= J - 1e-15 * noise else np.inf
        J = J_new
    # 5. Take −φ′(z) if the margins fit, and beyond doubt; rounding adds to them up to ε max G Σ c|h|. Where that matters, or
    #    the iteration has ended for another reason, the step must be seen to gain.
    reach = largest = 0.0
    for i in range(t):
        residual[i] = c[i] * (-first[i] - alpha[i])
        reach += abs(residual[i])
        largest = max(largest, G[i, i])
    fits = worst <= tolerance and 1e-15 * largest * reach <= tolerance
    if fits or _gains(G, residual, z, u, t):
        for i in range(t):
            beta[i] = -first[i]
        return surprise
    _one_by_one(G, u, alpha, y, c, beta, tolerance, slopes, z, residual)
    return surprise


@jit
def _one_by_one(G, u, alpha, y, c, beta, tolerance, slopes, z, mass):
    """Visit the examples of a block in turn, each solved on its own with the margins that the others have left."""
    t = u.size
    for i in range(t):
        z[i] = u[i]
    for i in range(t):
        beta[i], root, _ = solve_scalar(z[i], G[i, i] * c[i], alpha[i], y[i], slopes, tolerance)
        mass[i] = c[i] * (beta[i] - alpha[i])
        for j in range(i + 1, t):
            z[j] += G[j, i] * mass[i]
        z[i] = root
    if not _gains(G, mass, z, u, t):  # rounding has the last word: better stay
        for i in range(t):
            beta[i] = alpha[i]


@jit
def _gains(G, mass, z, u, t):
    """Whether D rises by Σ m(z − u) − ½mᵀGm ≥ 0 at least, m = c∘(β − α): the Fenchel–Young inequality at β = −φ′(z)."""
    gain = noise = 0.0
    for i in range(t):
        total = 0.0
        for j in range(t):
            total += G[i, j] * mass[j]
        gain += mass[i] * (z[i] - u[i] - 0.5 * total)
        noise += abs(mass[i]) * (abs(z[i]) + abs(u[i]))
    return gain >= -1e-15 * noise


@jit
def _cholesky_solve(B, r, t):
    """Solve B x = r in place from the lower triangle of B; False if rounding has made B indefinite."""
    for j in range(t):
        total = B[j, j]
        for i in range(j):
            total -= B[j, i] * B[j, i]
        if not total > 0.0:
            return False
        B[j, j] = math.sqrt(total)
        inverse = 1.0 / B[j, j]
        for i in range(j + 1, t):
            total = B[i, j]
            for m in range(j):
                total -= B[i, m] * B[j, m]
            B[i, j] = total * inverse
    for i in range(t):
        total = r[i]
        for j in range(i):
            total -= B[i, j] * r[j]
        r[i] = total / B[i, i]
    for i in range(t - 1, -1, -1):
        r[i] /= B[i, i]
        for j in range(i):
            r[j] -= B[i, j] * r[i]
    return True


@jit
def scratch(size):
    """Room for the iteration on blocks of up to ``size`` examples."""
    return np.empty((VECTORS, size)), np.empty((size, size))
