"""Newton's method on data that stay in the cache: all steps of a model in one step of the loop, a dozen array operations each.

    n P(x) = Σ c_i φ_i(ã_iᵀx) + ½ Σ ridge_j x_j²,        ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

This is SDNA with τ = n, as ``newton.py`` is. On small data the interpreter takes most of the time, so nothing here is planned,
shared or remembered between steps: the d×d Hessian is cheaper than any of that. A certificate is due when the steps expect the
gap to be small enough, which follows from the gradient: n(P − D) = Σ_j g_j²/(2 ridge_j) at the best intercept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.matrix import Data, linear
from dualnewton.objective.problem import Problem
from dualnewton.solvers.primal.curvature import Cholesky
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.protocol import Method, PrimalPoint

STEP_EPOCHS = 2.0
"""Epochs of work that a step counts for: one pass for values and gradient, one for the Hessian."""

MOST_STEPS = 50
"""Steps of a model in one step of the loop; well-posed problems take fewer than 20."""

SUFFICIENT, MOST_TRIALS = 1e-4, 8
"""Armijo's fraction of the predicted decrease that a step must reach, and how many points along a step are tried."""

ROUNDING = 1e-14
"""Relative change of the objective that counts as rounding."""

WELL_BELOW = 0.5
"""The steps continue until the expected gap is at most this fraction of ``tol``: the certificate rounds differently."""


@dataclass(frozen=True, eq=False)
class State:
    """A point of one model, and what is known there.

    Attributes
    ----------
    x, margins, gradient : arrays
        (w, b), ãᵀx of each row (without offsets), and the gradient of n P.
    value : float
        n P.
    stuck : bool
        True once no step along the Newton direction decreases the objective beyond rounding.
    """

    x: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    value: float
    stuck: bool = False


class SmallNewton(Method):
    """Models over the same small data, each moved by its own Newton steps.

    Parameters
    ----------
    problems : sequence of Problem
        They share X; losses of one column, smooth, with the penalty (λ/2) Σ v_j w_j².
    data : Data
        The rows, all of which are gathered as a dense matrix.
    starts : sequence of (w, intercept)
        Where the models start.
    tol : float
        The relative gap that is wanted.
    """

    def __init__(
        self, problems: Sequence[Problem], data: Data, starts: Sequence[tuple[np.ndarray, Any]], *, tol: float
    ) -> None:
        self.objectives, self.tol = [Objective(problem) for problem in problems], tol
        rows = linear.to_dense(data.rows(slice(None)))
        self.rows = np.column_stack([rows, np.ones(data.n)]) if problems[0].fit_intercept else rows
        points = [objective.vector(w, b) for objective, (w, b) in zip(self.objectives, starts, strict=True)]
        self.states = [self._state(k, x, self.rows @ x) for k, x in enumerate(points)]

    def _state(self, k: int, x: np.ndarray, margins: np.ndarray) -> State:
        objective = self.objectives[k]
        losses, slopes = objective.problem.row_losses(objective.problem.row_vectors, margins)
        pull = objective.ridge * x
        return State(x, margins, slopes @ self.rows + pull, losses + 0.5 * float(pull @ x))

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        # A limit that cuts the steps short is used up, so that an unlimited run never passes through what it leaves.
        steps = max(1, math.ceil(min(most, STEP_EPOCHS * MOST_STEPS) / STEP_EPOCHS))
        return STEP_EPOCHS * max(self._advance(k, steps, deadline) for k in range(len(self.states)))

    def _advance(self, k: int, most: int, deadline: float) -> int:
        """Take steps of model k until its expected gap is small enough; return how many."""
        for done in range(1, most + 1):
            before = self.states[k]
            self.states[k] = self._stepped(k, before)
            if self.states[k].stuck or self._expected(k) <= WELL_BELOW * self.tol * abs(self.states[k].value):
                return done
            if time.perf_counter() > deadline:
                return done
        return most

    def _stepped(self, k: int, state: State) -> State:
        """Return the state after one Newton step, shortened to the lowest point on the way where the whole step is too long."""
        objective = self.objectives[k]
        weights = objective.problem.row_curvature(state.margins)
        H = (self.rows.T * weights) @ self.rows
        step = Cholesky(H, objective.ridge.copy()).solve(-state.gradient)
        slope, t = float(state.gradient @ step), 1.0
        way = self.rows @ step
        for _ in range(MOST_TRIALS):
            found = self._state(k, state.x + t * step, state.margins + t * way)
            if self._accepts(state, found, step, t * slope):
                return replace(found, stuck=not slope < -ROUNDING * abs(state.value))
            ends = state.margins[:, None], found.margins[:, None]
            t *= line_minimum(objective, state.x, found.x, *ends)
            if t == 0.0:
                break
        return replace(state, stuck=True)

    @staticmethod
    def _accepts(state: State, found: State, step: np.ndarray, slope: float) -> bool:
        """Armijo's rule; where the values differ by rounding only, the slope along the step must have become smaller."""
        if found.value <= state.value + SUFFICIENT * slope:
            return True
        level = found.value <= state.value + ROUNDING * abs(state.value)
        return level and abs(float(found.gradient @ step)) < -float(state.gradient @ step)

    def _expected(self, k: int) -> float:
        """n(P − D) for the dual point that belongs to x.

        The formula holds at the best intercept. Away from it the gap changes in the first order, so its slope counts as a gap.
        """
        gradient, objective = self.states[k].gradient, self.objectives[k]
        return objective.gap(gradient) + float(np.abs(gradient[objective.problem.d :]).sum())

    def point(self, k: int) -> PrimalPoint:
        return self.objectives[k].point(self.states[k].x)

    def residual(self, k: int) -> float:
        return self._expected(k) / self.objectives[k].problem.n

    def is_stuck(self, k: int) -> bool:
        return self.states[k].stuck

    def keep(self, wanted: Sequence[int]) -> None:
        self.objectives = [self.objectives[k] for k in wanted]
        self.states = [self.states[k] for k in wanted]

    def state(self) -> tuple[State, ...]:
        return tuple(self.states)

    def restore(self, state: tuple[State, ...]) -> None:
        self.states = list(state)
