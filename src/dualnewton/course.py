"""Whether a run should change its method: the gap against the prediction, in work and never by the clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from dualnewton.judging import AnyProblem
from dualnewton.plan import PLANS, Facts, Plan, expected_epochs
from dualnewton.problem import Problem
from dualnewton.regularizers import L2

CLEARLY = 1.3
"""Another method must be expected to be so many times cheaper for what is left."""

TURNS = 2
"""Turns over which the speed of a method is judged."""

WARM_PASSES, PASS_GAIN = 3.0, 3.0
"""A primal method that starts near the optimum: passes to begin with, and the logarithm of what each further one gains."""

PATIENCE = 3.0
"""A primal method is left where it has cost so many times its prediction."""


class Course:
    """The history of a run's gap against its work, and what follows from it.

    Parameters
    ----------
    problem : Problem
        One of those that are solved together.
    plan : Plan
        The plan it began with.
    tol : float
        The relative gap that is wanted.
    free : bool
        Whether the method may change at all: it was not asked for.
    """

    def __init__(self, problem: AnyProblem, plan: Plan, tol: float, *, free: bool) -> None:
        self.plan, self.tol = plan, max(tol, 1e-15)
        self.free = free and isinstance(problem, Problem) and type(problem.regularizer) is L2
        self.facts = Facts.of(problem) if self.free else None
        self.history: list[tuple[float, float]] = []

    def note(self, epochs: float, relative_gap: float) -> None:
        """Record the (expected) relative gap of the slowest model after so many epochs."""
        self.history.append((epochs, relative_gap))

    def better(self) -> Plan | None:
        """Return the plan for the rest of the run, if another method is clearly better for it."""
        if self.facts is None or len(self.history) <= TURNS:
            return None
        (before, far), (now, near) = self.history[-1 - TURNS], self.history[-1]
        if not (0.0 < near < math.inf and self.tol < near):
            return None
        speed = max(math.log(far / near) / (now - before), 1e-9) if 0.0 < far < math.inf else 1e-9
        left = math.log(near / self.tol) / speed
        found = self._primal(left, near) if not self.plan.is_primal else self._dual(left, now)
        if found is not None:
            self.plan = found
            self.history.clear()
        return found

    def _primal(self, epochs_left: float, relative_gap: float) -> Plan | None:
        assert self.facts is not None
        costs = self.facts.costs
        passes = WARM_PASSES + math.log(relative_gap / self.tol) / PASS_GAIN
        options = []
        for name in ("newton", "ihs"):
            other = PLANS[name](self.facts, "auto")
            sketches = passes if name == "newton" else 1.0 + passes / 4.0
            slowness = (
                1.0 if other.tau >= self.facts.problem.d else 4.0
            )  # a low-rank sketch leaves much to conjugate steps
            options.append((slowness * passes * costs.data_pass + sketches * costs.sketch(other.tau), other))
        cost, other = min(options, key=lambda option: option[0])
        dual = epochs_left * costs.epoch
        if CLEARLY * cost >= dual:
            return None
        reason = f"{epochs_left:.3g} more epochs of {self.plan.method} would cost {dual / cost:.2g} times as much"
        return replace(other, reason=reason, before=self.plan)

    def _dual(self, passes_left: float, epochs: float) -> Plan | None:
        assert self.facts is not None
        costs = self.facts.costs
        spent, expected = epochs * costs.data_pass, self.plan.cost
        dual = expected_epochs(self.facts.conditioning) * costs.epoch
        if (
            self.plan.before is not None
            or spent < PATIENCE * expected
            or CLEARLY * dual >= passes_left * costs.data_pass
        ):
            return None
        reason = f"{passes_left:.3g} more passes of {self.plan.method} would cost more than a dual method"
        return replace(PLANS["sdna"](self.facts, "auto"), reason=reason, before=self.plan)


def slowest(relative_gaps: Sequence[float]) -> float:
    """Return the largest of some gaps, NaN if any is unknown."""
    return math.nan if any(map(math.isnan, relative_gaps)) else max(relative_gaps)
