"""Least squares with a penalty that selects features, one model: the path of ``paths.py`` as a method of the loop.

From w = 0 the path may begin at the weakest penalty that keeps all features at zero and decrease to the wanted one in a few
steps: with more features than examples, the intermediate models use few features, and each step changes few signs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.thresholds import falling_multiples
from dualnewton.solvers.protocol import Method, PrimalPoint
from dualnewton.solvers.prox.gaps import value_and_gap
from dualnewton.solvers.prox.paths import Paths, PathsState
from dualnewton.solvers.prox.subproblem import Penalty

ROUGHLY = 0.1
"""Violation, as a fraction of the threshold, at which an intermediate model is done."""

WELL_BELOW = 0.2
"""The same for the last model, as a fraction of the wanted relative gap, and the factor by which it is reduced if the gap misses
the tolerance: a violation of ε times the threshold makes a relative gap of about 2ε at most."""

FINEST = 1e-16
"""Violation, as a fraction of the threshold, below which there is nothing but rounding."""


@dataclass(frozen=True, eq=False)
class Place:
    """The state of the path."""

    strengths: tuple[float, ...]  # penalties still to come, as multiples of the wanted one, which is the last
    goal: float  # violation at the last of them, as a fraction of the threshold
    # The model.
    w: np.ndarray
    b: float
    gap: float  # expected n(P − D)
    # Whether rounding prevents further progress, or the model needs more features than fit into a matrix.
    stuck: bool = False


class LeastSquares(Method):
    """One model, solved for decreasing penalties down to its own."""

    def __init__(
        self,
        problem: Problem,  # with the squared loss and thresholds > 0 for all features; zero is within the bounds
        paths: Paths,  # walk, over the data of the problem
        start: tuple[np.ndarray, Any],  # where the model starts
        *,
        tol: float,  # relative gap that is wanted
        ladder: float,  # ratio of the penalties on the way; 0 for none between the start and the wanted one
    ) -> None:
        self.problem, self.paths, self.penalty = problem, paths, Penalty.of(problem)
        w = self.penalty.nearest(start[0])
        paths.begin(w[None], None if w.any() else problem.slopes_at_zero[None])
        highest = float((np.abs(paths.gradient[0]) / self.penalty.threshold).max(initial=0.0))
        strengths = (1.0,) if w.any() else falling_multiples(highest, ladder)
        self.place = self._place(strengths, max(WELL_BELOW * tol, FINEST))

    def _place(self, strengths: tuple[float, ...], goal: float) -> Place:
        paths, w = self.paths, np.zeros(self.problem.d)
        w[paths.inside] = paths.V[0]
        _, gap = value_and_gap(self.problem, w, float(paths.losses[0]), paths.gradient[0])
        return Place(strengths, goal, w, float(paths.intercepts(paths.V[None])[0, 0]), gap)

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        before = self.paths.passes
        if not self.place.strengths:  # the goal was reached, and the certificate asks for more
            self.place = replace(self.place, strengths=(1.0,), goal=max(WELL_BELOW * self.place.goal, FINEST))
        while self.place.strengths and not self.place.stuck:
            self.place = self._next(self.place, lambda: time.perf_counter() > deadline)
            if self.paths.passes - before >= most or time.perf_counter() > deadline:
                break
        return float(max(1, self.paths.passes - before))

    def _next(self, place: Place, is_over: Callable[[], bool]) -> Place:
        """Return the state after the next of the strengths."""
        strength, *others = place.strengths
        penalty = self.penalty.times(strength)
        part = place.goal if not others else ROUGHLY
        found = self.paths.advance([penalty], [part * float(penalty.threshold.min())], is_over)
        if found is None:
            return replace(place, stuck=True)
        after = self._place(tuple(others), place.goal)
        finest = not others and place.goal <= FINEST and not after.gap < 0.5 * place.gap
        return replace(after, stuck=finest)

    def point(self, k: int) -> PrimalPoint:  # noqa: ARG002
        return PrimalPoint(self.place.w, self.place.b)

    def residual(self, k: int) -> float:  # noqa: ARG002
        return self.place.gap / self.problem.n

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        return self.place.stuck

    def keep(self, wanted: Any) -> None:
        """There is one model."""

    def state(self) -> tuple[Place, PathsState]:
        return self.place, self.paths.state()

    def restore(self, state: tuple[Place, PathsState]) -> None:
        self.place, paths = state
        self.paths.restore(paths)
