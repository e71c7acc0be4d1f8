"""Arrays in npy and npz files: memory-mapped where possible, never unpickled, with sizes checked before anything is allocated.

An npz file is a zip archive of npy files. The bytes of an uncompressed member are those of an npy file, so the member can be
memory-mapped inside the archive if its offset is aligned, as it is in files written by ``convert``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.files.npy import MAGIC, Header, bytes_of, damage, header
from dualnewton.io.dataset import OPTIONS, DataError

RATIO = 1100
"""Upper bound on the compression ratio of deflate, which is 1032; a member that claims a larger ratio is damaged."""

EXPANDED = 1 << 22
"""Bytes of a compressed member that are expanded at a time (4 MiB)."""

UNKNOWN = 1 << 62
"""Bytes of memory of a machine that does not report them."""

LOCAL = struct.Struct("<4s5H3L2H")
"""The local header of a zip member; its last two fields are the lengths of the name and of the extra field after it."""


def faults(path: Path) -> contextlib.AbstractContextManager[None]:
    """Convert the exceptions that a damaged file causes into a ``DataError`` that names the file."""
    return damage(DataError, f"{path}: damaged, or not a file of NumPy arrays")


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
    """The arrays of an npz file by name; each is opened on first access."""

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

    def place(self, name: str) -> tuple[Header, int] | None:
        """Return the header of a member and the offset of its first entry in the file; None if it is compressed."""
        info = self._infos[name]
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        with faults(self.path):
            found, start = self._header(info)
        return found, start + found.start

    def _header(self, info: zipfile.ZipInfo) -> tuple[Header, int]:
        """Return the header of an uncompressed member and where the member begins."""
        with open(self.path, "rb") as file:
            file.seek(info.header_offset)
            magic, *_, name, extra = LOCAL.unpack(file.read(LOCAL.size))
            start = info.header_offset + LOCAL.size + name + extra
            if magic != b"PK\x03\x04" or info.file_size != info.compress_size or start + info.file_size > self._size:
                raise DualnewtonError(f"{info.filename} is cut short")
            file.seek(start)
            return header(file, info.file_size), start

    def expand(self, name: str, out: IO[bytes]) -> Header:
        """Append the entries of a compressed member to a file, in blocks; return its header."""
        info = self._infos[name]
        with faults(self.path), open(self.path, "rb") as file, zipfile.ZipFile(file) as archive:
            self._require_possible(info)
            with archive.open(info) as member:
                found = header(member, info.file_size)
                shutil.copyfileobj(member, out, EXPANDED)
        return found

    def _in_place(self, info: zipfile.ZipInfo) -> np.ndarray:
        """Memory-map an uncompressed member; read it into memory if its offset is not aligned."""
        found, start = self._header(info)
        if (start + found.start) % found.dtype.alignment:
            return self._read(info)
        return mapped(self.path, found, start)

    def _require_possible(self, info: zipfile.ZipInfo) -> None:
        if info.file_size > RATIO * (info.compress_size + 1):
            raise DualnewtonError(f"{info.filename} cannot have the size it claims")

    def _read(self, info: zipfile.ZipInfo) -> np.ndarray:
        """Read a member into memory if it fits; ``zipfile`` compares its checksum."""
        self._require_possible(info)
        with open(self.path, "rb") as file, zipfile.ZipFile(file) as archive, archive.open(info) as member:
            found = header(member, info.file_size)
            if info.file_size > memory():
                raise DataError(
                    f"{self.path}: {info.filename} needs {info.file_size >> 20} MiB of memory, the machine has {memory() >> 20}: "
                    "save it without compression, so that it can be memory-mapped"
                )
            raw = member.read()
        if found.start + len(raw) != info.file_size:
            raise DualnewtonError(f"{info.filename} is cut short")
        count = bytes_of(found.shape, found.dtype) // max(1, found.dtype.itemsize)
        flat = np.frombuffer(raw, found.dtype, count) if raw else np.empty(count, found.dtype)
        return np.require(flat, requirements="A").reshape(found.shape, order="F" if found.in_columns else "C")


def memory() -> int:
    """Return the bytes of memory of the machine."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def vector_file(path: Path) -> np.ndarray:
    """Return the numbers in a file, one per example: an npy array, or text with one number per line."""
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
        raise DataError(f"{path}: expected one number per line ({str(error)[:80]})") from None


def vector(path: Path, what: str, value: np.ndarray) -> np.ndarray:
    """Return a vector of finite float64 numbers, one per example; ``what`` names it in error messages."""
    if value.ndim == 2 and value.shape[1] == 1:
        value = value[:, 0]
    if value.ndim != 1 or value.dtype.kind not in "fiub":
        raise DataError(f"{path}: {what} must be a vector of numbers, got {value.dtype} of shape {value.shape}")
    numbers = np.asarray(value, dtype=np.float64)
    if not (finite := np.isfinite(numbers)).all():
        at = int(np.argmin(finite))
        raise DataError(f"{path}: {what} must be finite, got {numbers[at]} at row {at}")
    return numbers


def require_one_each(path: Path, name: str, found: np.ndarray, n: int) -> None:
    """Raise an error if the numbers in a file, of the field ``name`` of a data set, are not one for each example."""
    if len(found) != n:
        what = OPTIONS[name].removesuffix("s")
        raise DataError(f"{path}: must have one {what} for each of {n} examples, has {len(found)}")


def labels(path: Path, value: np.ndarray) -> np.ndarray:
    """Return the labels, one per example: finite numbers or text; integers keep their type."""
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
