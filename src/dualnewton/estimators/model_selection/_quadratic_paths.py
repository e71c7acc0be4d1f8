"""Paths of elastic nets over all folds from the moments of their rows: one pass over the data for all of them, then d×d work.

    n P(w, b) = (n/Σc) Σ_i ½ c_i (x_iᵀw + b − y_i)² + nλ g(w)

Along a path each minimum starts from the last. Certificates do not use the moments: every model is certified from the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._alike import like
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._judged import TOGETHER, finished
from dualnewton.estimators.model_selection._least_squares import moments_of_folds
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.interop.parts import Data
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import is_small
from dualnewton.regularizers import mixed
from dualnewton.run.result import Result
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox.subproblem import Penalty, sweep_of

BY_MOMENTS = "coordinate descent on the d×d moments of the rows, which one pass over the data has summed"
"""What the plan of such a model says."""

WELL_BELOW = 0.05
"""Violation of the optimality conditions at which a fit stops, as a fraction of the l1 threshold times the gap wanted."""

Found = tuple[list[Result], Callable[[], list[Result]]]
"""The results of the folds for a value, and what gives those of all rows."""


class QuadraticPaths:
    """The paths of all folds, and of all rows.

    Parameters
    ----------
    session : GridSession
        Of the search.
    data : Data
        All rows.
    folds : Folds
        Which of them a fold fits on.
    weightings : sequence of arrays of shape (n,)
        The weights of the rows in each fold, and last those of all rows, each with the mean one.
    pose : callable
        The estimator that poses the problems for an alpha and a share, :class:`OverFolds`.
    """

    def __init__(
        self,
        session: GridSession,
        data: Data,
        folds: Folds,
        weightings: Sequence[np.ndarray],
        pose: Callable[[float, float], Any],
    ) -> None:
        self.session, self.data, self.weightings, self.pose = session, data, weightings, pose
        n = len(data.y)
        c = np.ones(n) if data.sample_weight is None else data.sample_weight
        fit_intercept = pose(1.0, 0.5).fit_intercept
        moments = moments_of_folds(data.matrix, data.y[:, None], c, folds.and_all_rows(), shift=fit_intercept)
        scaled = [each.times(n / each.total) for each in moments]
        self.centred = [each.centred(fit_intercept=fit_intercept) for each in scaled]
        self.sweep = sweep_of(compiled=not is_small(session.tuning, n, data.matrix.d))

    def along(self, ratio: float, alphas: np.ndarray) -> Iterator[list[Found]]:
        """Yield what was found for some of the alphas at a time, which must be positive and fall."""
        poser = self.pose(1.0, ratio)
        poser.weightings = self.weightings
        problems = poser._problems(self.data)
        together = max(1, TOGETHER // (len(self.data.y) * len(problems)))
        w = [np.zeros(self.data.matrix.d) for _ in problems]
        for low in range(0, len(alphas), together):
            some = alphas[low : low + together]
            self.session.begin(f"l1_ratio = {ratio:g}, alpha = {some[0]:.3g} to {some[-1]:.3g}")
            steps = []
            for alpha in some:
                lam = mixed(float(alpha), ratio, positive=poser.positive)[0]
                posed = [like(problem, lam=lam) for problem in problems]
                if not self.session.is_over:  # else the models stay where they are
                    w = [self._minimum(k, problem, w[k]) for k, problem in enumerate(posed)]
                steps.append(_Step(posed, w, [self._intercept(k, each) for k, each in enumerate(w)]))
            yield self._certified(steps)

    def _minimum(self, k: int, problem: Problem, w: np.ndarray) -> np.ndarray:
        """Return the minimum of fold k, from w."""
        penalty = Penalty.of(problem)
        H, along = self.centred[k].second, self.centred[k].cross[:, 0]
        goal = WELL_BELOW * self.session.goal(problem) * float(penalty.threshold.max())
        return quadratic.minimise(H, H @ w - along, w, penalty, goal, self.sweep)

    def _intercept(self, k: int, w: np.ndarray) -> float:
        return float(self.centred[k].target_mean[0] - self.centred[k].mean @ w)

    def _certified(self, steps: Sequence[_Step]) -> list[Found]:
        """Certify the models of the folds, of all steps together; those of all rows when they are asked for."""
        folds = len(self.weightings) - 1
        results = finished(
            self.session,
            [problem for step in steps for problem in step.problems[:folds]],
            [w for step in steps for w in step.models[:folds]],
            [b for step in steps for b in step.intercepts[:folds]],
            BY_MOMENTS,
        )
        each = [results[k * folds : (k + 1) * folds] for k in range(len(steps))]
        last = slice(folds, None)
        return [
            (
                own,
                partial(
                    finished, self.session, step.problems[last], step.models[last], step.intercepts[last], BY_MOMENTS
                ),
            )
            for own, step in zip(each, steps, strict=True)
        ]


class _Step(NamedTuple):
    """The problems of an alpha, and their minima."""

    problems: list[Problem]
    models: list[np.ndarray]
    intercepts: list[float]
