"""Choice of the method: the plan of a run with method, τ, compiled or NumPy code, predicted cost and reason.

Choices follow from sizes, sparsity and conditioning, never from a clock, so that equal seeds give equal runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.objective.problem import Problem
from dualnewton.planning import dual, primal
from dualnewton.planning.costs import Costs, is_small, on_threads
from dualnewton.planning.eligible import primal_methods
from dualnewton.planning.facts import Facts
from dualnewton.planning.interior import interior, interior_plan, refusal, takes_interior
from dualnewton.planning.kinked_dual import rounds_cost, takes_rounds
from dualnewton.planning.plan import PRIMAL, Plan, Tau
from dualnewton.planning.small import small_plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.validation import integer

PLANS: dict[str, Callable[[Facts, Tau], Plan]] = {
    "sdna": dual.sdna,
    "sdca": dual.sdca,
    "newton": primal.newton,
    "ihs": primal.ihs,
}
METHODS = ("auto", *PLANS, "interior")
"""The allowed values of ``method``; the last is for losses with kinks."""

PREDICTIONS: dict[str, Callable[[Facts], float]] = {
    "sdna": dual.sdna_cost,
    "newton": primal.newton_cost,
    "ihs": lambda facts: primal.expected_ihs_cost(facts, primal.ihs_size(facts)),
}


def plan(
    problem: Problem,
    *,
    method: str = "auto",
    tau: Tau = "auto",
    models: int = 1,
    near: bool = False,
    n_threads: int = 1,
    tuning: Tuning | None = None,
) -> Plan:
    """Return the plan of a run; a given method or τ is kept, "auto" is chosen by predicted costs.

    Parameters
    ----------
    problem : Problem
        The problem to solve.
    method : {"auto", "sdna", "sdca", "newton", "ihs", "interior"}
        The method.
    tau : int or "auto"
        The number of examples per round, or of rows in a sketch; a number together with method "auto" selects SDNA.
    models : int
        The number of similar problems that are solved together.
    near : bool
        Whether the run starts from the solution of a similar problem.
    n_threads : int
        The number of threads; a method that is given does not depend on it.
    tuning : Tuning, optional
        The numbers by which costs are predicted.

    Examples
    --------
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((100, 5))
    >>> y = np.where(X[:, 0] + 0.5 * rng.standard_normal(100) > 0, 1.0, -1.0)
    >>> problem = dn.Problem(X, y, dn.losses.Logistic(), lam=0.01)
    >>> plan = dn.plan(problem, method="newton")
    >>> plan.method, plan.tau
    ('newton', 100)
    """
    require_problem(problem)
    tuning = DEFAULT if tuning is None else tuning
    method, tau = check_names(problem, method, tau)
    if (small := small_plan(problem, method, tau, models, tuning, n_threads)) is not None:
        return small
    if n_threads > 1 and method == "auto" and tau == "auto":
        tuning = on_threads(tuning, problem.data.profile, n_threads, 1 if problem.loss.kinked else models)
    return general_plan(problem, method=method, tau=tau, models=models, near=near, tuning=tuning)


def require_problem(problem: Any) -> None:
    """Raise an error if the object has not the functions of a problem, such as a matrix in its place."""
    if isinstance(problem, type) or not hasattr(problem, "certified_pair"):
        raise DualnewtonError(
            "problem must be a problem such as dualnewton.Problem(X, y, losses.Logistic(), lam=0.1), got an object of the type "
            f"{type(problem).__name__}"
        )


def check_names(problem: Problem, method: str, tau: Tau) -> tuple[str, Tau]:
    """Return the checked method and τ; raise an error if the method is unknown or τ is not a possible set size."""
    if method not in METHODS:
        allowed = ", ".join(map(repr, METHODS))
        raise DualnewtonError(f"method must be one of {allowed}, got {method!r}")
    return method, tau if tau == "auto" else integer("tau", tau, 1, problem.n)


def general_plan(
    problem: Problem, *, method: str, tau: Tau, models: int = 1, near: bool = False, tuning: Tuning = DEFAULT
) -> Plan:
    """Return the plan among the methods that the loop drives step by step, whatever the size of the data."""
    if takes_interior(problem, method, tau):
        return interior(problem, "auto" if method != "interior" else tau, tuning)
    if problem.loss.kinked:
        if method == "auto" and tau == "auto":
            return _kinked(problem, kinked_plans(problem, models=models, near=near, tuning=tuning), tuning)
        method = "sdna" if method == "auto" and takes_rounds(problem, "sdna") else method
        if takes_rounds(problem, method):
            return _rounds(problem, method, tau, near=near, tuning=tuning)
        return _smoothed(problem, method, tau, models=models, near=near, tuning=tuning)
    facts = Facts.of(problem, tuning, near=near, models=models)
    if not problem.loss.has_dual_rounds:
        return _without_dual_rounds(facts, method, tau)
    chosen = _automatic(facts, tau, models) if method == "auto" else PLANS[method](facts, tau)
    if not (able := problem.data.capabilities).random_rows:
        chosen = replace(chosen, reason=f"{chosen.reason}; dual methods are left out, since {able.reason}")
    return chosen


def kinked_plans(
    problem: Problem, *, without: str | None = None, models: int = 1, near: bool = False, tuning: Tuning = DEFAULT
) -> list[Plan]:
    """Return the plans for a loss with kinks, cheapest first: interior-point method, dual rounds, smoothed losses.

    The method ``without`` is left out. For small data the kernels of the rounds are not loaded. Losses are smoothed only if the
    interior-point method is too expensive, and rounds with joint steps do not apply: on sparse rows of 6000 to 15000 features
    and λn of 0.1 to 10 rounds ended first, most often in 0.05 to 0.6 of the time, in 25 of 26 problems. Or if rows are read
    from files: an interior-point step reads them six times (``benchmarks/DISK.md``).
    """
    plans, reading = [], Costs.of(problem.data.profile, tuning).reading
    able, rounds = refusal(problem, tuning) is None, takes_rounds(problem, "sdna")
    rounds = rounds and not is_small(tuning, problem.n, problem.d)
    if able and without != "interior":
        steps = interior_plan(problem, tuning)
        plans.append(replace(steps, cost=models * (steps.cost + tuning.interior_reads * reading)))
    if without != "sdna" and rounds:
        plans.append(_rounds(problem, "sdna", "auto", near=near, tuning=tuning))
    if not (able or (rounds and problem.regularizer.form.is_quadratic)) or reading > 0.0:
        smoothed = _smoothed(problem, "auto", "auto", models=models, near=near, tuning=tuning)
        cost = tuning.smoothing_stages * smoothed.cost + tuning.smoothing_reads * reading
        plans.append(replace(smoothed, cost=cost))
    return sorted(plans, key=attrgetter("cost"))


def _kinked(problem: Problem, plans: Sequence[Plan], tuning: Tuning) -> Plan:
    """Choose the cheapest plan, or rounds if a few epochs of them, which measure their speed, are comparatively cheap."""
    best = plans[0]
    rounds = next((plan for plan in plans[1:] if plan.method == "sdna" and not plan.smoothed), None)
    trial = tuning.kinked_trial_epochs * Costs.of(problem.data.profile, tuning).epoch
    if rounds is None or trial > tuning.kinked_trial_share * best.cost:
        return best
    return replace(rounds, reason=f"trial of {rounds.reason}")


def _rounds(problem: Problem, method: str, tau: Tau, *, near: bool, tuning: Tuning) -> Plan:
    """Plan rounds of a dual method on a loss with kinks, without smoothing; one example at a time unless τ is given."""
    facts = Facts(problem, Costs.of(problem.data.profile, tuning), conditioning=1.0, near=near)  # φ″ = 0 between kinks
    planned = PLANS[method](facts, 1 if tau == "auto" else tau)
    how = "one example at a time" if tau == "auto" else planned.reason
    reason = f"dual rounds on {type(problem.loss).__name__} without smoothing (box constraints); {how}"
    return replace(planned, reason=reason, cost=rounds_cost(problem, tuning))


def _smoothed(problem: Problem, method: str, tau: Tau, *, models: int, near: bool, tuning: Tuning) -> Plan:
    """Plan the first of the smoothed losses by which a loss with kinks is solved."""
    smoothed = replace(problem, loss=problem.loss.smoothed(1.0))
    first = plan(smoothed, method=method, tau=tau, models=models, near=near, tuning=tuning)
    name = type(problem.loss).__name__
    return replace(first, reason=f"{name} through smoothed losses; the first by {first.reason}", smoothed=True)


def _automatic(facts: Facts, tau: Tau, models: int) -> Plan:
    """Choose the method of least predicted cost; a given τ selects SDNA."""
    method = "sdna" if tau != "auto" else _cheapest(facts)
    chosen = PLANS[method](facts, tau)
    if method in PRIMAL and _is_tried_first(facts, chosen.cost):
        return replace(dual.sdna(facts, "auto"), reason="trial of SDNA: a few epochs cost little and show its speed")
    if models > 1 and method == "newton" and facts.has_hessian and not facts.quadratic:
        why = "sketched Newton with all rows: models that are close together share one Hessian"
        return replace(primal.ihs_plan(facts, facts.problem.n), reason=why)
    return chosen


def _without_dual_rounds(facts: Facts, method: str, tau: Tau) -> Plan:
    """Choose among the primal methods, for a loss without dual methods."""
    problem, own = facts.problem, primal_methods(facts.problem)
    if method not in ("auto", *own):
        others = ", ".join(f'"{name}"' for name in ("auto", *own[:-1]))
        what = f"{problem.loss!r} with {problem.regularizer!r}"
        raise DualnewtonError(f'method must be {others} or "{own[-1]}" for {what}, got {method!r}')
    if method == "auto":
        method = "ihs" if tau != "auto" and "ihs" in own else _cheapest(facts)
    return PLANS[method](facts, tau)


def _cheapest(facts: Facts) -> str:
    if not (costs := predicted_costs(facts)):
        able = facts.problem.data.capabilities
        raise DualnewtonError(
            f"regularizer must be a sum over features for these data, since {able.reason}, got {facts.problem.regularizer!r}"
        )
    return min(costs, key=costs.__getitem__)


def predicted_costs(facts: Facts) -> dict[str, float]:
    """Predict the cost of each method that "auto" may choose."""
    return {name: PREDICTIONS[name](facts) for name in facts.methods}


def offered_plans(facts: Facts, *, primal: bool) -> list[Plan]:
    """Return the plans of the primal or the dual methods among which "auto" may choose."""
    return [PLANS[name](facts, "auto") for name in facts.methods if (name in PRIMAL) == primal]


def _is_tried_first(facts: Facts, cost: float) -> bool:
    """Whether a few epochs of SDNA are tried before a primal method of this predicted cost.

    They are not for quadratic losses, whose Hessian is computed once, for small data, where NumPy epochs are slow, and for many
    more rows than features. With fewer rows the predicted epochs are far too many: the products of rows give the dual the
    curvature that a weak penalty does not.
    """
    costs, tuning = facts.costs, facts.tuning
    able = "sdna" in facts.methods and facts.has_hessian and costs.n < tuning.trial_rows * costs.d
    if not able or facts.quadratic or facts.small or facts.near:
        return False
    return tuning.trial_epochs * costs.epoch <= tuning.trial_share * cost
