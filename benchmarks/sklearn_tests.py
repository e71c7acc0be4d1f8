"""scikit-learn's own tests of the estimators that ours replace, run with ours in their place.

    python -m benchmarks.sklearn_tests [--only test_ridge,test_svm] [--out benchmarks/SKLEARN_TESTS.md]

Each of our estimators takes the place of scikit-learn's of the same name in ``sklearn.linear_model`` and ``sklearn.svm``; then
pytest runs the test modules that scikit-learn installs. Counted are the tests that make or are given one of our estimators, or
call one of our path functions. A test that fails is listed in ``EXPECTED`` with one of the reasons of ``REASONS``, or counts as
unexplained.
"""

from __future__ import annotations

import argparse
import functools
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sklearn.linear_model
import sklearn.svm
from benchmarks import fresh, report
from benchmarks.report import Section, Table, Target
from benchmarks.sklearn_tests_expected import EXPECTED, REASONS, UNEXPLAINED

import dualnewton as dn

MODULES = (
    *(
        f"sklearn.linear_model.tests.test_{name}"
        for name in (
            "base",
            "common",
            "coordinate_descent",
            "huber",
            "logistic",
            "quantile",
            "ridge",
            "sag",
            "sparse_coordinate_descent",
        )
    ),
    "sklearn.svm.tests.test_svm",
    "sklearn.svm.tests.test_bounds",
)

PACKAGES = (sklearn.linear_model, sklearn.svm)

Expected = Mapping[str, Mapping[str, str]]
"""The reason of each test function that fails, by module."""

LIMIT = 300
"""Seconds after which a test counts as failed."""

COUNTED = ("passed", "failed")
"""Outcomes that count; tests that are skipped say nothing."""


@dataclass(frozen=True)
class Outcome:
    """One test: its function, its parameters as pytest names them, and how it ended."""

    function: str
    parameters: str
    ending: str
    error: str = ""


class Replaced:
    """Our estimators in the place of scikit-learn's, and how often they were used."""

    def __init__(self) -> None:
        self.uses, self.kinds = 0, set()
        for name in dn.estimators.__all__:
            for package in PACKAGES:
                if hasattr(package, name):
                    setattr(package, name, self._counted(getattr(dn, name)))

    def _counted(self, ours: Any) -> Any:
        """Count instances of a class, and calls of a function; parameters and names stay as they are."""
        original = ours.__init__ if isinstance(ours, type) else ours

        @functools.wraps(original)
        def counted(*args: Any, **more: Any) -> Any:
            self.uses += 1
            return original(*args, **more)

        if not isinstance(ours, type):
            return counted
        ours.__init__ = counted
        self.kinds.add(ours)
        return ours

    def begin(self) -> None:
        """Begin to count for another test."""
        self.uses = 0

    def count(self, item: pytest.Item, outcome: str) -> bool:  # noqa: ARG002
        """Whether a test used one of our classes, or has one among its parameters."""
        return bool(self.uses) or self.are_given(item)

    def are_given(self, item: pytest.Item) -> bool:
        """Whether a test has one of our classes, or an instance, among its parameters."""
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        return any((value if isinstance(value, type) else type(value)) in self.kinds for value in given)


class Recorder:
    """A plugin of pytest that records how each test ended, if it counts.

    Parameters
    ----------
    begin : callable
        Called before a test.
    counts : callable
        Whether a test counts, from pytest's item and outcome.
    """

    def __init__(self, begin: Callable[[], None], counts: Callable[[pytest.Item, str], bool]) -> None:
        self.begin, self.counts = begin, counts
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:  # noqa: ARG002
        """Bound the time of a test."""
        self.begin()
        signal.signal(signal.SIGALRM, _late)
        signal.alarm(LIMIT)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        """Record a test that counts."""
        made = yield
        ended = call.when == "call" and made.outcome in COUNTED and not hasattr(made, "wasxfail")
        if ended and self.counts(item, made.outcome):
            function, _, parameters = item.name.partition("[")
            error = "" if call.excinfo is None else str(call.excinfo.value).strip().partition("\n")[0]
            self.outcomes.append(Outcome(function, parameters.rstrip("]"), made.outcome, error))
        return made


def run(module: str, recorder: Recorder) -> list[Outcome]:
    """Run the tests of a module."""
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "pytest.ini"
        plain.write_text("[pytest]\n", encoding="utf-8")  # so that the settings of this repository do not apply
        off = [word for name in ("cacheprovider", "xdist", "benchmark") for word in ("-p", f"no:{name}")]
        arguments = ["--pyargs", module, "-c", str(plain), "--rootdir", folder, *off, "-q", "--tb=no", "--no-header"]
        pytest.main([*arguments, "-W", "ignore", "--no-summary"], plugins=[recorder])
    return recorder.outcomes


@dataclass(frozen=True)
class Counts:
    """How many tests of a module were run, and how many of each function failed."""

    tests: int
    failed: Mapping[str, int]

    @classmethod
    def of(cls, outcomes: list[Outcome]) -> Counts:
        """Count outcomes."""
        return cls(len(outcomes), dict(Counter(one.function for one in outcomes if one.ending == "failed")))


def reason_of(module: str, function: str, expected: Expected = EXPECTED) -> str:
    """Return why a test fails."""
    return expected.get(module.rpartition(".")[2], {}).get(function, UNEXPLAINED)


def summary(title: str, found: Mapping[str, Counts], expected: Expected = EXPECTED) -> Section:
    """Return the counts of each module, the reasons, and each test that fails."""
    failed = [(module, *each) for module, counts in found.items() for each in counts.failed.items()]
    of = Counter[str]()
    for module, function, count in failed:
        of[reason_of(module, function, expected)] += count
    modules = [(name.rpartition(".")[2], each.tests, sum(each.failed.values())) for name, each in found.items()]
    modules.append(("all", sum(tests for _, tests, _ in modules), of.total()))
    tests = [
        [module.rpartition(".")[2], function, str(count), reason_of(module, function, expected)]
        for module, function, count in failed
    ]
    return Section(
        title,
        [
            Table(
                "Modules",
                ["module", "tests", "passed", "failed"],
                [[name, str(tests), str(tests - misses), str(misses)] for name, tests, misses in modules],
            ),
            Table(
                "Reasons",
                ["reason", "tests", "what it means"],
                [[name, str(of[name]), text] for name, text in REASONS.items()],
            ),
            Table("Tests that fail", ["module", "test", "cases", "reason"], tests),
        ],
        [Target("no failure is unexplained", str(of[UNEXPLAINED]), of[UNEXPLAINED] == 0)],
    )


def say_unexplained(module: str, outcomes: list[Outcome], expected: Expected = EXPECTED) -> None:
    """Print each test that fails without a reason."""
    for one in outcomes:
        if one.ending == "failed" and reason_of(module, one.function, expected) == UNEXPLAINED:
            print(f"unexplained: {module} {one.function}[{one.parameters}]: {one.error}", flush=True)


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


def main() -> None:
    """Run the modules, print what fails without a reason, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="modules, separated by commas")
    parser.add_argument("--out", type=Path, default=fresh.ROOT / "benchmarks" / "SKLEARN_TESTS.md")
    chosen = parser.parse_args()
    names = set(filter(None, chosen.only.split(",")))
    replaced, found = Replaced(), dict[str, Counts]()
    for module in MODULES:
        if not names or module.rpartition(".")[2] in names:
            outcomes = run(module, Recorder(replaced.begin, replaced.count))
            say_unexplained(module, outcomes)
            found[module] = Counts.of(outcomes)
    section = summary("scikit-learn's tests with our estimators", found)
    report.show(Section(section.title, section.tables[:2], section.targets))
    if not names:
        page = report.markdown([section], "python -m benchmarks.sklearn_tests", [])
        chosen.out.write_text(page, encoding="utf-8")
    sys.exit(any(target.passed is False for target in section.targets))


if __name__ == "__main__":
    main()
