"""Choice of the method: the plan of a run with method, τ, compiled or NumPy code, predicted cost and reason.

Choices follow from sizes, sparsity and conditioning, never from a clock, so that equal seeds give equal runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dualnewton.errors import DualnewtonError
from dualnewton.objective.problem import Problem
from dualnewton.planning import dual, primal
from dualnewton.planning.eligible import primal_methods
from dualnewton.planning.facts import Facts
from dualnewton.planning.interior import interior
from dualnewton.planning.kinked_dual import rounds_cost, takes_rounds
from dualnewton.planning.plan import PRIMAL, Plan, Tau
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.validation import integer

PLANS: dict[str, Callable[[Facts, Tau], Plan]] = {
    "sdna": dual.sdna,
    "sdca": dual.sdca,
    "newton": primal.newton,
    "ihs": primal.ihs,
}
METHODS = ("auto", *PLANS, "interior")
"""The names that ``method`` may have; the last is of losses with kinks, which the others solve by smoothed losses."""

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
    tuning: Tuning | None = None,
) -> Plan:
    """Return the plan of a run; a method or a τ that is given is kept, "auto" is chosen by predicted costs.

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
    tuning : Tuning, optional
        The numbers by which costs are predicted.
    """
    tuning = DEFAULT if tuning is None else tuning
    if method not in METHODS:
        allowed = ", ".join(map(repr, METHODS))
        raise DualnewtonError(f"method must be one of {allowed}, got {method!r}")
    tau = tau if tau == "auto" else integer("tau", tau, 1, problem.n)
    if method == "interior":
        return interior(problem, tau, tuning)
    if takes_rounds(problem, method):
        direct = PLANS[method](Facts.of(problem, tuning, near=near), tau)
        reason = f"rounds on {type(problem.loss).__name__} itself; {direct.reason}"
        return replace(direct, reason=reason, cost=rounds_cost(problem, tuning))
    if problem.loss.kinked:
        neighbour = replace(problem, loss=problem.loss.smoothed(1.0))
        first = plan(neighbour, method=method, tau=tau, models=models, near=near, tuning=tuning)
        name = type(problem.loss).__name__
        return replace(first, reason=f"{name} by smoothed losses; in the first: {first.reason}")
    facts = Facts.of(problem, tuning, near=near)
    if not problem.loss.has_dual_rounds:
        return _without_dual_rounds(facts, method, tau)
    chosen = _automatic(facts, tau, models) if method == "auto" else PLANS[method](facts, tau)
    if not (able := problem.data.capabilities).random_rows:
        chosen = replace(chosen, reason=f"{chosen.reason}; dual methods are left out, since {able.reason}")
    return chosen


def _automatic(facts: Facts, tau: Tau, models: int) -> Plan:
    """Choose the method of least predicted cost; a given τ selects SDNA."""
    method = "sdna" if tau != "auto" else _cheapest(facts)
    chosen = PLANS[method](facts, tau)
    if method in PRIMAL and _is_tried_first(facts, chosen.cost):
        return replace(dual.sdna(facts, "auto"), reason="trial of SDNA: a few epochs cost little and show its speed")
    if models > 1 and method == "newton" and facts.has_hessian and not facts.quadratic:
        why = "sketched Newton with all rows: one Hessian is shared by models that are close together"
        return replace(primal.ihs_plan(facts, facts.problem.n), reason=why)
    return chosen


def _without_dual_rounds(facts: Facts, method: str, tau: Tau) -> Plan:
    """Choose among the primal methods, for a loss that has no dual ones."""
    problem, own = facts.problem, primal_methods(facts.problem)
    if method not in ("auto", *own):
        others = ", ".join(f'"{name}"' for name in ("auto", *own[:-1]))
        what = f"{problem.loss!r} with {problem.regularizer!r}"
        raise DualnewtonError(f'method must be {others} or "{own[-1]}" for {what}, got {method!r}')
    if method == "auto":
        method = "ihs" if tau != "auto" and "ihs" in own else _cheapest(facts)
    return PLANS[method](facts, tau)


def _cheapest(facts: Facts) -> str:
    costs = predicted(facts)
    return min(costs, key=costs.__getitem__)


def predicted(facts: Facts) -> dict[str, float]:
    """Predict the cost of each method that "auto" may choose."""
    return {name: PREDICTIONS[name](facts) for name in facts.methods}


def offered(facts: Facts, *, primal: bool) -> list[Plan]:
    """Return the plans of the primal, or of the dual, methods that "auto" may choose for a problem, as it would run them."""
    return [PLANS[name](facts, "auto") for name in facts.methods if (name in PRIMAL) == primal]


def _is_tried_first(facts: Facts, cost: float) -> bool:
    """Whether a few epochs of SDNA are tried before a primal method of this predicted cost.

    They are not for quadratic losses, whose Hessian is computed once, for small data, where epochs by NumPy are slow, and for
    dense rows, of which passes in order are much faster than visits one by one.
    """
    able = "sdna" in facts.methods and facts.has_hessian and facts.costs.sparse
    if not able or facts.quadratic or facts.small or facts.near:
        return False
    return facts.tuning.trial_epochs * facts.costs.epoch <= facts.tuning.trial_share * cost
