"""Passes by compiled kernels: each thread takes parts of the rows, outside the interpreter's lock.

A part is a range of rows, cut by the size of the data alone. Within a part, blocks of rows that fit into the cache are read once
for their margins, the functions of their losses and the sums over rows. Each part has its own sums, which are added in order.

For sparse rows the parts' sums are as long as the rows: parts × d × M numbers for M columns. The number of parts is therefore at
most a quarter of the mean number of entries in a column (``MemoryData.parts``): these sums take at most a sixth of the memory of
the data for each column, and adding them a fraction of the time of a pass.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.over_rows import own_vectors, place_of
from dualnewton.matrix.protocol import Evaluation, RowForm, RowVectors
from dualnewton.matrix.workers import workers
from dualnewton.validation import frozen

BLOCK_BYTES, MOST_ROWS = 1 << 18, 1 << 13
"""Size of a block of rows in bytes (256 KiB), which stays in a cache until it is read again, and its largest number of rows."""

APART_BYTES = 1 << 20
"""Size in bytes (1 MiB) of coefficients and gradients of sparse rows above which the gradients are computed after the margins of
all rows. The rows are read twice, but only one of the two matrices at a time competes for the second-level cache, and threads
share the margins evenly. On 500000 rows with 40 entries a pass took 65 ms instead of 78 in one thread and 6.7 ms instead of 7.8
in 16 with 100000 features, and 62 instead of 57 and 6.5 instead of 6.3 with 50000. No bit depends on it."""

WIDE_PARTS, CACHED = 16, 1 << 23
"""Where each part of sparse rows has a gradient of several columns: maximum number of parts, and of numbers of all these
gradients (64 MiB), unless one has more. They are written at random places, which takes several times as long where they exceed
the last-level cache: on 125000 rows, gradients of 115 MB took 34 ms a pass in 12 threads, of 77 MB 14 ms."""

RANGES, SAMPLED = 16, 512
"""Maximum number of ranges of features, and number of rows that tell how many entries a range has. Each range takes about 30 ns
for a row, and only threads that read the same rows at the same time share their entries in a cache."""

SUMMED, GRAM_ROWS = 1 << 12, 8
"""Numbers of the parts' sums that are added at a time (32 KiB), and rows of their Gram matrices."""

LINES = 16
"""Numbers in two cache lines (128 bytes), which processors fetch together."""

FEW_SUMS = 1 << 15
"""Numbers of the parts' sums (256 KiB) up to which NumPy adds them, in the same order: nothing is compiled for 0.02 ms."""

FEW_GRAM = 1 << 19
"""The same of their Gram matrices (4 MiB): it takes 0.04 ms longer than a kernel, of at least 10 ms that the products take in one
thread, and saves 0.2 s of compilation."""

GRAM_PARTS, LARGE_GRAM, GRAM_ENTRIES = 32, 1 << 23, 1 << 26
"""Maximum number of parts of a weighted Gram matrix, minimum number of multiplications of a part, and maximum number of entries
of all parts' d×d sums (512 MiB)."""

GRAM_BYTES, FEWEST = 1 << 20, 1 << 10
"""Size of a block of scaled rows in bytes (1 MiB) for weighted Gram matrices, and its number of rows if rows are long."""

REGISTER, FACTORS = 4, 32
"""Numbers per vector register in the kernels, and sparse rows whose factors are copied at a time."""

NOWHERE = -1
"""Index that stands for a vector that is not kept."""


class Layout(NamedTuple):
    """The first block of each part of a pass, the first row of each block, and the largest number of rows of a block."""

    parts: np.ndarray
    ends: np.ndarray
    step: int

    @classmethod
    def of(cls, ends: np.ndarray, step: int) -> Layout:
        """Cut parts, given by their first rows, into blocks of ``step`` rows."""
        blocks = [np.arange(low, high, step) for low, high in itertools.pairwise(ends.tolist())]
        parts = np.cumsum([0, *map(len, blocks)])
        return cls(parts, np.concatenate([*blocks, ends[-1:]]), step)

    def by_blocks(self) -> Layout:
        """Return the same blocks, each of which is a part."""
        return self._replace(parts=np.arange(len(self.ends)))


class Ranges(NamedTuple):
    """The first feature of each range, and where its entries begin: those of row i in range s at cuts[s * stride + i]."""

    bounds: np.ndarray
    stride: int
    cuts: np.ndarray


class CompiledPasses:
    """Passes over a matrix in memory. X is an array in C order or a CSR array, of float32 or float64."""

    def __init__(self, X: Any, parts: Sequence[slice]) -> None:
        from dualnewton.kernels import blas, part_sums, passes, row_functions
        from dualnewton.kernels.rows import Rows

        self.kernels, self.sums, self.functions, self.blas = passes, part_sums, row_functions, blas
        self.X, self.rows = X, Rows.of(X)
        (self.n, self.d), self.sparse = X.shape, sp.issparse(X)
        self.ends = np.array([0, *(part.stop for part in parts)])
        stored = X.data.nbytes + X.indices.nbytes if self.sparse else X.nbytes
        self.step = max(16, min(MOST_ROWS, BLOCK_BYTES * self.n // max(stored, 1)) // 8 * 8)
        self.widens = X.dtype != np.float64 and not self.sparse
        self.ones, self.zeros = np.ones(self.step), np.zeros(self.step)
        # Buffers that are not in use: for sums of parts of passes and of Gram matrices, coefficients, and factors of all rows.
        self._sum_buffer: list[np.ndarray] = []
        self._gram_buffer: list[np.ndarray] = []
        self._coefficient_buffer: list[np.ndarray] = []
        self._factor_buffer: list[np.ndarray] = []
        self._layouts: dict[int, Layout] = {}
        self._cuts: dict[int, Ranges] = {}

    # Passes ----------------------------------------------------------------------------------------------------------

    def takes(self, forms: Sequence[RowForm]) -> bool:
        """Whether there are compiled functions of all these forms."""
        return bool(forms) and all(self._functions(form) for form in forms)

    def _functions(self, form: RowForm) -> list[Any]:
        """Return the functions of a form; none if one cannot be compiled."""
        wanted = [self.functions.losses_of, self.functions.direction_of][: 1 + form.direction]
        found = [each for function in wanted if (each := function(form.loss)) is not None]
        return found if len(found) == len(wanted) else []

    def evaluate(
        self, W: np.ndarray, b: np.ndarray, forms: Sequence[RowForm], vectors: Sequence[RowVectors]
    ) -> Evaluation:
        """Margins, losses, sums of their derivatives, and dual points, as the forms say."""
        K, factors, kept = (sum(sizes) for sizes in zip(*map(self._sizes, forms), strict=True))
        layout = self._layout(factors)
        Z, kept_rows, gradients = np.empty((K, self.n)), np.empty((kept, self.n)), np.empty((factors, self.d))
        calls, _alive = self._calls(forms, vectors)
        values, slopes = self._run(W, b, calls, layout, Z, kept_rows, gradients)
        return Evaluation(values, gradients, slopes, Z.T, kept_rows.T if kept else None)

    def _sizes(self, form: RowForm) -> tuple[int, int, int]:
        """Return the columns of a form, its vectors that are multiplied by Aᵀ, and those that are kept."""
        count = (1 + form.direction) * form.loss.columns
        return form.loss.columns, count * (1 + form.thirds), count * form.dual

    def _calls(self, forms: Sequence[RowForm], vectors: Sequence[RowVectors]) -> tuple[list[Any], list[Any]]:
        """Return the calls of the functions of these forms, and the arrays that they point to."""
        calls: list[Any] = []
        held = []
        column = factors = kept = 0
        for model, (form, own) in enumerate(zip(forms, vectors, strict=True)):
            K, functions = form.loss.columns, self._functions(form)
            given = own_vectors(form.loss, own)
            absent = self.zeros if K == 1 else np.zeros(self.step * K)
            held += [*given, absent]
            y, c, o = map(place_of, given, (None, self.ones, absent))
            shared = (model, column, *y, *c, *o, kept if form.dual else NOWHERE)
            # The bits of the loss's fields, as the other entries are integers.
            fields = np.array(functions[0][-2:]).view(np.int64)
            for k, function in enumerate(functions):
                place_of_kept = kept + k * K if form.dual else NOWHERE
                calls.append([function.address, *shared, place_of_kept, factors + k * K, *fields, K])
            count = len(functions) * K
            if form.thirds:
                calls += [[0, *shared, factors + k, factors + count + k, *fields, K] for k in range(count)]
            column, factors, kept = np.add((column, factors, kept), self._sizes(form)).tolist()
        return calls, held

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Aᵀ D(weights_k) (A V_k + v_k) and the sums of the vectors in between."""
        columns = np.ascontiguousarray(weights.T)
        calls = [self._linear(self.functions.weighted().address, k, column) for k, column in enumerate(columns)]
        Z, products = np.empty((len(V), self.n)), np.empty((len(V), self.d))
        _, sums = self._run(V, v, calls, self._layout(len(V)), Z, Z[:0], products)
        return products, sums

    def times(self, w: np.ndarray) -> np.ndarray:
        """A w, for a vector or a matrix with one column per model."""
        W = np.atleast_2d(w.T)
        Z = np.empty((len(W), self.n))
        self._run(W, np.zeros(len(W)), [], self._layout(0), Z, Z[:0], np.empty((0, self.d)))
        return Z[0] if w.ndim == 1 else Z.T  # contiguous columns: models are evaluated one by one

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        """Aᵀ v, for a vector or a matrix with one column per model."""
        columns = np.require(np.atleast_2d(v.T), np.float64, ["C", "W"])
        products = np.empty((len(columns), self.d))
        self._gather(columns, self._layout(len(columns)), products)
        return products[0] if v.ndim == 1 else products.T

    def diagonal(self, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i a_ij²."""
        sums = _take(self._sum_buffer, len(self.ends) - 1, _whole_lines(self.d))
        self._share(self.kernels.diagonal, _read_only(weights), self.d, sums)
        norms = np.empty((1, self.d))
        self._add(sums, 1, norms)
        return norms[0]

    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        """Σ_j scale_j a_ij²."""
        scores = np.empty(self.n)
        self._share(self.kernels.row_scores, _read_only(scale), scores)
        return scores

    def gram(self, weights: np.ndarray, indices: np.ndarray, *, single: bool) -> tuple[np.ndarray, np.ndarray]:
        """Σ_s weights_s a_s a_sᵀ and Σ_s weights_s a_s over the rows ``indices``, by products in float32 if ``single``."""
        size, d = indices.size, self.d
        parts = gram_parts(size, d)
        ends = np.linspace(0, size, parts + 1).astype(np.intp)
        # Many rows at a time: with few, the traffic of updating the sum would exceed that of reading the rows.
        longest = -(-size // parts)
        step = -(-longest // max(1, round(longest / max(min(d, FEWEST), GRAM_BYTES // (8 * d)))))
        blas = np.array([self.blas.blas_address(name) for name in ("dsyrk", "ssyrk")], dtype=np.intp)
        like, borders = np.empty(0, np.float32 if single else np.float64), _take([], parts, _whole_lines(d))
        sums = _take(self._gram_buffer, parts, d * d)
        given = frozen(np.ascontiguousarray(indices)), _read_only(weights), blas, like, borders
        upper = sums.reshape(parts, d, d)
        self._share(self.kernels.gram, step, *given, upper, ends=ends)
        H = np.empty((d, d))
        if upper.size <= FEW_GRAM:
            with np.errstate(over="ignore", invalid="ignore"):  # as in the kernel
                total = np.triu(upper.sum(axis=0))
                np.add(total, np.triu(total, 1).T, out=H)
        else:
            self._in_threads(self.sums.gram_totals, -(-d // GRAM_ROWS), GRAM_ROWS, upper, H)
        _give_back(self._gram_buffer, sums)
        return H, borders[:, :d].sum(axis=0)

    # Implementation -------------------------------------------------------------------------------------------------------------

    def _layout(self, factors: int) -> Layout:
        """Return the parts and blocks of a pass with this number of sums per feature; without sums each block is a part."""
        parts = all_parts = len(self.ends) - 1
        if self.sparse and factors > self.kernels.FEW:  # each part has d × factors sums: fewer parts
            most = min(parts, WIDE_PARTS, CACHED // (self.d * self._padded(factors)))
            parts = 1 << max(most.bit_length() - 1, 0)  # as the number of threads often is
        if parts not in self._layouts:
            ends = self.ends if parts == all_parts else np.linspace(0, self.n, parts + 1).astype(self.ends.dtype)
            self._layouts[parts] = Layout.of(ends, self.step)
        found = self._layouts[parts]
        return found if factors else found.by_blocks()

    def _run(
        self,
        W: np.ndarray,
        b: np.ndarray,
        calls: Sequence[Any],
        layout: Layout,
        Z: np.ndarray,
        kept: np.ndarray,
        products: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write margins, vectors that are kept and products of each factor with A, as rows; return values and sums of factors."""
        K, factors = len(W), len(products)
        # Most runs start at zero. The first coefficients tell that others do not, without reading 100,000 of them (0.1 ms).
        W = W if W[:, :1].any() or W.any() else np.zeros((0, self.d))
        coefficients = self._columns_of(W) if self.sparse else np.array(W, dtype=np.float64, order="C")
        table, blocks = np.array(calls, dtype=np.intp).reshape(-1, 15), len(layout.ends) - 1
        values, slopes = np.zeros((blocks, int(table[:, 1].max(initial=-1)) + 1)), np.zeros((blocks, factors))
        arguments = coefficients, np.array(b, dtype=np.float64), table, self._scratch(max(K, factors)), Z, kept
        apart = self._is_apart(max(K, factors), factors)
        R = _take(self._factor_buffer, factors, self.n) if apart else np.empty((factors, 0))
        own, sums = (layout.by_blocks(), np.empty((0, 0))) if apart else (layout, self._sums(factors, layout))
        written = values, slopes, R, self._shape(factors), sums
        self._share(self.kernels.evaluate, own.ends, own.step, *arguments, *written, ends=own.parts)
        if self.sparse and len(W) > 1:
            _give_back(self._coefficient_buffer, coefficients)
        if apart:
            self._gather(R, layout, products)
            _give_back(self._factor_buffer, R)
        else:
            self._add_sums(sums, products)
        return values.sum(axis=0), slopes.sum(axis=0)

    def _gather(self, R: np.ndarray, layout: Layout, products: np.ndarray) -> None:
        """Write the products of each row of R with A."""
        sums, parts = self._sums(len(R), layout), len(layout.parts) - 1
        ranges = self._ranges(len(R), parts)
        arguments = layout.ends, self._scratch(len(R)), R, self._shape(len(R)), *ranges, sums
        shares = parts * (len(ranges.bounds) - 1)
        self._in_threads(self.kernels.gather_parts, shares, *arguments, before=(*self.rows, layout.parts))
        self._add_sums(sums, products)

    def _ranges(self, factors: int, parts: int) -> Ranges:
        """Return the ranges of features that the gradients of several columns of sparse rows are computed by.

        Where threads outnumber the parts, several of them take the same rows. No bit depends on the number of ranges.
        """
        count, wanted = 1, min(RANGES, -(-(1 + workers().helpers) // parts))
        while count < wanted and self.sparse and factors > self.kernels.FEW and self.X.has_sorted_indices:
            count *= 2
        if count == 1:
            return Ranges(np.array([0, self._shape(factors)[0]]), 1, self.rows.starts)
        return self.ranges(count)

    def ranges(self, count: int) -> Ranges:
        """Return ranges of features with about equally many entries."""
        if count not in self._cuts:
            bounds, cuts = self._bounds(count), np.empty((count + 1) * self.n, self.rows.starts.dtype)
            self._share(self.kernels.cut, bounds, cuts)
            self._cuts[count] = Ranges(bounds, self.n, frozen(cuts))
        return self._cuts[count]

    def _bounds(self, count: int) -> np.ndarray:
        """Return the first feature of each range, by the entries of some rows, and d."""
        _, columns, starts = self.rows
        some = np.linspace(0, self.n, min(SAMPLED, self.n), endpoint=False).astype(np.intp)
        found = np.sort(np.concatenate([columns[starts[i] : starts[i + 1]] for i in some]))
        inner = found[np.arange(1, count) * found.size // count] if found.size else np.zeros(count - 1)
        return np.array([0, *inner, self.d], dtype=np.intp)

    def _is_apart(self, columns: int, factors: int) -> bool:
        """Whether gradients are computed after the margins of all rows."""
        return self.sparse and factors > 0 and 2 * 8 * self.d * self._padded(columns) > APART_BYTES

    def _scratch(self, columns: int) -> np.ndarray:
        """Return the address of a product by BLAS, and the shape of a scratch array of a thread.

        It has the factors of some sparse rows, or a block of dense rows in float64, which BLAS needs.
        """
        widened = self.step if self.widens and columns > self.kernels.FEW else 0
        shape = (FACTORS, self._padded(columns)) if self.sparse else (widened, self.d)
        return np.array([self.blas.blas_address("dgemm"), *shape], dtype=np.intp)

    def _shape(self, factors: int) -> tuple[int, int]:
        """Return the shape of the sums of a part."""
        return (self.d, self._padded(factors)) if self.sparse else (factors, self.d)

    def _sums(self, factors: int, layout: Layout) -> np.ndarray:
        """Return an array for the sums of the parts."""
        return _take(self._sum_buffer, len(layout.parts) - 1, _whole_lines(math.prod(self._shape(factors))))

    def _add_sums(self, sums: np.ndarray, products: np.ndarray) -> None:
        """Add the sums of the parts."""
        if self.sparse:
            self._add(sums, self._padded(len(products)), products)
        else:
            self._add(sums, 1, products.reshape(1, -1))

    def _padded(self, columns: int) -> int:
        """Return the padded number of columns of a matrix: unchanged, or a multiple of a vector register."""
        return columns if columns <= self.kernels.FEW else -(-columns // REGISTER) * REGISTER

    def _columns_of(self, W: np.ndarray) -> np.ndarray:
        """Return Wᵀ with a row of whole vector registers for each feature, since sparse rows visit features in any order."""
        if len(W) < 2:
            return np.require(W, np.float64, ["C", "W"]).reshape(-1, 1)
        found = _take(self._coefficient_buffer, self.d, self._padded(len(W)))
        rows, step = np.require(W, np.float64, ["C", "W"]), max(1, SUMMED // found.shape[1])
        self._in_threads(self.sums.interleaved, -(-self.d // step), step, rows, found)
        return found

    def _share(self, kernel: Any, *arguments: Any, ends: np.ndarray | None = None) -> None:
        """Run a kernel over the rows in all threads, each of which takes parts from a common counter."""
        ends = self.ends if ends is None else ends
        self._in_threads(kernel, len(ends) - 1, *arguments, before=(*self.rows, ends))

    def _in_threads(self, kernel: Any, shares: int, *arguments: Any, before: tuple[Any, ...] = ()) -> None:
        """Run a kernel in threads, at most one per share of its work; they take the shares from a common counter."""
        workers().run(kernel, shares, *before, np.zeros(1, dtype=np.int64), *arguments)

    def _add(self, sums: np.ndarray, width: int, total: np.ndarray) -> None:
        """Add the sums of the parts, ``width`` numbers per feature, in order; write those without the padding to ``total``."""
        if total.size > 0 and sums.size <= FEW_SUMS:
            with np.errstate(over="ignore", invalid="ignore"):  # as in the kernel
                used = sums[:, : total.shape[1] * width].reshape(len(sums), -1, width)
                total[:] = used[:, :, : len(total)].sum(axis=0).T
        elif total.size:
            step = max(1, SUMMED // width)
            self._in_threads(self.sums.totals, -(-total.shape[1] // step), step, width, sums, total)
        _give_back(self._sum_buffer, sums)

    def _linear(self, function: int, k: int, column: np.ndarray) -> list[int]:
        """Return the call of a function of column k of the margins and a vector."""
        vector = place_of(column)
        return [function, k, k, *vector, *vector, *vector, NOWHERE, NOWHERE, k, 0, 0, 1]


def _take(buffer: list[np.ndarray], parts: int, numbers: int) -> np.ndarray:
    """Return an array of shape (parts, numbers), in an earlier buffer if that is large enough: its memory is already mapped."""
    size = parts * numbers
    try:
        found = buffer.pop()
    except IndexError:  # the buffer is in use by another thread, or there is none yet
        found = np.empty(0)
    found = found if found.size >= size + LINES else np.empty(size + LINES)
    first = -found.ctypes.data % (8 * LINES) // 8
    return found[first : first + size].reshape(parts, numbers)


def _whole_lines(numbers: int) -> int:
    """Return the numbers between the sums of two parts: whole cache lines, so that no two threads write to one."""
    return -(-numbers // LINES) * LINES


def _give_back(buffer: list[np.ndarray], sums: np.ndarray) -> None:
    """Keep the buffer of sums that are no longer needed, instead of the buffer kept before."""
    buffer[:] = [sums if sums.base is None else sums.base]


def gram_parts(size: int, d: int) -> int:
    """Return the number of parts of a weighted Gram matrix of ``size`` rows: each has a d×d sum, and at least d rows.

    It is a power of two, as the number of threads often is, so that all threads have equally many parts.
    """
    most = min(GRAM_PARTS, size * d**2 // LARGE_GRAM, size // d, GRAM_ENTRIES // d**2)
    return 1 << max(most.bit_length() - 1, 0)


def _read_only(values: np.ndarray) -> np.ndarray:
    """Return a read-only view, so that kernels are compiled once for writable and read-only vectors."""
    return frozen(np.ascontiguousarray(values, dtype=np.float64))
