"""benchopt: logistic regression with an l2 penalty, Σ log(1 + exp(−y z)) + (lmbd/2)‖w‖².

Copy this file to ``solvers/`` of benchopt's benchmark_logreg_l2.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our logistic regression."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]

    def set_objective(self, X: Any, y: Any, lmbd: float, fit_intercept: bool = False) -> None:
        """Pose the problem, divided by n."""
        n = X.shape[0]
        self.problem = Problem(X, y, losses.Logistic(), lam=lmbd / n, fit_intercept=fit_intercept)
