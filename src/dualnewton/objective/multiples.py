"""The best multiple sα of a dual point far from the optimum: φ*(−sα_i) needs α alone, and ᾱ is multiplied by s."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.objective import row_sums
from dualnewton.objective.bounds import Bound, better

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

FAR = 1e-2
"""Relative gap above which the best multiple sα of the dual point is searched: far from the optimum −φ′ overshoots."""


def scaled_if_far(problem: Problem, primal: float, bound: Bound) -> Bound:
    """Return the bound of the best multiple sα, s ∈ (0, 1], if the relative gap exceeds ``FAR``; sα is feasible, since 0 is."""
    if not primal - bound.value > FAR * abs(primal):
        return bound
    if bound.value == -np.inf:
        nothing, bar = problem.no_dual(), np.zeros_like(bound.bar)
        return Bound(problem.dual_at(nothing, bar), nothing, bar)
    alpha, bar = bound.alpha, bound.bar
    scale = problem.lam * problem.n
    linear = 0.0 if problem.offset is None else float(np.vdot(problem.weighted(alpha), problem.offset))
    at_one = -problem.n * bound.value - scale * problem.g.conjugate(bar) - linear
    conjugates = row_sums.conjugates_along(problem.loss, alpha, problem.row_vectors, at_one)
    s = _best_factor(lambda s: conjugates(s) + s * linear + scale * problem.g.conjugate(s * bar))
    return better(bound, Bound(problem.dual_at(s * alpha, s * bar), s * alpha, s * bar))


def _best_factor(value: Callable[[float], float]) -> float:
    """Return an approximate minimiser s ∈ (0, 1] of a convex function; the search is in log s, since s may be tiny."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda t: value(float(np.exp(t))), bounds=(-50.0, 0.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))
