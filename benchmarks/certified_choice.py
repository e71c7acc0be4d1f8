"""Cross-validation that proves its choice: whether it is that of exact fits, and how much work it takes.

    python benchmarks/certified_choice.py [--problems 200] [--repeats 3]

Part 1: on random problems, the choice of ``certify_choice=True`` (logistic regression) and of the default settings (elastic net)
against that of fits to a relative gap of 1e-12. Part 2: epochs and seconds on real data, one thread: default settings, the proof,
and all fits to 1e-12.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_classification
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import dualnewton as dn

EXACT = {"tol": 1e-12, "max_iter": 5000}


def random_problem(seed: int, *, classes: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features of unequal size, and noisy labels or targets."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 200)), int(rng.integers(2, 12))
    X = rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) * np.geomspace(0.2, 3.0, d)
    z = X @ rng.standard_normal(d) / np.sqrt(d) + 2.0 * rng.standard_normal(n)
    return X, (z > 0.0).astype(int) if classes else z


def logistic(X: np.ndarray, y: np.ndarray, **options: Any) -> tuple[Any, float, bool]:
    """Return the model, its choice, and whether it is proved."""
    model = dn.LogisticRegressionCV(Cs=8, cv=4, l1_ratios=None, use_legacy_attributes=False, **options).fit(X, y)
    return model, float(model.C_), model.choice_certificate_.proved


def elastic_net(X: np.ndarray, y: np.ndarray, **options: Any) -> tuple[Any, float, bool]:
    """Return the model, its choice, and whether it is proved."""
    options.pop("certify_choice", None)
    model = dn.ElasticNetCV(alphas=40, cv=4, **options).fit(X, y)
    return model, float(model.alpha_), model.choice_certificate_.proved


def agreement(name: str, fit: Callable[..., Any], problems: int, *, classes: bool) -> None:
    """Print how often a choice is proved, and how often it is that of exact fits: where it is proved, and by default settings."""
    proved = right = wrong = default = 0
    for seed in range(problems):
        X, y = random_problem(seed, classes=classes)
        _, exact, _ = fit(X, y, **EXACT)
        _, found, certain = fit(X, y, certify_choice=True)
        proved += certain
        right += certain and found == exact
        wrong += certain and found != exact
        default += fit(X, y)[1] == exact
    print(f"| {name} | {problems} | {proved} | {right} | {wrong} | {default} |", flush=True)


def real_sets() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return standardised data with labels."""
    sets = {
        "breast cancer": load_breast_cancer(return_X_y=True),
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "generated 5000x50": make_classification(5000, 50, n_informative=10, flip_y=0.1, random_state=0),
        "generated 20000x30": make_classification(20000, 30, n_informative=8, flip_y=0.2, random_state=1),
    }
    return {name: (StandardScaler().fit_transform(X), y) for name, (X, y) in sets.items()}


def timed(X: np.ndarray, y: np.ndarray, repeats: int, **options: Any) -> tuple[float, float, float, bool]:
    """Return the least seconds, the epochs of all fits of folds, the choice, and whether it is proved."""
    best = np.inf
    for _ in range(repeats):
        began = time.perf_counter()
        model = dn.LogisticRegressionCV(cv=5, l1_ratios=None, use_legacy_attributes=False, **options).fit(X, y)
        best = min(best, time.perf_counter() - began)
    return best, float(model.n_iter_.sum()), float(model.C_), model.choice_certificate_.proved


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    versions = f"Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{platform.machine()}, {versions}, one thread, {time.strftime('%Y-%m-%d')}\n")
    print("| random problems | number | proved | of these as exact fits | otherwise | by default as exact fits |")
    print("|---|---|---|---|---|---|")
    agreement("LogisticRegressionCV(certify_choice=True)", logistic, asked.problems, classes=True)
    agreement("ElasticNetCV", elastic_net, asked.problems, classes=False)
    print("\n| data | default: seconds, epochs, C | certify_choice: the same, proved | tol = 1e-12 |")
    print("|---|---|---|---|")
    for name, (X, y) in real_sets().items():
        cells = []
        for options in ({}, {"certify_choice": True}, EXACT):
            seconds, epochs, C, proved = timed(X, y, asked.repeats, **options)
            more = f", {'yes' if proved else 'no'}" if "certify_choice" in options else ""
            cells.append(f"{seconds:.2f}, {epochs:.0f}, {C:.3g}{more}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
