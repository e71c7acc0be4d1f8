"""Starts of the models of a grid: the lowest point of P among the combinations of models that are known.

The margins of a combination are that of the margins of the models, which the data compute once for each model. Newton's method
in the few coefficients of a combination therefore needs no pass over X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix import Data
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, curvature_at, value_and_slopes
from dualnewton.run.result import Result
from dualnewton.solvers.primal.objective import Objective

MOST_STEPS, LEVEL = 4, 0.01
"""Most Newton steps, and the decrease of P, as a fraction of tol, at which they end: the start need not be more accurate."""

ALIKE = 1e-10
"""Eigenvalues of the scaled Hessian, relative to the largest, that are taken for zero: several models may be nearly equal."""


class Known(NamedTuple):
    """A model with its margins on all rows."""

    model: Result
    margins: np.ndarray  # (n,) or (n, K)


def with_margins(data: Data, models: Sequence[Result]) -> list[Known]:
    """Return models with their margins, from one product with all of them."""
    W = np.concatenate([np.atleast_2d(model.w) for model in models])
    columns = iter(np.ascontiguousarray(data.times(W.T).T))
    found = []
    for model in models:
        own = [next(columns) for _ in np.atleast_2d(model.w)]
        found.append(Known(model, (own[0] if model.w.ndim == 1 else np.stack(own, axis=1)) + model.intercept))
    return found


def lowest(problem: Problem, known: Sequence[Known], first: np.ndarray, tol: float) -> Result:
    """Return the combination of models with about the lowest P, from the one with the coefficients ``first`` on.

    P is at most that of the first combination; α is that of the first model.
    """
    objective = Objective(problem)
    points = np.stack([objective.vector(each.model.w, np.asarray(each.model.intercept)) for each in known])
    plane = _Plane(problem, np.stack([each.margins for each in known]), (points * objective.ridge) @ points.T)
    t, (value, slopes, z) = first, plane.at(first)
    for _ in range(MOST_STEPS):
        gradient, H = plane.derivatives(t, slopes, z)
        scale = 1.0 / np.sqrt(np.maximum(H.diagonal(), np.finfo(float).tiny))
        way = -scale * np.linalg.lstsq(scale[:, None] * H * scale, scale * gradient, rcond=ALIKE)[0]
        if not -float(gradient @ way) > LEVEL * tol * abs(value):  # NaN included
            break
        found = plane.at(t + way)
        if not found[0] < value:
            way *= 0.25
            found = plane.at(t + way)
            if not found[0] < value:
                break
        t, (value, slopes, z) = t + way, found
    (W, b), start = objective.parts(t @ points), known[0].model
    intercept: Any = float(b[0]) if problem.columns == 1 else b
    return replace(start, w=W[0] if problem.columns == 1 else W, intercept=intercept)


class _Plane(NamedTuple):
    """P on the combinations of models with the given margins and products of coefficients."""

    problem: Problem
    Z: np.ndarray  # (m, n) or (m, n, K)
    ridges: np.ndarray  # (m, m)

    def at(self, t: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Return P, c_i φ′_i and the margins of a combination."""
        z = np.tensordot(t, self.Z, 1)
        value, slopes = value_and_slopes(self.problem.loss, z, self.problem.row_vectors)
        return value + 0.5 * float(t @ self.ridges @ t), slopes, z

    def derivatives(self, t: np.ndarray, slopes: np.ndarray, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradient and the Hessian."""
        (_, Z, ridges), loss, rows = self, self.problem.loss, self.problem.row_vectors
        flat: Any = Z.reshape(len(Z), -1)
        if loss.columns == 1:
            images = flat * curvature(loss, z, rows)
        else:
            times = curvature_at(loss, z, rows)
            images = np.stack([times(each).ravel() for each in Z])
        return flat @ slopes.ravel() + ridges @ t, flat @ images.T + ridges
