"""Primal methods as the loop drives them: Newton's method and its sketch, an iteration a turn.

Each iteration takes x⁺ = x − t B⁻¹∇ where B is the curvature of rows (``curvature.py``): of all of them, which is SDNA with τ = n
(Newton's method), or of a sketch of τ (Section 6 of the paper), corrected by the last gradients. A full gradient costs one
pass; a sketch is bought anew, larger, where the passes it should save cost more than it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.judging import AnyProblem
from dualnewton.solvers.curvature import Hessian, Sketches, hessian_of_all_rows
from dualnewton.solvers.objective import Objective, objective_of
from dualnewton.solvers.passes import Passes
from dualnewton.solvers.quasi_newton import Model, Policy
from dualnewton.solvers.runner import PrimalPoint, Runner


class Descent(Runner):
    """Models that move together: their trial points share the passes.

    Parameters
    ----------
    problems : sequence of problems
        They share X.
    passes : Passes
        The data.
    starts : sequence of (w, intercept)
        Where the models start.
    tol : float
        The relative gap that is wanted.
    sketch : int
        τ, the rows of the first sketch.
    newton : bool
        Whether the curvature is that of all rows, at every step.
    """

    def __init__(
        self,
        problems: Sequence[AnyProblem],
        passes: Passes,
        starts: Sequence[tuple[np.ndarray, Any]],
        *,
        tol: float,
        sketch: int,
        newton: bool,
    ) -> None:
        self.passes, self.models = passes, []
        costs = passes.costs
        near = costs.affordable_sketch()
        for problem, (w, b) in zip(problems, starts, strict=True):
            objective = objective_of(problem)
            policy = Policy(costs, tol, passes.n if newton else sketch, newton, coupled=objective.columns > 1)
            hessians = [_hessian(passes, objective, near, newton=newton) for _ in range(objective.columns)]
            self.models.append(Model(objective, policy, hessians, objective.vector(w, b)))
        self._evaluate()

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and derivatives of all models on a block of rows (see :class:`Target`)."""
        values, R, column = np.empty(len(self.models)), np.empty(Z.shape), 0
        for k, model in enumerate(self.models):
            own = slice(column, column + model.objective.columns)
            values[k], R[:, own] = model.objective.losses(rows, Z[:, own])
            column = own.stop
        return values, R

    def _evaluate(self) -> None:
        parts = [model.objective.parts(model.trial) for model in self.models]
        W, b = np.concatenate([W for W, _ in parts]), np.concatenate([b for _, b in parts])
        found, column = self.passes.evaluate(W, b, self), 0
        for model, value in zip(self.models, found.values, strict=True):
            own = slice(column, column + model.objective.columns)
            gradient = model.objective.vector(found.gradients[own], found.slopes[own])
            model.receive(float(value), gradient, found.margins[:, own])
            column = own.stop

    def turn(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        extra = sum(model.propose(rng) for model in self.models) / len(self.models)
        self._evaluate()
        return 1.0 + extra

    def candidate(self, k: int) -> PrimalPoint:
        return self.models[k].objective.point(self.models[k].x)

    def surprise(self, k: int) -> float:
        return self.models[k].gap / self.passes.n

    def is_stuck(self, k: int) -> bool:
        return self.models[k].stuck

    def keep(self, wanted: Sequence[int]) -> None:
        self.models = [self.models[k] for k in wanted]

    def close(self) -> None:
        self.passes.close()


def _hessian(passes: Passes, objective: Objective, near: int, *, newton: bool) -> Hessian:
    ridge = objective.column_ridge
    return hessian_of_all_rows(passes, ridge, near) if newton else Sketches(passes, ridge)
