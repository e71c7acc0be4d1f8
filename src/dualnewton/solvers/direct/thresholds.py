"""Least squares with a threshold for each feature: Lasso and elastic net, also without negative coefficients.

    n P(w, b) = ½ Σ c_i (x_iᵀw + b − t_i)² + Σ_j ½ ridge_j w_j² + threshold_j |w_j|

Each turn 1. adds features that violate the optimality conditions to those gathered, 2. minimises over the gathered features
(``active_set.py``), 3. computes residuals, the slopes of all features and the gap from the rows, not from the Gram matrix, so
that rounding errors of the latter do not accumulate. The intercept is eliminated: columns and targets are centred.

With more features than examples the first turns have stronger penalties, so that the features in use become more from turn to
turn: from w = 0 at once, many more would be gathered than are used in the end.

If many features violate the conditions at w = 0, the first turn is over those of them whose slopes are stronger than chance. Its
residuals show how many of the others are used, and its matrix whether features explain the targets nearly independently of each
other. If they do and many are used, sweeps of coordinate descent (``entries.py``) follow, and mostly suffice: linear systems
would cost more. If few are used, the second turn is over all that violate the conditions or nearly do, and mostly the last.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import column_sums, product
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct.active_set import Columns, Gram, Kinks, Matrix, Model
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start, weighted_sums
from dualnewton.solvers.prox.gaps import value_and_gap

GROWTH, LEAST = 1.0, 16
"""A turn adds at most this multiple of the features gathered, or ``LEAST``, where more features may violate the conditions."""

NEARLY = 0.9
"""Slope, as a fraction of the threshold, from which on features outside are gathered together with those that violate the
conditions."""

MORE = 2
"""Features, as a multiple of ``Crossovers.least_set``, up to which the matrix of all costs no more than another turn's passes."""

MEDIAN = 0.6745
"""Median of the absolute value of a standard normal variable."""

MOST_PENALTIES = 12
"""With more features than examples: the most penalties of consecutive turns, each weaker than the one before."""

ROUGHLY, ENOUGH = 0.1, 0.1
"""Violation, as a fraction of the threshold, at which a turn with a stronger penalty is done; and the fraction of the largest
violation outside that a turn may leave inside, since the next one is over more features."""

TRUSTED = 1e-8
"""Tolerance from which on the minimum over all features is returned without evaluating the rows again: the rounding errors of the
matrix of products leave less, and the certificate shows if they do not."""

TINY = 1e-300
"""Squares of the values of a feature below which it counts as constant."""

IN_VAIN = 2
"""Consecutive turns that leave more than half of the gap: if there is no feature to add either, rounding has ended progress."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Minimise over the strongest features; then sweep if many more are used; else, or if that fails, take Newton steps."""
    kinks, rows, sizes = kinks_of(problem), Rows(problem, block), block.crossovers
    if start is not None:
        return by_newton(problem, block, kinks, rows, start, None, limits)
    zero, wide = rows.evaluate(np.empty(0)), problem.d > problem.n
    pulled, pull = kinks.shrunk(-zero[1]).nonzero()[0], np.abs(zero[1])
    work = problem.n * pulled.size * min(problem.n, pulled.size)
    every = problem.d <= min(problem.n, MORE * sizes.least_set) and pulled.size >= sizes.walk_share * problem.d
    if every or work <= sizes.gathered_products:
        return by_newton(problem, block, kinks, rows, None, zero, limits, at_once=every or None)
    strong = stronger_than_chance(pull, pulled)
    if strong.size < LEAST:
        strong = highest_scored(pull, pulled, LEAST)
    w, known, independent = minimum_over_strongest(rows, kinks, zero, strong, sizes, limits)
    used = int(np.count_nonzero((w != 0.0) | (kinks.shrunk(-known[1]) != 0.0)))
    sweeps = worthwhile_sweeps(problem.n, used, sizes)
    if sweeps > 0 and independent:
        from dualnewton.solvers.direct.entries import SWEEPS, swept

        begin = None if wide else (w, rows.intercept(w[rows.inside]))
        found, done = swept(problem, block, begin, limits, min(sweeps, SWEEPS * limits.most))
        if done or limits.is_late():
            return found
        if not wide:
            return by_newton(problem, block, kinks, rows, (found.w, found.intercept), None, limits)
    if sweeps > 0 and wide:  # by way of stronger penalties, since the strongest features alone are a bad start
        return by_newton(problem, block, kinks, rows, None, zero, limits)
    return by_newton(problem, block, kinks, rows, (w, None), known, limits, at_once=independent and not wide)


def minimum_over_strongest(
    rows: Rows, kinks: Kinks, zero: tuple[float, np.ndarray], strong: np.ndarray, sizes: Crossovers, limits: Limits
) -> tuple[np.ndarray, tuple[float, np.ndarray], bool]:
    """Return the minimiser over the features with the strongest slopes at w = 0, and the losses and slopes there.

    ``zero`` are these at w = 0. The residuals of the minimiser show how many of the other features are used in the end: their
    slopes at w = 0 mostly contain what the strongest features explain. Whether features explain the targets nearly independently
    of each other is the third result: what each of the strongest explains alone, slope_j²/H_jj, is then hardly more in total
    than what they explain together.
    """
    losses, slopes = zero
    rows.gather(strong)
    w, inside = np.zeros(len(slopes)), rows.inside
    model = Model(rows.gram(), slopes[inside], w[inside], kinks.only(inside))
    w[inside] = model.minimise(WELL_BELOW * limits.tol, limits.is_late)
    known = rows.evaluate(w[inside])
    alone = 0.5 * float((np.square(slopes[inside]) / np.maximum(model.gram.diagonal, TINY)).sum())
    chance = 1.0 + len(slopes) / len(rows.values)  # noise in the targets has each feature explain 1/n of them alone
    return w, known, alone <= sizes.shared_share * chance * (losses - known[0])


def stronger_than_chance(pull: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Return those of the features found whose slope at w = 0, in absolute value ``pull``, is stronger than chance.

    Of d features without an effect, whose slopes are Gaussian, the strongest is expected at √(2 ln d) standard deviations, which
    are estimated by the median of all slopes (Donoho and Johnstone 1994).
    """
    d = len(pull)
    chance = math.sqrt(2.0 * math.log(d)) * float(np.partition(pull, d // 2)[d // 2]) / MEDIAN
    return found[pull[found] > chance]


def highest_scored(scores: np.ndarray, found: np.ndarray, most: int) -> np.ndarray:
    """Return those of the features found with the highest scores, at most this number, in order."""
    return found if found.size <= most else np.sort(found[np.argpartition(-scores[found], most - 1)[:most]])


def by_newton(
    problem: Problem,
    block: Block,
    kinks: Kinks,
    rows: Rows,
    start: Start | None,
    known: tuple[float, np.ndarray] | None,
    limits: Limits,
    *,
    at_once: bool | None = None,
) -> Found:
    """Add features and minimise over them until the gap is small enough, or rounding stops its fall.

    ``known`` are the losses and slopes at the start, if they are known; ``at_once`` is that of :func:`features_to_add`.
    """
    w = np.zeros(problem.d)
    if start is not None:
        w = kinks.nearest(np.asarray(start[0]))
        outside = w != 0.0
        outside[rows.inside] = False
        rows.gather(outside.nonzero()[0])
    best, least, in_vain, steps, stronger, goal = w, np.inf, 0, 0, list[float](), 0.0
    while True:
        losses, slopes = rows.evaluate(w[rows.inside]) if known is None else known
        beyond, known = kinks.shrunk(-slopes), None
        if steps or start is not None:
            value, gap = value_and_gap(problem, w, losses, slopes)
            in_vain = in_vain + 1 if gap > 0.5 * least and goal <= WELL_BELOW * limits.tol else 0
            if gap < least:
                best, least = w, gap
            if gap <= WELL_BELOW * limits.tol * value or steps >= limits.most or limits.is_late():
                break
        elif limits.is_late() or not np.count_nonzero(beyond):  # or zero is the minimum
            break
        elif problem.d > problem.n:
            highest = 1.0 + float((np.abs(beyond) / kinks.high).max())
            *stronger, _ = falling_multiples(highest, block.crossovers.path_ladder)
        here = kinks.times(stronger[0]) if stronger else kinks
        beyond = here.shrunk(-slopes) if stronger else beyond
        more = features_to_add(beyond, rows.inside, problem.n, block.crossovers, at_once)
        if at_once and more.size and rows.inside.size + more.size < problem.d:
            more = features_near_thresholds(here, slopes, rows.inside)
        if not more.size and in_vain > IN_VAIN:
            break
        rows.gather(more)
        every, goal = rows.inside.size == problem.d, ROUGHLY if stronger else WELL_BELOW * limits.tol
        if not (every or stronger):  # the next turn may be over more features
            left = float((np.abs(beyond[more]) / here.high[more]).max(initial=0.0))
            goal = max(goal, ENOUGH * left)
        model = Model(rows.gram(), slopes[rows.inside], w[rows.inside], here.only(rows.inside))
        w = np.zeros(problem.d)
        w[rows.inside] = model.minimise(goal, limits.is_late)
        if every and model.exact and not stronger and limits.tol >= TRUSTED:
            best, steps = w, steps + 1
            break
        beyond[rows.inside] = 0.0
        if stronger and not beyond.any():  # all features that it asks for were gathered
            del stronger[0]
        steps += 1
    return Found(best, float(rows.intercept(best[rows.inside])), max(steps, 1))


def falling_multiples(highest: float, ratio: float) -> tuple[float, ...]:
    """Return falling multiples of a penalty in equal ratios, from below ``highest`` to one.

    The ratios are about the given one, but none is above it where there are several multiples, and less where these would be
    too many; with zero there is one.
    """
    steps = 1
    if ratio > 0.0 and 1.0 < highest < math.inf:
        steps = min(max(1, math.floor(math.log(highest) / -math.log(ratio))), MOST_PENALTIES)
    return *(highest ** (1.0 - k / steps) for k in range(1, steps)), 1.0


def kinks_of(problem: Problem) -> Kinks:
    """Return n λ g of a problem, from the form of its regulariser."""
    form, scale = problem.regularizer.form, problem.lam * problem.n
    ridge, low, high = np.empty((3, problem.d))
    ridge[:], high[:] = scale / form.factor, scale * form.threshold
    low[:] = -high if form.has_both_signs else -np.inf
    return Kinks(ridge, low, high)


def worthwhile_sweeps(n: int, m: int, sizes: Crossovers) -> int:
    """Return how many sweeps are tried before Newton steps if m features are likely used; 0 if these cost less.

    The products and the linear systems of Newton's method cost as much as m and m²/n sweeps, each times a number.
    """
    worth = int(sizes.product_sweeps * m + sizes.system_sweeps * m * m / n)
    return worth if worth >= sizes.fewest_sweeps else 0


def features_to_add(
    beyond: np.ndarray, inside: np.ndarray, n: int, sizes: Crossovers, at_once: bool | None = None
) -> np.ndarray:
    """Return the features outside that violate the optimality conditions; where few of these may be used, the worst of them.

    ``at_once`` says that most of them are used in the end; None if that is not known.
    """
    d = len(beyond)
    if d <= sizes.gathered_features:
        if not inside.size:
            return np.arange(d)
        outside = np.ones(d, dtype=bool)
        outside[inside] = False
        return outside.nonzero()[0]
    beyond = np.abs(beyond)
    beyond[inside] = 0.0
    found = beyond.nonzero()[0]
    if at_once is None:
        at_once = d <= n and n * found.size * (inside.size + found.size) <= sizes.gathered_products
    if at_once and 2 * found.size * (inside.size + found.size) >= d * d:  # the products of all cost less
        return np.setdiff1d(np.arange(d), inside)
    return found if at_once else highest_scored(beyond, found, max(LEAST, int(GROWTH * inside.size)))


def features_near_thresholds(kinks: Kinks, slopes: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Return the features outside whose slopes are nearly beyond their thresholds, or beyond: many of them are after a step."""
    outside = kinks.times(NEARLY).shrunk(-slopes) != 0.0
    outside[inside] = False
    return outside.nonzero()[0]


class Rows:
    """The rows of a problem, and the columns of the features gathered so far.

    Attributes
    ----------
    inside : integer array of shape (m,)
        The features gathered, in the order of their gathering.
    parts : list of arrays of n rows
        √c_i times their centred values, in an array for each gathering.
    most : int
        The most features whose matrix is formed.
    shift : array of shape (m,), optional
        What is still to be subtracted from them. All features at once are not copied to centre them, unless their products would
        lose digits.
    """

    def __init__(self, problem: Problem, block: Block) -> None:
        self.values, self.fit_intercept = block.rows, problem.fit_intercept
        self.most = max(problem.n, block.crossovers.wide_matrix)
        c, n = problem.sample_weight, problem.n
        self.shares = np.empty(n)
        self.shares[:] = 1.0 / n if c is None else c / c.sum()
        t = problem.y if problem.offset is None else problem.y - problem.offset
        self.target_mean = t.T.dot(self.shares) if self.fit_intercept else 0.0 * t[0]
        t = t - self.target_mean
        self.roots = None if c is None else np.sqrt(c)
        self.targets = t if self.roots is None else (self.roots * t.T).T
        self._clear()

    def _clear(self) -> None:
        """Remove all features gathered."""
        self.inside, self.means = np.empty(0, dtype=np.intp), np.empty(0)
        self.parts: list[np.ndarray] = []
        self.H = np.empty((0, 0))
        self.shift: np.ndarray | None = None

    def gather(self, features: np.ndarray) -> None:
        """Add features."""
        if not features.size:
            return
        n, d = self.values.shape
        if self.inside.size + features.size == d <= n:  # all at once need no copy
            if self.inside.size:
                self._clear()
            features = np.arange(d)
        every = self.roots is None and features.size == d <= n
        more = self.values if every else self.values.take(features, axis=1)
        means = self.shares.dot(more) if self.fit_intercept else np.zeros(len(features))
        if every:
            self.shift = means if self.fit_intercept else None
        elif self.fit_intercept:
            more -= means
        if self.roots is not None:
            more *= self.roots[:, None]
        self.parts.append(more)
        if self.inside.size:
            means, features = np.concatenate([self.means, means]), np.concatenate([self.inside, features])
        self.means, self.inside = means, features

    def gram(self) -> Gram:
        """Return AᵀA for the features A gathered: a matrix, unless there are many more features than rows."""
        if self.inside.size > self.most:
            self.parts = [np.concatenate(self.parts, axis=1)]
            return Columns(self.parts[0])
        return Matrix(self.matrix(), len(self.values))

    def matrix(self) -> np.ndarray:
        """Return AᵀA as a matrix."""
        if len(self.H) == self.inside.size:
            return self.H
        if len(self.parts) > 1:
            self.H = self._extended()
            return self.H
        self.H = np.dot(self.parts[0].T, self.parts[0])  # the operator takes a microsecond longer
        if self.shift is not None:
            lost = (len(self.values) * self.shift)[:, None] * self.shift
            self.H -= lost
            if np.count_nonzero(self.H.diagonal() < lost.diagonal()):  # more than half of the sums of squares was lost
                self.parts, self.shift = [self.parts[0] - self.shift], None
                self.H = self.parts[0].T @ self.parts[0]
        return self.H

    def _extended(self) -> np.ndarray:
        """Return AᵀA with the products of the features gathered since it was computed."""
        old, H = len(self.H), np.empty((self.inside.size, self.inside.size))
        H[:old, :old] = self.H
        ends = accumulate(part.shape[1] for part in self.parts)
        each = [(part, slice(end - part.shape[1], end)) for part, end in zip(self.parts, ends, strict=True)]
        for k, (part, rows) in enumerate(each):
            for other, columns in each[: k + 1] if rows.stop > old else ():
                H[rows, columns] = part.T @ other
                if other is not part:
                    H[columns, rows] = H[rows, columns].T
        return H

    def evaluate(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the losses and their slopes of all features at a model and its best intercept; v of the features inside."""
        r = self._fitted(v) - self.targets if self.parts else -self.targets
        if self.shift is not None:
            r -= self.shift.dot(v)
        mass = r if self.roots is None else (self.roots * r.T).T
        one = mass.ndim == 1
        if self.fit_intercept:  # the sum is zero but for rounding, which features far from zero would amplify
            left = self.shares.dot(mass) if self.roots is None else np.multiply.outer(self.shares, column_sums(mass))
            mass = mass - left
        return 0.5 * float(product(r, r)), mass.dot(self.values) if one else weighted_sums(mass, self.values)

    def _fitted(self, v: np.ndarray) -> np.ndarray:
        """Return the products of the features gathered with v, of which ``shift`` is not yet subtracted."""
        found, low = np.empty(0), 0
        for part in self.parts:
            high = low + part.shape[1]
            # The product of the transposes has contiguous columns, as the targets of several outputs have.
            own = v[low:high].T.dot(part.T).T
            found, low = found + own if low else own, high
        return found

    def moved(self, losses: float, slopes: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the losses and their slopes once v is added to a model with these, the features inside not being all.

        They are those of :meth:`evaluate` up to rounding, in half of its time. The columns gathered are centred, so that the
        intercept stays the best one.
        """
        mass = self._fitted(v) if self.roots is None else (self.roots * self._fitted(v).T).T
        new = slopes + (mass.dot(self.values) if mass.ndim == 1 else weighted_sums(mass, self.values))
        return losses + 0.5 * float(np.vdot((slopes + new)[..., self.inside], v.T)), new

    def intercept(self, v: np.ndarray) -> Any:
        """Return the best intercept of a model; v of the features inside."""
        return self.target_mean - self.means.dot(v)
