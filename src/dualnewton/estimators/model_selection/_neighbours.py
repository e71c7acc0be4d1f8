"""The models of folds, from the model of all rows by steps of Newton's method.

At the model (w, b) of all rows with the same penalty, margins, slopes and curvatures of the losses are the same for every fold.
Gradient and Hessian of a fold are sums over its training rows, so that those of all folds together cost one pass over the data.
Further steps use the same Hessians: each is one pass over the data for all folds, and the folds are certified once, when the
gradients say that their gaps are small. Folds that miss ``tol`` are solved together in shared passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._session import GridSession, certified
from dualnewton.matrix import Data
from dualnewton.objective.bounds import Derivatives
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import steps_to_folds
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Result
from dualnewton.solvers.primal.curvature import Cholesky

WELL_BELOW = 0.5
"""Fraction of the wanted gap at which the steps of a fold end: the certificate rounds differently."""

SHORTER, MOST_STEPS = 0.3, 8
"""Factor by which a further step must lessen the expected gap of a fold, else it is the last; and the most steps."""

FAR = 0.1
"""Relative gap after a step above which the fold is fitted from another start."""


class Neighbours:
    """Newton steps from the model of all rows, whose weights are c, to those of the folds."""

    def __init__(self, data: Data, folds: Folds, c: np.ndarray | None, tuning: Tuning = DEFAULT) -> None:
        self.c, self.useful = 1.0 if c is None else c, True
        self.kinds, group = folds.patterns
        self.groups = [np.flatnonzero(group == k) for k in range(self.kinds.shape[1])]
        self.data = prepared(data, compiled=not is_small(tuning, data.n, data.d), tuning=tuning)

    def __enter__(self) -> Neighbours:
        return self

    def __exit__(self, *_: object) -> None:
        self.data.close()

    @staticmethod
    def pay(data: Data, folds: Folds, tuning: Tuning = DEFAULT) -> bool:
        """Whether such steps cost less than passes over the data."""
        return steps_to_folds(data, folds.patterns[0].shape[1], len(folds), tuning)

    def fit(
        self, session: GridSession, problems: Sequence[Problem], whole: Sequence[Result], starts: Sequence[Result]
    ) -> list[Result]:
        """Return the results of the folds, one after the other, from those of all rows, of which there is one for each class.

        Folds that such steps do not reach are fitted from ``starts``.
        """
        if not self.useful:
            return session.solve(problems, starts)
        models = [self._steps(problems[k], result) for k, result in enumerate(whole)]
        tried = [own[fold] for fold in range(len(self.kinds)) for own in models]
        best = [replace(each, w=own.w, b=own.intercept) for each, own in zip(tried, cycle(whole), strict=False)]
        points = self._further(session, problems, best, tried)
        W, b, passes = zip(*((each.w, each.b, each.passes) for each in points), strict=True)
        results = certified(problems, W, b, session.goal, "Newton steps from the model of all rows", passes)
        session.report(results)
        missed = [k for k, result in enumerate(results) if not result.converged]
        # With a weaker penalty the models of the folds are farther apart: if no step sufficed, no later one will.
        self.useful = len(missed) < len(results)
        nearer = [results[k] if results[k].certificate.relative_gap < FAR else starts[k] for k in missed]
        return session.improved(problems, results, missed, nearer)

    def _steps(self, first: Problem, whole: Result) -> list[_Fold]:
        """Return the model of each fold after a step, given the problem of the first fold, whose weights are not used."""
        n, d, with_one = first.n, first.d, first.fit_intercept
        z = first.data.times(whole.w) + whole.intercept
        slopes = self.c * first.loss.derivative(z, first.y)
        curvature = self.c * first.loss.second_derivative(z, first.y)
        apart = np.zeros((n, len(self.groups)))
        for k, rows in enumerate(self.groups):
            apart[rows, k] = slopes[rows]
        gradients, sums = first.data.transposed_times(apart), apart.sum(axis=0)  # of shapes (d, groups) and (groups,)
        hessians = [self.data.weighted_gram(curvature[rows], rows, intercept=with_one) for rows in self.groups]
        ridge = np.full(d, first.lam * n)
        found = []
        for counts in self.kinds:
            H = sum(count * each for count, each in zip(counts, hessians, strict=True) if count)
            factor = Cholesky(H, np.append(ridge, 0.0) if with_one else ridge)
            start = _Fold(whole.w, float(whole.intercept), factor)
            found.append(start.moved(gradients @ counts + ridge * whole.w, float(sums @ counts)))
        return found

    def _further(
        self, session: GridSession, problems: Sequence[Problem], best: list[_Fold], tried: list[_Fold]
    ) -> list[_Fold]:
        """Return the best model of each fold after further steps with the same Hessians, as long as these lessen its gap.

        The first steps lead from ``best`` to ``tried``.
        """
        gaps, going = np.full(len(best), np.inf), list(range(len(best)))
        for _ in range(MOST_STEPS):
            posed, points = [problems[k] for k in going], [tried[k] for k in going]
            W, b = np.stack([each.w for each in points]), np.array([each.b for each in points])
            found = self.data.evaluate(W, b, Derivatives(posed), [each.row_vectors for each in posed])
            left = []
            for place, k in enumerate(going):
                own, ridge, slope = tried[k], problems[k].lam * problems[k].n, float(found.slopes[place])
                gradient = found.gradients[place] + ridge * own.w
                # The gap of the dual point that belongs to w: see ``solvers/direct/risk.py``.
                gap = float(gradient @ gradient) / (2.0 * ridge) + abs(slope) * problems[k].fit_intercept
                if not gap < gaps[k]:
                    continue
                goal = WELL_BELOW * session.goal * (float(found.values[place]) + 0.5 * ridge * float(own.w @ own.w))
                if goal < gap < SHORTER * gaps[k]:
                    left.append(k)
                    tried[k] = own.moved(gradient, slope)
                best[k], gaps[k] = own, gap
            going = left
            if not going or session.is_over:
                break
        return best


@dataclass(frozen=True, eq=False)
class _Fold:
    """The model of a fold, the factor of its Hessian near that, and the passes over the data that led there."""

    w: np.ndarray
    b: float
    factor: Cholesky
    passes: int = 0

    def moved(self, gradient: np.ndarray, slope: float) -> _Fold:
        """Return the fold after a Newton step, given the gradient in w and the slope in b, which counts with an intercept."""
        d = len(gradient)
        with_one = len(self.factor.factor) > d
        step = self.factor.solve(np.append(gradient, slope) if with_one else gradient)
        w, b = self.w - step[:d], self.b - float(step[d]) if with_one else self.b
        return replace(self, w=w, b=b, passes=self.passes + 1)
