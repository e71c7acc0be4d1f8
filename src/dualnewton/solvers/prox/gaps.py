"""The duality gap of a model with a penalty that has kinks or bounds, from the slopes of the losses, and what it allows."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.objective.problem import Problem


def value_and_gap(
    problem: Problem, w: np.ndarray, losses: float, slopes: np.ndarray, penalty: float | None = None
) -> tuple[float, float]:
    """Return n P, and n(P − D) by Fenchel and Young for α = −φ′, shortened until g* is finite: near the certificate's gap.

    ``losses`` is Σ c_i φ_i; ``slopes``, its derivative, has the shape of the problem's w; ``penalty`` is n λ g(w), if
    it is known.
    """
    g, scale = problem.g, problem.lam * problem.n
    bar, penalty = slopes / -scale, scale * g.value(w) if penalty is None else penalty
    r = g.reach(bar)
    defect = penalty + scale * g.conjugate(r * bar if r < 1.0 else bar) + r * float(np.vdot(w, slopes))
    return losses + penalty, max(defect, 0.0) + (1.0 - r) ** 2 * abs(losses)


def allowed_violation(ridge: np.ndarray, threshold: np.ndarray, value: float, tol: float) -> float:
    """Return ε/tol for a violation ε in all d coordinates that leaves about a relative gap of ``tol``.

    It costs the gap dε²/(2 ridge) or, where α is shortened by 1/(1 + ε/threshold), about the fraction 2ε/threshold of n P, which
    is ``value``.
    """
    by_ridge = math.sqrt(2.0 * abs(value) * float(ridge.min()) / (ridge.size * tol or math.inf))
    return max(0.5 * float(threshold.max()), by_ridge)
