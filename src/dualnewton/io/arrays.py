"""Arrays in NumPy's own files, npy and npz: mapped into memory where they lie, never unpickled, never larger than the file says.

An npz file is a zip archive of npy files. A member without compression lies in the archive as it would lie in a file of its
own, so that it can be mapped at its place (``convert`` sees to it that this place is aligned). Sizes are compared before
anything is allocated.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files.npy import FAULTS, MAGIC, Header, bytes_of, header
from dualnewton.io.dataset import DataError

RATIO = 1100
"""More than deflate can shrink anything: a member that says otherwise lies."""

LOCAL = struct.Struct("<4s5H3L2H")
"""The header of a zip member; the lengths of its name and of what follows the name come last."""


@contextlib.contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file leads to into one line about the file."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        if error.errno not in (None, 22):  # EINVAL is what a wrong offset leads to
            raise
        raise _damaged(path, error) from None
    except FAULTS as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    reason = " ".join(str(error).split())[:120] or type(error).__name__
    return DataError(f"{path}: damaged, or not a file of NumPy arrays ({reason})")


def mapped(path: Path, found: Header, offset: int = 0) -> np.ndarray:
    """Map an array of a file into memory, read-only."""
    if bytes_of(found.shape, found.dtype) == 0:
        return np.empty(found.shape, found.dtype)
    order: Any = "F" if found.in_columns else "C"
    return np.memmap(path, found.dtype, "r", offset + found.start, found.shape, order)


def npy(path: Path) -> np.ndarray:
    """Map the array of an npy file into memory."""
    with open(path, "rb") as file, faults(path):
        return mapped(path, header(file, os.fstat(file.fileno()).st_size))


class Members(Mapping[str, np.ndarray]):
    """The arrays of an npz file by name, each opened when it is asked for.

    Parameters
    ----------
    path : path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with open(path, "rb") as file, faults(path):
            self._size = os.fstat(file.fileno()).st_size
            with zipfile.ZipFile(file) as archive:
                infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        self._infos = {info.filename.removesuffix(".npy"): info for info in infos}
        self._loaded: dict[str, np.ndarray] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self._loaded:
            info = self._infos[name]
            with faults(self.path):
                self._loaded[name] = (
                    self._in_place(info) if info.compress_type == zipfile.ZIP_STORED else self._read(info)
                )
        return self._loaded[name]

    def _in_place(self, info: zipfile.ZipInfo) -> np.ndarray:
        """Map a member where it lies; read it if its place is not aligned."""
        with open(self.path, "rb") as file:
            file.seek(info.header_offset)
            magic, *_, name, extra = LOCAL.unpack(file.read(LOCAL.size))
            start = info.header_offset + LOCAL.size + name + extra
            if magic != b"PK\x03\x04" or info.file_size != info.compress_size or start + info.file_size > self._size:
                raise DualnewtonError(f"{info.filename} is cut short")
            file.seek(start)
            found = header(file, info.file_size)
        if (start + found.start) % found.dtype.alignment:
            return self._read(info)
        return mapped(self.path, found, start)

    def _read(self, info: zipfile.ZipInfo) -> np.ndarray:
        """Read a member into memory, if it fits there; its checksum is compared."""
        if info.file_size > RATIO * (info.compress_size + 1):
            raise DualnewtonError(f"{info.filename} cannot have the size it claims")
        with open(self.path, "rb") as file, zipfile.ZipFile(file) as archive, archive.open(info) as member:
            found = header(member, info.file_size)
            if info.file_size > memory():
                raise DataError(
                    f"{self.path}: {info.filename} needs {info.file_size >> 20} MiB of memory, there are {memory() >> 20}: "
                    "save it without compression, then it is mapped where it lies"
                )
            raw = member.read()
        if found.start + len(raw) != info.file_size:
            raise DualnewtonError(f"{info.filename} is cut short")
        count = bytes_of(found.shape, found.dtype) // max(1, found.dtype.itemsize)
        flat = np.frombuffer(raw, found.dtype, count) if raw else np.empty(count, found.dtype)
        return np.require(flat, requirements="A").reshape(found.shape, order="F" if found.in_columns else "C")


def memory() -> int:
    """Return how many bytes of memory the machine has, or a number that nothing exceeds where it does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 1 << 62


def vector_file(path: Path) -> np.ndarray:
    """Return the numbers of a file, one for each example: an npy array, or text with one number a line."""
    with open(path, "rb") as file:
        is_npy = file.read(len(MAGIC)) == MAGIC
    if is_npy:
        return vector(path, "the array", npy(path))
    from dualnewton.io.streams import reading

    with reading(path) as stream:
        words = stream.read().split()
    try:
        return vector(path, "the file", np.array([float(word) for word in words]))
    except ValueError as error:
        raise DataError(f"{path}: expected one number a line ({str(error)[:80]})") from None


def vector(path: Path, what: str, value: np.ndarray) -> np.ndarray:
    """Return finite float64 numbers, one for each example."""
    if value.ndim == 2 and value.shape[1] == 1:
        value = value[:, 0]
    if value.ndim != 1 or value.dtype.kind not in "fiub":
        raise DataError(f"{path}: {what} must be a vector of numbers, got {value.dtype} of shape {value.shape}")
    numbers = np.asarray(value, dtype=np.float64)
    if not (finite := np.isfinite(numbers)).all():
        at = int(np.argmin(finite))
        raise DataError(f"{path}: {what} must be finite, got {numbers[at]} at row {at}")
    return numbers


def labels(path: Path, value: np.ndarray) -> np.ndarray:
    """Return labels as they are: finite numbers or text, one for each example."""
    if value.dtype.kind == "S":
        try:
            value = np.char.decode(value, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path}: the labels are bytes that are not UTF-8 text") from None
    if value.dtype.kind == "U" and value.ndim == 1:
        return np.asarray(value)
    checked = vector(path, "y", value)
    return np.asarray(value.ravel()) if value.dtype.kind in "iu" and value.dtype.isnative else checked


def matrix(path: Path, value: np.ndarray) -> np.ndarray:
    """Return a nonempty matrix in C order; float32 and float64 are not copied."""
    if value.ndim != 2 or value.dtype.kind not in "fiub" or 0 in value.shape:
        raise DataError(f"{path}: X must be a nonempty matrix of numbers, got {value.dtype} of shape {value.shape}")
    kept = value.dtype.isnative and value.dtype in (np.float32, np.float64)
    return np.ascontiguousarray(value, dtype=value.dtype if kept else np.float64)
