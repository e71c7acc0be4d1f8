"""benchopt: the Lasso, ½‖y − z‖² + lmbd‖w‖₁.

Copy this file to ``solvers/`` of benchopt's benchmark_lasso.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses, regularizers
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our Lasso."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]

    def set_objective(self, X: Any, y: Any, lmbd: float, fit_intercept: bool = False) -> None:
        """Pose the problem, divided by n."""
        n = X.shape[0]
        penalty = regularizers.L1()
        self.problem = Problem(X, y, losses.Squared(), regularizer=penalty, lam=lmbd / n, fit_intercept=fit_intercept)
