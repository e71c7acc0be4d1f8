"""What the work of each method costs, from sizes alone: bytes over a bandwidth, multiplications over a rate.

The rates are those of one ordinary core. They need not be true of the machine at hand, only their ratios about right; no clock is
asked, so that equal seeds give equal runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dualnewton.matrix.protocol import Data, Profile, Work

CACHE = 1 << 24
"""Bytes of data that stay in the cache from pass to pass."""

MEMORY, NEAR = 1.4e10, 4e10
"""Bytes a second that a product reads, from memory and from the cache."""

MULTIPLY, FACTOR = 2.3e10, 1.2e10
"""Multiplications (with an addition each) a second: of large matrix products, of a Cholesky factor."""

ENTRY, PAIR, SPREAD, MARGIN, CALL = 1.6e-9, 0.6e-9, 1e-9, 9e-9, 1.5e-4
"""Seconds for a sparse entry in a pass, a pair of them in a sketch, an entry gathered into a dense row, a margin's loss, and
what an iteration costs anyway."""

WORTH_THREADS = 2.5e-3
"""Nominal seconds of a pass below which threads would wait for the interpreter's lock longer than they work."""

DRAWING = 2e-8
"""Seconds for an example, to weigh it and to draw it or not."""

FULL = 1.0 / 3.0
"""Of the places that are stored: sparse rows which have so many, and fit in the cache as dense ones, are multiplied as such."""

VISIT, VISITED_ENTRY, DRAWN = 3e-8, 1.8e-9, 6.5e9
"""Of a dual round: seconds for an example and for each of its sparse entries; bytes a second of dense rows in random order."""


@dataclass(frozen=True)
class Costs(Profile):
    """The costs of one model's work on data of this size and sparsity, in seconds of the nominal core."""

    @classmethod
    def of(cls, profile: Profile) -> Costs:
        """Take the size and sparsity of some data."""
        return cls(profile.n, profile.d, profile.stored, profile.pairs, profile.sparse, profile.itemsize)

    @property
    def by_entry(self) -> bool:
        """Whether a pass goes by stored entries; the rows of small data that are nearly full are spread out once instead."""
        return self.sparse and (self.stored < FULL * self.n * self.d or self.n * self.d * self.itemsize > CACHE)

    @property
    def data_pass(self) -> float:
        """Margins, losses and gradient at one point."""
        if self.by_entry:
            return CALL + self.stored * ENTRY + self.n * MARGIN
        size = self.n * self.d * self.itemsize
        return CALL + size / (NEAR if size <= CACHE else MEMORY) + self.n * MARGIN

    @property
    def drawing(self) -> float:
        """What a sketch costs before its first row."""
        return CALL + self.n * DRAWING

    def sketch(self, rows: float) -> float:
        """Curvature from so many rows, and its factor."""
        if rows >= self.d:
            return self.added(rows)
        return self.drawing + self.gram(rows)

    def gram(self, rows: float) -> float:
        """Products of each two of so many rows, and the factor of their matrix."""
        per_pair = self.stored / self.n * (2.0 * PAIR if self.by_entry else 1.0 / MULTIPLY)
        return 0.5 * rows**2 * per_pair + rows**3 / 6.0 / FACTOR

    def added(self, rows: float) -> float:
        """Add the outer products of so many rows to a matrix of the size of the features, and factorise it."""
        return self.drawing + self.outer(rows, rows / self.n * self.pairs)[0] + self.d**3 / 6.0 / FACTOR

    def applied(self, rows: float) -> float:
        """A solve with the factor of such a curvature, which is read twice, and the products with its rows if they are few."""
        size = min(rows, self.d)
        read = 8.0 * size**2
        products = (
            0.0 if rows >= self.d else 2.0 * rows * self.stored / self.n * (ENTRY if self.by_entry else 8.0 / MEMORY)
        )
        return read / (NEAR if read <= CACHE else MEMORY) + products

    def by_pairs(self, rows: float, pairs: float) -> bool:
        """Whether Σ a aᵀ over sparse rows with so many pairs of entries is cheapest pair by pair."""
        return self.outer(rows, pairs)[1]

    def outer(self, rows: float, pairs: float) -> tuple[float, bool]:
        """Return the cost of Σ a aᵀ over rows with so many pairs of entries, and whether pair by pair is the way to do it."""
        spread_out = rows * self.d * (SPREAD + 0.5 * self.d / MULTIPLY)
        one_by_one = pairs * PAIR if self.by_entry else math.inf
        return min(spread_out, one_by_one), one_by_one < spread_out

    @property
    def epoch(self) -> float:
        """A visit of each example by a dual method."""
        if self.sparse:
            return self.n * VISIT + self.stored * VISITED_ENTRY
        size = self.stored * self.itemsize
        return self.n * VISIT + size / (2.0 * DRAWN if size <= CACHE else DRAWN)

    @lru_cache(maxsize=64)  # noqa: B019 (a few numbers each; the plan and the run ask alike)
    def affordable_sketch(self, passes: float = 1.0) -> int:
        """Return the rows whose sketch, once drawn, costs about so many passes; by bisection, since the cost grows with them."""
        low, high, seconds = 1, self.n, self.drawing + passes * self.data_pass
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sketch(middle) <= seconds else (low, middle - 1)
        return low


def prepared(data: Data, n_threads: int, *, compiled: bool) -> Data:
    """Return data set up for the passes of a run: expanded where that is cheaper, with threads where they pay."""
    costs = Costs.of(data.profile)
    threads = n_threads if costs.data_pass > WORTH_THREADS else 1
    dense = costs.sparse and not costs.by_entry
    return data.using(Work(threads, compiled, dense, None if dense else costs.by_pairs))
