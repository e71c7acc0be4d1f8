"""The base of the benchopt solvers in ``benchmarks/benchopt``: runs to a certified gap, and results as one vector."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.run.loop import solve


class CertifiedRuns:
    """The part of a benchopt solver that does not depend on the benchmark; it precedes ``BaseSolver`` among the bases.

    A solver sets ``problem`` in ``set_objective``. Its tolerance is the certified relative gap, so that each point of a curve is
    a complete fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import Problem, losses
    >>> from dualnewton.lab.benchopt import CertifiedRuns
    >>> runs = CertifiedRuns()
    >>> runs.problem = Problem(np.eye(3), np.ones(3), losses.Squared(), lam=1.0)
    >>> runs.run(1e-9)
    >>> runs.get_result()["beta"].round(3)
    array([0.25, 0.25, 0.25])
    """

    name = "dualnewton"
    sampling_strategy = "tolerance"
    references = ("Z. Qu, P. Richtarik, M. Takac, O. Fercoq, SDNA: Stochastic Dual Newton Ascent, ICML 2016",)

    argument = "beta"
    """The name of the solution in ``Objective.evaluate_result``."""

    intercept_first = False
    """True if the intercept precedes the coefficients in that vector."""

    problem: Problem

    def run(self, tol: float) -> None:
        """Solve to the relative gap ``tol``; the first points of a curve have a tolerance above one, and the model zero."""
        w, b = np.zeros(self.problem.d), 0.0
        if tol < 1.0:
            result = solve(self.problem, tol=max(float(tol), 1e-15), random_state=0, max_epochs=100_000)
            w, b = result.w, float(result.intercept)
        parts = [w, np.array([b])] if self.problem.fit_intercept else [w]
        self.solution = np.concatenate(parts[::-1] if self.intercept_first else parts)

    def get_result(self) -> dict[str, Any]:
        """Return the solution by the name that the objective has for it."""
        return {self.argument: self.solution}
