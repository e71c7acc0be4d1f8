"""Reading of tables: `data.read` on CSV files of numbers against Python's ``csv``, and mixed tables against pandas and polars.

Python's ``csv`` is the reader that `data.read` had before, and still has for files that Arrow cannot read; both return the same
bits. Each time is the processor time of all threads of the process, the best of a few in turn, so that other work on the machine
counts little; the speed on the clock is shown beside it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
from benchmarks.report import Section, Table, Target, markdown, ratio

from dualnewton import data
from dualnewton.io import tables
from dualnewton.io.frames import read_frame
from dualnewton.io.source import ReadOptions
from dualnewton.preprocessing import Choices, Encoding, roles_of

REPEATS = 5

STYLES = {"3 digits": "%.3f", "17 digits": "%.17g"}
"""Formats of the numbers."""

COLUMNS = 20


def numeric(path: Path, size: int, style: str) -> None:
    """Write Gaussian numbers with labels 0 and 1 until the file has ``size`` bytes."""
    rng = np.random.default_rng(0)
    line = ",".join([style] * COLUMNS) + ",%d\n"
    with open(path, "w", encoding="ascii") as file:
        file.write(",".join(f"x{k}" for k in range(COLUMNS)) + ",y\n")
        while file.tell() < size:
            rows = np.column_stack([rng.standard_normal((1000, COLUMNS)), rng.integers(0, 2, 1000)])
            file.writelines(line % tuple(row) for row in rows.tolist())


def mixed(path: Path, size: int) -> None:
    """Write customers until the file has ``size`` bytes, with columns of all kinds and missing values."""
    rng, k = np.random.default_rng(0), 0
    with open(path, "w", encoding="utf-8") as file:
        file.write("customer_id,age,income,plan,city,active,since,balance,churn\n")
        while file.tell() < size:
            plan, city = rng.choice(["basic", "plus", "pro"], 1000), rng.integers(0, 50, 1000)
            age, numbers = rng.integers(18, 90, 1000), rng.standard_normal((1000, 2))
            for i in range(1000):
                income = "" if i % 20 == 0 else f"{30000 + 9000 * numbers[i, 0]:.2f}"
                day = f"20{10 + i % 14}-{1 + i % 12:02d}-{1 + i % 28:02d}"
                words = (k, age[i], income, plan[i], f"city {city[i]}", bool(i % 3), day, f"{numbers[i, 1]:.6f}")
                file.write(",".join(map(str, words)) + f",{'yes' if numbers[i].sum() > 0 else 'no'}\n")
                k += 1


def measured(ways: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """Return the least processor seconds and the least seconds of each way, run in turn."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, way in ways.items():
            work, clock = time.process_time(), time.perf_counter()
            way()
            found[name].append((time.process_time() - work, time.perf_counter() - clock))
    return {name: (min(a for a, _ in each), min(b for _, b in each)) for name, each in found.items()}


def by_python(path: Path) -> data.Dataset:
    """Read a file with Python's ``csv``."""
    with mock.patch.object(tables, "FAST", 1 << 62):
        return data.read(path)


def encoded(path: Path) -> object:
    """Read a mixed table, find the kinds of its columns, and encode it, as `dualnewton fit` does."""
    frame = read_frame(path, ReadOptions("churn"))
    roles = roles_of(frame.table, frame.names[:-1], Choices())
    return Encoding.fit(frame, roles, target="churn").matrix(frame)


def section(megabytes: int, say: Callable[[str], None]) -> Section:
    """Time the readers on files of this size."""
    import pandas as pd
    import polars as pl

    rows, ratios, on_the_clock = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        for name, style in STYLES.items():
            numeric(path, megabytes * 1_000_000, style)
            fast, slow = data.read(path), by_python(path)
            if not (np.array_equal(fast.X, slow.X) and np.array_equal(fast.y, slow.y)):
                raise AssertionError("the readers do not agree")
            del fast, slow
            times = measured({"data.read": lambda: data.read(path), "Python's csv": lambda: by_python(path)})
            work, clock = (slow / fast for slow, fast in zip(times["Python's csv"], times["data.read"], strict=True))
            ratios.append(work)
            on_the_clock.append(clock)
            rows += [lines(f"numbers, {name}", way, path, *each) for way, each in times.items()]
            say(f"{name}: {ratio(clock)} on the clock, {ratio(work)} of processor time")
        mixed(path, megabytes * 1_000_000)
        ways = {
            "read_frame": lambda: read_frame(path, ReadOptions("churn")),
            "read_frame and encoding": lambda: encoded(path),
            "pandas.read_csv": lambda: pd.read_csv(path, parse_dates=["since"]),
            "polars.read_csv": lambda: pl.read_csv(path, try_parse_dates=True),
        }
        rows += [lines("mixed", way, path, *each) for way, each in measured(ways).items()]
    result = Section(f"Reading CSV files of {megabytes} MB")
    columns = ["file", "reader", "processor time", "MB/s of processor time", "MB/s on the clock"]
    result.tables = [Table("From the file cache, the best of a few in turn", columns, rows)]
    result.targets = [
        Target.at_least("at least 10 times as fast as Python's csv, on the clock", on_the_clock, 10.0),
        Target.at_least("the same by processor time, that of all threads", ratios, 10.0),
    ]
    return result


def lines(file: str, way: str, path: Path, work: float, clock: float) -> list[str]:
    """Return a row of the table."""
    size = path.stat().st_size / 1e6
    return [file, way, f"{work:.3f} s", f"{size / work:.0f}", f"{size / clock:.0f}"]


def main() -> None:
    """Write TABLES.md; the argument is the size of the files in MB, 20 by default."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    found = section(megabytes, print)
    note = f"Load of the machine by other work: {os.getloadavg()[0]:.1f} running processes on {os.cpu_count()} cores"
    text = markdown([found], f"python -m benchmarks.table_reading {megabytes}", [note])
    Path(__file__).with_name("TABLES.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
