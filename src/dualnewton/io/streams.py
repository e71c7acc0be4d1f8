"""Streams of the bytes of a file, decompressed if necessary, with reports of progress."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from dualnewton.files.npy import damage
from dualnewton.io.dataset import DataError

try:
    from lzma import LZMAError
except ImportError:  # some builds of Python lack the module
    LZMAError = EOFError  # type: ignore[assignment, misc]

COMPRESSIONS = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
"""The first bytes of a compressed file, and the module that reads it."""

SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}
"""The module by suffix of the file name. Only writing uses it; reading detects the compression by the first bytes."""

FAULTS = (EOFError, zlib.error, zipfile.BadZipFile, LZMAError)
"""Exceptions of the modules above for damaged files."""

BUFFER = 1 << 16
"""Bytes of the read buffer."""

Progress = Callable[[int, int | None], None]
"""A function of the number of bytes read or received so far and the total number, None if that is unknown."""

Report = Callable[[int], None]
"""A function of the number of bytes of the file on disk (before decompression) that have been read."""


def stem(path: Path) -> Path:
    """Return a path without the suffix of its compression."""
    return path.with_suffix("") if path.suffix.lower() in SUFFIXES else path


@contextlib.contextmanager
def reading(path: Path, report: Report | None = None, member: str | None = None) -> Iterator[io.BufferedReader]:
    """Open a file, or a member of a zip archive, for its decompressed bytes.

    Its compression is detected by its first bytes. ``report`` is called with the number of bytes of the file read so far.
    """
    with contextlib.ExitStack() as opened:
        file: IO[bytes] = opened.enter_context(open(path, "rb"))
        inner: Any = file
        if member is not None:
            inner = opened.enter_context(_member(opened, file, path, member))
        else:
            start = file.read(max(map(len, COMPRESSIONS)))
            file.seek(0)
            for magic, module in COMPRESSIONS.items():
                if start.startswith(magic):
                    inner = opened.enter_context(importlib.import_module(module).open(file, "rb"))
        yield opened.enter_context(io.BufferedReader(_Watched(inner, file, path, report), BUFFER))


def _member(opened: contextlib.ExitStack, file: IO[bytes], path: Path, name: str) -> Any:
    try:
        return opened.enter_context(zipfile.ZipFile(file)).open(name)
    except (zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError, OverflowError, ValueError) as error:
        raise DataError(f"{path}: expected a zip archive with {name} in it ({error})") from None


class _Watched(io.RawIOBase):
    """The bytes of an inner stream; decompression errors become ``DataError``, and progress is reported."""

    def __init__(self, inner: Any, file: IO[bytes], path: Path, report: Report | None) -> None:
        self.inner, self.file, self.path, self.report = inner, file, path, report

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with damage(DataError, f"{self.path}: the compressed file is damaged or cut short", FAULTS, errnos=()):
            count = self.inner.readinto(buffer)
        if self.report is not None:
            self.report(self.file.tell())
        return int(count or 0)


@contextlib.contextmanager
def compressing(file: IO[bytes], path: str | os.PathLike[str]) -> Iterator[Any]:
    """Wrap an open file in the compression that the suffix of its name asks for, if any."""
    module = SUFFIXES.get(Path(path).suffix.lower())
    if module is None:
        yield file
    elif module == "gzip":
        # The file stores neither a name nor a date, so that equal contents give equal files.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as compressed:
            yield compressed
    else:
        with importlib.import_module(module).open(file, "wb") as compressed:
            yield compressed
