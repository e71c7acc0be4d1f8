"""benchopt: quantile regression, mean pinball loss + lmbd‖w‖₁.

Copy this file to ``solvers/`` of benchopt's benchmark_quantile_regression.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses, regularizers
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our quantile regression."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]
    argument = "params"

    def set_objective(self, X: Any, y: Any, lmbd: float, quantile: float, fit_intercept: bool = False) -> None:
        """Pose the problem."""
        loss, penalty = losses.Quantile(quantile), regularizers.L1()
        self.problem = Problem(X, y, loss, regularizer=penalty, lam=lmbd, fit_intercept=fit_intercept)
