"""Whether a run should change its method: the decrease of its gap against predictions, by counted work, not by a clock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.planning.dual import dual_epoch, expected_epochs
from dualnewton.planning.eligible import has_hessian, methods_for
from dualnewton.planning.facts import Facts
from dualnewton.planning.plan import Plan
from dualnewton.planning.planner import kinked_plans, offered_plans
from dualnewton.planning.primal import expected_ihs_cost, newton_by_products, speed_per_pass
from dualnewton.planning.tuning import DEFAULT, Tuning

FINEST_HISTORY = 1.0 / 128.0
"""Least distance of two steps whose residuals are kept, the last one excepted, as a fraction of the epochs: a long run would
otherwise copy thousands of them at each step."""


@dataclass(frozen=True)
class SwitchingState:
    """The state of :class:`Switching`."""

    plan: Plan  # current plan
    # The epochs done and the residual of the slowest model after steps on this plan: those in the second half of the run's
    # epochs and the one before, at least ``switch_window`` + 1 of them; steps that follow each other closely are left out.
    history: tuple[tuple[float, float], ...] = ()
    relative_gap: float = math.nan  # expected relative gap of the slowest model


class Switching:
    """Compares the decrease of a run's gap per work with the predicted cost of other methods."""

    def __init__(
        self,
        problem: Problem,  # one of the problems that are solved together
        plan: Plan,  # plan at the start of the run
        tol: float,  # wanted relative gap
        *,
        free: bool,  # whether the method may change: the user did not choose one
        tuning: Tuning = DEFAULT,  # numbers by which costs are predicted
    ) -> None:
        self.state, self.tol = SwitchingState(plan), max(tol, 1e-15)
        self.problem, self.tuning = problem, tuning
        self.free = free and (problem.loss.kinked or len(methods_for(problem, tuning)) > 1)

    @cached_property
    def facts(self) -> Facts:
        """The inputs of the cost predictions, computed on first use: most runs end before."""
        return Facts.of(self.problem, self.tuning)

    @cached_property
    def step_cost(self) -> float:
        """The predicted cost of a step of a primal method; computed once, since each step uses it."""
        columns = self.problem.columns
        data_pass = Costs.of(self.problem.data.profile, self.tuning).with_columns(columns).data_pass
        return data_pass if columns == 1 else self.tuning.softmax_step * data_pass

    @cached_property
    def kinked(self) -> list[Plan]:
        """The plans of other methods for a loss with kinks, cheapest first; a run changes its method once."""
        own = self.state.plan.method
        plans = kinked_plans(self.problem, without=own, tuning=self.tuning)
        return [plan for plan in plans if plan.method != own]  # also without smoothed losses by the same method

    def note(self, epochs: float, relative_gap: float, residual: float) -> None:
        """Record the expected relative gap of the slowest model, and the residual from which it is estimated (see ``Method``).

        The speed is measured by the residual, since each certificate changes the ratio between the two.
        """
        history = self.state.history
        if len(history) > 2 and history[-1][0] - history[-2][0] < FINEST_HISTORY * epochs:
            history = history[:-1]
        history = (*history, (epochs, residual))
        while len(history) > self.tuning.switch_window + 1 and 2.0 * history[1][0] <= epochs:
            history = history[1:]
        self.state = SwitchingState(self.state.plan, history, relative_gap)

    def better(self, *, stuck: bool = False, remaining: float = math.inf) -> Plan | None:
        """Return the plan of another method, if it is clearly better for the rest of the run, or the current one is stuck.

        A dual method that would not end within the ``remaining`` epochs is also replaced by one that costs more.
        """
        plan, relative_gap = self.state.plan, self.state.relative_gap
        if not self.free:
            return None
        if self.problem.loss.kinked:
            return self._from_kinks(stuck=stuck)
        if len(self.state.history) <= self.tuning.switch_window and not stuck:
            return None
        if stuck:
            leave = plan.is_primal and plan.before is None and relative_gap > self.tuning.rounding_gap
            others = self._others() if leave else []
            return min(others, key=itemgetter(0))[1].after(plan, "rounding stopped the steps") if others else None
        now, residual = self.state.history[-1]
        if not (self.tol < relative_gap < math.inf and residual > 0.0):
            return None  # the run is about to end, or the gap is unknown: both numbers may be NaN
        left = math.log(relative_gap / self.tol) / self._pace()
        return self._dual(left, now) if plan.is_primal else self._primal(left, relative_gap, remaining)

    def _from_kinks(self, *, stuck: bool) -> Plan | None:
        """Return another plan for a loss with kinks, at most once: after slow rounds, or after steps that rounding stopped."""
        plan, relative_gap = self.state.plan, self.state.relative_gap
        if plan.has_switched or not (stuck or self._has_tried_rounds()):
            return None
        if not self.kinked:
            return None
        other = self.kinked[0]
        if stuck:
            return other.after(plan, "rounding stopped the steps")
        epochs = math.log(relative_gap / self.tol) / self._pace()
        left = epochs * Costs.of(self.problem.data.profile, self.tuning).epoch
        if self.tuning.switch_margin * other.cost >= left:
            return None
        return other.after(plan, f"{epochs:.3g} more epochs of rounds would cost {left / other.cost:.2g} times as much")

    def _has_tried_rounds(self) -> bool:
        """Whether the current plan is dual rounds whose speed has been measured, and which have not converged.

        Two steps show it: slow ones are followed by joint steps, each of which may cost as much as all sweeps before.
        """
        if len(self.state.history) < 2:
            return False
        now, residual = self.state.history[-1]
        shown = now >= self.tuning.kinked_trial_epochs and self.tol < self.state.relative_gap and residual > 0.0
        return shown and not self.state.plan.is_primal

    def _pace(self) -> float:
        """Return the logarithm of the factor by which an epoch divided the residual in the second half of the epochs.

        Over a few steps it would be noise, since shrinking lets the residual rise and fall. It is at least ``slowest_epoch``,
        also if the residual was zero, infinite or unknown at one end.
        """
        slowest = self.tuning.slowest_epoch
        (before, far), (now, near) = self.state.history[0], self.state.history[-1]
        if not (0.0 < far < math.inf and 0.0 < near < math.inf and now > before):
            return slowest
        return max((math.log(far) - math.log(near)) / (now - before), slowest)

    def change_to(self, plan: Plan) -> None:
        """Set another plan, with an empty history."""
        self.state = SwitchingState(plan, (), self.state.relative_gap)

    def _others(self) -> list[tuple[float, Plan]]:
        """Return the plans that may replace a primal method, each with its predicted cost.

        These are dual methods if the problem has any: the sketches of "ihs" grow into Newton's method by themselves. Softmax has
        no dual methods; its "ihs", which has a separate Hessian for each class, never grows into the joint Hessian.
        """
        dual = expected_epochs(self.facts.difficulty, self.tuning) * dual_epoch(self.facts)
        primal = offered_plans(self.facts, primal=True)
        return [(dual, other) for other in offered_plans(self.facts, primal=False)] or [
            (other.cost, other) for other in primal if other.method != self.state.plan.method
        ]

    def _primal(self, epochs_left: float, relative_gap: float, remaining: float) -> Plan | None:
        others = offered_plans(self.facts, primal=True)
        options = [(self._remaining_cost(other, relative_gap), other) for other in others]
        if not options:
            return None
        cost, other = min(options, key=itemgetter(0))
        dual = epochs_left * dual_epoch(self.facts)
        margin = self.tuning.switch_margin if epochs_left <= remaining else self.tuning.limit_margin
        if margin * cost >= dual:
            return None
        reason = f"{epochs_left:.3g} more epochs of {self.state.plan.method} would cost {dual / cost:.2g} times as much"
        return other.after(self.state.plan, reason)

    def _remaining_cost(self, other: Plan, relative_gap: float) -> float:
        """Predict the cost of a primal method from here."""
        costs, tuning, newton = self.facts.costs, self.tuning, other.method == "newton"
        if not has_hessian(self.problem):
            return other.cost  # the nonzero features must be found first
        if not newton and math.isinf(expected_ihs_cost(self.facts, other.tau)):
            return math.inf
        if newton and self.facts.matrix_free:
            by_product = speed_per_pass(self.facts, costs.first_sketch)
            return newton_by_products(self.facts, tuning.restart_passes, math.log(relative_gap / self.tol) / by_product)
        gain = tuning.fastest_pass if newton else min(tuning.fastest_pass, speed_per_pass(self.facts, other.tau))
        if not newton and costs.is_dear(other.tau):
            return other.cost  # most of it is for passes without a sketch
        passes = tuning.restart_passes + math.log(relative_gap / self.tol) / gain
        sketches = 1.0
        if self.facts.quadratic:
            passes = tuning.last_passes if newton else passes
        else:
            sketches += passes * (1.0 if newton else tuning.renewed_sketches)
        return passes * (costs.data_pass + costs.applied(other.tau)) + sketches * costs.sketch(other.tau)

    def _dual(self, passes_left: float, epochs: float) -> Plan | None:
        """Return another plan, usually of a dual method, if the primal one has cost far more than predicted."""
        a_pass, plan = self.step_cost, self.state.plan
        overrun = self.tuning.overrun if self.problem.columns == 1 else self.tuning.softmax_overrun
        if plan.before is not None or epochs * a_pass < overrun * plan.cost:
            return None
        cost, other = min(self._others(), key=itemgetter(0), default=(math.inf, None))
        if other is None or self.tuning.switch_margin * cost >= passes_left * a_pass:
            return None
        return other.after(plan, f"{passes_left:.3g} more passes of {plan.method} would cost more")
