"""Newton's method by products with X alone, for a smooth loss, a quadratic penalty and sparse rows.

A step solves the Newton system by conjugate gradients, each of which costs a product with X and one with Xᵀ:

    (Xᵀ C X + D(ridge)) s = −g,        C = K − κκᵀ/Σκ,   K = D(κ),   κ_i = c_i φ″_i

C is what the best intercept leaves of the curvature κ, so that no direction is without a ridge. The residual r of the system is
the gradient at the end of the step but for the change of the curvature, and gives the gap that is left, Σ r_j²/(2 ridge_j): for
the squared loss one system, solved to the wanted gap, is enough.
"""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.direct.descent import step
from dualnewton.solvers.direct.risk import Point, Risk

INNER = 0.1
"""Largest gap that a Newton system may leave, as a fraction of the last gap; less, near the minimum, where that is smaller."""

NEAR = 0.5
"""Fraction of the wanted gap that the last system may leave: the curvature changes on the way."""

MOST_PRODUCTS = 400
"""Conjugate gradients after which a fit is left to other methods."""


def solve(problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float) -> Found:
    """Take steps until the expected gap is small enough, or the predicted decrease of a step is rounding."""
    risk = Risk.of(problem, block, as_stored=True)
    x = np.zeros(risk.size) if start is None else risk.vector(*start)
    if start is None and problem.fit_intercept and problem.loss.gamma is None:
        x[-1] = problem.best_intercept_without_features()
    at, goal = risk.at(x, risk.margins(x)), WELL_BELOW * tol
    gap, steps, products, stuck = risk.gap(at), 0, 0, False
    forcing = 0.0 if problem.loss.curvature is Curvature.CONSTANT else INNER
    squares = linear.squared(risk.rows).T
    while steps < most and not stuck:
        left = min(forcing, gap / abs(at.value) if at.value else forcing) * gap
        way = _newton_step(risk, squares, at, left, NEAR * goal, MOST_PRODUCTS - products, block.crossovers)
        at, stuck = step(risk, at, way.x, margins=way.margins)
        steps, products, gap = steps + 1, products + way.products, risk.gap(at)
        stuck = stuck or gap <= goal * abs(at.value) or products >= MOST_PRODUCTS or time.perf_counter() > deadline
    return Found(*risk.model(at.x), max(steps, math.ceil(0.5 * products)))


class Way(NamedTuple):
    """A step, its margins, and the conjugate gradients that it took."""

    x: np.ndarray
    margins: np.ndarray
    products: int


def _newton_step(
    risk: Risk, squares: linear.Matrix, at: Point, left: float, goal: float, most: int, crossovers: Crossovers
) -> Way:
    """Solve the Newton system until it leaves a gap of at most ``left``, or ``goal`` relative to the objective at its end."""
    rows, transposed, d = risk.rows, risk.transposed, risk.rows.shape[1]
    weights, ridge, halves = curvature(risk.loss, at.margins, risk.vectors), risk.ridge[:d], risk.halves[:d]
    total = float(weights.sum()) if risk.free else 0.0
    shares, slope = weights / (total or 1.0), float(at.gradient[-1]) if risk.free else 0.0
    r = -at.gradient[:d]
    if slope and total:
        r += slope * (transposed @ shares)
    diagonal = squares @ weights + ridge
    trace = float(diagonal.sum())
    heavy = float(diagonal[diagonal * d > crossovers.heavy_feature * trace].sum())
    inverse = 1.0 / (diagonal if heavy > crossovers.heavy_trace * trace else ridge)
    s, images, value, products = np.zeros(d), np.zeros(risk.n), at.value, 0
    p, last = np.zeros(d), 1.0
    while products < most and float(np.square(r) @ halves) > max(left, goal * abs(value)):
        q = inverse * r
        square = float(r @ q)
        p *= square / last
        p += q
        image = rows @ p
        Hp = transposed @ (weights * (image - float(shares @ image) if total else image))
        Hp += ridge * p
        t = square / float(p @ Hp)
        s += t * p
        images += t * image
        r -= t * Hp
        value -= 0.5 * t * square
        last, products = square, products + 1
    if not risk.free:
        return Way(s, images, products)
    b = -slope / total - float(shares @ images) if total else 0.0
    return Way(np.append(s, b), images + b, products)
