"""Decisions of primal methods: when to compute a new Hessian estimate, from how many rows, and in which form."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from functools import cached_property

from dualnewton.matrix.protocol import Data
from dualnewton.planning.costs import Costs
from dualnewton.planning.facts import sketch_speed
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.solvers.primal.decisions import Decisions, Policy

LARGEST_LOGARITHM = 700.0
"""Upper limit for the logarithm of a factor, whose exponential is finite."""


@dataclass(frozen=True, eq=False)
class Sketching(Decisions):
    """The :class:`dualnewton.solvers.primal.decisions.Decisions` of the primal methods, by predicted costs."""

    costs: Costs  # predicted costs of passes and sketches

    @classmethod
    def of(cls, data: Data, tuning: Tuning = DEFAULT) -> Sketching:
        """Return the decisions for some data."""
        return cls(Costs.of(data.profile, tuning))

    def on(self, data: Data) -> Sketching:
        return Sketching.of(data, self.costs.tuning)

    def policy(self, tol: float, first: int, *, newton: bool, columns: int) -> SketchPolicy:
        """Return the policy of one model."""
        return SketchPolicy(self.costs.with_columns(columns), tol, first, newton=newton)

    def is_matrix_free(self, features: int) -> bool:
        return min(self.costs.n, features) > self.costs.tuning.largest_matrix

    def keeps_rows(self, rows: int, features: int) -> bool:
        return rows < features and features > self.costs.tuning.always_square

    def keeps_products(self, multiplied: float) -> bool:
        """Whether as many products of rows were computed as all rows have: at most half of the work is then wasted."""
        return self.costs.n <= self.costs.tuning.largest_matrix and multiplied >= float(self.costs.n) ** 2

    def considers_single(self, rows: int) -> bool:
        """Whether a Gram matrix of this many rows is large enough to consider single precision, if that is faster.

        A sum over pairs of stored entries is in double precision in any case.
        """
        return self.costs.considers_single(rows)

    def refines(self, rows: int, products: int) -> bool:
        return products * (self.costs.data_pass + self.costs.applied(rows)) < self.costs.sketch(rows)

    def corrects(self, outputs: int) -> bool:
        # Single precision saves half the time of the matrix of all rows.
        return self.refines(self.costs.n, 2 * self.costs.tuning.correcting_products * outputs)

    @property
    def updated_share(self) -> float:
        return self.costs.tuning.updated_share

    @property
    def first_preconditioner(self) -> int:
        return self.costs.first_sketch

    def preconditioner(self, rows: int, products: float) -> int:
        """Return the number of rows of the next preconditioner, after a number of products with one of ``rows`` rows.

        It is doubled as long as the products that this is expected to save cost more than the larger sketch.
        """
        costs, kept = self.costs, 2.0**-self.costs.tuning.rows_exponent
        most = min(costs.n, costs.tuning.largest_matrix, costs.affordable_sketch(costs.tuning.dearest_sketch))
        while 2 * rows <= most and costs.sketch(2 * rows) < (1.0 - kept) * products * costs.data_pass:
            rows, products = 2 * rows, products * kept
        return rows


@dataclass(frozen=True)
class SketchState:
    """The state of a :class:`SketchPolicy`."""

    rows: int  # rows of the last requested sketch; zero for a diagonal
    active: int  # number of rows with nonzero curvature when the last sketch was computed
    decrements: tuple[float, ...] = ()  # gᵀB⁻¹g before each step since the last sketch (the squared Newton decrement)
    noisy: bool = False  # whether the last sketch had too few rows
    unstable: bool = False  # whether the curvature changes at every step
    chosen: int | None = None  # rows of the next sketch, if sizes below the number of features were compared
    settled: bool = False  # whether the model started near the optimum, so that the curvature changes little


class SketchPolicy(Policy):
    """Decides when a model computes a sketch, and of how many rows, by counted work and not by a clock.

    Attributes
    ----------
    state : SketchState
        The state between steps.
    """

    def __init__(
        self,
        costs: Costs,  # predicted costs of passes and sketches, for the columns of the model
        tol: float,  # wanted relative gap
        first: int,  # rows of the first sketch
        *,
        newton: bool,  # whether each step uses the Hessian at its starting point
    ) -> None:
        self.costs, self.tol, self.first = costs, tol, first
        self.newton, self.coupled = newton, costs.columns > 1
        self.state = SketchState(first if newton else costs.begun_sketch(first), costs.n)

    @cached_property
    def most(self) -> int:
        if self.first >= self.costs.n:
            return self.first
        return max(self.first, self.costs.affordable_sketch(self.costs.tuning.dearest_sketch))

    @cached_property
    def memory(self) -> int:
        """The number of L-BFGS correction pairs that are kept: those that cost ``memory_share`` of a pass."""
        tuning = self.costs.tuning
        # For each pair, two vectors are read in the products of a solve, two in its combination, two when a pair is added.
        of_pair = 6.0 * self.costs.d * tuning.rates.corrected_entry
        affordable = int(tuning.memory_share * self.costs.data_pass / of_pair)
        return min(max(affordable, tuning.least_memory), tuning.most_memory)

    @property
    def rows(self) -> int:
        return self.state.rows

    def ask_for(self, rows: int) -> None:
        self.state = replace(self.state, rows=rows)

    def start(self, rows: int) -> None:
        self.state = replace(self.state, rows=rows, settled=True)

    def begin(self, decrement: float, active: int) -> None:
        self.state = replace(self.state, decrements=(decrement,), noisy=False, chosen=None, active=active)

    def watch(self, decrement: float, value: float, step_length: float) -> None:
        """Record gᵀB⁻¹g of the next step, twice the possible decrease if B is exact; it varies less than the gap.

        The first step on a sketch shows whether its noise slows the steps down. A later step that was shortened to almost
        nothing shows that the curvature changes quickly (squared hinge).
        """
        state, tuning = self.state, self.costs.tuning
        age, noisy = self.age + 1, state.noisy
        if age == 1:
            first = state.decrements[0]
            slow = (
                decrement > (math.exp(-tuning.fastest_step) if first < abs(value) else tuning.noisy_decrement) * first
            )
            noisy = slow or step_length < tuning.noisy_step
        unstable = state.unstable or (age > 1 and step_length < tuning.unstable_step)
        self.state = replace(state, decrements=(*state.decrements, decrement), noisy=noisy, unstable=unstable)

    @property
    def age(self) -> int:
        return len(self.state.decrements) - 1

    def wants_another(self, gap: float, value: float, step_length: float) -> bool:
        if self.newton:
            return True
        state = self.state
        if self.coupled and state.rows:
            return self._wants_renewal(gap, value)
        if 0 < state.rows < self.costs.d:
            return self._wants_other_rows(gap, value)
        tuning, rows = self.costs.tuning, min(self.next_rows, state.active)
        price = self.costs.sketch(rows) / self.costs.data_pass
        # A shortened step shows that the curvature has changed since the sketch.
        changed = state.unstable or step_length < 1.0
        if not state.settled and (price < tuning.cheap_sketch or (changed and price < tuning.dear_sketch)):
            return True
        patience = min(max(tuning.shortest_wait, int(price / tuning.dear_sketch)), tuning.longest_wait)
        if self.age < (patience if state.rows else tuning.speed_window):
            return False
        left = self._logarithm_left(gap, value)
        # The speed of steps on a diagonal varies: the mean over all steps and over the later half is used.
        windows = [min(self.age, tuning.speed_window)] if state.rows else [self.age, self.age - self.age // 2]
        speed = max(sum(map(self._speed, windows)) / len(windows), tuning.stalled_step)
        return left / speed - left / self._expected_speed(rows) > price

    def _wants_renewal(self, gap: float, value: float) -> bool:
        """Whether a new matrix for each column is computed at the current point, for columns that the loss couples.

        A sketch does not contain the coupling, so that its gain cannot be predicted. New matrices are computed once the steps
        since the last ones have cost ``renewal_margin`` times as much, if the remaining steps are expected to cost that, too:
        of more rows if they are wanted and cost no more than that, else of as many as before.
        """
        costs, tuning, state = self.costs, self.costs.tuning, self.state
        if self.age < tuning.longest_wait:
            return False
        steps_left = self._logarithm_left(gap, value) / max(self._speed(self.age // 2), tuning.stalled_step)
        worth = min(self.age - tuning.longest_wait, steps_left) * costs.data_pass
        for rows in (self.next_rows, state.rows):
            if tuning.renewal_margin * costs.columns * costs.with_columns(1).sketch(rows) < worth:
                self.state = replace(state, chosen=rows)
                return True
        return False

    def ends(self, gap: float, value: float) -> bool:
        """Whether the next step, if it is as fast as those before, leaves clearly less than the wanted gap.

        Near the optimum, where a model that was solved on a sample starts, steps on one sketch do not get slower, since the
        gradients correct it. Elsewhere their speed varies: the slower of the last two counts.
        """
        steps = 1 if self.state.settled else 2
        if self.age < steps:
            return False
        known = [math.log(max(each, 1e-300)) for each in self.state.decrements[-1 - steps :]]
        speed = min(before - now for before, now in itertools.pairwise(known))
        return gap <= self.costs.tuning.skipped_gap * self.tol * abs(value) * math.exp(min(speed, LARGEST_LOGARITHM))

    def _logarithm_left(self, gap: float, value: float) -> float:
        """Return the logarithm of the factor by which the gap must still decrease."""
        return math.log(max(gap / (self.tol * abs(value) or 1e-300), 1.0))

    def _wants_other_rows(self, gap: float, value: float) -> bool:
        """Whether a sketch of fewer rows than features should be replaced by a larger one; ``chosen`` then has its size.

        The speed of the steps depends on the spread of the curvature that the rows leave out, which only the steps themselves
        reveal. Shortened first steps are ignored: the curvature is too small until the gradients have corrected it.
        """
        costs, tuning, state = self.costs, self.costs.tuning, self.state
        if self.age < tuning.longest_wait:
            return False
        left = self._logarithm_left(gap, value) / max(self._speed(self.age - self.age // 2), tuning.stalled_step)

        def cost(rows: int) -> float:
            steps = left / (rows / state.rows) ** tuning.rows_exponent * (costs.data_pass + costs.applied(rows))
            return steps if rows == state.rows else costs.sketch(rows) + steps

        best = min((min(state.rows << doublings, self.most) for doublings in range(tuning.doublings)), key=cost)
        if best > state.rows:
            self.state = replace(state, chosen=best)
        return best > state.rows

    def _speed(self, window: int) -> float:
        """Return the logarithm of the factor by which each of the last steps has divided gᵀB⁻¹g."""
        known = self.state.decrements
        before, now = (max(decrement, 1e-300) for decrement in (known[-1 - window], known[-1]))
        return (math.log(before) - math.log(now)) / window

    def _expected_speed(self, rows: int) -> float:
        """Return the logarithm of the factor by which a step on a fresh sketch is expected to divide the gap."""
        tuning = self.costs.tuning
        if self.coupled:
            return tuning.slowest_step
        if rows >= self.state.active:
            return tuning.fastest_step
        return min(max(sketch_speed(rows, self.costs.d, tuning), tuning.slowest_step), tuning.fastest_step)

    @property
    def next_rows(self) -> int:
        rows = self.state.rows
        if self.state.chosen is not None:
            return self.state.chosen
        if rows == 0:
            return self.first
        enough = self.costs.tuning.sketch_rows * self.costs.d
        return min(max(2 * rows, enough), self.most) if self.state.noisy else rows
