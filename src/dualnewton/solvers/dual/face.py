"""A step of all free examples together, for piecewise linear losses: conjugate gradients on a face of the dual's feasible set.

Rounds on small sets quickly find the examples whose dual variables are at the ends of a piece of φ*, but move the remaining, free
ones slowly if the data are ill-conditioned. On the face on which only the free variables move, the dual of a quadratic
penalty is quadratic,

    D(α + h) − D(α) = (1/n) (Σ c_i h_i (k_i − z_i) − ½ (c∘h)ᵀ G (c∘h)),        G = A V⁻¹ Aᵀ/(λn) over the free rows,

with the kinks k_i and the margins z_i (Moré and Toraldo, 1991, combine both kinds of steps likewise). For any other g it is a
lower bound on the increase, as in SDNA. A step that leaves a piece is clipped to it, and shortened until D increases.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.objective.problem import Problem
from dualnewton.solvers.dual.piecewise import free_kinks, onto_ends, piece_ends

REDUCTION = 1e-3
"""Conjugate gradients end when the distance of the margins from their kinks has fallen to this fraction."""

HALVINGS = 6
"""Maximum number of times a step is halved, since clipping to the pieces may decrease D. After them the step ends where the
first example leaves its piece, which needs no clipping."""

FLAT = 1e-10
"""Conjugate gradients end at a direction whose curvature is at most this fraction of the largest (repeated rows)."""


class FaceStep(NamedTuple):
    """Where a step of the free examples ended."""

    free: np.ndarray  # their indices
    rows: linear.Matrix  # their rows
    alpha: np.ndarray  # their new dual variables
    products: int  # with G
    success: float  # increase of D as a fraction of that of the step before it was clipped


def face_step(
    # The problem, the numbers of its loss, of shape (n, 2m + 1), and the dual point, of shape (n,).
    problem: Problem,
    pieces: np.ndarray,
    alpha: np.ndarray,
    # w, b and the curvature ρ/(λn) of the intercept, which the rounds treat as a penalised feature.
    state: tuple[np.ndarray, float, float],
    products: int,  # maximum number of products with G of conjugate gradients
    # Number of epochs after which there are no more products and no halved steps; a product costs the fraction of free
    # examples.
    most: float = math.inf,
) -> FaceStep:
    """Move the free examples together."""
    w, b, b_curvature = state
    at = free_kinks(pieces, alpha)
    free = np.flatnonzero(~np.isnan(at) & (problem.c > 0.0))
    c, own, now, rows = problem.c[free], pieces[free], alpha[free], problem.data.rows(free)
    if not free.size:
        return FaceStep(free, rows, now, 0, 1.0)
    weights, lam_n = problem.regularizer.form.weights, problem.lam * problem.n
    inverse = 1.0 / lam_n if weights is None or not problem.regularizer.form.is_quadratic else 1.0 / (lam_n * weights)

    images, sums = linear.multiplied(rows), linear.multiplied(linear.transposed(rows))

    def times(x: np.ndarray) -> np.ndarray:
        return images(inverse * sums(x)) + b_curvature * x.sum()

    missing = at[free] - problem.o[free] - b - rows @ w
    allowed = math.ceil(min(most * problem.n / free.size, products))
    diagonal = linear.row_scores(rows, np.broadcast_to(inverse, problem.d)) + b_curvature
    inverse_diagonal = 1.0 / np.where(diagonal > 0.0, diagonal, 1.0)
    mass, used = conjugate_gradients(
        times, missing, inverse_diagonal.__mul__, fraction=REDUCTION, most=allowed, flat=FLAT
    )
    left, right = piece_ends(own, now)
    step = mass / c
    ends = np.divide(np.where(step > 0.0, -left, -right) - now, step, out=np.ones_like(step), where=step != 0.0)
    for k, length in enumerate((*(0.5**k for k in range(HALVINGS)), min(1.0, float(ends.min())))):
        if 0 < k < HALVINGS and used * free.size >= most * problem.n:
            continue
        beta = -onto_ends(-now - length * step, left, right)
        change = c * (beta - now)
        used += 1
        increase = float(change @ missing - 0.5 * change @ times(change))
        if increase > 0.0:
            return FaceStep(free, rows, beta, used, increase / float(0.5 * mass @ missing))
    return FaceStep(free, rows, now, used, 0.0)
