"""Huber's regression with a joint scale on small data: Newton's method in all variables, from the least-squares fit.

    n P(x, σ) = Σ c_i (σ/2 + ψ_i (r_i − σψ_i/2)) + ½ Σ ridge_j x_j²,      r_i = ã_iᵀx − y_i,  ψ_i = r_i/σ clipped to ±ε,

with ã_i = (a_i, 1), x = (w, b) and no ridge on b (:mod:`~dualnewton.objective.huber_scale`). At every point σ is the best one for
the residuals, and a step is Newton's for the minimum over σ. The Hessian is that of the inliers I, those with |r_i| ≤ εσ:
(1/σ) Σ_I c_i v_i v_iᵀ with v_i = (ã_i, −ψ_i). From step to step Σ_I c_i ã_i ã_iᵀ changes by the examples that enter or leave I.
The gap grows in proportion to the distance of b from its best value, so that the slope along b is added to the expected gap.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dposv

from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.solvers.crossovers import USUAL
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start

TRIALS, SHRINK, SUFFICIENT = 20, 0.4, 1e-4
"""Number of step lengths that are tried, ratio of each to the one before, and fraction of the predicted decrease that a step must
reach (Armijo's rule)."""

ROUNDING, HALVED = 1e-14, 0.5
"""Relative change of the objective that counts as rounding, and the factor by which a step of that size must reduce the gap."""

SETTLED, MOST = 1e-14, 100
"""Relative change of the scale that ends its search, and steps after which it has failed."""

ZERO = 1e-14
"""A scale below this fraction of the largest target is zero up to rounding, and has no Newton step."""

LIFTS = (1e-15, 1e-11, 1e-7, 1e-3)
"""Fractions of its diagonal that are added to the Hessian, in turn, until it has a Cholesky factor: with too few inliers it is
singular."""

SLOW = 6
"""Number of steps without halving the expected gap after which Newton's method ends: where the best scale is nearly zero it takes
very many, and interior-point steps are used instead (``solvers/outer/scale_search.py``)."""


class Point(NamedTuple):
    """x and σ with residuals r, ψ, the inliers, n P and its gradient in x (that in σ is zero)."""

    x: np.ndarray
    scale: float
    r: np.ndarray
    psi: np.ndarray
    inliers: np.ndarray
    value: float
    gradient: np.ndarray


class Objective:
    """n P of a problem on its rows.

    Parameters
    ----------
    problem : HuberScaleProblem
        The problem.
    rows : array of shape (n, d) or (n, d + 1)
        ã_i.
    updated_share : float
        Share of the examples that must have changed sides for the sum over the inliers to be computed anew.
    """

    def __init__(
        self, problem: HuberScaleProblem, rows: np.ndarray, updated_share: float = USUAL.updated_share
    ) -> None:
        unit, self.updated_share = problem.unit, updated_share
        self.rows, self.y, self.c, self.epsilon = rows, unit.y, unit.c, problem.epsilon
        self.total, self.d = float(self.c.sum()), unit.d
        self.least = ZERO * float(np.abs(self.y).max(initial=0.0))
        self.ridge = np.zeros(rows.shape[1])
        self.ridge[: self.d] = problem.lam * unit.n
        self.first = self.d if problem.lam > 0.0 else 0  # of the variables without a ridge
        self.moments, self.counted = np.zeros((0, 0)), np.zeros(0, dtype=bool)

    def started(self) -> Point | None:
        """Return the least-squares fit, and the root mean square of its residuals as the scale."""
        self.counted = np.ones(len(self.y), dtype=bool)
        self.moments = self._moments(self.counted)
        squares = np.diagonal(self.moments)
        self.units = np.sqrt(self.total / np.where(squares > 0.0, squares, self.total))
        x = _solved(self.moments, self.ridge, (self.c * self.y) @ self.rows)
        if x is None:
            return None
        return self.at(x, self.rows @ x - self.y, math.inf)

    def at(self, x: np.ndarray, r: np.ndarray, near: float) -> Point | None:
        """Return the point with these residuals, and the scale that is best for them; None if that is zero."""
        if not (scale := self.best_scale(r, near)) > 0.0:
            return None
        ratio = r / scale
        psi = np.minimum(np.maximum(ratio, -self.epsilon), self.epsilon)
        mass, pull = self.c * psi, self.ridge * x
        value = 0.5 * scale * self.total + float(mass @ (r - 0.5 * scale * psi)) + 0.5 * float(pull @ x)
        return Point(x, scale, r, psi, psi == ratio, value, mass @ self.rows + pull)

    def best_scale(self, r: np.ndarray, near: float) -> float:
        """Solve Σ c_i ψ_i² = Σ c_i for σ, from a scale that is near; zero if there is no solution.

        The sum of c_i min(s r_i², ε²) is a concave, piecewise linear function of s = 1/σ²: Newton's method reaches the solution
        from below, whatever its start, in finitely many steps. No σ exceeds the root mean square of r.
        """
        squares = r * r
        masses = self.c * squares
        most = math.sqrt(float(masses.sum()) / self.total)
        scale, bound = min(near, most), self.epsilon**2
        for _ in range(MOST):
            inliers = squares <= bound * scale * scale
            left = self.total - bound * (self.total - float(self.c @ inliers))
            found = math.sqrt(float(masses @ inliers) / left) if left > 0.0 else most
            if abs(found - scale) <= SETTLED * scale:
                return found if found > self.least else 0.0
            scale = found
        return 0.0

    def gap(self, at: Point) -> float:
        """n(P − D) for the dual point that belongs to a point; without a ridge, by the change of x_j that moves r by σ."""
        slopes = np.abs(at.gradient)
        free = at.scale * float(slopes[self.first :] @ self.units[self.first :])
        own = slopes[: self.first]
        return 0.5 * float((own * own) @ (1.0 / self.ridge[: self.first])) + free

    def step(self, at: Point) -> Point | None:
        """Return the point after one Newton step, shortened until P decreases; None if the change of P would be rounding."""
        step = self._newton(at)
        if step is None:
            return None
        slope, rounding = float(at.gradient @ step), ROUNDING * abs(at.value)
        way, t = self.rows @ step, 1.0
        for _ in range(TRIALS):
            found = self.at(at.x + t * step, at.r + t * way, at.scale)
            if found is not None and found.value <= at.value + SUFFICIENT * t * slope + rounding:
                # Steps that change P by rounding alone still improve the dual point, for a while.
                return found if slope < -rounding or self.gap(found) < HALVED * self.gap(at) else None
            t *= SHRINK
        return None

    def _newton(self, at: Point) -> np.ndarray | None:
        """Return the Newton step in x for the minimum over σ, whose elimination from the joint Hessian takes a rank-one term."""
        self._count(at.inliers)
        inner = np.where(at.inliers, self.c * at.psi, 0.0)
        along, own = inner @ self.rows, float(inner @ at.psi)
        H = self.moments - np.outer(along, along) / own if own > 0.0 else self.moments
        return _solved(H, at.scale * self.ridge, -at.scale * at.gradient)

    def _count(self, inliers: np.ndarray) -> None:
        """Update the sum over the inliers by the examples that have entered or left them."""
        changed = np.flatnonzero(inliers != self.counted)
        if len(changed) > self.updated_share * len(inliers):
            self.moments = self._moments(inliers)
        elif len(changed):
            rows, signs = self.rows[changed], np.where(inliers[changed], self.c[changed], -self.c[changed])
            self.moments = self.moments + (rows.T * signs) @ rows
        self.counted = inliers

    def _moments(self, inliers: np.ndarray) -> np.ndarray:
        """Σ_I c_i ã_i ã_iᵀ."""
        scaled = self.rows * np.sqrt(np.where(inliers, self.c, 0.0))[:, None]
        return scaled.T @ scaled


def solve(problem: HuberScaleProblem, block: Block, start: Start | None, limits: Limits) -> Found:  # noqa: ARG001
    """Take Newton steps until the expected gap is small enough, or no step decreases the objective.

    A start is not used: it has no scale, and the least-squares fit costs less than a step.
    """
    with np.errstate(all="ignore"):  # the certificate would show a point that overflow has made wrong
        rows = block.extended if problem.fit_intercept else block.rows
        objective = Objective(problem, rows, block.crossovers.updated_share)
        at, steps = objective.started(), 1
        if at is None:
            return Found(np.zeros(problem.d), 0.0, steps, scale=0.0)
        least, slow = math.inf, 0
        while steps < limits.most and slow < SLOW and not limits.is_late():
            gap = objective.gap(at)
            if gap <= WELL_BELOW * limits.tol * abs(at.value) or (moved := objective.step(at)) is None:
                break
            least, slow = (gap, 0) if gap < HALVED * least else (least, slow + 1)
            at, steps = moved, steps + 1
    b = float(at.x[problem.d]) if problem.fit_intercept else 0.0
    return Found(at.x[: problem.d].copy(), b, steps, scale=at.scale)


def _solved(H: np.ndarray, ridge: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """(H + D(ridge))⁻¹ right, with a larger diagonal if rounding has made the matrix indefinite; None if that fails."""
    lifted = H + 0.0
    diagonal = lifted.ravel()[:: len(H) + 1]
    diagonal += ridge
    own = diagonal.copy()
    for lift in LIFTS:
        diagonal += lift * own
        _, x, failed = dposv(lifted.T, right)
        if not failed and np.isfinite(x).all():
            return np.asarray(x)
    return None
