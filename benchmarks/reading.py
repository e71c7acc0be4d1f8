"""The svmlight reader against scikit-learn's, on a generated file of 100 MB.

Both read from the file cache of the system and return the same matrix, to the last bit. Our reader is timed after an untimed
read, which loads the compiled parser; the time of loading and compiling is shown in a separate table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from benchmarks.report import Section, Table, Target, ratio, seconds
from benchmarks.timing import best_of, cores, pinned

from dualnewton import data

ROW = 60  # entries per line
FEATURES = 50_000  # columns

STYLES = {"6 digits": "%.6g", "17 digits": "%.17g"}
"""Formats of the values: that of most tools, and one from which every float64 can be read back exactly."""

STARTS = {"compiled by an earlier process": True, "compiled now": False}

REPEATS = 3  # reads of each file, of which the shortest counts

FIRST_READ = """
import sys, time
from dualnewton import data
start = time.perf_counter()
data.read(sys.argv[1])
print(time.perf_counter() - start)
"""


def generate(path: Path, size: int, style: str, seed: int = 0) -> None:
    """Write rows of 60 ascending indices with Gaussian values until the file has ``size`` bytes."""
    rng = np.random.default_rng(seed)
    pattern = "%d " + " ".join(f"%d:{style}" for _ in range(ROW))
    with open(path, "w", encoding="ascii") as file:
        while file.tell() < size:
            indices = 1 + np.arange(ROW) * (FEATURES // ROW) + rng.integers(0, FEATURES // ROW, (500, ROW))
            values = rng.standard_normal((500, ROW))
            labels = rng.choice([-1, 1], 500).tolist()
            for label, row, numbers in zip(labels, indices.tolist(), values.tolist(), strict=True):
                pairs = [part for pair in zip(row, numbers, strict=True) for part in pair]
                file.write(pattern % (label, *pairs) + "\n")


def section(megabytes: int, say: Callable[[str], None]) -> Section:
    """Time both readers on one core and on all cores, for each format of the values."""
    rows, ratios = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, style in STYLES.items():
            path = Path(folder) / "file.svm"
            generate(path, megabytes * 1_000_000, style)
            for threads in sorted({1, len(cores())}):
                with pinned(threads):
                    ours, theirs = both(path)
                ratios.append(theirs / ours)
                rate = f"{path.stat().st_size / ours / 1e6:.0f} MB/s"
                rows.append([name, str(threads), seconds(ours), rate, seconds(theirs), ratio(ratios[-1])])
                say(f"{name}, {threads} cores: {seconds(ours)} against {seconds(theirs)}")
        starts = [[name, seconds(first_read(path, compiled))] for name, compiled in STARTS.items()]
    result = Section(f"Reading svmlight files of {megabytes} MB")
    columns = ["values", "cores", "dualnewton", "", "load_svmlight_file", "ratio"]
    result.tables = [
        Table("From the file cache, the best of a few", columns, rows),
        Table("The first read of a process, last file", ["parser", "seconds"], starts),
    ]
    result.targets = [Target.at_least("at least as fast as scikit-learn's reader", ratios, 1.0)]
    return result


def both(path: Path) -> tuple[float, float]:
    """Check that both readers return the same data; return the seconds of ours and of scikit-learn's."""
    from sklearn.datasets import load_svmlight_file

    ours = data.read(path)
    X, y = load_svmlight_file(path)
    if not (
        np.array_equal(ours.X.data.view(np.int64), X.data.view(np.int64))
        and np.array_equal(ours.X.indices, X.indices)
        and np.array_equal(ours.y, y)
    ):
        raise AssertionError("the readers do not agree")
    del ours, X, y
    mine = best_of(lambda: data.read(path).X.nnz, REPEATS, enough=np.inf)
    theirs = best_of(lambda: load_svmlight_file(path)[0].nnz, REPEATS, enough=np.inf)
    return mine.seconds, theirs.seconds


def first_read(path: Path, compiled: bool) -> float:
    """Return the seconds of the first read in a new process, with a filled or with an empty compilation cache."""
    with tempfile.TemporaryDirectory() as empty:
        environment = {} if compiled else {"NUMBA_CACHE_DIR": empty}
        run = subprocess.run(
            [sys.executable, "-c", FIRST_READ, str(path)],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=True,
        )
    return float(run.stdout)
