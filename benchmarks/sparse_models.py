"""Lasso and elastic net against scikit-learn, celer and skglm: values and paths to a certified gap, defaults, cross-validation.

    python -m benchmarks.sparse_models [--part single path default logistic cv] [--sets 200x5000 madelon …] [--repeats 3]
        [--classes LassoCV ElasticNetCV …] [--folder data]

Times are processor seconds of one thread, the best of some repeats of at least 50 ms. In the parts "single" and "path" each
library is asked for falling tolerances of its own until the duality gap of its model, computed by ``Problem.certify``, is at most
1e-6 of the objective; the time of that last fit counts. "-" means that none was good enough in the time limit of a library and a
cell. "logistic" is l1 logistic regression to a certified gap of 1e-4, against LIBLINEAR. "cv" compares every class, with default
settings; a line "as good" is scikit-learn at the tolerance at which its own rule guarantees the relative gaps that ours
certifies.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks import timing
from benchmarks.timing import in_child

import dualnewton as dn
from dualnewton import losses, regularizers

GAP, CAP, SEARCH_CAP, LEAST = 1e-6, 40.0, 150.0, 0.05
"""The relative gap; in seconds, the time limit of a library for all tolerances of a cell, that of a cross-validation (both on an
idle core: ``timing.LONGER`` allows for other work), and the processor time of a repeat."""

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS = ("300x10", "5000x50", "20000x200", "200x5000", "1000x2000", "colon_cancer", "madelon", "a9a", "w8a", "mushrooms")
GRIDS = ("300x10", "5000x50", "20000x200", "200x5000", "200x1000exact")


def data_of(name: str, folder: Path = FOLDER) -> tuple[Any, np.ndarray]:
    """Return a set by name, or "NxD": Gaussian features, of which up to 20 matter; "NxDexact" without noise."""
    if name.endswith("exact"):
        from sklearn.datasets import make_regression

        n, d = map(int, name.removesuffix("exact").split("x"))
        return make_regression(n, d, n_informative=20, random_state=0)
    if name[0].isdigit():
        n, d = map(int, name.split("x"))
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        return X, X[:, : min(20, d)].sum(axis=1) + rng.standard_normal(n)
    found = np.load(folder / f"{name}.npz")
    if "X" in found:
        return found["X"], found["y"].astype(float)
    parts = (found["data"], found["indices"], found["indptr"])
    return sp.csr_array(parts, shape=tuple(found["shape"])).astype(float), found["y"].astype(float)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the least processor time of a call among some repeats, each of as many calls as the clock needs to resolve it."""
    best = math.inf
    for _ in range(repeats):
        began, calls, spent = time.process_time(), 0, 0.0
        while spent < LEAST:
            call()
            calls, spent = calls + 1, time.process_time() - began
        best = min(best, spent / calls)
    return best


def first_good(fit: Callable[[float], Any], is_good: Callable[[Any], bool], tols: Any, repeats: int) -> float:
    """Return the time of the fit at the first of falling tolerances that is good enough; NaN if none is in the time limit."""

    def times() -> Iterator[float]:
        for tol in tols:
            if is_good(fit(float(tol))):
                yield seconds(partial(fit, float(tol)), repeats)
                return

    return float(in_child(times, CAP, 1).last(math.nan))


def in_time(call: Callable[[], Any], repeats: int) -> float:
    """Return the least time of as many repeats of a call as end within the time limit; NaN if none does.

    The first call in a new process takes up to half as long again as others.
    """

    def times() -> Iterator[float]:
        best = math.inf
        for _ in range(repeats):
            best = min(best, seconds(call, 1))
            yield best

    return float(in_child(times, SEARCH_CAP, 1).last(math.nan))


def by_columns(X: Any) -> Any:
    """Return the storage that coordinate descent wants."""
    return sp.csc_matrix(X) if sp.issparse(X) else np.asfortranarray(X)


def peers() -> Iterator[tuple[str, Callable[[float, float], Any]]]:
    """Yield each library that is installed, with a Lasso for an alpha and a tolerance."""
    for name, options in (("sklearn.linear_model", {"max_iter": 10**6}), ("celer", {}), ("skglm", {})):
        try:
            kind = import_module(name).Lasso
        except ImportError:
            continue
        yield name.partition(".")[0], lambda alpha, tol, kind=kind, options=options: kind(alpha, tol=tol, **options)


def is_certified(problem: dn.Problem, model: Any) -> bool:
    """Whether a model of any library has a small certified gap."""
    return problem.certify(model.coef_, float(model.intercept_)).relative_gap <= GAP


def single(name: str, data: tuple[Any, np.ndarray], repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of single values."""
    X, y = data
    F, largest = by_columns(X), float(np.abs(X.T @ (y - y.mean())).max() / len(y))
    for part in (10, 100):
        alpha = largest / part
        problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=alpha, fit_intercept=True)
        ours = lambda alpha=alpha: dn.Lasso(alpha, tol=GAP).fit(X, y)  # noqa: E731
        assert ours().certificate_.relative_gap <= GAP
        times = {"dualnewton": seconds(ours, repeats)}
        good = partial(is_certified, problem)
        for peer, make in peers():
            fit = lambda tol, make=make, alpha=alpha: make(alpha, tol).fit(F, y)  # noqa: E731
            times[peer] = first_good(fit, good, 10.0 ** -np.arange(3, 11), repeats)
        yield f"{name} /{part}", times


def path(name: str, data: tuple[Any, np.ndarray], repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of a path of 50 values down to a hundredth of the largest, without an intercept."""
    from sklearn.linear_model import lasso_path

    X, y = data
    F, y = by_columns(X), y - y.mean()
    alphas, _, _, proofs = dn.lasso_path(X, y, alphas=50, eps=1e-2, tol=GAP, return_certificates=True)
    assert max(proof.relative_gap for proof in proofs) <= GAP
    times = {"dualnewton": seconds(lambda: dn.lasso_path(X, y, alphas=alphas, tol=GAP), repeats)}
    values = np.array([proof.primal for proof in proofs])
    ways: dict[str, Callable[[float], Any]] = {
        "sklearn": lambda tol: lasso_path(F, y, alphas=alphas, tol=tol, max_iter=10**6)
    }
    try:
        celer = import_module("celer")
        ways["celer"] = lambda tol: celer.celer_path(F, y, pb="lasso", alphas=alphas, tol=tol)
    except ImportError:
        pass
    for peer, way in ways.items():
        good = lambda found: bool(np.all(found[2] <= GAP * values))  # noqa: E731
        times[peer] = first_good(way, good, 10.0 ** -np.arange(4, 10), repeats)
    yield name, times


def default(name: str, data: tuple[Any, np.ndarray], repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of default settings."""
    from sklearn.linear_model import Lasso

    X, y = data
    largest = float(np.abs(X.T @ (y - y.mean())).max() / len(y))
    for part in (10, 100):
        alpha = largest / part
        times = {
            who: seconds(lambda kind=kind, alpha=alpha: kind(alpha).fit(X, y), repeats)
            for who, kind in (("dualnewton", dn.Lasso), ("sklearn", Lasso))
        }
        yield f"{name} /{part}", times


def logistic(name: str, data: tuple[Any, np.ndarray], repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of l1 logistic regression, without an intercept: LIBLINEAR penalises its own.

    The penalties are the smallest one with the model zero, divided by 10 and 100.
    """
    from sklearn.linear_model import LogisticRegression

    X, y = data
    y = np.where(y > (np.median(y) if len(np.unique(y)) > 2 else y.min()), 1.0, -1.0)
    for part in (10, 100):
        C = part / float(0.5 * np.abs(X.T @ y).max())
        problem = dn.Problem(X, y, losses.Logistic(), regularizer=regularizers.L1(), lam=1.0 / (C * len(y)))
        ours = dn.LogisticRegression(C=C, l1_ratio=1.0, fit_intercept=False, tol=1e-4)
        ours.fit(X, y)
        options = {"C": C, "l1_ratio": 1.0, "fit_intercept": False, "solver": "liblinear", "max_iter": 10**4}
        times = {"dualnewton": seconds(partial(ours.fit, X, y), repeats)}
        fit = lambda tol, options=options: LogisticRegression(tol=tol, **options).fit(X, y)  # noqa: E731
        good = lambda model, problem=problem: problem.certify(model.coef_[0]).relative_gap <= 1e-4  # noqa: E731
        times["liblinear"] = first_good(fit, good, 10.0 ** -np.arange(1, 9), repeats)
        yield f"{name} /{part}", times


SEARCHES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("LassoCV", "one output", {}),
    ("ElasticNetCV", "one output", {}),
    ("MultiTaskLassoCV", "three outputs", {}),
    ("MultiTaskElasticNetCV", "three outputs", {}),
    ("RidgeCV", "one output", {}),
    ("RidgeCV", "one output", {"cv": 5}),
    ("RidgeClassifierCV", "two classes", {}),
    ("LogisticRegressionCV", "two classes", {"l1_ratios": (0.0,)}),
    ("LogisticRegressionCV", "two classes", {"l1_ratios": (1.0,), "solver": "saga"}),
)
"""Class, target and parameters; the solver is scikit-learn's, which has one for ‖w‖₁ and dense data that needs no choice."""


def targets_of(X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Return targets for each kind of search, from those of one output."""
    rng = np.random.default_rng(1)
    W = rng.standard_normal((min(20, X.shape[1]), 3))
    outputs = X[:, : len(W)] @ W + rng.standard_normal((len(X), 3))
    return {"one output": y, "three outputs": outputs, "two classes": (y > 0.0).astype(int)}


def cv(name: str, data: tuple[Any, np.ndarray], repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of cross-validation with default settings, and of scikit-learn as good as ours where its rule says when."""
    from sklearn import linear_model

    targets = targets_of(*data)
    for kind, what, given in SEARCHES:
        if kind not in chosen_classes:
            continue
        X, y, more = data[0], targets[what], {}
        if "l1_ratios" in given:
            more = {"use_legacy_attributes": False, "scoring": "accuracy"}
        ours = getattr(dn, kind)(**{key: value for key, value in given.items() if key != "solver"}, **more)
        theirs = getattr(linear_model, kind)(**given, **more)
        label = f"{name} {kind} {' '.join(f'{key}={value}' for key, value in given.items() if key != 'solver')}".strip()
        ours.fit(X, y)  # compile
        times = {"dualnewton": seconds(partial(ours.fit, X, y), repeats)}
        yield label, times | {"sklearn": in_time(partial(theirs.fit, X, y), repeats)}
        if kind in ("LassoCV", "ElasticNetCV"):
            tight = getattr(linear_model, kind)(tol=as_good_as(ours, y), max_iter=10**6)
            yield f"{label}, as good", times | {"sklearn": in_time(partial(tight.fit, X, y), repeats)}


def as_good_as(search: Any, y: np.ndarray) -> float:
    """Return the tolerance at which scikit-learn's models have relative gaps of at most ``search.tol``.

    It stops at a gap of tol·‖y − ȳ‖²/n, up to the rows that a fold leaves out.
    """
    least = min(certificate.primal for certificate in search.certificates_.ravel())
    return float(search.tol * least / np.mean(np.square(y - y.mean())))


chosen_classes = {kind for kind, _, _ in SEARCHES}
"""The classes that the part "cv" compares."""

PARTS = {
    "single": (single, SETS),
    "path": (path, SETS),
    "default": (default, SETS),
    "logistic": (logistic, ("5000x50", "madelon", "a9a", "w8a", "mushrooms", "phishing")),
    "cv": (cv, GRIDS),
}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--sets", nargs="*", default=None)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--classes", nargs="*", default=sorted(chosen_classes), choices=sorted(chosen_classes))
    parser.add_argument("--folder", type=Path, default=FOLDER)
    options = parser.parse_args()
    chosen_classes.intersection_update(options.classes)
    timing.chosen_clock = "cpu"
    warnings.simplefilter("ignore")
    for part in options.part:
        measure, sets = PARTS[part]
        ratios: dict[str, list[float]] = {"default": [], "as good": []}
        print(f"\n{part}: milliseconds; the last column is the best peer's time over ours")
        for name in options.sets or sets:
            if not name[0].isdigit() and not (options.folder / f"{name}.npz").exists():
                print(f"{name}: not there")
                continue
            data = data_of(name, options.folder)
            if part != "cv":
                next(iter(measure(name, data, 1)))  # compile
            for cell, times in measure(name, data, options.repeats):
                others = [t for who, t in times.items() if who != "dualnewton" and not math.isnan(t)]
                ratio = min(others, default=math.nan) / times["dualnewton"]
                ratios["as good" if cell.endswith("as good") else "default"].append(ratio)
                shown = "  ".join(f"{who} {'-' if math.isnan(t) else f'{1e3 * t:.2f}':>9}" for who, t in times.items())
                print(f"{cell:54} {shown}  {ratio:6.2f}", flush=True)
        for kind, own in ratios.items():
            known = [ratio for ratio in own if not math.isnan(ratio)]
            if known:
                ahead, mean = np.mean(np.array(known) >= 1.0), math.exp(np.mean(np.log(known)))
                what = "" if kind == "default" else f"{kind}: "
                print(f"{what}ahead in {ahead:.0%} of {len(known)} cells, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
