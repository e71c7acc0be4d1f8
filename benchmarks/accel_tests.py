"""scikit-learn's own tests of its linear models under ``dualnewton.accel``.

    python -m benchmarks.accel_tests [--only test_huber,test_svm] [--out benchmarks/ACCEL_TESTS.md]

Each test module that scikit-learn installs runs after ``dualnewton.accel.install()``. Counted are the tests in which this library
fits a model, and all that fail; the others use what accel leaves alone, or their fits fall back to scikit-learn. The counts of
each module are kept in a JSON file beside the page, so that modules can be run one at a time.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from benchmarks import fresh, report
from benchmarks.report import Section
from benchmarks.sklearn_tests import MODULES, Counts, Recorder, run, say_unexplained, summary
from benchmarks.sklearn_tests_expected import ACCEL

from dualnewton import accel
from dualnewton.accel import _classes


class Accelerated:
    """scikit-learn's classes, fitted by this library, and how often."""

    def __init__(self) -> None:
        self.uses = 0
        adopt = _classes._adopt

        @functools.wraps(adopt)
        def counted(*args: Any) -> None:
            self.uses += 1
            adopt(*args)

        _classes._adopt = counted
        accel.install()

    def begin(self) -> None:
        """Begin to count for another test."""
        self.uses = 0

    def count(self, item: pytest.Item, outcome: str) -> bool:  # noqa: ARG002
        """Whether this library fitted a model in a test, or the test failed."""
        return bool(self.uses) or outcome == "failed"


def main() -> None:
    """Run the modules and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="modules, separated by commas; the others keep their counts")
    parser.add_argument("--out", type=Path, default=fresh.ROOT / "benchmarks" / "ACCEL_TESTS.md")
    given = parser.parse_args()
    names, kept = set(filter(None, given.only.split(","))), given.out.with_suffix(".json")
    stored = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    found, accelerated = {module: Counts(**each) for module, each in stored.items()}, Accelerated()
    for module in MODULES:
        if not names or module.rpartition(".")[2] in names:
            outcomes = run(module, Recorder(accelerated.begin, accelerated.count))
            say_unexplained(module, outcomes, ACCEL)
            found[module] = Counts.of(outcomes)
            kept.write_text(
                json.dumps({name: asdict(each) for name, each in found.items()}, indent=1), encoding="utf-8"
            )
    section = summary("scikit-learn's tests under dualnewton.accel", found, ACCEL)
    report.show(Section(section.title, section.tables[:2], section.targets))
    given.out.write_text(report.markdown([section], "python -m benchmarks.accel_tests", []), encoding="utf-8")
    sys.exit(any(target.passed is False for target in section.targets))


if __name__ == "__main__":
    main()
