"""Arrays of unknown length that are built from pieces, in memory or on disk."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np

from dualnewton.files.npy import bytes_of
from dualnewton.io.dataset import DataError


class Pieces:
    """A list of arrays to be concatenated along their first axis."""

    def __init__(self) -> None:
        self.length = 0
        self.dtypes: set[np.dtype] = set()
        self._parts: list[Any] = []

    def append(self, part: np.ndarray) -> None:
        """Add the next piece."""
        self.length += len(part)
        self.dtypes.add(part.dtype)
        self._keep(part)

    @property
    def dtype(self) -> np.dtype:
        """The common type of all pieces."""
        return np.result_type(*self.dtypes) if self.dtypes else np.dtype(np.float64)

    def drain(self) -> Iterator[np.ndarray]:
        """Yield the pieces in order and drop the reference to each, so that the caller can free it."""
        self._parts.reverse()
        while self._parts:
            yield self._fetch(self._parts.pop())

    def joined(self, dtype: Any = None, shift: int = 0) -> np.ndarray:
        """Return the concatenation of all pieces minus ``shift``, and drop the pieces."""
        whole: np.ndarray | None = None
        at = 0
        for part in self.drain():
            if whole is None:
                whole = np.empty((self.length, *part.shape[1:]), dtype=dtype or self.dtype)
            whole[at : at + len(part)] = part - shift if shift else part
            at += len(part)
        return np.empty(0, dtype=dtype or self.dtype) if whole is None else whole

    def _keep(self, part: np.ndarray) -> None:
        self._parts.append(part)

    def _fetch(self, kept: Any) -> np.ndarray:
        return kept


class SpilledPieces(Pieces):
    """Pieces that are kept in a file, which is open for reading and writing, and empty. Its ``owner`` closes it."""

    def __init__(self, file: IO[bytes], owner: Any = None) -> None:
        super().__init__()
        self._file, self.owner = file, owner

    def one_dtype(self) -> np.dtype:
        """Return the type of all pieces, which lie one after the other in the file."""
        if len(self.dtypes) > 1:
            raise DataError(f"pieces must be of one type to be read in place, got {sorted(map(str, self.dtypes))}")
        return self.dtype

    def _keep(self, part: np.ndarray) -> None:
        self._parts.append((self._file.tell(), part.dtype, part.shape))
        self._file.write(np.ascontiguousarray(part).data)

    def _fetch(self, kept: Any) -> np.ndarray:
        start, dtype, shape = kept
        self._file.seek(start)
        raw = self._file.read(bytes_of(shape, dtype))
        return np.frombuffer(raw, dtype, math.prod(shape)).reshape(shape)


class Slices(Pieces):
    """The pieces of an existing array, as views without copies. The boundaries ``starts`` include 0 and the length."""

    def __init__(self, array: np.ndarray, starts: list[int]) -> None:
        super().__init__()
        self.length, self.dtypes = len(array), {array.dtype}
        self._array = array
        self._parts = list(itertools.pairwise(starts))

    def _fetch(self, kept: Any) -> np.ndarray:
        return self._array[slice(*kept)]


Maker = Callable[[], Pieces]


def cuts(n: int, row_bytes: int, block: int) -> list[int]:
    """Return the boundaries that divide n rows of ``row_bytes`` each into pieces of about ``block`` bytes."""
    rows = max(1, block // max(1, row_bytes))
    return [*range(0, n, rows), n]
