"""Data in memory or memory-mapped: a NumPy array in C order or a CSR array, processed in blocks that fit into the cache."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton._cached import cached_property
from dualnewton.matrix import few_rows, linear, whole
from dualnewton.matrix.blocks import LibraryBlock
from dualnewton.matrix.compiled import CompiledPasses, gram_parts
from dualnewton.matrix.grams import FEW_ENTRIES, bordered, few_products, mirrored, outer_products
from dualnewton.matrix.protocol import Data, Evaluation, Profile, Rows, RowVectors, Target, Work
from dualnewton.matrix.workers import added, sum_of_squares, workers
from dualnewton.row_arrays import column_sums
from dualnewton.validation import SHORT, data_matrix, frozen

BLOCK_BYTES = 1 << 22
"""Size of a block of dense rows in bytes (4 MiB): the block is still in the cache for the second of its two products."""

SQUARED_BYTES = 1 << 21
"""Size in bytes (2 MiB) of a block of rows for weighted Gram matrices: the block and its weighted copy fit into the cache."""

BLOCK_MARGINS = 1 << 13
"""Number of sparse rows per block: vectors of 8 bytes per row (64 KiB) stay below the 128 KiB up to which the allocator reuses
memory instead of mapping new pages."""

COMPILED_FROM = 1 << 21
"""Number of stored entries from which all passes are compiled (16 MiB, about 2 ms); below it, compiling takes too long."""

PART_ENTRIES, DENSE_PART_ENTRIES = 1 << 15, 1 << 16
"""Minimum number of stored entries per part (the unit of work of a thread), sparse and dense: about 0.1 ms. Sparse entries take
longer. A sample of 25600 rows with 100 features has 39 parts."""

MOST_PARTS, MOST_DENSE_PARTS = 32, 64
"""Maximum number of parts of sparse and of dense rows, each of which has its own gradient; enough for 16 threads or more."""

LEAST_PAIRS = 1 << 20
"""Minimum number of pairs of entries (about 2 ms) of a part of a Gram matrix that is summed pair by pair."""

WIDTH = 4096
"""Number of columns of dense float32 rows that are converted to float64 at a time for their products with each other."""

PIECE = 1 << 17
"""Number of stored entries that are squared or gathered at a time (1 MiB), so that they stay in the cache."""

TILE = 256
"""Rows and features of a tile (512 KiB), by which all dense features are copied: rows and columns of it stay in the cache."""

ELSEWHERE = {"cupy": "cuda", "cupyx": "cuda", "dask": "dask", "torch": "cuda"}
"""Libraries whose matrices are not in this process's memory, and the module of this package for each."""

HASHED = 1 << 24
"""Bytes that are hashed at a time (16 MiB), so that a memory-mapped array is never completely in memory."""


class MemoryData(Data):
    """Rows in memory (or memory-mapped).

    The division of the rows into parts depends on the data only. Threads process parts, and the sums of the parts are added in
    order, so that the result has the same bits for any number of threads.

    X is an array in C order or a CSR array, of float32 or float64; ``squares`` is the sum of the squares of its entries in
    float64, if it is known.
    """

    def __init__(self, X: Any, work: Work = Work(), squares: float | None = None) -> None:  # noqa: B008 (frozen)
        self.X, self.work, self.squares = X, work, squares
        vars(self)["n"], vars(self)["d"] = X.shape  # properties that small fits read often

    @cached_property
    def profile(self) -> Profile:  # type: ignore[override]
        """Size and sparsity, computed at the first access."""
        return profile_of(self.X)

    @cached_property
    def norm(self) -> float:
        if self.squares is None and self.is_large:
            return super().norm
        squares = self._sum_of_squares() if self.squares is None else self.squares
        return math.sqrt(squares) * (1.0 + self.profile.stored * 2.0**-52)

    def _sum_of_squares(self) -> float:
        """Return Σ_ij A_ij² in float64; float32 entries are converted piece by piece."""
        entries = linear.entries(self.X)
        if entries.dtype == np.float64:
            return sum_of_squares(entries)
        pieces = (entries[low : low + SHORT].astype(np.float64) for low in range(0, entries.size, SHORT))
        return sum(float(np.vdot(piece, piece)) for piece in pieces)

    # Identity ----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for array in self.arrays().values():
            # Hash views of contiguous pieces; a strided array is copied piece by piece.
            for low in range(0, len(array), step := max(1, HASHED // max(1, array[:1].nbytes))):
                digest.update(np.ascontiguousarray(array[low : low + step]).data)
        storage = f" {self.X.format}" if sp.issparse(self.X) else ""
        return f"{self.n}x{self.d} {self.X.dtype}{storage} {digest.hexdigest()}"

    def same_as(self, other: Data) -> bool:
        if self is other or self.X is getattr(other, "X", None):
            return True
        mine, theirs = (list(map(_place, data.arrays().values())) for data in (self, other))
        return self.profile == other.profile and bool(mine) and mine == theirs

    def arrays(self) -> dict[str, np.ndarray]:
        if sp.issparse(self.X):
            return {name: getattr(self.X, name) for name in ("data", "indices", "indptr")}
        return {"": self.X}

    @property
    def stored(self) -> Any:
        """The matrix as it is stored, for kernels that visit its rows in random order."""
        return self.X

    def with_constant(self, value: float) -> MemoryData:
        return MemoryData(linear.with_constant(self.X, value), self.work)

    # Work --------------------------------------------------------------------------------------------------------

    def using(self, work: Work) -> MemoryData:
        if work.dense and sp.issparse(self.X):
            return MemoryData(self.X.toarray(), work)
        made = MemoryData(self.X, work, self.squares)
        vars(made)["profile"] = self.profile
        # Where both are large, the same kernel would find the same bits; and its buffers have their memory already.
        for name in ("feature_norms", "compiled") if self.is_large and made.is_large else ():
            vars(made).update({name: found} if (found := vars(self).get(name)) is not None else {})
        return made

    @cached_property
    def parts(self) -> list[slice]:
        """The rows of each part."""
        parts = parts_of(self.profile) if self.is_large else 1
        if parts == 1:
            return [slice(0, self.n)]
        ends = np.linspace(0, self.n, parts + 1).astype(int)
        return [slice(int(low), int(high)) for low, high in itertools.pairwise(ends)]

    @cached_property
    def additions(self) -> int:
        # Sums of several columns of sparse rows may have fewer parts (``CompiledPasses._layout``).
        return self.n if self.profile.sparse else max(part.stop - part.start for part in self.parts) + len(self.parts)

    @cached_property
    def compiled(self) -> CompiledPasses:
        """The passes by kernels."""
        return CompiledPasses(self.X, self.parts)

    @cached_property
    def is_large(self) -> bool:
        """Whether compiled passes are worth the time of loading or compiling them."""
        return max(self.profile.stored, self.work.whole) >= COMPILED_FROM

    @cached_property
    def wide(self) -> Any:
        """The rows for products by NumPy and SciPy: in float64 for the many passes of a method, which would each copy them."""
        return linear.as_float64(self.X) if self.work.compiled and not self.is_large else self.X

    @cached_property
    def blocks(self) -> list[list[LibraryBlock]]:
        """The blocks of each part, for passes that are not compiled."""
        step = BLOCK_MARGINS if self.profile.sparse else max(16, BLOCK_BYTES // (8 * self.d))
        if self.n <= step and not self.is_large:
            return [[LibraryBlock(self.wide, slice(0, self.n))]]
        return [
            [
                LibraryBlock(self.wide, slice(low, min(low + step, part.stop)))
                for low in range(part.start, part.stop, step)
            ]
            for part in self.parts
        ]

    def as_factor(self, rows: Any, indices: Rows, diagonal: np.ndarray) -> Any:  # noqa: ARG002
        return few_rows.as_factor(rows, diagonal)

    # Products ----------------------------------------------------------------------------------------------------

    def times(self, w: np.ndarray) -> np.ndarray:
        return self.compiled.times(w) if self.is_large else whole.times(self.wide, w)

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        return self.compiled.transposed_times(v) if self.is_large else whole.transposed_times(self.wide, v)

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        if self.is_large and self.compiled.takes(target.forms):
            return self.compiled.evaluate(W, b, target.forms, vectors)
        parts = self.blocks
        if len(parts) == len(parts[0]) == 1:
            block = parts[0][0].read([])
            margins = block.product(W)
            (values, gradients, slopes), only = self._evaluated(block, b, target, vectors, margins)
            return Evaluation(values, gradients, slopes, margins, only)
        margins = np.empty((len(W), self.n)).T  # contiguous columns
        kept: dict[int, np.ndarray] = {}  # keyed by the first row of the block

        def work(blocks: Sequence[LibraryBlock]) -> tuple[np.ndarray, ...]:
            buffer: list[np.ndarray] = []
            total: tuple[np.ndarray, ...] = ()
            for each in blocks:
                own = [vector.part(each.rows) for vector in vectors]
                block, Z = each.read(buffer), margins[each.rows]
                Z[:] = block.product(W)
                sums, found = self._evaluated(block, b, target, own, Z)
                total = added([total, sums]) if total else sums
                if found is not None:
                    kept[each.rows.start] = found
            return total

        values, gradients, slopes = added(workers().each(parts, work))
        together = kept.get(0) if len(kept) < 2 else np.concatenate([kept[start] for start in sorted(kept)])
        return Evaluation(values, gradients, slopes, margins, together)

    @staticmethod
    def _evaluated(
        block: LibraryBlock,
        b: np.ndarray,
        target: Target,
        vectors: Sequence[RowVectors],
        Z: np.ndarray,
    ) -> tuple[tuple[np.ndarray, ...], np.ndarray | None]:
        """Add b to the products Z of a block, and return its sums and the columns to be kept."""
        if len(b) > 1 or b[0] != 0.0:
            Z += b
        found = target.losses(vectors, Z)
        return (found.values, block.gathered(found.factors), column_sums(found.factors)), found.kept

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.is_large:
            return self.compiled.weighted_products(V, v, weights)

        def work(blocks: Sequence[LibraryBlock]) -> tuple[np.ndarray, np.ndarray]:
            sums, result = np.zeros(len(V)), np.zeros(V.shape)
            for block in blocks:
                Z = block.product(V)
                Z += v
                Z *= weights[block.rows]
                sums += Z.sum(axis=0)
                result += block.gathered(Z)
            return result, sums

        result, sums = added(workers().each(self.blocks, work))
        return result, sums

    def weighted_gram(
        self,
        weights: np.ndarray,
        indices: np.ndarray | None = None,
        *,
        intercept: bool = False,
        single: bool = False,
        keep: bool = False,  # noqa: ARG002
    ) -> np.ndarray:
        indices = np.arange(self.n) if indices is None else indices
        if type(self.X) is np.ndarray and indices.size * self.d <= FEW_ENTRIES:
            return bordered(*few_products(self.X.take(indices, axis=0), weights), weights, intercept=intercept)
        pairs = self._pairs(indices)
        by_pairs = pairs > 0.0
        if self.is_large and indices.size and not by_pairs:
            return bordered(*self.compiled.gram(weights, indices, single=single), weights, intercept=intercept)
        sums = self._sum_pairs if by_pairs else partial(self._sum_products, np.float32 if single else np.float64)
        if not by_pairs and gram_parts(indices.size, self.d) == 1:  # small fits: calls take longer than the sums
            border = np.zeros(self.d if intercept else 0)
            return bordered(sums(indices, weights, border), border, weights, intercept=intercept)

        def work(part: slice) -> tuple[np.ndarray, np.ndarray]:
            border = np.zeros(self.d if intercept or by_pairs else 0)
            return sums(indices[part], weights[part], border), border

        # A part that is summed by pairs has at least four pairs for each entry of its d×d sum.
        most = int(pairs / max(4.0 * self.d**2, LEAST_PAIRS)) if by_pairs else indices.size
        parts = max(1, min(gram_parts(indices.size, self.d), most))
        (H, border), *others = workers().each(list(_pieces(indices.size, -(-indices.size // parts))), work)
        for more, own in others:  # in place: a new matrix for each sum would take a tenth of the time of its products
            H += more
            border += own
        if by_pairs:
            mirrored(H)
        return bordered(H, border, weights, intercept=intercept)

    def _pairs(self, indices: np.ndarray) -> float:
        """Return the pairs of entries in these rows if their Gram matrix is summed pair by pair, else 0."""
        choice = self.work.by_pairs
        if choice is None or not (self.profile.sparse and self.work.compiled):
            return 0.0
        lengths = (self.X.indptr[indices + 1] - self.X.indptr[indices]).astype(float)
        pairs = 0.5 * float(lengths @ lengths)
        return pairs if choice(indices.size, pairs) else 0.0

    def _sum_pairs(self, indices: np.ndarray, weights: np.ndarray, border: np.ndarray) -> np.ndarray:
        """Return the lower triangle of Σ weights a aᵀ over some rows, pair by pair; Σ weights a is added to ``border``."""
        from dualnewton.kernels import passes
        from dualnewton.kernels.rows import Rows

        H = np.zeros((self.d, self.d))
        # Read-only views, so that writable and read-only inputs share one compilation.
        arguments = (*Rows.of(self.X), frozen(indices), frozen(weights), H, border)
        passes.curvature.prepare(*arguments)
        passes.curvature(*arguments)
        return H

    def _sum_products(self, kind: type, indices: np.ndarray, weights: np.ndarray, border: np.ndarray) -> np.ndarray:
        """Return Σ weights a aᵀ over some rows, by BLAS; Σ weights a is added to ``border`` if that has entries."""
        H: np.ndarray | None = None
        for some, own in self._squared_pieces(indices):
            rows = linear.to_dense(own)
            if border.size:
                border += weights[some] @ rows
            found = outer_products(rows, weights[some], kind)
            H = found.astype(np.float64, copy=False) if H is None else np.add(H, found, out=H)
        return np.zeros((self.d, self.d)) if H is None else H

    def _squared_pieces(self, indices: np.ndarray, *, expanded: bool = True) -> Iterator[tuple[slice, Any]]:
        """Yield pieces of the rows, or all rows at once unless ``expanded``, for sums of outer products."""
        consecutive = indices.size == indices[-1] - indices[0] + 1 if indices.size else False
        # Use at least d rows at a time: with fewer, the traffic of updating the sum would exceed that of reading the rows.
        size, step = max(indices.size, 1), max(self.d, SQUARED_BYTES // (8 * self.d))
        # Pieces of equal sizes, since a small last one costs as many calls.
        step = -(-size // max(1, round(size / step))) if expanded else size
        for some in _pieces(indices.size, step):
            # Consecutive rows are used as a view: a copy takes as long as the product.
            yield (
                some,
                self.rows(slice(indices[some.start], indices[some.stop - 1] + 1) if consecutive else indices[some]),
            )

    def moments(
        self, weights: np.ndarray, targets: np.ndarray, origin: np.ndarray, indices: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        d, shifted, indices = self.d, bool(origin.any()), np.arange(self.n) if indices is None else indices
        if not shifted and self.profile.sparse and self.work.by_pairs is not None:
            H = self.weighted_gram(weights, indices, intercept=True)
            rows = self.rows(slice(None) if indices.size == self.n else indices)
            weighted = weights[:, None] * targets
            return H, np.vstack([rows.T @ weighted, weighted.sum(axis=0)])
        weighted = weights[:, None] * np.column_stack([targets, np.ones(indices.size)])
        H, sums = np.zeros((d + 1, d + 1)), np.zeros((d + 1, weighted.shape[1]))
        buffer = np.zeros((0, d))  # for all pieces: fresh memory takes longer than the subtraction
        copied = shifted or not (self.profile.sparse or self.X.dtype == np.float64)
        for some, own in self._squared_pieces(indices, expanded=shifted or not self.profile.sparse):
            rows = own
            if copied:
                buffer = buffer if len(buffer) >= own.shape[0] else np.empty((own.shape[0], d))
                rows = np.subtract(linear.to_dense(own), origin, out=buffer[: own.shape[0]])
            H[:d, :d] += outer_products(rows, weights[some], np.float64)
            sums[:d] += whole.transposed_times(rows, weighted[some])
        sums[d] = weighted.sum(axis=0)
        H[d], H[:, d] = sums[:, -1], sums[:, -1]
        return H, sums[:, :-1]

    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        if self.profile.sparse or self.X.dtype == np.float64:
            return linear.gram(self.rows(indices), scale)
        parts = (
            linear.gram(self.X[indices, part].astype(np.float64), None if scale is None else scale[part])
            for part in _pieces(self.d, WIDTH)
        )
        return np.asarray(sum(parts))

    def column_norms(self, weights: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        if self.is_large or self.profile.sparse:
            # Slices of a CSR array would copy as many entries as all squares take.
            norms = (
                self.compiled.diagonal(weights)
                if self.is_large
                else linear.transposed(linear.squared(self.X)) @ weights
            )
            return norms if features is None else norms[features]
        if features is None and self.X.size <= PIECE and self.X.dtype == np.float64:
            return weights @ np.square(self.X)
        norms = np.zeros(self.d if features is None else features.size)
        for part in self._slices():
            rows = self.rows(part)
            norms += weights[part] @ linear.squared(rows if features is None else rows[:, features])
        return norms

    def absolute_sums(self, weights: np.ndarray) -> np.ndarray:
        parts = (abs(self.rows(part)).T @ weights[part] for part in self._slices())
        return np.asarray(sum(parts, start=np.zeros((self.d, *weights.shape[1:]))))

    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        if self.is_large:
            return self.compiled.row_scores(scale)
        if self.profile.sparse:  # slices of a CSR array would copy as many entries
            return linear.squared(self.X) @ scale
        scores = np.empty(self.n)
        for part in self._slices():
            scores[part] = linear.squared(self.rows(part)) @ scale
        return scores

    def nonzeros(self) -> np.ndarray:
        return linear.nonzeros(self.X)

    # Parts -------------------------------------------------------------------------------------------------------

    def rows(self, indices: Rows) -> Any:
        return whole.take_rows(self.X, indices)

    def subset(self, rows: np.ndarray) -> MemoryData:
        # Passes are compiled if those over all rows are, and matrices are summed in the same way.
        return MemoryData(self.rows(rows), replace(self.work, dense=False, whole=self.profile.stored))

    def columns(self, features: np.ndarray) -> Any:
        every = features.size == self.d and np.array_equal(features, np.arange(self.d))
        if self.profile.sparse and every:
            return self.X.T.tocsr().astype(np.float64, copy=False)
        if self.profile.sparse:
            return linear.stacked([self.rows(part)[:, features].T for part in self._slices()], dense=False, axis=1)
        found = np.empty((features.size, self.n))
        if every:
            for part in _pieces(self.n, TILE):
                for some in _pieces(self.d, TILE):
                    found[some, part] = self.X[part, some].T
            return found
        for part in self._slices():
            found[:, part] = self.X[part].take(features, axis=1).T
        return found

    def _slices(self) -> Iterator[slice]:
        """Yield slices of rows that fit into the cache."""
        return _pieces(self.n, max(1, PIECE * self.n // max(self.profile.stored, 1)))


def as_data(X: Any) -> Data:
    """Return X itself if it is ``Data``, else the matrix, validated, as the kind of data of the library that it belongs to."""
    if type(X) is MemoryData or isinstance(X, Data):  # the check of an abstract class takes longer
        return X
    if (found := from_elsewhere(X)) is not None:
        return found
    made: list[MemoryData] = []

    def squares(matrix: Any) -> float:
        made.append(MemoryData(linear.dense_if_full(matrix)))
        entries = linear.entries(matrix)
        if entries.size < COMPILED_FROM:
            total = sum_of_squares(entries)
            made[0].squares = total if entries.dtype == np.float64 else None
            return total
        return sum_of_squares(made[0].feature_norms)  # which each certificate needs as well

    data_matrix("X", X, squares, linear.in_order)
    return made[0]


def from_elsewhere(X: Any) -> Data | None:
    """Return a matrix on a GPU or a cluster, validated, as data; None for other matrices."""
    one = X[0] if isinstance(X, list) and X else X  # a list of blocks
    kind = ELSEWHERE.get(type(one).__module__.partition(".")[0])
    made: Data | None = None if kind is None else import_module(f"dualnewton.matrix.{kind}").as_data(X)
    return made


def parts_of(profile: Profile) -> int:
    """Return the number of parts into which rows in memory are divided, if their passes are compiled."""
    stored = profile.stored
    most, smallest = (MOST_PARTS, PART_ENTRIES) if profile.sparse else (MOST_DENSE_PARTS, DENSE_PART_ENTRIES)
    return max(1, min(most, stored // smallest, stored // (4 * profile.d), profile.n))


def profile_of(X: Any) -> Profile:
    """Count rows, columns, stored entries and their pairs."""
    n, d = X.shape
    if not linear.is_sparse(X):
        return _dense_profile(n, d, X.dtype.itemsize)
    starts = X.indptr
    if n <= SHORT:
        squares = linear.squared_lengths(starts)
    else:  # pieces stay in a cache, and are too short for the threads of BLAS
        squares = sum(linear.squared_lengths(starts[part.start : part.stop + 1]) for part in _pieces(n, SHORT))
    return Profile(n, d, int(X.nnz), 0.5 * squares, True, X.dtype.itemsize)


@lru_cache
def _dense_profile(n: int, d: int, itemsize: int) -> Profile:
    return Profile(n, d, n * d, 0.5 * n * d * d, False, itemsize)


def _pieces(size: int, step: int) -> Iterator[slice]:
    for low in range(0, size, step):
        yield slice(low, min(low + step, size))


def _place(array: np.ndarray) -> tuple[Any, ...]:
    return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype
