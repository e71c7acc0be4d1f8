"""One model on its way down: Newton's method with the curvature of rows, corrected by gradients as L-BFGS does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualnewton.planning.costs import Costs
from dualnewton.solvers.primal.curvature import Curvature
from dualnewton.solvers.primal.dominant_rows import GAIN
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.primal.sketching import PLENTY, Hessian

LEAST_MEMORY, MOST_MEMORY, MOVED = 10, 40, 4e-10
"""Pairs of steps and gradient differences that correct the curvature: as many as cost half a pass, at so many seconds for each
number of a vector in a pair."""

WELL_BELOW = 0.5
"""Of the gap that is wanted: what a step may leave."""

FULL = 0.05
"""A step that is so near to the best along its way is taken as it is."""

SUFFICIENT = 1e-4
"""Of the decrease that the gradient promises is asked of a step."""

CHEAP = 0.5
"""A sketch that costs less than this fraction of a pass is made anew at every step."""

DEAR = 4.0
"""Data: a sketch that costs more is dear."""

WINDOW, SLOW_START = 4, 8
"""Steps over which the speed is judged, and the most that go by before it is: the dearer the next sketch, the more, since a
rough one shows its worth only when the gradients have corrected it."""

FASTEST, SLOWEST = 3.0, 0.5
"""Bounds of what is expected of a step on a fresh sketch: the logarithm of what it divides the gap by."""

PATIENCE = 8
"""Trials in vain after which a model is stuck; as much curvature as can be had is tried before."""

LIGHT = 2.0
"""Data that the first sketch may cost where it has fewer rows than features and a larger one is dear."""

REFRESHED, CLEARLY = 1.5, 1.2
"""With fewer rows than features: those with the present weights make the steps so much faster, as long as no other factor is
known; and another sketch must be expected to save so much."""

LAST_RESORT = 100.0
"""Data that the largest sketch may cost."""


def is_dear(costs: Costs, rows: int) -> bool:
    """Whether a sketch of so many rows is not to be bought before it is known to be needed."""
    return costs.sketch(rows) > DEAR * costs.data_pass


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
    coupled : bool
        Whether the model has columns whose coupling no sketch knows, only the gradients.
    quadratic : bool
        Whether the curvature is the same everywhere, so that no sketch is bought twice.
    promises : list of float
        gᵀB⁻¹g before each step since the last sketch.
    size : int
        The rows of the last sketch, or of the next where there is none; zero while a diagonal has to do.
    most : int
        The rows of the largest sketch that may ever be bought.
    active : int
        The rows that had any curvature when the last sketch was made.
    memory : int
        The pairs that are kept.
    noisy, restless : bool
        Whether the last sketch had too few rows, and whether curvature is of use for one step only.
    bought : int
        The rows of the next sketch, where fewer than the features have been chosen; else zero.
    before, refreshed : (int, float) or None, float
        The rows and the speed at the last such choice, and how much faster new weights have made the steps since.
    """

    costs: Costs
    tol: float
    first: int
    newton: bool
    coupled: bool = False
    quadratic: bool = False

    def __post_init__(self) -> None:
        self.size = self.first
        if is_dear(self.costs, self.first) and not self.newton:
            self.size = min(self.first, self.costs.affordable_sketch(LIGHT)) if self.first < self.costs.d else 0
        self.active, self.noisy, self.restless = self.costs.n, False, False
        self.most = max(self.first, self.costs.affordable_sketch(LAST_RESORT))
        affordable = int(0.5 * self.costs.data_pass / (6.0 * self.costs.d * MOVED))
        self.memory = min(max(affordable, LEAST_MEMORY), MOST_MEMORY)
        self.promises: list[float] = []
        self.bought, self.refreshed = 0, 1.0 if self.quadratic else REFRESHED
        self.before: tuple[int, float] | None = None

    def begin(self, promise: float) -> None:
        """Start to watch a new sketch, on which the first step promises so much."""
        self.promises, self.noisy, self.bought = [promise], False, 0

    def watch(self, promise: float, value: float, step_length: float) -> None:
        """Take what the next step promises: gᵀB⁻¹g, twice what is left to gain if B is right, and steadier than the gap.

        By the first step on a sketch tell whether its noise is what slows the steps down; by a later one that was shortened to
        next to nothing, that curvature does not last (squared hinge).
        """
        self.promises.append(promise)
        self.restless |= self.age > 1 and step_length < 0.1
        if self.age == 1:
            near = self.promises[0] < abs(value)
            slow = promise > (math.exp(-FASTEST) if near else 0.5) * self.promises[0]
            self.noisy = slow or step_length < 1e-3

    @property
    def age(self) -> int:
        """The number of steps on this sketch."""
        return len(self.promises) - 1

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        """Whether the passes that another sketch should save cost more than it does."""
        if self.coupled and self.size:
            return False  # another sketch knows the coupling no better, and the corrections of this one would be lost on it
        if 0 < min(self.size, self.active) < self.costs.d and not self.newton:
            return self._wants_other_rows(gap, value)
        rows = min(self.next_size, self.active)
        price = self.costs.sketch(rows) / self.costs.data_pass
        # A step that had to be shortened was taken on curvature from somewhere else.
        changed = self.restless or step_length < 1.0
        if self.newton or price < CHEAP or (changed and price < DEAR):
            return True
        if self.age < (min(max(2, int(price / DEAR)), SLOW_START) if self.size else WINDOW):
            return False
        left = math.log(max(gap / (self.tol * abs(value) or 1e-300), 1.0))
        # Steps on a diagonal come in fits and starts: all of them tell the speed, and the later half once more.
        windows = [min(self.age, WINDOW)] if self.size else [self.age, self.age - self.age // 2]
        speed = max(sum(map(self._speed, windows)) / len(windows), 0.01)
        return left / speed - left / self._expected_speed(rows) > price

    def _wants_other_rows(self, gap: float, value: float) -> bool:
        """Whether a sketch of fewer rows than features should be another; its size is then ``bought``.

        How fast the steps are depends on the spread of what the rows leave out, which only the steps themselves tell. That
        the first ones are shortened does not count: the curvature is too small until the gradients have corrected it.
        """
        if self.age < SLOW_START:
            return False
        speed = max(self._speed(self.age - self.age // 2), 0.01)
        if self.before and not self.quadratic:  # what the last purchase was worth, beyond its size
            rows, slower = self.before
            self.refreshed = min(max(speed / slower / (self.size / rows) ** GAIN, 1.0), REFRESHED)
        left = math.log(max(gap / (self.tol * abs(value) or 1e-300), 1.0)) / speed

        def cost(rows: int) -> float:
            faster = (rows / self.size) ** GAIN * self.refreshed
            return self.costs.sketch(rows) + left / faster * (self.costs.data_pass + self.costs.applied(rows))

        sizes = [min(self.size << doublings, self.most) for doublings in range(6)]
        best = min(sizes[1:] if self.quadratic else sizes, key=cost)
        stay = left * (self.costs.data_pass + self.costs.applied(self.size))
        if (best == self.size and self.quadratic) or CLEARLY * cost(best) >= stay:
            return False
        self.bought, self.before = best, (self.size, speed)
        return True

    def _speed(self, window: int) -> float:
        """Return the logarithm of what each of the last steps has divided the promise by."""
        before, now = (max(promise, 1e-300) for promise in (self.promises[-1 - window], self.promises[-1]))
        return math.log(before / now) / window

    def _expected_speed(self, rows: int) -> float:
        """Return the logarithm of what a step on a fresh sketch should divide the gap by."""
        if self.coupled:
            return SLOWEST
        if rows >= self.active:
            return FASTEST
        return min(max(1.5 * math.log(math.sqrt(rows / self.costs.d)), SLOWEST), FASTEST)

    @property
    def next_size(self) -> int:
        """The rows of the sketch after this one."""
        if self.bought:
            return self.bought
        if self.size == 0:
            return self.first
        return min(max(2 * self.size, PLENTY * self.costs.d), self.most) if self.noisy else self.size


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
        """Whether the trial is the minimum of a parabola, so that only the judge need look at it; once, for there is rounding."""
        known = self.curvature is not None and self.curvature.exact and not self.shares
        return self.objective.quadratic and known and not self.leapt and self.failures == 0

    def leap(self) -> None:
        """Go to the trial unseen. Should the judge not be content, the values there are asked for like those of a start."""
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
