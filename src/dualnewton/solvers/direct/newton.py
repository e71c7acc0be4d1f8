"""Newton's method for a smooth loss and a quadratic penalty.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,        z_ik = ã_iᵀx_k,   ã_i = (a_i, 1),   x_k = (w_k, b_k),   no ridge on b

This is SDNA with τ = n. The gap that belongs to x follows from the gradient g: n(P − D) = Σ_j g_j²/(2 ridge_j) at the best
intercept. Away from it the gap changes in the first order, so that the slope along b counts as a gap.

With many more rows than unknowns most of the time would be that of the Hessians. Then the problem of a random sample of the rows
is solved first. Its solution has about the accuracy of the sample, so that the Hessian of all rows there is close to that at the
minimum: a few steps of L-BFGS from this matrix, each of one pass, take the place of most Newton steps.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import MemoryData
from dualnewton.matrix.grams import coupled
from dualnewton.objective.alike import on_rows
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import slope_along, value_and_slopes
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.primal.curvature import Cholesky
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.line_search import first_length, line_minimum
from dualnewton.solvers.primal.objective import Objective

SUFFICIENT, MOST_TRIALS = 1e-4, 8
"""Armijo's fraction of the predicted decrease that a step must reach, and how many points along a step are tried."""

ROUNDING = 1e-14
"""Relative change of the objective that counts as rounding."""

SAMPLED, LEAST_SAMPLE, PER_UNKNOWN = 8, 512, 4
"""A sample has a share of 1/SAMPLED of the rows, if these are at least ``LEAST_SAMPLE`` and ``PER_UNKNOWN`` for each unknown."""

SAMPLE_GAP = 0.1
"""The sample is solved to a gap of this fraction of unknowns over its rows, which is about the relative accuracy of its solution,
or until a step promises no more than that accuracy."""

SAMPLE_STEPS, PASSES = 10, 8
"""Most Newton steps on the sample, and most steps of L-BFGS on all rows: a Hessian takes longer than several passes."""


SECANTS = 2
"""Secants by which the solution of the sample is shortened before the steps on all rows."""


class Point(NamedTuple):
    """x with its margins (without offsets), of shape (n, K), the gradient of n P, and n P."""

    x: np.ndarray
    margins: np.ndarray
    gradient: np.ndarray
    value: float


def solve(
    problem: Problem,
    block: Block,
    start: Start | None,
    *,
    tol: float,
    most: int,
    deadline: float,
    level: float = ROUNDING,
) -> Found:
    """Take steps until the expected gap is small enough, or one promised a decrease of at most ``level`` of the objective."""
    if problem.loss.curvature is Curvature.CONSTANT and problem.columns == 1:
        return _least_squares(problem, block, start, tol=tol, most=most, deadline=deadline)
    objective = Objective(problem, joint=True)
    steps, sample, goal = 0, _sample(problem) if start is None else None, WELL_BELOW * tol
    if sample is None:
        x = objective.vector(*(start or _nothing(problem)))
    else:
        x, steps = _solve_sample(problem, block, sample, tol=tol, most=most, deadline=deadline)
    margins = _margins(objective, block, x)
    if sample is not None:
        t = _best_factor(objective, x, margins)
        x, margins = t * x, t * margins
    at = _point(objective, block, x, margins)
    if sample is not None:
        at, passes = _quasi_newton(objective, block, at, goal)
        steps += -(-passes // 2)
    stuck = steps > 0 and _is_close(objective, at, goal)
    while steps < most and not stuck:
        curvature = _curvature(objective, block, at.margins)
        at, stuck = _step(objective, block, at, curvature.solve(-at.gradient), level)
        steps += 1
        stuck = stuck or _is_close(objective, at, goal) or time.perf_counter() > deadline
    point = objective.point(at.x)
    return Found(point.w, point.intercept, steps)


def _nothing(problem: Problem) -> Start:
    """Return w = 0 and b = 0; the best b for losses without γ, and for softmax with classes of weight zero, where it may be far
    from 0.
    """
    if problem.columns == 1:
        return np.zeros(problem.d), 0.0 if problem.loss.gamma is not None else problem.best_intercept_at(problem.o)
    w, b = np.zeros((problem.columns, problem.d)), problem.no_intercept()
    weights = np.bincount(problem.y, problem.sample_weight, problem.columns)
    return w, b if weights.all() else problem.best_intercept_at(problem.no_dual())


def _margins(objective: Objective, block: Block, x: np.ndarray) -> np.ndarray:
    return block.margins(x.reshape(objective.columns, -1))


def _point(objective: Objective, block: Block, x: np.ndarray, margins: np.ndarray) -> Point:
    problem = objective.problem
    value, slopes = value_and_slopes(problem.loss, objective.as_margins(margins), problem.row_vectors)
    slopes = slopes.reshape(margins.shape)
    pull = objective.ridge * x
    sums = block.gather(slopes, intercept=objective.problem.fit_intercept)
    return Point(x, margins, sums.ravel() + pull, value + 0.5 * float(pull @ x))


def _step(
    objective: Objective, block: Block, at: Point, step: np.ndarray, level: float = ROUNDING
) -> tuple[Point, bool]:
    """Return the point after a step, shortened to the lowest point on the way where the whole step is too long.

    The second value says whether it is the last: the step promised a decrease of at most ``level`` of the objective.
    """
    slope, way = float(at.gradient @ step), _margins(objective, block, step)
    loss = objective.problem.loss
    t = 1.0 if loss.gamma is not None else first_length(loss, way)
    for _ in range(MOST_TRIALS):
        found = _point(objective, block, at.x + t * step, at.margins + t * way)
        if _accepts(at, found, step, t * slope):
            return found, not slope < -level * abs(at.value)
        t *= line_minimum(objective, at.x, found.x, at.margins, found.margins)
        if t == 0.0:
            break
    return at, True


def _accepts(at: Point, found: Point, step: np.ndarray, slope: float) -> bool:
    """Armijo's rule; where the values differ by rounding only, the slope along the step must have become smaller."""
    if found.value <= at.value + SUFFICIENT * slope:
        return True
    level = found.value <= at.value + ROUNDING * abs(at.value)
    return level and abs(float(found.gradient @ step)) < -float(at.gradient @ step)


def _is_close(objective: Objective, at: Point, goal: float) -> bool:
    """Whether the gap of the dual point that belongs to x is at most ``goal``, relative to P."""
    gap = objective.gap(at.gradient)
    if objective.problem.fit_intercept:
        gap += float(np.abs(at.gradient.reshape(objective.columns, -1)[:, -1]).sum())
    return gap <= goal * abs(at.value)


def _curvature(objective: Objective, block: Block, margins: np.ndarray) -> Cholesky:
    """The Hessian of n P, factorised."""
    weights, intercept = objective.curvature(margins), objective.problem.fit_intercept
    if objective.columns == 1:
        equal = objective.quadratic and objective.problem.sample_weight is None
        return Cholesky(block.gram(weights[:, 0], intercept=intercept, equal=equal), objective.ridge.copy())
    H = coupled((block.gram(own, intercept=intercept) for own in np.ascontiguousarray(weights.T)), objective.columns)
    if intercept:
        # Adding a number to all intercepts changes nothing: the gradient is zero along that direction, and so is the step.
        H[:, -1, :, -1] += H[:, -1, :, -1].trace() / objective.columns**2 or 1.0
    return Cholesky(H.reshape(objective.ridge.size, -1), objective.ridge.copy())


# Least squares -----------------------------------------------------------------------------------------------------------------


def _least_squares(
    problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float
) -> Found:
    """Take one Newton step, which would be exact without rounding, and more while these halve the gap that is left."""
    (curvature, ridge, halves), d, free = _system(problem, block), problem.d, problem.fit_intercept
    x, margins = np.zeros(len(ridge)), np.zeros(problem.n)
    if start is not None:
        x[:d], x[d:] = start
        margins = block.rows @ x[:d] + x[d:].sum()
    best, least, steps = x, np.inf, 0
    while True:
        value, slopes = value_and_slopes(problem.loss, margins, problem.row_vectors)
        gradient = ridge * x
        value += 0.5 * float(gradient @ x)
        gradient[:d] += slopes @ block.rows
        if free:
            gradient[d] += slopes.sum()
        gap = float(np.square(gradient) @ halves)
        if free:
            gap += abs(float(gradient[d]))
        far = gap < 0.5 * least and not (steps and gap <= WELL_BELOW * tol * abs(value))
        if gap < least:
            best, least = x, gap
        if not far or steps >= most or (steps and time.perf_counter() > deadline):
            return Found(best[:d].copy(), float(best[d]) if free else 0.0, max(steps, 1))
        x = x - curvature.solve(gradient)
        margins = block.rows @ x[:d]
        if free:
            margins += x[d]
        steps += 1


def _system(problem: Problem, block: Block) -> tuple[Cholesky, np.ndarray, np.ndarray]:
    """Return the Hessian, factorised, the ridge, and 1/(2 ridge_j), with 0 for the intercept.

    Without weights of rows it is the same for all outputs.
    """
    key = (_system, problem.lam)
    if problem.sample_weight is None and key in block.kept:
        return block.kept[key]
    objective = Objective(problem)
    ridge, halves = objective.ridge, np.zeros(len(objective.ridge))
    halves[: problem.d] = 0.5 / ridge[: problem.d]
    found = _curvature(objective, block, np.zeros((problem.n, 1))), ridge, halves
    if problem.sample_weight is None:
        block.kept[key] = found
    return found


# From a sample of the rows ---------------------------------------------------------------------------------------------------


def _sample(problem: Problem) -> np.ndarray | None:
    """Return the rows of the sample, if there is to be one."""
    size, unknowns = problem.n // SAMPLED, problem.columns * (problem.d + 1)
    if size < max(LEAST_SAMPLE, PER_UNKNOWN * unknowns):
        return None
    return np.sort(np.random.default_rng(0).permutation(problem.n)[:size])


def _solve_sample(
    problem: Problem, block: Block, sample: np.ndarray, *, tol: float, most: int, deadline: float
) -> tuple[np.ndarray, int]:
    """Return the solution of the problem of some rows, and the steps taken, in those of all rows."""
    own = on_rows(problem, sample, MemoryData(block.data.rows(sample)))
    objective = Objective(own, joint=True)
    accuracy, limit = objective.ridge.size / len(sample), min(most, SAMPLE_STEPS)
    goal = max(tol, SAMPLE_GAP * accuracy)
    found = solve(own, Block(own.data), None, tol=goal, most=limit, deadline=deadline, level=accuracy)
    return objective.vector(found.w, found.intercept), -(-found.steps // SAMPLED)


def _best_factor(objective: Objective, x: np.ndarray, margins: np.ndarray) -> float:
    """Return about the t ≤ 1 for which the objective at tx is least, from the margins of some of the rows.

    The solution of a sample fits its own rows too well: its margins are too large, and the Hessian there is too small. A few
    secants of the slope along x, between t = 0 and t = 1, suffice: the first steps on all rows correct the rest.
    """
    part = slice(None, None, SAMPLED)
    rows, way = objective.problem.row_vectors.part(part), objective.as_margins(margins[part])
    loss, nothing = objective.problem.loss, np.zeros(way.shape)
    pull, share = float(objective.ridge @ np.square(x)), len(margins) / len(way)

    def slope(t: float) -> float:
        return t * pull + share * slope_along(loss, nothing, way, t, rows)

    low, high, t = 0.0, 1.0, 1.0
    at_low, at_high = slope(low), slope(high)
    for _ in range(SECANTS):
        if not at_low < 0.0 < at_high < math.inf:
            return t
        t = low - at_low * (high - low) / (at_high - at_low)
        at_t = slope(t)
        # Half the slope at the end that stays (the Illinois rule): secants alone would creep away from t = 1, where margins are
        # large and the slope is flat.
        low, at_low, high, at_high = (low, 0.5 * at_low, t, at_t) if at_t > 0.0 else (t, at_t, high, 0.5 * at_high)
    return low - at_low * (high - low) / (at_high - at_low)


def _quasi_newton(objective: Objective, block: Block, at: Point, goal: float) -> tuple[Point, int]:
    """Take steps of L-BFGS from the Hessian at a point; return where they end, and the passes, of which the Hessian is one."""
    hessian, pairs = _curvature(objective, block, at.margins), Corrections.none()
    image = hessian.solve(at.gradient)
    for passes in range(PASSES):
        if _is_close(objective, at, goal):
            return at, 1 + passes
        found, stuck = _step(objective, block, at, -pairs.solve(at.gradient, image, scaled_well=True))
        if stuck:
            return found, 2 + passes
        new = hessian.solve(found.gradient)
        pairs = pairs.with_pair(found.x - at.x, found.gradient - at.gradient, new - image, PASSES)
        at, image = found, new
    return at, 1 + PASSES
