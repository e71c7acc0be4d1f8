"""Predicted seconds of passes, sketches and epochs, from sizes alone: bytes, multiplications and calls times rates.

No clock is read, so that equal seeds give equal runs. The rates (:class:`Rates`) are those of one ordinary processor core.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

from dualnewton.matrix.memory import parts_of
from dualnewton.matrix.protocol import Data, Profile, Work
from dualnewton.planning.rates import Rates
from dualnewton.planning.tuning import DEFAULT, Tuning

DOUBLE, SINGLE, INDEX = 8, 4, 4
"""Bytes of a number in float64 and in float32, and of the column index of a stored entry."""


@dataclass(frozen=True, eq=False)
class Costs(Profile):
    """Predicted seconds of operations for one model on data of this size and sparsity."""

    tuning: Tuning = DEFAULT  # machine rates and thresholds
    # Rates for a few rows gathered in memory: those of the processor, even if a GPU reads the data.
    gathered: Rates = DEFAULT.rates
    columns: int = 1  # columns of margins of the model, such as the classes of softmax
    single: bool = False  # whether the products of d×d matrices are expected to be in float32, where that is considered

    @classmethod
    def of(cls, profile: Profile, tuning: Tuning = DEFAULT) -> Costs:
        """Return the costs for data with this size and sparsity."""
        there = tuning.on_gpu(profile.itemsize if profile.streamed else 0) if profile.on_gpu else tuning
        return cls(**vars(profile), tuning=there, gathered=tuning.rates)

    def with_columns(self, columns: int) -> Costs:
        """Return the costs for a model with this number of columns of margins."""
        return self if columns == self.columns else replace(self, columns=columns)

    @cached_property
    def by_entry(self) -> bool:
        """Whether a pass uses the stored entries; nearly full sparse rows that fit in the cache are made dense instead."""
        full, size = self.tuning.expanded_share * self.n * self.d, self.n * self.d * self.itemsize
        return self.sparse and (self.stored < full or size > self.tuning.rates.cache_bytes)

    @cached_property
    def data_pass(self) -> float:
        """Seconds of a pass: margins, losses and gradients at one point; sparse rows are read once for each column."""
        rates, columns = self.tuning.rates, self.columns
        if self.by_entry:
            products = columns * self.stored * rates.sparse_entry
        else:
            entries = self.n * self.d
            widened = entries * rates.widened_entry if self.itemsize < DOUBLE else 0.0
            products = max(self._read(entries * self.itemsize, rates), widened)
            if columns > 1:
                products = max(products, 2.0 * columns * entries / rates.multiply)
        return rates.call + products + columns * self.n * rates.margin

    @cached_property
    def reading(self) -> float:
        """Seconds to read all rows from their files; zero if they are in memory."""
        size = self.stored * (self.itemsize + INDEX * self.sparse)
        return size / self.tuning.rates.file_bandwidth if self.on_disk else 0.0

    def _read(self, size: float, rates: Rates) -> float:
        """Seconds to read ``size`` bytes, from the cache if they fit into it."""
        return size / (rates.cache_bandwidth if size <= rates.cache_bytes else rates.memory_bandwidth)

    @cached_property
    def drawing(self) -> float:
        """Seconds to draw the rows of a sketch, which depends on n and not on the number of rows drawn."""
        return self.tuning.rates.call + self.n * self.tuning.rates.drawn_row

    def sketch(self, rows: float) -> float:
        """Seconds to compute and factorise a Hessian from ``rows`` rows.

        That of each column is counted as a multiple of one matrix, as at the start of a run.
        """
        if rows >= self.d:
            return self.added(rows)
        return self.drawing + self.gram(rows)

    def is_dear(self, rows: float) -> bool:
        """Whether a sketch of ``rows`` rows is so expensive that it is computed only after steps without it have been slow."""
        return self.sketch(rows) > self.tuning.dear_sketch * self.data_pass

    def begun_sketch(self, rows: int) -> int:
        """Return the rows of the first curvature of a run that is planned with sketches of ``rows`` rows; zero for a diagonal.

        A GPU has the diagonal of all its rows in half a pass, while fewer rows than features are gathered and factorised in
        memory, which takes several passes of a GPU: there they are taken once steps with the diagonal have turned out to be slow.
        """
        if self.on_gpu and rows < self.d <= self.n:
            return 0
        if not self.is_dear(rows):
            return rows
        return min(rows, self.affordable_sketch(self.tuning.light_sketch)) if rows < self.d else 0

    def factor(self, size: float) -> float:
        """Seconds for the Cholesky factor of a matrix with ``size`` rows."""
        return size**3 / 6.0 / self.tuning.rates.factorise

    def gram(self, rows: float) -> float:
        """Seconds for the Gram matrix of ``rows`` rows, gathered in memory, and its factor."""
        rates = self.gathered
        # SciPy computes the products of sparse rows above the diagonal, too.
        per_pair = self.stored / self.n * (2.0 * rates.sparse_pair if self.by_entry else 1.0 / rates.multiply)
        return 0.5 * rows**2 * per_pair + rows**3 / 6.0 / rates.factorise

    def added(self, rows: float) -> float:
        """Seconds to add the outer products of ``rows`` rows to a d×d matrix and to factorise it."""
        return self.drawing + self.outer(rows, rows / self.n * self.pairs)[0] + self.columns * self.factor(self.d)

    def applied(self, rows: float) -> float:
        """Seconds of a solve with a sketch of ``rows`` rows: its factor is read twice, its rows too if they are fewer than d."""
        if rows >= self.d:
            return self.columns * self._read(DOUBLE * self.d**2, self.tuning.rates)
        rates = self.gathered
        entry = rates.sparse_entry if self.by_entry else DOUBLE / rates.memory_bandwidth
        return self.columns * (self._read(DOUBLE * rows**2, rates) + 2.0 * rows * self.stored / self.n * entry)

    def by_pairs(self, rows: float, pairs: float) -> bool:
        """Whether Σ a aᵀ over sparse rows with ``pairs`` pairs of entries is summed pair by pair."""
        return self.outer(rows, pairs)[1]

    def outer(self, rows: float, pairs: float) -> tuple[float, bool]:
        """Return the seconds of Σ a aᵀ over rows with ``pairs`` pairs of entries, and whether pair by pair is cheapest."""
        rates = self.tuning.rates
        multiplied = 0.5 * self.d / rates.multiply
        expanded = rows * self.d * (rates.expanded_entry + multiplied)
        one_by_one = pairs * rates.sparse_pair if self.by_entry else math.inf
        if one_by_one < expanded:
            return one_by_one, True
        if self.single and self._is_large(rows):
            expanded = rows * self.d * (rates.expanded_entry + multiplied / rates.single_speed)
        return expanded, False

    def _is_large(self, rows: float) -> bool:
        return rows * self.d**2 >= self.tuning.single_products

    def considers_single(self, rows: float) -> bool:
        """Whether a Gram matrix of this many rows is large enough to consider single precision, if that is faster.

        A sum over pairs of stored entries is in double precision in any case.
        """
        faster = self._is_large(rows) and self.tuning.rates.single_speed > 1.0
        return faster and not self.by_pairs(rows, rows / self.n * self.pairs)

    @cached_property
    def epoch(self) -> float:
        """Seconds of an epoch: a dual method visits each example once."""
        rates, visits = self.tuning.rates, self.n * self.tuning.rates.visited_row
        if self.sparse:
            size = self.stored * (self.itemsize + INDEX)
            read = size / rates.random_bandwidth if size > rates.cache_bytes else 0.0
            return visits + self.stored * rates.visited_entry + read
        size = self.stored * self.itemsize
        return visits + size / (rates.random_cache_bandwidth if size <= rates.cache_bytes else rates.random_bandwidth)

    @cached_property
    def first_sketch(self) -> int:
        """The number of rows for which a sketch, without the drawing, costs about a pass."""
        return self.affordable_sketch(1.0)

    def affordable_sketch(self, passes: float) -> int:
        """Return, by bisection, the number of rows for which a sketch, without the drawing, costs about ``passes`` passes."""
        low, high, seconds = 1, self.n, self.drawing + passes * self.data_pass
        if self.sketch(high) <= seconds:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.sketch(middle) <= seconds else (low, middle - 1)
        return low

    # Softmax -----------------------------------------------------------------------------------------------------------

    def class_step(self, classes: int) -> float:
        """Seconds of a Newton step for softmax: a pass, a Gram matrix for each pair of classes, the factor of the Hessian.

        The rows of each pair are selected by their weights, as those of a sketch: with few features this takes longer than the
        matrix.
        """
        rates, share = self.tuning.rates, self.tuning.paired_rows
        pairs = classes * (classes - 1) // 2
        selected = rates.call / self.tuning.selections_per_call + self.n * rates.drawn_row
        sums = pairs * (selected + self.outer(share * self.n, share * self.pairs)[0])
        return self.with_columns(classes).data_pass + sums + self.factor(classes * (self.d + 1))

    def of_classes(self, columns: int) -> Costs:
        """Return the costs if each class has its own features, as for softmax with working sets."""
        if columns == 1:
            return self
        return replace(self, columns=1, d=columns * self.d, stored=columns * self.stored, pairs=columns**2 * self.pairs)


def on_threads(tuning: Tuning, profile: Profile, threads: int, models: int = 1) -> Tuning:
    """Return the tuning by which "auto" compares methods on data of this size with this number of threads.

    A method that the user chose is planned without it, so that it has the same bits for any number of threads. The rounds of
    several ``models`` are independent of each other where they visit single examples, as those of sparse rows do.
    """
    entries = tuning.sparse_thread_entries if profile.sparse else tuning.thread_entries
    busy = 1 if profile.on_gpu else min(threads, parts_of(profile), profile.stored // entries)
    apart = models if profile.sparse else 1
    return tuning if busy <= 1 else replace(tuning, rates=tuning.rates.on(busy, apart))


def is_small(tuning: Tuning, n: int, d: int, columns: int = 1) -> bool:
    """Whether NumPy does all the work, so that nothing is compiled."""
    return n * d * columns <= tuning.small_entries


def most_nonzero(n: int, d: int, tuning: Tuning = DEFAULT) -> float:
    """Return the number of nonzero entries up to which a fit stores dense rows (dummy variables, counts) as a CSR array.

    With few features matrices cost little, and the search for the nonzero entries would take longer than small fits.
    """
    return 0.0 if d < tuning.entry_features or is_small(tuning, n, d) else tuning.thin_share * n * d


def prepared(data: Data, *, compiled: bool, models: int = 1, tuning: Tuning = DEFAULT) -> Data:
    """Return data prepared for the passes of a run: sparse rows are made dense if that is cheaper.

    Passes over several ``models`` together are compiled from fewer rows on.
    """
    costs = Costs.of(data.profile, tuning)
    dense, whole = costs.sparse and not costs.by_entry, models * data.profile.stored if models > 1 else 0
    return data.using(Work(compiled, dense, None if dense else costs.by_pairs, whole))
