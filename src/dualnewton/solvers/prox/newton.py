"""Newton's method for penalties with kinks and bounds (Lasso, elastic net, w ≥ 0, a box), as the loop drives it.

Each turn 1. chooses a working set of coordinates, 2. minimises the quadratic model of the losses plus the penalty over it
(``subproblem.py``) with the intercepts eliminated, and 3. evaluates value, gradient of all coordinates and margins at the point
found in one pass over the data. If the value is not low enough, the line search needs no pass: it interpolates the margins.

Losses of one column and of K columns (softmax) differ in the curvature of a row alone (``curvature.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import Data
from dualnewton.objective.groups import columns_of
from dualnewton.objective.problem import Problem
from dualnewton.objective.targets import Derivatives
from dualnewton.row_arrays import some_columns
from dualnewton.solvers.crossovers import Sizes
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.protocol import PrimalPoint, SharedPasses
from dualnewton.solvers.prox.curvature import kind_of
from dualnewton.solvers.prox.model import Model, Task, Trial
from dualnewton.solvers.prox.samples import begin
from dualnewton.solvers.prox.subproblem import Penalty, sweep_of
from dualnewton.solvers.prox.working_set import shared_features


class Proximal(SharedPasses):
    """Models that move together: their trial points share the passes, their features are gathered once."""

    def __init__(
        self,
        problems: Sequence[Problem],  # they share X, loss and regulariser; the latter is separable
        data: Data,
        starts: Sequence[tuple[np.ndarray, Any]],  # where the models start
        *,
        tol: float,  # relative gap that is wanted
        compiled: bool,  # whether kernels may be used
        sizes: Sizes,  # of the working sets
        # The number of rows on which problems that start at w = 0 are solved first (``samples.py``); 0 for none.
        sample: int = 0,
    ) -> None:
        self.data, self.models, self.compiled = data, [], compiled
        self.sample = 0 if any(np.any(w) for w, _ in starts) else sample
        fixed, kind = problems[0].loss.curvature is Curvature.CONSTANT, kind_of(problems[0])
        by_entries, sweep = kind.factors and compiled, sweep_of(compiled=compiled)
        shared = shared_features(problems, data, sizes, fixed=fixed)
        for problem, (w, b), (features, squares) in zip(problems, starts, shared, strict=True):
            bounds = np.tile(kind.bound(problem) * squares, problem.columns)
            task = Task(problem, Penalty.of(problem), features, bounds, sizes, tol, sweep)
            self.models.append(Model(task, w, b, forms_matrices=not by_entries))
        if not self.sample:
            self.evaluate(self.models)

    def evaluate(self, models: Sequence[Model]) -> None:
        """Pass over the data once, at the trial points of these models."""
        problems = [model.task.problem for model in models]
        trials: list[Trial] = [model.trial for model in models if model.trial is not None]
        W = np.vstack([trial.w.reshape(-1, self.data.d) for trial in trials])
        b = np.concatenate([trial.b for trial in trials])
        found = self.data.evaluate(W, b, Derivatives(problems), [each.row_vectors for each in problems])
        for model, trial, value, (_, own) in zip(models, trials, found.values, columns_of(problems), strict=True):
            gradient, margins = found.gradients[own].ravel(), some_columns(found.margins, own)
            model.receive(trial, float(value), gradient, np.atleast_1d(found.slopes[own]), margins)

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        """Take a step; the first, if there is a sample, ends at its solution."""
        limit, moved, extra = Deadline(deadline), [], 0.0
        if self.sample and not any(model.evaluated for model in self.models):
            return begin(self, limit)
        try:
            for model in self.models:
                extra += model.propose(limit)
                moved.append(model)
        except OutOfTime:
            if not moved:
                return 0.0
        self.evaluate(moved)
        return 1.0 + extra / len(self.models)

    def point(self, k: int) -> PrimalPoint:
        point: PrimalPoint = self.models[k].point()
        return point

    def state(self) -> tuple[tuple[Any, Any], ...]:
        """Return the state of each model, with that of its features, which it may share with others."""
        return tuple((model.state, model.task.features.state()) for model in self.models)

    def restore(self, state: tuple[tuple[Any, Any], ...]) -> None:
        for model, (own, features) in zip(self.models, state, strict=True):
            model.state = own
            model.task.features.restore(features)
