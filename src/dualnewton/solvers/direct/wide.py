"""More features than examples: the same problem on n coordinates or fewer, solved there and mapped back.

With a quadratic penalty the minimiser lies in the span of the rows (:mod:`dualnewton.objective.coordinates`). Two bases are used:

1. *Gradients.* At the minimiser over the span of the gradients so far, the gradient of the whole problem costs one pass and gives
   the gap, n(P − D) = Σ g_j²/(2λn v_j). It is the next direction. For the squared loss these are the iterates of conjugate
   gradients; rows that are well conditioned need 3 to 10 directions.
2. *The factor* X V⁻¹ Xᵀ = L Lᵀ of all rows, if these do not suffice.

Losses whose curvature varies (logistic, log links) take Newton steps on a variable for each row instead of gradients
(:mod:`~dualnewton.solvers.direct.row_newton`), unless they have several columns or examples of weight zero. So do all
losses where no gradients are tried; their systems are factorised (:mod:`~dualnewton.solvers.direct.row_factors`).

Losses whose curvature is a constant or zero are minimised over gradients by their quadratic models, as in Newton's method: in few
coordinates many rows can lie on the flat part of the loss, where they contribute no gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dualnewton.losses import Curvature, Squared
from dualnewton.matrix import Data, MemoryData
from dualnewton.objective.alike import like
from dualnewton.objective.coordinates import Factor, in_coordinates
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import value_and_slopes
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct import row_factors, row_newton, row_squares
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Solver, Solvers, Start

INNER = 0.1
"""Relative gap at which the minimisation over a span ends, as a fraction of the last gap of the whole problem."""

OBSERVED = 2
"""Steps over which the decrease of the gap is measured."""

ROUNDING = 1e-14
"""Gaps below this fraction of the objective at w = 0 are left to the factor: rounding of the margins may exceed them."""

DEPENDENT = 1e-10
"""Part of a direction outside the span, as a fraction of its length, below which it is left out."""


def solve(
    problem: Problem,
    block: Block,
    start: Start | None,
    limits: Limits,
    *,
    inner: Solver,  # direct solver of the small problems
    directions: int = 0,  # gradients whose passes cost as much as the factor; 0 to factorise at once
) -> Found:
    """Solve the problem over gradients, or over all rows if ``directions`` of them do not suffice."""
    steps = 0
    if directions and start is None and not block.cache:
        most = min(directions, limits.most)
        if problem.columns == 1 and problem.loss.curvature is Curvature.VARYING and problem.c.all():
            found, done = row_newton.solve(problem, block, limits, block.crossovers.gradient_products * most)
        else:
            found, done = _by_gradients(problem, inner, limits, most, block.crossovers)
        if done or found.steps >= limits.most or limits.is_late():
            return found
        steps = found.steps
    if (exact := _by_products([problem], block, limits._replace(most=limits.most - steps))) is not None:
        return exact[0]._replace(steps=steps + exact[0].steps)
    if start is None and not steps and _takes_row_factors(problem, block):
        found, done = row_factors.solve(problem, block, limits)
        if done or found.steps >= limits.most or limits.is_late():
            return found
        steps = found.steps
    if steps:
        # For quadratic pieces Newton's method needs few steps from any start; a start at zero has no rounding errors.
        start = (found.w, found.intercept) if problem.loss.curvature is Curvature.VARYING else None
    factor, rows = _factor(problem, block)
    own = None if start is None else (factor.coordinates(start[0]), start[1])
    found = inner(factor.problem(problem), rows, own, limits._replace(most=limits.most - steps))
    return found._replace(w=factor.lifted(found.w), steps=steps + found.steps)


def _takes_row_factors(problem: Problem, block: Block) -> bool:
    """Whether Newton's method takes steps on a variable for each row: unless the rows in coordinates are known already."""
    known = problem.regularizer in block.cache or problem.loss.curvature is Curvature.CONSTANT
    return not known and problem.columns == 1 and bool(problem.c.all())


def solve_together(
    problems: Sequence[Problem], block: Block, starts: Sequence[Start | None], limits: Limits, *, inner: Solvers
) -> list[Found]:
    """Solve several problems over all rows by one call of ``inner``, for problems whose systems have the same matrix."""
    if (exact := _by_products(problems, block, limits)) is not None:
        return exact
    factor, rows = _factor(problems[0], block)
    own = [None if start is None else (factor.coordinates(start[0]), start[1]) for start in starts]
    found = inner([factor.problem(problem) for problem in problems], rows, own, limits)
    models = factor.lifted(np.array([each.w for each in found]))
    return [each._replace(w=w) for each, w in zip(found, models, strict=True)]


def _by_products(problems: Sequence[Problem], block: Block, limits: Limits) -> list[Found] | None:
    """Return the solutions of least squares by the products of the rows, unless rounding errors are too large for them."""
    first = problems[0]
    alike = first.columns == 1 and all(problem.lam == first.lam for problem in problems)
    if not alike or first.loss.curvature is not Curvature.CONSTANT:
        return None
    return row_squares.solve(problems, block, limits)


def _factor(problem: Problem, block: Block) -> tuple[Factor, Block]:
    """Return the factor of all rows, and the rows in its coordinates; computed once for all problems of a fit."""
    key = problem.regularizer
    if key not in block.cache:
        made = Factor.of(block.data, key.form.weights, block.cache.get((key, np.float64)))
        block.cache[key] = made, Block(made.matrix, block.crossovers)
    return block.cache[key]


def _by_gradients(
    problem: Problem, inner: Solver, limits: Limits, most: int, crossovers: Crossovers = USUAL
) -> tuple[Found, bool]:
    """Return the minimiser over the span of at most ``most`` gradients of each column, and whether its gap is small enough."""
    data, ridge, vector = problem.data, problem.lam * problem.n, problem.columns == 1
    span = Span(data, most * problem.columns, problem.regularizer.form.weights)
    u, b, steps = np.zeros((problem.columns, 0)), problem.best_intercept_at(problem.o), 0
    first, model, gaps = 0.0, None, list[float]()  # at the minimisers since the model was made
    while True:
        z = span.rows @ (u[0] if vector else u.T) + b
        fresh = model is None
        model = model or _model(problem, z)
        value, slopes = value_and_slopes(model.loss, z, model.row_vectors)
        value = abs(value + 0.5 * ridge * float(np.vdot(u, u)))
        first = first or value
        wanted = WELL_BELOW * limits.tol * value
        gradient = span.scaled(np.atleast_2d(data.transposed_times(slopes).T)) + ridge * (u @ span.basis)
        gaps.append(float(np.vdot(gradient, gradient)) / (2.0 * ridge) + _imbalance(problem, slopes))
        small = gaps[-1] <= wanted
        done = small and (fresh or model is problem)
        able = wanted > ROUNDING * first and not limits.is_late()
        if done or not (able and _suffices(gaps, wanted, most - steps)):
            return Found(span.lifted(u[0] if vector else u), b, steps), done and able
        if small:  # of the model; the next pass is one of the problem itself
            model, gaps = None, []
            continue
        span.extend(gradient)
        steps += 1
        if model.loss.curvature is Curvature.CONSTANT:
            u, b = _least_squares(model, span.rows, ridge)
            continue
        u = np.hstack([u, np.zeros((len(u), span.rows.shape[1] - u.shape[1]))])
        part = in_coordinates(model, MemoryData(span.rows))
        near = INNER * min(1.0, gaps[-1] / value)
        rows, start = Block(part.data, crossovers), (u[0] if vector else u, b)
        found = inner(part, rows, start, Limits(near, deadline=limits.deadline))
        u, b = np.atleast_2d(found.w), found.intercept


def _least_squares(problem: Problem, rows: np.ndarray, ridge: float) -> tuple[np.ndarray, float]:
    """Return u, of shape (1, m), and b of ridge regression on few coordinates: a Newton step takes several times as long."""
    targets = problem.y if problem.offset is None else problem.y - problem.offset
    weighted = rows.T * problem.c
    H, g, total = weighted @ rows, weighted @ targets, float(problem.c.sum())
    mean, target = weighted.sum(axis=1) / total, float(problem.c @ targets) / total
    if problem.fit_intercept:
        H -= np.outer(total * mean, mean)
        g -= total * target * mean
    H.ravel()[:: len(H) + 1] += ridge
    u = np.linalg.solve(H, g)
    return u[None], target - float(mean @ u) if problem.fit_intercept else 0.0


def _imbalance(problem: Problem, slopes: np.ndarray) -> float:
    """Return the slope along the intercept, which counts as a gap."""
    return float(np.abs(slopes.sum(axis=0)).sum()) if problem.fit_intercept else 0.0


def _model(problem: Problem, z: np.ndarray) -> Problem:
    """Return the problem, or its quadratic model at margins z (without offsets) where its curvature is a constant or zero."""
    if problem.loss.curvature is not Curvature.PIECEWISE:
        return problem
    at = problem.row_vectors.shifted(z)
    slopes, curvature = problem.loss.derivative(at, problem.y), problem.loss.second_derivative(at, problem.y)
    curved = curvature > 0.0
    if slopes[~curved].any() or not problem.c[curved].any():
        return problem
    model = like(problem, sample_weight=problem.weighted(curvature))
    targets = at - np.divide(slopes, curvature, out=np.zeros_like(slopes), where=curved)
    object.__setattr__(model, "loss", Squared())
    object.__setattr__(model, "y", targets)
    return model


def _suffices(gaps: list[float], wanted: float, most: int) -> bool:
    """Whether at most so many further gradients are expected to suffice, by the decrease of the gap in the last steps."""
    if most <= 0 or not math.isfinite(gaps[-1]):
        return False
    if len(gaps) <= OBSERVED or gaps[-1] <= wanted:
        return True
    rate = (gaps[-1] / gaps[-1 - OBSERVED]) ** (1.0 / OBSERVED)
    return rate < 1.0 and math.log(wanted / gaps[-1]) / math.log(rate) <= most


class Span:
    """The span of some directions, with an orthonormal basis, in the coordinates √v_j w_j."""

    def __init__(
        self,
        data: Data,  # X
        most: int,  # most directions
        weights: np.ndarray | None,  # (d,) v
    ) -> None:
        self.data, self.scale = data, None if weights is None else 1.0 / np.sqrt(weights)
        self._basis, self._rows, self.size = np.empty((most, data.d)), np.empty((data.n, most)), 0

    @property
    def basis(self) -> np.ndarray:
        """The directions, one per row."""
        return self._basis[: self.size]

    @property
    def rows(self) -> np.ndarray:
        """The rows of X in the coordinates of the basis, of shape (n, size)."""
        return self._rows[:, : self.size]

    def extend(self, directions: np.ndarray) -> None:
        """Add directions, given as rows; what lies in the span but for rounding is left out."""
        least = DEPENDENT * math.sqrt(float(np.vdot(directions, directions)))
        for _ in range(2):  # the second pass removes the rounding errors of the first
            directions = directions - (directions @ self.basis.T) @ self.basis
        if len(directions) == 1:  # SciPy's and NumPy's factorisations take several times as long
            length = math.sqrt(float(np.vdot(directions, directions)))
            new = directions / length if length > least else directions[:0]
        else:
            Q, R = np.linalg.qr(directions.T)
            new = Q.T[np.abs(np.diagonal(R)) > least]
        size = self.size + len(new)
        self._basis[self.size : size] = new
        if len(new):
            images = self.data.times(self.scaled(new[0] if len(new) == 1 else new).T)
            self._rows[:, self.size : size] = images.reshape(self.data.n, -1)
        self.size = size

    def scaled(self, vectors: np.ndarray) -> np.ndarray:
        """Change between w_j and √v_j w_j, or between the slopes along them: both ways divide by √v_j."""
        return vectors if self.scale is None else vectors * self.scale

    def lifted(self, u: np.ndarray) -> np.ndarray:
        """Return w of a point, given in the coordinates of the basis."""
        return self.scaled(u @ self.basis)
