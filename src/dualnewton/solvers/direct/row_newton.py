"""More features than examples, a quadratic penalty and a loss of varying curvature: Newton's method on a variable for each row.

    n P(w, b) = Σ c_i φ_i(a_iᵀw + b + o_i) + ½ λn Σ_j v_j w_j²,      w = V⁻¹Xᵀβ,   K = X V⁻¹ Xᵀ,   λn β_i = c_i α_i

A step replaces the losses by their quadratic models at margins z (without offsets) and solves, with D = diag(c_i φ″_i),

    K β + λn D⁻¹β + b 1 = z − D⁻¹(c_i φ′_i),        1ᵀβ = 0 with an intercept,

by conjugate gradients, which cost a product with X and one with Xᵀ each; 1/(mean K_ii + λn/D_ii) scales them. The residual ρ of
this system is what the margins lack of those at which −φ′ would be α. Since w is that of α, the gap of the pair is a sum over rows,

    n(P − D) = Σ c_i (φ_i(s_i) + φ_i*(−α_i) + α_i s_i) ≈ ½ ρᵀDρ,        s = Xw + b + o,

while that of (w, −φ′(s)) is about (Dρ)ᵀK(Dρ)/(2λn): larger by K D/λn, which is 10⁸ for features of large scale. Ten to twenty
products suffice for rows in general position; the n×n matrix K costs more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, value_and_slopes
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits
from dualnewton.solvers.direct.descent import further_steps

INNER = 0.1
"""Largest part of the gap at the start of a step that its system leaves; less, near the minimum, where that part is smaller."""

NEAR = 0.5
"""Fraction of the wanted gap that the last system leaves."""

ALONE = 10
"""Newton steps for the margins of rows at which a fit begins."""

TRIALS = 8
"""Number of step lengths that are tried, each half of the one before."""

FLOOR = 1e-12
"""Least curvature of a row, as a fraction of the largest."""

SINGLE, NOTICED = 2e-7, 0.1
"""Error of a margin in float32 relative to ‖a_i‖‖w‖, and the part of the wanted gap that such errors may cause."""

LARGE = 1e15
"""Norm of X up to which, and inverse of that from which on, products in float32 neither overflow nor vanish."""


class Point(NamedTuple):
    """β and b with Kβ, the slopes c_i φ′_i, n P, and the gap n(P − D) of w and α."""

    beta: np.ndarray
    image: np.ndarray
    b: float
    slopes: np.ndarray
    value: float
    gap: float


class Rows:
    """n P and n D as functions of β and b."""

    def __init__(self, problem: Problem, block: Block) -> None:
        self.problem, self.data, self.vectors = problem, problem.data, problem.row_vectors
        self.ridge, self.penalty = problem.lam * problem.n, problem.regularizer.form.weights
        self.size = self.data.norm**2 / problem.n  # mean of ‖a_i‖²
        if self.penalty is not None:
            self.size /= float(self.penalty.mean())
        self.narrow = not self.data.profile.sparse and 1.0 / LARGE <= self.data.norm <= LARGE
        self.products = self._products(block)

    def _products(self, block: Block) -> Callable[[np.ndarray], np.ndarray]:
        """Return β ↦ Kβ, in float32 for dense rows, which takes half the time."""
        rows = block.stored if self.data.profile.sparse else block.rows
        kind = np.float32 if self.narrow else np.float64
        rows = rows if rows.dtype == kind else rows.astype(kind)
        images, sums = linear.multiplied(rows), linear.multiplied(linear.transposed(rows))
        scale = None if self.penalty is None else (1.0 / self.penalty).astype(kind)

        def product(p: np.ndarray) -> np.ndarray:
            w = sums(p.astype(kind, copy=False))
            return images(w if scale is None else w * scale).astype(np.float64, copy=False)

        return product

    def lifted(self, beta: np.ndarray) -> np.ndarray:
        """Return w, in float64."""
        w = self.data.transposed_times(beta)
        return w if self.penalty is None else w / self.penalty

    def at(self, beta: np.ndarray, image: np.ndarray, b: float) -> Point:
        """Return the point, given Kβ."""
        z = image + b
        value, slopes = value_and_slopes(self.problem.loss, z, self.vectors)
        penalty = 0.5 * self.ridge * float(beta @ image)
        alpha = self.alpha(beta)
        gap = value + self.problem.loss.conjugates(alpha, self.vectors.y, self.vectors.c)
        return Point(beta, image, b, slopes, value + penalty, gap + self.ridge * float(beta @ self.vectors.shifted(z)))

    def alpha(self, beta: np.ndarray) -> np.ndarray:
        """Return the dual point of which w is the model."""
        alpha = self.ridge * beta
        return alpha if self.vectors.c is None else alpha / self.vectors.c

    def started(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return margins z, c_i φ′_i and c_i φ″_i: from the labels, or where each row would be fitted if it were the only one.

        A row alone has the margin that minimises c_i φ_i(z) + ½ (λn/‖a_i‖²) z²; rows in general position have about these.
        """
        loss, (y, c, o) = self.problem.loss, self.vectors
        if (rough := loss.rough_fit(y, c)) is not None:
            z = rough.margins if o is None else rough.margins - o
            return z, self.vectors.weighted(rough.slopes), self.vectors.weighted(rough.curvature)
        z, pull = np.zeros(self.problem.n), self.ridge / (self.size or 1.0)
        for _ in range(ALONE):
            slopes, curved = loss.derivatives(self.vectors.shifted(z), y)
            z = z - (self.vectors.weighted(slopes) + pull * z) / (self.vectors.weighted(curved) + pull)
        slopes, curved = loss.derivatives(self.vectors.shifted(z), y)
        return z, self.vectors.weighted(slopes), self.vectors.weighted(curved)

    def is_exact(self, at: Point, goal: float) -> bool:
        """Whether errors of products in float32 change the gap by a small part of ``goal`` only."""
        if not self.narrow:
            return True
        w = max(float(at.beta @ at.image), 0.0)
        mass = float(curvature(self.problem.loss, at.image + at.b, self.vectors).sum())
        return 0.5 * mass * SINGLE**2 * self.size * w <= NOTICED * goal


class System:
    """The linear system of a step, and its solution so far."""

    def __init__(self, rows: Rows, at: Point, z: np.ndarray, slopes: np.ndarray, curved: np.ndarray) -> None:
        self.rows, self.D = rows, np.maximum(curved, FLOOR * float(curved.max()))
        self.own, self.total, self.free = rows.ridge / self.D, float(self.D.sum()), rows.problem.fit_intercept
        self.beta, self.image = at.beta, at.image
        self.residual = z - slopes / self.D - at.image - self.own * at.beta
        self.inverse = 1.0 / (rows.size + self.own)
        self.scale = float(self.inverse.sum())
        self.count = 0  # products

    @property
    def b(self) -> float:
        """The best intercept."""
        return float(self.D @ self.residual) / self.total if self.free else 0.0

    def gap(self) -> float:
        """½ ρᵀDρ."""
        rest = self.residual - self.b
        return 0.5 * float(rest @ (self.D * rest))

    def solve(self, left: float, most: int) -> None:
        """Take conjugate gradients until the gap is at most ``left``, or there are ``most`` of them."""
        q = self._scaled()
        square, p = float(self.residual @ q), q
        while self.count < most and self.gap() > left:
            image = self.rows.products(p)
            along = image + self.own * p
            t = square / float(p @ along)
            self.beta, self.image = self.beta + t * p, self.image + t * image
            self.residual = self.residual - t * along
            q, last = self._scaled(), square
            square = float(self.residual @ q)
            p, self.count = q + (square / last) * p, self.count + 1

    def _scaled(self) -> np.ndarray:
        q = self.inverse * self.residual
        return q - (float(q.sum()) / self.scale) * self.inverse if self.free else q


def solve(problem: Problem, block: Block, limits: Limits, most: int) -> tuple[Found, bool]:
    """Return the minimiser, and whether its gap is small enough; else what ``most`` products give, or fewer if they are slow."""
    with np.errstate(all="ignore"):  # of points that are not accepted
        rows, goal = Rows(problem, block), WELL_BELOW * limits.tol
        b = problem.best_intercept_without_features()
        nothing = np.zeros(problem.n)
        at, model = rows.at(nothing, nothing, b), rows.started()
        products, gaps, done = 0, list[float](), False
        while not done and products < most and not limits.is_late():
            system = System(rows, at, *model)
            gaps.append(system.gap())
            wanted = goal * abs(at.value)
            part = min(INNER, gaps[-1] / abs(at.value)) * gaps[-1]
            system.solve(max(part, NEAR * wanted), most - products)
            products += system.count
            found = _accepted(rows, at, system)
            if found is None or (len(gaps) > 1 and products + further_steps(gaps[-2], gaps[-1], wanted, system.count) > 2 * most):
                break
            at = found
            done = at.gap <= goal * abs(at.value)
            if done and not rows.is_exact(at, goal * abs(at.value)):
                rows.narrow, done = False, False
                rows.products = rows._products(block)
                at = rows.at(at.beta, rows.products(at.beta), at.b)
                done = at.gap <= goal * abs(at.value)
            model = at.image + at.b, at.slopes, curvature(problem.loss, at.image + at.b, rows.vectors)
    w = rows.lifted(at.beta)
    steps = -(-products // 2)
    return Found(w, at.b, max(steps, 1), rows.alpha(at.beta) if done else None), done


def _accepted(rows: Rows, at: Point, system: System) -> Point | None:
    """Return the point at the solution of a system, or on the way to it where n P is below that at the start of the step."""
    t = 1.0
    for _ in range(TRIALS):
        beta, image = at.beta + t * (system.beta - at.beta), at.image + t * (system.image - at.image)
        found = rows.at(beta, image, at.b + t * (system.b - at.b))
        if found.value <= at.value or not math.isfinite(at.value):
            return found
        t *= 0.5
    return None
