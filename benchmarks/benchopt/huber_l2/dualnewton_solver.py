"""benchopt: Huber's regression, Σ h(y − z) + lmbd‖w‖² with h(r) = r² up to epsilon and 2 epsilon|r| − epsilon² beyond.

Copy this file to ``solvers/`` of benchopt's benchmark_huber_l2.
"""

from __future__ import annotations

from typing import Any, ClassVar

from benchopt import BaseSolver

from dualnewton import Problem, losses
from dualnewton.lab.benchopt import CertifiedRuns


class Solver(CertifiedRuns, BaseSolver):
    """Our Huber regression; the solution has the intercept first."""

    name = "dualnewton"
    requirements: ClassVar[list[str]] = ["pip::dualnewton"]
    argument = "params"
    intercept_first = True

    def set_objective(self, X: Any, y: Any, lmbd: float, epsilon: float) -> None:
        """Pose the problem, divided by 2n."""
        n = X.shape[0]
        self.problem = Problem(X, y, losses.Huber(epsilon), lam=lmbd / n, fit_intercept=True)
