"""All blocks of a file collected, after which the numbers of rows and columns are known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.io.arrays import vector_file
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.pieces import Maker, Pieces, Slices, cuts
from dualnewton.io.source import NO_INDEX, Rows, Source, SparseRows

NARROW = np.iinfo(np.int32).max
"""Largest index that an int32 can hold; larger matrices use int64 indices, which take twice the memory."""


class MixedLabelsError(Exception):
    """The labels of some blocks are numbers and those of others are text."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """The examples of a file in pieces, each of which can be read once."""

    shape: tuple[int, int]  # n and d
    X: Pieces  # dense blocks, or the stored values of sparse rows
    # For sparse rows: the column indices plus ``shift``, and the number of entries up to the end of each row.
    indices: Pieces | None = None
    ends: Pieces | None = None
    shift: int = 0
    y: Pieces | None = None
    sample_weight: Pieces | None = None
    offset: Pieces | None = None
    feature_names: tuple[str, ...] | None = None
    name: str = ""
    target: str | None = None

    @property
    def is_sparse(self) -> bool:
        """True if the rows are sparse."""
        return self.indices is not None

    @property
    def index_dtype(self) -> type:
        """The integer type of the indices: int32 if it suffices."""
        return np.int32 if max(self.shape[1], self.X.length) <= NARROW else np.int64

    def dataset(self) -> Dataset:
        """Return the whole data set in memory."""
        return Dataset(
            self._matrix(),
            None if self.y is None else self.y.joined(),
            sample_weight=None if self.sample_weight is None else self.sample_weight.joined(),
            offset=None if self.offset is None else self.offset.joined(),
            feature_names=self.feature_names,
            name=self.name,
            target=self.target,
        )

    def _matrix(self) -> Any:
        if self.indices is None or self.ends is None:
            return self.X.joined()
        import scipy.sparse as sp

        starts: np.ndarray = np.zeros(self.shape[0] + 1, dtype=self.index_dtype)
        starts[1:] = self.ends.joined()
        indices = self.indices.joined(self.index_dtype, self.shift)
        return sp.csr_array((self.X.joined(), indices, starts), shape=self.shape)

    def rows(self) -> Iterator[Rows]:
        """Yield the examples piece by piece, with column indices from zero."""
        before = 0
        beside = (self.indices, self.ends, self.y, self.sample_weight, self.offset)
        for X, indices, ends, *of_rows in zip(self.X.drain(), *map(_parts, beside), strict=False):
            if self.is_sparse:
                sparse = SparseRows(X, indices - self.shift, ends - before, 0, self.shape[1] - 1)
                before += len(X)
                yield Rows(sparse, *of_rows)
            else:
                yield Rows(X, *of_rows)


def _parts(pieces: Pieces | None) -> Iterator[Any]:
    return itertools.repeat(None) if pieces is None else pieces.drain()


def gather(source: Source, make: Maker) -> Gathered:
    """Read a source to its end. ``make`` returns an empty ``Pieces`` object, in memory or on disk."""
    try:
        return _gather(source, make)
    except MixedLabelsError:
        # Labels that were parsed as numbers have lost their spelling, so the file is read again with all labels as text.
        return _gather(replace(source, text_labels=True), make)


def _gather(source: Source, make: Maker) -> Gathered:
    X, indices, ends, y = make(), make(), make(), make()
    n, d, least, most = 0, 0, NO_INDEX, -1
    beside = [_Beside(make(), "weight", source.weights_file), _Beside(make(), "offset", source.offset_file)]
    for rows in source.blocks():
        if isinstance(rows.X, SparseRows):
            ends.append(rows.X.ends + X.length)
            X.append(rows.X.data)
            indices.append(rows.X.indices)
            least, most = min(least, rows.X.least), max(most, rows.X.most)
        else:
            X.append(rows.X)
            d = rows.X.shape[1]
        if rows.y is not None:
            y.append(rows.y)
            if len({dtype.kind == "U" for dtype in y.dtypes}) > 1:
                raise MixedLabelsError
        for vector, found in zip(beside, (rows.sample_weight, rows.offset), strict=True):
            vector.append(found, n, len(rows))
        n += len(rows)
    if n == 0:
        raise DataError(f"{source.path}: holds no examples")
    weights, offset = (vector.complete(n) for vector in beside)
    shift = 0
    if source.is_sparse:
        shift, d = source.shift_and_width(least, most)
    if d == 0:
        raise DataError(f"{source.path}: holds no features")
    return Gathered(
        (n, d),
        X,
        indices if source.is_sparse else None,
        ends if source.is_sparse else None,
        shift,
        y if y.length else None,
        weights,
        offset,
        source.feature_names,
        source.path.stem,
        source.target,
    )


class _Beside:
    """Numbers beside the rows, from a column or from a separate file. ``name`` is that of a number in error messages."""

    def __init__(self, pieces: Pieces, name: str, path: Path | None) -> None:
        self.pieces, self.name, self.path = pieces, name, path
        self.vector = None if path is None else vector_file(path)

    def append(self, column: np.ndarray | None, before: int, count: int) -> None:
        """Add the numbers of the next ``count`` rows."""
        found = column if self.vector is None else self.vector[before : before + count]
        if found is not None:
            self.pieces.append(found)

    def complete(self, n: int) -> Pieces | None:
        """Return the numbers of all rows, if there are any; raise an error if the file does not have one for each."""
        if self.vector is not None and len(self.vector) != n:
            raise DataError(f"{self.path}: must have one {self.name} for each of {n} examples, has {len(self.vector)}")
        return self.pieces if self.pieces.length else None


def of_dataset(data: Dataset, block: int) -> Gathered:
    """Return a data set that is in memory, or memory-mapped, in pieces of about ``block`` bytes."""
    n, d = data.X.shape
    sparse = not isinstance(data.X, np.ndarray)
    width = (data.X.nnz // max(1, n) + 1) * 12 if sparse else d * data.X.itemsize
    starts = cuts(n, width, block)

    def sliced(array: np.ndarray | None, at: list[int] = starts) -> Slices | None:
        return None if array is None else Slices(array, at)

    entries = [int(data.X.indptr[i]) for i in starts] if sparse else starts
    X = Slices(data.X.data if sparse else data.X, entries)
    return Gathered(
        (n, d),
        X,
        sliced(data.X.indices, entries) if sparse else None,
        sliced(data.X.indptr[1:]) if sparse else None,
        0,
        sliced(data.y),
        sliced(data.sample_weight),
        sliced(data.offset),
        data.feature_names,
        data.name,
        data.target,
    )
