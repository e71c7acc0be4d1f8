"""benchopt: ridge regression, ½‖y − z‖² + (lmbd/2)‖w‖².

Copy this file to ``solvers/`` of benchopt's benchmark_ridge.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our ridge regression."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]

    def set_objective(self, X: Any, y: Any, lmbd: float, fit_intercept: bool = False) -> None:
        """Pose the problem, divided by n."""
        n = X.shape[0]
        self.problem = Problem(X, y, losses.Squared(), lam=lmbd / n, fit_intercept=fit_intercept)
