"""Segments of chunked data whose rows are arrays inside files: dense rows, and sparse rows in CSR form."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from dualnewton.io.dataset import DataError
from dualnewton.io.stored import StoredArray
from dualnewton.matrix.linear import sparse_view
from dualnewton.matrix.protocol import Profile
from dualnewton.matrix.segments import Segment, Slot

SEEK = 1 << 16
"""Bytes that a disk reads in sequence in the time of one read at a random place (64 KiB, about 0.1 ms)."""

STARTS = 1 << 20
"""Number of row starts that are read at a time when a sparse file is opened (8 MiB)."""


def dense_pieces(n: int, d: int, rows: int, dtype: np.dtype) -> tuple[list[int], list[Profile]]:
    """Return the first row of each piece of ``rows`` dense rows, followed by n, and the profiles of the pieces."""
    cuts = [*range(0, n, rows), n]
    sizes = (high - low for low, high in itertools.pairwise(cuts))
    return cuts, [Profile(m, d, m * d, 0.5 * m * d * d, False, dtype.itemsize) for m in sizes]


class ArraySegment(Segment):
    """Rows that are ranges of arrays in a file, cut into pieces of consecutive rows."""

    cuts: list[int]  # the first row of each piece, and last the number of rows
    arrays: tuple[StoredArray, ...]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and features."""
        return self.cuts[-1], self.profiles[0].d

    def name(self, place: int) -> str:
        low, high = self.cuts[place], self.cuts[place + 1]
        whole = len(self.cuts) == 2
        return str(self.arrays[0].file.path) if whole else f"{self.arrays[0].file.path} (rows {low} to {high - 1})"

    def identity(self) -> Hashable:
        return tuple((each.file.identity(), each.start, each.shape, each.dtype) for each in self.arrays), tuple(
            self.cuts
        )

    @property
    def private(self) -> str:  # type: ignore[override]
        return next((each.file.private for each in self.arrays if each.file.private), "")

    def _are_few(self, count: int, place: int) -> bool:
        """Whether reading ``count`` rows of a piece one by one takes less time than reading the whole piece."""
        profile = self.profiles[place]
        row = profile.stored * profile.itemsize / profile.n
        return count * max(row, SEEK) < profile.stored * profile.itemsize


class DenseSegment(ArraySegment):
    """Rows of a dense array.

    ``size`` is that of a piece in bytes; ``features`` are the columns that are features, by default all. float32 and float64 are
    kept, other types become float64.
    """

    def __init__(self, array: StoredArray, size: int, features: np.ndarray | None = None) -> None:
        (n, columns), self.features, self.arrays, self.size = array.shape, features, (array,), size
        kept = array.dtype.isnative and array.dtype in (np.float32, np.float64)
        self.dtype = array.dtype if kept else np.dtype(np.float64)
        d = columns if features is None else len(features)
        rows = max(1, size // (columns * max(array.dtype.itemsize, self.dtype.itemsize)))
        self.cuts, self.profiles = dense_pieces(n, d, rows, self.dtype)

    def with_features(self, features: np.ndarray) -> DenseSegment:
        """Return the segment of these columns."""
        return DenseSegment(self.arrays[0], self.size, features)

    def column(self, j: int) -> np.ndarray:
        """Read one column."""
        (array,) = self.arrays
        pieces = (array.range(low, high)[:, j] for low, high in itertools.pairwise(self.cuts))
        return np.concatenate([piece.copy() for piece in pieces])

    def read(self, places: Sequence[int], slots: Iterator[Slot]) -> Generator[np.ndarray]:
        (array,) = self.arrays
        # Not announced as read in order: pages that are mapped then come more slowly (benchmarks/disk.py: by an eighth).
        with array.file.opened() as file:
            for place in places:
                slot, low, m = next(slots), self.cuts[place], self.profiles[place].n
                raw = array.mapped(file, low, m)
                if raw is None:
                    raw = slot.array("stored", (m, *array.shape[1:]), array.dtype)
                    array.read_into(file, low, raw)
                yield self._features(raw, slot)

    def read_rows(
        self, places: Sequence[int], indices: Sequence[np.ndarray], slots: Iterator[Slot]
    ) -> Generator[np.ndarray]:
        (array,) = self.arrays
        for place, own in zip(places, indices, strict=True):
            if not self._are_few(own.size, place):
                yield from super().read_rows([place], [own], slots)
                continue
            raw = np.empty((own.size, *array.shape[1:]), array.dtype)
            with array.file.opened() as file:
                for row, index in zip(raw, own.tolist(), strict=True):
                    array.read_into(file, self.cuts[place] + index, row)
            yield self._features(raw, Slot())

    def _features(self, raw: np.ndarray, slot: Slot) -> np.ndarray:
        """Return the features of stored rows, converted to the type in which they are used."""
        if self.features is None and raw.dtype == self.dtype:
            return raw
        found = slot.array("features", (len(raw), self.profiles[0].d), self.dtype)
        found[:] = raw if self.features is None else raw[:, self.features]
        return found


class SparseSegment(ArraySegment):
    """Rows in CSR form.

    The arrays are the entries, their columns plus ``shift``, and for each row the number of entries before it, after the last
    row of all; ``size`` is that of a piece in bytes.
    """

    def __init__(self, arrays: tuple[StoredArray, StoredArray, StoredArray], d: int, size: int, shift: int = 0) -> None:
        self.arrays, self.d, self.shift = arrays, d, shift
        data, indices, _ = arrays
        kept = data.dtype.isnative and data.dtype in (np.float32, np.float64)
        self.dtype = data.dtype if kept else np.dtype(np.float64)
        self.index_dtype = indices.dtype if indices.dtype in (np.int32, np.int64) else np.dtype(np.int64)
        entry = max(data.dtype.itemsize, self.dtype.itemsize) + self.index_dtype.itemsize
        self._cut(max(1, size // entry))
        self.unchecked = set(range(len(self.profiles)))

    def _cut(self, most: int) -> None:
        """Read the row starts, and cut the rows into pieces of at most ``most`` entries, or of one row."""
        data, _, starts = self.arrays
        n, path = starts.shape[0] - 1, data.file.path
        self.cuts, self.profiles, before = [0], [], 0
        entries, pairs = 0, 0.0  # of the current piece
        for at in range(0, n, STARTS):
            some = starts.range(at, min(at + STARTS, n) + 1).astype(np.int64)
            lengths = np.diff(some)
            if some[0] != before or (lengths < 0).any():
                raise DataError(f"{path}: indptr must begin at 0 and not decrease")
            before = int(some[-1])
            # A piece ends before the first row with which it would have more than ``most`` entries.
            low = 0
            while low < len(lengths):
                reached = np.cumsum(lengths[low:]) + entries
                fit = int(np.searchsorted(reached, most, side="right"))
                fit = max(fit, 1) if self.cuts[-1] == at + low else fit
                taken = lengths[low : low + fit].astype(np.float64)
                entries, pairs = entries + int(taken.sum()), pairs + 0.5 * float(taken @ taken)
                low += fit
                if low < len(lengths):
                    self._end(at + low, entries, pairs)
                    entries, pairs = 0, 0.0
        self._end(n, entries, pairs)
        if before != data.shape[0] or data.shape != self.arrays[1].shape:
            raise DataError(
                f"{path}: indptr must end at the number of entries of data and indices, {data.shape[0]}, got {before}"
            )

    def _end(self, row: int, entries: int, pairs: float) -> None:
        """End a piece before this row."""
        m = row - self.cuts[-1]
        self.profiles = [*self.profiles, Profile(m, self.d, entries, pairs, True, self.dtype.itemsize)]
        self.cuts.append(row)

    def read(self, places: Sequence[int], slots: Iterator[Slot]) -> Generator[Any]:
        data, indices, starts = self.arrays
        files = (array.file.read_in_order() for array in self.arrays)
        with next(files) as file, next(files) as of_indices, next(files) as of_starts:
            for place in places:
                slot, profile = next(slots), self.profiles[place]
                own = slot.array("stored starts", (profile.n + 1,), starts.dtype)
                starts.read_into(of_starts, self.cuts[place], own)
                first = int(own[0])
                values = self._read(data, file, first, profile.stored, self.dtype, slot, "data")
                columns = self._read(indices, of_indices, first, profile.stored, self.index_dtype, slot, "indices")
                pointers = slot.array("starts", (profile.n + 1,), self.index_dtype)
                np.subtract(own, first, out=pointers, casting="unsafe")
                yield self._matrix(place, values, columns, pointers)

    def _read(
        self, array: StoredArray, file: IO[bytes], first: int, count: int, dtype: np.dtype, slot: Slot, name: str
    ) -> np.ndarray:
        """Read a range of entries or indices in the type in which they are used."""
        if array.dtype == dtype:
            found = slot.array(name, (count,), dtype)
            array.read_into(file, first, found)
            return found
        raw = slot.array(f"stored {name}", (count,), array.dtype)
        array.read_into(file, first, raw)
        found = slot.array(name, (count,), dtype)
        found[:] = raw
        return found

    def _matrix(self, place: int, values: np.ndarray, columns: np.ndarray, pointers: np.ndarray) -> Any:
        """Return the rows of a piece, after a check of its columns at the first reading: kernels do not check their range."""
        if self.shift:
            columns -= self.shift
        if place in self.unchecked and columns.size:
            low, high = int(columns.min()), int(columns.max())
            if low < 0 or high >= self.d:
                raise DataError(f"{self.name(place)}: indices must lie in [0, {self.d}), got {low} … {high}")
            self.unchecked.discard(place)
        return sparse_view(sp.csr_array, (values, columns, pointers), (len(pointers) - 1, self.d))
