"""Newton's method on a variable for each row, as in ``row_newton.py``, for so few rows that each system is factorised.

The matrix K + λn D⁻¹ of a step, D = diag(c_i φ″_i), differs from that of the step before in its diagonal alone: K = X V⁻¹ Xᵀ is
summed once, in float32 where the rows are dense and not very few. Where the rounding errors of K may change the gap noticeably,
the margins of β are computed from X in float64 from then on, and the systems correct them (iterative refinement).

Losses whose φ″ is one number or zero are minimised by these steps as well. Their α is −φ′, which equals λnβ where no row has left
its parabola; elsewhere φ* of λnβ may be infinite. With r = c φ′ + λnβ the gap is then rᵀKr/(2λn).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix.factors import solved
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, value_and_slopes
from dualnewton.solvers.direct.block import Block, Found, Limits
from dualnewton.solvers.direct.descent import MOST_TRIALS
from dualnewton.solvers.direct.row_newton import BELOW, ROUNDING, TINY, Point, Rows
from dualnewton.solvers.direct.row_squares import ERRORS, expected_gaps, products_of_rows
from dualnewton.solvers.primal.line_search import line_minimum

SMALL = 0.5
"""Largest error of K in float32, relative to the least entry of λn D⁻¹."""


class FactorRows(Rows):
    """n P and n D as functions of β and b, with the products of the rows as a matrix."""

    def __init__(self, problem: Problem, block: Block) -> None:
        self.parabolic, self.is_wide = problem.loss.curvature is Curvature.PIECEWISE, False
        super().__init__(problem, block)

    def products_of_kind(self) -> Callable[[np.ndarray], np.ndarray]:
        problem, gamma = self.problem, self.problem.loss.gamma
        many = problem.n * problem.d >= self.block.crossovers.narrowed_entries
        # The matrix of a system is K + λn D⁻¹, where D ≤ 1/γ; random errors of K have a norm of about √n times that of one.
        error = ERRORS[np.float32] * self.size * math.sqrt(problem.n)
        self.narrow = self.narrow and many and gamma is not None and error <= SMALL * self.ridge * gamma
        self.kind = np.float32 if self.narrow else np.float64
        self.K = products_of_rows(problem, self.block, self.kind)
        return self.K.__matmul__

    def at(self, beta: np.ndarray, image: np.ndarray, b: float) -> Point:
        """Return the point, given Kβ."""
        if not self.parabolic:
            return super().at(beta, image, b)
        value, slopes = value_and_slopes(self.problem.loss, image + b, self.vectors)
        rest, imbalance = slopes + self.ridge * beta, 0.0
        if self.problem.fit_intercept:  # as the certificate balances α
            curved, total = curvature(self.problem.loss, image + b, self.vectors), float(slopes.sum())
            sloping = float(curved.sum())
            imbalance = total * total / sloping if sloping > 0.0 else math.inf
            rest -= (total / sloping if sloping > 0.0 else 0.0) * curved
        gap = float(rest @ (self.K @ rest)) / (2.0 * self.ridge) + imbalance
        return Point(beta, image, b, slopes, value + 0.5 * self.ridge * float(beta @ image), gap)

    def is_exact(self, at: Point, goal: float) -> bool:
        """Whether the rounding errors of K change the gap by a small part of ``goal`` only; those of margins from X do not."""
        if not self.parabolic or self.is_wide:
            return super().is_exact(at, goal)
        return float(expected_gaps(at.beta[None], self.K.diagonal(), self.ridge, ERRORS[self.kind])[0]) <= 0.5 * goal

    def needs_coordinates(self, at: Point, goal: float, steps: int) -> bool:
        """Whether margins in float64 are not exact enough either, as with features of large scale and a weak penalty."""
        due = self.parabolic and not self.narrow and (steps == 1 or at.gap <= goal)
        return due and not self.is_exact(at, goal)

    def widened(self, at: Point) -> Point:
        self.is_wide = True
        return super().widened(at)

    def model(self, at: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the margins without offsets at which the losses are replaced by parabolas, c_i φ′_i and c_i φ″_i."""
        z = at.image + at.b
        return z, at.slopes, curvature(self.problem.loss, z, self.vectors)

    def first_model(self, at: Point) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the same for the first step, at w = 0."""
        if not self.parabolic:
            return self.started(at.b)
        rough = self.problem.loss.rough_fit(self.vectors.y, self.vectors.c)
        if rough is None:
            return self.model(at)
        z = rough.margins if self.vectors.o is None else rough.margins - self.vectors.o
        return z, self.vectors.weighted(rough.slopes), self.vectors.weighted(rough.curvature)


class Step:
    """The solution of the linear system of a step; where rounding has made its matrix indefinite there is none."""

    def __init__(self, rows: FactorRows, at: Point, z: np.ndarray, slopes: np.ndarray, curved: np.ndarray) -> None:
        from scipy.linalg.lapack import dpotrf

        gamma = rows.problem.loss.gamma
        D = np.maximum(curved, TINY * (float(curved.max()) if gamma is None else 1.0 / gamma))
        own, M = rows.ridge / D, rows.K.copy()
        M.reshape(-1)[:: len(M) + 1] += own
        factor, failed = dpotrf(M.T, lower=True, clean=False, overwrite_a=True)
        self.failed = bool(failed) or not math.isfinite(factor[-1, -1])
        if self.failed:
            return
        p, self.b = solved(factor, z - slopes / D - at.image - own * at.beta), 0.0
        if rows.problem.fit_intercept:
            q = solved(factor, np.ones(len(M)))
            self.b = float(p.sum()) / float(q.sum())
            p = p - self.b * q
        self.beta, self.image = at.beta + p, at.image + rows.products(p)


def _accepted(rows: FactorRows, at: Point, step: Step) -> Point | None:
    """Return the point at the end of a step, or a low one on the way to it, where n P is not above that at its start."""
    found, least, t = rows.at(step.beta, step.image, step.b), at.value + ROUNDING * abs(at.value), 1.0
    move, shift, z = step.image - at.image, step.b - at.b, at.image + at.b
    for _ in range(MOST_TRIALS):
        if found.value <= least:
            return found
        if not math.isfinite(found.value):
            return None
        # The penalty on the way is the parabola ½ bent (t + start)², but for a constant.
        bent = rows.ridge * float((step.beta - at.beta) @ move)
        start = rows.ridge * float(at.beta @ move) / (bent or 1.0)
        way = move + shift
        slopes = t * (float(at.slopes @ way) + bent * start), t * (float(found.slopes @ way) + bent * (start + t))
        ends = np.array([start]), np.array([start + t])
        t *= line_minimum(rows.problem.loss, rows.vectors, np.array([bent]), *ends, z, z + t * way, slopes=slopes)
        if t == 0.0:
            return None
        found = rows.at(at.beta + t * (step.beta - at.beta), at.image + t * move, at.b + t * shift)
    return None


def solve(problem: Problem, block: Block, limits: Limits) -> tuple[Found, bool]:
    """Return the minimiser, or where the steps end, and whether its gap is small."""
    goal, steps, done = BELOW * limits.tol, 0, False
    with np.errstate(all="ignore"):  # points that overflow are not accepted
        rows, nothing = FactorRows(problem, block), np.zeros(problem.n)
        at = rows.at(nothing, nothing, problem.best_intercept_without_features())
        model = rows.first_model(at)
        while not (done or limits.is_late() or steps >= limits.most or goal <= ROUNDING):
            step = Step(rows, at, *model)
            if step.failed or (found := _accepted(rows, at, step)) is None:
                break
            stuck = steps > 0 and not found.value < at.value
            steps, at, wanted = steps + 1, found, goal * abs(found.value)
            if rows.needs_coordinates(at, wanted, steps):
                break
            if at.gap <= wanted and not rows.is_exact(at, wanted):
                at, stuck = rows.widened(at), False
            done = at.gap <= wanted
            if stuck:
                break
            model = rows.model(at)
    alpha = rows.alpha(at.beta) if done and not rows.parabolic else None
    return Found(rows.lifted(at.beta), at.b, max(1, steps), alpha), done
