"""Data in pieces: one matrix whose rows are stored as a list of arrays or CSR arrays, in memory or in files.

A pass visits the pieces in order and adds their sums in order. Pieces of files are read by one thread ahead of the arithmetic,
which uses all threads of the run. Reading one random row may load a whole piece, so that dual methods are not offered for these
data; primal methods and certificates need only passes and a few sampled rows.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.pieces import Pieces
from dualnewton.matrix.protocol import Capabilities, Data, Evaluation, Profile, Rows, RowVectors, Target, Work
from dualnewton.matrix.segments import Held, Segment
from dualnewton.matrix.workers import added
from dualnewton.row_arrays import on_host
from dualnewton.validation import data_matrix

Share = tuple[slice, np.ndarray | None, Any]
"""Positions of the rows of a piece among those requested, their indices within it (None if it has no others), and the piece."""


@dataclass(frozen=True, eq=False)
class View:
    """The transformation of a piece after reading."""

    work: Work = Work()  # noqa: RUF009 (frozen)
    constant: float | None = None  # value of an appended constant column
    # Columns that are used, in this order, including the constant one; all by default.
    features: np.ndarray | None = None

    def of(self, matrix: linear.Matrix) -> MemoryData:
        """Return the piece."""
        if self.constant is not None:
            matrix = linear.with_constant(matrix, self.constant)
        if self.features is not None:
            matrix = matrix[:, self.features] if sp.issparse(matrix) else matrix.take(self.features, axis=1)
        return MemoryData(matrix, self.work)

    def profile(self, stored: Profile) -> Profile:
        """Return the profile of all rows, given that of the rows as stored; for some columns, estimated from the mean column."""
        found = stored if self.constant is None else stored.with_constant()
        if self.features is None:
            return found
        d, share = self.features.size, self.features.size / found.d
        return replace(found, d=d, stored=int(share * found.stored), pairs=share**2 * found.pairs)

    def has_columns_of(self, other: View) -> bool:
        """Whether another view has the same columns."""
        return self.constant == other.constant and np.array_equal(
            self.features if self.features is not None else [], other.features if other.features is not None else []
        )


class ChunkedData(Data):
    """Rows that are stored in several pieces. All have the same number of columns, and are all sparse or all dense."""

    capabilities = Capabilities(
        random_rows=False,
        whole=False,
        reason="the data are stored in pieces, which are read one after the other",
    )

    def __init__(self, pieces: Sequence[Any]) -> None:
        matrices = [data_matrix(f"pieces[{k}]", piece) for k, piece in enumerate(pieces)]
        self._set(Pieces([Held(matrix, k) for k, matrix in enumerate(matrices)]), View())

    def _set(self, source: Pieces, view: View) -> ChunkedData:
        self.source, self.profile = source, view.profile(source.profile)
        self.view = replace(view, work=replace(view.work, whole=self.profile.stored))
        return self

    @classmethod
    def of(cls, segments: Sequence[Segment], gathered: float = math.inf) -> ChunkedData:
        """Return the rows of these segments, which are checked when they are read for the first time.

        ``gathered`` is the largest number of entries of a sample that a method may gather.
        """
        made = cls.__new__(cls)._set(Pieces(segments), View())
        made.capabilities = replace(cls.capabilities, gathered=gathered)
        return made

    def _viewed(self, **changes: Any) -> ChunkedData:
        """Return the same pieces with another view."""
        made = type(self).__new__(type(self))
        made.capabilities = self.capabilities
        return made._set(self.source, replace(self.view, **changes))

    # Identity ----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        with self._shares() as shares:
            for _, _, piece in shares:
                digest.update(piece.fingerprint().encode())
        return f"{self.n}x{self.d} in {len(self.source.rows)} pieces {digest.hexdigest()}"

    def same_as(self, other: Data) -> bool:
        theirs: Any = other if isinstance(other, ChunkedData) else None
        if theirs is None or not self.view.has_columns_of(theirs.view):
            return False
        return self.source is theirs.source or self.source.identity() == theirs.source.identity()

    def with_constant(self, value: float) -> ChunkedData:
        if self.view.constant is not None:
            raise DualnewtonError("with_constant must be called once, these rows have a constant column already")
        return self._viewed(constant=value)

    def with_features(self, features: np.ndarray) -> ChunkedData:
        return self._viewed(features=features if self.view.features is None else self.view.features[features])

    # Work --------------------------------------------------------------------------------------------------------

    def using(self, work: Work) -> ChunkedData:
        # Making rows dense after each read would take longer than using them sparse.
        return self._viewed(work=replace(work, dense=False))

    # Products ----------------------------------------------------------------------------------------------------

    def times(self, w: np.ndarray) -> np.ndarray:
        products = np.empty((self.n, *w.shape[1:]))
        with self._computing() as shares:
            for rows, _, piece in shares:
                products[rows] = on_host(piece.times(w))
        return products

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.transposed_times(v[rows]))

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        # The entries of one column are contiguous, as those of data in memory.
        margins, kept = np.empty((len(W), self.n)).T, np.empty((0, self.n)).T

        def part(rows: slice, piece: Data) -> tuple[np.ndarray, ...]:
            nonlocal kept
            found = piece.evaluate(W, b, target, [each.part(rows) for each in vectors])
            margins[rows] = on_host(found.margins)
            if found.kept is not None:
                kept = kept if kept.size else np.empty((found.kept.shape[1], self.n)).T
                kept[rows] = on_host(found.kept)
            return found.values, found.gradients, found.slopes

        values, gradients, slopes = self._sums(part)
        return Evaluation(values, gradients, slopes, margins, kept if kept.size else None)

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result, sums = self._sums(lambda rows, piece: piece.weighted_products(V, v, weights[rows]))
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
        total: np.ndarray = np.zeros((self.d + intercept, self.d + intercept))
        with self._computing(indices) as shares:
            for own, some, piece in shares:
                total += piece.weighted_gram(weights[own], some, intercept=intercept, single=single)
        return total

    def moments(
        self, weights: np.ndarray, targets: np.ndarray, origin: np.ndarray, indices: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        H, cross = np.zeros((self.d + 1, self.d + 1)), np.zeros((self.d + 1, targets.shape[1]))
        with self._computing(indices) as shares:
            for own, some, piece in shares:
                found = piece.moments(weights[own], targets[own], origin, some)
                H += found[0]
                cross += found[1]
        return H, cross

    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        return linear.gram(self.rows(indices), scale)

    def column_norms(self, weights: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.column_norms(weights[rows], features))

    def absolute_sums(self, weights: np.ndarray) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.absolute_sums(weights[rows]))

    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        scores = np.empty(self.n)
        with self._computing() as shares:
            for rows, _, piece in shares:
                scores[rows] = on_host(piece.row_scores(scale))
        return scores

    def nonzeros(self) -> np.ndarray:
        return self._sum(lambda _, piece: piece.nonzeros())

    # Parts -------------------------------------------------------------------------------------------------------

    def rows(self, indices: Rows) -> Any:
        wanted = np.arange(self.n)[indices] if isinstance(indices, slice) else indices
        with self._shares(wanted) as shares:
            # A piece on disk is copied, since its buffer is reused for the next piece.
            found = [piece.rows(np.arange(piece.n) if some is None else some) for _, some, piece in shares]
        return linear.stacked(found, dense=not self.profile.sparse)

    def subset(self, rows: np.ndarray) -> Data:
        ((found, _),) = self.subsets([rows], [])
        return found

    def subsets(
        self, draws: Sequence[np.ndarray], arrays: Sequence[np.ndarray]
    ) -> Iterator[tuple[Data, list[np.ndarray]]]:
        union = draws[0] if len(draws) == 1 else np.unique(np.concatenate(draws))
        found: list[Any] = [[] for _ in draws]
        if not self.profile.sparse:  # rows are written to their places, in half the memory for float32 entries
            found = [np.empty((len(rows), self.d), self.dtype) for rows in draws]
        with self._shares(union) as shares:
            for own, some, piece in shares:
                for rows, kept in zip(draws, found, strict=True):
                    low, high = np.searchsorted(rows, [union[own][0], union[own][-1] + 1])
                    places = np.searchsorted(union[own], rows[low:high])
                    part = linear.some_rows(piece.X, places if some is None else some[places])
                    if self.profile.sparse:
                        kept.append(part.astype(np.float64, copy=False))
                    else:
                        kept[low:high] = part
        for rows, kept in zip(draws, found, strict=True):
            X = linear.stacked(kept, dense=False) if self.profile.sparse else kept
            yield self._separate(X), [self.take(each, rows) for each in arrays]

    def _separate(self, rows: linear.Matrix) -> Data:
        """Return some rows as data of their own."""
        return MemoryData(rows)

    def columns(self, features: np.ndarray) -> Any:
        with self._shares() as shares:
            found = [piece.columns(features) for _, _, piece in shares]
        return linear.stacked(found, dense=not self.profile.sparse, axis=1)

    # Pieces ------------------------------------------------------------------------------------------------------

    def _sum(self, part: Callable[[slice, Data], np.ndarray]) -> np.ndarray:
        """Add the results of all pieces, in order."""
        ((total,)) = self._sums(lambda rows, piece: (part(rows, piece),))
        return total

    def _sums(self, part: Callable[[slice, Data], tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
        """Add the tuples of results of all pieces, in order."""
        with self._computing() as shares:
            each = (part(rows, piece) for rows, _, piece in shares)
            return functools.reduce(lambda one, other: added([one, other]), each)

    def _computing(self, indices: np.ndarray | None = None) -> AbstractContextManager[Iterator[Share]]:
        """Open pieces, as :meth:`_shares` does, on the device that computes their sums: this process."""
        return self._shares(indices)

    @contextmanager
    def _shares(self, indices: np.ndarray | None = None) -> Iterator[Iterator[Share]]:
        """Open the pieces that have some of the rows (all pieces if None), each valid until the next is requested.

        Yields the slice of ``indices`` in the piece, the indices within the piece (None if it consists of the requested rows
        alone) and the piece.
        """
        wanted = self.source.wanted(indices)
        with self.source.reading(wanted) as found:
            yield ((each.own, some, self.view.of(matrix)) for each, (matrix, some) in zip(wanted, found, strict=True))
