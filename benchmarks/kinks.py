"""Losses with kinks (hinge, ε-insensitive, quantile): seconds of the processor to a certified relative gap of 1e-4, one thread.

    python -m benchmarks.kinks --sets a9a,w8a --strengths 1,0.01 --methods auto,sdna,interior,newton,liblinear
    python -m benchmarks.kinks --random 40

For each data set and each λn it times methods of ours ("newton" solves smoothed losses) and LIBLINEAR (scikit-learn's
``LinearSVC`` and ``LinearSVR`` with their dual solver, up to 2000 iterations, at several tolerances of which the loosest that is
good enough counts; it has no quantile loss). Models have no intercept, since LIBLINEAR penalises its own. The models of LIBLINEAR
are compared with the best dual value that is known: (P(w) − D)/P(w). A method that does not reach the goal is shown as not
converged, with the least gap that it has reached.

``--random`` draws small data instead: 100 to 5000 rows, 5 to 100 features, gaussian, correlated, one-hot or sparse, as an array
or a CSR matrix, hinge or ε-insensitive loss, C = 1/λn from 0.01 to 100.
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses

GOAL = 1e-4
"""The relative gap to which all are timed."""

TOLERANCES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Of LIBLINEAR."""

REPEATS, ENOUGH, PATIENCE = 5, 2.0, 10.0
"""A fit is repeated so often, unless it takes longer than so many seconds; and the factor by which the clock may run ahead of the
processor, which others may use, too."""

ITERATIONS = 2000
"""Most iterations of LIBLINEAR."""

FOLDER = Path(os.environ.get("DUALNEWTON_DATA", Path(__file__).parents[2] / "shared" / "data"))

SETS = "news20,sparse,a9a,w8a,phishing,mushrooms,dense,madelon:standardised,a9a:standardised,w8a:standardised,abalone,cpusmall"


def main() -> None:
    """Print a table with a row for each data set, loss and strength."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", default=SETS, help="names, separated by commas; ':standardised' after one")
    parser.add_argument("--strengths", default="10,1,0.1,0.01", help="values of λn, separated by commas")
    parser.add_argument("--rows", type=int, default=20000, help="most rows of a set")
    parser.add_argument("--cap", type=float, default=20.0, help="seconds of the processor in which a fit counts")
    parser.add_argument("--methods", default="auto,liblinear", help="which ones, separated by commas")
    parser.add_argument("--quantile", type=float, default=None, help="q: the quantile loss instead, for numbers")
    parser.add_argument("--random", type=int, default=0, help="so many random small problems instead of the sets")
    asked = parser.parse_args()
    methods = asked.methods.split(",")
    print(f"{'data':22s} {'size':>12s} {'loss':20s} {'λn':>6s} " + " ".join(f"{name:>24s}" for name in methods))
    pairs: list[tuple[float, float]] = []
    for name, X, y, strength in drawn(asked.random) if asked.random else chosen(asked):
        loss = loss_for(y, asked.quantile)
        problem = dn.Problem(X, y, loss, lam=strength / len(y))
        times = {method: timed(method, problem, strength, asked.cap) for method in methods}
        size = f"{problem.n}x{problem.d}"
        cells = " ".join(f"{shown(seconds):>13s} {gap:>9.1e}" for seconds, gap in times.values())
        print(f"{name:22s} {size:>12s} {type(loss).__name__:20s} {strength:6.3g} {cells}", flush=True)
        if {"auto", "liblinear"} <= set(times):
            pairs.append((times["auto"][0], times["liblinear"][0]))
    if pairs:
        summarise(pairs)


def shown(seconds: float) -> str:
    """Return the milliseconds of a fit; of one that did not reach the goal within the cap and its iterations, that it did not."""
    return f"{1e3 * seconds:.2f}ms" if seconds < math.inf else "absent" if math.isnan(seconds) else "not converged"


def chosen(asked: argparse.Namespace) -> Iterator[tuple[str, Any, np.ndarray, float]]:
    """Yield name, X, y and λn for each of the sets and strengths that are asked for."""
    for name in asked.sets.split(","):
        X, y = loaded(name, asked.rows)
        for strength in map(float, asked.strengths.split(",")):
            yield name, X, y, strength


def drawn(count: int) -> Iterator[tuple[str, Any, np.ndarray, float]]:
    """Yield name, X, y and λn of random problems; each has a seed of its own."""
    for seed in range(count):
        rng = np.random.default_rng([seed, 77])
        n, d = (round(math.exp(rng.uniform(*np.log(ends)))) for ends in ((100, 5000), (5, 100)))
        kind, X = str(rng.choice(["gaussian", "correlated", "one-hot", "sparse"])), rng.standard_normal((n, d))
        if kind == "correlated":
            X += 2.0 * rng.standard_normal((n, 1)) @ rng.standard_normal((1, d))
        if kind == "one-hot":
            X = np.zeros((n, d))
            for part in np.array_split(np.arange(d), max(1, d // 5)):
                X[np.arange(n), part[rng.integers(len(part), size=n)]] = 1.0
        if kind == "sparse":
            X *= rng.random((n, d)) < 0.1
        sparse, strength, numbers = rng.random() < 0.5, math.exp(rng.uniform(*np.log((0.01, 100)))), rng.random() < 0.5
        z = X @ rng.standard_normal(d)
        z = z / (z.std() or 1.0) + rng.uniform(0.1, 1.0) * rng.standard_normal(n)
        y = z if numbers else np.where(z > 0.0, 1.0, -1.0)
        yield f"{seed} {kind}{', CSR' if sparse else ''}", sp.csr_array(X) if sparse else X, y, strength


def summarise(pairs: list[tuple[float, float]]) -> None:
    """Print the geometric mean over the cells that both solve, and how many only one of them does."""
    both = [ours / theirs for ours, theirs in pairs if max(ours, theirs) < math.inf] or [math.nan]
    alone = sum(ours < theirs == math.inf for ours, theirs in pairs)
    missed = sum(theirs < ours == math.inf for ours, theirs in pairs)
    mean, slower = math.exp(float(np.mean(np.log(both)))), sum(ratio > 1.0 for ratio in both)
    print(
        f"auto / LIBLINEAR, geometric mean of the {len(both)} cells that both solve: {mean:.2f}, largest {max(both):.2f}, "
        f"above 1 in {slower}"
    )
    neither = len(pairs) - len(both) - alone - missed
    print(f"cells that only auto solves: {alone}; that only LIBLINEAR solves: {missed}; neither: {neither}")


def loaded(name: str, most: int) -> tuple[Any, np.ndarray]:
    """Return a data set by name, at most so many of its rows, standardised if the name says so."""
    name, _, how = name.partition(":")
    rng = np.random.default_rng(0)
    if name == "sparse":
        X = sp.random_array((20000, 5000), density=0.01, rng=rng, format="csr")
        z = X @ rng.standard_normal(5000)
        return X, np.where(z / z.std() + 0.5 * rng.standard_normal(20000) > 0.0, 1.0, -1.0)
    if name == "dense":
        X = rng.standard_normal((20000, 500))
        return X, np.where(X @ rng.standard_normal(500) + 10.0 * rng.standard_normal(20000) > 0.0, 1.0, -1.0)
    file = np.load(FOLDER / f"{name}.npz")
    parts = ("data", "indices", "indptr")
    X = file["X"] if "X" in file else sp.csr_array(tuple(file[part] for part in parts), shape=file["shape"])
    rows = np.sort(rng.permutation(X.shape[0])[:most])
    X, y = X[rows], file["y"][rows].astype(float)
    few = len(np.unique(y)) <= 20
    y = np.where(y > np.median(y) if len(np.unique(y)) > 2 else y > y.min(), 1.0, -1.0) if few else y
    if how == "standardised" or not few:
        X = np.asarray(X.todense()) if sp.issparse(X) else X
        spread = X.std(axis=0)
        X = (X - X.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0)
        y = y if few else (y - y.mean()) / y.std()
    return np.ascontiguousarray(X, dtype=float) if not sp.issparse(X) else X.astype(float), y


def loss_for(y: np.ndarray, q: float | None) -> losses.Loss:
    """Return the hinge for classes, the ε-insensitive or quantile loss for numbers."""
    if set(np.unique(y)) <= {-1.0, 1.0}:
        return losses.Hinge()
    return losses.EpsilonInsensitive(0.1) if q is None else losses.Quantile(q)


def timed(method: str, problem: dn.Problem, strength: float, cap: float) -> tuple[float, float]:
    """Return the seconds of a method to the goal, and the relative gap it has reached; infinite seconds where it did not."""
    if method == "liblinear":
        return liblinear(problem, strength, cap)
    dn.solve(problem, method=method, tol=0.5, time_limit=cap)  # loads what is compiled
    seconds, result = best_of(lambda: dn.solve(problem, method=method, tol=GOAL, time_limit=PATIENCE * cap))
    gap = result.certificate.relative_gap
    return (seconds if gap <= GOAL and seconds <= cap else math.inf), gap


def liblinear(problem: dn.Problem, strength: float, cap: float) -> tuple[float, float]:
    """Return the shortest time over the tolerances with which LIBLINEAR reaches the goal."""
    from sklearn.svm import LinearSVC, LinearSVR

    if isinstance(problem.loss, losses.Quantile):
        return math.nan, math.nan
    dual = best_dual(problem, cap)
    settings = {"C": 1.0 / strength, "fit_intercept": False, "dual": True, "max_iter": ITERATIONS, "random_state": 0}
    gap = math.inf
    for tol in TOLERANCES:
        if isinstance(problem.loss, losses.Hinge):
            model = LinearSVC(loss="hinge", tol=tol, **settings)
        else:
            model = LinearSVR(epsilon=problem.loss.epsilon, tol=tol, **settings)
        X = sp.csr_matrix(problem.X) if sp.issparse(problem.X) else problem.X
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seconds, _ = best_of(lambda model=model, X=X: model.fit(X, problem.y))
        primal = problem.primal(np.ravel(model.coef_))
        gap = min(gap, (primal - dual) / primal)
        if gap <= GOAL and seconds <= cap:
            return seconds, gap
        if seconds > cap or np.max(model.n_iter_) >= ITERATIONS:  # a smaller tolerance ends there, too
            break
    return math.inf, gap


def best_dual(problem: dn.Problem, cap: float) -> float:
    """Return a dual value that is accurate enough to judge others by."""
    found = []
    for method in ("auto", "interior"):
        try:
            result = dn.solve(problem, method=method, tol=0.01 * GOAL, time_limit=3.0 * cap)
        except dn.DualnewtonError:
            continue
        found.append(result.certificate.dual)
        if result.converged:
            break
    return max(found)


def best_of(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the shortest time of a few repeats, and the last value."""
    times: list[float] = []
    while len(times) < REPEATS and sum(times) < ENOUGH:
        began = time.process_time()
        value = run()
        times.append(time.process_time() - began)
    return min(times), value


if __name__ == "__main__":
    main()
