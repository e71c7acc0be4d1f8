"""`make bench`: measure, print the tables, and write them to benchmarks/RESULTS.md and REGIMES.md.

``python -m benchmarks.run --help`` lists the options. The exit status does not depend on the measurements: a missed target is
shown in the report and is no error.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks import (
    against_itself,
    against_peers,
    cross_validation,
    data,
    floors,
    peers,
    precision,
    reading,
    regime_data,
    regimes,
    report,
    scaling,
    timing,
)
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton.run.warm_up import steps

CAP = 20.0
QUICK_CAP = 4.0
"""Time limits in seconds of a contender in a cell, for a full and for a quick run."""

WARM_UP: tuple[dict[str, Any], ...] = (
    {},
    {"tau": 1},
    {"tau": 16},
    {"method": "sdca", "tau": 4},
    *({"method": method} for method in regimes.OUR_METHODS),
)


@dataclass(frozen=True)
class Run:
    """The settings of a run and the data it uses."""

    quick: bool
    threads: list[int]
    say: Callable[[str], None]
    names: list[str] | None = None
    asked_cap: float | None = None

    @property
    def cap(self) -> float:
        """The time limit in seconds of one contender in one cell."""
        return self.asked_cap or (QUICK_CAP if self.quick else CAP)

    @cached_property
    def found(self) -> tuple[list[data.Dataset], list[str]]:
        """The available data sets, and the names of the others."""
        return data.datasets(self.quick)

    @property
    def sets(self) -> list[data.Dataset]:
        """The available data sets."""
        return self.found[0]

    @cached_property
    def regimes(self) -> tuple[list[regime_data.Regime], list[str]]:
        """The available sets of the section regimes, and the names of the others."""
        return regime_data.regimes(self.quick, self.names)

    @property
    def cells(self) -> list[data.Cell]:
        """All problems on the available data sets."""
        return list(data.cells(self.sets, self.quick))

    @property
    def dense_set(self) -> data.Dataset:
        """The first generated set."""
        return next(chosen for chosen in self.sets if chosen.is_dense)


def run_floors(run: Run) -> Iterator[report.Section]:
    """Compare our epochs with the least work on the same data."""
    yield floors.section(run.sets)


def run_peers(run: Run) -> Iterator[report.Section]:
    """Compare times to the optimum with other libraries."""
    yield against_peers.section(run.cells, run.threads, run.cap, run.say)


def run_self(run: Run) -> Iterator[report.Section]:
    """Compare our own settings with each other."""
    yield against_itself.sweep_section(run.cells, run.cap, run.say)
    if max(run.threads) > 1:
        yield against_itself.threads_section(run.cells, run.cap)
    yield against_itself.many_section(run.dense_set, run.cap)
    sparse = [chosen for chosen in run.sets if not chosen.is_dense]
    yield against_itself.memory_section([chosen.name for chosen in (*sparse[-1:], *run.sets[-2:])], run.cap)
    yield against_itself.start_section()


def run_regimes(run: Run) -> Iterator[report.Section]:
    """Compare times to the optimum over data of every shape and conditioning."""
    cells = list(regime_data.cells(run.regimes[0], run.quick))
    if cells:
        yield regimes.section(cells, run.threads, run.cap, run.say)


def run_scaling(run: Run) -> Iterator[report.Section]:
    """Measure the growth of the time with n, d and the number of nonzeros per row."""
    yield scaling.section(run.quick, run.say)


def run_precision(run: Run) -> Iterator[report.Section]:
    """Compare float32 with float64."""
    sets = [run.dense_set] if run.quick else [data.dense_set(20_000, 500), data.dense_set(200_000, 100)]
    yield precision.section(sets, run.threads, run.cap, run.say)


def run_cross_validation(run: Run) -> Iterator[report.Section]:
    """Compare cross-validation with scikit-learn's."""
    names = ("mushrooms",) if run.quick else ("mushrooms", "a9a", "news20")
    real = [chosen for chosen in run.sets if chosen.name in names]
    yield cross_validation.section(real if run.quick else [*real, run.dense_set], run.say)


def run_reading(run: Run) -> Iterator[report.Section]:
    """Compare the svmlight reader with scikit-learn's."""
    yield reading.section(5 if run.quick else 100, run.say)


SECTIONS = {
    "floors": run_floors,
    "peers": run_peers,
    "regimes": run_regimes,
    "self": run_self,
    "scaling": run_scaling,
    "precision": run_precision,
    "cv": run_cross_validation,
    "reading": run_reading,
}

REPORTS: dict[Path | None, list[str]] = {
    Path(__file__).with_name("RESULTS.md"): ["floors", "peers", "self", "reading"],
    Path(__file__).with_name("REGIMES.md"): ["regimes", "scaling", "precision", "cv"],
}
"""The sections that a full run writes to each file."""


def warm_up() -> float:
    """Compile, or load from the cache, all kernels that the cells use, on small problems of the same types."""
    start = time.perf_counter()
    for cell in data.warm_up_cells():
        for settings, threads in itertools.product(WARM_UP, (1, 2)):
            with contextlib.suppress(dn.DualnewtonError):  # the method cannot solve this kind of problem
                dn.solve(cell.problem(), n_threads=threads, max_epochs=2, tol=0.0, random_state=0, **settings)
    for step in steps(dtypes=("float64",)):  # large data may need kernels that small problems do not
        step.prepare()
    return time.perf_counter() - start


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small data and one λ, in under two minutes")
    parser.add_argument(
        "--only", choices=SECTIONS, action="append", metavar="SECTION", help="one of " + ", ".join(SECTIONS)
    )
    parser.add_argument(
        "--sets",
        type=lambda text: text.split(","),
        metavar="A,B",
        help="the sets of the section regimes, from " + ", ".join(regime.name for regime in regime_data.REGIMES),
    )
    parser.add_argument(
        "--threads",
        type=int,
        nargs="+",
        help="numbers of threads to compare (default: 1, and 2 if there are two cores)",
    )
    parser.add_argument(
        "--clock", choices=list(timing.CLOCKS), default="wall", help="cpu: the processor's, for 1 thread"
    )
    parser.add_argument("--cap", type=float, help=f"time limit in seconds of a contender in a cell (default: {CAP:g})")
    parser.add_argument(
        "--out", type=Path, help="the output file (default: benchmarks/RESULTS.md and REGIMES.md, for a full run only)"
    )
    chosen = parser.parse_args()
    if chosen.clock == "cpu" and chosen.threads != [1]:
        parser.error("--clock cpu needs --threads 1: the processor's time of several threads is not that of a fit")
    if unknown := set(chosen.sets or ()) - {regime.name for regime in regime_data.REGIMES}:
        parser.error(f"--sets contains unknown names: {', '.join(sorted(unknown))}")
    return chosen


def main() -> None:
    """Run the requested sections, show each when it is complete, and write the reports."""
    chosen = arguments()
    timing.chosen_clock, available = chosen.clock, len(timing.cores())
    threads = sorted(set(chosen.threads or [1, min(2, available)]))
    say = lambda line: print(line, flush=True)  # noqa: E731
    run = Run(chosen.quick, threads, say, chosen.sets, chosen.cap)
    command = " ".join(["python -m benchmarks.run", *flags(chosen), "--threads", *map(str, threads)])
    partial = chosen.quick or chosen.only or chosen.sets
    groups = {chosen.out: chosen.only or list(SECTIONS)} if partial or chosen.out else REPORTS
    with threadpool_limits(limits=1):  # the parent process only prepares data and waits
        peers.preload()
        compiled = warm_up()
        for out, names in groups.items():
            write_report(run, names, out, command, compiled)


def flags(chosen: argparse.Namespace) -> Iterator[str]:
    """Yield the given options, except for the threads and the output file, as on the command line."""
    if chosen.quick:
        yield "--quick"
    for name in chosen.only or []:
        yield f"--only {name}"
    if chosen.sets:
        yield f"--sets {','.join(chosen.sets)}"
    if chosen.cap:
        yield f"--cap {chosen.cap:g}"
    if chosen.clock != "wall":
        yield f"--clock {chosen.clock}"


def write_report(run: Run, names: list[str], out: Path | None, command: str, compiled: float) -> None:
    """Run the named sections, show each when it is complete, and write them to a file if one is given."""
    start = time.perf_counter()
    sections: list[report.Section] = []
    for name in names:
        for section in SECTIONS[name](run):
            report.show(section)
            sections.append(section)
    absent = sorted({*run.found[1], *run.regimes[1]})
    notes = [
        f"Warm-up, which compiles or loads every kernel and is included in no other time: {report.seconds(compiled)}",
        f"Whole run: {time.perf_counter() - start:.0f} s",
        *([f"Data sets omitted because they are not available: {', '.join(absent)}"] if absent else []),
    ]
    if out is not None:
        out.write_text(report.markdown(sections, command, notes), encoding="utf-8")


if __name__ == "__main__":
    main()
