"""Lasso and elastic net against scikit-learn, celer and skglm: values and paths to a certified gap, defaults, cross-validation.

    python -m benchmarks.sparse_models [--part single path default cv] [--sets 200x5000 madelon …] [--repeats 3]

Times are processor seconds of one thread, the best of some repeats. In the parts "single" and "path" each library is asked for
falling tolerances of its own until the duality gap of its model, computed by ``Problem.certify``, is at most 1e-6 of the
objective; the time of that last fit counts, and "-" means that none was good enough.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers

GAP = 1e-6
FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data"
SETS = ("300x10", "5000x50", "20000x200", "200x5000", "1000x2000", "colon_cancer", "madelon", "a9a", "w8a", "mushrooms")
GRIDS = ("300x10", "5000x50", "20000x200", "200x5000")


def data_of(name: str) -> tuple[Any, np.ndarray]:
    """Return a set by name, or "NxD": Gaussian features, of which up to 20 matter."""
    if name[0].isdigit():
        n, d = map(int, name.split("x"))
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        return X, X[:, : min(20, d)].sum(axis=1) + rng.standard_normal(n)
    found = np.load(FOLDER / f"{name}.npz")
    if "X" in found:
        return found["X"], found["y"].astype(float)
    parts = (found["data"], found["indices"], found["indptr"])
    return sp.csr_array(parts, shape=tuple(found["shape"])).astype(float), found["y"].astype(float)


def seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the least processor time of some calls."""
    best = math.inf
    for _ in range(repeats):
        began = time.process_time()
        call()
        best = min(best, time.process_time() - began)
    return best


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


def single(name: str, repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of single values."""
    X, y = data_of(name)
    F, largest = by_columns(X), float(np.abs(X.T @ (y - y.mean())).max() / len(y))
    for part in (10, 100):
        alpha = largest / part
        problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=alpha, fit_intercept=True)
        ours = lambda alpha=alpha: dn.Lasso(alpha, tol=GAP).fit(X, y)  # noqa: E731
        assert ours().certificate_.relative_gap <= GAP
        times = {"dualnewton": seconds(ours, repeats)}
        for peer, make in peers():
            times[peer] = math.nan
            for tol in 10.0 ** -np.arange(3, 11):
                model = make(alpha, tol).fit(F, y)
                if problem.certify(model.coef_, float(model.intercept_)).relative_gap <= GAP:
                    times[peer] = seconds(lambda make=make, alpha=alpha, tol=tol: make(alpha, tol).fit(F, y), repeats)
                    break
        yield f"{name} /{part}", times


def path(name: str, repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of a path of 50 values down to a hundredth of the largest, without an intercept."""
    from sklearn.linear_model import lasso_path

    X, y = data_of(name)
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
        times[peer] = math.nan
        for tol in 10.0 ** -np.arange(4, 10):
            if np.all(way(tol)[2] <= GAP * values):
                times[peer] = seconds(lambda way=way, tol=tol: way(tol), repeats)
                break
    yield name, times


def default(name: str, repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of default settings."""
    from sklearn.linear_model import Lasso

    X, y = data_of(name)
    largest = float(np.abs(X.T @ (y - y.mean())).max() / len(y))
    for part in (10, 100):
        alpha = largest / part
        times = {
            who: seconds(lambda kind=kind, alpha=alpha: kind(alpha).fit(X, y), repeats)
            for who, kind in (("dualnewton", dn.Lasso), ("sklearn", Lasso))
        }
        yield f"{name} /{part}", times


def cv(name: str, repeats: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the times of cross-validation with default settings and 5 folds."""
    from sklearn import linear_model

    X, y = data_of(name)
    for kind in ("ElasticNetCV", "LassoCV"):
        times = {
            who: seconds(lambda module=module, kind=kind: getattr(module, kind)(cv=5).fit(X, y), repeats)
            for who, module in (("dualnewton", dn), ("sklearn", linear_model))
        }
        yield f"{name} {kind}", times


PARTS = {"single": (single, SETS), "path": (path, SETS), "default": (default, SETS), "cv": (cv, GRIDS)}


def main() -> None:
    """Print a table for each part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="*", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--sets", nargs="*", default=None)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for part in options.part:
        measure, sets = PARTS[part]
        ratios = []
        print(f"\n{part}: milliseconds; the last column is the best peer's time over ours")
        for name in options.sets or sets:
            if not name[0].isdigit() and not (FOLDER / f"{name}.npz").exists():
                print(f"{name}: not there")
                continue
            next(iter(measure(name, 1)))  # compile
            for cell, times in measure(name, options.repeats):
                others = [t for who, t in times.items() if who != "dualnewton" and not math.isnan(t)]
                ratio = min(others, default=math.nan) / times["dualnewton"]
                ratios.append(ratio)
                shown = "  ".join(f"{who} {'-' if math.isnan(t) else f'{1e3 * t:.2f}':>9}" for who, t in times.items())
                print(f"{cell:28} {shown}  {ratio:6.2f}", flush=True)
        known = [ratio for ratio in ratios if not math.isnan(ratio)]
        if known:
            ahead, mean = np.mean(np.array(known) >= 1.0), math.exp(np.mean(np.log(known)))
            print(f"ahead in {ahead:.0%} of {len(known)} cells, geometric mean {mean:.2f}")


if __name__ == "__main__":
    main()
