"""Newton's method on a risk without a penalty, started from a fit with a weak penalty; each step gives a feasible dual point."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.planning.plan import Plan
from dualnewton.solvers.protocol import OuterMethod, Request, WholePoint

ROUGHLY = 1e-3
"""Tolerance of the fit with a weak penalty."""

STEPS, HALVINGS = 60, 30
"""Largest number of steps, and of halvings of a step."""

PASSES = 2.0
"""Work of a step, in passes over the data."""


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
        models = [_Model(problem, Reached(problem.view.joined(pair.w, pair.intercept))) for problem, pair in starts]
        super().__init__(models, request, runs)
        self.begun = request.near  # whether the Newton steps have begun
        self.plan = Plan("newton", starts[0][0].n, "from an earlier result")  # the plan of the run with a weak penalty

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        if not self.begun:
            spent = self.advance(None, rng, deadline, most)
            self.plan = self.inner.plan
            return spent
        self.inner = None
        moved = [model.step(self.request.tol) for model in self.models]
        return PASSES if any(moved) else 0.0

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
        done = f"no penalty by {steps} steps of Newton's method, after a fit with a weak one"
        return replace(self.plan, reason=f"{done}: {self.plan.reason}")

    def own_state(self) -> tuple[bool, Plan, tuple[Reached, ...]]:
        return self.begun, self.plan, tuple(model.known for model in self.models)

    def restore_own(self, state: tuple[bool, Plan, tuple[Reached, ...]]) -> None:
        self.begun, self.plan, known = state
        self.models = [_Model(model.problem, own) for model, own in zip(self.models, known, strict=True)]


@dataclass
class _Model:
    """One model: its problem and its current point."""

    problem: Unpenalised
    known: Reached
    at: _At | None = field(default=None, init=False)  # computed from ``known`` on demand

    @property
    def here(self) -> _At:
        """The dual points and the inverse Hessian at theta."""
        if self.at is None:
            self.at = _At.of(self.problem, self.known.theta)
        return self.at

    def move_to(self, known: Reached) -> None:
        """Set the current point."""
        self.known, self.at = known, None

    def step(self, tol: float) -> bool:
        """Take the longest of the steps 1, ½, ¼, … that decreases P₀; return False if there is none.

        If classes are separated, P₀ has no minimum, and no gap relative to it can be proved: the steps end once P₀ is at most
        the fraction ``tol`` of its value at zero.
        """
        view, theta, steps = self.problem.view, self.known.theta, self.known.steps + 1
        value = view.primal(theta)
        direction = self.here.inverse(view.gradient(self.here.alpha))
        for halvings in range(HALVINGS):
            there = theta + 0.5**halvings * direction
            if (lower := view.primal(there)) < value:
                self.move_to(Reached(there, steps, stuck=steps >= STEPS or self._is_separated(lower, tol)))
                return True
        self.known = replace(self.known, stuck=True)
        return False

    def _is_separated(self, value: float, tol: float) -> bool:
        """Whether the losses at a point are so small that no row is classified wrongly, and that they are nearly zero."""
        unit, wrong = self.problem.unit, self.problem.loss.wrong
        if wrong is None:
            return False
        lightest = 1.0 if unit.sample_weight is None else float(np.where(unit.c > 0.0, unit.c, math.inf).min())
        at_zero = self.problem.view.primal(np.zeros_like(self.known.theta))
        return unit.n * value < lightest * wrong and value <= tol * at_zero


@dataclass(frozen=True, eq=False)
class _At:
    """α_i = −φ′(z_i), the product with the inverse Hessian, and the orthogonal dual point near α."""

    alpha: np.ndarray
    inverse: Callable[[np.ndarray], np.ndarray]
    orthogonal: np.ndarray

    @classmethod
    def of(cls, problem: Unpenalised, theta: np.ndarray) -> _At:
        """Compute them."""
        view = problem.view
        Z = view.margins(theta)
        alpha, inverse = problem.unit.slopes_at(Z), view.inverse(view.hessian(Z))
        return cls(alpha, inverse, problem.orthogonal(Z, alpha, inverse))
