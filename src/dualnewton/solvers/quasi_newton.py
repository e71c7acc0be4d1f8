"""One model on its way down: Newton's method with the curvature of rows, corrected by gradients as L-BFGS does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dualnewton.solvers.costs import Costs
from dualnewton.solvers.curvature import Curvature, Diagonal, Hessian, Together
from dualnewton.solvers.line import line_minimum
from dualnewton.solvers.objective import Objective

MEMORY = 10
"""Pairs of steps and gradient differences that correct the curvature."""

SUFFICIENT = 1e-4
"""Of the decrease that the gradient promises is asked of a step."""

DEAR = 4.0
"""A sketch that costs more passes than this is not bought before it is known to be needed."""

WINDOW = 4
"""Steps over which the speed is judged."""

FRESH_RATE = 0.05
"""What is expected of the first steps on a new sketch: by how much they multiply the gap."""

PATIENCE = 8
"""Trials in vain after which a model is stuck; the curvature of all rows is tried before."""


@dataclass
class Policy:
    """When a model buys a sketch, and how large; decided by work alone.

    Attributes
    ----------
    costs : Costs
        Of passes and sketches.
    tol : float
        The relative gap that is wanted.
    first : int
        The rows of the first sketch.
    newton : bool
        Whether each step has the curvature at its start.
    age : int
        Steps since the last sketch.
    size : int
        The rows of the last sketch, or of the next where there is none; zero while a diagonal has to do.
    """

    costs: Costs
    tol: float
    first: int
    newton: bool
    age: int = 0

    def __post_init__(self) -> None:
        dear = self.costs.sketch(self.first) > DEAR * self.costs.data_pass
        self.size = 0 if dear and not self.newton else self.first

    def wants_another(self, gaps: Sequence[float], goal: float) -> bool:
        """Whether the passes that a fresh, larger sketch should save cost more than it does."""
        if self.newton:
            return self.age > 0
        window = min(self.age, len(gaps) - 1, WINDOW)
        if window == 0 or (window == 1 and gaps[-1] < 0.1 * gaps[-2]) or (self.size == 0 and window < WINDOW):
            return False
        left = math.log(max(gaps[-1] / goal, 1.0)) if goal > 0.0 else math.inf
        rate = max(-math.log(max(gaps[-1], 1e-300) / gaps[-1 - window]) / window, 0.01)
        saved = left / rate - left / -math.log(FRESH_RATE)
        return saved > self.costs.sketch(self.larger) / self.costs.data_pass

    @property
    def larger(self) -> int:
        """The rows of the sketch after this one: the noise that is left in a sketch is what slows the steps down."""
        return min(2 * self.size, self.costs.n) if self.size else self.first


@dataclass
class Model:
    """Where a model is, where it tries to be, and the curvature it uses.

    Parameters
    ----------
    objective : Objective
        What is to be minimised.
    policy : Policy
        When to buy curvature.
    hessians : sequence of Hessian
        Where the curvature of each column comes from.
    trial : array
        Where it starts: the first point at which values are asked for.
    """

    objective: Objective
    policy: Policy
    hessians: Sequence[Hessian]
    trial: np.ndarray
    curvature: Curvature | None = None
    steps: list[np.ndarray] = field(default_factory=list)
    differences: list[np.ndarray] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    failures: int = 0
    stuck: bool = False

    def __post_init__(self) -> None:
        self.value, self.slope, self.step_length = math.inf, 0.0, 1.0
        self.x = self.direction = self.gradient = np.zeros_like(self.trial)
        self.margins = np.empty((0, self.objective.columns))

    @property
    def gap(self) -> float:
        """n(P − D) where the model is."""
        return self.gaps[-1]

    def receive(self, losses: float, loss_gradient: np.ndarray, margins: np.ndarray) -> None:
        """Take the values at the trial point; go there if it is low enough, else look for a better point on the way."""
        ridge = self.objective.ridge
        value = losses + 0.5 * float(ridge @ np.square(self.trial))
        gradient = loss_gradient + ridge * self.trial
        if self.value == math.inf or self._accepts(value, gradient):
            self._move(value, gradient, margins)
        else:
            self._shorten(margins)

    def _accepts(self, value: float, gradient: np.ndarray) -> bool:
        """Armijo's rule; where values are all rounding, the slope decides instead (the approximate Wolfe rule)."""
        if not (math.isfinite(value) and math.isfinite(float(gradient @ gradient))):
            return False
        if value <= self.value + SUFFICIENT * self.step_length * self.slope:
            return True
        level = value <= self.value + 1e-12 * abs(self.value)
        return level and float(gradient @ self.direction) <= (2.0 * SUFFICIENT - 1.0) * self.slope

    def _move(self, value: float, gradient: np.ndarray, margins: np.ndarray) -> None:
        step, difference = self.trial - self.x, gradient - self.gradient
        if self.value < math.inf:
            if step @ difference > 1e-12 * math.sqrt(float(step @ step) * float(difference @ difference)):
                self.steps.append(step)
                self.differences.append(difference)
                del self.steps[:-MEMORY], self.differences[:-MEMORY]
            self.policy.age += 1
        self.x, self.value, self.gradient, self.margins = self.trial, value, gradient, margins
        self.gaps.append(self.objective.gap(gradient))
        self.failures = 0

    def _shorten(self, margins: np.ndarray) -> None:
        """Find the lowest point on the way to the trial: its margins lie between, so no pass is needed."""
        self.failures += 1
        t = line_minimum(self.objective, self.x, self.trial, self.margins, margins)
        if self.failures >= PATIENCE or t == 0.0:
            self._give_up()
        else:
            self.step_length *= t
            self.trial = self.x + t * (self.trial - self.x)

    def _give_up(self) -> None:
        """Try all rows once before saying that there is no way down."""
        self.stuck = self.policy.size >= self.policy.costs.n and self.policy.age == 0
        self.policy.size, self.failures, self.curvature = self.policy.costs.n, 0, None

    def propose(self, rng: np.random.Generator) -> float:
        """Set the next trial point; return how many epochs of work that took."""
        if self.failures:
            return 0.0  # a shorter step waits to be tried
        work, made = 0.0, sum(hessian.passes_made for hessian in self.hessians)
        if self.curvature is None or self.policy.wants_another(self.gaps, self.policy.tol * abs(self.value)):
            if self.curvature is not None:
                self.policy.size = self.policy.larger
            work = self.policy.size / self.policy.costs.n
            self._sketch(rng)
        self.direction = -self._solve(self.gradient)
        self.slope, self.step_length = float(self.gradient @ self.direction), 1.0
        self.trial = self.x + self.direction
        return work + (sum(hessian.passes_made for hessian in self.hessians) - made) / len(self.hessians)

    def _sketch(self, rng: np.random.Generator) -> None:
        weights = self.objective.curvature(self.margins)
        each = [
            hessian.at(np.ascontiguousarray(column), self.policy.size, rng)
            for hessian, column in zip(self.hessians, weights.T, strict=True)
        ]
        self.curvature = each[0] if len(each) == 1 else Together(each)
        self.policy.age = 0
        self.steps.clear()
        self.differences.clear()

    def _solve(self, g: np.ndarray) -> np.ndarray:
        """B⁻¹g, where B is the curvature corrected by the pairs: the two loops of L-BFGS."""
        assert self.curvature is not None
        q, factors = g, []
        pairs = list(zip(self.steps, self.differences, strict=True))
        for step, difference in reversed(pairs):
            factors.append(float(step @ q) / float(step @ difference))
            q = q - factors[-1] * difference
        q = self.curvature.solve(q)
        if pairs and isinstance(self.curvature, Diagonal):
            step, difference = pairs[-1]
            q = q * (float(step @ difference) / float(difference @ self.curvature.solve(difference)))
        for (step, difference), factor in zip(pairs, reversed(factors), strict=True):
            q = q + (factor - float(difference @ q) / float(step @ difference)) * step
        return q
