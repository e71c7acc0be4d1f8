"""Default settings against scikit-learn's on middle-sized data: one thread, kinds of data × sizes × estimators.

    python -m benchmarks.midsize [--cases dummies logistic …] [--only TEXT] [--repeats 3] [--limit 60]

Times are processor seconds of one thread, the shortest of some fits, which alternate between the libraries; a fit of more than
``LONG`` seconds runs once. scikit-learn's fits end after ``--limit`` seconds; the ratio is then a bound.
The gap is the certified one of this library's model, and "warned" says that it missed its tolerance.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.defaults_cases import of_sklearn
from benchmarks.defaults_data import generate
from benchmarks.timing import from_child, geometric_mean, pinned
from threadpoolctl import threadpool_limits

import dualnewton as dn

LONG = 3.0
"""Seconds of a fit from which it is not repeated."""


@dataclass(frozen=True)
class Case:
    """Estimators with some parameters, on kinds of data of some sizes."""

    estimators: tuple[str, ...]
    sizes: tuple[tuple[int, int], ...]
    kinds: tuple[str, ...] = ("gaussian", "correlated")
    task: str = "regression"
    parameters: tuple[dict[str, Any], ...] = field(default=({},))


@cache
def features(kind: str, n: int, d: int) -> np.ndarray:
    """Return dummy variables of all levels of d/25 variables, or neighbouring features of correlation 0.95."""
    rng = np.random.default_rng([n, d])
    if kind == "dummies":
        levels = rng.choice(25, size=(n, -(-d // 25)), p=np.arange(25, 0, -1) / 325)
        return np.ascontiguousarray((levels[:, :, None] == np.arange(25)).reshape(n, -1)[:, :d] * 1.0)
    X = rng.standard_normal((n, d))
    for j in range(1, d):
        X[:, j] = 0.95 * X[:, j - 1] + math.sqrt(1.0 - 0.95**2) * X[:, j]
    return X


def examples(kind: str, n: int, d: int, task: str) -> tuple[Any, np.ndarray]:
    """Return features with the target of a task: "regression", "large regression", "two", "counts" or "constant".

    A large target makes the default penalties weak; "sparse dummies" are a CSR matrix.
    """
    if task in ("constant", "large regression"):
        X, y = examples(kind, n, d, "regression")
        return X, np.full(n, 3.7) if task == "constant" else 500.0 * y
    if kind == "sparse dummies":
        X, y = examples("dummies", n, d, task)
        return sp.csr_array(X), y
    if kind not in ("dummies", "neighbours"):
        return generate(n, d, kind).task(task)
    X, rng = features(kind, n, d), np.random.default_rng(1)
    signal = X @ rng.standard_normal(d)
    noisy = (signal - signal.mean()) / signal.std() + 0.5 * rng.standard_normal(n)
    if task == "two":
        return X, (noisy > 0.0).astype(int)
    if task == "counts":
        return X, 1.0 + np.floor(np.exp(np.clip(noisy, -2.0, 2.0)))
    return X, 3.0 + 2.0 * noisy


NEAR_SQUARE = ((3000, 2000), (2000, 3000), (1500, 1500))
TALL = ((5000, 1000), (10000, 300), (20000, 30))
CASES = {
    "dummies": Case(
        ("LinearRegression",),
        ((50000, 300), (20000, 100), (5000, 300), (1000, 50)),
        ("dummies", "sparse dummies", "one-hot", "gaussian"),
    ),
    "logistic": Case(
        ("LogisticRegression",),
        NEAR_SQUARE + TALL,
        ("gaussian", "correlated", "neighbours"),
        "two",
        ({"C": 0.01}, {}, {"C": 100.0}),
    ),
    "sparse models": Case(
        ("Lasso", "ElasticNet"),
        ((8000, 100), *TALL, *NEAR_SQUARE),
        ("gaussian", "correlated", "few informative", "dummies"),
    ),
    "weak penalties": Case(
        ("Lasso", "ElasticNet"),
        ((8000, 100), *TALL, (3000, 2000)),
        ("gaussian", "correlated", "ill-scaled", "dummies"),
        "large regression",
    ),
    "log link": Case(
        ("PoissonRegressor", "GammaRegressor", "TweedieRegressor"),
        ((200, 5000), (5000, 50), (20000, 30), (1500, 1500)),
        ("gaussian", "correlated", "ill-scaled", "one-hot"),
        "counts",
    ),
    "constant": Case(
        ("RidgeCV", "LassoCV", "ElasticNetCV", "Lasso", "Ridge", "LinearRegression", "HuberRegressor", "LinearSVR"),
        ((300, 10), (1000, 50), (100, 300)),
        ("gaussian", "correlated", "ill-scaled", "one-hot"),
        "constant",
    ),
    "huber": Case(("HuberRegressor",), NEAR_SQUARE + TALL),
    "others": Case(("Ridge", "RidgeCV", "LinearSVR", "LassoCV"), ((8000, 100), (3000, 2000), (20000, 30))),
    "other classifiers": Case(("LinearSVC", "RidgeClassifier"), ((3000, 2000), (2000, 3000), *TALL), task="two"),
}


def fitted(estimator: Any, X: np.ndarray, y: np.ndarray) -> tuple[float, Any, bool]:
    """Return the processor seconds of a fit, the model, and whether it warned."""
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        start = time.process_time()
        estimator.fit(X, y)
        return time.process_time() - start, estimator, any("onvergence" in each.category.__name__ for each in raised)


def measured(name: str, parameters: dict[str, Any], X: np.ndarray, y: np.ndarray, options: Any) -> str:
    """Return the figures of one cell: both times, their ratio, the gap."""
    ours, theirs, gap, warned = math.inf, math.inf, math.nan, False
    few = slice(0, max(60, min(len(y) // 10, 300)))
    fitted(getattr(dn, name)(**parameters), X[few], y[few])
    fitted(getattr(dn, name)(**parameters), X, y)  # compiles what it needs

    def other() -> Iterator[float]:
        while True:
            yield (seconds := fitted(of_sklearn(name)(**parameters), X, y)[0])
            if seconds > LONG:
                return

    children = from_child(
        other, options.limit, lambda: pinned(1), lambda: fitted(of_sklearn(name)(**parameters), X[few], y[few])
    )
    for _ in range(options.repeats):
        seconds, model, warned = fitted(getattr(dn, name)(**parameters), X, y)
        ours, gap = min(ours, seconds), max(float(each.relative_gap) for each in np.atleast_1d(model.certificate_))
        theirs = min(theirs, seconds if isinstance(seconds := next(children, None), float) else theirs)
        if ours > LONG:
            break
    children.close()
    theirs = min(theirs, options.limit)
    mark = " or less" if theirs == options.limit else ""
    options.ratios.append(ours / theirs)
    plan = str(getattr(model, "plan_", "")).split("\n")[0][:90]
    return f"{ours:9.4f} {theirs:9.4f}  {ours / theirs:6.2f}{mark}  {gap:.0e}{' warned' if warned else ''}  {plan}"


def cells(options: Any) -> Iterator[tuple[str, str, dict[str, Any], tuple[str, int, int, str]]]:
    """Yield a label for each cell, with estimator, parameters and data."""
    for key in options.cases:
        case = CASES[key]
        for n, d in case.sizes:
            for kind in case.kinds:
                for name in case.estimators:
                    for parameters in case.parameters:
                        words = ", ".join(f"{word}={value:g}" for word, value in parameters.items())
                        yield f"{name}({words}) {kind} {n}x{d}", name, parameters, (kind, n, d, case.task)


def main() -> None:
    """Print a line for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--only", default="", help="a part of the label of the cells to measure")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0)
    options = parser.parse_args()
    options.ratios = []
    print(f"{'':55s} {'ours':>9s} {'sklearn':>9s}   ratio  gap")
    with threadpool_limits(limits=1):
        for label, name, parameters, data in cells(options):
            if options.only in label:
                print(f"{label:55s} {measured(name, parameters, *examples(*data), options)}", flush=True)
    largest = max(options.ratios, default=math.nan)
    print(f"geometric mean of the ratios {geometric_mean(options.ratios):.2f}, largest {largest:.2f}")


if __name__ == "__main__":
    main()
