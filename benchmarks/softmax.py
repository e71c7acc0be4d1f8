"""Logistic regression of several classes compared with scikit-learn's, both with default settings.

    python -m benchmarks.softmax [--seeds N] [--C VALUE]

Gaussian features, correlated features (0.9 from each to the next), classes that are clouds around centres, features whose scales
range over three powers of ten, and classes whose frequencies halve from one to the next. Times are the least of a few fits each,
taken in turns on one thread, by the clock of the processor. The gap of our model is certified by the fit. That of scikit-learn's
is (P − P*)/P*, P* the smaller objective of our models at tol=1e-8 and of both that are compared. scikit-learn stops after 100
iterations, with a warning; ours, too.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn import linear_model as theirs
from threadpoolctl import threadpool_limits

import dualnewton as dn

CLASSES, SHAPES = (3, 6, 10), ((500, 20), (500, 100), (2000, 20), (2000, 100), (2000, 300), (8000, 40), (8000, 150))
KINDS = "gaussian", "correlated", "clouds", "scales", "rare classes"
REPEATS, LONG = 4, 1.0
"""Fits of each, in turns; and seconds after which none is repeated."""


def table(kind: str, n: int, d: int, K: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and classes of a kind."""
    rng = np.random.default_rng([seed, n, d, K])
    X = rng.standard_normal((n, d))
    if kind == "correlated":
        for j in range(1, d):
            X[:, j] = 0.9 * X[:, j - 1] + math.sqrt(1.0 - 0.81) * X[:, j]
    if kind in ("clouds", "rare classes"):
        frequencies = np.ones(K) if kind == "clouds" else 0.5 ** np.arange(K)
        y = rng.choice(K, n, p=frequencies / frequencies.sum())
        return X + rng.standard_normal((K, d))[y] * 2.0 / math.sqrt(d), y
    y = np.argmax(X @ rng.standard_normal((d, K)) / math.sqrt(d) + 0.5 * rng.gumbel(size=(n, K)), axis=1)
    return (X * 10.0 ** rng.uniform(-1.5, 1.5, d) if kind == "scales" else X), y


def objective(model: Any, X: np.ndarray, y: np.ndarray, C: float) -> float:
    """C Σ_i loss_i + ½‖W‖²."""
    Z = X @ model.coef_.T + model.intercept_
    high = Z.max(axis=1)
    losses = high + np.log(np.exp(Z - high[:, None]).sum(axis=1)) - Z[np.arange(len(y)), y]
    return float(C * losses.sum() + 0.5 * np.square(model.coef_).sum())


def in_turns(fits: list[Callable[[], Any]]) -> list[tuple[float, Any]]:
    """Return the least processor time of each, and its last model."""
    found: list[tuple[float, Any]] = [(math.inf, None)] * len(fits)
    for _ in range(REPEATS):
        for k, fit in enumerate(fits):
            began = time.process_time()
            model = fit()
            found[k] = min(found[k][0], time.process_time() - began), model
        if max(seconds for seconds, _ in found) > LONG:
            break
    return found


def compared(kind: str, n: int, d: int, K: int, C: float, seed: int) -> tuple[float, str]:
    """Return the ratio of the times, and a line of the table."""
    X, y = table(kind, n, d, K, seed)
    dn.LogisticRegression(C=C).fit(X, y)  # kernels are loaded
    (ours, model), (reference, other) = in_turns(
        [lambda: dn.LogisticRegression(C=C).fit(X, y), lambda: theirs.LogisticRegression(C=C).fit(X, y)]
    )
    exact = dn.LogisticRegression(C=C, tol=1e-8, max_iter=2000).fit(X, y)
    values = [objective(each, X, y, C) for each in (other, model, exact)]
    gap, certified = values[0] / min(values) - 1.0, model.certificate_.relative_gap
    shape = f"{n}×{d}, {K} classes, {kind}"
    line = (
        f"| {shape} | {ours * 1e3:.1f} | {reference * 1e3:.1f} | {ours / reference:.2f} | {certified:.0e} | {gap:.0e} |"
    )
    return ours / reference, line


def mean(values: list[float]) -> float:
    """Return the geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def main() -> None:
    """Print the table, and the geometric means of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--C", type=float, default=1.0)
    arguments = parser.parse_args()
    ratios: dict[str, list[float]] = defaultdict(list)
    print("| data | ours, ms | scikit-learn, ms | ratio | our certified gap | its gap |\n|---|---|---|---|---|---|")
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            for K in CLASSES:
                for n, d in SHAPES:
                    for seed in range(arguments.seeds):
                        ratio, line = compared(kind, n, d, K, arguments.C, seed)
                        ratios[kind].append(ratio)
                        print(line, flush=True)
    for kind, own in ratios.items():
        print(f"{kind}: {mean(own):.2f} of scikit-learn's time ({min(own):.2f} to {max(own):.2f})")
    print(f"all: {mean([ratio for own in ratios.values() for ratio in own]):.2f}")


if __name__ == "__main__":
    main()
