"""Newton's method for a smooth loss of one column and a quadratic penalty.

    n P(x) = Σ c_i φ_i(ã_iᵀx) + ½ Σ ridge_j x_j²,        ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

This is SDNA with τ = n. The gap that belongs to x follows from the gradient g: n(P − D) = Σ_j g_j²/(2 ridge_j) at the best
intercept. Away from it the gap changes in the first order, so that the slope along b counts as a gap.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.primal.line_search import line_minimum
from dualnewton.solvers.primal.objective import Objective

SUFFICIENT, MOST_TRIALS = 1e-4, 8
"""Armijo's fraction of the predicted decrease that a step must reach, and how many points along a step are tried."""

ROUNDING = 1e-14
"""Relative change of the objective that counts as rounding."""


class Point(NamedTuple):
    """x with its margins ãᵀx (without offsets), the gradient of n P, and n P."""

    x: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    value: float


def solve(problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float) -> Found:
    """Take Newton steps until the expected gap is small enough, or no step decreases the objective beyond rounding."""
    objective = Objective(problem)
    rows = block.extended if problem.fit_intercept else block.rows
    x = np.zeros(rows.shape[1]) if start is None else objective.vector(*start)
    at = _point(objective, rows, x, np.zeros(len(rows)) if start is None else rows @ x)
    steps, stuck = 0, False
    while steps < most and not stuck:
        at, stuck = _step(objective, rows, at)
        steps += 1
        if _gap(objective, at.gradient) <= WELL_BELOW * tol * abs(at.value) or time.perf_counter() > deadline:
            break
    w, b = objective.parts(at.x)
    return Found(w[0].copy(), float(b[0]), steps)


def _point(objective: Objective, rows: np.ndarray, x: np.ndarray, margins: np.ndarray) -> Point:
    value, slopes = objective.problem.row_losses(objective.problem.row_vectors, margins)
    pull = objective.ridge * x
    return Point(x, margins, slopes @ rows + pull, value + 0.5 * float(pull @ x))


def _step(objective: Objective, rows: np.ndarray, at: Point) -> tuple[Point, bool]:
    """Return the point after one Newton step, shortened to the lowest point on the way where the whole step is too long.

    The second value says whether no further progress is possible.
    """
    step = _solution(_hessian(objective, rows, at.margins), objective.ridge, -at.gradient)
    slope, t = float(at.gradient @ step), 1.0
    way = rows @ step
    for _ in range(MOST_TRIALS):
        found = _point(objective, rows, at.x + t * step, at.margins + t * way)
        if _accepts(at, found, step, t * slope):
            return found, not slope < -ROUNDING * abs(at.value)
        t *= line_minimum(objective, at.x, found.x, at.margins[:, None], found.margins[:, None])
        if t == 0.0:
            break
    return at, True


def _hessian(objective: Objective, rows: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Σ c_i φ″_i ã_i ã_iᵀ. A product of a matrix with its own transpose takes half the multiplications of a general one."""
    weights = objective.problem.row_curvature(margins)
    if objective.quadratic and objective.problem.sample_weight is None:
        return weights[0] * (rows.T @ rows)
    scaled = rows * np.sqrt(weights)[:, None]
    return scaled.T @ scaled


def _solution(H: np.ndarray, diagonal: np.ndarray, g: np.ndarray) -> np.ndarray:
    """(H + D(diagonal))⁻¹ g, with a larger diagonal where rounding has made the matrix indefinite. H is changed."""
    from scipy.linalg.lapack import dposv  # itself: what SciPy puts around it takes longer than a small system

    H.ravel()[:: len(H) + 1] += diagonal
    lift = 0.0
    while True:
        _, x, failed = dposv(H.T, g)
        if not failed:
            return np.asarray(x)
        lift = 100.0 * lift or np.finfo(float).eps * float(np.abs(np.diagonal(H)).max()) or 1.0
        H.ravel()[:: len(H) + 1] += lift


def _accepts(at: Point, found: Point, step: np.ndarray, slope: float) -> bool:
    """Armijo's rule; where the values differ by rounding only, the slope along the step must have become smaller."""
    if found.value <= at.value + SUFFICIENT * slope:
        return True
    level = found.value <= at.value + ROUNDING * abs(at.value)
    return level and abs(float(found.gradient @ step)) < -float(at.gradient @ step)


def _gap(objective: Objective, gradient: np.ndarray) -> float:
    """n(P − D) for the dual point that belongs to x."""
    return objective.gap(gradient) + float(np.abs(gradient[objective.problem.d :]).sum())
