"""benchopt: the linear support vector machine without an intercept, C Σ max(0, 1 − y z) + ½‖w‖².

Copy this file to ``solvers/`` of benchopt's benchmark_linear_svm_binary_classif_no_intercept.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our support vector machine."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]

    def set_objective(self, X: Any, y: Any, C: float) -> None:
        """Pose the problem, divided by C n."""
        n = X.shape[0]
        self.problem = Problem(X, y, losses.Hinge(), lam=1.0 / (C * n))
