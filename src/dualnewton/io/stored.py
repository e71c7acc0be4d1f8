"""Arrays inside files that are read by ranges: mapped into memory where the system can read them so, else into buffers.

Only the range at hand is mapped, since mapped pages count as resident memory.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import sys
import weakref
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualnewton.io.dataset import DataError, named

POPULATE = 22
"""MADV_POPULATE_READ of Linux 5.14, which the module ``mmap`` does not name: read all pages of a map now. A page that cannot be
read is an error of the call; without it, the process would be ended by a signal when it uses the page."""

MOST = 1 << 30
"""Bytes that are read by one call of the system, some of which accept at most 2 GiB."""


class StoredFile:
    """A file that must not change while its data set is used.

    ``private`` is the reason why other processes cannot read it; empty if they can.
    """

    private = ""

    def __init__(self, path: Path) -> None:
        self.path, self.stamp = path, _stamp(os.stat(path))

    def __getstate__(self) -> dict[str, Any]:
        # Another process may have another working directory.
        return {**vars(self), "path": self.path.absolute()}

    def identity(self) -> Hashable:
        """Return the path and the state of the file."""
        return str(self.path.absolute()), self.stamp

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        """Open the file for reading; raise an error if it has changed since the data set was opened."""
        with named(self.path), open(self.path, "rb", buffering=0) as file:
            self.require_unchanged(file)
            yield file

    @contextlib.contextmanager
    def read_in_order(self) -> Iterator[IO[bytes]]:
        """Open the file as :meth:`opened` does, to read long ranges in order: the system then reads further ahead of them."""
        with self.opened() as file:
            if hasattr(os, "posix_fadvise"):  # Linux and other POSIX systems, not macOS and Windows
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
            yield file

    def require_unchanged(self, file: IO[bytes]) -> None:
        """Raise an error if the file is not the one that was opened first, or was written to."""
        if _stamp(os.fstat(file.fileno())) != self.stamp:
            raise DataError(f"{self.path}: the file has changed since the data set was opened: open it again")


class SpilledFile(StoredFile):
    """A file without a name that holds the rows of a text file, and is deleted by the system when it is closed.

    It is open for reading, and closed with this object; ``path`` is the text file, for error messages.
    """

    def __init__(self, file: IO[bytes], path: Path) -> None:
        file.flush()
        self.path, self.file = path, file
        weakref.finalize(self, file.close)

    @property
    def private(self) -> str:  # type: ignore[override]
        return (
            f"{self.path} was parsed into an unnamed file of this process: `dualnewton convert` makes files for others"
        )

    def identity(self) -> Hashable:
        return id(self.file)

    @contextlib.contextmanager
    def opened(self) -> Iterator[IO[bytes]]:
        with named(self.path):
            yield self.file


def _stamp(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_size, status.st_mtime_ns, status.st_ino


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array in C order inside a file."""

    file: StoredFile
    start: int  # offset of the first entry in bytes
    shape: tuple[int, ...]
    dtype: np.dtype  # type of its entries as stored

    @property
    def row_bytes(self) -> int:
        """The bytes of one entry along the first axis."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def read_into(self, file: IO[bytes], low: int, out: np.ndarray) -> None:
        """Fill ``out``, which is contiguous and of the same type, with the entries from ``low`` on along the first axis."""
        rest, at = out.reshape(-1).view(np.uint8).data, self.start + low * self.row_bytes
        while len(rest):
            count = os.preadv(file.fileno(), [rest[:MOST]], at)
            if count == 0:
                raise DataError(f"{self.file.path}: the file ends {len(rest)} bytes too early, it is cut short")
            rest, at = rest[count:], at + count

    def mapped(self, file: IO[bytes], low: int, count: int) -> np.ndarray | None:
        """Return ``count`` entries from ``low`` on along the first axis in the memory of the system's cache, without a copy.

        None where that is not possible: on other systems, for entries that are not aligned, and where :meth:`read_into` would
        raise an error. The array is read-only. The file must not become shorter while it is in use.
        """
        size, at = count * self.row_bytes, self.start + low * self.row_bytes
        if not sys.platform.startswith("linux") or size == 0 or at % self.dtype.alignment:
            return None
        before = at % mmap.ALLOCATIONGRANULARITY
        try:
            pages = mmap.mmap(file.fileno(), before + size, access=mmap.ACCESS_READ, offset=at - before)
            pages.madvise(POPULATE)
        except (OSError, ValueError):  # an older system, a file on one that has no maps, or a file that ends too early
            return None
        return np.frombuffer(pages, self.dtype, size // self.dtype.itemsize, before).reshape(count, *self.shape[1:])

    def range(self, low: int, high: int) -> np.ndarray:
        """Return the entries from ``low`` to ``high`` along the first axis."""
        out = np.empty((high - low, *self.shape[1:]), self.dtype)
        with self.file.opened() as file:
            self.read_into(file, low, out)
        return out


def stored_array(array: Any) -> StoredArray | None:
    """Return the place of a memory-mapped array in C order in its file; None for arrays in memory and for other orders."""
    owners, each = [], array
    while isinstance(each, np.ndarray):
        owners.append(each)
        each = each.base
    maps = [each for each in owners if isinstance(each, np.memmap)]
    if not maps or not array.flags.c_contiguous:
        return None
    mapped: Any = maps[-1]  # the map itself; the others are views
    if mapped.filename is None:
        return None
    start = mapped.offset + array.ctypes.data - mapped.ctypes.data
    return StoredArray(StoredFile(Path(mapped.filename)), start, array.shape, array.dtype)
