"""Output files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

UNFINISHED = ".part"
"""The ending of a file that is being written. A process that is killed leaves one behind, and the next overwrites it."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], mode: str = "wb", **options: Any) -> Iterator[IO[Any]]:
    """Open a file for writing that takes its name only when it is complete and on the disk.

    Whatever goes wrong before (an error, a full disk, a lost machine), what had the name before is untouched.

    Parameters
    ----------
    path : path
        The name it will have.
    mode, options
        As of ``open``.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # a device or a folder is not to be replaced by a file
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
    _keep_name(path.parent)


def _keep_name(folder: Path) -> None:
    """Have the folder remember the new name, where the system can be asked to."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
