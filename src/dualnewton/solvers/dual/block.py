"""The block subproblem of SDNA, solved to rounding by a globally convergent Newton method.

In each round the dual variables of a set S change by the h that minimises (Section 4, algorithm SDNA, step 6; c are the weights)

    Σ c_i u_i h_i + ½ (c∘h)ᵀ G (c∘h) + Σ c_i φ*(−α_i − h_i),        u = A_S w + b + o,   G = A_S A_Sᵀ/(λn).

Newton's method in h is unreliable at the ends of the domain of φ*. But with β = α + h and z = u + G(c∘h), h is optimal if and
only if β = −φ′(z), which is also the optimality condition of the *primal* problem of the block,

    J = Σ c_i φ(z_i) + ½ (c∘β)ᵀ G (c∘β),

a smooth convex function without constraints. Its Newton step solves (I + W G C) Δβ = F with F = −φ′(z) − β, W = D(φ″(z)),
C = D(c): the margins change by Δz = (I + G W C)⁻¹ G C F, and Δβ = F − W Δz. Symmetrised by K = (WC)^½ this needs only
(I + K G K)⁻¹, a matrix with eigenvalues ≥ 1 for all data. Halving the step until J does not rise makes the method globally
convergent; without it the iteration diverges on some blocks of real data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Protocol, TypeVarTuple

import numpy as np

from dualnewton.losses import Loss
from dualnewton.matrix import linear

MAX_NEWTON_STEPS = 100
"""Maximum number of Newton steps per subproblem. About 10 to 20 are typical; where 100 do not suffice (badly scaled data),
step 5 still accepts the point if it increases the dual."""

TOLERANCE = 1e-14
"""Stopping tolerance on |β + φ′(z)|, relative to max(1, max|β|): the reference solver solves to rounding."""

ROUNDING = 4.0 * float(np.finfo(np.float64).eps)
"""Rounding error of J as a fraction of the sum of its absolute terms; a step may raise J by this much."""

Rest = TypeVarTuple("Rest")


class Curvature(Protocol):
    """The operations with G that the block solver needs: a product, and a solve with I + GK² for a diagonal K."""

    def times(self, x: np.ndarray) -> np.ndarray:
        """G x."""

    def newton_margins(self, k: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """(I + G D(k)²)⁻¹ G mass."""


class FullCurvature:
    """The full Gram matrix G of the block, as SDNA uses it."""

    def __init__(self, gram: np.ndarray) -> None:
        self.gram = gram

    def times(self, x: np.ndarray) -> np.ndarray:
        return self.gram @ x

    def newton_margins(self, k: np.ndarray, mass: np.ndarray) -> np.ndarray:
        q = _solve_plus_identity(k[:, None] * self.gram * k, k * (self.gram @ mass))
        return self.gram @ (mass - k * q)


class LowRankCurvature:
    """The full Gram matrix of a block with more examples than features, in the factored form G = BBᵀ.

    (I + BBᵀK²)⁻¹B = B(I + BᵀK²B)⁻¹ needs a d×d matrix instead of a τ×τ one. This is the interpretation of Section 6: the step
    uses a sketch of the Hessian in the primal variables, and for τ = n it is Newton's method. (Woodbury's formula for
    (I + KBBᵀK)⁻¹ would do the same, but it cancels: with a large G, which an intercept brings, no digit of the step was left.)
    """

    def __init__(self, factor: np.ndarray) -> None:
        self.factor = factor

    def times(self, x: np.ndarray) -> np.ndarray:
        return self.factor @ (self.factor.T @ x)

    def newton_margins(self, k: np.ndarray, mass: np.ndarray) -> np.ndarray:
        scaled = k[:, None] * self.factor
        return self.factor @ _solve_plus_identity(scaled.T @ scaled, self.factor.T @ mass)


def _solve_plus_identity(matrix: np.ndarray, r: np.ndarray) -> np.ndarray:
    """(matrix + I)⁻¹ r for a positive semidefinite matrix, which is overwritten; NaN if it exceeds the range of float64."""
    from scipy.linalg.lapack import dposv  # the checks of scipy.linalg.solve take longer than solving a small block

    matrix[np.diag_indices(len(matrix))] += 1.0
    _, x, failed = dposv(matrix, r, lower=True)
    if not failed:
        return x
    if not np.isfinite(matrix).all():
        return np.full_like(r, np.nan)  # a NaN step never decreases J, so that the block ends here
    # Rounding has made a badly scaled matrix indefinite; its exact eigenvalues are at least one.
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ ((vectors.T @ r) / np.maximum(values, 1.0))


def curvature_of(rows: linear.Matrix, lam_n: float, intercept_curvature: float) -> FullCurvature | LowRankCurvature:
    """Return G = rows rowsᵀ/(λn) + ρ/(λn) in the smaller of its two forms, τ×τ or factored."""
    size, d = rows.shape
    if size <= d:
        return FullCurvature(linear.gram(rows) / lam_n + intercept_curvature)
    factor = linear.to_dense(rows) / np.sqrt(lam_n)
    return LowRankCurvature(np.hstack([factor, np.full((size, 1), np.sqrt(intercept_curvature))]))


class DiagonalCurvature:
    """A separable upper bound on G, as minibatch SDCA uses it."""

    def __init__(self, diagonal: np.ndarray) -> None:
        self.diagonal = diagonal

    def times(self, x: np.ndarray) -> np.ndarray:
        return self.diagonal * x

    def newton_margins(self, k: np.ndarray, mass: np.ndarray) -> np.ndarray:
        return self.diagonal * mass / (1.0 + k * k * self.diagonal)


def halve_until_descent(
    now: float, noise: float, at: Callable[[float], tuple[float, *Rest]]
) -> tuple[float, tuple[float, *Rest] | None]:
    """Return the first t of 1, ½, ¼, … at which the first entry of ``at(t)``, the value, is at most ``now + noise``, and
    ``at(t)``; (0, None) if there is none.
    """
    t = 1.0
    while t > 1e-12:
        if (found := at(t))[0] <= now + noise:
            return t, found
        t *= 0.5
    return 0.0, None


def solve_block(
    # φ and G.
    loss: Loss,
    # (τ,) The labels, the margins at the current w, the dual variables and the weights of the block.
    y: np.ndarray,
    u: np.ndarray,
    curvature: Curvature,
    alpha: np.ndarray,
    c: np.ndarray,
    # The moment, by ``time.perf_counter``, after which no further step begins: the block is left unfinished.
    deadline: float = math.inf,
) -> np.ndarray:
    """Return the new dual variables β = α + h of the block, h optimal and −β in the domain of φ*."""
    pull = curvature.times(c * alpha)

    def block_primal(beta: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Return J, a bound on its rounding error, and the margins z, recomputed from β so that errors do not accumulate."""
        z = u + curvature.times(c * (beta - alpha))
        losses, quadratic = c * loss.value(z, y), 0.5 * (c * beta) * (z - u + pull)
        noise = ROUNDING * float(np.abs(losses).sum() + np.abs(quadratic).sum())
        return float(losses.sum() + quadratic.sum()), noise, z

    # 1. Start at the current dual variables.
    beta = alpha
    J, noise, z = block_primal(beta)
    last, stalls = np.inf, 0
    for _ in range(MAX_NEWTON_STEPS):
        # 2. Stop when β = −φ′(z) up to rounding, or when neither J nor the residual decreases in two steps: one step across a
        # kink of φ′ may increase the residual while it decreases J by less than its rounding.
        residual = -loss.derivative(z, y) - beta
        size = float(np.abs(residual).max())
        stalls = stalls + 1 if size >= last else 0
        if size <= TOLERANCE * max(1.0, np.abs(beta).max()) or stalls == 2 or time.perf_counter() > deadline:
            break
        # 3. The Newton step.
        slope = loss.second_derivative(z, y)
        step_beta = residual - slope * curvature.newton_margins(np.sqrt(c * slope), c * residual)
        # 4. Halve it until J does not rise.
        t, found = halve_until_descent(J, noise, lambda t: block_primal(beta + t * step_beta))  # noqa: B023
        if found is None:
            break
        last = size if found[0] >= J - noise else np.inf
        beta = beta + t * step_beta
        J, noise, z = found

    # 5. Project β onto the domain, which rounding may have left, and accept it only if the dual subproblem does not get worse.
    low, high = loss.domain(y)
    beta = -np.clip(-beta, low, high)
    return beta if _increase(loss, y, u, curvature, alpha, c, beta) <= 0.0 else alpha


def _increase(
    loss: Loss, y: np.ndarray, u: np.ndarray, curvature: Curvature, alpha: np.ndarray, c: np.ndarray, beta: np.ndarray
) -> float:
    """Return by how much the objective of the dual subproblem, which is minimised, is larger at β than at α."""
    mass = c * (beta - alpha)
    conjugates = loss.conjugate(-beta, y) - loss.conjugate(-alpha, y)
    return mass @ u + 0.5 * mass @ curvature.times(mass) + c @ conjugates
