"""Newton's method by products with X, for a smooth loss and a quadratic penalty: sparse rows, and dense ones of many features.

A step solves the Newton system by conjugate gradients, each of which costs a product with X and one with Xᵀ:

    (Xᵀ C X + D(ridge)) s = −g,        C t = φ″(t − 1β),   β = (Σ φ″_i)⁻¹ Σ φ″_i t_i,       φ″_i including the weight c_i

C is what the best intercept leaves of the curvature, so that no direction is without a ridge. The residual r of the system is the
gradient at the end of the step but for the change of the curvature, and gives the gap that is left, Σ r_j²/(2 ridge_j): for the
squared loss one system, solved to the wanted gap, is enough. With K classes t_i has K entries, and φ″_i and Σ φ″_i are K×K.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, curvature_at
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import further, step
from dualnewton.solvers.direct.newton import from_hessian, nothing
from dualnewton.solvers.direct.risk import Point, Risk
from dualnewton.solvers.primal.single_precision import noise_of

INNER = 0.01
"""Largest gap that a Newton system may leave, as a fraction of the last gap; less, near the minimum, where that is smaller."""

NEAR = 0.5
"""Fraction of the wanted gap that the last system may leave: the curvature changes on the way."""

EVEN = 4.0
"""Largest ratio of the largest eigenvalue of XᵀCX to the ridge for which a system needs no scale: some conjugate gradients."""

OBSERVED = 8
"""Conjugate gradients of a system after which the number of further ones is predicted."""

MOST_PRODUCTS = 400
"""Conjugate gradients after which a fit is left to other methods."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits, *, directions: int = 0) -> Found:
    """Take steps until the expected gap is small enough, or the predicted decrease of a step is rounding.

    Parameters
    ----------
    directions : int
        Conjugate gradients that cost as much as other methods. If more of them are expected, the Hessian of dense rows is
        computed, and L-BFGS continues from it; sparse rows are left to the general methods. 0 for no limit.
    """
    risk, goal = Risk.of(problem, block, as_stored=True), WELL_BELOW * limits.tol
    sparse = linear.is_sparse(risk.rows)
    w, b = _constant(problem) if start is None else start
    x = risk.vector(w, b)
    at = risk.at(x, risk.constant(b) if start is None else risk.margins(x))
    gap, steps, products = risk.gap(at), 0, 0
    stuck, first = start is not None and gap <= goal * abs(at.value), None
    begin, constant = gap, problem.loss.curvature is Curvature.CONSTANT
    # The residual of a system with products in float32 is less exact than the gap that is wanted.
    inner, near = 0.0 if constant else INNER, 1.0 if constant and sparse else NEAR
    while steps < limits.most and not stuck:
        left = min(inner, gap / abs(at.value) if at.value else inner) * gap
        system = System.of(risk, at, block, first)
        first = system if first is None else first
        way = system.solved(left, near * goal, MOST_PRODUCTS - products, Pace(directions, begin, products))
        at, stuck = step(risk, at, way.x, margins=way.margins)
        steps, products, gap = steps + 1, products + way.products, risk.gap(at)
        stuck = stuck or gap <= goal * abs(at.value) or products >= MOST_PRODUCTS or limits.is_late()
        if way.slow and (sparse or not _suits_single(problem, block, risk)):
            break
        while way.slow and steps < limits.most and not stuck:
            at, more, stuck = from_hessian(risk, at, goal, limits.deadline)
            steps, stuck = steps + more, stuck or limits.is_late()
    return Found(*risk.model(at.x), max(steps, math.ceil(0.5 * products)))


def _suits_single(problem: Problem, block: Block, risk: Risk) -> bool:
    """Whether L-BFGS from a Hessian in single precision is expected to end at the minimum.

    General methods update their Hessian by the rows whose curvature changed, and sum it in float64 where features have scales
    so different that float32 loses them.
    """
    if problem.loss.curvature is Curvature.PIECEWISE:
        return False
    sums = block.squared_sums(np.full(problem.n, 1.0 / (problem.loss.gamma or 1.0)))
    return noise_of(sums, risk.ridge[: problem.d]) <= block.crossovers.single_noise


def _constant(problem: Problem) -> Start:
    """Return w = 0, for least squares with the best intercept: its system then knows the value at its end."""
    w, b = nothing(problem)
    return w, problem.best_intercept_without_features() if problem.loss.curvature is Curvature.CONSTANT else b


class Pace(NamedTuple):
    """How far a fit has come before a system."""

    most: int = 0  # conjugate gradients that cost as much as a Hessian; 0 for no limit
    first: float = 0.0  # gap at the start of the fit
    products: int = 0  # conjugate gradients so far

    def is_slow(self, more: int, first: float, gap: float, goal: float) -> bool:
        """Whether the fit is expected to need more of them than that, given the number and the first gap in the last system.

        The gap may rise at the start of a system, and from one to the next: the fit is slow if both decreases are.
        """
        products = self.products + more
        if not self.most or gap <= goal:
            return False
        if more < OBSERVED:
            return products > self.most
        return products + min(further(first, gap, goal, more), further(self.first, gap, goal, products)) > self.most


ANY = Pace()
"""No limit: a system is solved by as many conjugate gradients as it needs."""


class Way(NamedTuple):
    """A step, its margins, the conjugate gradients that it took, and whether it ended early because these were slow."""

    x: np.ndarray
    margins: np.ndarray
    products: int
    slow: bool


@dataclass(frozen=True, eq=False)
class System:
    """The Newton system at a point, with unknowns of shape (d,) or (d, K)."""

    risk: Risk  # objective
    at: Point  # point
    curved: Callable[[np.ndarray], np.ndarray]  # t ↦ φ″t
    # (d,) λn v_j and 1/(2 λn v_j).
    ridge: np.ndarray
    halves: np.ndarray
    means: Any  # weighted means of the squares of the features, if the system is scaled by its diagonal; else 0
    inverse: np.ndarray  # inverse of the diagonal, or of the ridge
    of_intercept: Any  # (K, K) (Σ φ″_i)⁻¹; zero without an intercept

    @classmethod
    def of(cls, risk: Risk, at: Point, block: Block, first: System | None) -> System:
        """Return the system, scaled by its diagonal if a few features have most of its trace.

        The diagonal costs a product: later systems take that of the first one, times the ratio of their mean curvatures. No
        scale is needed where ‖X‖² max φ″, a bound of the largest eigenvalue of XᵀCX, is a small multiple of the ridge.
        """
        d, K = risk.rows.shape[1], risk.loss.columns
        ridge, halves = (risk.ridge[:d], risk.halves[:d]) if K == 1 else (risk.ridge[:d, None], risk.halves[:d, None])
        weights = curvature(risk.loss, at.margins, risk.vectors)
        curved = curvature_at(risk.loss, at.margins, risk.vectors)
        mass = float(weights.sum())
        if first is not None:
            means = first.means
        elif block.data.norm**2 * float(weights.max()) <= EVEN * float(ridge.min()):
            means = 0.0
        else:
            equal = risk.loss.curvature is Curvature.CONSTANT and risk.vectors.c is None
            sums = block.squared_sums(weights, equal=equal)
            diagonal = sums + ridge
            trace = float(diagonal.sum())
            heavy = float(diagonal[diagonal * diagonal.size > block.crossovers.heavy_feature * trace].sum())
            means = sums / (mass or 1.0) if heavy > block.crossovers.heavy_trace * trace else 0.0
        of_intercept: Any = 0.0
        if risk.free and K == 1:
            of_intercept = 1.0 / (mass or np.inf)
        elif risk.free:
            sums = np.array([curved(np.broadcast_to(unit, weights.shape)).sum(axis=0) for unit in np.eye(K)])
            # Adding a number to all intercepts changes nothing: see ``Risk.hessian``.
            of_intercept = np.linalg.inv(sums + (sums.trace() / K**2 or 1.0))
        return cls(risk, at, curved, ridge, halves, means, 1.0 / (mass * means + ridge), of_intercept)

    def best_intercept(self, slopes: np.ndarray) -> Any:
        """Return the intercept whose margins have slopes with the same sums."""
        return slopes.sum(axis=0) @ self.of_intercept if slopes.ndim > 1 else float(slopes.sum()) * self.of_intercept

    def solved(self, left: float, goal: float, most: int, pace: Pace = ANY) -> Way:
        """Return the solution that leaves a gap of at most ``left``, or ``goal`` relative to the objective at its end.

        It is left earlier if the pace so far is too slow.
        """
        risk, (rows, transposed), free = self.risk, self.risk.multiplied, self.risk.free
        single = not linear.is_sparse(rows)
        d, K, value, products, slow = rows.shape[1], risk.loss.columns, self.at.value, 0, False
        G = self.at.gradient.reshape(K, -1).T
        r, slope = -(G[:d] if K > 1 else G[:d, 0]), G[d] if free else None
        start: Any = 0.0
        if slope is not None:
            start = -(slope @ self.of_intercept if K > 1 else float(slope[0]) * self.of_intercept)
            decrease = -0.5 * float(np.vdot(slope, start))
            if decrease > risk.rounding * abs(value):
                value -= decrease
                r -= risk.transposed @ self.curved(np.broadcast_to(start, self.at.margins.shape))
            else:
                start = 0.0
        s, images, p, last = np.zeros(r.shape), np.zeros(self.at.margins.shape), np.zeros(r.shape), 1.0
        gap = begin = float(np.vdot(r, self.halves * r))
        while products < most and gap > max(left, goal * abs(value)) and not slow:
            q = self.inverse * r
            square = float(np.vdot(r, q))
            p *= square / last
            p += q
            image = rows @ (p.astype(rows.dtype) if single else p)
            slopes = self.curved(image)
            if free:
                slopes -= self.curved(np.broadcast_to(self.best_intercept(slopes), slopes.shape))
            Hp = transposed @ (slopes.astype(rows.dtype) if single else slopes) + self.ridge * p
            t = square / float(np.vdot(p, Hp))
            s += t * p
            images += t * image
            r -= t * Hp
            value -= 0.5 * t * square
            last, products = square, products + 1
            gap = float(np.vdot(r, self.halves * r))
            slow = pace.most > 0 and pace.is_slow(products, begin, gap, goal * abs(value))
        b = start - self.best_intercept(self.curved(images)) if free else 0.0
        return Way(risk.vector(s.T, b), images + b, products, slow)
