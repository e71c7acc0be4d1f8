"""Certificates of paths of models with the squared loss of one or K outputs, many models in two products with X."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem

ROUNDED = 1e-14
"""Fraction by which a dual point is scaled down more than its computed ᾱ requires, to cover the rounding of ᾱ."""

TOGETHER = 1 << 22
"""Number of margins that are in memory at a time."""


def certify_path(
    problem: Problem, lams: Sequence[float] | np.ndarray, models: np.ndarray, intercepts: np.ndarray
) -> list[Certificate]:
    """Certify models of the squared loss for several λ, in two products with X and a few sums for all models.

    With the residuals ρ_i = W a_i + b − y_i, their weighted mean m, α_i = m − ρ_i, which is balanced, and C = Σ c_i

        n P(W, b) = ½ Σ c_i ‖ρ_i‖² + λn g(W),        Σ c_i ‖α_i‖² = Σ c_i ‖ρ_i‖² − C‖m‖²,
        n D(rα)   = r Σ c_i α_iᵀ(y_i − ȳ) − ½ r² Σ c_i ‖α_i‖² − λn g*(rĀ),

    where r ≤ 1 makes g*(rĀ) finite. Without an intercept m and ȳ are zero.

    The problem has no offsets, and one output with ``losses.Squared``, or K with ``losses.SquaredOutputs`` and a regulariser
    that joins the columns. Models are of shape (models, K, d), intercepts (models, K).
    """
    step, found = max(1, TOGETHER // (problem.n * problem.columns)), list[Certificate]()
    for low in range(0, len(models), step):
        part = slice(low, low + step)
        found += _certified(problem, np.asarray(lams[part]), models[part], intercepts[part])
    return found


def _certified(problem: Problem, lams: np.ndarray, models: np.ndarray, intercepts: np.ndarray) -> list[Certificate]:
    data, g, n, c = problem.data, problem.g, problem.n, problem.c
    Y = problem.y.reshape(n, -1)
    count, K, d = models.shape
    total, free = float(c.sum()), problem.fit_intercept
    missed = data.times(np.ascontiguousarray(models.reshape(-1, d).T)).reshape(n, count, K)
    missed += intercepts - Y[:, None, :]
    weighted = missed * c[:, None, None]
    mean = weighted.sum(axis=0) / total if free else np.zeros((count, K))
    squares = np.einsum("iak,iak->a", weighted, missed)
    targets = Y - c @ Y / total if free else Y
    along = -np.einsum("iak,ik->a", weighted, targets)
    slopes = data.transposed_times(weighted.reshape(n, -1)).reshape(d, count, K)
    if free:
        slopes -= np.multiply.outer(data.transposed_times(c), mean)
    own = squares - total * np.square(mean).sum(axis=1)
    if K == 1:
        points, bars = models[:, 0], slopes[:, :, 0].T / (-n * lams)[:, None]
    else:  # a regulariser that joins the columns depends only on the norm of the coefficients of each feature
        points, bars = (
            np.sqrt(np.einsum(which, each, each)) for which, each in (("akj,akj->aj", models), ("jak,jak->aj", slopes))
        )
        bars = bars / (n * lams)[:, None]
    r = g.reaches(bars) * (1.0 - ROUNDED)
    primal = 0.5 * squares / n + lams * g.values(points)
    dual = (r * along - 0.5 * r * r * own) / n - lams * g.conjugates(r[:, None] * bars)
    return Certificate.of_values(primal, dual)
