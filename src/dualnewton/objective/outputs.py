"""Certificates of paths of models with the squared loss of K outputs, many models in two products with X."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.objective.certificate import Certificate
from dualnewton.objective.problem import Problem

ROUNDED = 1e-14
"""Fraction by which a dual point is scaled down more than its computed ᾱ requires, to cover the rounding of ᾱ."""


def certify_path(
    problem: Problem, lams: Sequence[float], models: np.ndarray, intercepts: np.ndarray
) -> list[Certificate]:
    """Certify models of the squared loss of K outputs for several λ, in two products with X and a few sums for all models.

    With the residuals ρ_i = W a_i + b − y_i, their weighted mean m, α_i = m − ρ_i, which is balanced, and C = Σ c_i

        n P(W, b) = ½ Σ c_i ‖ρ_i‖² + λn g(W),        Σ c_i ‖α_i‖² = Σ c_i ‖ρ_i‖² − C‖m‖²,
        n D(rα)   = r Σ c_i α_iᵀ(y_i − ȳ) − ½ r² Σ c_i ‖α_i‖² − λn g*(rĀ),

    where r ≤ 1 makes g*(rĀ) finite. Without an intercept m and ȳ are zero.

    Parameters
    ----------
    problem : Problem
        A problem with ``losses.SquaredOutputs``, or ``losses.Squared`` for K = 1, no offsets, and a regulariser that joins the
        columns.
    lams : sequence of floats
        λ of each model.
    models, intercepts : arrays of shape (models, K, d) and (models, K)
        W and b.

    Returns
    -------
    list of Certificate
        Of each model.
    """
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
    # A regulariser that joins the columns depends only on the norm of the coefficients of each feature.
    lengths = np.sqrt(np.einsum("akj,akj->aj", models, models))
    steepness = np.sqrt(np.einsum("jak,jak->aj", slopes, slopes))
    certificates = []
    for k, lam in enumerate(lams):
        bar = steepness[k] / (lam * n)
        r = g.reach(bar) * (1.0 - ROUNDED)
        primal = 0.5 * squares[k] / n + lam * g.value(lengths[k])
        dual = (r * along[k] - 0.5 * r * r * own[k]) / n - lam * g.conjugate(r * bar)
        certificates.append(Certificate(float(primal), float(dual)))
    return certificates
