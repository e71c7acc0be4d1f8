"""The hardware and software of a run, without host names or paths."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from dualnewton.io.arrays import UNKNOWN, memory
from dualnewton.run.checkpoint import installed_version

PACKAGES = ("dualnewton", "numpy", "scipy", "numba", "scikit-learn")


def environment(threads: int = 1, packages: Sequence[str] = ()) -> dict[str, str]:
    """Return the date, the hardware and the software versions of a run.

    ``packages`` are further ones whose versions are listed if they are installed.
    """
    versions = {name: installed_version(name) for name in (*PACKAGES, *packages)}
    return {
        "Date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "Processor": f"{processor()}, {os.cpu_count()} cores",
        "Memory": f"{memory() / 2**30:.0f} GiB" if memory() < UNKNOWN else "unknown",
        "Threads": f"{threads}",
        "System": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "Versions": ", ".join(f"{name} {found}" for name, found in versions.items() if found),
    }


def processor() -> str:
    """Return the name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
