"""A direct solver as a method of the loop, for runs with a callback or a checkpoint: one step solves every model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct.block import MOST_STEPS, STEP_EPOCHS, Block, Found, Limits, Solvers, Start
from dualnewton.solvers.protocol import Method

FINER = 0.1
"""Factor on ``tol`` for a second call."""


class Direct(Method):
    """Models over the same small data, solved by one call.

    If the gap meets the tolerance, but not together with the bound on rounding errors, a second call asks for a smaller gap. If
    the gap misses the tolerance from a warm start, another call begins cold (:meth:`restart`).
    """

    certificates_are_cheap = True

    def __init__(
        self,
        solver: Solvers,  # family's function of several problems
        problems: Sequence[Any],  # they share X
        starts: Sequence[Start] | None,  # where the models start; None for a cold start
        *,
        tol: float,  # relative gap that is wanted
        crossovers: Crossovers = USUAL,  # tuned numbers of the solver
        # What a call without limits has returned, if there was one: the first step does not repeat it.
        known: Sequence[Found] = (),
    ) -> None:
        self.solver, self.problems, self.tol, self.known = solver, list(problems), tol, known
        self.starts: list[Start | None] = [None] * len(problems) if starts is None else list(starts)
        self.block = Block(problems[0].data, crossovers)
        self.found: list[Found] = []
        self.calls = 0

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        # Rounded up: a call that the limit cuts short uses up the limit, so that no step follows it. (An unlimited run would have
        # no such state.)
        steps = max(1, math.ceil(min(most, STEP_EPOCHS * MOST_STEPS) / STEP_EPOCHS))
        limits = Limits(self.tol * FINER**self.calls, steps, deadline)
        if self.known and self.calls == 0 and steps == MOST_STEPS:
            self.found = list(self.known)
        else:
            self.found = self.solver(self.problems, self.block, self.starts, limits)
        self.calls += 1
        return STEP_EPOCHS * max(found.steps for found in self.found)

    def point(self, k: int) -> Any:
        return self.found[k].point()

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        return self.calls > 1

    @property
    def is_cold(self) -> bool:
        """Whether no model has a start."""
        return all(start is None for start in self.starts)

    def restart(self) -> bool:
        # A solver that was given up because its steps are slow would be as slow from a cold start.
        if self.is_cold or any(each.given_up for each in self.found):
            return False
        self.starts, self.known, self.calls = [None] * len(self.problems), [], 0
        return True

    def keep(self, wanted: Sequence[int]) -> None:
        self.problems, self.starts = [self.problems[k] for k in wanted], [self.starts[k] for k in wanted]
        self.found, self.known = ([each[k] for k in wanted if each] for each in (self.found, self.known))

    def state(self) -> tuple[int, tuple[tuple[Any, ...], ...], bool]:
        return self.calls, tuple(map(tuple, self.found)), self.is_cold

    def restore(self, state: tuple[int, tuple[tuple[Any, ...], ...], bool]) -> None:
        calls, found, is_cold = state
        if is_cold:
            self.starts, self.known = [None] * len(self.problems), []
        self.calls, self.found = calls, [Found(*fields) for fields in found]
