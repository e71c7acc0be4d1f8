"""Which alpha cross-validation chooses at default settings, and which one exact fits choose.

Generated regressions: 200 rows of 1000 standard normal features, of which 20 have standard normal coefficients, noise of standard
deviation 0.1, and targets divided by their standard deviation. On each, scikit-learn's `ElasticNetCV` is fitted at its default
settings and at ``tol=1e-8``, and ours at its default settings. All use the same folds and the same 100 values of alpha. Seconds
are processor time on one thread.

    python -m benchmarks.default_choice [--seeds 10] [--noise 0.1]
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
from sklearn import linear_model
from threadpoolctl import threadpool_limits

import dualnewton as dn

ROWS, FEATURES, INFORMATIVE = 200, 1000, 20

WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "scikit-learn": (linear_model.ElasticNetCV, {}),
    "scikit-learn, tol=1e-8": (linear_model.ElasticNetCV, {"tol": 1e-8, "max_iter": 100_000}),
    "dualnewton": (dn.ElasticNetCV, {}),
}


def regression(seed: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets."""
    rng = np.random.default_rng(seed)
    X, w = rng.standard_normal((ROWS, FEATURES)), np.zeros(FEATURES)
    w[:INFORMATIVE] = rng.standard_normal(INFORMATIVE)
    y = X @ w + noise * rng.standard_normal(ROWS)
    return X, y / y.std()


def main() -> None:
    """Print the alphas and times of each seed, and how often the choice of default settings is that of exact fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--noise", type=float, default=0.1, help="standard deviation")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    versions = ", ".join(f"{name} {version(name)}" for name in ("scikit-learn", "dualnewton", "numpy"))
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {versions}, one thread, {time.strftime('%Y-%m-%d')}\n"
    )
    print(f"| seed | {' | '.join(WAYS)} | proved |\n{'|---' * (len(WAYS) + 2)}|")
    same = dict.fromkeys(WAYS, 0)
    with threadpool_limits(1):
        for seed in range(given.seeds):
            X, y = regression(seed, given.noise)
            alphas, cells = {}, []
            for name, (kind, options) in WAYS.items():
                began = time.process_time()
                model = kind(**options).fit(X, y)
                cells.append(f"{model.alpha_:.4g} ({time.process_time() - began:.2f} s)")
                alphas[name] = model.alpha_
            for name, alpha in alphas.items():
                same[name] += np.isclose(alpha, alphas["scikit-learn, tol=1e-8"], rtol=1e-9)
            print(
                f"| {seed} | {' | '.join(cells)} | {'yes' if model.choice_certificate_.proved else 'no'} |", flush=True
            )
    counts = " | ".join(f"{count} of {given.seeds}" for count in same.values())
    print(f"| as at tol=1e-8 | {counts} | |")


if __name__ == "__main__":
    main()
