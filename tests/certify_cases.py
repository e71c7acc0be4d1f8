"""The scikit-learn models that can be certified, each listed once, with the objective that scikit-learn documents for it.

The objectives are written from scratch, in NumPy, so that they share nothing with the translations they are held against.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp
import sklearn
from sklearn import linear_model as lm
from sklearn.base import clone
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils.class_weight import compute_class_weight

from dualnewton.interop.certify import certify

N, D = 60, 7
SINCE_1_8 = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 8)
"""Since 1.8 l1_ratio alone says what the penalty is; before, ``penalty`` had to name the elastic net."""

ELASTIC = {} if SINCE_1_8 else {"penalty": "elasticnet"}
L1 = {} if SINCE_1_8 else {"penalty": "l1"}


def make_data():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((N, D)) * rng.uniform(0.3, 1.5, (N, 1)) * (rng.random((N, D)) < 0.6)
    real = X @ rng.standard_normal(D) + 1.3 + rng.standard_normal(N)
    targets = {
        "real": real,
        "outputs": np.column_stack([real, rng.standard_normal(N)]),
        "two": np.where(real > 0.6, "yes", "no"),
        "three": np.digitize(real, [-0.7, 2.0]) + 5,
    }
    return X, targets, rng.uniform(0.2, 2.0, N)


X, TARGETS, WEIGHTS = make_data()


# The objectives, as scikit-learn documents them ----------------------------------------------------------------------


def scores(model, X):
    """One column of x_iᵀw + b per fit."""
    return X @ np.atleast_2d(model.coef_).T + np.ravel(model.intercept_)


def signs(y):
    """One column of ±1 per fit: the second of two classes, or each of several, against the rest."""
    classes = np.unique(y)
    return np.column_stack([np.where(y == k, 1.0, -1.0) for k in (classes[1:] if len(classes) == 2 else classes)])


def ridge(model, X, y, c):
    residuals = scores(model, X) - y.reshape(len(y), -1)
    return np.sum(c[:, None] * residuals**2) + np.sum(model.alpha * np.sum(np.atleast_2d(model.coef_) ** 2, axis=1))


def ridge_classifier(model, X, y, c):
    if model.class_weight == "balanced":
        c = c * np.array([len(y) / (len(set(y)) * np.sum(y == label)) for label in y])
    return ridge(model, X, signs(y), c)


def elastic_net(model, X, y, c):
    residuals = scores(model, X) - y.reshape(len(y), -1)
    w = np.ravel(model.coef_)
    penalty = model.l1_ratio * np.abs(w).sum() + 0.5 * (1 - model.l1_ratio) * w @ w
    return 0.5 * np.sum(np.average(residuals**2, axis=0, weights=c)) + model.alpha * penalty


def class_weights(model, y, c):
    """Balanced class weights since 1.7: the total weight over that of the class, times the number of classes."""
    classes = np.unique(y)
    if model.class_weight is None:
        return np.ones(len(classes))
    mass = c if "sample_weight" in inspect.signature(compute_class_weight).parameters else np.ones(len(y))
    return np.array([mass.sum() / (len(classes) * mass[y == label].sum()) for label in classes])


def penalised_intercept(model):
    """½(b/s)² of liblinear."""
    return 0.5 * np.sum((np.ravel(model.intercept_) / model.intercept_scaling) ** 2)


def logistic(model, X, y, c):
    c = c * class_weights(model, y, c)[np.searchsorted(np.unique(y), y)]
    w, r = np.ravel(model.coef_), model.l1_ratio or 0.0
    value = model.C * c @ np.logaddexp(0.0, -signs(y) * scores(model, X))[:, 0]
    value += 0.5 * (1 - r) * w @ w + r * np.abs(w).sum()
    if model.solver != "liblinear":
        return value
    of_l1 = np.sum(np.abs(model.intercept_)) / model.intercept_scaling
    return value + (of_l1 if r == 1.0 else penalised_intercept(model))


def softmax(model, X, y, c):
    codes = np.searchsorted(np.unique(y), y)
    c, z, r = c * class_weights(model, y, c)[codes], scores(model, X), model.l1_ratio or 0.0
    penalty = 0.5 * (1 - r) * np.sum(model.coef_**2) + r * np.sum(np.abs(model.coef_))
    return model.C * c @ (np.logaddexp.reduce(z, axis=1) - z[np.arange(len(y)), codes]) + penalty


def huber(model, X, y, c):
    t = np.abs(scores(model, X)[:, 0] - y) / model.scale_
    losses = np.where(t <= model.epsilon, t**2, 2.0 * model.epsilon * t - model.epsilon**2)
    return model.scale_ * c @ (1.0 + losses) + model.alpha * model.coef_ @ model.coef_


def quantile(model, X, y, c):
    residuals = y - scores(model, X)[:, 0]
    pinball = np.maximum(model.quantile * residuals, (model.quantile - 1.0) * residuals)
    return np.average(pinball, weights=c) + model.alpha * np.abs(model.coef_).sum()


def svc(model, X, y, c):
    by_class, labels = class_weights(model, y, c), signs(y)
    # liblinear: with two classes each has its weight; with more, the class has its weight and the rest has 1.
    rows = np.where(labels > 0, by_class[-labels.shape[1] :], by_class[0] if labels.shape[1] == 1 else 1.0)
    hinge = np.maximum(0.0, 1.0 - labels * scores(model, X)) ** power(model)
    value = model.C * np.sum(c[:, None] * rows * hinge)
    if model.penalty == "l1":  # then liblinear penalises its intercept by |b/s|
        return value + np.sum(np.abs(model.coef_)) + np.sum(np.abs(model.intercept_ / model.intercept_scaling))
    return value + 0.5 * np.sum(model.coef_**2) + penalised_intercept(model)


def power(model):
    return 2 if model.loss.startswith("squared") else 1


def svr(model, X, y, c):
    excess = np.maximum(0.0, np.abs(scores(model, X)[:, 0] - y) - model.epsilon)
    return model.C * c @ excess ** power(model) + 0.5 * model.coef_ @ model.coef_ + penalised_intercept(model)


# The table -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model made to be fitted as tightly as it can, what it minimises, and the factor between that and our P."""

    model: Any
    target: str
    objective: Callable[..., float]
    factor: Callable[..., float]
    sparse: bool = False
    weights: bool = False
    tolerance: float = 1e-10
    """What scikit-learn's tightest fit is proved to reach."""

    sharpness: float = 1e-9
    """By how much two certificates of one model may differ: where the dual point is searched for, it need not be the best."""

    def __str__(self):
        settings = {k: v for k, v in self.model.get_params().items() if k in SHOWN and v not in (None, "auto")}
        words = [type(self.model).__name__, self.target, *(f"{k}={v}" for k, v in settings.items())]
        return "-".join(words + ["sparse"] * self.sparse + ["weights"] * self.weights)

    @property
    def X(self):
        return sp.csr_array(X) if self.sparse else X

    @property
    def y(self):
        return TARGETS[self.target]

    @property
    def c(self):
        return WEIGHTS if self.weights else None

    def fit(self):
        return clone(self.model).fit(self.X, self.y, sample_weight=self.c)

    def certify(self, model):
        return certify(model, self.X, self.y, sample_weight=self.c)

    def objective_of(self, model):
        """scikit-learn's objective in our units."""
        return self.objective(model, X, self.y, np.ones(N) if self.c is None else self.c) / self.factor(model)


SHOWN = ("solver", "fit_intercept", "class_weight", "positive", "dual", "l1_ratio", "loss", "penalty", "epsilon")

TIGHT = {"tol": 1e-13, "max_iter": 100_000}


def ridges(**kwargs):
    return Case(lm.Ridge(**{"alpha": 0.7, **TIGHT, **kwargs}), "real", ridge, lambda _: 2 * N)


def logistics(**kwargs):
    model = lm.LogisticRegression(**{"C": 2.0, "intercept_scaling": 3.0, "random_state": 0, **TIGHT, **kwargs})
    return Case(model, "two", logistic, lambda m: m.C * N)


def svcs(target, **kwargs):
    model = LinearSVC(**{"C": 0.5, "intercept_scaling": 2.0, "random_state": 0, **TIGHT, "tol": 1e-11, **kwargs})
    return Case(model, target, svc, lambda m: power(m) * m.C * N)


def svrs(**kwargs):
    settings = {"epsilon": 0.2, "loss": "squared_epsilon_insensitive", **TIGHT, "tol": 1e-11, **kwargs}
    model = LinearSVR(C=0.5, intercept_scaling=2.0, random_state=0, **settings)
    return Case(model, "real", svr, lambda m: power(m) * m.C * N)


def nets(**kwargs):
    return Case(lm.ElasticNet(**{"alpha": 0.1, **TIGHT, **kwargs}), "real", elastic_net, lambda _: 1.0)


def lassos(**kwargs):
    return Case(lm.Lasso(**{"alpha": 0.1, **TIGHT, **kwargs}), "real", elastic_net, lambda _: 1.0)


def hubers(**kwargs):
    model = lm.HuberRegressor(**{"tol": 1e-10, "max_iter": 10_000, **kwargs})
    return Case(model, "real", huber, lambda _: 2 * N, tolerance=1e-7, sharpness=0.12)  # L-BFGS stops early


def quantiles(**kwargs):
    return Case(lm.QuantileRegressor(**kwargs), "real", quantile, lambda _: 1.0, sharpness=0.12)


def softmaxes(**kwargs):
    return replace(logistics(**kwargs), target="three", objective=softmax)


def ridge_classifiers(target, **kwargs):
    return Case(lm.RidgeClassifier(alpha=0.7, **TIGHT, **kwargs), target, ridge_classifier, lambda _: 2 * N)


BASES = [
    *(ridges(solver=solver, random_state=0) for solver in ("auto", "svd", "cholesky", "lsqr", "sparse_cg")),
    *(ridges(solver=solver, random_state=0) for solver in ("sag", "saga")),
    ridges(positive=True),
    replace(ridges(alpha=np.array([0.7, 3.0])), target="outputs"),
    ridge_classifiers("two"),
    ridge_classifiers("three"),
    *(logistics(solver=s) for s in ("lbfgs", "newton-cg", "newton-cholesky", "sag", "saga", "liblinear")),
    logistics(solver="saga", l1_ratio=0.4, **ELASTIC),
    *(svcs(target, dual=dual) for target in ("two", "three") for dual in (True, False)),
    *(svrs(dual=dual) for dual in (True, False)),
    nets(l1_ratio=0.5),
    nets(l1_ratio=0.95),
    nets(l1_ratio=0.5, positive=True),
    replace(nets(), target="outputs"),
    nets(l1_ratio=1.0),
    lassos(),
    lassos(positive=True),
    replace(lassos(), target="outputs"),
    hubers(alpha=0.1),
    hubers(alpha=0.0, epsilon=1.1),
    *(quantiles(alpha=0.02, quantile=q) for q in (0.2, 0.5)),
    *(softmaxes(solver=s) for s in ("lbfgs", "newton-cg", "newton-cholesky")),
    logistics(solver="saga", l1_ratio=1.0, **L1),
    # liblinear creeps on ‖w‖₁, where the gap is no square of the error in w.
    replace(logistics(solver="liblinear", l1_ratio=1.0, tol=1e-9, **L1), tolerance=1e-7),
    *(replace(svcs(y, penalty="l1", dual=False, tol=1e-9), tolerance=1e-7) for y in ("two", "three")),
    *(replace(svcs(target, loss="hinge"), sharpness=0.12) for target in ("two", "three")),
    *(replace(svrs(loss="epsilon_insensitive", epsilon=e), sharpness=0.12) for e in (0.0, 0.2)),
]


UNWEIGHTED = [softmaxes(solver="saga", l1_ratio=0.4, **ELASTIC), softmaxes(solver="saga", l1_ratio=1.0, **L1)]
"""Its steps are as long as if every weight were one: with several classes and larger weights it runs in circles."""


def variants(base):
    """The base with and without intercept and class weights, on dense and sparse data, with and without weights."""
    model = base.model
    by_class = (None, "balanced") if hasattr(model, "class_weight") else (None,)
    for fit_intercept, class_weight, sparse, weights in product((True, False), by_class, (False, True), (False, True)):
        # What scikit-learn itself refuses.
        dense_only = getattr(model, "solver", None) in (("svd", "cholesky", "saga") if fit_intercept else ("svd",))
        if sparse and dense_only and isinstance(model, lm.Ridge):
            continue
        # Where a dual point is searched for, half of the combinations will do.
        if base.sharpness > 1e-9 and sparse != weights:
            continue
        settings = {"fit_intercept": fit_intercept} | ({"class_weight": class_weight} if class_weight else {})
        yield replace(base, model=clone(model).set_params(**settings), sparse=sparse, weights=weights)


CASES = [case for base in BASES for case in variants(base)]
CASES += [case for base in UNWEIGHTED for case in variants(base) if not (case.weights or case.model.class_weight)]
EVERY_MODEL = [replace(base, weights=True) for base in BASES]
