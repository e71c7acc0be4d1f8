"""scikit-learn's own tests of its linear models under ``dualnewton.accel``.

    python -m benchmarks.accel_tests [--only test_huber,test_svm] [--limit 600] [--out benchmarks/ACCEL_TESTS.md]

Each test module that scikit-learn installs runs in a process of its own, as
``python -m dualnewton.accel -m pytest --pyargs MODULE``. All tests of a module are counted, also those of functions and classes
that accel leaves alone. The page is written after each module, so that a run that is ended keeps what it has.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks import fresh, report
from benchmarks.report import Section, Table
from benchmarks.sklearn_tests import MODULES

COUNTED = ("passed", "failed", "skipped")
"""Outcomes in the last line of pytest that are counted."""


def run(module: str, limit: float) -> tuple[list[str], Counter[str]]:
    """Run a module; return the row of its counts, and how many tests of each function fail."""
    command = [sys.executable, "-m", "dualnewton.accel", "-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider"]
    name = module.rpartition(".")[2]
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*command, "--pyargs", module], capture_output=True, text=True, timeout=limit, cwd=folder
            )
        except subprocess.TimeoutExpired:
            return [name, f"not ended in {limit:g} s", "", ""], Counter()
    last = done.stdout.strip().splitlines()[-1]
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", last)}
    failed = re.findall(r"^(?:FAILED|ERROR) .*?::(\w+)", done.stdout, flags=re.MULTILINE)
    return [name, *(str(counts.get(word, 0)) for word in COUNTED)], Counter(f"{name}: {each}" for each in failed)


def summary(rows: list[list[str]], failed: Counter[str]) -> Section:
    """Return the section of the page."""
    sums = [str(sum(int(row[k]) for row in rows if row[k].isdigit())) for k in range(1, 1 + len(COUNTED))]
    return Section(
        "scikit-learn's tests under dualnewton.accel",
        [
            Table("Modules", ["module", *COUNTED], [*rows, ["all", *sums]]),
            Table("Failures", ["test", "failures"], [[name, str(count)] for name, count in failed.most_common()]),
        ],
    )


def main() -> None:
    """Run the modules and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="modules, separated by commas")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for each module")
    parser.add_argument("--out", type=Path, default=fresh.ROOT / "benchmarks" / "ACCEL_TESTS.md")
    given = parser.parse_args()
    names = set(filter(None, given.only.split(",")))
    rows, failed = list[list[str]](), Counter[str]()
    for module in MODULES:
        if not names or module.rpartition(".")[2] in names:
            row, more = run(module, given.limit)
            rows.append(row)
            failed += more
            print(*row, flush=True)
            page = report.markdown([summary(rows, failed)], "python -m benchmarks.accel_tests", [])
            given.out.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
