"""Fit regularised linear models fast, and prove how good the fit is."""

import importlib
from typing import TYPE_CHECKING, Any

from dualnewton import estimators, losses, methods, regularizers, samplings, theory
from dualnewton.errors import DualnewtonError
from dualnewton.interop.certify import certify
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.multinomial import MultinomialProblem
from dualnewton.objective.problem import Problem
from dualnewton.planning.plan import Plan
from dualnewton.planning.planner import plan
from dualnewton.run.checkpoint import Checkpoint
from dualnewton.run.loop import solve, solve_many
from dualnewton.run.result import Progress, Result, Status, Trace

if TYPE_CHECKING:
    from dualnewton import data
    from dualnewton.estimators import (
        ElasticNet,
        ElasticNetCV,
        ERMClassifier,
        ERMRegressor,
        HuberRegressor,
        Lasso,
        LinearSVC,
        LinearSVR,
        LogisticRegression,
        LogisticRegressionCV,
        Ridge,
        RidgeClassifier,
        RidgeCV,
    )
    from dualnewton.estimators.files import load, save

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "Checkpoint",
    "DualnewtonError",
    "ERMClassifier",
    "ERMRegressor",
    "ElasticNet",
    "ElasticNetCV",
    "HuberRegressor",
    "Lasso",
    "LinearSVC",
    "LinearSVR",
    "LogisticRegression",
    "LogisticRegressionCV",
    "MultinomialProblem",
    "Plan",
    "Problem",
    "Progress",
    "Result",
    "Ridge",
    "RidgeCV",
    "RidgeClassifier",
    "Status",
    "Trace",
    "certify",
    "data",
    "estimators",
    "load",
    "losses",
    "methods",
    "plan",
    "regularizers",
    "samplings",
    "save",
    "solve",
    "solve_many",
    "theory",
]

FILES = ("load", "save")
"""Functions of ``estimators.files``."""

ROOMS = ("data",)
"""Parts that are loaded when they are first used."""


def __getattr__(name: str) -> Any:
    # Estimators load scikit-learn, which takes a second: whoever asks for one waits for it, nobody else.
    if name in estimators.MODULES:
        return getattr(estimators, name)
    if name in FILES:
        return getattr(importlib.import_module("dualnewton.estimators.files"), name)
    if name in ROOMS:
        return importlib.import_module(f"dualnewton.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *estimators.MODULES, *FILES, *ROOMS})
