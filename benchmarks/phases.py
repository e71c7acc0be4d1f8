"""Timeline of fits in one thread and in all: ``python -m benchmarks.phases [--threads 1,16] [--scale 1.0] [--method ihs]``.

A fit is a sequence of jobs that threads share (passes, Gram matrices, factors, sums over rows) and of what the calling thread
does alone between two of them. Prints, for the data sets of ``benchmarks/cores.py``, the milliseconds of each kind of job and of
the work between two kinds of jobs, the smallest of a few fits at each place of the sequence. By Amdahl's law lines with the least
speed-up bound that of the fit. With different numbers of threads a fit has the same jobs, unless the planner chose otherwise.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from benchmarks.cores import GOAL, LAM_N, data_sets
from benchmarks.timing import cores

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.workers import Workers
from dualnewton.matrix.workers import threads as using_threads

FITS, SHOWN = 6, 24
"""Number of fits, and of the lines between jobs that are printed."""

PASSED_OVER = ("compiled.py", "workers.py", "whole.py", "_cached.py", "phases.py", "vectors.py", "row_arrays.py")
"""Files whose functions do not tell what a job is for."""

DEPTH = 2
"""Calling functions that are named with a job."""


class Job(NamedTuple):
    """What threads share, and when."""

    name: str
    start: float
    end: float


class Timeline:
    """The jobs of a fit, in their order; those inside another job belong to it."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.inside = False

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of ``Workers`` that is timed."""

        def call(workers: Workers, work: Any, *args: Any) -> Any:
            alone = function is each and len(work) == 1  # its single item may have jobs of its own
            if self.inside or alone:
                return function(workers, work, *args)
            self.inside, start = True, time.perf_counter()
            try:
                return function(workers, work, *args)
            finally:
                self.inside = False
                kernel = work.prepared.py_func.__name__.removeprefix("team_") if function is run else function.__name__
                self.jobs.append(Job(f"{kernel} < {_callers()}", start, time.perf_counter()))

        return call


run, each, share = Workers.run, Workers.each, Workers.share


def _callers() -> str:
    """Return the names of the functions that want a job."""
    frame, found = sys._getframe(2), list[str]()
    while frame is not None and len(found) < DEPTH:
        name = frame.f_code.co_name
        if "dualnewton" in frame.f_code.co_filename and Path(frame.f_code.co_filename).name not in PASSED_OVER:
            found += [] if name.startswith("<") else [name]
        frame = frame.f_back
    return " < ".join(found)


@contextmanager
def recorded() -> Iterator[Timeline]:
    """Record the jobs that are shared."""
    line = Timeline()
    with (
        mock.patch.object(Workers, "run", line.timed(run)),
        mock.patch.object(Workers, "each", line.timed(each)),
        mock.patch.object(Workers, "share", line.timed(share)),
    ):
        yield line


class Fit(NamedTuple):
    """Seconds of a fit: of its jobs, and before, between and after them."""

    jobs: list[str]
    inside: np.ndarray
    between: np.ndarray
    whole: float


def timeline(X: Any, y: np.ndarray, method: str, threads: int) -> Fit:
    """Return the smallest times at each place of a few fits; the first one, which may compile kernels, is not counted."""
    found = []
    for _ in range(1 + FITS):
        with recorded() as line:
            start = time.perf_counter()
            with using_threads(threads):
                problem = dn.Problem(X, y, losses.Logistic(), lam=LAM_N / len(y))
            dn.solve(problem, method=method, tol=GOAL, n_threads=threads, random_state=0)
            end = time.perf_counter()
        starts, ends = ([getattr(job, name) for job in line.jobs] for name in ("start", "end"))
        names = [job.name for job in line.jobs]
        found.append(Fit(names, np.subtract(ends, starts), np.subtract([*starts, end], [start, *ends]), end - start))
    alike = [fit for fit in found[1:] if fit.jobs == found[-1].jobs]
    inside, between = (np.min([getattr(fit, name) for fit in alike], axis=0) for name in ("inside", "between"))
    return Fit(alike[0].jobs, inside, between, min(fit.whole for fit in alike))


def lines(fit: Fit) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return the numbers of jobs by their names, their milliseconds, and those between two names."""
    calls, inside, between = Counter(fit.jobs), Counter[str](), Counter[str]()
    for name, took in zip(fit.jobs, fit.inside, strict=True):
        inside[name] += 1e3 * took
    for before, after, took in zip(["start", *fit.jobs], [*fit.jobs, "end"], fit.between, strict=True):
        between[f"{before} | {after}"] += 1e3 * took
    return calls, inside, between


def show(name: str, few: Fit, many: Fit, threads: tuple[int, int]) -> None:
    """Print the lines of two fits."""
    (_, one, before), (calls, all_, after) = lines(few), lines(many)
    print(f"{name}\n  {'ms with threads':96s} {threads[0]:8d} {threads[1]:8d}  speed-up", flush=True)

    def line(label: str, alone: float, together: float) -> None:
        print(f"  {label[:96]:96s} {alone:8.2f} {together:8.2f}  {alone / max(together, 1e-9):.1f}", flush=True)

    for each_, took in all_.most_common():
        line(f"{calls[each_]:3d} × {each_}", one[each_], took)
    for each_, took in after.most_common(SHOWN):
        line(f"between {each_}", before[each_], took)
    line("all jobs", sum(one.values()), sum(all_.values()))
    line("all between jobs", sum(before.values()), sum(after.values()))
    line("fit", 1e3 * few.whole, 1e3 * many.whole)


def main() -> None:
    """Parse the options, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default=f"1,{len(cores())}", help="two numbers of threads")
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of rows")
    parser.add_argument("--method", default="ihs", help="the method")
    options = parser.parse_args()
    few, many = map(int, options.threads.split(","))
    for name, make in data_sets(options.scale).items():
        X, y = make()
        alone, together = (timeline(X, y, options.method, count) for count in (few, many))
        show(f"{name}, {options.method}", alone, together, (few, many))


if __name__ == "__main__":
    main()
