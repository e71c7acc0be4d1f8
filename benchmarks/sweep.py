"""Fits with default settings that miss their tolerance: every estimator, several strengths and storages, some seconds each.

    python -m benchmarks.sweep [--sets a9a,madelon] [--rows 3000] [--limit 6] [--estimators hinge,huber]

Prints each fit whose certified relative gap exceeds ``tol`` after the limit, and the share of such fits.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.data import FOLDER
from threadpoolctl import threadpool_limits

import dualnewton as dn

STRENGTHS = (1.0, 1e3, 1e-3)

CLASSIFIERS: dict[str, Callable[[float], Any]] = {
    "logistic": lambda s: dn.LogisticRegression(C=s, max_iter=10**6),
    "logistic l1": lambda s: dn.LogisticRegression(C=s, l1_ratio=1.0, max_iter=10**6),
    "logistic elastic net": lambda s: dn.LogisticRegression(C=s, l1_ratio=0.5, max_iter=10**6),
    "squared hinge": lambda s: dn.LinearSVC(C=s, max_iter=10**6),
    "hinge": lambda s: dn.LinearSVC(C=s, loss="hinge", max_iter=10**6),
    "ridge classifier": lambda s: dn.RidgeClassifier(alpha=s),
}
REGRESSORS: dict[str, Callable[[float], Any]] = {
    "ridge": lambda s: dn.Ridge(alpha=s),
    "lasso": lambda s: dn.Lasso(alpha=1e-2 * s, max_iter=10**6),
    "elastic net": lambda s: dn.ElasticNet(alpha=1e-2 * s, max_iter=10**6),
    "huber": lambda s: dn.HuberRegressor(alpha=1e-4 * s, max_iter=10**6),
    "epsilon-insensitive": lambda s: dn.LinearSVR(C=s, epsilon=0.1, max_iter=10**6),
    "quantile": lambda s: dn.QuantileRegressor(alpha=1e-3 * s),
}
SETS = "a9a,w8a,phishing,mushrooms,madelon,blogfeedback,cpusmall,abalone"


def variants(name: str, most: int) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Yield the rows of a set as they are, dense, in float32 and standardised, with scores of unit spread."""
    file = np.load(FOLDER / f"{name}.npz")
    parts = ("data", "indices", "indptr")
    X = file["X"] if "X" in file else sp.csr_array(tuple(file[part] for part in parts), shape=file["shape"])
    rows = np.sort(np.random.default_rng(0).permutation(X.shape[0])[:most])
    X, y = X[rows].astype(float), file["y"][rows].astype(float)
    dense = np.ascontiguousarray(X.toarray() if sp.issparse(X) else X)
    y = (y - y.mean()) / (y.std() or 1.0)
    spread = dense.std(axis=0)
    yield "as it is", X, y
    yield "float32", X.astype(np.float32), y
    yield "standardised", (dense - dense.mean(axis=0)) / np.where(spread > 0.0, spread, 1.0), y


def main() -> None:
    """Print what missed, and the share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--rows", type=int, default=3000)
    parser.add_argument("--limit", type=float, default=6.0)
    parser.add_argument("--estimators", default=",".join([*CLASSIFIERS, *REGRESSORS]))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    threadpool_limits(1)
    chosen, fits, missed = asked.estimators.split(","), 0, 0
    for name in asked.sets.split(","):
        for storage, X, y in variants(name, asked.rows):
            for kind, make in (CLASSIFIERS | REGRESSORS).items():
                if kind not in chosen:
                    continue
                target = np.where(y > np.median(y), 1, 0) if kind in CLASSIFIERS else y
                target = np.where(y > y.min(), 1, 0) if len(np.unique(target)) < 2 else target
                for strength in STRENGTHS:
                    model = make(strength).set_params(time_limit=asked.limit)
                    began = time.perf_counter()
                    model.fit(X, target)
                    seconds, fits = time.perf_counter() - began, fits + 1
                    proofs = model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]
                    gap = max(proof.relative_gap for proof in proofs)
                    if gap > model.tol:
                        missed += 1
                        size = f"{X.shape[0]}x{X.shape[1]}"
                        print(
                            f"{name} {size}, {storage}: {kind}, strength {strength:g}: {gap:.1e} in {seconds:.1f} s",
                            flush=True,
                        )
    print(
        f"{missed} of {fits} fits ({missed / max(fits, 1):.1%}) missed tol after {asked.limit:g} s, {time.strftime('%Y-%m-%d')}"
    )


if __name__ == "__main__":
    main()
