"""Least squares with a threshold for each feature: Lasso and elastic net, also without negative coefficients.

    n P(w, b) = ½ Σ c_i (x_iᵀw + b − t_i)² + Σ_j ½ ridge_j w_j² + threshold_j |w_j|

Each turn 1. adds features that violate the optimality conditions to those gathered, 2. minimises over the gathered features
(``active_set.py``), 3. computes residuals, the slopes of all features and the gap from the rows, not from the Gram matrix, so
that rounding errors of the latter do not accumulate. The intercept is eliminated: columns and targets are centred.

With more features than examples the first turns have stronger penalties, so that the features in use become more from turn to
turn: from w = 0 at once, many more would be gathered than are used in the end.

Linear systems cost much where many features are used. If these explain the targets nearly independently of each other, sweeps of
coordinate descent (``entries.py``) come first, and mostly suffice.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import column_sums, product
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct.active_set import Columns, Gram, Kinks, Matrix, Model
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start, weighted_sums

GROWTH, LEAST = 1.0, 16
"""A turn adds at most this multiple of the features gathered, or ``LEAST``, where more features may violate the conditions."""

MOST_PENALTIES = 12
"""With more features than examples: the most penalties of consecutive turns, each weaker than the one before."""

ROUGHLY, ENOUGH = 0.1, 0.1
"""Violation, as a fraction of the threshold, at which a turn with a stronger penalty is done; and the fraction of the largest
violation outside that a turn may leave inside, since the next one is over more features."""

TRUSTED = 1e-8
"""Tolerance from which on the minimum over all features is returned without evaluating the rows again: the rounding errors of the
matrix of products leave less, and the certificate shows if they do not."""

IN_VAIN = 2
"""Consecutive turns that leave more than half of the gap: if there is no feature to add either, rounding has ended progress."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Sweep over the features if that is expected to suffice; else, and where it does not, take Newton steps."""
    kinks, rows, known = kinks_of(problem), Rows(problem, block), None
    if start is None and problem.n * problem.d > block.crossovers.small_entries:
        known = _, slopes = rows.evaluate(np.empty(0))
        if (sweeps := sweeps_worth(problem, slopes, kinks.shrunk(-slopes) != 0.0, block.crossovers)) > 0:
            from dualnewton.solvers.direct.entries import swept

            found, done = swept(problem, block, None, limits, sweeps)
            if done or limits.is_late():
                return found
            # With d ≤ n, the signs that one system over all features gives at w = 0 are a better start than the model.
            if problem.d > problem.n:
                start, known = (found.w, found.intercept), None
    return by_newton(problem, block, kinks, rows, start, known, limits)


def by_newton(
    problem: Problem,
    block: Block,
    kinks: Kinks,
    rows: Rows,
    start: Start | None,
    known: tuple[float, np.ndarray] | None,
    limits: Limits,
) -> Found:
    """Add features and minimise over them until the gap is small enough, or rounding stops its fall.

    ``known`` are the losses and slopes at the start, if they are known.
    """
    w = np.zeros(problem.d) if start is None else kinks.nearest(np.asarray(start[0]))
    rows.gather(w.nonzero()[0])
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
            *stronger, _ = falling(1.0 + float((np.abs(beyond) / kinks.high).max()), block.crossovers.path_ladder)
        here = kinks.times(stronger[0]) if stronger else kinks
        beyond = here.shrunk(-slopes) if stronger else beyond
        few = problem.d <= block.crossovers.gathered_features
        if not (few or rows.inside.size) and are_used(problem, slopes, beyond != 0.0, block.crossovers):
            more = np.arange(problem.d)
        else:
            more = wanted(beyond, rows.inside, problem.n, block.crossovers)
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


def falling(highest: float, ratio: float) -> tuple[float, ...]:
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


def value_and_gap(problem: Problem, w: np.ndarray, losses: float, slopes: np.ndarray) -> tuple[float, float]:
    """Return n P, and n(P − D) by Fenchel and Young for α = −φ′, shortened until g* is finite."""
    g, scale = problem.g, problem.lam * problem.n
    bar, penalty = slopes / -scale, g.value(w)
    r = g.reach(bar)
    defect = penalty + g.conjugate(r * bar) - r * float(np.vdot(w, bar))
    return losses + scale * penalty, scale * max(defect, 0.0) + (1.0 - r) ** 2 * abs(losses)


def are_used(problem: Problem, slopes: np.ndarray, pulled: np.ndarray, sizes: Crossovers) -> bool:
    """Whether most features of least squares are likely to be nonzero, given their slopes at w = 0 and which exceed thresholds.

    Where features share what they explain, those that enter first leave little for the others.
    """
    if problem.d > problem.n or np.count_nonzero(pulled) < sizes.walk_share * problem.d:
        return False
    return explained(problem, slopes) <= sizes.shared_share


def sweeps_worth(problem: Problem, slopes: np.ndarray, pulled: np.ndarray, sizes: Crossovers) -> int:
    """Return how many sweeps are tried before Newton steps, given the slopes at w = 0 and which of them exceed thresholds.

    None are, unless features explain the targets nearly independently of each other; noise in the targets has each feature
    explain 1/n of them. The m features with such slopes are expected to be used. The products and the linear systems of Newton's
    method cost as much as m and m²/n sweeps, each times a number.
    """
    m = int(np.count_nonzero(pulled))
    worth = int(sizes.product_sweeps * m + sizes.system_sweeps * m * m / problem.n)
    if worth < sizes.fewest_sweeps or explained(problem, slopes) > sizes.shared_share * (1.0 + problem.d / problem.n):
        return 0
    return worth


def explained(problem: Problem, slopes: np.ndarray) -> float:
    """Return the sum of what each feature explains alone, slope_j²/Σ c_i x_ij², as a fraction of Σ c_i t_i²."""
    c, data = problem.sample_weight, problem.data
    squares = np.square(data.feature_norms) if c is None else data.column_norms(c)
    t = problem.y - problem.o
    t = t - problem.fit_intercept * float(problem.c @ t) / float(problem.c.sum())
    each = np.divide(np.square(slopes), squares, out=np.zeros(problem.d), where=squares > 0.0)
    return float(each.sum()) / (float(problem.c @ np.square(t)) or 1.0)


def wanted(beyond: np.ndarray, inside: np.ndarray, n: int, sizes: Crossovers) -> np.ndarray:
    """Return the features outside that violate the optimality conditions; where these may be many, the worst of them.

    Of few features, all are gathered at once.
    """
    d = len(beyond)
    if d <= sizes.gathered_features:
        outside = np.ones(d, dtype=bool)
        outside[inside] = False
        return outside.nonzero()[0]
    beyond = np.abs(beyond)
    beyond[inside] = 0.0
    found = beyond.nonzero()[0]
    if d <= min(sizes.least_set, n) and not inside.size and found.size >= sizes.walk_share * d:
        return np.arange(d)
    most = max(LEAST, int(GROWTH * inside.size))
    if (d <= n and (d <= sizes.least_set or n * d * d <= sizes.gathered_products)) or found.size <= most:
        return found
    return np.sort(found[np.argpartition(-beyond[found], most - 1)[:most]])


class Rows:
    """The rows of a problem, and the columns of the features gathered so far.

    Attributes
    ----------
    inside : integer array of shape (m,)
        The features gathered, in the order of their gathering.
    A : array of shape (n, m)
        √c_i times their centred values.
    most : int
        The most features whose matrix is formed.
    shift : array of shape (m,), optional
        What is still to be subtracted from A. All features at once are not copied to centre them, unless their products would
        lose digits.
    """

    def __init__(self, problem: Problem, block: Block) -> None:
        self.values, self.fit_intercept = block.rows, problem.fit_intercept
        self.most = max(problem.n, block.crossovers.wide_matrix)
        c, n = problem.sample_weight, problem.n
        self.shares = np.empty(n)
        self.shares[:] = 1.0 / n if c is None else c / c.sum()
        t = problem.y if problem.offset is None else problem.y - problem.offset
        self.target_mean = self.shares @ t if self.fit_intercept else 0.0 * t[0]
        t = t - self.target_mean
        self.roots = None if c is None else np.sqrt(c)
        self.targets = t if self.roots is None else (self.roots * t.T).T
        self.inside, self.A, self.means = np.empty(0, dtype=np.intp), np.empty((len(t), 0)), np.empty(0)
        self.H: np.ndarray | None = None
        self.shift: np.ndarray | None = None

    def gather(self, features: np.ndarray) -> None:
        """Add features."""
        if not features.size:
            return
        every = self.roots is None and features.size == self.values.shape[1] <= len(self.values)
        more = self.values if every else self.values.take(features, axis=1)
        means = self.shares @ more if self.fit_intercept else np.zeros(len(features))
        if every:
            self.shift = means if self.fit_intercept else None
        elif self.fit_intercept:
            more -= means
        if self.roots is not None:
            more *= self.roots[:, None]
        if self.inside.size:
            more = np.concatenate([self.A, more], axis=1)
            means, features = np.concatenate([self.means, means]), np.concatenate([self.inside, features])
        self.inside, self.A, self.means = features, more, means

    def gram(self) -> Gram:
        """Return AᵀA: a matrix, unless there are many more features than rows."""
        n, m = self.A.shape
        return Columns(self.A) if m > self.most else Matrix(self.matrix(), n)

    def matrix(self) -> np.ndarray:
        """Return AᵀA as a matrix."""
        m = self.A.shape[1]
        old = 0 if self.H is None else len(self.H)
        if self.H is None:
            self.H = self.A.T @ self.A
            if self.shift is not None:
                lost = len(self.A) * self.shift
                if not np.count_nonzero(lost * self.shift > 0.5 * self.H.diagonal()):
                    self.H -= np.multiply.outer(lost, self.shift)
                else:
                    self.A, self.shift = self.A - self.shift, None
                    self.H = self.A.T @ self.A
        elif old < m:
            H = np.empty((m, m))
            H[:old, :old] = self.H
            H[old:] = self.A[:, old:].T @ self.A
            H[:old, old:] = H[old:, :old].T
            self.H = H
        return self.H

    def evaluate(self, v: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the losses and their slopes of all features at a model and its best intercept; v of the features inside."""
        # The product of the transposes has contiguous columns, as the targets of several outputs have.
        r = (v.T @ self.A.T).T - self.targets if self.inside.size else -self.targets
        if self.shift is not None:
            r -= self.shift @ v
        mass = r if self.roots is None else (self.roots * r.T).T
        one = mass.ndim == 1
        if self.fit_intercept:  # the sum is zero but for rounding, which features far from zero would amplify
            left = self.shares @ mass if self.roots is None else np.multiply.outer(self.shares, column_sums(mass))
            mass = mass - left
        return 0.5 * float(product(r, r)), mass @ self.values if one else weighted_sums(mass, self.values)

    def intercept(self, v: np.ndarray) -> Any:
        """Return the best intercept of a model; v of the features inside."""
        return self.target_mean - self.means @ v
