"""Selections of rows by their weights, for row arrays that are NumPy arrays; other kinds of data override these operations.

A selection is a set of rows in increasing order. For rows in memory it is an array of their indices; other kinds of data have
their own type. Its ``size`` is the number of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.row_arrays import RowArray, compiled_function, on_host
from dualnewton.validation import frozen

if TYPE_CHECKING:
    from dualnewton.matrix.protocol import Data

MANY_CHANCES = 1 << 16
"""Number of rows from which they are drawn by a kernel, in one pass instead of several."""

PIECE = 1 << 15
"""Entries of a vector over the rows that are compared at a time (256 KiB)."""

STRIDE, SPARE = 64, 16
"""Distance between the values that bound the largest ones from below, and number of those that lie above the bound in excess."""

Selection = Any
"""Rows in increasing order."""


def count_active(weights: RowArray) -> int:
    """Return the number of nonzero weights; NumPy counts booleans ten times faster than other numbers."""
    if (function := compiled_function("active_of", None, weights)) is not None:
        return int(function(weights.reshape(-1))[0])
    if type(weights) is not np.ndarray or weights.size < 2 * PIECE:
        return int(np.count_nonzero(weights != 0.0))
    flat = weights.ravel("K")  # a view of contiguous rows or columns
    return sum(int(np.count_nonzero(flat[part] != 0.0)) for part in pieces_of(flat.size))


def pieces_of(size: int) -> list[slice]:
    """Return the pieces of a long vector whose temporaries stay in a cache.

    One thread takes them one after the other: several would take longer to wake than 500000 numbers take to be compared.
    """
    return [slice(low, min(low + PIECE, size)) for low in range(0, size, PIECE)]


class Selections:
    """Operations on row arrays that need the indices of rows."""

    @property
    def n(self) -> int:
        """The number of rows."""
        raise NotImplementedError

    def adopted(self, name: str, values: Any) -> Any:  # noqa: ARG002
        """Return an argument with an entry per row, as a row array if it is a collection of the same kind as X."""
        return values

    def placed(self, values: RowArray) -> RowArray:
        """Return a row array of any kind as one of this kind of data."""
        return on_host(values)

    def ones(self) -> RowArray:
        """Return a row array of ones."""
        return np.ones(self.n)

    def entries(self, values: RowArray, rows: Any) -> np.ndarray:
        """Return the entries of a row array at a slice or at an array of indices, as a NumPy array."""
        return np.asarray(values[rows])

    def changed(self, values: RowArray, others: RowArray) -> Selection:
        """Return the rows at which two row arrays differ."""
        return np.flatnonzero(values != others)

    def take(self, values: RowArray, rows: Selection) -> RowArray:
        """Return the entries of a row array at these rows; the same array if they are all rows."""
        return values if rows.size == self.n else values[rows]

    def only_at(self, values: RowArray, rows: Selection, factor: float) -> RowArray:
        """Return the values times a factor at these rows, and zero at the others."""
        rows, found = np.asarray(rows, like=values), np.zeros_like(values)
        found[rows] = values[rows] * factor
        return found

    def active(self, weights: RowArray) -> Selection:
        """Return the rows with a nonzero weight; row 0 if there are none, since no selection may be empty."""
        if (count := count_active(weights)) == weights.size:
            return np.arange(weights.size)
        return np.flatnonzero(weights != 0.0) if count else np.zeros(1, dtype=np.intp)

    def strata(self, rng: np.random.Generator, size: int) -> Selection:
        """Return ``size`` of the rows, a random one from each of as many strata of consecutive rows."""
        ends = np.arange(size + 1) * self.n // size
        return ends[:-1] + (rng.random(size) * np.diff(ends)).astype(np.intp)

    def draw(
        self, rng: np.random.Generator, weights: RowArray, size: int, scores: RowArray | None = None
    ) -> tuple[Selection, RowArray]:
        """Draw about ``size`` rows with probabilities proportional to weight times score; return weights that keep the mean.

        One point is drawn in each of ``size`` equal strata of the total, so that a row larger than a stratum is always drawn. If
        no more than ``size`` rows have a weight, all of them are taken with their own weights.
        """
        active = self.active(weights)
        if active.size <= size:
            return active, weights if active.size == weights.size else weights[active]
        chances = weights if scores is None else weights * scores
        chances = chances if active.size == weights.size else chances[active]
        stratum = float(chances.sum()) / size
        places = places_of((np.arange(size) + rng.random(size)) * stratum, chances)
        firsts = np.flatnonzero(np.diff(places, prepend=-1))
        times, drawn = np.diff(firsts, append=size), active[places[firsts]]
        return drawn, times * stratum if scores is None else times * stratum / scores[drawn]

    def dominant(self, weights: RowArray, norms: RowArray, size: int, few: int) -> tuple[Selection, np.ndarray | None]:
        """Return the ``size`` rows with the largest weight_i norm_i and, if ``few`` is not zero, ``few`` of the other active
        rows, evenly spaced in the order of these products; both in increasing order. More than ``size`` rows must have a weight.
        """
        if not few:  # rows without a weight have the product 0: they add nothing if they are chosen
            return np.sort(largest(weights, norms, size)), None
        (active,) = np.nonzero(weights)
        order = active[np.argsort(-weights[active] * norms[active], kind="stable")]
        chosen, others = np.sort(order[:size]), order[size:]
        return chosen, np.sort(others[np.linspace(0, others.size - 1, min(few, others.size)).astype(int)])

    def subset(self, rows: Selection) -> Data:
        """Return some rows as separate data, if ``capabilities.subsets``."""
        raise NotImplementedError

    def subsets(self, draws: Sequence[np.ndarray], arrays: Sequence[RowArray]) -> Iterator[tuple[Data, list[RowArray]]]:
        """Yield the rows of each of several draws as separate data, with their entries of row arrays; indices increase.

        Data that are read by passes or by messages override this, to read all draws at once.
        """
        for rows in draws:
            yield self.subset(rows), [self.take(each, rows) for each in arrays]


def largest(weights: np.ndarray, norms: np.ndarray, size: int) -> np.ndarray:
    """Return the places of the ``size`` largest products of two vectors, in no order.

    Every STRIDE-th product gives a bound above which about twice as many lie: only those are compared with each other.
    """
    some, places, products = weights[::STRIDE] * norms[::STRIDE], None, np.empty(0)
    if 0 < (rank := 2 * size // STRIDE + SPARE) < some.size:
        bound = np.partition(some, some.size - rank)[some.size - rank]

        def above(part: slice) -> tuple[np.ndarray, np.ndarray]:
            own = weights[part] * norms[part]
            found = np.flatnonzero(own >= bound)
            return found + part.start, own[found]

        each = map(above, pieces_of(weights.size))
        places, products = (np.concatenate(found) for found in zip(*each, strict=True))
    if places is None or places.size < size:
        places, products = np.arange(weights.size), weights * norms
    if products.size <= size:
        return places
    return places[np.argpartition(products, products.size - size)[products.size - size :]]


def places_of(points: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Return for each point, in increasing order, the first index at which the cumulative probability reaches it, or the last."""
    if chances.size < MANY_CHANCES:
        return np.minimum(np.searchsorted(np.cumsum(chances), points), chances.size - 1)
    return find_places(points, chances)


def find_places(points: np.ndarray, chances: np.ndarray) -> np.ndarray:
    """Do the same as :func:`places_of` by a kernel."""
    from dualnewton.kernels.row_vectors import places

    found = np.empty(points.size, dtype=np.intp)
    given = frozen(np.ascontiguousarray(chances, dtype=np.float64)), points, found
    places.prepare(*given)
    places(*given)
    return found
