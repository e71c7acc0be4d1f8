"""Rows on an NVIDIA GPU, by CuPy and CUDA kernels: products of float32 rows in float64, without a float64 copy of the data.

A pass over dense rows with a translated loss reads X once (``cuda_source.DENSE_PASS``). Losses of several columns, several models
and a user's loss that has no translation take two reads: margins, then expressions of CuPy, then the sums over rows. Sparse rows
keep a transposed copy, so that both products are sums in a fixed order; large ones keep copies of both in tiles (``cuda_tiles``)
for products with one vector. Everything else is as :class:`DeviceData` specifies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dualnewton import row_arrays
from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import cuda_gram, cuda_source, cuda_tiles, cuda_translation
from dualnewton.matrix.cuda_library import (
    THREADS,
    added,
    limit,
    namespace,
    numbers,
    partial_sums,
    promised,
    ranges,
    sent,
    totals,
)
from dualnewton.matrix.cuda_library import kernel as kernel_of
from dualnewton.matrix.device import MIXED, DeviceData, Namespace
from dualnewton.matrix.protocol import Data, Evaluation, RowForm, RowVectors, Target
from dualnewton.matrix.selections import Selection
from dualnewton.row_arrays import RowArray, is_elsewhere

TEAMS = (1, 2, 4, 8)
"""Warps of a block that may share the columns of dense rows in a pass."""

MOST_COLUMNS = 16
"""Columns of a dense pass that one thread adds up in registers: up to 4096 features."""

FEW_COLUMNS = 4
"""Columns of a dense pass per thread, as long as more warps may share a row."""

MOST_ROWS, MOST_STAGES = 16, 4
"""Dense rows that a team of warps evaluates at a time in a pass (a tile), and tiles in shared memory: one is evaluated while the
others are copied."""

BLOCKS, PASS_BLOCKS = 4, 2
"""Blocks per multiprocessor, each of which has a range of rows and its own sums: of most kernels, and of dense passes."""

UNSHARED = 1 << 13
"""Bytes of shared memory of a block that a dense pass does not use for rows."""

ALIGNED = 16
"""Bytes that a dense pass copies at a time, from addresses that are multiples of it."""

SHORT = 256
"""Features of a dense row up to which 8 threads multiply it; above, 32 do."""

LANES = (8, 16, 32)
"""Threads that may multiply a sparse row: the most that leave each at least two of its entries, on average."""

NEAR_ROWS = 1 << 21
"""Rows whose transposed sparse matrix is multiplied at a time. Their numbers (16 MiB), read in random order, then stay in the
cache of the GPU."""

WIDE = 8
"""Largest number of columns of W or R per kernel call, which a thread keeps in registers."""

TOGETHER = 4
"""Rows that a group of threads multiplies at a time with several columns of W; entries of a sparse row with one column."""

NOWHERE = np.intp(0)
"""The null pointer."""

ENTRY, SQUARE, SIZE, NONZERO = "x", "x * x", "fabs(x)", "(x != 0.0 ? 1.0 : 0.0)"
"""What a kernel multiplies of each entry x, in C: the entry itself, its square, its absolute value, or whether it is not zero."""


def as_cuda(X: Any) -> CudaData:
    """Return a matrix as data on the GPU: of CuPy, of PyTorch (without a copy), or of NumPy or SciPy, which is copied there."""
    space = namespace()
    xp = space.xp
    if _is_tensor(X):
        row_arrays.declare(type(X), lambda tensor: tensor.detach().cpu().numpy())
        X = xp.asarray(X.detach())
    elif not (isinstance(X, xp.ndarray) or space.is_sparse(X)):
        from dualnewton.validation import data_matrix

        X = data_matrix("X", X)
        X = _csr(X) if hasattr(X, "indptr") else xp.asarray(X)
    return CudaData(_checked(X, space), space)


def _is_tensor(values: Any) -> bool:
    """Whether values are a tensor of PyTorch; it is not imported to ask."""
    return type(values).__module__.partition(".")[0] == "torch"


def _csr(X: Any) -> Any:
    from cupyx.scipy import sparse

    return sparse.csr_matrix(X)


def _checked(X: Any, space: Namespace) -> Any:
    """Return the matrix in C order or as CSR, of float32 or float64; raise an error if it is not a finite matrix."""
    xp, sparse = space.xp, space.is_sparse(X)
    if X.ndim != 2:
        raise DualnewtonError(f"X must be a matrix with one row per example, got {X.ndim} dimension(s)")
    if 0 in X.shape:
        raise DualnewtonError(f"X must have at least one row and one column, got shape {X.shape}")
    if X.dtype.kind not in "fiub":
        raise DualnewtonError(f"X must hold real numbers, got {type(X).__name__} of {X.dtype}")
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if sparse:
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    else:
        X = xp.ascontiguousarray(X)
        X = X.copy() if X.data.ptr % ALIGNED else X
    entries = (X.data if sparse else X).reshape(-1)
    # A finite sum of squares proves that every entry is finite, in one read.
    if not math.isfinite(float(entries @ entries)) and not bool((finite := xp.isfinite(entries)).all()):
        at = int(xp.argmin(finite))
        where = f"stored entry {at}" if sparse else f"index {divmod(at, X.shape[1])}"
        raise DualnewtonError(f"X must be finite, got {float(entries[at])!r} at {where}")
    return X


def _real(dtype: Any) -> str:
    return "float" if dtype == np.float32 else "double"


class PassForm(NamedTuple):
    """How the 8 warps of a block share dense rows in a pass."""

    # Warps that share the columns of a row, and the columns of one of their threads: few, as long as more warps may share.
    team: int
    columns: int
    # Rows of a tile, which a team evaluates together, and tiles of a team in shared memory.
    rows: int
    stages: int
    shared: int  # bytes of shared memory
    quads: bool  # whether a thread has quadruples of adjacent columns, which it reads together, instead of single ones

    @property
    def teams(self) -> int:
        """Teams of a block."""
        return THREADS // (32 * self.team)

    @classmethod
    def of(cls, d: int, itemsize: int, shared: int) -> PassForm:
        """Choose the form for d features: as many rows at a time, then as many tiles, as the shared memory holds."""
        team = next((team for team in TEAMS if d <= 32 * team * FEW_COLUMNS), TEAMS[-1])
        row = THREADS // (32 * team) * d * itemsize
        rows = MOST_ROWS
        while rows * itemsize > ALIGNED and 2 * rows * row > shared:
            rows //= 2
        stages = max(2, min(MOST_STAGES, shared // (rows * row)))
        columns = -(-d // (32 * team))
        quads = itemsize == 4 and d % 4 == columns % 4 == 0
        return cls(team, columns, rows, stages, stages * rows * row, quads)


@cache
def _pass_kernel(translation: Any, real: str, form: PassForm, gpu: int, *constants: tuple[str, int]) -> Any:
    """Return the kernel of a dense pass; the whole source, whose hash takes longer than the start of a kernel, is made once."""
    macros = {"TEAM": form.team, "COLUMNS": form.columns, "ROWS": form.rows, "STAGES": form.stages}
    macros |= {"PER": PASS_BLOCKS, "QUADS": int(form.quads), "GPU": gpu}
    source = translation.source + cuda_source.DENSE_PASS
    # The most that any number of features needs: CuPy has one kernel, with one limit, for all that have this source.
    return kernel_of("dense_pass", source, _most_shared(gpu), REAL=real, **macros, **dict(constants))


def _most_shared(gpu: int) -> int:
    """Return the bytes of shared memory that rows may take in a dense pass."""
    return max(0, limit(gpu, "MaxSharedMemoryPerBlockOptin") - UNSHARED)


class CudaData(DeviceData):
    """Rows on an NVIDIA GPU."""

    # Whether more than one pass reads the rows, so that copies of them in other forms may be worth it.
    lasting = True

    @cached_property
    def lanes(self) -> int:
        """Threads that multiply one dense row."""
        return 8 if self.d <= SHORT else 32

    def adopted(self, name: str, values: Any) -> Any:  # noqa: ARG002
        """Return a tensor of PyTorch as an array of CuPy; other values as they are."""
        return self.xp.asarray(values.detach()) if _is_tensor(values) else values

    @cached_property
    def blocks(self) -> int:
        """Blocks that fill the GPU."""
        return BLOCKS * self.processors

    @cached_property
    def number(self) -> int:
        """The number of the GPU."""
        return int(self.xp.cuda.Device().id)

    @cached_property
    def processors(self) -> int:
        """Multiprocessors of the GPU."""
        return limit(self.number, "MultiProcessorCount")

    def strata(self, rng: np.random.Generator, size: int) -> Selection:
        constants = dict(zip(("STEP", "FIRST", "SECOND"), (f"{int(each)}ULL" for each in MIXED), strict=True))
        found = self.xp.empty(size, np.int64)
        arguments = found, np.int64(self.n), np.int64(size), np.uint64(rng.integers(1 << 63))
        kernel_of("strata", cuda_source.STRATA, **constants)((-(-size // THREADS),), (THREADS,), arguments)
        return found

    def subset(self, rows: Selection) -> DeviceData:
        if self.is_sparse:
            return super().subset(rows)
        indices = self.xp.asarray(rows, dtype=np.int64)
        found = self.xp.empty((indices.size, self.d), self.matrix.dtype)
        cuda_gram.scale(self.number, self.matrix, None, indices, found)
        return self.like(found)

    # Products --------------------------------------------------------------------------------------------------------

    def _times(self, w: Any) -> RowArray:
        W = w.reshape(self.d, -1)
        found = self.xp.empty((self.n, W.shape[1]))
        for low in range(0, W.shape[1], WIDE):
            own = self.xp.ascontiguousarray(W[:, low : low + WIDE])
            Z = found if own.shape[1] == W.shape[1] else self.xp.empty((self.n, own.shape[1]))
            self._times_few(own, Z)
            if Z is not found:
                found[:, low : low + WIDE] = Z
        return found.reshape(self.n) if w.ndim == 1 else found

    @cached_property
    def tiles(self) -> cuda_tiles.Tiles | None:
        """A copy of large sparse rows for products with one vector, made at the first use."""
        return self._tiled(self.matrix)

    @cached_property
    def transposed_tiles(self) -> cuda_tiles.Tiles | None:
        """The same of the transposed matrix."""
        return None if self.tiles is None else self._tiled(self._transposed_rows(slice(0, self.n)))

    def _tiled(self, matrix: Any) -> cuda_tiles.Tiles | None:
        shape = cuda_tiles.shape_of(matrix, self.number) if self.lasting else None
        return None if shape is None else cuda_tiles.Tiles(matrix, shape, self.number)

    def _times_few(self, W: Any, Z: Any, entry: str = ENTRY) -> None:
        if self.is_sparse:
            if W.shape[1] == 1 and self.tiles is not None:
                self.tiles.times(W.reshape(-1), entry, out=Z)
                return
            _sparse_times(self.matrix, W, Z, self.blocks, entry)
            return
        kernel = kernel_of(
            "dense_times",
            cuda_source.DENSE_TIMES,
            REAL=_real(self.matrix.dtype),
            K=W.shape[1],
            LANES=self.lanes,
            ROWS=TOGETHER if W.shape[1] > 1 else 1,
            ENTRY=entry,
        )
        arguments = self.matrix, self.xp.ascontiguousarray(W.T), Z, np.int64(self.n), np.int32(self.d)
        kernel((4 * self.blocks,), (THREADS,), arguments)

    @cached_property
    def transposed(self) -> list[tuple[slice, Any]]:
        """Ranges of rows, and the transposed sparse matrix of each as CSR: a second copy of all, made at the first use."""
        parts = [slice(low, min(low + NEAR_ROWS, self.n)) for low in range(0, self.n, NEAR_ROWS)]
        return [(part, self._transposed_rows(part)) for part in parts]

    def _transposed_rows(self, part: slice) -> Any:
        rows = self.matrix if part.stop - part.start == self.n else self.matrix[part]
        made = rows.tocsc()
        return type(rows)((made.data, made.indices, made.indptr), shape=rows.shape[::-1])

    def _transposed(self, R: RowArray, entry: str = ENTRY) -> Any:
        columns = R.reshape(self.n, -1)
        K = columns.shape[1]
        if K <= WIDE:
            own = self.xp.ascontiguousarray(columns, dtype=np.float64)
            return self._transposed_few(own, entry).reshape(self.d, *R.shape[1:])
        parts = [slice(low, low + WIDE) for low in range(0, K, WIDE)]
        each = [self.xp.ascontiguousarray(columns[:, part], dtype=np.float64) for part in parts]
        return self.xp.concatenate([self._transposed_few(own, entry) for own in each], axis=1)

    def _transposed_few(self, R: Any, entry: str) -> Any:
        """Sums over the rows for at most WIDE columns of R."""
        K = R.shape[1]
        if self.is_sparse:
            if K == 1 and self.transposed_tiles is not None:
                return self.transposed_tiles.times(R.reshape(-1), entry)[:, None]
            Z = self.xp.empty((self.d, K))
            for part, transposed in self.transposed:
                _sparse_times(transposed, R[part], Z, self.blocks, entry, add=part.start > 0)
            return Z
        sums = self.xp.empty((self._transposed_ranges[1], K * self.d))
        self._sum_dense(R, sums, K, entry)
        return added(sums).reshape(K, self.d).T

    def _sum_dense(self, R: Any, sums: Any, K: int, entry: str) -> None:
        """Write the sums of each block of dense rows, times K columns of R; R may be the null pointer for a column of ones."""
        tile = 256
        kernel = kernel_of(
            "dense_transposed",
            cuda_source.DENSE_TRANSPOSED,
            REAL=_real(self.matrix.dtype),
            K=K,
            TILE=tile,
            ENTRY=entry,
        )
        step, blocks = self._transposed_ranges
        arguments = (self.matrix, R, sums, np.int64(self.n), np.int32(self.d), np.int64(step))
        kernel((blocks, -(-self.d // THREADS)), (THREADS,), arguments, shared_mem=8 * tile * K)

    # Sparse products of CuPy's own add in an order that differs between calls, so that equal calls had unequal bits.

    def column_norms(self, weights: RowArray, features: np.ndarray | None = None) -> np.ndarray:
        norms = self._transposed(self.placed(weights), SQUARE)
        return self._host(norms if features is None else norms[self.xp.asarray(features)])

    def absolute_sums(self, weights: RowArray) -> np.ndarray:
        return self._host(self._transposed(self.placed(weights), SIZE))

    def row_scores(self, scale: np.ndarray) -> RowArray:
        found = self.xp.empty((self.n, 1))
        self._times_few(self._small(scale)[:, None], found, SQUARE)
        return found[:, 0]

    def nonzeros(self) -> np.ndarray:
        if self.is_sparse:
            return super().nonzeros()
        blocks = self._transposed_ranges[1]
        sums = partial_sums(blocks * self.d)
        self._sum_dense(NOWHERE, sums, 1, NONZERO)
        return totals(sums, blocks, self.d).astype(np.intp)

    # Passes ----------------------------------------------------------------------------------------------------------

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        forms = target.forms
        kinds: list[Any] = [type(form.loss) if form.loss.columns == 1 else None for form in forms]
        known = [None if kind is None else cuda_translation.translated(kind) for kind in kinds]
        if not known or None in known or not (self.is_sparse or (len(known) == 1 and self._fuses)):
            return super().evaluate(W, b, target, vectors)
        if not self.is_sparse:
            return self._dense_pass(W[0], b[0], forms[0], known[0], vectors[0])
        found = [self._sparse_pass(*each) for each in zip(W, b, forms, known, vectors, strict=True)]
        values, gradients, slopes, margins, kept = zip(*found, strict=True)
        columns = [each for each in kept if each is not None]
        return Evaluation(
            np.array(values),
            gradients[0] if len(gradients) == 1 else np.concatenate(gradients),
            np.concatenate(slopes),
            margins[0][:, None] if len(margins) == 1 else self.xp.stack(margins, axis=1),
            (columns[0] if len(columns) == 1 else self.xp.concatenate(columns)).T if columns else None,
        )

    def _given(
        self, form: RowForm, translation: Any, rows: RowVectors
    ) -> tuple[dict[str, int], tuple[Any, ...], RowArray | None]:
        """Return the constants of a kernel, its arguments for the vectors of the rows, and the vectors kept (a row each)."""
        base = 1 + form.direction
        factors, kept = base * (1 + form.thirds), base * form.dual
        constants = {"FACTORS": factors, "KEPT": kept, "THIRDS": int(form.thirds), "BASE": base}
        places = [NOWHERE if each is None else self._small(each) for each in rows]
        parameters = numbers(self.number, *cuda_translation.parameters_of(form.loss, translation))
        held = self.xp.empty((kept, self.n)) if kept else None
        return constants, (*places, parameters, NOWHERE if held is None else held), held

    def _sparse_pass(
        self, w: np.ndarray, b: float, form: RowForm, translation: Any, rows: RowVectors
    ) -> tuple[float, np.ndarray, np.ndarray, RowArray, RowArray | None]:
        """Return value, gradients, sums of factors, margins and vectors kept (a row each) of one model."""
        constants, (*given, keep), held = self._given(form, translation, rows)
        margins, factors = self._margins(w, float(b)), constants["FACTORS"]
        R = self.xp.empty((self.n, factors))
        step, blocks = ranges(self.n, 4 * self.blocks, THREADS)
        sums = partial_sums(blocks * (1 + factors))
        kernel = kernel_of("of_rows", translation.source + cuda_source.OF_ROWS, **constants)
        arguments = margins, *given, keep, R, sums, np.int64(self.n), np.int64(step)
        kernel((blocks,), (THREADS,), arguments)
        found = promised(sums, blocks, 1 + factors)
        gradients = self._as_given(self._transposed(R).T, w)  # started before the GPU is waited for
        total = found()
        return float(total[0]), gradients, total[1:], margins, held

    def _margins(self, w: Any, b: float) -> RowArray:
        """A w + b of sparse rows; at w = 0, where runs start, without reading them."""
        # Whether an array on the GPU is zero is known by its memory, since a test would wait for the GPU in each pass.
        if w.data.ptr == self.zero_features.data.ptr if is_elsewhere(w) else not w.any():
            return self.xp.full(self.n, b)
        margins = self._times(self._small(w))
        return margins + b if b else margins

    def _dense_pass(self, w: np.ndarray, b: float, form: RowForm, translation: Any, rows: RowVectors) -> Evaluation:
        """Read X once."""
        constants, (*given, keep), held = self._given(form, translation, rows)
        d, factors, shape = self.d, constants["FACTORS"], self._pass_form
        kernel = _pass_kernel(translation, _real(self.matrix.dtype), shape, self.number, *constants.items())
        (step, blocks), width = self._pass_ranges, 1 + factors + factors * d
        sums, margins = partial_sums(blocks * width), self.xp.empty((self.n, 1))
        arguments = (
            self.matrix, sent(w), np.float64(b), *given, margins, keep, sums, np.int64(self.n), np.int32(d), np.int64(step),
        )  # fmt: skip
        kernel((blocks,), (THREADS,), arguments, shared_mem=shape.shared)
        total = totals(sums, blocks, width)
        gradients = total[1 + factors :].reshape(factors, d)
        return Evaluation(total[:1], gradients, total[1 : 1 + factors], margins, None if held is None else held.T)

    @cached_property
    def _pass_form(self) -> PassForm:
        """How the threads of a block share the rows of a dense pass."""
        shared = limit(self.number, "MaxSharedMemoryPerMultiprocessor") // PASS_BLOCKS - UNSHARED
        return PassForm.of(self.d, self.matrix.dtype.itemsize, shared)

    @cached_property
    def _pass_ranges(self) -> tuple[int, int]:
        """The rows of a block of threads in a dense pass, and the number of blocks."""
        return ranges(self.n, PASS_BLOCKS * self.processors, self._pass_form.rows * self._pass_form.teams)

    @cached_property
    def _transposed_ranges(self) -> tuple[int, int]:
        """The same for the product of dense rows with Aᵀ."""
        return ranges(self.n, max(1, 4 * self.blocks // -(-self.d // THREADS)))

    @cached_property
    def additions(self) -> int:
        if self.is_sparse:  # zeros, which are not stored, add no error
            tiles = self.transposed_tiles
            if tiles is not None:  # sums of ranges of the rows are added
                return tiles.longest + tiles.shape.ranges
            return sum(int(self.xp.diff(transposed.indptr).max()) for _, transposed in self.transposed)
        # A row is added to the sum of its block, whose threads have up to THREADS sums, and that to those of the blocks.
        kernels = (self._transposed_ranges, *([self._pass_ranges] if self._fuses else []))
        return max(step + THREADS + blocks for step, blocks in kernels)

    @cached_property
    def _fuses(self) -> bool:
        """Whether a pass may read dense rows once: a thread has few columns, and the shared memory of a block holds the tiles."""
        return self.d <= THREADS * MOST_COLUMNS and self._pass_form.shared <= _most_shared(self.number)

    # Weighted Gram matrices ------------------------------------------------------------------------------------------

    def _gram(self, weights: RowArray, rows: Selection | None, *, intercept: bool, single: bool) -> Any:
        if self.is_sparse:
            return super()._gram(weights, rows, intercept=intercept, single=single)
        if cuda_gram.multiplies(self.number, self.d + intercept):
            return cuda_gram.gram(self.number, self.matrix, weights, rows, intercept=intercept)
        return cuda_gram.product(self.number, self.matrix, weights, rows, intercept=intercept, single=single)

    def _weighted_sum(self, weights: RowArray, rows: Selection | None) -> Any:
        if rows is None:
            return self._transposed(weights)
        spread = self.xp.zeros(self.n)
        spread[rows] = weights
        return self._transposed(spread)


def _sparse_times(A: Any, W: Any, Z: Any, blocks: int, entry: str = ENTRY, *, add: bool = False) -> None:
    """Z = f(A) W for a CSR matrix and a function f of each entry; Z += f(A) W if ``add``."""
    length, K = A.nnz / A.shape[0], W.shape[1]
    kernel = kernel_of(
        "csr_times",
        cuda_source.CSR_TIMES,
        REAL=_real(A.dtype),
        K=K,
        LANES=max((lanes for lanes in LANES if 2 * lanes <= length), default=LANES[0]),
        INDEX="int" if A.indptr.dtype.itemsize == 4 else "long long",
        TOGETHER=TOGETHER if K == 1 else 1,
        ENTRY=entry,
    )
    indices = A.indices if A.indices.dtype.itemsize == 4 else A.indices.astype(np.int32)
    kernel((8 * blocks,), (THREADS,), (A.data, indices, A.indptr, W, Z, np.int64(A.shape[0]), np.int32(add)))


def as_data(X: Any) -> Data:
    """Return data on the GPU."""
    return as_cuda(X)
