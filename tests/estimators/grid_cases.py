"""The estimators with cross-validation, once, with data for them, and the problem that each of their models solves."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import dualnewton as dn
from dualnewton import losses, regularizers
from estimators.cases import data_for

ALPHAS = (0.1, 1.0, 10.0)


@dataclass(frozen=True, eq=False)
class GridCase:
    """An estimator, and what kind of targets it takes: classes (2 or more) or numbers."""

    name: str
    model: Any
    n_classes: int = 0

    def data(self, n=60, d=6, seed=0):
        return data_for(self.n_classes, n, d, seed)


CASES = [
    GridCase("logistic", dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=3), 2),
    GridCase("softmax", dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=3), 3),
    GridCase("one against the rest", dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=3, multi_class="ovr"), 3),
    GridCase("logistic, shares", dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=3, l1_ratios=[0.0, 0.5, 1.0]), 2),
    GridCase("softmax, shares", dn.LogisticRegressionCV(Cs=[0.1, 10.0], cv=3, l1_ratios=[0.0, 0.5, 1.0]), 3),
    GridCase("ridge, folds", dn.RidgeCV(ALPHAS, cv=3)),
    GridCase("ridge, one left out", dn.RidgeCV(ALPHAS)),
    GridCase("ridge, in passes", dn.RidgeCV(ALPHAS, cv=3, solver="newton")),
    GridCase("elastic net", dn.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=4, cv=3)),
    GridCase("elastic net, in passes", dn.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=4, cv=3, solver="newton")),
]
IDS = [case.name for case in CASES]


def fold_models(model, X, y, train, fold):
    """Yield the certificate of each model of a fold, and the problem on the rows of the fold alone that it solves."""
    certificates = model.certificates_
    if isinstance(model, dn.LogisticRegressionCV):
        for (r, ratio), (k, C) in _pairs(_shares(model), model.Cs_):
            for certificate, problem in zip(
                certificates[r, k, fold], _logistic(model, X[train], y[train], C, ratio), strict=True
            ):
                yield certificate, problem
    elif isinstance(model, dn.RidgeCV):
        for k, alpha in enumerate(model.alphas):
            problem = dn.Problem(
                X[train], y[train], losses.Squared(), lam=alpha / len(train), fit_intercept=model.fit_intercept
            )
            yield certificates[k, fold, 0], problem
    else:
        for (r, ratio), (k, alpha) in _pairs(model.l1_ratio, model.alphas_[0]):
            alpha = model.alphas_[r][k]
            lam, regularizer = regularizers.mixed(alpha, ratio)
            yield (
                certificates[r, k, fold],
                dn.Problem(
                    X[train],
                    y[train],
                    losses.Squared(),
                    regularizer=regularizer,
                    lam=lam,
                    fit_intercept=model.fit_intercept,
                ),
            )


def _logistic(model, X, y, C, ratio):
    lam, regularizer = regularizers.mixed(1.0 / (C * len(y)), ratio)
    K = len(model.classes_)
    if K > 2 and model.multi_class != "ovr":
        return [dn.MultinomialProblem(X, y, lam=lam, n_classes=K, fit_intercept=True, regularizer=regularizer)]
    return [
        dn.Problem(
            X, np.where(y == k, 1.0, -1.0), losses.Logistic(), regularizer=regularizer, lam=lam, fit_intercept=True
        )
        for k in ([1] if K == 2 else range(K))
    ]


def _shares(model):
    return [0.0] if model.l1_ratios_[0] is None else model.l1_ratios_


def _pairs(first, second):
    return [(a, b) for a in enumerate(first) for b in enumerate(second)]
