"""When a primal method computes new curvature, from how many rows, and in which form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from dualnewton.matrix.protocol import Data
from dualnewton.planning.costs import Costs
from dualnewton.planning.tuning import DEFAULT, Tuning


@dataclass(frozen=True, eq=False)
class Sketching:
    """What :class:`dualnewton.solvers.primal.decisions.Decisions` asks for, by predicted costs.

    Attributes
    ----------
    costs : Costs
        Of passes and sketches.
    """

    costs: Costs

    @classmethod
    def of(cls, data: Data, tuning: Tuning = DEFAULT) -> Sketching:
        """Decide for some data."""
        return cls(Costs.of(data.profile, tuning))

    def policy(self, tol: float, first: int, *, newton: bool, coupled: bool, quadratic: bool) -> SketchPolicy:
        """Return the policy of one model."""
        return SketchPolicy(self.costs, tol, first, newton, coupled=coupled, quadratic=quadratic)

    def is_matrix_free(self, features: int) -> bool:
        """Whether Newton's method forms no matrix of the size of the rows or of the features."""
        return min(self.costs.n, features) > self.costs.tuning.largest_matrix

    def keeps_rows(self, rows: int, features: int) -> bool:
        """Whether the curvature of so few rows is kept as rows, instead of as a square matrix of the features."""
        return rows < features and features > self.costs.tuning.always_square

    def considers_single(self, rows: int) -> bool:
        """Whether a Gram matrix of so many rows is large enough for single precision to be worth a check of its error."""
        return rows * self.costs.d**2 >= self.costs.tuning.single_products

    @property
    def first_preconditioner(self) -> int:
        """The rows of the first preconditioner of conjugate gradients."""
        return self.costs.first_sketch

    def preconditioner(self, rows: int, products: float) -> int:
        """Return the rows of the next preconditioner, after so many products with one of ``rows`` rows.

        It is doubled as long as the products that this should save cost more than the larger sketch.
        """
        costs, kept = self.costs, 2.0**-self.costs.tuning.rows_exponent
        most = min(costs.n, costs.tuning.largest_matrix, costs.affordable_sketch(costs.tuning.dearest_sketch))
        while 2 * rows <= most and costs.sketch(2 * rows) < (1.0 - kept) * products * costs.data_pass:
            rows, products = 2 * rows, products * kept
        return rows


@dataclass
class SketchPolicy:
    """When a model computes a sketch, and of how many rows; decided by work alone.

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
        Whether the model has columns (classes) whose coupling is in no sketch, only in the gradients.
    quadratic : bool
        Whether the curvature is the same everywhere, so that no sketch is computed twice.
    decrements : list of float
        gᵀB⁻¹g before each step since the last sketch (the squared Newton decrement).
    size : int
        The rows of the last sketch, or of the next where there is none; zero while a diagonal is used.
    active : int
        The rows that had any curvature when the last sketch was made.
    noisy, restless : bool
        Whether the last sketch had too few rows, and whether curvature changes at every step.
    chosen : int
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
        costs, self.size = self.costs, self.first
        if not self.newton and costs.is_dear(self.first):
            light = costs.tuning.light_sketch
            self.size = min(self.first, costs.affordable_sketch(light)) if self.first < costs.d else 0
        self.active, self.noisy, self.restless = costs.n, False, False
        self.decrements: list[float] = []
        self.chosen, self.refreshed = 0, 1.0 if self.quadratic else costs.tuning.refreshed_speed
        self.before: tuple[int, float] | None = None

    @cached_property
    def most(self) -> int:
        """The rows of the largest sketch that may ever be computed."""
        if self.first >= self.costs.n:
            return self.first
        return max(self.first, self.costs.affordable_sketch(self.costs.tuning.dearest_sketch))

    @property
    def memory(self) -> int:
        """The correction pairs that are kept: as many as cost half a pass."""
        tuning = self.costs.tuning
        affordable = int(0.5 * self.costs.data_pass / (6.0 * self.costs.d * tuning.rates.corrected_entry))
        return min(max(affordable, tuning.least_memory), tuning.most_memory)

    def begin(self, decrement: float) -> None:
        """Start to watch a new sketch; gᵀB⁻¹g of the first step on it is given."""
        self.decrements, self.noisy, self.chosen = [decrement], False, 0

    def watch(self, decrement: float, value: float, step_length: float) -> None:
        """Take gᵀB⁻¹g of the next step, twice the possible decrease if B is right; it is steadier than the gap.

        The first step on a sketch tells whether its noise slows the steps down; a later one that was shortened to
        next to nothing, that curvature does not last (squared hinge).
        """
        self.decrements.append(decrement)
        self.restless |= self.age > 1 and step_length < 0.1
        if self.age == 1:
            near = self.decrements[0] < abs(value)
            slow = decrement > (math.exp(-self.costs.tuning.fastest_step) if near else 0.5) * self.decrements[0]
            self.noisy = slow or step_length < 1e-3

    @property
    def age(self) -> int:
        """The number of steps on this sketch."""
        return len(self.decrements) - 1

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        """Whether the passes that another sketch should save cost more than it does."""
        if self.newton:
            return True
        if self.coupled and self.size:
            return False  # another sketch knows the coupling no better, and the corrections of this one would be lost on it
        if 0 < min(self.size, self.active) < self.costs.d:
            return self._wants_other_rows(gap, value)
        tuning, rows = self.costs.tuning, min(self.next_size, self.active)
        price = self.costs.sketch(rows) / self.costs.data_pass
        # A step that had to be shortened was taken on curvature from somewhere else.
        changed = self.restless or step_length < 1.0
        if price < tuning.cheap_sketch or (changed and price < tuning.dear_sketch):
            return True
        patience = min(max(2, int(price / tuning.dear_sketch)), tuning.longest_wait)
        if self.age < (patience if self.size else tuning.speed_window):
            return False
        left = self._left(gap, value)
        # The speed of steps on a diagonal varies: all of them count, and the later half once more.
        windows = [min(self.age, tuning.speed_window)] if self.size else [self.age, self.age - self.age // 2]
        speed = max(sum(map(self._speed, windows)) / len(windows), 0.01)
        return left / speed - left / self._expected_speed(rows) > price

    def _left(self, gap: float, value: float) -> float:
        """Return the logarithm of the factor by which the gap is still to fall."""
        return math.log(max(gap / (self.tol * abs(value) or 1e-300), 1.0))

    def _wants_other_rows(self, gap: float, value: float) -> bool:
        """Whether a sketch of fewer rows than features should be replaced; the size of the next is then ``chosen``.

        How fast the steps are depends on the spread of the curvature that the rows leave out, which only the steps themselves
        tell. That the first ones are shortened does not count: the curvature is too small until the gradients have corrected it.
        """
        costs, tuning = self.costs, self.costs.tuning
        if self.age < tuning.longest_wait:
            return False
        speed = max(self._speed(self.age - self.age // 2), 0.01)
        if self.before and not self.quadratic:  # what the last sketch was worth, beyond its size
            rows, slower = self.before
            gained = speed / slower / (self.size / rows) ** tuning.rows_exponent
            self.refreshed = min(max(gained, 1.0), tuning.refreshed_speed)
        left = self._left(gap, value) / speed

        def cost(rows: int) -> float:
            faster = (rows / self.size) ** tuning.rows_exponent * self.refreshed
            return costs.sketch(rows) + left / faster * (costs.data_pass + costs.applied(rows))

        sizes = [min(self.size << doublings, self.most) for doublings in range(6)]
        best = min(sizes[1:] if self.quadratic else sizes, key=cost)
        stay = left * (costs.data_pass + costs.applied(self.size))
        if (best == self.size and self.quadratic) or tuning.resketch_margin * cost(best) >= stay:
            return False
        self.chosen, self.before = best, (self.size, speed)
        return True

    def _speed(self, window: int) -> float:
        """Return the logarithm of the factor by which each of the last steps has divided gᵀB⁻¹g."""
        before, now = (max(decrement, 1e-300) for decrement in (self.decrements[-1 - window], self.decrements[-1]))
        return math.log(before / now) / window

    def _expected_speed(self, rows: int) -> float:
        """Return the logarithm of the factor by which a step on a fresh sketch should divide the gap."""
        tuning = self.costs.tuning
        if self.coupled:
            return tuning.slowest_step
        if rows >= self.active:
            return tuning.fastest_step
        expected = 1.5 * math.log(math.sqrt(rows / self.costs.d))
        return min(max(expected, tuning.slowest_step), tuning.fastest_step)

    @property
    def next_size(self) -> int:
        """The rows of the sketch after this one."""
        if self.chosen:
            return self.chosen
        if self.size == 0:
            return self.first
        enough = self.costs.tuning.sketch_rows * self.costs.d
        return min(max(2 * self.size, enough), self.most) if self.noisy else self.size
