"""The estimators and functions that are compared by default (:mod:`benchmarks.defaults`), with the targets that they take."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sklearn.linear_model
import sklearn.svm

import dualnewton as dn


@dataclass(frozen=True)
class Case:
    """An estimator or function of both libraries, with the target that it takes.

    Attributes
    ----------
    name : str
        The public name.
    task : str
        "regression", "two" (classes), "many" (three or more classes), "outputs" or "counts".
    remark : str
        What distinguishes it from other cases of the same name.
    parameters, theirs : dict
        Parameters other than the defaults, of both libraries and of scikit-learn alone.
    """

    name: str
    task: str
    remark: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name and remark."""
        return f"{self.name}, {self.remark}" if self.remark else self.name

    @property
    def is_path(self) -> bool:
        """Whether it is a function that computes models along a path of penalties."""
        return self.name.endswith("_path")

    def fitter(self, ours: bool, **further: Any) -> Callable[[np.ndarray, np.ndarray], Any]:
        """Return a function of X and y that fits a new estimator and returns it, or what the path function returns."""
        made = getattr(dn, self.name) if ours else of_sklearn(self.name)
        parameters = self.parameters | ({} if ours else self.theirs) | further
        if self.is_path:
            return lambda X, y: made(X, y, **parameters)
        return lambda X, y: made(**parameters).fit(X, y)


def of_sklearn(name: str) -> Any:
    """Return scikit-learn's object of a name."""
    return getattr(sklearn.linear_model, name, None) or getattr(sklearn.svm, name)


L1 = {"l1_ratio": 1.0}
CASES = (
    Case("LinearRegression", "regression"),
    Case("Ridge", "regression"),
    Case("RidgeCV", "regression"),
    Case("Lasso", "regression"),
    Case("LassoCV", "regression"),
    Case("ElasticNet", "regression"),
    Case("ElasticNetCV", "regression"),
    Case("lasso_path", "regression"),
    Case("enet_path", "regression"),
    Case("HuberRegressor", "regression"),
    Case("LinearSVR", "regression"),
    Case("QuantileRegressor", "regression"),
    Case("PoissonRegressor", "counts"),
    Case("GammaRegressor", "counts"),
    Case("TweedieRegressor", "counts", "power 1.5", {"power": 1.5}),
    Case("Ridge", "outputs", "several outputs"),
    Case("MultiTaskLasso", "outputs"),
    Case("MultiTaskElasticNet", "outputs"),
    Case("MultiTaskLassoCV", "outputs"),
    Case("MultiTaskElasticNetCV", "outputs"),
    Case("LogisticRegression", "two"),
    Case("LogisticRegression", "many", "3 classes"),
    Case("LogisticRegression", "two", "l1", L1, {"solver": "liblinear"}),  # scikit-learn's default solver has no l1
    Case("LogisticRegressionCV", "two"),
    Case("LinearSVC", "two"),
    Case("LinearSVC", "many", "3 classes"),
    Case("LinearSVC", "two", "hinge", {"loss": "hinge"}),
    Case("LinearSVC", "many", "hinge, 3 classes", {"loss": "hinge"}),
    Case("RidgeClassifier", "two"),
    Case("RidgeClassifier", "many", "3 classes"),
    Case("RidgeClassifierCV", "two"),
)
