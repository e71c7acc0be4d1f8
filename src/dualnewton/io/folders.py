"""Where data sets are looked for, and where downloads are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

DATA, CACHE = "DUALNEWTON_DATA", "DUALNEWTON_CACHE"
"""Variables of the environment: a folder of the user's own files, and the one for downloads."""

CACHES = {
    "win32": lambda: Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"),
    "darwin": lambda: Path.home() / "Library" / "Caches",
}
"""Where a system keeps what can be had again; all others follow the XDG rules."""

ENDINGS = (".npz", ".npy", "", ".svm", ".libsvm", ".svmlight", ".txt", ".csv", ".tsv", ".parquet", ".data")
COMPRESSED = ("", ".bz2", ".gz", ".xz")


def cache_folder() -> Path:
    """Return the folder for downloads; it need not exist."""
    chosen = os.environ.get(CACHE)
    if chosen:
        return Path(chosen).expanduser()
    system = CACHES.get(sys.platform, lambda: Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"))
    return system() / "dualnewton"


def data_folder() -> Path | None:
    """Return the folder of the user's own files, if one is named."""
    chosen = os.environ.get(DATA)
    return Path(chosen).expanduser() if chosen else None


def own_file(name: str, others: tuple[str, ...] = ()) -> Path | None:
    """Return the user's own file of a data set: by its name with any known ending, or by one of other names."""
    folder = data_folder()
    if folder is None:
        return None
    names = [name + ending + more for ending in ENDINGS for more in COMPRESSED]
    return next((folder / file for file in [*names, *others] if (folder / file).is_file()), None)
