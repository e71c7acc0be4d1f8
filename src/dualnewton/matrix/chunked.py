"""Data in pieces: one matrix whose rows are stored as a list of arrays or CSR arrays, in memory or memory-mapped.

A pass visits the pieces in order and adds their sums in order. Reading one random row may load a whole piece, so that dual
methods are not offered for such data; primal methods and certificates need only passes and a few sampled rows.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.protocol import Capabilities, Data, Evaluation, Profile, Rows, RowVectors, Target, Work
from dualnewton.matrix.workers import added
from dualnewton.validation import data_matrix


class ChunkedData(Data):
    """Rows that are stored in several pieces.

    Parameters
    ----------
    pieces : sequence of arrays or CSR arrays
        The rows, piece by piece. All pieces must have the same number of columns and be all sparse or all dense.
    """

    capabilities = Capabilities(
        random_rows=False,
        whole=False,
        subsets=False,
        reason="the data are stored in pieces, which are read one after the other",
    )

    def __init__(self, pieces: Sequence[Any]) -> None:
        matrices = [data_matrix(f"pieces[{k}]", piece) for k, piece in enumerate(pieces)]
        if not matrices:
            raise DualnewtonError("pieces must hold at least one matrix, got none")
        for k, matrix in enumerate(matrices):
            if matrix.shape[1] != matrices[0].shape[1]:
                wanted, seen = matrices[0].shape[1], matrix.shape[1]
                raise DualnewtonError(
                    f"pieces must have the same columns: pieces[0] has {wanted}, pieces[{k}] has {seen}"
                )
            if sp.issparse(matrix) != sp.issparse(matrices[0]):
                raise DualnewtonError(f"pieces must all be sparse or all be dense: pieces[0] and pieces[{k}] differ")
        self._set(list(map(MemoryData, matrices)))

    def _set(self, pieces: list[MemoryData]) -> None:
        self.pieces = pieces
        profiles = [piece.profile for piece in pieces]
        self.profile = Profile(
            n=sum(each.n for each in profiles),
            d=profiles[0].d,
            stored=sum(each.stored for each in profiles),
            pairs=sum(each.pairs for each in profiles),
            sparse=profiles[0].sparse,
            itemsize=max(each.itemsize for each in profiles),
        )
        ends = np.cumsum([0, *(each.n for each in profiles)])
        self.places = [slice(int(low), int(high)) for low, high in itertools.pairwise(ends)]

    @classmethod
    def _of(cls, pieces: list[MemoryData]) -> ChunkedData:
        made = cls.__new__(cls)
        made._set(pieces)
        return made

    def _visit(self) -> Iterator[tuple[slice, MemoryData]]:
        """Yield each piece with the slice of its rows."""
        return zip(self.places, self.pieces, strict=True)

    # Identity ----------------------------------------------------------------------------------------------------

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for piece in self.pieces:
            digest.update(piece.fingerprint().encode())
        return f"{self.n}x{self.d} in {len(self.pieces)} pieces {digest.hexdigest()}"

    def same_as(self, other: Data) -> bool:
        theirs = getattr(other, "pieces", [])
        return self is other or (len(self.pieces) == len(theirs) and all(map(MemoryData.same_as, self.pieces, theirs)))

    def with_constant(self, value: float) -> ChunkedData:
        return self._of([piece.with_constant(value) for piece in self.pieces])

    # Work --------------------------------------------------------------------------------------------------------

    def using(self, work: Work) -> ChunkedData:
        return self._of([piece.using(work) for piece in self.pieces])

    # Products ----------------------------------------------------------------------------------------------------

    def times(self, w: np.ndarray) -> np.ndarray:
        return np.concatenate([piece.times(w) for piece in self.pieces])

    def transposed_times(self, v: np.ndarray) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.transposed_times(v[rows]))

    def evaluate(self, W: np.ndarray, b: np.ndarray, target: Target, vectors: Sequence[RowVectors]) -> Evaluation:
        found = [piece.evaluate(W, b, target, [each.part(rows) for each in vectors]) for rows, piece in self._visit()]
        values, gradients, slopes = added([(each.values, each.gradients, each.slopes) for each in found])
        kept = [each.kept for each in found if each.kept is not None]
        margins = np.concatenate([each.margins for each in found])
        return Evaluation(values, gradients, slopes, margins, np.concatenate(kept) if kept else None)

    def weighted_products(self, V: np.ndarray, v: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        result, sums = added([piece.weighted_products(V, v, weights[rows]) for rows, piece in self._visit()])
        return result, sums

    def weighted_gram(
        self, weights: np.ndarray, indices: np.ndarray | None = None, *, intercept: bool = False, single: bool = False
    ) -> np.ndarray:
        indices = np.arange(self.n) if indices is None else indices
        total: np.ndarray = np.zeros((self.d + intercept, self.d + intercept))
        for places, own, piece in self._shares(indices):
            total += piece.weighted_gram(weights[places], own, intercept=intercept, single=single)
        return total

    def moments(
        self, weights: np.ndarray, targets: np.ndarray, origin: np.ndarray, indices: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        shares = self._shares(np.arange(self.n) if indices is None else indices)
        nothing = np.zeros((self.d + 1, self.d + 1)), np.zeros((self.d + 1, targets.shape[1]))
        found = [piece.moments(weights[own], targets[own], origin, rows) for own, rows, piece in shares]
        H, cross = added([nothing, *found])
        return H, cross

    def row_gram(self, indices: Rows = slice(None), scale: np.ndarray | None = None) -> np.ndarray:
        return linear.gram(self.rows(indices), scale)

    def column_norms(self, weights: np.ndarray, features: np.ndarray | None = None) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.column_norms(weights[rows], features))

    def absolute_sums(self, weights: np.ndarray) -> np.ndarray:
        return self._sum(lambda rows, piece: piece.absolute_sums(weights[rows]))

    def row_scores(self, scale: np.ndarray) -> np.ndarray:
        return np.concatenate([piece.row_scores(scale) for piece in self.pieces])

    def nonzeros(self) -> np.ndarray:
        return np.sum([piece.nonzeros() for piece in self.pieces], axis=0)

    def _sum(self, part: Callable[[slice, MemoryData], np.ndarray]) -> np.ndarray:
        ((total,)) = added([(part(rows, piece),) for rows, piece in self._visit()])
        return total

    # Parts -------------------------------------------------------------------------------------------------------

    def rows(self, indices: Rows) -> Any:
        if isinstance(indices, slice):
            indices = np.arange(self.n)[indices]
        found = [piece.rows(own) for _, own, piece in self._shares(indices)]
        return linear.stacked(found, dense=not self.profile.sparse)

    def columns(self, features: np.ndarray) -> Any:
        found = [piece.columns(features) for piece in self.pieces]
        return linear.stacked(found, dense=not self.profile.sparse, axis=1)

    def _shares(self, indices: np.ndarray) -> Iterator[tuple[slice, np.ndarray, MemoryData]]:
        """Yield, for each piece with some of the rows, the slice of ``indices``, the indices within the piece, and the piece."""
        ends = np.searchsorted(indices, [rows.stop for rows in self.places])
        low = 0
        for (rows, piece), high in zip(self._visit(), ends, strict=True):
            if high > low:
                yield slice(low, high), indices[low:high] - rows.start, piece
            low = high
