"""Segments of chunked data whose rows are those of a Parquet file, decoded by pyarrow at each reading."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.io import parquet
from dualnewton.io.dataset import DataError
from dualnewton.io.parquet import ParquetSource
from dualnewton.io.pieces import Pieces
from dualnewton.io.segments import dense_pieces
from dualnewton.io.stored import StoredFile
from dualnewton.matrix.segments import Segment, Slot

BATCH = 1 << 22
"""Bytes of rows that are decoded at a time (4 MiB): columns are copied into rows while these are in the cache."""

BUFFERED = 1 << 20
"""Bytes of a column that are read at a time where a row group is larger than a piece (1 MiB)."""


class ParquetSegment(Segment):
    """The rows of a Parquet file, whose row groups are joined or cut into pieces of about equal size.

    The features ``names`` are in the order of the data set; ``size`` is that of a piece in bytes.
    """

    def __init__(self, source: ParquetSource, names: tuple[str, ...], size: int) -> None:
        self.source, self.names, self.file = source, names, StoredFile(source.path)
        self.numbers = [source.columns.names.index(name) for name in names]  # in the file, for error messages
        with self.file.opened() as raw, parquet.opened(source.path, raw) as file:
            self.dtype = _dtype(file.schema_arrow, names)
            counts = [file.metadata.row_group(k).num_rows for k in range(file.num_row_groups)]
        self.groups = np.cumsum([0, *counts])  # the first row of each row group, and the number of rows
        d, n = len(names), int(self.groups[-1])
        rows = max(1, size // (d * self.dtype.itemsize))
        self.cuts, self.profiles = dense_pieces(n, d, rows, self.dtype)
        self.buffer_size = BUFFERED if max(counts, default=0) > rows else 0

    def name(self, place: int) -> str:
        return f"{self.source.path} (rows {self.cuts[place]} to {self.cuts[place + 1] - 1})"

    def identity(self) -> Hashable:
        return self.file.identity(), self.names, tuple(self.cuts)

    def read(self, places: Sequence[int], slots: Iterator[Slot]) -> Generator[np.ndarray]:
        path = self.source.path
        with self.file.opened() as raw, parquet.opened(path, raw, self.buffer_size) as file, parquet.faults(path):
            # Consecutive pieces are decoded together, since they may share a row group.
            for _, run in itertools.groupby(enumerate(places), lambda each: each[1] - each[0]):
                yield from self._decoded(file, [place for _, place in run], slots)

    def _decoded(self, file: Any, places: Sequence[int], slots: Iterator[Slot]) -> Iterator[np.ndarray]:
        """Decode the row groups that consecutive pieces lie in, and yield these."""
        first, last = self.cuts[places[0]], self.cuts[places[-1] + 1]
        start = int(np.searchsorted(self.groups, first, side="right")) - 1
        groups = list(range(start, int(np.searchsorted(self.groups, last))))
        rows = max(1, BATCH // (self.dtype.itemsize * len(self.names)))
        batches = file.iter_batches(batch_size=rows, row_groups=groups, columns=list(self.names))
        low, batch = int(self.groups[start]), None  # the first row of the batch
        for place in places:
            begin, end = self.cuts[place], self.cuts[place + 1]
            X, at = next(slots).array("rows", (end - begin, len(self.names)), self.dtype), begin
            while at < end:
                while batch is None or low + batch.num_rows <= at:
                    low += 0 if batch is None else batch.num_rows
                    batch = next(batches, None)
                    if batch is None:
                        raise DataError(f"{self.source.path}: has fewer rows than it claims")
                some = slice(at - low, min(end - low, batch.num_rows))
                self._copy(batch, some, X[at - begin :], low)
                at = low + some.stop
            yield X

    def _copy(self, batch: Any, some: slice, rows: np.ndarray, before: int) -> None:
        """Copy these rows of a batch; ``before`` counts the rows of the file before the batch."""
        for k, (name, j) in enumerate(zip(self.names, self.numbers, strict=True)):
            column = batch.column(name)
            self.source.require_all(column, j, before)
            rows[: some.stop - some.start, k] = column.to_numpy(zero_copy_only=False)[some]

    def beside(self) -> dict[str, np.ndarray]:
        """Read the labels, weights and offsets, by the names of the fields of a data set."""
        path, names = self.source.path, {name: self.source.columns.names[j] for name, j in self.source.vectors.items()}
        found, before = {name: Pieces() for name in names}, 0
        if not names:
            return {}
        with self.file.opened() as raw, parquet.opened(path, raw) as file, parquet.faults(path):
            for batch in file.iter_batches(columns=list(names.values())):
                for name, column in names.items():
                    found[name].append(self.source.vector(name, batch.column(column), before))
                before += batch.num_rows
        return {name: pieces.joined() for name, pieces in found.items()}


def _dtype(schema: Any, names: Sequence[str]) -> np.dtype:
    """Return float32 if all features are float32 or can be converted to it exactly, and one of them is float32; else float64."""
    kinds = {str(schema.field(name).type) for name in names}
    exact = {"float", "halffloat", "bool", "int8", "uint8", "int16", "uint16"}
    return np.dtype(np.float32 if "float" in kinds and kinds <= exact else np.float64)
