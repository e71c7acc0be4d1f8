"""Every estimator that can be saved, with data it can be fitted on and labels of several kinds: one table for files and words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import dualnewton as dn
from dualnewton import losses, regularizers

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 4)) + 0.2
SCORES = X @ RNG.normal(size=(4, 3)) + RNG.normal(size=(60, 3))
NUMBERS = SCORES[:, 0]
TWO, THREE = (NUMBERS > 0.0).astype(int), SCORES.argmax(axis=1)
WEIGHTS = RNG.uniform(0.5, 2.0, 60)

LABELS = {
    "ints": lambda codes: codes.astype(np.int32) - 1,
    "strings": lambda codes: np.array(["no", "perhaps", "yes"])[codes],
    "objects": lambda codes: np.array(["no", "perhaps", "yes"], dtype=object)[codes],
    "floats": lambda codes: codes + 0.5 * (codes == 2) * 0.0 - 1.0,
    "booleans": lambda codes: codes > 0,
}


@dataclass(frozen=True, eq=False)
class Saved:
    """A fitted estimator, its data, and the keyword arguments of ``fit``."""

    model: Any
    y: np.ndarray
    weights: np.ndarray | None = None

    def fitted(self, rows=X):
        from sklearn.base import clone

        return clone(self.model).fit(rows, self.y, **({} if self.weights is None else {"sample_weight": self.weights}))


CASES = {
    **{
        f"logistic, {kind}": Saved(dn.LogisticRegression(class_weight="balanced"), labels(TWO), WEIGHTS)
        for kind, labels in LABELS.items()
    },
    **{
        f"softmax, {kind}": Saved(dn.LogisticRegression(C=0.5), LABELS[kind](THREE))
        for kind in ("ints", "strings", "objects")
    },
    "softmax, elastic net": Saved(dn.LogisticRegression(C=0.5, l1_ratio=0.5), THREE),
    "one against the rest": Saved(
        dn.LogisticRegression(multi_class="ovr", class_weight={0: 2.0, 1: 1.0, 2: 3.0}), THREE
    ),
    "logistic, l1": Saved(dn.LogisticRegression(C=0.5, l1_ratio=1.0, fit_intercept=False), TWO),
    "logistic, unpenalised": Saved(dn.LogisticRegression(C=np.inf), TWO),
    "logistic, cross-validated": Saved(dn.LogisticRegressionCV(Cs=3, cv=3), LABELS["strings"](THREE)),
    "svc": Saved(dn.LinearSVC(class_weight="balanced"), LABELS["strings"](THREE), WEIGHTS),
    "svc, hinge": Saved(dn.LinearSVC(loss="hinge", tol=1e-6), TWO),
    "svc, l1": Saved(dn.LinearSVC(penalty="l1"), TWO),
    "svr": Saved(dn.LinearSVR(epsilon=0.1, tol=1e-6), NUMBERS),
    "svr, squared": Saved(dn.LinearSVR(epsilon=0.1, loss="squared_epsilon_insensitive", fit_intercept=False), NUMBERS),
    "ridge": Saved(dn.Ridge(2.0), NUMBERS, WEIGHTS),
    "ridge, positive": Saved(dn.Ridge(2.0, positive=True), NUMBERS),
    "ridge, several": Saved(dn.Ridge([1.0, 0.0, 2.0]), SCORES),
    "ridge, cross-validated": Saved(dn.RidgeCV([0.1, 1.0]), NUMBERS),
    "ridge, cross-validated for each": Saved(dn.RidgeCV([0.1, 10.0], alpha_per_target=True), SCORES),
    "ridge classifier": Saved(dn.RidgeClassifier(class_weight="balanced"), LABELS["strings"](THREE), WEIGHTS),
    "ridge classifier, two": Saved(dn.RidgeClassifier(), TWO),
    "elastic net": Saved(dn.ElasticNet(0.1), NUMBERS, WEIGHTS),
    "elastic net, several": Saved(dn.ElasticNet(0.1, positive=True), SCORES),
    "elastic net, unpenalised": Saved(dn.ElasticNet(0.0), NUMBERS),
    "elastic net, cross-validated": Saved(dn.ElasticNetCV(l1_ratio=[0.5, 1.0], alphas=5, cv=3), NUMBERS),
    "lasso": Saved(dn.Lasso(0.05), NUMBERS),
    "multi-task elastic net": Saved(dn.MultiTaskElasticNet(0.1), SCORES, WEIGHTS),
    "multi-task lasso": Saved(dn.MultiTaskLasso(0.05), SCORES),
    "multi-task, unpenalised": Saved(dn.MultiTaskElasticNet(0.0), SCORES),
    "multi-task, cross-validated": Saved(dn.MultiTaskElasticNetCV(l1_ratio=[0.5, 1.0], alphas=4, cv=3), SCORES),
    "multi-task lasso, cross-validated": Saved(dn.MultiTaskLassoCV(alphas=4, cv=3), SCORES),
    "least squares": Saved(dn.LinearRegression(), NUMBERS, WEIGHTS),
    "least squares, several": Saved(dn.LinearRegression(fit_intercept=False), SCORES),
    "least squares, positive": Saved(dn.LinearRegression(positive=True), NUMBERS),
    "ridge classifier, cross-validated": Saved(
        dn.RidgeClassifierCV(class_weight="balanced"), LABELS["strings"](THREE), WEIGHTS
    ),
    "ridge classifier, folds": Saved(dn.RidgeClassifierCV(cv=3), TWO),
    "huber": Saved(dn.HuberRegressor(), NUMBERS, WEIGHTS),
    "quantile": Saved(dn.QuantileRegressor(quantile=0.3, alpha=0.05), NUMBERS, WEIGHTS),
    "quantile, l2": Saved(dn.QuantileRegressor(alpha=0.05, penalty="l2"), NUMBERS),
    "quantile, unpenalised": Saved(dn.QuantileRegressor(quantile=0.8, alpha=0.0), NUMBERS),
    "erm": Saved(dn.ERMClassifier(losses.SmoothHinge(0.5), regularizers.ElasticNet(0.2), 0.05), THREE, WEIGHTS),
    "erm, by name": Saved(dn.ERMClassifier("logistic", class_weight="balanced"), LABELS["strings"](TWO), WEIGHTS),
    "erm, box": Saved(dn.ERMRegressor("huber", regularizers.Box(-0.5, np.array([0.1, 0.2, 0.3, np.inf]))), NUMBERS),
    "erm, groups": Saved(dn.ERMRegressor("squared", regularizers.GroupElasticNet([0, 0, 1, 1], 0.1), 0.1), SCORES),
}
