"""Rows on a device (a GPU): an array or a CSR matrix of a library whose functions are NumPy's, such as CuPy.

Row arrays are arrays of the device. This class computes by the library's own functions, in chunks of rows that are converted to
float64, and thus specifies the results of every kind of data on a device; ``cuda.py`` has faster kernels for most of it. The
tests run this class on the CPU, on arrays that behave like CuPy's.

Equal calls return equal bits: sums are added in an order that depends on sizes alone, and rows are drawn by whole numbers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton._cached import cached_property
from dualnewton.matrix.grams import pair_multiples
from dualnewton.matrix.protocol import Capabilities, Data, Evaluation, Profile, Rows, RowVectors, Target, Work
from dualnewton.matrix.selections import Selection
from dualnewton.row_arrays import RowArray, column_sums, is_elsewhere, on_host
from dualnewton.validation import frozen

CHUNK = 1 << 27
"""Number of entries that are converted to float64 at a time (1 GiB)."""

FEW = 200
"""Largest number of features for which a Gram matrix is factorised on the host, which is faster."""

HEAD = 128
"""Rows that are searched for each required nonzero entry of a feature: dense features are expected to have them there."""

HASHED = 1 << 24
"""Bytes that are copied to the host and hashed at a time (16 MiB)."""

MIXED = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
"""The constants of SplitMix64 (Steele, Lea and Flood, 2014): the step of its whole numbers, and two factors."""

RESOLUTION = float(1 << 62)
"""Total of the whole numbers by which rows are drawn. Their sums are exact in any order of addition."""


@dataclass(frozen=True)
class Namespace:
    """A library of arrays on a device."""

    xp: Any  # has NumPy's functions, for arrays of the device
    # Whether a matrix of the library is sparse, in which case it is CSR.
    is_sparse: Any = lambda matrix: False  # noqa: ARG005


class FewRows:
    """Some rows on a device, or their transpose, as the left factor of products."""

    def __init__(
        self,
        data: DeviceData,
        *,
        transposed: bool = False,  # whether products are with Aᵀ instead of A
    ) -> None:
        self.data, self.transposed = data, transposed

    @property
    def T(self) -> FewRows:
        """The transpose."""
        return FewRows(self.data, transposed=not self.transposed)

    def __matmul__(self, v: Any) -> Any:
        """A v as a NumPy array for a vector v on the device, or Aᵀ v on the device for a NumPy array v."""
        return self.data._transposed(self.data._small(v)) if self.transposed else on_host(self.data._times(v))


class DeviceData(Data):
    """Rows on a device. Vectors with an entry per row may also be given as NumPy arrays; those returned are on the device."""

    capabilities = Capabilities(
        random_rows=False, whole=False, local=False, reason="the data are on a device, which reads its rows in order"
    )

    many = 1 << 16
    """Number of features above which methods keep their vectors on the device. With fewer, launching a kernel takes longer
    than the operation takes on the host."""

    def __init__(
        self,
        X: Any,  # (n, d) rows, of float32 or float64
        namespace: Namespace,  # library that X belongs to
    ) -> None:
        self.matrix, self.namespace, self.xp = X, namespace, namespace.xp
        self.is_sparse = bool(namespace.is_sparse(X))
        # ‖a_i‖² of some rows, by the ends and the step of their slice.
        self.known_norms: dict[Any, np.ndarray] = {}

    @cached_property
    def profile(self) -> Profile:  # type: ignore[override]
        """Size and sparsity, computed at the first access."""
        (n, d), itemsize = self.matrix.shape, self.matrix.dtype.itemsize
        if not self.is_sparse:
            return Profile(n, d, n * d, 0.5 * n * d * d, False, itemsize, on_gpu=True)
        lengths = self._lengths()
        return Profile(n, d, int(self.matrix.nnz), 0.5 * float(lengths @ lengths), True, itemsize, on_gpu=True)

    def _lengths(self) -> RowArray:
        """Return the number of stored entries of each row."""
        indptr = self.matrix.indptr
        return (indptr[1:] - indptr[:-1]).astype(np.float64)

    def like(self, X: Any) -> DeviceData:
        """Return data of the same kind with other rows."""
        return type(self)(X, self.namespace)

    # Identity --------------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for array in self._arrays():
            step = max(1, HASHED // max(1, array[:1].nbytes))
            for low in range(0, len(array), step):
                digest.update(np.ascontiguousarray(on_host(array[low : low + step])).data)
        storage = " csr" if self.is_sparse else ""
        return f"{self.n}x{self.d} {self.matrix.dtype}{storage} {digest.hexdigest()}"

    def _arrays(self) -> list[Any]:
        """Return the arrays of the device that hold the entries."""
        return [self.matrix.data, self.matrix.indices, self.matrix.indptr] if self.is_sparse else [self.matrix]

    def same_as(self, other: Data) -> bool:
        return self is other or self.matrix is getattr(other, "matrix", None)

    def with_constant(self, value: float) -> DeviceData:
        if self.is_sparse:
            raise TypeError("a constant column is appended to dense rows only")
        column = self.xp.full((self.n, 1), value, dtype=self.matrix.dtype)
        return self.like(self.xp.concatenate([self.matrix, column], axis=1))

    def with_features(self, features: np.ndarray) -> DeviceData:
        some = self.matrix[:, self.xp.asarray(features)]
        return self.like(some if self.is_sparse else self.xp.ascontiguousarray(some))

    def using(self, work: Work) -> DeviceData:  # noqa: ARG002 (there is one way only)
        return self

    # Row arrays ------------------------------------------------------------------------------------------------------

    def placed(self, values: RowArray) -> RowArray:
        return self.xp.asarray(values)

    def ones(self) -> RowArray:
        return self.xp.ones(self.n)

    def entries(self, values: RowArray, rows: Any) -> np.ndarray:
        return np.asarray(on_host(values[rows if isinstance(rows, slice) else self.xp.asarray(rows)]))

    def take(self, values: RowArray, rows: Selection) -> RowArray:
        return values if rows.size == self.n else self.xp.take(values, self.xp.asarray(rows), axis=0)

    def changed(self, values: RowArray, others: RowArray) -> Selection:
        return self.xp.flatnonzero(values != others)

    def active(self, weights: RowArray) -> Selection:
        found = self.xp.flatnonzero(weights != 0.0)
        return found if found.size else self.xp.zeros(1, dtype=np.intp)

    def strata(self, rng: np.random.Generator, size: int) -> Selection:
        # Random numbers of the host would take six times as long as the gathering of the rows: 9 ms for a million.
        ends = self.xp.arange(size + 1) * self.n // size
        firsts, lengths = ends[:-1], ends[1:] - ends[:-1]
        return firsts + (self._mixed(int(rng.integers(1 << 63)), size) * lengths).astype(np.intp)

    def _mixed(self, seed: int, size: int) -> Any:
        """Return random numbers in [0, 1) on the device: whole numbers in order, mixed by the function of SplitMix64."""
        x = self.xp.arange(1, size + 1, dtype=np.uint64) * MIXED[0] + np.uint64(seed)
        for shift, factor in ((30, MIXED[1]), (27, MIXED[2])):
            x = (x ^ (x >> np.uint64(shift))) * factor
        return ((x ^ (x >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def draw(
        self, rng: np.random.Generator, weights: RowArray, size: int, scores: RowArray | None = None
    ) -> tuple[Selection, RowArray]:
        active = self.active(weights)
        if active.size <= size:
            return active, self.take(weights, active)
        chances = self.take(weights if scores is None else weights * scores, active)
        total = float(chances.sum())
        ends = self.xp.cumsum((chances * (RESOLUTION / total)).astype(np.int64))
        points = (self.xp.asarray(np.arange(size) + rng.random(size)) * (float(ends[-1]) / size)).astype(np.int64)
        # The first index at which the sum exceeds a point: rows of probability zero are never drawn.
        places = np.minimum(self.xp.searchsorted(ends, points, side="right"), active.size - 1)
        # A row that was drawn several times is taken once, with the sum of its weights.
        firsts = self.xp.concatenate(
            [self.xp.zeros(1, dtype=np.intp), 1 + self.xp.flatnonzero(places[1:] != places[:-1])]
        )
        ends = self.xp.concatenate([firsts[1:], self.xp.asarray([size])])
        drawn, scaled = active[places[firsts]], (ends - firsts) * (total / size)
        return drawn, scaled if scores is None else scaled / scores[drawn]

    def dominant(self, weights: RowArray, norms: RowArray, size: int, few: int) -> tuple[Selection, np.ndarray | None]:
        active = self.active(weights)
        order = active[self.xp.argsort(-(self.take(weights, active) * self.take(norms, active)), kind="stable")]
        chosen, others = self.xp.sort(order[:size]), order[size:]
        places = np.linspace(0, others.size - 1, min(few, others.size)).astype(int)
        return chosen, np.sort(on_host(others[self.xp.asarray(places)])) if few else None

    def subset(self, rows: Selection) -> DeviceData:
        return self.like(self.matrix[self.xp.asarray(rows)])

    # Vectors over features -------------------------------------------------------------------------------------------

    def feature_array(self, x: np.ndarray) -> Any:
        if self.d < self.many:
            return np.ascontiguousarray(x)
        if type(x) is not np.ndarray or any(x.strides):
            return self._small(x)
        number = float(x[0])  # equal numbers, which are made on the device
        return self.zero_features if number == 0.0 and x.size == self.d else self.xp.full(x.size, number)

    @cached_property
    def zero_features(self) -> Any:
        """Zeros on the device, one for each feature, which nobody changes: a model in this memory is known to be zero."""
        return self.xp.zeros(self.d)

    def as_factor(self, rows: Any, indices: Rows, diagonal: Any) -> Any:  # noqa: ARG002
        return rows if self.d < self.many else FewRows(self if isinstance(indices, slice) else self.subset(indices))

    # Chunks of rows as float64 ---------------------------------------------------------------------------------------

    def _chunks(self, rows: Selection | None = None, width: int = 1) -> Iterator[tuple[slice, Any]]:
        """Yield slices of some rows, all by default, together with these rows as float64; ``width`` numbers are made of each."""
        size = self.n if rows is None else int(rows.size)
        step = max(1, CHUNK * self.n // max(1, width * self.profile.stored))
        for low in range(0, size, step):
            part = slice(low, min(low + step, size))
            if rows is None and step >= size:
                yield part, _wide(self.matrix)
            else:
                yield part, _wide(self.matrix[part] if rows is None else self.matrix[rows[part]])

    def _host(self, array: Any) -> np.ndarray:
        """Return a result as a NumPy array in C order that may be written."""
        return np.require(on_host(array), requirements=("C", "W"))

    def _small(self, array: Any) -> Any:
        """Return a NumPy array on the device, or an array of the device, as float64 in C order."""
        return self.xp.ascontiguousarray(self.xp.asarray(array, dtype=np.float64))

    def _as_given(self, gradients: Any, W: Any) -> Any:
        """Return gradients on the device if the model W is there, else as NumPy arrays."""
        return gradients if is_elsewhere(W) else self._host(gradients)

    # Products --------------------------------------------------------------------------------------------------------

    def times(self, w: np.ndarray) -> RowArray:
        return self._times(self._small(w))

    def _times(self, w: Any) -> RowArray:
        """A w for an array of the device."""
        found = [rows @ w for _, rows in self._chunks()]
        return found[0] if len(found) == 1 else self.xp.concatenate(found)

    def _transposed(self, R: RowArray) -> Any:
        """Aᵀ R on the device, for a row array R."""
        return self._sum(rows.T @ R[part] for part, rows in self._chunks())

    @staticmethod
    def _sum(parts: Iterator[Any]) -> Any:
        total = next(parts)
        for part in parts:
            total = total + part
        return total

    def transposed_times(self, v: RowArray) -> np.ndarray:
        return self._host(self._transposed(self.placed(v)))

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        Z = self._times(self._small(W.T)) + self._small(b)
        found = target.losses([each.placed(self.placed) for each in vectors], Z)
        gradients = self._as_given(self._transposed(found.factors).T, W)
        return Evaluation(found.values, gradients, self._host(column_sums(found.factors)), Z, found.kept)

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: RowArray) -> tuple[np.ndarray, np.ndarray]:
        U = self.placed(weights) * (self._times(self._small(V.T)) + self._small(v))
        return self._as_given(self._transposed(U).T, V), self._host(column_sums(U))

    def weighted_gram(
        self,
        weights: RowArray,
        indices: Selection | None = None,
        *,
        intercept: bool = False,
        single: bool = False,
        keep: bool = False,
    ) -> Any:
        rows = None if indices is None or indices.size == self.n else self.xp.asarray(indices)
        H = self._gram(self.placed(weights), rows, intercept=intercept, single=single)
        return H if keep and self.d > FEW else self._host(H)

    def _gram(self, weights: RowArray, rows: Selection | None, *, intercept: bool, single: bool) -> Any:  # noqa: ARG002
        """Σ_s weights_s ã_s ã_sᵀ on the device."""
        H = self._sum(self._dense(own.T @ self._scaled(own, weights[part])) for part, own in self._chunks(rows))
        if not intercept:
            return H
        whole, d = self.xp.empty((self.d + 1, self.d + 1)), self.d
        whole[:d, :d], whole[d, d] = H, weights.sum()
        whole[:d, d] = whole[d, :d] = self._weighted_sum(weights, rows)
        return whole

    def _weighted_sum(self, weights: RowArray, rows: Selection | None) -> Any:
        """Σ_s weights_s a_s on the device."""
        return self._sum(own.T @ weights[part] for part, own in self._chunks(rows))

    def coupled_gram(
        self,
        weights: Sequence[RowArray],
        classes: int,
        *,
        intercept: bool = False,
        single: bool = False,
        negligible: float = 0.0,
        keep: bool = False,
    ) -> Any:
        # All pairs in one product, since calls for each pair would take longer than their arithmetic; no row is left out.
        if self.is_sparse:
            return super().coupled_gram(
                weights, classes, intercept=intercept, single=single, negligible=negligible, keep=keep
            )
        xp, K, pairs, m = self.xp, classes, len(weights), self.d + intercept
        each = xp.stack([self.placed(own) for own in weights], axis=1)

        def product(part: slice, rows: Any) -> Any:
            if intercept:
                rows = xp.concatenate([rows, xp.ones((len(rows), 1))], axis=1)
            return rows.T @ (each[part][:, :, None] * rows[:, None, :]).reshape(len(rows), pairs * m)

        S = self._sum(product(part, rows) for part, rows in self._chunks(width=pairs))
        S = S.reshape(m, pairs, m).transpose(1, 0, 2).reshape(pairs, m * m)
        H = (self._small(pair_multiples(K)) @ S).reshape(K, K, m, m)
        H = xp.ascontiguousarray(H.transpose(0, 2, 1, 3))
        return H if keep and K * m > FEW else self._host(H)

    def _scaled(self, rows: Any, weights: RowArray) -> Any:
        """Return rows, each times its weight."""
        return rows.multiply(weights[:, None]).tocsr() if self.is_sparse else weights[:, None] * rows

    def _dense(self, matrix: Any) -> Any:
        return matrix.toarray() if self.is_sparse else matrix

    def _squared(self, rows: Any) -> Any:
        return rows.power(2) if self.is_sparse else np.square(rows)

    def moments(
        self, weights: RowArray, targets: RowArray, origin: np.ndarray, indices: Selection | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        rows = None if indices is None else self.xp.asarray(indices)
        weights, targets = self.placed(weights), self.placed(targets)
        weighted = np.concatenate([weights[:, None] * targets, weights[:, None]], axis=1)
        shift, d, shifted = self._small(origin), self.d, bool(origin.any())
        H, sums = np.zeros((d + 1, d + 1)), np.zeros((d + 1, weighted.shape[1]))
        for part, own in self._chunks(rows):
            own = (self._dense(own) - shift) if shifted else own
            scaled = weights[part][:, None] * own if shifted else self._scaled(own, weights[part])
            product = own.T @ scaled
            H[:d, :d] += self._host(product if shifted else self._dense(product))
            sums[:d] += self._host(own.T @ weighted[part])
        sums[d] = self._host(weighted.sum(axis=0))
        H[d], H[:, d] = sums[:, -1], sums[:, -1]
        return H, sums[:, :-1]

    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        rows = self._gathered(indices)
        return self._host(self._dense((rows if scale is None else rows * self._small(scale)) @ rows.T))

    def column_norms(self, weights: RowArray, features: np.ndarray | None = None) -> np.ndarray:
        weights = self.placed(weights)
        norms = self._host(self._sum(self._squared(rows).T @ weights[part] for part, rows in self._chunks()))
        return norms if features is None else norms[features]

    def absolute_sums(self, weights: RowArray) -> np.ndarray:
        weights = self.placed(weights)
        return self._host(self._sum(abs(rows).T @ weights[part] for part, rows in self._chunks()))

    def row_scores(self, scale: np.ndarray) -> RowArray:
        by = self._small(scale)
        return self.xp.concatenate([self._squared(rows) @ by for _, rows in self._chunks()])

    def squared_norms(self, rows: slice) -> np.ndarray:
        # Kept, since the plans of all problems on these data ask for the same rows, which takes up to a millisecond.
        place = rows.start, rows.stop, rows.step
        if place not in self.known_norms:
            self.known_norms[place] = frozen(self._squared_norms(rows))
        return self.known_norms[place]

    def _squared_norms(self, rows: slice) -> np.ndarray:
        if self.is_sparse:
            return super().squared_norms(rows)
        return self._host(self.like(self.xp.ascontiguousarray(self.matrix[rows])).row_scores(np.ones(self.d)))

    def nonzeros(self) -> np.ndarray:
        if self.is_sparse:
            return self._host(self.xp.bincount(self.matrix.indices, minlength=self.d))
        step = max(1, CHUNK // self.d)
        parts = (self.matrix[low : low + step] != 0.0 for low in range(0, self.n, step))
        return self._host(self._sum(column_sums(part.astype(np.float64)) for part in parts)).astype(np.intp)

    def has_each(self, least: int) -> bool:
        some = HEAD * least  # dense features mostly have as many in these rows, without a read of all
        if not self.is_sparse and some < self.n and self.like(self.matrix[:some]).has_each(least):
            return True
        return super().has_each(least)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _gathered(self, indices: Rows) -> Any:
        return _wide(self.matrix[indices if isinstance(indices, slice) else self.xp.asarray(indices)])

    def rows(self, indices: Rows) -> Any:
        if self.is_sparse:
            return sp.csr_array(self._gathered(indices).get())
        some = self.matrix[indices if isinstance(indices, slice) else self.xp.asarray(indices)]
        return self._host(self.xp.ascontiguousarray(some)).astype(np.float64, copy=False)  # half the bytes of float64

    def columns(self, features: np.ndarray) -> Any:
        some = _wide(self.matrix[:, self.xp.asarray(features)])
        return sp.csr_array(some.get().T) if self.is_sparse else self._host(some.T)


def _wide(rows: Any) -> Any:
    """Return rows as float64; they are not copied if they are."""
    return rows if rows.dtype == np.float64 else rows.astype(np.float64)
