"""The plan and the predicted cost of the interior-point method for losses with kinks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.tuning import DEFAULT, Tuning


def interior(problem: Problem, tau: Tau, tuning: Tuning = DEFAULT) -> Plan:
    """Plan the interior-point method; raise an error with the reason if it does not apply."""
    if (reason := refusal(problem, tuning)) is not None:
        raise DualnewtonError(f'method "interior" {reason}: use another method')
    if tau not in ("auto", problem.n):
        raise DualnewtonError(f'tau must be "auto" or n = {problem.n} with method "interior", got {tau}')
    return interior_plan(problem, tuning)


def interior_plan(problem: Problem, tuning: Tuning = DEFAULT) -> Plan:
    """Return the plan of the interior-point method for a problem that it accepts.

    For fewer rows than features the direct solver is faster, and its rounding errors do not depend on the scales of the features
    (see :func:`~dualnewton.solvers.direct.kinks.products_of`); from many rows on threads should share the factors.
    """
    rows = by_rows(problem)
    why = (
        f"interior-point steps on {type(problem.loss).__name__} without smoothing, each with a weighted "
        f"{'n×n' if rows else 'd×d'} Gram matrix"
    )
    few = problem.n <= tuning.direct_rows and problem.n * problem.d <= tuning.direct_wide_entries
    family = "kinks" if rows and few and problem.regularizer.form.is_quadratic else None
    compiled = family is None and not is_small(tuning, problem.n, problem.d)
    cost = interior_cost(problem, tuning)
    return Plan("interior", problem.n, why, compiled=compiled, cost=cost, family=family)


def takes_interior(problem: Any, method: str, tau: Tau = "auto") -> bool:
    """Whether the user chose the interior-point method, or "auto" has a linear program: a kinked loss and no quadratic penalty.

    Without any penalty no other method solves a kinked loss, whatever the user chose.
    """
    if problem.scheme not in ("smoothing", "no penalty") or method == "interior":
        return method == "interior"
    free = problem.scheme == "no penalty" or (method == "auto" and tau == "auto")
    program = problem.lam == 0.0 or not problem.regularizer.strongly_convex
    return free and program and problem.loss.kinked and refusal(problem) is None


def refusal(problem: Problem, tuning: Tuning = DEFAULT) -> str | None:
    """Say why the method does not apply to a problem; None where it does."""
    loss, able = problem.unit.loss, problem.data.capabilities
    if not able.local:
        return f"needs all dual variables in memory, but {able.reason}"
    if problem.columns > 1 or (pieces := problem.unit.pieces) is None:
        return f"needs a piecewise linear loss, such as Hinge(), EpsilonInsensitive() or Quantile(), got {loss!r}"
    if not np.all(pieces[:, :-2:2] < pieces[:, 2::2]):
        return f"needs a loss whose slope rises at each of its kinks, got {loss!r}"
    if not penalty_is_split(problem):
        return f"needs regularizer L2(), L1() or ElasticNet(), without bounds, got {problem.regularizer!r}"
    if math.isinf(interior_cost(problem, tuning)):
        least = problem.d if not problem.data.capabilities.whole else min(problem.n, problem.d)
        return f"needs a dense matrix of {least} rows and columns, and the limit is {tuning.largest_matrix}"
    return None


def sample_size(problem: Any, tuning: Tuning = DEFAULT) -> int | None:
    """Return the number of sampled rows of a first fit; the second fit uses the rows near its kinks and means of the other rows.

    With m rows in the sample, the error of a margin is about √(d/m) of its spread, and about n√(d/m) margins are within it: both
    fits have the same size for m = (n√d)^(2/3). The returned number is ``aggregated_sample``
    times that, since both estimates are rough.
    """
    rows = math.ceil(tuning.aggregated_sample * (problem.n * math.sqrt(problem.d + 1.0)) ** (2.0 / 3.0))
    able = problem.loss.shifts and problem.data.capabilities.random_rows
    return rows if able and problem.n >= tuning.aggregated * rows else None


def penalty_is_split(problem: Problem) -> bool:
    """Whether the penalty is Σ ½ v_j w_j² + t_j |w_j|, where each term may be absent."""
    form = problem.regularizer.form
    if form.is_general or form.joint:
        return False
    _, _, lower, upper = form.limits(problem.d)
    return bool(np.isneginf(lower).all() and np.isposinf(upper).all())


def by_rows(problem: Problem) -> bool:
    """Whether the matrix of a step is n×n, which needs a penalty on every feature."""
    return problem.n < problem.d and problem.data.capabilities.whole and problem.lam > 0.0


def interior_cost(problem: Problem, tuning: Tuning = DEFAULT) -> float:
    """Predict the seconds of the interior-point method to a relative gap of 1e-6; infinite if no matrix is affordable."""
    costs, rows = Costs.of(problem.data.profile, tuning), by_rows(problem)
    size = costs.n if rows else costs.d
    if size > tuning.largest_matrix:
        return math.inf
    products = tuning.interior_passes * (_products(costs) + costs.applied(size))
    vectors = tuning.interior_vectors * costs.n * tuning.rates.margin
    once = costs.gram(costs.n) if rows else 0.0
    return once + tuning.interior_steps * (_matrix(costs, rows=rows) + products + vectors)


def corrections(problem: Problem, tuning: Tuning = DEFAULT) -> int:
    """Return the number of centrality corrections per step: they save time if the matrix costs many products with X."""
    costs = Costs.of(problem.data.profile, tuning)
    dear = _matrix(costs, rows=by_rows(problem)) > tuning.correction_passes * _products(costs)
    return tuning.interior_corrections if dear else 0


def in_single(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether the matrices of the first steps are computed in float32: true for dense products of many rows."""
    costs = Costs.of(problem.data.profile, tuning)
    by_pairs = costs.outer(costs.n, costs.pairs)[1]
    return not by_rows(problem) and not by_pairs and costs.n * float(costs.d) ** 2 >= tuning.single_products


def _matrix(costs: Costs, *, rows: bool) -> float:
    """The weighted Gram matrix of a step, and its factor."""
    if rows:
        return costs.n**2 / costs.tuning.rates.multiply + costs.factor(costs.n)
    return costs.outer(costs.n, costs.pairs)[0] + costs.factor(costs.d)


def _products(costs: Costs) -> float:
    """A product with X and one with its transpose, each of which reads all of X."""
    return 2.0 * (costs.data_pass - costs.n * costs.tuning.rates.margin)
