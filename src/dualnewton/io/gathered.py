"""All blocks of a file collected, after which the numbers of rows and columns are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.io.arrays import require_one_each, vector_file
from dualnewton.io.dataset import VECTORS, DataError, Dataset
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
    # For sparse rows: the column indices plus ``shift``; a zero, and the number of entries up to the end of each row.
    indices: Pieces | None = None
    starts: Pieces | None = None
    shift: int = 0
    vectors: Mapping[str, Pieces] = field(
        default_factory=dict
    )  # labels, weights and offsets, by their field of a data set
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
        vectors: Any = {name: pieces.joined() for name, pieces in self.vectors.items()}
        more: Any = {"feature_names": self.feature_names, "name": self.name, "target": self.target}
        return Dataset(self._matrix(), **vectors, **more)

    def _matrix(self) -> Any:
        if self.indices is None or self.starts is None:
            return self.X.joined()
        import scipy.sparse as sp

        indices, starts = self.indices.joined(self.index_dtype, self.shift), self.starts.joined(self.index_dtype)
        return sp.csr_array((self.X.joined(), indices, starts), shape=self.shape)

    def rows(self) -> Iterator[Rows]:
        """Yield the examples piece by piece, with column indices from zero."""
        before = 0
        rows = [each.drain() for each in (self.X, self.indices, self.starts) if each is not None]
        if self.is_sparse:
            next(rows[2])  # the start of the first row
        for parts in zip(*rows, *(each.drain() for each in self.vectors.values()), strict=True):
            X: Any = parts[0]
            if self.is_sparse:
                X = SparseRows(X, parts[1] - self.shift, parts[2] - before, 0, self.shape[1] - 1)
                before += len(X.data)
            yield Rows(X, dict(zip(self.vectors, parts[len(rows) :], strict=True)))


def gather(source: Source, make: Maker) -> Gathered:
    """Read a source to its end. ``make`` returns an empty ``Pieces`` object, in memory or on disk."""
    try:
        return _gather(source, make)
    except MixedLabelsError:
        # Labels that were parsed as numbers have lost their spelling, so the file is read again with all labels as text.
        return _gather(replace(source, text_labels=True), make)


def _gather(source: Source, make: Maker) -> Gathered:
    X, indices, starts = make(), make(), make()
    starts.append(np.zeros(1, np.int64))
    vectors: dict[str, Pieces] = {}
    files = {name: vector_file(path) for name, path in source.files.items()}
    n, d, least, most = 0, 0, NO_INDEX, -1
    for rows in source.blocks():
        if isinstance(rows.X, SparseRows):
            starts.append(rows.X.ends + X.length)
            X.append(rows.X.data)
            indices.append(rows.X.indices)
            least, most = min(least, rows.X.least), max(most, rows.X.most)
        else:
            X.append(rows.X)
            d = rows.X.shape[1]
        found = {**rows.vectors, **{name: numbers[n : n + len(rows)] for name, numbers in files.items()}}
        vectors = vectors or {name: make() for name in VECTORS if name in found}
        for name, pieces in vectors.items():
            pieces.append(found[name])
        if "y" in vectors and len({dtype.kind == "U" for dtype in vectors["y"].dtypes}) > 1:
            raise MixedLabelsError
        n += len(rows)
    if n == 0:
        raise DataError(f"{source.path}: holds no examples")
    for name, numbers in files.items():
        require_one_each(source.files[name], name, numbers, n)
    shift = 0
    if source.is_sparse:
        shift, d = source.shift_and_width(least, most)
    if d == 0:
        raise DataError(f"{source.path}: holds no features")
    more: Any = {"feature_names": source.feature_names, "name": source.path.stem, "target": source.target}
    of_rows: Any = {"indices": indices, "starts": starts, "shift": shift} if source.is_sparse else {}
    return Gathered((n, d), X, **of_rows, vectors=vectors, **more)


def of_dataset(data: Dataset, block: int) -> Gathered:
    """Return a data set that is in memory, or memory-mapped, in pieces of about ``block`` bytes."""
    n, d = data.X.shape
    sparse = not isinstance(data.X, np.ndarray)
    width = (data.X.nnz // max(1, n) + 1) * 12 if sparse else d * data.X.itemsize
    starts = cuts(n, width, block)
    entries = [int(data.X.indptr[i]) for i in starts] if sparse else starts
    X = Slices(data.X.data if sparse else data.X, entries)
    of_rows: Any = {}
    if sparse:
        of_rows = {
            "indices": Slices(data.X.indices, entries),
            "starts": Slices(data.X.indptr, [0, *(i + 1 for i in starts)]),
        }
    more: Any = {"feature_names": data.feature_names, "name": data.name, "target": data.target}
    vectors = {name: Slices(found, starts) for name in VECTORS if (found := getattr(data, name)) is not None}
    return Gathered((n, d), X, **of_rows, vectors=vectors, **more)
