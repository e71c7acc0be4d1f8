"""Estimators and cross-validations on random adversarial data: the certificates agree with ``certify``, and fits repeat."""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.exceptions import ConvergenceWarning, UndefinedMetricWarning

import dualnewton as dn
from campaign.fits import TRIES
from campaign.parts import Defect
from campaign.problems import STORAGES, power, rows

Rng = np.random.Generator
FEW = {"tol": 1e-6, "max_iter": 300}
"""Limits that keep a case short."""

LATE, MORE = 1.1, 0.15
"""A fit may take this multiple of its time limit, and so many seconds more: for the checks of scikit-learn and the scores of a
cross-validation as well."""


REFUSALS = "sample_weight", "dense data is required"
"""Words of the errors of type ``TypeError`` that scikit-learn raises, too."""


def _some(rng: Rng, options: Any) -> Any:
    return options[int(rng.integers(len(options)))]


CLASSIFIERS: dict[str, Callable[[Rng], Any]] = {
    "LogisticRegression": lambda rng: dn.LogisticRegression(
        C=_some(rng, [power(rng, -4, 6), np.inf]),
        l1_ratio=_some(rng, [0.0, 0.0, 0.5, 1.0]),
        multi_class=_some(rng, ["auto", "ovr"]),
        class_weight=_some(rng, [None, "balanced"]),
        **FEW,
    ),
    "LinearSVC": lambda rng: dn.LinearSVC(C=power(rng, -4, 4), loss=_some(rng, ["hinge", "squared_hinge"]), **FEW),
    "RidgeClassifier": lambda rng: dn.RidgeClassifier(alpha=power(rng, -4, 4)),
    "ERMClassifier": lambda rng: dn.ERMClassifier("squared_hinge", lam=power(rng, -6, 2), **FEW),
    "LogisticRegressionCV": lambda rng: dn.LogisticRegressionCV(
        Cs=3, cv=3, l1_ratios=_some(rng, [None, (0.5,), (0.2, 1.0)]), certify_choice=bool(rng.integers(2)), **FEW
    ),
    "RidgeClassifierCV": lambda rng: dn.RidgeClassifierCV(cv=_some(rng, [None, 3])),
}
REGRESSORS: dict[str, Callable[[Rng], Any]] = {
    "Ridge": lambda rng: dn.Ridge(alpha=_some(rng, [0.0, power(rng, -6, 6)]), positive=bool(rng.integers(2)), tol=1e-6),
    "LinearRegression": lambda rng: dn.LinearRegression(positive=bool(rng.integers(2))),
    "ElasticNet": lambda rng: dn.ElasticNet(alpha=power(rng, -4, 2), l1_ratio=float(rng.random()), **FEW),
    "Lasso": lambda rng: dn.Lasso(alpha=power(rng, -4, 2), positive=bool(rng.integers(2)), **FEW),
    "HuberRegressor": lambda rng: dn.HuberRegressor(epsilon=1.0 + power(rng, -2, 1), alpha=power(rng, -6, 2), **FEW),
    "QuantileRegressor": lambda rng: dn.QuantileRegressor(
        quantile=0.7, alpha=_some(rng, [0.0, power(rng, -3, 1)]), tol=1e-6
    ),
    "LinearSVR": lambda rng: dn.LinearSVR(C=power(rng, -3, 3), epsilon=_some(rng, [0.0, 0.3]), **FEW),
    "ERMRegressor": lambda rng: dn.ERMRegressor("huber", lam=power(rng, -6, 2), **FEW),
    "RidgeCV": lambda rng: dn.RidgeCV(alphas=(0.1, 1.0, 10.0), cv=_some(rng, [None, 3])),
    "LassoCV": lambda rng: dn.LassoCV(alphas=4, cv=3, positive=bool(rng.integers(2)), **FEW),
    "ElasticNetCV": lambda rng: dn.ElasticNetCV(
        alphas=4, cv=3, l1_ratio=_some(rng, [0.5, (0.1, 0.9), 0.01]), positive=bool(rng.integers(2)), **FEW
    ),
}
COUNTS: dict[str, Callable[[Rng], Any]] = {
    "PoissonRegressor": lambda rng: dn.PoissonRegressor(alpha=_some(rng, [0.0, power(rng, -4, 2)]), **FEW),
    "GammaRegressor": lambda rng: dn.GammaRegressor(alpha=power(rng, -4, 2), **FEW),
    "TweedieRegressor": lambda rng: dn.TweedieRegressor(
        power=_some(rng, [0, 1, 1.5, 2]), link="log", alpha=power(rng, -4, 2), **FEW
    ),
    "PoissonRegressorCV": lambda rng: dn.PoissonRegressorCV(alphas=3, cv=3, l1_ratio=_some(rng, [0.0, 0.5]), **FEW),
    "GammaRegressorCV": lambda rng: dn.GammaRegressorCV(alphas=3, cv=3, **FEW),
    "TweedieRegressorCV": lambda rng: dn.TweedieRegressorCV(power=1.5, alphas=3, cv=3, **FEW),
}
OUTPUTS: dict[str, Callable[[Rng], Any]] = {
    "Ridge": lambda rng: dn.Ridge(alpha=power(rng, -4, 4), tol=1e-6),
    "LinearRegression": lambda rng: dn.LinearRegression(),
    "MultiTaskLasso": lambda rng: dn.MultiTaskLasso(alpha=power(rng, -4, 2), **FEW),
    "MultiTaskElasticNet": lambda rng: dn.MultiTaskElasticNet(alpha=power(rng, -4, 2), **FEW),
    "MultiTaskLassoCV": lambda rng: dn.MultiTaskLassoCV(alphas=3, cv=3, **FEW),
    "MultiTaskElasticNetCV": lambda rng: dn.MultiTaskElasticNetCV(alphas=3, cv=3, l1_ratio=0.3, **FEW),
}


def _labels(rng: Rng, kind: str, X: np.ndarray) -> np.ndarray:
    n = len(X)
    scores = X @ rng.standard_normal(X.shape[1])
    noisy = scores / (np.abs(scores).max() or 1.0) + rng.standard_normal(n) * _some(rng, [0.0, 0.3, 3.0])
    if kind == "classes":
        count = int(_some(rng, [1, 2, 2, 3, 4]))
        numbers = np.argsort(np.argsort(noisy)) * count // n if rng.random() < 0.5 else rng.integers(0, count, n)
        return numbers if rng.random() < 0.5 else np.array(["a", "b", "ü", "d"])[numbers]
    if kind == "counts":
        return rng.poisson(np.exp(np.clip(noisy, -3, 3))) + _some(rng, [0.0, 0.5])
    scale = power(rng, -8, 8) if rng.random() < 0.4 else 1.0
    return scale * (noisy if kind == "numbers" else np.column_stack([noisy, rng.standard_normal(n)]))


KINDS = {"classes": CLASSIFIERS, "numbers": REGRESSORS, "counts": COUNTS, "outputs": OUTPUTS}


def _certificates(model: Any) -> list[Any]:
    return list(np.ravel(model.certificate_))


def _bits(model: Any) -> bytes:
    return np.asarray(model.coef_).tobytes() + np.asarray(model.intercept_).tobytes()


def checked(model: Any, again: Any, X: Any, y: Any, weights: Any, warned: bool) -> str:
    """Check a fitted model; return "fitted", or "fitted, warned" if its certificate misses the tolerance."""
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        raise Defect("the coefficients are not finite")
    if model.get_params().get("time_limit") is None and _bits(model) != _bits(again):
        raise Defect("two equal fits have different bits")
    proofs = _certificates(model)
    if any(np.isnan([proof.primal, proof.dual]).any() or proof.primal == -np.inf for proof in proofs):
        raise Defect(f"the certificates are {proofs}")
    missed = any(proof.relative_gap > model.tol for proof in proofs)
    if missed != warned and not type(model).__name__.endswith("CV"):
        raise Defect(f"a warning: {warned}, a certificate that misses tol: {missed}")
    seen = model.predict(X)
    if len(seen) != X.shape[0] or (not is_classifier(model) and not np.isfinite(seen).all()):
        raise Defect("predictions are not finite")
    one, other = dn.Certificate.of_parts(tuple(proofs)), dn.certify(model, X, y, sample_weight=weights)
    size = abs(one.primal) + abs(one.dual)
    rounded = (
        model.coef_.dtype == np.float32
    )  # after the fit, as scikit-learn does; the certificate is of what was found
    if np.isfinite(size) and not rounded and abs(one.primal - other.primal) > 1e-6 * size + other.bound + one.bound:
        raise Defect(f"certify says {other}, the fit {one}")
    return "fitted, warned" if missed else "fitted"


def _fit(model: Any, X: Any, y: Any, weights: Any) -> tuple[Any, bool, float]:
    """Return the fitted model, whether it warned that it did not converge, and the seconds of processor time."""
    # By processor time, which other processes on a busy machine do not change.
    with mock.patch("time.perf_counter", time.process_time):
        began = time.perf_counter()
        return *_fitted(model, X, y, weights), time.perf_counter() - began


def _fitted(model: Any, X: Any, y: Any, weights: Any) -> tuple[Any, bool]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("error")
        warnings.simplefilter("always", ConvergenceWarning)
        # What scikit-learn says of folds of one row, and of classes with fewer rows than folds.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        warnings.filterwarnings("ignore", "The least populated class in y has only")
        fitted = model.fit(X, y) if weights is None else model.fit(X, y, sample_weight=weights)
    return fitted, any(issubclass(each.category, ConvergenceWarning) for each in seen)


def case(seed: int, folder: Path) -> Counter[str]:  # noqa: ARG001
    """Try one estimator."""
    rng = np.random.default_rng([seed, 40])
    kind = _some(rng, list(KINDS))
    name = _some(rng, list(KINDS[kind]))
    model = KINDS[kind][name](rng)
    if "fit_intercept" in model.get_params():
        model.set_params(fit_intercept=bool(rng.integers(2)))
    if "time_limit" in model.get_params() and rng.random() < 0.3:
        model.set_params(time_limit=_some(rng, [0.0, 0.05, 0.3]))
    if "solver" in model.get_params() and rng.random() < 0.2:
        # Rounds in NumPy take up to 0.1 s an epoch on data of very different scales.
        model.set_params(solver=_some(rng, ["sdna", "sdca", "newton", "ihs", "interior"]), max_iter=20)
    n, d = int(_some(rng, [1, 2, 5, 20, 20, 60, 200])), int(_some(rng, [1, 2, 8, 8, 30, 100, 300]))
    storage = _some(rng, [name for name in STORAGES if "chunked" not in name])
    X = rows(rng, n, d, gentle=kind == "counts").astype(np.float32 if "float32" in storage else np.float64)
    if rng.random() < 0.15:  # features that are nearly constant
        X[:, rng.random(d) < 0.5] *= X.dtype.type(power(rng, -9, -3))
        X += X.dtype.type(power(rng, -1, 3))
    odd = np.random.default_rng([seed, 41])
    if odd.random() < 0.15:
        X[:, odd.random(d) < _some(odd, [0.3, 1.0])] = _some(odd, [1.0, 0.1, 1e4])
    y = _labels(rng, kind, X)
    if kind == "numbers" and odd.random() < 0.15:  # without errors
        y = X @ odd.standard_normal(d) + 1.0
    weights = rng.random(n) * (rng.random(n) < 0.8) if rng.random() < 0.3 else None
    stored = STORAGES[storage](X)
    title = f"{model!r}, {n}x{d} {storage}, {kind}, weights {weights is not None}"
    try:
        fitted, warned, seconds = _fit(model, stored, y, weights)
        again, _, seconds_again = _fit(clone(model), stored, y, weights)
        limit, took = model.get_params().get("time_limit"), [seconds, seconds_again]
        while limit is not None and min(took) > LATE * limit + MORE and len(took) < TRIES:
            took.append(_fit(clone(model), stored, y, weights)[-1])
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and not any(words in str(error) for words in REFUSALS):
            raise Defect(f"{title}: {error!r}") from error
        return Counter([f"refused by {type(error).__name__}"])
    except Exception as error:
        raise Defect(f"{title}: {type(error).__name__}: {error}") from error
    try:
        if limit is not None and min(took) > LATE * limit + MORE:
            raise Defect(f"{min(took):.2f} s for time_limit {limit:g}")
        return Counter([checked(fitted, again, stored, y, weights, warned)])
    except Exception as error:
        raise Defect(f"{title}: {type(error).__name__}: {error}") from error
