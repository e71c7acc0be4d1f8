"""Newton's method for a smooth loss and a quadratic penalty.

The objective is that of ``risk.py``. This is SDNA with τ = n.

With more rows than unknowns the Hessians take most of the time. A Hessian therefore serves several steps, with the corrections of
L-BFGS, until a new one is expected to save more passes than it costs. (Without corrections this is Shamanskii's method, 1967.)
Where φ″ is zero on most examples, as for separable classes and the squared hinge, a Hessian costs less, and the old one is
soon wrong: others are curved.

With many more rows the problem of a sample of them is solved first. Its solution has about the accuracy of the sample, so that
the Hessian of all rows there is close to that at the minimum: a few steps from this matrix often suffice.

Losses with a log link start as iteratively reweighted least squares do (McCullagh and Nelder, Generalized Linear Models,
Section 2.5): at the minimum of their quadratic models at margins that are computed from the labels, where the curvature is about
that at the minimum, unlike at w = 0. With many rows these models are summed over some of them.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.losses.base import RoughFit
from dualnewton.matrix import linear
from dualnewton.matrix.factors import factorised, solved
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import slope_along
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import ROUNDING, Pairs, add_pair, lbfgs_step, needs_hessian, quasi_newton, step
from dualnewton.solvers.direct.risk import Point, Risk
from dualnewton.solvers.direct.squares import is_exact

SAMPLED, LEAST_SAMPLE, PER_UNKNOWN = 8, 512, 4
"""A sample has a share of 1/SAMPLED of the rows, if these are at least ``LEAST_SAMPLE`` and ``PER_UNKNOWN`` for each unknown."""

UNEVEN = 200
"""Rows for each unknown from which sparse rows of unequal lengths are sampled: a sample of fewer misses too many long ones, such
as those with rare features that have been scaled to variance one."""

CURVED_ROWS = 24
"""Rows of equal curvature for each unknown whose quadratic models are summed for a loss with a log link."""

NOTICED = 0.1
"""Most of the wanted gap that rounding errors of products with rows in float32 may cause."""

SAMPLE_GAP = 0.1
"""The sample is solved to a gap of this fraction of unknowns/rows, which is about the relative accuracy of its solution, or until
the predicted decrease of a step is below that accuracy."""

SAMPLE_STEPS, PASSES = 10, 8
"""Most Newton steps on the sample, and most steps of L-BFGS on all rows: a Hessian takes longer than several passes."""

GOLDEN = 2654435769
"""The golden ratio times 2³²; its multiples are spread evenly between whole multiples of 2³²."""

CURVED, TRUSTED = 4.0, 0.4
"""Most (Σ φ″t²)²/n, in units of the largest φ″ and of the wanted gap, for which the dual point of quadratic models is tried; and
most Σ φ″t²/n times the gap at the start of a step, in the latter unit, for which that at its end needs no such point."""

SECANTS = 2
"""Secants by which the solution of the sample is shortened before the steps on all rows."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits, *, as_stored: bool = False) -> Found:
    """Take steps until the expected gap is small enough, or the predicted decrease of a step is rounding.

    ``as_stored`` says that the rows are sparse, and are not made dense.
    """
    risk = Risk.of(problem, block, as_stored=as_stored)
    if as_stored:
        risk = replace(risk, rows=linear.as_float64(risk.rows))
    if problem.loss.curvature is Curvature.CONSTANT and problem.columns == 1:
        return _least_squares(risk, problem, block, start, limits)
    x, sampled = risk.vector(*(start or zero_start(problem))), start is None
    wanted = limits._replace(tol=WELL_BELOW * limits.tol)
    order = linear.order_by_length(risk.rows, block.crossovers.sorted_entries) if as_stored else None
    own = risk if order is None else risk.part(order)
    x, steps, alpha = _minimised(own, x, wanted, ROUNDING, block.crossovers, sampled=sampled)
    return Found(*risk.model(x), steps, alpha if order is None or alpha is None else _in_places(alpha, order))


def _in_places(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return the values of rows in this order at the places of the rows."""
    found = np.empty_like(values)
    found[order] = values
    return found


def zero_start(problem: Problem) -> Start:
    """Return w = 0 and b = 0; the best b for losses without γ, and for softmax with classes of weight zero, where it may be far
    from 0.
    """
    if problem.columns == 1:
        return np.zeros(problem.d), 0.0 if problem.loss.gamma is not None else problem.best_intercept_without_features()
    w, b = np.zeros((problem.columns, problem.d)), problem.no_intercept()
    weights = np.bincount(problem.y, problem.sample_weight, problem.columns)
    return w, b if weights.all() else problem.best_intercept_without_features()


def _minimised(
    risk: Risk, x: np.ndarray, limits: Limits, level: float, crossovers: Crossovers, *, sampled: bool
) -> tuple[np.ndarray, int, np.ndarray | None]:
    """Return x, the number of steps, and α if it is not −φ′: until the expected relative gap is at most ``limits.tol``, or the
    predicted decrease of a step was at most ``level`` of the objective.

    ``sampled`` says whether w = 0, so that a sample of the rows may be solved first, if they are many.
    """
    steps, gap, alpha = 0, None, None
    many = sampled and risk.n // SAMPLED >= max(LEAST_SAMPLE, PER_UNKNOWN * risk.ridge.size)
    rough = risk.loss.rough_fit(risk.vectors.y, risk.vectors.c) if sampled else None
    varying, few = risk.loss.curvature is Curvature.VARYING, not many or risk.rows.size <= crossovers.parabola_entries
    if rough is not None and varying:
        at, steps, gap = _from_labels(risk, x, rough, limits, crossovers, many=many)
    elif rough is not None and few and (found := _from_parabolas(risk, rough)) is not None:
        at, steps = found, 1
    elif many and (own := _sample(risk)) is not None:
        x, steps = _solve_sample(own, x, limits, crossovers)
        margins = risk.margins(x)
        t = _best_factor(risk, x, margins)
        at = risk.at(t * x, t * margins)
    else:
        at = risk.at(x, risk.constant(risk.model(x)[1]) if sampled else risk.margins(x))
    gap = risk.gap(at) if gap is None else gap
    if steps == 0 or gap > limits.tol * abs(at.value):
        at, more, alpha = _descended(risk, at, gap, limits._replace(most=limits.most - steps), level, crossovers)
        steps += more
    return at.x, steps, alpha


def _descended(
    risk: Risk, at: Point, gap: float, limits: Limits, level: float, crossovers: Crossovers
) -> tuple[Point, int, np.ndarray | None]:
    """Return the minimum, the number of steps by Newton's method, and α if it is not −φ′.

    L-BFGS uses each Hessian until a new one costs less. With few rows for each unknown the curvature changes too much from step
    to step. Large sums are computed in float32 unless that changes some direction much.
    """
    large, many = risk.rows.size >= crossovers.narrowed_entries, risk.n >= PER_UNKNOWN * risk.ridge.size
    pieces = risk.loss.curvature is Curvature.PIECEWISE
    single, updated = risk.is_narrow, risk.block is not None or (pieces and risk.is_updated)
    gaps, pairs, inverse = [gap], Pairs(), None
    passes, price, stuck, before = 0, 0.0, False, at
    while passes < 2 * limits.most and not stuck:
        if inverse is not None and updated:
            price = risk.sum_passes(at.margins, single=single)
        if inverse is None or not many or needs_hessian(gaps, limits.tol * abs(at.value), price):
            factor = risk.narrow_factor(at.margins) if single else None
            single, gaps, pairs, passes = factor is not None, gaps[-1:], Pairs(), passes + 1
            inverse = partial(solved, risk.factor(at.margins) if factor is None else factor)
            price = (2.0 if large and not single else 1.0) * risk.ridge.size / crossovers.hessian_features
            way = inverse(-at.gradient)
            margins = risk.margins(way)
            alpha = None if single else _linear_slopes(risk, at, gaps[-1], way, margins, limits.tol)
            if alpha is not None:
                return at._replace(x=at.x + way), -(-(passes + 1) // 2), alpha
        else:
            add_pair(pairs, before, at)
            way, margins = lbfgs_step(inverse, pairs, -at.gradient), None
        before = at
        at, stuck = step(risk, at, way, level, margins)
        gaps.append(risk.gap(at))
        stuck = stuck or gaps[-1] <= limits.tol * abs(at.value) or time.perf_counter() > limits.deadline
        passes += 1
    return at, -(-passes // 2), None


def _linear_slopes(
    risk: Risk, at: Point, gap: float, way: np.ndarray, margins: np.ndarray, goal: float
) -> np.ndarray | None:
    """Return α = −φ′ − φ″t for the margins t of a Newton step, if the gap at its end is at most ``goal``, relative to P.

    The end is the model of this α, so that the gap is a sum over rows of what φ + φ* exceeds −αz by: about ⅛ Σ (φ‴)²t⁴/φ″, with
    |φ‴| about φ″. That of −φ′ at the end contains the products of the rows, divided by the ridge; it is about ¼t² of that at the
    start. α is not computed where that is far below the goal, or where the sum is expected to be above it. (A Hessian in float32
    leaves a difference between the end and the model of α.)
    """
    wanted, y, c = goal * abs(at.value), risk.vectors.y, risk.vectors.c
    if risk.loss.columns > 1 or risk.loss.curvature is Curvature.PIECEWISE:
        return None
    squares = -float(at.gradient @ way)  # Σ φ″t²
    mean, most = squares / risk.n, 1.0 / (risk.loss.gamma or 1.0)
    if mean * gap <= TRUSTED * wanted or mean * squares > CURVED * most * wanted:
        return None
    z = risk.vectors.shifted(at.margins)
    slopes, curvature = risk.loss.derivatives(z, y)
    alpha, z = -slopes - curvature * margins, z + margins
    losses = risk.loss.value(z, y) + alpha * z
    own = float(losses.sum() if c is None else c @ losses) + risk.loss.conjugates(alpha, y, c)
    return alpha if own <= wanted else None


def from_hessian(risk: Risk, at: Point, limits: Limits) -> tuple[Point, int, bool]:
    """Take a few steps of L-BFGS from the Hessian at a point; return where they end, the steps, and whether they are the last.

    The Hessian counts as a pass.
    """
    inverse = partial(solved, risk.factor(at.margins, single=True))
    at, passes, last = quasi_newton(risk, at, inverse, limits._replace(most=PASSES), [])
    return at, -(-(1 + passes) // 2), last


def _from_labels(
    risk: Risk, x: np.ndarray, rough: RoughFit, limits: Limits, crossovers: Crossovers, *, many: bool
) -> tuple[Point, int, float | None]:
    """Return the minimum of quadratic models of the losses, the steps taken, and the gap, if it is known.

    The minimum is x, where w = 0, if a constant fits better. With ``many`` rows the models of some of them are summed, and a few
    steps of L-BFGS from their Hessian follow, with products in float32 where their rounding errors are small.
    """
    z, slopes, curvature, value = rough
    weights = risk.vectors.weighted(curvature)
    every = int(_effective(weights) / (CURVED_ROWS * risk.ridge.size)) if many else 1
    large = many and risk.block is None and risk.rows.size >= crossovers.narrowed_entries
    noise = risk.narrow_noise(risk.vectors.weighted(slopes)) if large else math.inf
    rows = risk.with_narrow_rows() if noise <= NOTICED * limits.tol * abs(value) else risk
    own = rows
    if every > 1:
        some = _one_of_each(every, risk.n)
        own, z, slopes, weights = rows.part(some), z[some], slopes[some], weights[some]
    z = z if own.vectors.o is None else z - own.vectors.o
    factor = own.factor_of(weights, own.ridge, single=many)
    found = solved(factor, own.sums(weights * z - own.vectors.weighted(slopes)))
    at = rows.at(found, rows.margins(found))
    if not at.value <= value:  # also where it is not a number
        at = rows.at(x, risk.constant(risk.model(x)[1]))
    if not many:
        return at, 1, None
    inverse = partial(_inverse, factor, own.n / risk.n)
    at, passes, _ = quasi_newton(rows, at, inverse, limits._replace(most=PASSES), [])
    gap, steps = rows.gap(at), 1 + -(-passes // 2)
    if rows is not risk and not gap <= limits.tol * abs(at.value):  # also where it is not a number
        return risk.at(at.x, risk.margins(at.x)), steps, None
    return at, steps, gap


def _effective(weights: np.ndarray) -> float:
    """Return the number of rows of equal weights that estimate a sum as accurately as rows with these (Kish, 1965)."""
    total = float(np.add.reduce(weights))
    if not 0.0 < total < math.inf:
        return 0.0
    shares = weights / total
    return 1.0 / float(shares @ shares)


def _from_parabolas(risk: Risk, rough: RoughFit) -> Point | None:
    """Return the minimum of quadratic models of a loss whose φ″ is one number or zero; None if a constant fits better.

    The Hessians at later points follow from the matrix of all rows by those whose φ″ is zero there.
    """
    weighted = risk.vectors.weighted
    factor = risk.factor_of(weighted(rough.curvature), risk.ridge, single=risk.is_narrow)
    z = rough.margins if risk.vectors.o is None else rough.margins - risk.vectors.o
    x = solved(factor, risk.sums(weighted(rough.curvature * z - rough.slopes)))
    at = risk.at(x, risk.margins(x))
    return at if at.value <= rough.value else None


# Least squares -----------------------------------------------------------------------------------------------------------------


def _least_squares(risk: Risk, problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Take one Newton step, which would be exact without rounding, and more while these halve the gap that is left."""
    (factor, diagonal), steps, least = _factor(problem, block, risk), 0, math.inf
    if start is None:
        at = risk.at(np.zeros(risk.size), np.zeros(risk.n))
        way = solved(factor, at.gradient)
        end = at.value - 0.5 * (at.gradient @ way)
        moved, shares = float(np.square(way).dot(diagonal)), 2.0 * float(diagonal.dot(risk.halves))
        # The whole step, unless its rounding errors are too large.
        if is_exact(moved, shares, float(diagonal[-1]) if risk.free else 0.0, WELL_BELOW * limits.tol * float(end)):
            return Found(*risk.model(at.x - way), 1)
    else:
        x = risk.vector(*start)
        at = risk.at(x, risk.margins(x))
    best = at
    while True:
        gap = risk.gap(at)
        far = gap < 0.5 * least and not (steps and gap <= WELL_BELOW * limits.tol * abs(at.value))
        if gap < least:
            best, least = at, gap
        if not far or steps >= limits.most or (steps and limits.is_late()):
            return Found(*risk.model(best.x), max(steps, 1))
        x = at.x - solved(factor, at.gradient)
        at = risk.at(x, risk.margins(x))
        steps += 1


def _factor(problem: Problem, block: Block, risk: Risk) -> tuple[np.ndarray, np.ndarray]:
    """Return the Cholesky factor of the Hessian, and its diagonal without the ridge; the same for all outputs without weights."""
    kept, key = block.cache if problem.sample_weight is None else {}, (_factor, problem.lam)
    if key not in kept:
        H = risk.hessian(np.zeros(risk.n))
        diagonal = H.diagonal().copy()
        kept[key] = factorised(H, risk.ridge), diagonal
    return kept[key]


# From a sample of the rows ---------------------------------------------------------------------------------------------------


def _one_of_each(count: int, n: int) -> np.ndarray:
    """Return one of each so many consecutive rows.

    Multiples of the golden ratio choose it, so that a periodic order of the rows does no harm; random numbers take longer.
    """
    places = np.arange(n // count, dtype=np.int64)
    return count * places + ((places * GOLDEN & 0xFFFFFFFF) * count >> 32)


def _sample(risk: Risk) -> Risk | None:
    """Return the risk of a sample; None if the rows are sparse, of unequal lengths and few."""
    own = risk.part(_one_of_each(SAMPLED, risk.n))
    return own if risk.block is None or risk.n >= UNEVEN * risk.ridge.size or own.is_even() else None


def _inverse(factor: np.ndarray, share: float, right: np.ndarray) -> np.ndarray:
    """Return H⁻¹ right, given the factor of a Hessian of this share of the rows and of the ridge."""
    return share * solved(factor, right)


def _solve_sample(own: Risk, x: np.ndarray, limits: Limits, crossovers: Crossovers) -> tuple[np.ndarray, int]:
    """Return the solution of the problem of some rows, and the steps taken, in those of all rows."""
    accuracy = own.ridge.size / own.n
    near, most = max(limits.tol, WELL_BELOW * SAMPLE_GAP * accuracy), min(limits.most, SAMPLE_STEPS)
    x, steps, _ = _minimised(own, x, limits._replace(tol=near, most=most), accuracy, crossovers, sampled=True)
    return x, -(-steps // SAMPLED)


def _best_factor(risk: Risk, x: np.ndarray, margins: np.ndarray) -> float:
    """Return about the t ≤ 1 for which the objective at tx is least, from the margins of some of the rows.

    The solution of a sample fits its own rows too well: its margins are too large, and the Hessian there is too small. A few
    secants of the slope along x, between t = 0 and t = 1, suffice: the first steps on all rows correct the rest.
    """
    part = np.arange(0, risk.n, SAMPLED)  # copies: the values of every eighth row only, side by side
    rows, way = risk.vectors.part(part), margins[part]
    nothing, pull, share = np.zeros(way.shape), float(risk.ridge @ np.square(x)), len(margins) / len(way)

    def slope(t: float) -> float:
        return t * pull + share * slope_along(risk.loss, nothing, way, t, rows)

    low, high, t = 0.0, 1.0, 1.0
    at_low, at_high = slope(low), slope(high)
    for _ in range(SECANTS):
        if not at_low < 0.0 < at_high < math.inf:
            return t
        t = low - at_low * (high - low) / (at_high - at_low)
        at_t = slope(t)
        # Half the slope at the end that stays (the Illinois rule): secants alone would move away from t = 1 slowly, since the
        # slope changes little where margins are large.
        low, at_low, high, at_high = (low, 0.5 * at_low, t, at_t) if at_t > 0.0 else (t, at_t, high, 0.5 * at_high)
    return low - at_low * (high - low) / (at_high - at_low)
