"""Newton's method by products with X, for a smooth loss and a quadratic penalty: sparse rows, and dense ones of many features.

A step solves the Newton system by conjugate gradients, each of which costs a product with X and one with Xᵀ:

    (Xᵀ C X + D(ridge)) s = −g,        C t = φ″(t − 1β),   β = (Σ φ″_i)⁻¹ Σ φ″_i t_i,       φ″_i including the weight c_i

C is what the best intercept leaves of the curvature, so that no direction is without a ridge. The residual r of the system is the
gradient at the end of the step but for the change of the curvature, and gives the gap that is left, Σ r_j²/(2 ridge_j): for the
squared loss one system, solved to the wanted gap, is enough. With K classes t_i has K entries, and φ″_i and Σ φ″_i are K×K.

Without a scale the residuals r_k of conjugate gradients are orthogonal. The mean of their points with weights 1/‖r_k‖² then has
the smallest residual of all combinations, 1/‖r‖² = Σ 1/‖r_k‖², while that of the last point may be several times as large. With a
preconditioner the smallest residual between the mean so far and each next point takes its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.blas import daxpy

from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import curvature, curvature_at
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.dependent_features import BlockDiagonal, DependentFeatures, Directions
from dualnewton.solvers.direct.descent import further_steps, step
from dualnewton.solvers.direct.newton import from_hessian, zero_start
from dualnewton.solvers.direct.risk import SINGLE, Point, Risk
from dualnewton.solvers.primal.single_precision import noise_of

INNER = 0.01
"""Largest gap that a Newton system may leave, as a fraction of the last gap; less, near the minimum, where that is smaller."""

NEAR = 0.5
"""Fraction of the wanted gap that the last system may leave: the curvature changes on the way."""

EVEN = 4.0
"""Largest ratio of the largest eigenvalue of XᵀCX to the ridge for which a system needs no scale: some conjugate gradients."""

OBSERVED, OBSERVED_SPARSE = 8, 4
"""Conjugate gradients of a system after which the number of further ones is predicted: fewer on sparse rows, where they may cost
a multiple of the other methods, so that a rough prediction suffices."""

RECENT = 0.625
"""Share of the conjugate gradients of a system by whose decrease of the gap further ones are predicted: the residual falls
fastest at first, but hardly between groups of eigenvalues. With one half, fits were given up on such a plateau."""

UNDECIDED = 16
"""Part of the affordable conjugate gradients, one in this number, that a system may take before its gap decreases at all."""

UNNOTICED = 0.01
"""Largest gap that rounding in float32 may add, as a fraction of the wanted one."""

NONE = np.zeros(0, dtype=np.intp)
"""No features."""

MOST_PRODUCTS = 400
"""Conjugate gradients after which a fit is left to other methods."""


class Asked(NamedTuple):
    """A vector whose product with the matrix of a system a search needs before it can continue."""

    system: System
    p: np.ndarray


Search = Generator[Asked, np.ndarray, Any]
"""Yields whenever it needs a product with the matrix of a system, so that several searches can share these."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits, *, directions: int = 0) -> Found:
    """Do all that :func:`search` says, with a product at a time."""
    found: Found = _with_own_products(search(problem, block, start, limits, directions))
    return found


def _with_own_products(own: Search) -> Any:
    """Return what a search finds, all of whose products are computed one by one."""
    try:
        asked = next(own)
        while True:
            asked = own.send(asked.system.times(asked.p))
    except StopIteration as end:
        return end.value


def search(problem: Problem, block: Block, start: Start | None, limits: Limits, directions: int = 0) -> Search:
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
    z = risk.constant(b) if start is None else risk.margins(x)
    value, slopes, pull = risk.losses(x, z)
    single = not sparse and _is_unnoticed(risk, SINGLE * float(np.linalg.norm(slopes)), goal * abs(value))
    exact, risk = risk, risk.with_single_sums() if single else risk
    at = risk.point(x, z, value, slopes, pull)
    good = start is not None and risk.gap(at) <= goal * abs(at.value)
    if good and problem.columns == 1:
        return Found(*risk.model(at.x), 0)
    first, dependent = System.of(risk, at, block, None), None
    gap, steps, products = risk.gap(at) + first.left_by_intercepts(at), 0, 0
    stuck = good and gap <= goal * abs(at.value)
    begin, constant = gap, problem.loss.curvature is Curvature.CONSTANT
    # The residual of a system with products in float32 is less exact than the gap that is wanted.
    inner, near = 0.0 if constant else INNER, 1.0 if constant and sparse else NEAR
    while steps < limits.most and not stuck:
        left = min(inner, gap / abs(at.value) if at.value else inner) * gap
        system = System.of(risk, at, block, first, dependent) if steps else first
        pace = Pace(directions, begin, products, OBSERVED_SPARSE if sparse else OBSERVED)
        way = yield from system.search(left, near * goal, MOST_PRODUCTS - products, pace, limits.is_late)
        at, stuck = step(risk, at, way.x, margins=way.margins, exact=True)
        steps, products, gap = steps + 1, products + way.products, risk.gap(at) + system.left_by_intercepts(at)
        dependent = way.dependent or dependent
        stuck = stuck or gap <= goal * abs(at.value) or products >= MOST_PRODUCTS or limits.is_late()
        if way.slow and not stuck and (sparse or not _suits_single(problem, block, risk)):
            return Found(*risk.model(at.x), max(steps, math.ceil(0.5 * products)), given_up=True)
        while way.slow and steps < limits.most and not stuck:
            at, more, stuck = from_hessian(exact, at, limits._replace(tol=goal))
            steps, stuck = steps + more, stuck or limits.is_late()
    return Found(*risk.model(at.x), max(steps, math.ceil(0.5 * products)))


def _is_unnoticed(risk: Risk, error: float, wanted: float) -> bool:
    """Whether errors of this norm in the slopes u_i change the gap by a small part of the wanted one at most.

    For dense rows, whose products may be computed in float32: errors of the gradient Σ u_i a_i are about ‖X‖/√n times as large.
    """
    if risk.loss.columns > 1 or risk.squares is None:
        return False
    return error**2 * risk.squares / risk.n * float(risk.halves.max()) <= UNNOTICED * wanted


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
    """Return w = 0, for least squares with the best intercept: the system then gives the value at its solution."""
    w, b = zero_start(problem)
    return w, problem.best_intercept_without_features() if problem.loss.curvature is Curvature.CONSTANT else b


class Pace(NamedTuple):
    """The progress of a fit before a system, from which the further conjugate gradients are predicted."""

    most: int = 0  # conjugate gradients that cost as much as a Hessian; 0 for no limit
    first: float = 0.0  # gap at the start of the fit
    products: int = 0  # conjugate gradients so far
    observed: int = OBSERVED  # conjugate gradients of a system after which further ones are predicted

    def is_slow(self, gaps: Sequence[float], goal: float) -> bool:
        """Whether the fit is expected to need more of them than that, given the gaps in the last system, from its start on.

        The rate is that of the last of them (``RECENT``). The gap may rise at the start of a system with a scale, and from one
        to the next: the fit is slow if its decrease since its own start is slow, too. While it has not decreased at all, nothing
        can be predicted.
        """
        more, gap = len(gaps) - 1, gaps[-1]
        products, recent = self.products + more, math.ceil(RECENT * more)
        if not self.most or gap <= goal:
            return False
        if more < self.observed or (gap >= max(gaps[0], self.first) and more < self.most / UNDECIDED):
            return products > self.most
        left = further_steps(gaps[-1 - recent], gap, goal, recent)
        if self.products:
            left = min(left, further_steps(self.first, gap, goal, products))
        return products + left > self.most


ANY = Pace()
"""No limit: a system is solved by as many conjugate gradients as it needs."""


class Solved(NamedTuple):
    """A step, its margins, the conjugate gradients that it took, and why it ended early, if it did."""

    x: np.ndarray
    margins: np.ndarray
    products: int
    slow: bool  # whether conjugate gradients were slow
    dependent: DependentFeatures | None  # for the preconditioner of the next system, if a direction has shown some


@dataclass(frozen=True, eq=False)
class System:
    """The Newton system at a point; a vector has an entry for each feature and class, those of a feature together."""

    risk: Risk  # objective
    at: Point  # point
    weights: np.ndarray  # (n,) or (n, K) φ″_i, or its diagonal
    curved: Callable[[np.ndarray], np.ndarray]  # t ↦ φ″t
    # (d K,) λn v_j and 1/(2 λn v_j); one number if all are equal.
    ridge: Any
    halves: Any
    # Weighted means of the squares of the features, if the system is scaled by its diagonal; else that of all entries, or 0.
    means: Any
    inverse: Any  # inverse of the diagonal, of its mean, or of the ridge
    preconditioner: BlockDiagonal | None  # that of features which depend on each other, if some have been found
    of_intercept: Any  # (Σ φ″_i)⁻¹, K×K for several classes; zero without an intercept

    @classmethod
    def of(
        cls, risk: Risk, at: Point, block: Block, first: System | None, dependent: DependentFeatures | None = None
    ) -> System:
        """Return the system, scaled by its diagonal if a few features have most of its trace.

        The diagonal costs a product: later systems take that of the first one, times the ratio of their mean curvatures, and so
        do they with the products of dependent features.
        """
        K, weights = risk.loss.columns, curvature(risk.loss, at.margins, risk.vectors)
        curved = weights.__mul__ if K == 1 else curvature_at(risk.loss, at.margins, risk.vectors)
        mass = float(weights.sum())
        scales = _scales(risk, weights, block) if first is None else (first.ridge, first.halves, first.means)
        of_intercept: Any = 0.0
        if risk.free and K == 1:
            of_intercept = 1.0 / (mass or np.inf)
        elif risk.free:
            sums = np.array([curved(np.broadcast_to(unit, weights.shape)).sum(axis=0) for unit in np.eye(K)])
            # Adding a number to all intercepts changes nothing: see ``Risk.hessian``.
            of_intercept = np.linalg.inv(sums + (sums.trace() / K**2 or 1.0))
        ridge, _, means = scales
        inverse = 1.0 / (mass * means + ridge)
        system = cls(risk, at, weights, curved, *scales, inverse, None, of_intercept)
        return system if dependent is None else replace(system, preconditioner=system.preconditioned(dependent))

    def preconditioned(self, dependent: DependentFeatures) -> BlockDiagonal:
        """Return the preconditioner of these features."""
        return dependent.preconditioner(self.inverse, float(self.weights.sum()), self.ridge)

    def directions(self) -> Directions | None:
        """Return what collects the directions, if their mean curvature is known."""
        if type(self.means) is float and self.means == 0.0:
            return None
        return Directions(self.inverse, NONE if self.preconditioner is None else self.preconditioner.features)

    def dependent(self, features: np.ndarray) -> DependentFeatures | None:
        """Return these features with their products, if several of them depend on the others."""
        found = DependentFeatures.of(features, self.risk.narrow, self.weights, centred=self.risk.free)
        return found if self.preconditioned(found).has_several_flat() else None

    def images(self, s: np.ndarray, wanted: float) -> np.ndarray:
        """Return the margins Xs of a step, in float32 where that changes the gap by a small part of the wanted one at most.

        The error of z_i is about 1e-7 times the norm of a_ij s_j, that of all of them at most 1e-7 ‖X‖ max |s_j|.
        """
        error = SINGLE * math.sqrt(self.risk.squares or 0.0) * float(np.abs(s).max()) * float(self.weights.max())
        return self.risk.products[0](s) if _is_unnoticed(self.risk, error, wanted) else np.asarray(self.risk.rows @ s)

    def best_intercept(self, t: np.ndarray) -> Any:
        """Return β = (Σ φ″_i)⁻¹ Σ φ″_i t_i, the intercept that is nearest to margins t."""
        if t.ndim == 1:
            return float(self.weights.dot(t)) * self.of_intercept
        return self.curved(t).sum(axis=0) @ self.of_intercept

    def left_by_intercepts(self, at: Point) -> float:
        """Return the part of the gap that is due to the slopes s along the intercepts of several classes: sᵀ(Σ φ″_i)⁻¹s.

        P exceeds its minimum over the intercepts by half of that, and balancing the dual point lowers D by the other half. With a
        strong penalty that is nearly the whole gap. (For one column the certificate moves the intercept to its best value.)
        """
        if not self.risk.free or self.risk.loss.columns == 1:
            return 0.0
        slopes = at.gradient.reshape(self.risk.loss.columns, -1)[:, -1]
        return float(slopes @ self.of_intercept @ slopes)

    def scaled(self, r: np.ndarray) -> tuple[np.ndarray, float, float]:
        """Return the preconditioned residual r, its product with r, and the gap that it leaves."""
        if self.preconditioner is None and type(self.inverse) is float:  # and so is the ridge
            square = float(r.dot(r))
            return self.inverse * r, self.inverse * square, self.halves * square
        q = self.inverse * r if self.preconditioner is None else self.preconditioner.times(r)
        return q, float(r.dot(q)), float(r.dot(self.halves * r))

    def times(self, p: np.ndarray) -> np.ndarray:
        """Return the product of the matrix with a vector."""
        K, (images, sums) = self.risk.loss.columns, self.risk.products
        return self.ridged(sums(self.between(images(p if K == 1 else p.reshape(-1, K)))).reshape(-1), p)

    def between(self, t: np.ndarray) -> np.ndarray:
        """Return Ct for t = Xp, which may be overwritten.

        NumPy is several times as fast along contiguous columns as along rows of a few classes.
        """
        t = np.asfortranarray(t)
        if self.risk.free:
            t -= self.best_intercept(t)
        return self.curved(t)

    def ridged(self, found: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the product with p, given XᵀCXp, which is overwritten."""
        if type(self.ridge) is float:
            return daxpy(p, found, a=self.ridge)
        found += self.ridge * p
        return found

    def solved(self, left: float, goal: float, most: int, pace: Pace = ANY) -> Solved:
        """Do all that :meth:`search` says, with a product at a time."""
        way: Solved = _with_own_products(self.search(left, goal, most, pace))
        return way

    def search(
        self, left: float, goal: float, most: int, pace: Pace = ANY, is_late: Callable[[], bool] = lambda: False
    ) -> Search:
        """Find the solution that leaves a gap of at most ``left``, or ``goal`` relative to the objective at its end.

        It is left earlier if the pace so far is too slow, if it ``is_late``, or if a direction shows features of which several
        depend on the others: the next system is preconditioned by their matrix.
        """
        risk, value, products, slow, left_early = self.risk, self.at.value, 0, False, False
        K, d, start = risk.loss.columns, risk.rows.shape[1], np.zeros(1)
        G = self.at.gradient.reshape(K, -1)
        r = -G[:, :d].T.reshape(-1)
        if risk.free:
            slope = G[:, d]
            start = -slope.dot(self.of_intercept)
            decrease = -0.5 * float(slope @ start)
            if decrease > risk.rounding * abs(value):
                value -= decrease
                r -= (risk.transposed @ self.curved(np.broadcast_to(start, self.at.margins.shape))).reshape(-1)
            else:
                start = np.zeros(1)
        s, p, mean = np.zeros(r.size), np.zeros(r.size), np.zeros(r.size)
        q, square, gap = self.scaled(r)
        gaps, last, even = [gap], square, self.preconditioner is None and type(self.inverse) is float
        smoothed, least, dependent = self.preconditioner is not None, r.copy(), None
        seen = self.directions() if K == 1 and type(risk.rows) is np.ndarray else None
        while products < most and gap > max(left, goal * abs(value)) and not (slow or left_early or is_late()):
            share = square / last
            p = daxpy(q, share * p)
            Hp = yield Asked(self, p)
            curvature = float(p.dot(Hp))
            if seen is not None and (found := seen.found_in(p, square, share, curvature)) is not None:
                dependent = self.dependent(found)
                if dependent is not None:
                    seen, left_early = None, not pace.most or 2 * (pace.products + products) <= pace.most
            t = square / curvature
            s, r = daxpy(p, s, a=t), daxpy(Hp, r, a=-t)
            value -= 0.5 * t * square
            last, products = square, products + 1
            q, square, gap = self.scaled(r)
            if even:
                part = gaps[-1] / (gaps[-1] + gap)
                mean, gap = daxpy(s - mean, mean, a=part), part * gap
            elif smoothed:
                change = r - least
                part = min(max(-float(least.dot(change)) / (float(change.dot(change)) or 1.0), 0.0), 1.0)
                mean, least = daxpy(s - mean, mean, a=part), daxpy(change, least, a=part)
                gap = float(least.dot(self.halves * least))
            gaps.append(gap)
            slow = pace.most > 0 and pace.is_slow(gaps, goal * abs(value))
        if even or smoothed:
            s = mean
        S = s if K == 1 else s.reshape(-1, K)
        images = self.images(s, goal * abs(value)) if risk.single else risk.rows @ S
        b = start - self.best_intercept(images) if risk.free else 0.0
        return Solved(risk.vector(S.T, b), images + b, products, slow, dependent)


def _scales(risk: Risk, weights: np.ndarray, block: Block) -> tuple[Any, Any, Any]:
    """Return ``ridge``, ``halves`` and ``means`` of the first system of a fit, given φ″_i or its diagonal."""
    d, K = risk.rows.shape[1], risk.loss.columns
    ridge, halves, means = np.repeat(risk.ridge[:d], K), np.repeat(risk.halves[:d], K), _means(risk, weights, block)
    if isinstance(means, float) and (ridge == ridge[0]).all():
        if type(risk.rows) is np.ndarray:
            means = float(block.data.norm) ** 2 / risk.rows.size
        return float(ridge[0]), float(halves[0]), means
    return ridge, halves, means


def _means(risk: Risk, weights: np.ndarray, block: Block) -> Any:
    """Return the weighted means of the squares of the features, if a few of them have most of the trace; else 0.

    They cost a product. None are needed where ‖X‖² max φ″, a bound on the largest eigenvalue of XᵀCX, is a small multiple of the
    ridge.
    """
    d, K = risk.rows.shape[1], risk.loss.columns
    if block.data.norm**2 * float(weights.max()) <= EVEN * float(risk.ridge[:d].min()):
        return 0.0
    equal = risk.loss.curvature is Curvature.CONSTANT and risk.vectors.c is None
    sums = block.squared_sums(weights, equal=equal).reshape(-1)
    diagonal = sums + np.repeat(risk.ridge[:d], K)
    trace = float(diagonal.sum())
    heavy = float(diagonal[diagonal * diagonal.size > block.crossovers.heavy_feature * trace].sum())
    return sums / (float(weights.sum()) or 1.0) if heavy > block.crossovers.heavy_trace * trace else 0.0
