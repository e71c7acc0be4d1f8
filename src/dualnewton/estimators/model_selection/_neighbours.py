"""The models of folds, from the model of all rows by one step of Newton's method.

At the model (w, b) of all rows with the same penalty, margins, slopes and curvatures of the losses are the same for every fold.
Gradient and Hessian of a fold are sums over its training rows, so that those of all folds together cost one pass over the data.
One step usually suffices. Each model is certified; folds that miss ``tol`` are solved together in shared passes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.estimators.model_selection._certified import certified
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.matrix import Data
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import steps_to_folds
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Result
from dualnewton.solvers.primal.curvature import Cholesky

FAR = 0.1
"""Relative gap after a step above which the fold starts from the model of all rows instead."""


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

    def fit(self, session: GridSession, problems: Sequence[Problem], whole: Sequence[Result]) -> list[Result]:
        """Return the results of the folds, one after the other, from those of all rows, of which there is one for each class."""
        if not self.useful:
            return session.solve(problems, [*whole] * len(self.kinds))
        models = [self._steps(problems[k], result) for k, result in enumerate(whole)]
        flat = [own[fold] for fold in range(len(self.kinds)) for own in models]
        points, intercepts = [w for w, _ in flat], [b for _, b in flat]
        goal = session.goal
        results = certified(problems, points, intercepts, goal, "one Newton step from the model of all rows")
        session.report(results)
        missed = [k for k, result in enumerate(results) if not result.converged]
        # With a weaker penalty the models of the folds are farther apart: if no step sufficed, no later one will.
        self.useful = len(missed) < len(results)
        if missed:
            starts = [
                results[k] if results[k].certificate.relative_gap < FAR else whole[k % len(whole)] for k in missed
            ]
            better = session.solve([problems[k] for k in missed], starts)
            for k, result in zip(missed, better, strict=True):
                results[k] = result
        return results

    def _steps(self, first: Problem, whole: Result) -> list[tuple[np.ndarray, float]]:
        """Return w and b of each fold, given the problem of the first fold, whose weights are not used."""
        n, d, with_one = first.n, first.d, first.fit_intercept
        z = first.data.times(whole.w) + whole.intercept
        slopes = self.c * first.loss.derivative(z, first.y)
        curvature = self.c * first.loss.second_derivative(z, first.y)
        apart = np.zeros((n, len(self.groups)))
        for k, rows in enumerate(self.groups):
            apart[rows, k] = slopes[rows]
        gradients = first.data.transposed_times(apart)  # (d, groups)
        hessians = [self.data.weighted_gram(curvature[rows], rows, intercept=with_one) for rows in self.groups]
        ridge = np.full(d, first.lam * n)
        found = []
        for counts in self.kinds:
            gradient = gradients @ counts + ridge * whole.w
            H = sum(count * each for count, each in zip(counts, hessians, strict=True) if count)
            if with_one:
                gradient = np.append(gradient, apart.sum(axis=0) @ counts)
            step = Cholesky(H, np.append(ridge, 0.0) if with_one else ridge).solve(gradient)
            found.append((whole.w - step[:d], float(whole.intercept - step[d]) if with_one else 0.0))
        return found
