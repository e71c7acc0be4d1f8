"""The pieces of chunked data: their rows, and reading them in order; pieces of files are read ahead by a thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.matrix.linear import Matrix, entries
from dualnewton.matrix.protocol import Profile
from dualnewton.matrix.read_ahead import ReadAhead
from dualnewton.matrix.segments import Segment, Slot
from dualnewton.matrix.workers import sum_of_squares
from dualnewton.validation import data_matrix

AHEAD = 2
"""Number of pieces of files in memory: one in use, and one being read."""


class Wanted(NamedTuple):
    """The rows to read of one piece."""

    number: int  # of the piece
    own: slice  # positions of its rows among all requested rows
    indices: np.ndarray | None  # rows within the piece, in increasing order; all if None


class Pieces:
    """The pieces of a list of segments.

    The segments have the same number of columns, and are all sparse or all dense. ``profile`` is that of all rows together,
    ``rows`` has the rows of each piece, and ``bytes_read`` counts the bytes of entries and indices that were read from files
    so far.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = segments
        self.owners = [(segment, place) for segment in segments for place in range(len(segment.profiles))]
        profiles = [segment.profiles[place] for segment, place in self.owners]
        if not profiles:
            raise DualnewtonError("pieces must hold at least one matrix, got none")
        for (segment, place), profile in zip(self.owners, profiles, strict=True):
            self._require_alike(segment.name(place), profile, profiles[0])
        self.profile = Profile(
            n=sum(each.n for each in profiles),
            d=profiles[0].d,
            stored=sum(each.stored for each in profiles),
            pairs=sum(each.pairs for each in profiles),
            sparse=profiles[0].sparse,
            itemsize=max(each.itemsize for each in profiles),
            on_disk=any(segment.on_disk for segment in segments),
        )
        ends = np.cumsum([0, *(each.n for each in profiles)])
        self.rows = [slice(int(low), int(high)) for low, high in itertools.pairwise(ends)]
        self.bytes_read = 0
        self._checked: dict[int, bool] = {}  # for each piece of a file, whether its rows repeat columns
        self._slots: list[list[Slot]] = []  # buffers of passes that have ended
        self._lock = threading.Lock()

    def _require_alike(self, name: str, profile: Profile, first: Profile) -> None:
        here = self.owners[0][0].name(0)
        if profile.d != first.d:
            raise DualnewtonError(f"pieces must have the same columns: {here} has {first.d}, {name} has {profile.d}")
        if profile.sparse != first.sparse:
            raise DualnewtonError(f"pieces must all be sparse or all be dense: {here} and {name} differ")

    def identity(self) -> Hashable:
        """Return an identifier of the storage of the rows."""
        return tuple(segment.identity() for segment in self.segments)

    def wanted(self, indices: np.ndarray | None) -> list[Wanted]:
        """Return the rows to read of each piece that has some of the requested rows (increasing indices); all rows if None."""
        if indices is None:
            return [Wanted(number, rows, None) for number, rows in enumerate(self.rows)]
        ends = np.searchsorted(indices, [0, *(rows.stop for rows in self.rows)])
        found = []
        for number, (rows, (low, high)) in enumerate(zip(self.rows, itertools.pairwise(ends.tolist()), strict=True)):
            every = high - low == rows.stop - rows.start
            if high > low:
                found.append(Wanted(number, slice(low, high), None if every else indices[low:high] - rows.start))
        return found

    @contextmanager
    def reading(self, wanted: Sequence[Wanted]) -> Iterator[Iterator[tuple[Matrix, np.ndarray | None]]]:
        """Read pieces in order, each valid until the next is requested.

        Yields the rows and None or, for rows in memory, the whole piece and the indices of the rows.
        """
        with self._lock:
            slots = self._slots.pop() if self._slots else [Slot() for _ in range(AHEAD)]
        items = self._read(wanted, itertools.cycle(slots))
        ahead = len(wanted) > 1 and any(self.owners[each.number][0].on_disk for each in wanted)
        try:
            with ReadAhead(items, AHEAD) if ahead else closing(items) as found:
                yield iter(found)
        finally:
            with self._lock:
                self._slots = [slots]

    def _read(self, wanted: Sequence[Wanted], slots: Iterator[Slot]) -> Generator[tuple[Matrix, np.ndarray | None]]:
        by_segment = itertools.groupby(wanted, lambda each: self.owners[each.number][0])
        for segment, group in by_segment:
            for whole, some in itertools.groupby(group, lambda each: each.indices is None):
                own = list(some)
                places = [self.owners[each.number][1] for each in own]
                if not segment.on_disk:
                    yield from zip(segment.read(places, slots), (each.indices for each in own), strict=True)
                    continue
                few = [] if whole else [each.indices for each in own if each.indices is not None]
                # Closed here, so that an invalid row leaves no file open until the generator is collected.
                with closing(segment.read(places, slots) if whole else segment.read_rows(places, few, slots)) as found:
                    for each, matrix in zip(own, found, strict=True):
                        self.bytes_read += _size(matrix)
                        yield self._without_faults(each.number, matrix) if whole else matrix, None

    def _without_faults(self, number: int, matrix: Matrix) -> Matrix:
        """Check a piece when it is read for the first time; later, only sum its repeated entries."""
        if number not in self._checked:
            segment, place = self.owners[number]
            checked = data_matrix(segment.name(place), matrix, lambda whole: sum_of_squares(entries(whole)))
            self._checked[number] = sp.issparse(matrix) and not matrix.has_canonical_format
            return checked
        if sp.issparse(matrix):
            if self._checked[number]:
                matrix.sum_duplicates()
            matrix.has_canonical_format = True
        return matrix


def _size(matrix: Matrix) -> int:
    """Return the bytes of the entries and indices of a matrix."""
    if sp.issparse(matrix):
        return int(matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)
    return int(matrix.nbytes)
