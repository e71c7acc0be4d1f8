"""Atomic replacement of output files."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNFINISHED = ".part"
"""The suffix of a file that is being written. Its name also has twelve random digits, so that two processes that write to one
path do not share it. A killed process leaves such a file behind; the next write to the same path removes it."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file for writing; it replaces ``path`` when it is complete and on the disk.

    After any failure before that (an error, a full disk, a crash), an existing file at ``path`` is unchanged. Of several
    processes that write to one path at the same time, the last to end determines the file.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # devices and folders must not be replaced
        raise OSError(errno.EINVAL, "is not a file that can be replaced", str(path))
    if not path.parent.is_dir():  # the error of ``open`` would name the temporary file
        raise FileNotFoundError(errno.ENOENT, "there is no such folder to write to", str(path.parent))
    _remove_leftovers(path)
    file = _temporary(path, mode.replace("w", "x"), options)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:  # while it is locked
                os.replace(file.name, path)
        if fcntl is None:  # an open file cannot be renamed
            os.replace(file.name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(file.name)
        raise
    _sync_folder(path.parent)


def unfinished(path: Path) -> list[Path]:
    """Return the temporary files of ``path``: those of running processes, and those left by killed processes."""
    pattern = re.compile(rf"{re.escape(path.name)}\.[0-9a-f]{{12}}{re.escape(UNFINISHED)}")
    try:
        return [path.with_name(name) for name in os.listdir(path.parent) if pattern.fullmatch(name)]
    except OSError:  # no folder, or one that may not be listed
        return []


def _temporary(path: Path, mode: str, options: dict[str, Any]) -> IO[Any]:
    """Create a file with a unique name, and lock it until it is closed: other processes remove files that are not locked."""
    while True:
        name = path.with_name(f"{path.name}.{uuid.uuid4().hex[:12]}{UNFINISHED}")
        file: IO[Any] = open(name, mode, **options)  # noqa: SIM115 (the caller closes it)
        if fcntl is None:
            return file
        with contextlib.suppress(OSError):  # file systems without locks, on which no process removes files
            fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # another process removed it before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of processes that no longer run; only systems with ``flock`` can detect these."""
    for each in unfinished(path) if fcntl is not None else ():
        with contextlib.suppress(OSError), open(each, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises an error if its process runs
            each.unlink()


def _sync_folder(folder: Path) -> None:
    """Write the new directory entry to the disk, on systems that support it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
