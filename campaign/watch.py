"""What happens while a file is read: memory, and what Python's audit events tell of processes, sockets and files elsewhere."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

FORBIDDEN = {
    "os.system", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class",
    "socket.connect", "socket.bind", "ctypes.dlopen", "shutil.unpack_archive",
}  # fmt: skip
"""Events that no reader of data has a reason for."""

CHANGES = {
    "os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "os.utime",
}  # fmt: skip
"""Events that change the file system, with a path first."""

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_watching: list[Watch] = []
"""The watch that is on: hooks of Python cannot be removed."""


def _memory(which: str) -> int:
    return 1024 * int(re.search(rf"{which}:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


class Watch:
    """The growth of the peak of resident memory inside a with-block, where the system tells it, and what should not happen there.

    Parameters
    ----------
    folder : Path
        The folder in which files may be written.

    Attributes
    ----------
    growth : int
        Bytes by which the peak of resident memory exceeds what was used before.
    seen : list of str
        Forbidden events, and changes of files outside of the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.growth, self.seen = os.path.realpath(folder), 0, list[str]()
        self.able = Path("/proc/self/clear_refs").exists()

    def __enter__(self) -> Watch:
        _listen()
        if self.able:
            Path("/proc/self/clear_refs").write_text("5")
            self.before = _memory("VmRSS")
        _watching.append(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _watching.clear()
        if self.able:
            self.growth = _memory("VmHWM") - self.before

    def hear(self, event: str, given: tuple[Any, ...]) -> None:
        """Note an event that should not be."""
        changes = event in CHANGES or (event == "open" and given[2] & WRITES)
        if event in FORBIDDEN or (changes and not self._inside(given[0])):
            self.seen.append(f"{event} {given[:2]!r}"[:200])

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int) or path is None:  # a descriptor that was opened before
            return True
        # A temporary file without a name is opened by the name of its folder.
        return (os.path.realpath(os.fsdecode(path)) + os.sep).startswith(self.folder + os.sep)


@cache
def _listen() -> None:
    sys.addaudithook(lambda event, given: _watching[0].hear(event, given) if _watching else None)
