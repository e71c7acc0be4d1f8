"""One model on its way down: Newton's method with the curvature of rows, corrected by gradients as L-BFGS does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualnewton.solvers.primal.curvature import Curvature
from dualnewton.solvers.primal.decisions import Policy
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.primal.sketching import Hessian

WELL_BELOW = 0.5
"""Gap that the exact step of a quadratic problem may leave, as a fraction of the gap wanted."""

FULL = 0.05
"""A step that is so near to the best along its way is taken as it is."""

SUFFICIENT = 1e-4
"""Armijo's constant: the fraction of the decrease predicted by the gradient that a step must reach."""

PATIENCE = 8
"""Trials in vain after which a model is stuck; as much curvature as can be had is tried before."""


@dataclass
class Model:
    """Where a model is, where it tries to be, and the curvature it uses.

    Parameters
    ----------
    objective : Objective
        What is to be minimised.
    policy : Policy
        When to compute new curvature, and from how many rows.
    hessians : sequence of Hessian
        Where the curvature of each column comes from.
    trial : array
        Where it starts: the first point at which values are asked for.

    Attributes
    ----------
    shares : bool
        Whether its curvature is that of several models, which only stands for its own.
    leapt : bool
        Whether it has gone to a minimum unseen.
    """

    objective: Objective
    policy: Policy
    hessians: Sequence[Hessian]
    trial: np.ndarray
    curvature: Curvature | None = None
    shares: bool = False
    failures: int = 0
    stuck: bool = False
    leapt: bool = False

    def __post_init__(self) -> None:
        self.value, self.gap, self.slope, self.step_length = math.inf, math.inf, 0.0, 1.0
        self.x = self.direction = self.gradient = np.zeros_like(self.trial)
        self.margins = np.empty((0, self.objective.columns))
        self.corrections = Corrections(self.trial.size, self.policy.memory)
        self.pair: tuple[np.ndarray, np.ndarray] | None = None
        self.image = self.direction

    def receive(self, losses: float, loss_gradient: np.ndarray, margins: np.ndarray) -> None:
        """Take the values at the trial point; go there if it is low enough, else look for a better point on the way."""
        ridge = self.objective.ridge
        value = losses + 0.5 * float(ridge @ np.square(self.trial))
        gradient = loss_gradient + ridge * self.trial
        if self.value < math.inf and self.objective.quadratic:
            value, gradient, margins = self._lowest(value, gradient, margins)
        if self.value == math.inf or self._accepts(value, gradient):
            self._move(value, gradient, margins)
        else:
            self._shorten(margins)

    def _lowest(self, value: float, gradient: np.ndarray, margins: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Set the trial to the lowest point on the line through it, of a parabola that is known from its two ends.

        With exact steps the corrections make each direction conjugate to those before it: the method of conjugate gradients.
        """
        change = gradient - self.gradient
        curvature = float(self.direction @ change) * self.step_length
        t = -self.slope / curvature if curvature > 0.0 else 1.0
        if abs(t - 1.0) <= FULL or not math.isfinite(t):
            return value, gradient, margins
        self.trial = self.x + t * (self.trial - self.x)
        lower = self.value + 0.5 * t * self.step_length * self.slope
        return lower, self.gradient + t * change, self.margins + t * (margins - self.margins)

    def _accepts(self, value: float, gradient: np.ndarray) -> bool:
        """Armijo's rule; where values are all rounding, the slope decides instead (the approximate Wolfe rule)."""
        if not (math.isfinite(value) and math.isfinite(float(gradient @ gradient))):
            return False
        if value <= self.value + SUFFICIENT * self.step_length * self.slope:
            return True
        level = value <= self.value + 1e-12 * abs(self.value)
        return level and float(gradient @ self.direction) <= (2.0 * SUFFICIENT - 1.0) * self.slope

    def _move(self, value: float, gradient: np.ndarray, margins: np.ndarray) -> None:
        if self.curvature is not None and self.value < math.inf:
            self.pair = self.trial - self.x, gradient - self.gradient
        self.x, self.value, self.gradient, self.margins = self.trial, value, gradient, margins
        self.gap = self.objective.gap(gradient)
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
        """Try as many rows as can be once before saying that there is no way down."""
        self.stuck = self.policy.size >= self.policy.most and self.policy.age == 0  # at this very point
        self.policy.size, self.failures, self.curvature = self.policy.most, 0, None

    def wants_curvature(self) -> bool:
        """Choose a direction on the curvature that there is; say whether another is wanted, of ``policy.size`` rows."""
        if self.failures:
            return False  # a shorter step waits to be tried
        if self.curvature is None:
            return True
        if not self.policy.newton:
            self._aim()
            self.policy.watch(-self.slope, self.value, self.step_length)
        wanted = self.policy.wants_another(self.gap, self.value, self.step_length)
        self.policy.size = self.policy.next_size if wanted else self.policy.size
        return wanted

    def use(self, curvature: Curvature, active: int, *, shares: bool) -> None:
        """Take the direction of a new curvature, which so many rows had any part in."""
        self.curvature, self.pair, self.policy.active, self.shares = curvature, None, active, shares
        if self.policy.coupled:
            self.corrections.rebase(curvature)
        else:
            self.corrections.clear()
        self._aim()
        self.policy.begin(-self.slope)

    def step(self) -> None:
        """Set the next trial point."""
        if not self.failures:
            self.trial, self.step_length = self.x + self.direction, 1.0

    @property
    def negligible(self) -> float:
        """The part of n(P − D) that a step on a parabola may leave: well below what is wanted."""
        return WELL_BELOW * self.policy.tol * abs(self.value) if self.objective.quadratic else 0.0

    @property
    def is_sure(self) -> bool:
        """Whether the trial point minimises a quadratic objective exactly, so that it can be certified unevaluated; once per run,
        because of rounding.
        """
        known = self.curvature is not None and self.curvature.exact and not self.shares
        return self.objective.quadratic and known and not self.leapt and self.failures == 0

    def leap(self) -> None:
        """Move to the trial point without evaluating it. If its certificate misses ``tol``, it is evaluated like a start."""
        self.x, self.gap, self.value, self.leapt, self.pair = self.trial, 0.0, math.inf, True, None

    def _aim(self) -> None:
        assert self.curvature is not None
        image = self.curvature.solve(self.gradient)
        if self.pair is not None:
            self.corrections.add(*self.pair, image - self.image)
        self.image, self.pair = image, None
        self.direction = -self.corrections.solve(self.gradient, image, scaled_well=self.curvature.scaled_well)
        self.slope = float(self.gradient @ self.direction)
        if not self.slope < 0.0 and len(self.corrections):  # rounding has spoilt them
            self.corrections.clear()
            self._aim()
