"""Atomic replacement of output files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

UNFINISHED = ".part"
"""The suffix of a file that is being written. A killed process leaves such a file behind; the next write replaces it."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a temporary file for writing; it replaces ``path`` when it is complete and on the disk.

    After any failure before that (an error, a full disk, a crash), an existing file at ``path`` is unchanged.

    Parameters
    ----------
    path : path
        The final name of the file.
    mode, options
        Arguments of ``open``.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # devices and folders must not be replaced
        raise OSError(errno.EINVAL, "is not a file that can be replaced", str(path))
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        with open(unfinished, mode, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Write the new directory entry to the disk, on systems that support it."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
