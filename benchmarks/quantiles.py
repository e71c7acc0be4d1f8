"""Quantile regression without a penalty: seconds of each library, and how far its objective is above the best one.

    python -m benchmarks.quantiles --rows 1000,10000,100000 --features 5,20,50 --quantiles 0.1,0.5,0.9
    python -m benchmarks.quantiles --rows 3000000 --features 10 --only ours

Compared are scikit-learn (HiGHS, on a linear program of 2n variables: up to --highs-rows rows), statsmodels' QuantReg (iterated
weighted least squares) and pyfixest's quantreg (an interior-point method, and the same after preprocessing). A library that is
not installed is named as absent. All run on one thread; the least wall-clock seconds of some runs count, of the fit alone, with
data in the form that the library takes. "above" is (P − best)/best over all libraries; a fit above 1e-6 is marked by an asterisk:
it has not solved the problem to the quality of the others.
"""

from __future__ import annotations

import argparse
import importlib
import math
import resource
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

GOAL = 1e-6
Fit = Callable[[np.ndarray, np.ndarray, float], tuple[float, np.ndarray]]
"""Seconds of a fit, and (w, b)."""


def make_data(n: int, d: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return features, and targets with heavy tails whose spread depends on the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    w = rng.standard_normal(d)
    return X, X @ w + 1.0 + (1.0 + 0.5 * np.abs(X[:, 0])) * rng.standard_t(3, n)


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the seconds of a call, and what it returns."""
    start = time.perf_counter()
    value = run()
    return time.perf_counter() - start, value


def ours(X: np.ndarray, y: np.ndarray, q: float) -> tuple[float, np.ndarray]:
    """Fit with the default tolerance, a certified relative gap of 1e-6."""
    import dualnewton as dn

    model = dn.QuantileRegressor(quantile=q, alpha=0.0)
    seconds, _ = timed(lambda: model.fit(X, y))
    return seconds, np.append(model.coef_, model.intercept_)


def highs(X: np.ndarray, y: np.ndarray, q: float) -> tuple[float, np.ndarray]:
    """Fit scikit-learn's QuantileRegressor."""
    from sklearn.linear_model import QuantileRegressor

    model = QuantileRegressor(quantile=q, alpha=0.0, solver="highs")
    seconds, _ = timed(lambda: model.fit(X, y))
    return seconds, np.append(model.coef_, model.intercept_)


def statsmodels(X: np.ndarray, y: np.ndarray, q: float) -> tuple[float, np.ndarray]:
    """Fit QuantReg with its default settings."""
    from statsmodels.regression.quantile_regression import QuantReg

    rows = np.column_stack([X, np.ones(len(y))])
    return timed(lambda: np.asarray(QuantReg(y, rows).fit(q=q).params))


def pyfixest(method: str) -> Fit:
    """Return pyfixest's quantreg by a method, with its default tolerance."""

    def fit(X: np.ndarray, y: np.ndarray, q: float) -> tuple[float, np.ndarray]:
        import pandas as pd
        from pyfixest import quantreg

        names = [f"x{j}" for j in range(X.shape[1])]
        frame = pd.DataFrame(np.column_stack([X, y]), columns=[*names, "y"])
        formula = f"y ~ {' + '.join(names)}"
        seconds, model = timed(lambda: quantreg(formula, frame, quantile=q, method=method, vcov="iid", seed=0))
        found = model.coef()
        return seconds, np.append(found[names].to_numpy(), found["Intercept"])

    return fit


LIBRARIES: dict[str, tuple[str, Fit]] = {
    "ours": ("dualnewton", ours),
    "HiGHS": ("sklearn", highs),
    "statsmodels": ("statsmodels", statsmodels),
    "pyfixest fn": ("pyfixest", pyfixest("fn")),
    "pyfixest pfn": ("pyfixest", pyfixest("pfn")),
}


def objective(x: np.ndarray, X: np.ndarray, y: np.ndarray, q: float) -> float:
    """The mean pinball loss."""
    r = y - X @ x[:-1] - x[-1]
    return float(np.maximum(q * r, (q - 1.0) * r).mean())


def measured(name: str, X: np.ndarray, y: np.ndarray, q: float, repeats: int) -> tuple[float, float]:
    """Return the least seconds of some runs of a library, and its objective; NaN where it fails."""
    best, value, spent = math.inf, math.nan, 0.0
    for _ in range(repeats):
        try:
            seconds, x = LIBRARIES[name][1](X, y, q)
        except Exception as error:  # a comparison goes on without a library that fails
            print(f"  {name} failed: {type(error).__name__}: {str(error)[:100]}")
            return math.nan, math.nan
        best, value, spent = min(best, seconds), objective(x, X, y, q), spent + seconds
        if spent > 10.0:
            break
    return best, value


def present(names: list[str]) -> list[str]:
    """Return the libraries that are installed, and name the others."""
    found = []
    for name in names:
        try:
            importlib.import_module(LIBRARIES[name][0])
            found.append(name)
        except ImportError:
            print(f"{name} is absent: {LIBRARIES[name][0]} is not installed")
    return found


def main() -> None:
    """Print one row for each problem."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="1000,10000,100000")
    parser.add_argument("--features", default="5,20,50")
    parser.add_argument("--quantiles", default="0.1,0.5,0.9")
    parser.add_argument("--highs-rows", type=int, default=10_000, help="most rows on which HiGHS runs")
    parser.add_argument("--only", default=",".join(LIBRARIES), help="libraries, separated by commas")
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    names = present(asked.only.split(","))
    small = make_data(2000, 3)
    for name in names:
        measured(name, *small, 0.5, 1)  # compiles and imports
    print(f"| n | d | q | {' | '.join(f'{name}, s (above)' for name in names)} | fastest other / ours |")
    print("|---" * (len(names) + 4) + "|")
    for n in map(int, asked.rows.split(",")):
        for d in map(int, asked.features.split(",")):
            X, y = make_data(n, d)
            for q in map(float, asked.quantiles.split(",")):
                row(names, X, y, q, asked.repeats, asked.highs_rows)
    print(f"\nPeak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def row(names: list[str], X: np.ndarray, y: np.ndarray, q: float, repeats: int, highs_rows: int) -> None:
    """Measure all libraries on one problem, and print what they took."""
    n, d = X.shape
    runs = {name: measured(name, X, y, q, repeats) for name in names if name != "HiGHS" or n <= highs_rows}
    best = min((value for _, value in runs.values() if not math.isnan(value)), default=math.nan)
    cells, others = [], []
    for name in names:
        seconds, value = runs.get(name, (math.nan, math.nan))
        above = (value - best) / best
        solved = above <= GOAL
        cells.append("–" if math.isnan(above) else f"{seconds:.4f} ({above:.0e}){'' if solved else ' *'}")
        if name != "ours" and solved:
            others.append(seconds)
    ratio = min(others) / runs["ours"][0] if others and "ours" in runs else math.nan
    print(f"| {n} | {d} | {q:g} | {' | '.join(cells)} | {ratio:.1f} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        main()
