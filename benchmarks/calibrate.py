"""Time every method on a grid of problems, for the planner: ``python -m benchmarks.calibrate [FILE] [--loss NAME]``.

Methods are timed as the loop drives them, and so is each direct solver (``planning/small.py``) that could be chosen if its limits
were ``WIDER``. Writes the times as JSON, with machine, versions and date, and prints the machine rates that this machine would
be given (:class:`dualnewton.planning.rates.Rates`). ``tests/planning/test_regret.py`` reads the file: it asks the planner for its
choice on the same problems, and bounds what that choice loses against the fastest method.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import datetime
import json
import math
import platform
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning import small
from dualnewton.planning.eligible import methods_for
from dualnewton.planning.plan import Plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run import start

TOL, CAP, REPEATS, LONG_SECONDS = 1e-6, 4.0, 7, 0.3
"""Relative gap; seconds after which a method is cut short; runs, the fastest of which counts, unless they took so many seconds.

Times are seconds of this process on its core, which other processes disturb least."""

WATCHED = 0.1
"""Seconds between two looks at the time of a run."""

NOT_DIRECT: dict[str, Any] = {
    "direct_entries": 0,
    "direct_multiplications": 0.0,
    "direct_rows": 0,
    "product_entries": 0,
    "grid_multiplications": 0.0,
    "product_block": 0,
    "round_entries": 0,
    "many_round_entries": 0,
    "entry_fit": 0,
    "swept_entries": 0,
}
"""Tuned numbers without direct solvers of one column; tests use them, too."""

GENERAL = replace(DEFAULT, **NOT_DIRECT, class_rows=0)
"""Without any direct solver, so that the loop drives every method."""

WIDER = {
    "direct_hessian": 4.0,
    "thin_hessian": 4.0,
    "product_entries": 4,
    "product_features": 0.25,
    "product_hessians": 0.25,
    "product_optimism": 16.0,
    "quadratic_optimism": 16.0,
    "product_rows": 0.25,
    "fewest_products": 0.25,
    "quadratic_products": 0.25,
    "round_entries": 4,
    "many_round_entries": 4,
    "round_features": 0.25,
    "round_conditioning": 0.25,
    "class_features": 2,
    "entry_fit": 4,
    "thin_share": 2.0,
}
"""Factors on limits within which a direct solver is timed: beyond the tuned limits, so that the record shows whether these are
right."""

RELAXED = replace(DEFAULT, **{name: getattr(DEFAULT, name) * factor for name, factor in WIDER.items()})

FILE = Path(__file__).parents[1] / "tests" / "planning" / "times.json"


def dense(n: int, d: int, spread: float = 0.0) -> np.ndarray:
    """Gaussian features whose scales range over so many powers of ten."""
    return np.random.default_rng(0).standard_normal((n, d)) * 10.0 ** np.linspace(-0.5 * spread, 0.5 * spread, d)


def sparse(n: int, d: int, share: float) -> sp.csr_array:
    """Rows of length one with this share of nonzero entries."""
    X = sp.random_array((n, d), density=share, format="csr", random_state=np.random.default_rng(0))
    norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel()) + 1e-9
    return sp.csr_array(sp.diags_array(1.0 / norms) @ X)


def digits(times: int) -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's digits as they are, several times."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    return np.vstack([X] * times), np.hstack([y] * times)


def standardised(X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return features of mean zero and variance one, but constant ones of zeros."""
    scale = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(scale > 0.0, scale, 1.0), y


TABLES: dict[str, Callable[[], Any]] = {
    "dense 300x20": lambda: dense(300, 20),
    "dense 2000x50": lambda: dense(2000, 50),
    "dense 20000x20": lambda: dense(20_000, 20),
    "dense 3000x300": lambda: dense(3000, 300),
    "dense 400x2000": lambda: dense(400, 2000),
    "dense 8000x100, scales over 4 powers of ten": lambda: dense(8000, 100, 4.0),
    "CSR 5000x2000, 1 %": lambda: sparse(5000, 2000, 0.01),
    "CSR 3000x20000, 0.3 %": lambda: sparse(3000, 20_000, 0.003),
    "CSR 30000x300, 5 %": lambda: sparse(30_000, 300, 0.05),
    "CSR 500x5000, 0.5 %": lambda: sparse(500, 5000, 0.005),
    "CSR 20000x1000, 5 %": lambda: sparse(20_000, 1000, 0.05),
    "dense 1500x600": lambda: dense(1500, 600),
    "dense 1500x150": lambda: dense(1500, 150),
}
CLASSES: dict[str, Callable[[], tuple[Any, np.ndarray]]] = {
    "digits": lambda: digits(1),
    "digits three times": lambda: digits(3),
    "digits, scaled to [0, 1]": lambda: (digits(1)[0] / 16.0, digits(1)[1]),
    "digits, standardised": lambda: standardised(*digits(1)),
    "4 classes, dense 5000x50": lambda: _classes(dense(5000, 50), 4),
    "4 classes, dense 5000x50, scales over 3 powers of ten": lambda: _classes(dense(5000, 50, 3.0), 4),
    "5 classes, CSR 3000x500, 2 %": lambda: _classes(sparse(3000, 500, 0.02), 5),
    "3 classes, dense 400x600": lambda: _classes(dense(400, 600), 3),
    "3 classes, dense 2000x100": lambda: _classes(dense(2000, 100), 3),
    "6 classes, dense 500x100": lambda: _classes(dense(500, 100), 6),
    "10 classes, dense 2000x20": lambda: _classes(dense(2000, 20), 10),
    "10 classes, dense 8000x40, scales over 3 powers of ten": lambda: _classes(dense(8000, 40, 3.0), 10),
}
LOSSES = {"logistic": losses.Logistic(), "squared": losses.Squared(), "squared hinge": losses.SquaredHinge()}
PENALTIES = {
    "L2": regularizers.L2(),
    "elastic net, most features used": regularizers.ElasticNet(0.1),
    "elastic net, few features used": regularizers.ElasticNet(30.0),
}
STRENGTHS = (1.0, 0.01)


def _classes(X: Any, K: int) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(1)
    scores = X @ rng.standard_normal((X.shape[1], K))
    return X, np.argmax(scores / scores.std() + 0.5 * rng.gumbel(size=scores.shape), axis=1)


@lru_cache(maxsize=1)
def table(name: str) -> tuple[Any, np.ndarray]:
    """Return X and, for one margin, scores with noise."""
    X = TABLES[name]()
    rng = np.random.default_rng(1)
    scores = X @ rng.standard_normal(X.shape[1])
    return X, scores / scores.std() + 0.5 * rng.standard_normal(X.shape[0])


@dataclass(frozen=True)
class Cell:
    """A problem of the grid: the name of its data, of its loss and of its penalty, and λn."""

    data: str
    loss: str
    penalty: str
    strength: float

    @property
    def problem(self) -> dn.Problem:
        """Build it."""
        penalty = PENALTIES[self.penalty]
        if self.loss == "softmax":
            X, y = CLASSES[self.data]()
            K = int(y.max()) + 1
            settings = {"n_classes": K, "regularizer": penalty, "fit_intercept": True}
            return dn.MultinomialProblem(X, y, lam=self.strength / len(y), **settings)
        X, scores = table(self.data)
        y = scores if self.loss == "squared" else np.where(scores > 0.0, 1.0, -1.0)
        return dn.Problem(X, y, LOSSES[self.loss], regularizer=penalty, lam=self.strength / len(y))


def cells() -> Iterator[Cell]:
    """Yield the grid."""
    for data in TABLES:
        for loss in LOSSES:
            for strength in STRENGTHS:
                yield Cell(data, loss, "L2", strength)
        for loss in ("logistic", "squared"):
            for penalty in list(PENALTIES)[1:]:
                yield Cell(data, loss, penalty, 1.0)
    for data in CLASSES:
        for strength in STRENGTHS:
            yield Cell(data, "softmax", "L2", strength)


def seconds(problem: dn.Problem, method: str, tuning: Tuning) -> float | None:
    """Return the least seconds of a few runs; None if the method does not reach the gap in ``CAP`` seconds."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < LONG_SECONDS:
        began = time.process_time()
        with interrupted_after(CAP), contextlib.suppress(KeyboardInterrupt):
            result = dn.solve(problem, method=method, tol=TOL, random_state=0, max_epochs=100_000, tuning=tuning)
            times.append(time.process_time() - began)
            if result.converged:
                continue
        return None
    return min(times)


@contextlib.contextmanager
def interrupted_after(limit: float) -> Iterator[None]:
    """Interrupt the block, as Ctrl-C does, after so many seconds of this process on its core."""
    ended, end = threading.Event(), time.process_time() + limit

    def watch() -> None:
        while not ended.wait(WATCHED):
            if time.process_time() > end:
                _thread.interrupt_main()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def direct_plans(problem: dn.Problem) -> Iterator[Plan]:
    """Yield the plan of each direct solver that takes the problem within its limits, or within wider ones."""
    n, fits = problem.n, problem.n * problem.d <= DEFAULT.direct_entries
    for name, family in small.FAMILIES.items():
        able = problem.scheme in family.schemes and family.suits(fits, problem.data.profile.sparse)
        if able and (family.takes(problem, DEFAULT) or family.takes(problem, RELAXED)):
            plan = Plan(family.method, n, family.reason, compiled=family.automatic, family=family.solver or name)
            yield plan if family.completed is None else family.completed(plan, problem, DEFAULT)
    if (wide := small.wide_plan(problem, "auto", "auto")) is not None:
        yield wide


def measured(cell: Cell) -> dict[str, Any]:
    """Time each method that "auto" may choose, and each direct solver, once its kernels are there."""
    problem, times = cell.problem, dict[str, float | None]()
    for method in methods_for(problem):
        dn.solve(problem, method=method, tol=TOL, max_epochs=1, random_state=0, tuning=GENERAL)
        times[method] = seconds(problem, method, GENERAL)
    for plan in direct_plans(problem):
        with mock.patch.object(start, "small_plan", return_value=plan):
            dn.solve(problem, tol=TOL, max_epochs=1, random_state=0)
            times[f"direct {plan.family}"] = seconds(problem, "auto", DEFAULT)
    return {**vars(cell), "seconds": times}


def rates() -> dict[str, float]:
    """Measure the machine rates that simple products tell."""
    from scipy.linalg.lapack import dpotrf

    def least(work: Callable[[], Any]) -> float:
        times = []
        for _ in range(5):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        return min(times)

    large, near, square = np.ones((20_000, 500)), np.ones((1000, 500)), dense(1000, 1000)
    rows, definite = sparse(20_000, 2000, 0.02), square @ square.T + 1000.0 * np.eye(1000)
    v, w = np.ones(500), np.ones(2000)
    z = np.linspace(-3.0, 3.0, 100_000)
    logistic, y = losses.Logistic(), np.ones(100_000)
    return {
        "memory_bandwidth": large.nbytes / least(lambda: large @ v),
        "cache_bandwidth": near.nbytes / least(lambda: near @ v),
        "multiply": 1000.0**3 / least(lambda: square @ square),
        "factorise": 1000.0**3 / 6.0 / least(lambda: dpotrf(definite)),
        "sparse_entry": least(lambda: rows.T @ (rows @ w)) / rows.nnz,
        "margin": least(lambda: (logistic.value(z, y), logistic.derivative(z, y))) / z.size,
    }


def main(path: Path, loss: str | None) -> None:
    """Measure, write, and print what the machine's rates are; cells of other losses than this one keep their times."""
    known = {} if loss is None else {_key(cell): cell for cell in json.loads(path.read_text())["cells"]}
    found = [measured(cell) if loss in (None, cell.loss) else known[_key(vars(cell))] for cell in cells()]
    record = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {"processor": _processor(), "system": platform.system(), "python": platform.python_version()},
        "versions": {name: version(name) for name in ("dualnewton", "numpy", "scipy", "numba")},
        "relative_gap": TOL,
        "cap_seconds": CAP,
        "cells": found,
    }
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    given = vars(DEFAULT.rates)
    print(f"{'rate':20} {'here':>10} {'tuned':>10}")
    for name, rate in rates().items():
        print(f"{name:20} {rate:10.3g} {given[name]:10.3g}")
    solved = sum(any(each is not None for each in cell["seconds"].values()) for cell in found)
    print(f"{solved} of {len(found)} cells were solved in {CAP:g} s; geometric means per method:")
    for method in sorted({name for cell in found for name in cell["seconds"]}):
        logs = [math.log(t) for cell in found if (t := cell["seconds"].get(method)) is not None]
        print(f"{method:20} {math.exp(sum(logs) / max(1, len(logs))):10.3g} s over {len(logs)} cells")


def _processor() -> str:
    """Return the name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or "unknown"
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def _key(cell: dict[str, Any]) -> tuple[Any, ...]:
    """Return what names a cell."""
    return tuple(cell[name] for name in ("data", "loss", "penalty", "strength"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    parser.add_argument("--loss", help="measure the problems of this loss only, and keep the other times of the file")
    arguments = parser.parse_args()
    main(arguments.file, arguments.loss)
