"""Phases of fits in one thread and in all: ``python -m benchmarks.phases [--threads 1,16] [--scale 1.0] [--method ihs]``.

Prints, for the data sets of ``benchmarks/cores.py``, the seconds that the calling thread spends in each phase of the fastest of a
few fits, the time for which it waits for other threads included. What is left is vectors over features, planning and Python. By
Amdahl's law the phases with the least speed-up bound that of the fit.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from benchmarks.cores import GOAL, LAM_N, data_sets
from benchmarks.timing import cores

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import linear
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.workers import threads as using_threads
from dualnewton.solvers.primal import curvature

FITS = 4

PLACES: dict[str, list[tuple[Any, str]]] = {
    "passes": [(MemoryData, name) for name in ("evaluate", "weighted_products", "column_norms", "row_scores")],
    "Gram matrices": [(MemoryData, "weighted_gram"), (linear, "gram")],
    "factors": [(curvature, "factorised")],
    "solves": [(curvature, "solved")],
    "gathered rows": [(MemoryData, "rows"), (MemoryData, "draw"), (MemoryData, "dominant")],
    "sums over rows": [(dn.Problem, name) for name in ("row_curvature", "dual_at", "bounded")],
}
"""The functions of each phase."""

REST = "rest"


class Clock:
    """Seconds of each phase on the thread that made it; those of a phase inside another belong to the inner one."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self.own, self.inner = threading.get_ident(), [0.0]

    def timed(self, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that is timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self.own:
                return function(*args, **kwargs)
            start = time.perf_counter()
            self.inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                took = time.perf_counter() - start
                self.seconds[phase] += took - self.inner.pop()
                self.inner[-1] += took

        return call


@contextmanager
def clocked() -> Iterator[Clock]:
    """Time the functions of all phases."""
    clock = Clock()
    with ExitStack() as stack:
        for phase, places in PLACES.items():
            for owner, name in places:
                stack.enter_context(mock.patch.object(owner, name, clock.timed(phase, getattr(owner, name))))
        yield clock


def phases(X: Any, y: np.ndarray, method: str, threads: int) -> dict[str, float]:
    """Return the seconds of the phases of the fastest fit; the first one may compile kernels."""
    found = []
    for _ in range(FITS):
        with clocked() as clock:
            start = time.perf_counter()
            with using_threads(threads):
                problem = dn.Problem(X, y, losses.Logistic(), lam=LAM_N / len(y))
            dn.solve(problem, method=method, tol=GOAL, n_threads=threads, random_state=0)
            took = time.perf_counter() - start
        found.append({**clock.seconds, REST: took - clock.seconds.total(), "fit": took})
    return min(found, key=lambda each: each["fit"])


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
        alone, together = (phases(X, y, options.method, count) for count in (few, many))
        print(f"{name}, {options.method}\n  {'ms with threads':16s} {few:8d} {many:8d}  speed-up", flush=True)
        for phase in (*PLACES, REST, "fit"):
            one, all_ = 1e3 * alone.get(phase, 0.0), 1e3 * together.get(phase, 0.0)
            print(f"  {phase:16s} {one:8.1f} {all_:8.1f}  {one / max(all_, 1e-9):.1f}", flush=True)


if __name__ == "__main__":
    main()
