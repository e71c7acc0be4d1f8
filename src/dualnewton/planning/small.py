"""Problems so small that the interpreter takes longer than the arithmetic: which direct solver takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from dualnewton.losses import Curvature
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs, is_small
from dualnewton.planning.eligible import has_hessian, has_thresholds, is_joint
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.tuning import DEFAULT, Tuning


class Family(NamedTuple):
    """Problems that one of the direct solvers takes (:mod:`dualnewton.solvers.direct`).

    Attributes
    ----------
    takes : callable
        Whether it takes a problem, by what loss, penalty and data declare, and by their sizes.
    method : str
        The name of the method, under which the plan reports it; the solver serves this method and "auto".
    reason : str
        What it does.
    together : bool
        Whether it takes the steps of several models at once, where each operation takes longer than its arithmetic.
    """

    takes: Callable[[Any, Tuning], bool]
    method: str
    reason: str
    together: bool = False


def _takes_newton(problem: Any, tuning: Tuning) -> bool:
    """Whether Newton's method works on one dense block of all rows."""
    unknowns = problem.columns * problem.d
    few = unknowns <= tuning.one_block_features and problem.n * unknowns <= tuning.direct_entries
    return few and problem.scheme is None and has_hessian(problem) and problem.data.capabilities.whole


def _takes_kinks(problem: Any, tuning: Tuning) -> bool:
    """Whether interior-point steps work on one dense block of all rows, or on the Gram matrix of fewer rows than features.

    Many sparse rows are left to dual rounds, which visit the stored entries only and are tried before interior points.
    """
    if problem.scheme != "smoothing" or problem.columns > 1 or not problem.regularizer.form.is_quadratic:
        return False
    if problem.data.profile.sparse and problem.n >= problem.d and not is_small(tuning, problem.n, problem.d):
        return False
    most = min(tuning.one_block_features, tuning.largest_matrix)
    few = min(problem.n, problem.d) <= most and problem.data.capabilities.whole
    return few and problem.loss.pieces(problem.y[:1]) is not None


def _takes_huber(problem: Any, tuning: Tuning) -> bool:
    """Whether Newton's method in all variables, the scale of the residuals included, works on one dense block of all rows."""
    return problem.scheme == "scale" and problem.epsilon > 1.0 and fits_one_block(problem, tuning)


def _takes_thresholds(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: least squares with a threshold for each feature."""
    return _takes_proximal(problem, tuning) and problem.loss.curvature is Curvature.CONSTANT


def _takes_proximal(problem: Any, tuning: Tuning) -> bool:
    """Whether features are gathered from one dense block: a smooth loss with a threshold for each feature."""
    if problem.scheme is not None or problem.columns > 1 or problem.n * problem.d > tuning.direct_entries:
        return False
    whole = problem.data.capabilities.whole and not problem.data.profile.sparse
    return whole and has_thresholds(problem.regularizer.form)


def _takes_joint(problem: Any, tuning: Tuning) -> bool:
    """Whether features of one dense block are gathered for several outputs, with a threshold for each feature.

    With a ridge, and more features than examples, so many features are in use that coordinate descent costs less.
    """
    if problem.scheme is not None or not is_joint(problem) or problem.n * problem.d > tuning.direct_entries:
        return False
    form, data = problem.regularizer.form, problem.data
    if problem.d > problem.n and problem.regularizer.strongly_convex:
        return False
    return bool(form.joint and has_thresholds(form) and data.capabilities.whole and not data.profile.sparse)


WIDE = "Newton's method on the span of the rows: there are fewer examples than features"
"""The reason in the plan of a direct solution on n coordinates."""

FAMILIES = {
    "kinks": Family(_takes_kinks, "interior", "interior-point steps on one dense block of rows"),
    "huber": Family(
        _takes_huber, "newton", "a joint scale by Newton's method in all variables, on one dense block of rows"
    ),
    "newton": Family(_takes_newton, "newton", "Newton's method on one dense block of rows", together=True),
    "thresholds": Family(
        _takes_thresholds, "newton", "Newton's method on the features in use, on one dense block of rows"
    ),
    "proximal": Family(_takes_proximal, "newton", "proximal Newton steps on the features in use of one dense block"),
    "joint": Family(
        _takes_joint, "newton", "Newton's method on the features in use of all outputs, on one dense block of rows"
    ),
}
"""The direct solvers, by the name of their family; the first that takes a problem is used."""


def small_plan(problem: Any, method: str, tau: Tau, models: int = 1, tuning: Tuning = DEFAULT) -> Plan | None:
    """Return the plan of the direct solver that takes so many problems like this one, if there is one."""
    most = tuning.direct_entries
    if problem.n * problem.d > max(most // models, min(most, tuning.small_entries)):
        return wide_plan(problem, method, tau, models, tuning)
    for name, family in FAMILIES.items():
        if method in ("auto", family.method) and tau in ("auto", problem.n) and family.takes(problem, tuning):
            together = family.together and models > 1 and _steps_together(problem, models, tuning)
            return Plan(family.method, problem.n, family.reason, family=name, together=together)
    return wide_plan(problem, method, tau, models, tuning)


def _steps_together(problem: Any, models: int, tuning: Tuning) -> bool:
    """Whether several models of one column are so small that they take their steps at once.

    Losses without γ need their steps shortened, which each model does alone.
    """
    few = models * problem.n * problem.d <= tuning.together_entries
    return few and problem.columns == 1 and problem.loss.gamma is not None


def wide_plan(problem: Any, method: str, tau: Tau, models: int = 1, tuning: Tuning = DEFAULT) -> Plan | None:
    """Return the plan of a direct solution on n coordinates, for so many problems like this one with more features than examples.

    Passes for gradients are tried as long as they cost no more than the factor of all rows.
    """
    n, d = problem.n, problem.d
    multiplications = max(n * n * d, (problem.columns * n) ** 3 // 6)
    if n >= d or multiplications > tuning.direct_multiplications or problem.scheme is not None:
        return None
    asked = method in ("auto", "newton") and tau in ("auto", n)
    if not (asked and has_hessian(problem) and problem.data.capabilities.whole):
        return None
    directions = int(_factor_cost(problem, models, tuning) / (models * _gradient_cost(problem, tuning)))
    tried = directions if directions >= tuning.fewest_directions else 0
    return Plan("newton", n, WIDE, family="wide", inner="newton", directions=tried)


def _gradient_cost(problem: Any, tuning: Tuning) -> float:
    """Seconds of a gradient over all features, of the margins along it, and of the minimiser over all gradients so far."""
    costs = Costs.of(problem.data.profile, tuning)
    every = costs.data_pass if problem.columns == 1 else costs.class_pass(problem.columns)
    return every + tuning.rates.call


def _factor_cost(problem: Any, models: int, tuning: Tuning) -> float:
    """Seconds of the products of all rows, and of Newton's method on n coordinates for each model."""
    n = problem.n
    few = Costs(n, n, n * n, 0.5 * n**3, False, 8, tuning=tuning)
    step = few.added(n) if problem.columns == 1 else few.class_step(problem.columns)
    steps = {Curvature.CONSTANT: 1.0, Curvature.PIECEWISE: tuning.near_passes}.get(
        problem.loss.curvature, tuning.newton_passes
    )
    return Costs.of(problem.data.profile, tuning).gram(n) + models * steps * step


def fits_one_block(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether all rows, as one dense block, are so few that passes over the data would take longer than the arithmetic."""
    few = problem.n * problem.d <= tuning.direct_entries
    return few and problem.d <= tuning.one_block_features and problem.data.capabilities.whole
