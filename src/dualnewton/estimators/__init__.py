"""Estimators with the names and parameters of scikit-learn, and a certificate with every fit.

Each estimator, and scikit-learn with it, is imported at its first use: ``import dualnewton`` imports neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dualnewton.estimators.elastic_net import ElasticNet, Lasso
    from dualnewton.estimators.erm import ERMClassifier, ERMRegressor
    from dualnewton.estimators.glm import GammaRegressor, PoissonRegressor, TweedieRegressor
    from dualnewton.estimators.least_squares import LinearRegression
    from dualnewton.estimators.logistic import LogisticRegression
    from dualnewton.estimators.model_selection.elastic_net import ElasticNetCV, LassoCV
    from dualnewton.estimators.model_selection.glm import GammaRegressorCV, PoissonRegressorCV, TweedieRegressorCV
    from dualnewton.estimators.model_selection.logistic import LogisticRegressionCV
    from dualnewton.estimators.model_selection.multi_task import MultiTaskElasticNetCV, MultiTaskLassoCV
    from dualnewton.estimators.model_selection.ridge import RidgeCV
    from dualnewton.estimators.model_selection.ridge_classifier import RidgeClassifierCV
    from dualnewton.estimators.multi_task import MultiTaskElasticNet, MultiTaskLasso
    from dualnewton.estimators.paths import enet_path, lasso_path
    from dualnewton.estimators.quantile import QuantileRegressor
    from dualnewton.estimators.ridge import Ridge, RidgeClassifier
    from dualnewton.estimators.robust import HuberRegressor
    from dualnewton.estimators.svm import LinearSVC, LinearSVR

_NAMES = {
    "elastic_net": ("ElasticNet", "Lasso"),
    "erm": ("ERMClassifier", "ERMRegressor"),
    "glm": ("GammaRegressor", "PoissonRegressor", "TweedieRegressor"),
    "least_squares": ("LinearRegression",),
    "logistic": ("LogisticRegression",),
    "model_selection.elastic_net": ("ElasticNetCV", "LassoCV"),
    "model_selection.glm": ("GammaRegressorCV", "PoissonRegressorCV", "TweedieRegressorCV"),
    "model_selection.logistic": ("LogisticRegressionCV",),
    "model_selection.multi_task": ("MultiTaskElasticNetCV", "MultiTaskLassoCV"),
    "model_selection.ridge": ("RidgeCV",),
    "model_selection.ridge_classifier": ("RidgeClassifierCV",),
    "multi_task": ("MultiTaskElasticNet", "MultiTaskLasso"),
    "paths": ("enet_path", "lasso_path"),
    "quantile": ("QuantileRegressor",),
    "ridge": ("Ridge", "RidgeClassifier"),
    "robust": ("HuberRegressor",),
    "svm": ("LinearSVC", "LinearSVR"),
}

MODULES = dict(sorted((name, module) for module, names in _NAMES.items() for name in names))
"""The module that defines each estimator or function."""

__all__ = [
    "ERMClassifier",
    "ERMRegressor",
    "ElasticNet",
    "ElasticNetCV",
    "GammaRegressor",
    "GammaRegressorCV",
    "HuberRegressor",
    "Lasso",
    "LassoCV",
    "LinearRegression",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MultiTaskElasticNet",
    "MultiTaskElasticNetCV",
    "MultiTaskLasso",
    "MultiTaskLassoCV",
    "PoissonRegressor",
    "PoissonRegressorCV",
    "QuantileRegressor",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "RidgeClassifierCV",
    "TweedieRegressor",
    "TweedieRegressorCV",
    "enet_path",
    "lasso_path",
]


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *MODULES})
