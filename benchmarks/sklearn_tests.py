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
from collections.abc import Iterator
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

    def are_given(self, item: pytest.Item) -> bool:
        """Whether a test has one of our classes, or an instance, among its parameters."""
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        return any((value if isinstance(value, type) else type(value)) in self.kinds for value in given)


class Recorder:
    """A plugin of pytest that records how each test ended."""

    def __init__(self, replaced: Replaced) -> None:
        self.replaced = replaced
        self.outcomes: list[Outcome] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:  # noqa: ARG002
        """Bound the time of a test."""
        self.replaced.uses = 0
        signal.alarm(LIMIT)
        try:
            return (yield)
        finally:
            signal.alarm(0)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: Any) -> Iterator[None]:
        """Record a test that used ours."""
        made = yield
        used = self.replaced.uses or self.replaced.are_given(item)
        if used and call.when == "call" and made.outcome in COUNTED and not hasattr(made, "wasxfail"):
            function, _, parameters = item.name.partition("[")
            error = "" if call.excinfo is None else str(call.excinfo.value).strip().partition("\n")[0]
            self.outcomes.append(Outcome(function, parameters.rstrip("]"), made.outcome, error))
        return made


def run(module: str, replaced: Replaced) -> list[Outcome]:
    """Run the tests of a module."""
    recorder = Recorder(replaced)
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "pytest.ini"
        plain.write_text("[pytest]\n", encoding="utf-8")  # so that the settings of this repository do not apply
        off = [word for name in ("cacheprovider", "xdist", "benchmark") for word in ("-p", f"no:{name}")]
        arguments = ["--pyargs", module, "-c", str(plain), "--rootdir", folder, *off, "-q", "--tb=no", "--no-header"]
        pytest.main([*arguments, "-W", "ignore", "--no-summary"], plugins=[recorder])
    return recorder.outcomes


def reason_of(module: str, function: str) -> str:
    """Return why a test fails."""
    return EXPECTED.get(module.rpartition(".")[2], {}).get(function, UNEXPLAINED)


def summary(found: dict[str, list[Outcome]]) -> Section:
    """Return the counts of each module, the reasons, and each test that fails."""
    failed = {module: [one for one in each if one.ending == "failed"] for module, each in found.items()}
    total, misses = sum(map(len, found.values())), sum(map(len, failed.values()))
    of = Counter(reason_of(module, one.function) for module, each in failed.items() for one in each)
    modules = [
        [module.rpartition(".")[2], *map(str, (len(each), len(each) - len(failed[module]), len(failed[module])))]
        for module, each in found.items()
    ]
    modules.append(["all", str(total), str(total - misses), str(misses)])
    tests = [
        [module.rpartition(".")[2], function, str(count), reason_of(module, function)]
        for module, each in failed.items()
        for function, count in Counter(one.function for one in each).items()
    ]
    return Section(
        "scikit-learn's tests with our estimators",
        [
            Table("Modules", ["module", "tests", "passed", "failed"], modules),
            Table(
                "Reasons",
                ["reason", "tests", "what it means"],
                [[name, str(of[name]), text] for name, text in REASONS.items()],
            ),
            Table("Tests that fail", ["module", "test", "cases", "reason"], tests),
        ],
        [Target("no failure is unexplained", str(of[UNEXPLAINED]), of[UNEXPLAINED] == 0)],
    )


def _late(*_: Any) -> None:
    raise TimeoutError(f"more than {LIMIT} s")


def main() -> None:
    """Run the modules, print what fails without a reason, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="modules, separated by commas")
    parser.add_argument("--out", type=Path, default=fresh.ROOT / "benchmarks" / "SKLEARN_TESTS.md")
    chosen = parser.parse_args()
    names = set(filter(None, chosen.only.split(",")))
    signal.signal(signal.SIGALRM, _late)
    replaced, found = Replaced(), {}
    for module in MODULES:
        if not names or module.rpartition(".")[2] in names:
            found[module] = run(module, replaced)
            for one in found[module]:
                if one.ending == "failed" and reason_of(module, one.function) == UNEXPLAINED:
                    print(f"unexplained: {module} {one.function}[{one.parameters}]: {one.error}", flush=True)
    section = summary(found)
    report.show(Section(section.title, section.tables[:2], section.targets))
    if not names:
        page = report.markdown([section], "python -m benchmarks.sklearn_tests", [])
        chosen.out.write_text(page, encoding="utf-8")
    sys.exit(any(target.passed is False for target in section.targets))


if __name__ == "__main__":
    main()
