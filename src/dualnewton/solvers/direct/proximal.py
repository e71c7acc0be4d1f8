"""Proximal Newton steps for a smooth loss of one column with a threshold for each feature: l1 logistic regression.

    n P(w, b) = Σ c_i φ_i(x_iᵀw + b) + Σ_j ½ ridge_j w_j² + threshold_j |w_j|

Each step 1. adds features that violate the optimality conditions to those gathered, 2. minimises the quadratic model of the
losses plus the penalty over these features and the intercept, which is eliminated (``active_set.py``), 3. moves towards that
minimum by a step that fulfils Armijo's rule, and 4. computes the slopes of all features and the gap there.

The fit ends at a minimum of the quadratic model where the slopes of that model prove it. They fulfil the optimality conditions
exactly, so that their gap is of fourth order in the step. Those of the losses violate them by a term of second order, by which
α must be shortened: their gap is of second order, and is small one to three steps later.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import value_and_slopes
from dualnewton.solvers.direct.active_set import Columns, Gram, Kinks, Matrix, Model
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.thresholds import features_to_add, kinks_of
from dualnewton.solvers.primal.line_search import first_length
from dualnewton.solvers.prox.gaps import value_and_gap

SUFFICIENT, HALVINGS = 1e-4, 30
"""Armijo's fraction of the predicted decrease, and halvings of a step at most."""

ROUNDING, IN_VAIN = 1e-14, 2
"""Relative change of the objective that counts as rounding; and steps in a row without progress that end the fit."""

SHORT, MORE, LEAST_DAMPING = 0.3, 4.0, 1e-3
"""After a step shorter than this fraction the curvature is increased by a share of its upper bound: the factor by which the
share grows, and falls after longer steps, and its least value. Where φ″ is mostly zero, the quadratic model is too flat."""

STEEP, LONGEST, SECANTS = 0.15, 4.0, 2
"""A whole step is lengthened where its end has more than this fraction of the slope at its start; the factor of one lengthening
at most, and the number of them at most."""

CURVED = 4.0
"""Most (Σ φ″t²)²/n, in units of the largest φ″ and of the wanted gap, for which the slopes of the quadratic model are tried, as
in ``newton.py``: the margins of many rows move too far otherwise."""

INNER, LOOSELY = 0.1, 0.03
"""Violation that the minimum of the quadratic model may leave, as a fraction of the wanted and of the present relative gap."""

SHARE = 0.2
"""Decrease of the quadratic model that its minimisation may forgo, as a share of the decrease achieved, times the present
relative gap: the next model differs from this one."""


class Point(NamedTuple):
    """w and b, the margins without offsets, Σ c_i φ_i, the derivatives c_i φ′_i, and the penalty."""

    w: np.ndarray
    b: float
    z: np.ndarray
    losses: float
    mass: np.ndarray
    penalty: float

    @property
    def value(self) -> float:
        """n P."""
        return self.losses + self.penalty


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Take steps until the expected gap is small enough, or the objective no longer decreases."""
    kinks, task = kinks_of(problem), Task(problem, block, limits.tol)
    at, damping = task.start(kinks, start), 0.0
    best, least, before, in_vain, steps = at, np.inf, np.inf, 0, 0
    while True:
        slopes, slope = at.mass @ task.values, float(np.add.reduce(at.mass)) if problem.fit_intercept else 0.0
        gap = value_and_gap(problem, at.w, at.losses, slopes, at.penalty)[1] + abs(slope)
        falls = at.value < before - ROUNDING * abs(at.value)
        in_vain, before = 0 if falls or gap < 0.5 * least else in_vain + 1, at.value
        if gap < least:
            best, least = at, gap
        if gap <= WELL_BELOW * limits.tol * abs(at.value) or steps >= limits.most or limits.is_late():
            break
        more = task.inside[:0]
        if task.inside.size < problem.d:
            more = features_to_add(kinks.shrunk(-slopes), task.inside, problem.n, block.crossovers)
        if not more.size and in_vain > IN_VAIN:
            break
        task.gather(more)
        at, t, alpha = task.step(at, slopes, slope, kinks, min(1.0, gap / abs(at.value)), damping, limits)
        if alpha is not None:
            return Found(at.w, at.b, steps + 1, alpha)
        damping = (
            max(MORE * damping, LEAST_DAMPING) if t < SHORT else damping / MORE if damping > LEAST_DAMPING else 0.0
        )
        steps += 1
    return Found(best.w, best.b, max(steps, 1))


class Task:
    """The rows of a problem, and the features gathered of them.

    Attributes
    ----------
    values : array or CSR array of shape (n, d)
        The rows, sparse if that makes products with them cheaper.
    inside : integer array of shape (m,)
        The features gathered.
    places : slice or integer array
        The same as an index, which copies nothing where all features were gathered at once.
    whole : bool
        Whether they were, so that they are in order.
    gathered : array of shape (d, n)
        Memory for all features, of which the first rows are those in use. (Without it, each gathering copies all earlier ones.)
    A : array of shape (n, m)
        Their columns.
    most, exchanged : int
        The most features whose matrix is formed, and the most of a model that exchanges them one by one (``Model.minimise``).
    """

    def __init__(self, problem: Problem, block: Block, tol: float) -> None:
        self.problem, self.block, self.values, self.tol = problem, block, block.light, tol
        self.most = max(problem.n, block.crossovers.wide_matrix)
        self.exchanged = block.crossovers.exchanged_coordinates
        self.inside, self.gathered = np.empty(0, dtype=np.intp), np.empty((problem.d, problem.n))
        self.places: Any = self.inside
        self.whole = False
        self.A = self.gathered[:0].T

    def start(self, kinks: Kinks, start: Start | None) -> Point:
        """Return the point where the steps begin: w = 0 with its best intercept, if none is given."""
        problem = self.problem
        if start is None:
            w, z = np.zeros(problem.d), np.zeros(problem.n)
            b = float(problem.best_intercept_at(z if problem.offset is None else problem.offset))
        else:
            w, b = kinks.nearest(np.asarray(start[0])), float(start[1])
            self.gather(w.nonzero()[0])
            z = self.A @ w[self.inside]
        return self.point(w, b, z + b, kinks.value(w))

    def point(self, w: np.ndarray, b: float, z: np.ndarray, penalty: float) -> Point:
        """Return the point with its losses, derivatives and penalty, computed from its margins."""
        losses, mass = value_and_slopes(self.problem.loss, z, self.problem.row_vectors)
        return Point(w, b, z, losses, mass, penalty)

    def gather(self, features: np.ndarray) -> None:
        """Add features."""
        if features.size == self.problem.d:
            self.inside, self.places, self.whole, self.A = features, slice(None), True, self.block.rows
        elif features.size:
            old, self.inside = self.inside.size, np.concatenate([self.inside, features])
            self.places = self.inside
            self.gathered[old : self.inside.size] = self.block.columns(features)
            self.A = self.gathered[: self.inside.size].T

    def step(
        self, at: Point, slopes: np.ndarray, slope: float, kinks: Kinks, far: float, damping: float, limits: Limits
    ) -> tuple[Point, float, np.ndarray | None]:
        """Return the first point towards the minimum of the quadratic model that fulfils Armijo's rule, and the step length.

        The third value is a dual point that proves this point, if there is one. ``far`` is the present relative gap, at most one.
        """
        inside, whole = self.places, self.whole
        old, own = (at.w, slopes) if whole else (at.w[inside], slopes[inside])
        weights = self.problem.row_curvature(at.z)
        if damping and self.problem.loss.gamma:
            weights = weights + (damping / self.problem.loss.gamma) * self.problem.c
        gram, border, corner = self._curvature(weights)
        part = kinks if whole else kinks.only(inside)
        model = Model(gram, own - slope * border if slope else own, old, part)
        goal = max(INNER * self.tol, LOOSELY * far)
        end = model.minimise(goal, limits.is_late, SHARE * far, self.exchanged)
        move = end - old
        shift = -slope * corner - float(border.dot(move))
        way = self.A.dot(move)
        way += shift
        w = end if whole else self._moved(at, move, 1.0)
        penalty = kinks.value(w)
        predicted = float(own.dot(move)) + slope * shift + penalty - at.penalty
        t = first_length(self.problem.loss, way)
        for _ in range(HALVINGS):
            if t < 1.0:
                w = self._moved(at, move, t)
                penalty = kinks.value(w)
            found = self.point(w, at.b + t * shift, at.z + (way if t == 1.0 else t * way), penalty)
            if found.value <= at.value + SUFFICIENT * t * predicted + ROUNDING * abs(at.value):
                alpha = self._linear_slopes(at, found, way, weights, model.exact) if t == 1.0 else None
                if t == 1.0 and alpha is None and self.problem.loss.curvature is Curvature.VARYING:
                    found = self._further(at, found, move, shift, way, predicted, kinks)
                return found, t, alpha
            t *= 0.5
        return at, 0.0, None

    def _linear_slopes(
        self, at: Point, end: Point, way: np.ndarray, weights: np.ndarray, exact: bool
    ) -> np.ndarray | None:
        """Return α for c_i α_i = −c_i φ′_i − weights_i t_i, with the margins t of a whole step, if it proves the end of the step.

        ``exact`` says that the end is the minimum of the quadratic model. Where that includes all features, α needs no
        shortening, and w is the model of α: the gap is what Σ c_i (φ + φ*) exceeds −Σ c_i α_i z_i by.
        """
        problem, curved = self.problem, weights * way
        wanted, most = WELL_BELOW * self.tol * abs(end.value), 1.0 / (problem.loss.gamma or 1.0)
        if float(way.dot(curved)) ** 2 > CURVED * most * wanted * problem.n:
            return None
        (y, c, offset), mass = problem.row_vectors, -at.mass - curved
        alpha = mass if c is None else np.divide(mass, c, out=np.zeros(problem.n), where=c > 0.0)
        conjugates = problem.loss.conjugates(alpha, y, c) + (0.0 if offset is None else float(mass @ offset))
        gap = end.losses + float(mass.dot(end.z)) + conjugates
        if gap > wanted or (exact and self.inside.size == problem.d):
            return alpha if gap <= wanted else None
        scale = problem.lam * problem.n
        bar = mass @ self.values / scale
        if (r := problem.g.reach(bar)) < 1.0:
            alpha, bar = r * alpha, r * bar
            conjugates = problem.loss.conjugates(alpha, y, c) + (0.0 if offset is None else r * float(mass @ offset))
        gap = end.value + scale * problem.g.conjugate(bar) + conjugates
        return alpha if gap <= wanted else None

    def _further(
        self, at: Point, found: Point, move: np.ndarray, shift: float, way: np.ndarray, predicted: float, kinks: Kinks
    ) -> Point:
        """Return a point beyond a whole step, where the objective still falls steeply, if it is lower.

        Where φ″ falls along the way, as that of the logistic loss does far from the minimum, whole steps are too short. A
        secant of the slope costs the losses of one point, a step also those of a Hessian.
        """
        t = 1.0
        if not float(found.mass.dot(way)) + found.penalty - at.penalty < STEEP * predicted:
            return found  # the penalty is convex: its slope at the end is no less
        for _ in range(SECANTS):
            longer = self._moved(at, move, t + 1.0)
            slope = float(found.mass.dot(way)) + kinks.value(longer) - found.penalty
            if not slope < STEEP * predicted:
                break
            rise = slope - predicted
            t = min(t - t * slope / rise, LONGEST * t) if rise > 0.0 else LONGEST * t
            w = self._moved(at, move, t)
            new = self.point(w, at.b + t * shift, at.z + t * way, kinks.value(w))
            if not new.value < found.value:
                break
            found = new
        return found

    def _moved(self, at: Point, move: np.ndarray, t: float) -> np.ndarray:
        """Return w + t · move, where the move concerns the features inside."""
        w = at.w.copy()
        w[self.places] += t * move
        return w

    def _curvature(self, weights: np.ndarray) -> tuple[Gram, np.ndarray, float]:
        """Return H of the features inside with the intercept eliminated, its means by the weights, and 1/Σ weights."""
        total = float(np.add.reduce(weights)) if self.problem.fit_intercept else 0.0
        n, m = self.A.shape
        roots = np.sqrt(weights)[:, None]
        if total > 0.0:
            means, corner = weights.dot(self.A) / total, 1.0 / total
        else:
            means, corner = np.zeros(m), 0.0
        if m > self.most:
            return Columns(roots * (self.A - means)), means, corner
        B = roots * self.A
        H = np.dot(B.T, B)
        if corner:
            H -= (total * means)[:, None] * means
        return Matrix(H, n), means, corner
