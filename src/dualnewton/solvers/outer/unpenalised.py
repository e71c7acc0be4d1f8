"""Newton's method on a risk without a penalty, started from a fit with a weak penalty; each step gives a feasible dual point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.conjugate_gradients import MOST_PRODUCTS, Effort
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.planning.plan import Plan
from dualnewton.solvers.protocol import OuterMethod, Request, WholePoint

ROUGHLY = 1e-3
"""Tolerance of the fit with a weak penalty."""

STEPS, HALVINGS = 60, 30
"""Largest number of steps, and of halvings of a step."""

PASSES = 2.0
"""Work of a step, in passes over the data, without those of conjugate gradients."""

INEXACT, LOOSELY = 0.03, 2.0
"""Residual of conjugate gradients far from the optimum, as a fraction of the gradient; and the expected gap, as a multiple of the
tolerance, from which on a point is far from it."""

NEAR, EXACT = "from an earlier result", "one solves a quadratic problem"
"""Reasons why there is no fit with a weak penalty."""


@dataclass(frozen=True, eq=False)
class Reached:
    """(w, b) with one row for each column of margins, the number of steps so far, and whether no further step lowers P₀."""

    theta: np.ndarray
    steps: int = 0
    stuck: bool = False


class NewtonWithoutPenalty(OuterMethod):
    """Risks without a penalty that share X and a loss.

    The first steps are those of the run with a weak penalty, unless there is a warm start, from which that run would move away.
    All others are Newton steps on P₀, one for each model.
    """

    def __init__(self, starts: Sequence[tuple[Unpenalised, CertifiedPair]], request: Request, runs: Any) -> None:
        points = [Reached(problem.view.joined(pair.w, pair.intercept)) for problem, pair in starts]
        models = [_Model(problem, at, request.tol) for (problem, _), at in zip(starts, points, strict=True)]
        super().__init__(models, request, runs)
        # Whether the Newton steps have begun: from earlier models, unless one of them was worse than zero; one step suffices for
        # a quadratic risk, wherever it starts.
        quadratic, earlier = starts[0][0].view.quadratic, all(at.theta.any() for at in points)
        self.begun = earlier or quadratic
        # The plan of the run with a weak penalty, if there is one.
        n = starts[0][0].n
        self.plan = Plan("newton", n, NEAR) if earlier else Plan("direct", n, EXACT)

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        for model in self.models:
            model.effort = Effort(min(most, MOST_PRODUCTS), deadline)
        if not self.begun:
            spent = self.advance(None, rng, deadline, most)
            self.plan = self.inner.plan
            return spent
        self.inner = None
        return max(model.step() for model in self.models)

    def inner_task(self) -> tuple[list[Problem], Request]:
        tol = max(self.request.tol, ROUGHLY)
        return [model.problem.weak for model in self.models], replace(self.request, tol=tol, callback=None)

    def offers(self, k: int) -> bool:
        return self.begun or super().offers(k)

    def point(self, k: int) -> WholePoint:
        model = self.models[k]
        if not self.begun:
            best = self.track(k).best
            model.move_to(Reached(model.problem.view.joined(best.w, best.intercept)))
        w, intercept = model.problem.view.parted(model.known.theta)
        return WholePoint({"w": w, "intercept": intercept, "alpha": model.here.orthogonal})

    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:  # noqa: ARG002
        return {"w": found.w, "intercept": found.intercept}

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:  # noqa: ARG002
        self.begun = self.begun or self.is_over

    def is_stuck(self, k: int) -> bool:
        return bool(self.models[k].known.stuck)

    def reported(self, plan: Plan) -> Plan:  # noqa: ARG002
        steps = max(model.known.steps for model in self.models)
        after = "" if self.plan.reason in (NEAR, EXACT) else ", after a fit with a weak one"
        products = "" if self.models[0].problem.view.is_small else " by conjugate gradients"
        done = f"no penalty by {steps} steps of Newton's method{products}{after}"
        return replace(self.plan, reason=f"{done}: {self.plan.reason}")

    def own_state(self) -> tuple[bool, Plan, tuple[Reached, ...]]:
        return self.begun, self.plan, tuple(model.known for model in self.models)

    def restore_own(self, state: tuple[bool, Plan, tuple[Reached, ...]]) -> None:
        self.begun, self.plan, known = state
        self.models = [_Model(model.problem, own, model.tol) for model, own in zip(self.models, known, strict=True)]


@dataclass
class _Model:
    """One model: its problem and its current point."""

    problem: Unpenalised
    known: Reached
    tol: float  # relative gap that is wanted
    at: _At | None = field(default=None, init=False)  # computed from ``known`` on demand
    effort: Effort = field(default_factory=Effort, init=False)  # limits of the current step

    @property
    def here(self) -> _At:
        """The dual point and the Newton step at theta."""
        if self.at is None:
            self.at = _At.of(self.problem, self.known.theta, self.effort, self.tol)
        return self.at

    def move_to(self, known: Reached) -> None:
        """Set the current point."""
        self.known, self.at = known, None

    def step(self) -> float:
        """Take the longest of the steps 1, ½, ¼, … that decreases P₀; return its work, 0 if there is none.

        If classes are separated, P₀ has no minimum, and no gap relative to it can be proved: the steps end once P₀ is at most
        the fraction ``tol`` of its value at zero.
        """
        view, here, theta, steps = self.problem.view, self.here, self.known.theta, self.known.steps + 1
        value = view.primal(theta)
        for halvings in range(HALVINGS if here.direction.any() else 0):
            there = theta + 0.5**halvings * here.direction
            if (lower := view.primal(there)) < value:
                self.move_to(Reached(there, steps, stuck=steps >= STEPS or self._is_separated(lower)))
                return PASSES + here.products
        self.known = replace(self.known, stuck=True)
        return 0.0

    def _is_separated(self, value: float) -> bool:
        """Whether the losses at a point are so small that no row is classified wrongly, and that they are nearly zero."""
        unit, wrong = self.problem.unit, self.problem.loss.wrong
        if wrong is None:
            return False
        lightest = 1.0 if unit.sample_weight is None else float(np.where(unit.c > 0.0, unit.c, math.inf).min())
        at_zero = self.problem.view.primal(np.zeros_like(self.known.theta))
        return unit.n * value < lightest * wrong and value <= self.tol * at_zero


@dataclass(frozen=True, eq=False)
class _At:
    """The Newton step at a point, and the orthogonal dual point that it gives."""

    direction: np.ndarray
    orthogonal: np.ndarray  # α_i = −φ′(z_i) itself far from the optimum, where it proves nothing
    products: int  # conjugate gradients of the step; those for the dual point belong to the certificate

    @classmethod
    def of(cls, problem: Unpenalised, theta: np.ndarray, limits: Effort, tol: float) -> _At:
        """Compute them; conjugate gradients solve a system roughly before it is known that the dual point may suffice."""
        view, effort = problem.view, replace(limits)
        Z = view.margins(theta)
        alpha = problem.unit.slopes_at(Z)
        inverse = view.inverse_at(Z, alpha)
        if not (view.is_small or view.quadratic):
            slopes, effort = view.gradient(alpha), replace(limits, fraction=INEXACT)
            step = inverse(slopes, effort)
            if 0.5 * float(np.vdot(slopes, step)) > LOOSELY * tol * problem.n * abs(view.primal(theta)):
                return cls(step, alpha, effort.made)
            orthogonal, step = problem.orthogonal(Z, alpha, inverse, Effort(deadline=limits.deadline), step)
            return cls(step, orthogonal, effort.made)
        orthogonal, step = problem.orthogonal(Z, alpha, inverse, effort)
        return cls(step, orthogonal, effort.made)
