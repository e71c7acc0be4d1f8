"""One model of a primal method: Newton's method with a Hessian estimated from rows, corrected by L-BFGS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.matrix.vectors import penalised, total
from dualnewton.solvers.primal.curvature import Curvature
from dualnewton.solvers.primal.decisions import Policy
from dualnewton.solvers.primal.lbfgs import Corrections, End
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.primal.sketching import Hessian
from dualnewton.solvers.state import assign, record

WELL_BELOW = 0.5
"""Gap that the exact step of a quadratic problem may leave, as a fraction of the wanted gap."""

FULL = 0.05
"""Relative distance from the best step length within which a step is accepted unchanged."""

SUFFICIENT = 1e-4
"""Armijo's constant: the fraction of the decrease predicted by the gradient that a step must reach."""

PATIENCE = 8
"""Consecutive rejected trial points after which a model is stuck; the largest possible sketch is tried before."""


@dataclass(frozen=True, eq=False)
class Found:
    """The solution of a model on a sample of ``rows`` rows, and its estimate of the Hessian of all rows, if any."""

    x: np.ndarray
    curvature: Curvature | None = None
    rows: int = 0


@dataclass(frozen=True, eq=False)
class Place:
    """A point x, and n P, n(P − D), the gradient of n P and the margins there; n P is infinite if it was not evaluated."""

    x: np.ndarray
    value: float
    gap: float
    gradient: np.ndarray
    margins: np.ndarray


@dataclass(frozen=True, eq=False)
class Trial:
    """A point for the next pass: the fraction ``step_length`` of the full step, and the number of rejected points before it."""

    x: np.ndarray
    step_length: float = 1.0
    failures: int = 0


@dataclass(frozen=True, eq=False)
class Direction:
    """−B⁻¹g, its product with g, and ``image`` = B₀⁻¹g without the corrections of L-BFGS."""

    step: np.ndarray
    slope: float
    image: np.ndarray


@dataclass(frozen=True, eq=False)
class ModelState:
    """The state of a model between two steps."""

    place: Place
    trial: Trial  # the point that the next pass evaluates
    direction: Direction  # of the current step
    curvature: Any  # B₀; None if it must be recomputed
    shares: bool  # whether the curvature is the mean over several models
    corrections: Corrections
    before: End | None  # the start of the last step, until that is a correction pair
    stuck: bool  # whether no step decreases the objective beyond rounding
    skipped: bool  # whether the model has moved to a point without evaluating it, which happens at most once
    policy: Any


class Model:
    """A model, whose attributes are the fields of :class:`ModelState` and these parameters."""

    def __init__(
        self,
        objective: Objective,  # function to be minimised
        policy: Policy,  # decides when new curvature is computed, and from how many rows
        hessians: Sequence[Hessian],  # compute the curvature, one for each column
        start: np.ndarray,  # first trial point
    ) -> None:
        self.objective, self.policy, self.hessians = objective, policy, hessians
        zero = np.zeros_like(start)
        self.place = Place(zero, math.inf, math.inf, zero, np.empty((0, objective.columns)))
        self.trial, self.direction = Trial(start), Direction(zero, 0.0, zero)
        self.curvature: Curvature | None = None
        self.corrections = Corrections.none()
        self.before: End | None = None
        self.shares = self.stuck = self.skipped = False

    def state(self) -> ModelState:
        """Return the state of the model; without the curvature for Newton's method, which recomputes it at each step."""
        stored = None if self.curvature is None or self.policy.newton else self.curvature.state()
        return record(ModelState, self, curvature=stored, policy=self.policy.state)

    def restore(self, state: ModelState, data: Data) -> None:
        """Restore the state of a model with the same objective."""
        self.policy.state = state.policy
        stored = None if state.curvature is None else state.curvature.on(data)
        assign(self, state, curvature=stored, policy=self.policy)

    @property
    def value(self) -> float:
        """n P; infinite if the point was not evaluated."""
        return self.place.value

    @property
    def gap(self) -> float:
        """n(P − D), computed from the gradient."""
        return self.place.gap

    @property
    def is_new(self) -> bool:
        """Whether no point has been evaluated yet."""
        return len(self.place.margins) == 0

    def begin(self, found: Found) -> None:
        """Start at the solution on a sample, with its estimate of the Hessian."""
        self.trial, self.curvature = Trial(found.x), found.curvature
        if found.curvature is not None:
            self.policy.start(found.rows)

    def receive(self, losses: float, loss_gradient: np.ndarray, margins: np.ndarray) -> Place | None:
        """Receive the values at the trial point; move there if it is low enough, else return it, to be shortened."""
        x = self.trial.x
        gradient, sums = penalised(loss_gradient, x, self.objective.ridge, self.objective.gap_weights)
        square, size, gap = sums
        found = Place(x, losses + 0.5 * square, gap, gradient, margins)
        evaluated = self.place.value < math.inf
        if evaluated and self.objective.quadratic:
            found = self._lowest(found)
        if not evaluated or (math.isfinite(size) and self._accepts(found)):
            self._move(found, evaluated=evaluated)
            return None
        return found

    def _lowest(self, found: Place) -> Place:
        """Return the minimum along the line through a trial point, of the parabola given by its two ends.

        With exact steps the corrections make each direction conjugate to those before it: the method of conjugate gradients.
        """
        place, slope, length = self.place, self.direction.slope, self.trial.step_length
        change = found.gradient - place.gradient
        curvature = float(self.direction.step.dot(change)) * length
        t = -slope / curvature if curvature > 0.0 else 1.0
        if abs(t - 1.0) <= FULL or not math.isfinite(t):
            return found
        x = place.x + t * (found.x - place.x)
        margins = place.margins + t * (found.margins - place.margins)
        gradient = place.gradient + t * change
        return Place(x, place.value + 0.5 * t * length * slope, self.objective.gap(gradient), gradient, margins)

    def _accepts(self, found: Place) -> bool:
        """Armijo's rule; where values differ by rounding only, the slope decides instead (the approximate Wolfe rule)."""
        if not math.isfinite(found.value):
            return False
        value, slope = self.place.value, self.direction.slope
        if found.value <= value + SUFFICIENT * self.trial.step_length * slope:
            return True
        level = found.value <= value + 1e-12 * abs(value)
        return level and float(found.gradient.dot(self.direction.step)) <= (2.0 * SUFFICIENT - 1.0) * slope

    def _move(self, found: Place, *, evaluated: bool) -> None:
        if self.curvature is not None and evaluated:
            self.before = End(self.place.x, self.place.gradient, self.direction.image)
        self.place = found
        if self.trial.failures:
            self.trial = replace(self.trial, failures=0)

    def shorten(self, found: Place) -> None:
        """Try the minimum on the segment to a rejected point: its margins are interpolated, so that no pass is needed."""
        place, failures = self.place, self.trial.failures + 1
        objective, problem = self.objective, self.objective.problem
        start, end = map(objective.as_margins, (place.margins, found.margins))
        way = found.x - place.x
        with np.errstate(over="ignore", invalid="ignore"):  # the rejected point may be far away
            slopes = float(place.gradient.dot(way)), float(found.gradient.dot(way))
        t = line_minimum(
            problem.loss, problem.row_vectors, objective.ridge, place.x, found.x, start, end, slopes=slopes
        )
        if failures >= PATIENCE or t == 0.0:
            self._give_up()
        else:
            self.trial = Trial(place.x + t * way, self.trial.step_length * t, failures)

    def _give_up(self) -> None:
        """Request the largest sketch; the model is stuck if this step already used it."""
        self.stuck = self.policy.rows >= self.policy.most and self.policy.age == 0
        self.policy.ask_for(self.policy.most)
        self.trial, self.curvature = replace(self.trial, failures=0), None

    def wants_curvature(self) -> bool:
        """Compute the direction for the current curvature; return whether a new one, of ``policy.rows`` rows, is wanted."""
        if self.trial.failures:
            return False  # a shorter step is tried next
        if self.curvature is None:
            return True
        value, length = self.place.value, self.trial.step_length
        if not self.policy.newton:
            self._set_direction(self.curvature)
            if self.policy.age < 0:  # the curvature of a sample, before the first step with it
                self.policy.begin(-self.direction.slope, len(self.place.margins))
                return False
            self.policy.watch(-self.direction.slope, value, length)
        wanted = self.policy.wants_another(self.gap, value, length)
        if wanted:
            self.policy.ask_for(self.policy.next_rows)
        return wanted

    def use(self, curvature: Curvature, active: int, *, shares: bool) -> None:
        """Set the direction for a new curvature, to which ``active`` rows contribute."""
        self.curvature, self.before, self.shares = curvature, None, shares
        self.corrections = self.corrections.rebased(curvature) if self.policy.coupled else Corrections.none()
        self._set_direction(curvature)
        self.policy.begin(-self.direction.slope, active)

    def step(self) -> None:
        """Set the next trial point."""
        if not self.trial.failures:
            self.trial = Trial(total(self.place.x, self.direction.step))

    @property
    def negligible(self) -> float:
        """The part of n(P − D) that a step on a quadratic objective may leave: well below the wanted gap."""
        return WELL_BELOW * self.policy.tol * abs(self.place.value) if self.objective.quadratic else 0.0

    @property
    def should_end(self) -> bool:
        """Whether the trial point is expected to meet ``tol``, so that it is certified without an evaluation: the exact
        minimum of a quadratic objective, or the end of a step that makes the gap small enough; once per run, since either may
        fail.
        """
        if self.skipped or self.trial.failures or self.curvature is None:
            return False
        if self.objective.quadratic and self.curvature.exact and not self.shares:
            return True
        return self.policy.ends(self.gap, self.place.value)

    def skip(self) -> None:
        """Move to the trial point without evaluating it. If its certificate misses ``tol``, it is evaluated like a start."""
        self.place = replace(self.place, x=self.trial.x, gap=0.0, value=math.inf)
        self.skipped, self.before = True, None

    def _set_direction(self, curvature: Curvature) -> None:
        """Set the direction of the next step."""
        gradient = self.place.gradient
        image, along = curvature.solve(gradient), None
        if self.before is not None:
            now = End(self.place.x, gradient, image)
            self.corrections, along = self.corrections.after_step(now, self.before, self.policy.memory)
        self.before = None
        found = self.corrections.direction(gradient, image, scaled_well=curvature.scaled_well, along=along)
        self.direction = Direction(*found, image)
        if not self.direction.slope < 0.0 and len(self.corrections):  # rounding errors of the pairs
            self.corrections = Corrections.none()
            self._set_direction(curvature)
