"""Fit regularised linear models fast, and prove how good the fit is."""

from dualnewton import losses, regularizers, samplings
from dualnewton.certificate import Certificate
from dualnewton.problem import Problem

__version__ = "0.1.0"
__all__ = ["Certificate", "Problem", "losses", "regularizers", "samplings"]
