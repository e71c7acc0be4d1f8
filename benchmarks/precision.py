"""Float32 against float64: the same rows in half the bytes, on data whose fits are limited by memory bandwidth."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from benchmarks.against_itself import NEVER, Spent, quotient
from benchmarks.data import LOSSES, Dataset
from benchmarks.report import Section, Table, Target, ratio
from benchmarks.timing import best_of, in_child

import dualnewton as dn

GOAL = 1e-5
"""The certified relative gap to which both are timed."""

BOUND = 0.7
"""The target: the largest allowed ratio of the times of float32 and float64."""

TYPES = (np.float32, np.float64)


def section(sets: list[Dataset], thread_counts: list[int], cap: float, say: Callable[[str], None]) -> Section:
    """Time both types on every data set at every number of threads."""
    rows, costs = [], []
    for data in sets:
        for threads in thread_counts:
            single, double = in_child(partial(both, data, cap, threads), 6 * cap, threads).last((NEVER, NEVER))
            costs.append(quotient(single, double) if single.done else math.nan)
            rows.append([data.name, str(threads), str(single), str(double), ratio(costs[-1])])
            say(f"{data.name}, {threads} threads: float32 {single}, float64 {double}")
    result = Section(f"Float32 against float64: time to a certified relative gap of {GOAL:g}")
    columns = ["data", "threads", "float32", "float64", "float32 / float64"]
    result.tables = [Table("Logistic, λn = 1, the same rows in both types", columns, rows)]
    claim = f"dense data out of cache: float32 takes at most {BOUND:g}× the time of float64"
    result.targets = [Target.at_most(claim, costs, BOUND)]
    return result


def both(data: Dataset, cap: float, threads: int) -> Iterator[tuple[Spent, Spent]]:
    """Yield the times of float32 and float64, each after one untimed fit that compiles the kernels."""
    times = []
    for kind in TYPES:
        X = data.X.astype(kind)
        fit = partial(timed_fit, X, data.y, threads, cap)
        fit()
        run = best_of(fit)
        times.append(Spent(run.seconds, run.value))
    yield times[0], times[1]


def timed_fit(X: np.ndarray, y: np.ndarray, threads: int, cap: float) -> bool:
    """Fit the data and return True if the goal was reached."""
    problem = dn.Problem(X, y, LOSSES["logistic"], lam=1.0 / len(y))
    return dn.solve(problem, tol=GOAL, n_threads=threads, random_state=0, time_limit=cap).converged
