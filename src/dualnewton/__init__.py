"""Fit regularised linear models fast, and prove how good the fit is.

    import dualnewton as dn

    model = dn.LogisticRegression(C=1.0).fit(X, y)                # estimators with scikit-learn's interface
    model.certificate_                                            # the objective P, a lower bound D on its minimum, and P − D
    dn.certify(other_model, X, y)                                 # the same for a model of scikit-learn, glum or statsmodels

    problem = dn.Problem(X, y, dn.losses.Logistic(), lam=0.01)    # any loss and penalty
    result = dn.solve(problem, tol=1e-8)                          # result.w, result.certificate, result.plan

``losses``, ``regularizers`` and ``samplings`` are the parts of problems and methods, ``data`` reads files and named data sets,
``theory`` and ``methods`` belong to the paper. ``dualnewton --help`` describes the command line.
"""

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
    from dualnewton.estimators import *  # noqa: F403
    from dualnewton.estimators.files import load, save

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "Checkpoint",
    "DualnewtonError",
    "MultinomialProblem",
    "Plan",
    "Problem",
    "Progress",
    "Result",
    "Status",
    "Trace",
    "certify",
    "load",
    "plan",
    "save",
    "solve",
    "solve_many",
]
__all__ += estimators.__all__
__all__ += ["data", "estimators", "losses", "methods", "regularizers", "samplings", "theory"]

LAZY_FUNCTIONS = ("load", "save")
"""Functions of ``estimators.files``, which is loaded on first use."""

LAZY_MODULES = ("data",)
"""Modules that are loaded on first use."""


if not TYPE_CHECKING:  # a type checker has the names above, and must report wrong ones

    def __getattr__(name: str) -> Any:
        # An estimator loads scikit-learn, which takes a second, so it is imported on first use.
        if name in estimators.MODULES:
            return getattr(estimators, name)
        if name in LAZY_FUNCTIONS:
            return getattr(importlib.import_module("dualnewton.estimators.files"), name)
        if name in LAZY_MODULES:
            return importlib.import_module(f"dualnewton.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *estimators.MODULES, *LAZY_FUNCTIONS, *LAZY_MODULES})
