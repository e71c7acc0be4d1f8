"""The folders in which data sets are searched and downloads are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DATA, CACHE = "DUALNEWTON_DATA", "DUALNEWTON_CACHE"
"""Environment variables that name the folder of the user's own files and the folder for downloads."""

CACHES = {
    "win32": lambda: Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"),
    "darwin": lambda: Path.home() / "Library" / "Caches",
}
"""The cache folders of Windows and macOS; other systems follow the XDG base directory specification."""

ENDINGS = (".npz", ".npy", "", ".svm", ".libsvm", ".svmlight", ".txt", ".csv", ".tsv", ".parquet", ".data")
COMPRESSED = ("", ".bz2", ".gz", ".xz")


def cache_folder() -> Path:
    """Return the folder for downloads, which may not exist yet."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    system = CACHES.get(sys.platform, lambda: Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    return system() / "dualnewton"


def own_file(name: str, others: tuple[str, ...] = ()) -> Path | None:
    """Return the user's own file of a data set, or None: its name with any known suffix, or one of the ``others``."""
    chosen = os.environ.get(DATA)
    if not chosen:
        return None
    folder = Path(chosen).expanduser()
    names = [name + ending + more for ending in ENDINGS for more in COMPRESSED]
    return next((folder / file for file in [*names, *others] if (folder / file).is_file()), None)
