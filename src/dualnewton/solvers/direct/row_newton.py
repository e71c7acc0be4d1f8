"""More features than examples, a quadratic penalty and a loss of varying curvature: Newton's method on a variable for each row.

    n P(w, b) = Σ c_i φ_i(a_iᵀw + b + o_i) + ½ λn Σ_j v_j w_j²,      w = V⁻¹Xᵀβ,   K = X V⁻¹ Xᵀ,   λn β_i = c_i α_i

A step replaces the losses by their quadratic models at margins z (without offsets) and solves, with D = diag(c_i φ″_i),

    K β + λn D⁻¹β + b 1 = z − D⁻¹(c_i φ′_i),        1ᵀβ = 0 with an intercept,

by conjugate gradients, which cost a product with X and one with Xᵀ each; 1/(mean K_ii + λn/D_ii) scales them. The residual ρ of
this system is what the margins lack of those at which −φ′ would be α. Since w is that of α, the gap of both is a sum over rows,

    n(P − D) = Σ c_i (φ_i(s_i) + φ_i*(−α_i) + α_i s_i) ≈ ½ ρᵀDρ,        s = Xw + b + o,

while that of (w, −φ′(s)) is about (Dρ)ᵀK(Dρ)/(2λn): larger by K D/λn, which is 10⁸ for features of large scale. Ten to twenty
products suffice for rows in general position; the n×n matrix K costs more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, value_and_slopes
from dualnewton.solvers.direct.block import Block, Found, Limits
from dualnewton.solvers.direct.descent import further_steps

INNER = 0.01
"""Largest part of the gap at the start of a step that its system leaves; less, near the minimum, where that part is smaller."""

BELOW, NEAR = 0.8, 0.7
"""The wanted gap, as a fraction of ``tol``: that of the certificate differs by rounding, since α is the same. And the fraction of
the wanted gap that the last system leaves."""

MOST_NEWTON, CLOSE = 10, 0.1
"""Most Newton steps for the margins of rows at which a fit begins, and the change of a margin that ends them."""

TRIALS = 8
"""Number of step lengths that are tried, each half of the one before."""

OBSERVED = 8
"""Conjugate gradients of a system after which the number of further ones is predicted."""

ROUNDING = 1e-14
"""Change of the objective that counts as rounding, relative to it; smaller gaps are left to the factor of all rows."""

TINY = 1e-12
"""Least curvature of a row, as a fraction of the largest."""

SINGLE, NOTICED = 2e-7, 0.1
"""Error of a margin in float32 relative to ‖a_i‖‖w‖, and the part of the wanted gap that such errors may cause."""

LARGEST = 1e15
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
        self.block = block
        self.narrow = not self.data.profile.sparse and 1.0 / LARGEST <= self.data.norm <= LARGEST
        self.products = self.products_of_kind()

    def products_of_kind(self) -> Callable[[np.ndarray], np.ndarray]:
        """Return β ↦ Kβ, in float32 while that suffices."""
        rows = linear.as_float64(self.block.stored)
        return _products(rows, self.penalty, np.float32 if self.narrow else np.float64)

    def widened(self, at: Point) -> Point:
        """Return the same point, by products in float64 from now on."""
        self.narrow = False
        self.products = Rows.products_of_kind(self)
        return self.at(at.beta, self.products(at.beta), at.b)

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

    def started(self, b: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return margins z where each row would be fitted if it were the only one, c_i φ′_i and c_i φ″_i.

        A row alone has the margin that minimises c_i φ_i(z) + ½ (λn/‖a_i‖²) (z − b)²; rows in general position have about these.
        """
        loss, (y, c, o) = self.problem.loss, self.vectors
        pull, z = self.ridge / (self.size or 1.0), np.full(self.problem.n, b)
        if (rough := loss.rough_fit(y, c)) is not None:
            z = rough.margins if o is None else rough.margins - o
        for _ in range(MOST_NEWTON):
            slopes, curved = map(self.vectors.weighted, loss.derivatives(self.vectors.shifted(z), y))
            step = (slopes + pull * (z - b)) / (curved + pull)
            if not np.abs(step).max() > CLOSE:
                break
            z = z - step
        return z, slopes, curved

    def is_exact(self, at: Point, goal: float) -> bool:
        """Whether errors of products in float32 change the gap by a small part of ``goal`` only."""
        if not self.narrow:
            return True
        w = max(float(at.beta @ at.image), 0.0)
        mass = float(curvature(self.problem.loss, at.image + at.b, self.vectors).sum())
        return 0.5 * mass * SINGLE**2 * self.size * w <= NOTICED * goal


def _products(rows: linear.Matrix, penalty: np.ndarray | None, kind: type) -> Callable[[np.ndarray], np.ndarray]:
    """Return β ↦ Kβ, computed in this type: float32 takes half the time."""
    rows = rows if rows.dtype == kind else rows.astype(kind)
    images, sums = linear.multiplied(rows), linear.multiplied(linear.transposed(rows))
    scale: Any = None if penalty is None else (1.0 / penalty).astype(kind)

    def product(beta: np.ndarray) -> np.ndarray:
        size = math.sqrt(float(beta @ beta)) or 1.0  # so that nothing overflows or vanishes in float32
        w = sums((beta / size).astype(kind, copy=False))
        image: np.ndarray = size * images(w if scale is None else w * scale).astype(np.float64, copy=False)
        return image

    return product


class System:
    """The linear system of a step, and its solution so far."""

    def __init__(self, rows: Rows, at: Point, z: np.ndarray, slopes: np.ndarray, curved: np.ndarray) -> None:
        self.rows, self.D = rows, np.maximum(curved, TINY * float(curved.max()))
        self.own, self.total, self.free = rows.ridge / self.D, float(self.D.sum()), rows.problem.fit_intercept
        self.beta, self.image = at.beta, at.image
        self.residual = z - slopes / self.D - at.image - self.own * at.beta
        self.inverse = 1.0 / (rows.size + self.own)
        self.scale = float(self.inverse.sum())

    @property
    def b(self) -> float:
        """The best intercept."""
        return float(self.D @ self.residual) / self.total if self.free else 0.0

    def gap(self) -> float:
        """½ ρᵀDρ."""
        rest = self.residual - self.b
        return 0.5 * float(rest @ (self.D * rest))

    def solve(self, left: float, most: int) -> int:
        """Take conjugate gradients until the gap is at most ``left``, or more than ``most`` are expected; return their number."""
        q, gaps = self._scaled(), [self.gap()]
        square, p = float(self.residual @ q), q
        while gaps[-1] > left and len(gaps) - 1 + _further(gaps, left) <= most:
            image = self.rows.products(p)
            along = image + self.own * p
            t = square / float(p @ along)
            self.beta, self.image = self.beta + t * p, self.image + t * image
            self.residual = self.residual - t * along
            q, last = self._scaled(), square
            square = float(self.residual @ q)
            p = q + (square / last) * p
            gaps.append(self.gap())
        return len(gaps) - 1

    def _scaled(self) -> np.ndarray:
        q = self.inverse * self.residual
        return q - (float(q.sum()) / self.scale) * self.inverse if self.free else q


def solve(problem: Problem, block: Block, limits: Limits, most: int) -> tuple[Found, bool]:
    """Return the minimiser, or where the steps end if more than ``most`` products are expected, and whether its gap is small."""
    goal, products, gaps, done = BELOW * limits.tol, 0, list[float](), False
    with np.errstate(all="ignore"):  # points that overflow are not accepted
        rows, nothing = Rows(problem, block), np.zeros(problem.n)
        at = rows.at(nothing, nothing, problem.best_intercept_without_features())
        model, used = rows.started(at.b), 0
        while not (done or limits.is_late()):
            system, size = System(rows, at, *model), abs(at.value) or 1.0
            gaps.append(system.gap())
            if goal <= ROUNDING or products + _further_products(used, gaps, goal * size) > most:
                break
            used = system.solve(max(min(INNER, gaps[-1] / size) * gaps[-1], NEAR * goal * size), most - products)
            products += used
            if (found := _accepted(rows, at, system)) is None:
                break
            at, wanted = found, goal * abs(found.value)
            if at.gap <= wanted and not rows.is_exact(at, wanted):
                at = rows.widened(at)
            done = at.gap <= wanted
            model = at.image + at.b, at.slopes, curvature(problem.loss, at.image + at.b, rows.vectors)
    return Found(rows.lifted(at.beta), at.b, max(1, len(gaps)), rows.alpha(at.beta) if done else None), done


def _further_products(used: int, gaps: list[float], goal: float) -> float:
    """Predict the products of further steps by the last one, which took ``used`` of them; none is expected after one of none."""
    if len(gaps) == 1 or (used and gaps[-1] <= goal):
        return 0.0
    return used * further_steps(gaps[-2], gaps[-1], goal, 1) if used else math.inf


def _further(gaps: list[float], goal: float) -> float:
    """Predict the further conjugate gradients of a system by the decrease in the second half of those so far; at first, one."""
    half = len(gaps) // 2
    return max(1.0, further_steps(gaps[-1 - half], gaps[-1], goal, half)) if len(gaps) > OBSERVED else 1.0


def _accepted(rows: Rows, at: Point, system: System) -> Point | None:
    """Return the point at the solution of a system, or on the way to it where n P is below that at the start of the step."""
    t = 1.0
    for _ in range(TRIALS):
        beta, image, b = system.beta, system.image, system.b
        if t < 1.0:
            beta, image = at.beta + t * (beta - at.beta), at.image + t * (image - at.image)
            b = at.b + t * (b - at.b)
        found = rows.at(beta, image, b)
        if found.value <= at.value + ROUNDING * abs(at.value):
            return found
        t *= 0.5
    return None
