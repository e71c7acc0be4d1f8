"""The block subproblem of SDNA for a piecewise linear loss: a bounded, piecewise quadratic problem, solved exactly.

In each round the dual variables of a set S change by the h that minimises (Section 3, proximal Method 1; c are the weights)

    Σ c_i u_i h_i + ½ (c∘h)ᵀ G (c∘h) + Σ c_i φ*(−α_i − h_i),        u = A_S w + b + o,   G = A_S A_Sᵀ/(λn),

where φ* is linear between the slopes of φ, its slopes are the kinks of φ, and it is infinite outside (``Loss.pieces``). One
variable at a time has a closed form. Sweeps over all variables in turn find the pieces on which the solution lies. On these
pieces the problem is a linear system in the *free* variables, those inside a piece, whose margins z = u + G(c∘h) lie on kinks.
Both steps decrease the objective, and a sweep that changes nothing proves optimality.
"""

from __future__ import annotations

import math
import time

import numpy as np

from dualnewton.matrix import linear

MAX_SWEEPS = 200
"""Maximum number of sweeps over a block; every sweep increases the dual, so that a block may be left unfinished."""

TOLERANCE = 1e-14
"""A block is solved when no step of a sweep changes its own margin by more than this, relative to the largest margin."""

SNAP = 1e-14
"""Distance from the end of a piece, as a fraction of its length, that is attributed to rounding."""

LIFT = 1e-10
"""Fraction of the largest diagonal entry of the linear system that is added to its diagonal: repeated rows make it singular."""


def solve_one(pieces: np.ndarray, u: np.ndarray, curvature: np.ndarray | float, alpha: np.ndarray) -> np.ndarray:
    """Return the new dual variables of examples that are solved separately, each with its own curvature or all with one.

    The best v = −α on a piece is where the margin reaches the kink, v + (u − k)/curvature, clipped to the piece. The pieces are
    ordered, so that the solution is on the last piece that this point enters.
    """
    new = pieces[:, 0].copy()
    for p in range(1, pieces.shape[1], 2):
        left, kink, right = pieces[:, p - 1], pieces[:, p], pieces[:, p + 1]
        reach = u - kink - curvature * alpha
        inside = (curvature * left < reach) & (reach < curvature * right)
        np.copyto(new, right, where=reach >= curvature * right)
        np.copyto(new, np.clip(reach / np.where(inside, curvature, 1.0), left, right), where=inside)
    return -new


def residuals(pieces: np.ndarray, u: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """φ(u) + φ*(−α) + αu ≥ 0 of each example: its weighted mean at u = margins of w(α) is the duality gap."""
    total = np.zeros(u.size)
    for p in range(1, pieces.shape[1], 2):
        left, beyond, right = pieces[:, p - 1], u - pieces[:, p], pieces[:, p + 1]
        here = np.clip(-alpha, left, right)
        total += np.where(beyond > 0.0, right - here, left - here) * beyond
    return total


def free_kinks(pieces: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """Return for each example the kink on whose piece −α lies strictly inside, else NaN: examples with a kink are free."""
    at = np.full(alpha.size, np.nan)
    for p in range(1, pieces.shape[1], 2):
        np.copyto(at, pieces[:, p], where=(pieces[:, p - 1] < -alpha) & (-alpha < pieces[:, p + 1]))
    return at


def onto_ends(v: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Clip v to its piece, and to an end if it differs from it by rounding only: an example at an end is not free."""
    v = np.clip(v, left, right)
    near = SNAP * (right - left)
    return np.where(v - left <= near, left, np.where(right - v <= near, right, v))


def piece_ends(pieces: np.ndarray, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of the piece inside which −α lies, for free examples."""
    left, right = pieces[:, 0].copy(), pieces[:, -1].copy()
    for p in range(1, pieces.shape[1], 2):
        inside = (pieces[:, p - 1] < -alpha) & (-alpha < pieces[:, p + 1])
        np.copyto(left, pieces[:, p - 1], where=inside)
        np.copyto(right, pieces[:, p + 1], where=inside)
    return left, right


def solve_block(
    pieces: np.ndarray,  # (τ, 2m + 1) slopes and kinks of the loss of each example
    u: np.ndarray,  # (τ,) margins at the current w
    gram: np.ndarray,  # (τ, τ) G
    # (τ,) The dual variables and the weights of the block.
    alpha: np.ndarray,
    c: np.ndarray,
    # Time, by ``time.perf_counter``, after which no further sweep begins: the block is left unfinished.
    deadline: float = math.inf,
) -> np.ndarray:
    """Return the new dual variables β = α + h of a block."""
    beta, z = alpha.copy(), u.copy()
    own = c * np.diagonal(gram)
    enough = TOLERANCE * max(1.0, float(np.abs(u).max(initial=0.0)))
    for _ in range(MAX_SWEEPS):
        # 1. A step for each example in turn, with the margins after the steps before it.
        largest = 0.0
        for i in range(u.size):
            (new,) = solve_one(pieces[[i]], z[[i]], own[[i]], beta[[i]])
            change = c[i] * (new - beta[i])
            beta[i] = new
            if change != 0.0:
                z += gram[:, i] * change
                largest = max(largest, abs(gram[i, i] * change))
        if largest <= enough or time.perf_counter() > deadline:
            break
        # 2. Move the margins of the free examples to their kinks, until an example leaves its piece.
        beta, z = _free_step(pieces, z, gram, beta, c)
    return beta


def _free_step(
    pieces: np.ndarray, z: np.ndarray, gram: np.ndarray, beta: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Move the free examples towards the solution of their linear system; return β and the margins."""
    at = free_kinks(pieces, beta)
    free = np.flatnonzero(~np.isnan(at) & (c > 0.0))
    if not free.size:
        return beta, z
    K = gram[np.ix_(free, free)]
    K[np.diag_indices_from(K)] += LIFT * float(np.diagonal(K).max()) + np.finfo(float).tiny
    step = np.linalg.solve(K, at[free] - z[free]) / c[free]
    left, right = piece_ends(pieces[free], beta[free])
    ends = np.where(step > 0.0, -left, -right) - beta[free]
    length = float(np.min(np.divide(ends, step, out=np.ones_like(step), where=step != 0.0), initial=1.0))
    new = -onto_ends(-beta[free] - length * step, left, right)
    z = z + gram[:, free] @ (c[free] * (new - beta[free]))
    beta = beta.copy()
    beta[free] = new
    return beta, z


def gram_of(rows: linear.Matrix, lam_n: float, intercept_curvature: float) -> np.ndarray:
    """G = rows rowsᵀ/(λn) + ρ/(λn)."""
    return linear.gram(rows) / lam_n + intercept_curvature
