"""Every estimator of this family, once, with data it can be fitted on: what holds for one is tested for all."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers


@dataclass(frozen=True, eq=False)
class Case:
    """An estimator and what kind of targets it takes: classes (2 or more) or numbers."""

    name: str
    model: Any
    n_classes: int = 0

    def data(self, n=60, d=6, seed=0):
        return data_for(self.n_classes, n, d, seed)


def data_for(n_classes, n=60, d=6, seed=0):
    """Rows of unequal norm, and noisy labels (class numbers) or targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * rng.uniform(0.5, 1.5, (n, 1)) + 0.3
    scores = X @ rng.standard_normal((d, max(n_classes, 1))) + 1.5 * rng.standard_normal((n, max(n_classes, 1)))
    if n_classes == 0:
        return X, scores[:, 0] + 2.0
    y = scores.argmax(axis=1) if n_classes > 2 else (scores[:, 0] > 0.5).astype(int)
    y[:n_classes] = np.arange(n_classes)  # every class has an example
    return X, y


CASES = [
    Case("logistic", dn.LogisticRegression(), 2),
    Case("softmax", dn.LogisticRegression(C=0.7), 3),
    Case("logistic, one against the rest", dn.LogisticRegression(multi_class="ovr"), 3),
    Case("logistic, elastic net", dn.LogisticRegression(C=0.5, l1_ratio=0.5), 2),
    Case("logistic, l1", dn.LogisticRegression(C=0.5, l1_ratio=1.0), 2),
    Case("logistic, unpenalised", dn.LogisticRegression(C=np.inf), 2),
    Case("softmax, unpenalised", dn.LogisticRegression(C=np.inf), 3),
    Case("ridge", dn.Ridge(alpha=2.0)),
    Case("ridge, positive", dn.Ridge(alpha=2.0, positive=True)),
    Case("ridge, unpenalised", dn.Ridge(alpha=0.0)),
    Case("ridge classifier", dn.RidgeClassifier(), 2),
    Case("ridge classifier, three", dn.RidgeClassifier(), 3),
    Case("erm, smooth hinge", dn.ERMClassifier(losses.SmoothHinge(0.5), regularizers.ElasticNet(0.2), 0.05), 2),
    Case("erm, squared hinge", dn.ERMClassifier("squared_hinge", lam=0.02), 3),
    Case("softmax, elastic net", dn.LogisticRegression(C=0.5, l1_ratio=0.5), 3),
    Case("softmax, l1", dn.LogisticRegression(C=0.5, l1_ratio=1.0), 3),
    Case("erm, huber", dn.ERMRegressor("huber", regularizers.Box(-0.5, 0.8), 0.05)),
    Case("quantile", dn.QuantileRegressor(quantile=0.3, alpha=0.05)),
    Case("quantile, unpenalised", dn.QuantileRegressor(quantile=0.83, alpha=0.0)),
]
"""What they are called in the tests, and they."""

IDS = [case.name for case in CASES]


def relative(found, expected):
    """The largest difference, relative to the largest entry."""
    found, expected = np.asarray(found), np.asarray(expected)
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-300)


def certificates(model):
    """The certificates of a fitted model as a list."""
    return model.certificate_ if isinstance(model.certificate_, list) else [model.certificate_]


def outputs(model, X):
    """What a fitted model says of X: scores of classes, or predictions."""
    return model.decision_function(X) if hasattr(model, "decision_function") else model.predict(X)


def as_csr(X):
    """The same matrix, stored sparsely."""
    return sp.csr_array(X)
