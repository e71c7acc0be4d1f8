"""Multi-task models, least squares and ridge classification compared with scikit-learn's classes, both with default settings.

    python -m benchmarks.multitask [--fast]

Times are the least of three fits each, taken in turns on one thread. The gaps are certified for both: our own fit's, and
scikit-learn's by ``dn.certify`` (of a search, those of the final model; of all models of our search, the largest).
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn import linear_model as theirs

import dualnewton as dn

REPEATS = 3
"""Fits of each, in turns."""


class Case(NamedTuple):
    """A name, the two estimators, and the data."""

    name: str
    ours: Any
    reference: Any
    X: np.ndarray
    y: np.ndarray


def outputs(n: int, d: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return K outputs that depend on a tenth of the features, five at least, with noise."""
    rng = np.random.default_rng(0)
    X, W, used = rng.standard_normal((n, d)), np.zeros((d, K)), max(5, d // 10)
    W[:used] = rng.standard_normal((used, K))
    return X, X @ W + rng.standard_normal((n, K))


def cases(*, fast: bool) -> Iterator[Case]:
    """Yield what is compared."""
    for n, d, K in ((300, 10, 3), (5000, 50, 5), (200, 2000, 3)):
        X, Y = outputs(n, d, K)
        highest = float(np.linalg.norm((X - X.mean(axis=0)).T @ (Y - Y.mean(axis=0)), axis=1).max()) / n
        for part in (10.0, 100.0):
            alpha = highest / part
            name = f"MultiTaskLasso {n}x{d}x{K}, alpha_max/{part:g}"
            yield Case(name, dn.MultiTaskLasso(alpha), theirs.MultiTaskLasso(alpha), X, Y)
        if not (fast and d > 1000):
            yield Case(f"MultiTaskLassoCV {n}x{d}x{K}", dn.MultiTaskLassoCV(), theirs.MultiTaskLassoCV(), X, Y)
    for n, d in ((300, 10), (20000, 100), (200, 1000)):
        X, Y = outputs(n, d, 3)
        for y, what in ((Y[:, 0], "one output"), (Y, "three outputs")):
            yield Case(f"LinearRegression {n}x{d}, {what}", dn.LinearRegression(), theirs.LinearRegression(), X, y)
        codes = Y.argmax(axis=1)
        yield Case(f"RidgeClassifierCV {n}x{d}", dn.RidgeClassifierCV(), theirs.RidgeClassifierCV(), X, codes)


def seconds(fit: Callable[[], Any]) -> float:
    """Time a call."""
    begin = time.perf_counter()
    fit()
    return time.perf_counter() - begin


def compared(case: Case) -> str:
    """Return a line: both times, their ratio, and the certified relative gaps."""
    warnings.simplefilter("ignore")
    case.ours.fit(case.X, case.y)  # loads kernels
    pairs = [[seconds(lambda model=model: model.fit(case.X, case.y)) for model in case[1:3]] for _ in range(REPEATS)]
    mine, other = np.min(pairs, axis=0)
    gaps = [dn.certify(model, case.X, case.y).relative_gap for model in case[1:3]]
    worst = max((each.relative_gap for each in np.ravel(getattr(case.ours, "certificates_", []))), default=gaps[0])
    return (
        f"{case.name:42} {1e3 * mine:9.1f} ms {1e3 * other:9.1f} ms {mine / other:6.2f}x   "
        f"{gaps[0]:.1e} (largest {worst:.1e})   {gaps[1]:.1e}"
    )


def main() -> None:
    """Print the table."""
    print(f"{'':42} {'ours':>12} {'scikit-learn':>12} {'ratio':>7}   {'gap of ours':27} gap of scikit-learn")
    for case in cases(fast="--fast" in sys.argv):
        print(compared(case), flush=True)


if __name__ == "__main__":
    main()
