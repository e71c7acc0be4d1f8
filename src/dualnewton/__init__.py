"""Fit regularised linear models fast, and prove how good the fit is."""

from dualnewton import losses, methods, regularizers, samplings, theory
from dualnewton.certificate import Certificate
from dualnewton.foreign import certify
from dualnewton.multinomial import MultinomialProblem
from dualnewton.plan import Plan, plan
from dualnewton.problem import Problem
from dualnewton.result import Progress, Result, Status, Trace
from dualnewton.solve import solve, solve_many

__version__ = "0.1.0"
__all__ = [
    "Certificate",
    "MultinomialProblem",
    "Plan",
    "Problem",
    "Progress",
    "Result",
    "Status",
    "Trace",
    "certify",
    "losses",
    "methods",
    "plan",
    "regularizers",
    "samplings",
    "solve",
    "solve_many",
    "theory",
]
