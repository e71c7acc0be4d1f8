"""Sources of chunked data: segments, each of which is read as one or several pieces.

A segment in memory returns its matrix. One on disk reads its pieces into buffers (``Slot``) that are reused for one piece
after the other, since mapping fresh memory takes longer than reading into it. Classes for files are in ``dualnewton.io``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.linear import Matrix
from dualnewton.matrix.memory import profile_of
from dualnewton.matrix.protocol import Profile


class Slot:
    """The buffers of one piece, which grow to the largest piece and are overwritten by the next piece in the slot."""

    def __init__(self) -> None:
        self._buffers: dict[str, np.ndarray] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return an array with arbitrary content that occupies the buffer of this name."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        buffer = self._buffers.get(name)
        if buffer is None or buffer.nbytes < size:
            self._buffers.pop(name, None)
            buffer = self._buffers[name] = np.empty(size, dtype=np.uint8)
        return buffer[:size].view(dtype).reshape(shape)

    @property
    def nbytes(self) -> int:
        """The memory of all buffers."""
        return sum(buffer.nbytes for buffer in self._buffers.values())


class Segment(ABC):
    """Consecutive rows of one storage, such as an array, a file or a row group of a file."""

    profiles: Sequence[Profile]  # size and sparsity of each piece
    on_disk: bool = True  # whether reading takes time, so that a thread reads ahead
    private: str = ""  # reason why other processes cannot read its pieces; empty if they can

    @abstractmethod
    def read(self, places: Sequence[int], slots: Iterator[Slot]) -> Generator[Matrix]:
        """Yield the pieces with these numbers, in increasing order: arrays in C order or CSR arrays, in the next slots."""

    def read_rows(
        self, places: Sequence[int], indices: Sequence[np.ndarray], slots: Iterator[Slot]
    ) -> Generator[Matrix]:
        """Yield some rows of each of these pieces, given by increasing indices within it; by default whole pieces are read."""
        for piece, own in zip(self.read(places, slots), indices, strict=True):
            yield piece[own] if sp.issparse(piece) else piece.take(own, axis=0)

    @abstractmethod
    def name(self, place: int) -> str:
        """Return the name of a piece for error messages."""

    @abstractmethod
    def identity(self) -> Hashable:
        """Return an identifier of the segment's storage: memory addresses, or the file with its time of change."""


class Held(Segment):
    """A matrix in memory, or memory-mapped, as one piece.

    It is an array in C order or a CSR array, of float32 or float64; its number is for error messages.
    """

    on_disk = False

    def __init__(self, matrix: Matrix, number: int) -> None:
        self.matrix, self.number, self.profiles = matrix, number, [profile_of(matrix)]

    def read(self, places: Sequence[int], slots: Iterator[Slot]) -> Generator[Matrix]:  # noqa: ARG002
        yield from (self.matrix for _ in places)

    def name(self, place: int) -> str:  # noqa: ARG002
        return f"pieces[{self.number}]"

    def identity(self) -> Hashable:
        X = self.matrix
        arrays = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
        return tuple((each.ctypes.data, each.shape, each.strides, each.dtype) for each in arrays)
