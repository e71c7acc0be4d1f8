"""Least squares of K outputs with a threshold for the norm of each feature's coefficients: the multi-task Lasso and elastic net.

    n P(W, b) = ½ Σ c_i ‖W x_i + b − t_i‖² + Σ_j ½ ridge_j ‖W_j‖² + threshold_j ‖W_j‖

The outer iteration is that of ``thresholds.py``. Over the m features gathered, the unknowns are the norms ν_j = ‖W_j‖ alone: with
‖W_j‖ = min_ν ½(‖W_j‖²/ν + ν) (Bach, Jenatton, Mairal and Obozinski 2012, Section 5), the minimum over W for given ν ≥ 0 is

    ψ(ν) = ½ Σ_j threshold_j ν_j − ½⟨Q, W⟩,    W = ZD(ν),    Z(D(ν)(H + D(ridge)) + D(threshold)) = Q,

where −Q are the slopes at W = 0. ψ is convex, and so is the problem of its minimum over ν ≥ 0, at which ‖Z_j‖ = 1 where ν_j > 0
and ‖Z_j‖ ≤ 1 elsewhere. A step solves m equations, not the Km of a Newton step in W. Where steps no longer decrease the
violations, proximal point steps follow, as in ``active_set.py``, and if these fail, interior-point steps on ψ over all of the m
features. These take longer than proximal points that succeed, but end for any H and however small the thresholds are.
On larger blocks (``Crossovers.small_entries``) the solver ends there, or before it gathers many features: Newton systems
with all outputs of these take several times as long as the compiled coordinate descent with which the loop continues.
"""

from __future__ import annotations

import math
import time
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.regularizers.base import largest
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct.active_set import solution
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.joint_points import IDLE, IN_VAIN, by_proximal_points
from dualnewton.solvers.direct.thresholds import IN_VAIN as MOST_IN_VAIN
from dualnewton.solvers.direct.thresholds import LEAST, NEARLY, TRUSTED, Rows, features_to_add
from dualnewton.solvers.prox.gaps import value_and_gap
from dualnewton.solvers.prox.joint_subproblem import JointPenalty

CLOSE = 0.03
"""Violation, as a fraction of the threshold, from which on the gap is computed: it may be small long before the violation is."""

WORSE = 2.0
"""Multiple of the least violation so far above which a step has raised it."""

SMALL = 16
"""Number of features up to which the system of all is solved where some norms are zero: taking the others would take longer."""

KEPT = 0.1
"""Least fraction of each norm that remains after such a step: if many became zero at once, and nonzero again, steps might
cycle."""

MOST_STEPS, BOUNDARY = 60, 0.99
"""Interior-point steps at most, and the part of the longest step that keeps the norms and multipliers positive."""

START, INACTIVE = 1e-2, 0.25
"""Smallest norm at which such steps start, as a fraction of the largest; and multiplier, as a fraction of the threshold, from
which on a feature is taken for zero: it is half of the threshold where the slope is zero, and nearly zero where it is used."""


class Goal(NamedTuple):
    """Stopping rule of the minimisation over the features gathered: one of two bounds must hold."""

    violation: float  # largest violation of the optimality conditions
    gap: float  # P − D over these features, as a fraction of P. It is computed where no violation exceeds ``close``.
    close: float  # violation that is a small fraction of the threshold
    losses: float  # losses at the start


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Add features and minimise over them until the gap is small enough, or rounding stops its fall."""
    penalty, rows = JointPenalty.of(problem), Rows(problem, block)
    W = np.zeros((problem.columns, problem.d)) if start is None else np.array(start[0])
    if start is not None:
        rows.gather(np.flatnonzero(W.any(axis=0)))
    best, least, in_vain, steps, every, known = W, np.inf, 0, 0, start is None, None
    # Many features may be used.
    many = problem.d > max(problem.n, block.crossovers.persistent_features) and problem.regularizer.strongly_convex
    persists, pulled = problem.n * problem.d <= block.crossovers.small_entries and not many, np.inf
    by_points = True
    while True:
        losses, slopes = rows.evaluate(W.T if every else W[:, rows.inside].T) if known is None else known
        lengths = feature_norms(slopes)
        beyond = np.maximum(lengths - penalty.threshold, 0.0)
        if known is not None and not _count_outside(beyond, rows.inside):  # optimal over the features gathered
            best = W
            break
        if steps or start is not None:
            value, gap = value_and_gap(problem, W, losses, slopes)
            in_vain = in_vain + 1 if gap > 0.5 * least else 0
            if gap < least:
                best, least = W, gap
            if gap <= WELL_BELOW * limits.tol * value or steps >= limits.most or limits.is_late():
                break
        elif limits.is_late() or not np.count_nonzero(beyond):  # or zero is the minimum
            break
        more = _features_to_add(problem, block, rows.inside, lengths, beyond, penalty, persists=persists)
        if not more.size and in_vain > MOST_IN_VAIN:
            break
        if not persists:
            outside = _count_outside(beyond, rows.inside)
            if _are_many(rows.inside.size + more.size, outside, pulled if many else np.inf, block):
                break
            pulled = outside
        # All at once, in their order: no arrays need be taken apart.
        every = every and (steps > 0 or more.size == problem.d)
        rows.gather(more)
        inside, steps = rows.inside, steps + 1
        part = penalty if every else penalty.only(inside)
        low = float(part.threshold.item(part.threshold.argmin()))
        goal = Goal(WELL_BELOW * limits.tol * low, WELL_BELOW**2 * limits.tol, CLOSE * low, losses)
        own = slopes, beyond, W
        if not every:
            own = slopes.take(inside, axis=1), beyond.take(inside), W.take(inside, axis=1)
        further = limits.deadline, block.crossovers
        V, done, by_points = minimum(rows.matrix(), *own, part, goal, *further, persists=persists, by_points=by_points)
        W = V if every else np.zeros(W.shape)
        if not every:
            W[:, inside] = V
        trusted = done and limits.tol >= TRUSTED
        if (trusted and every) or not (done or persists):
            best = W
            break
        known = rows.moved(losses, slopes, (V - own[2]).T) if trusted else None
    used = best.T if every and steps else best[:, rows.inside].T
    return Found(best, rows.intercept(used), max(steps, 1))


def _features_to_add(
    problem: Problem,
    block: Block,
    inside: np.ndarray,
    lengths: np.ndarray,
    beyond: np.ndarray,
    penalty: JointPenalty,
    *,
    persists: bool,
) -> np.ndarray:
    """Return the features that are gathered next, given the norms of all slopes, and how far they are beyond their thresholds.

    At first up to twice ``LEAST`` are gathered together, with those that are near their thresholds: another turn would evaluate
    the rows once more. On larger blocks only the worst of more are gathered: correlated features that violate the conditions at
    W = 0 are mostly not used in the end.
    """
    n, d = problem.n, problem.d
    if not inside.size and 2 * LEAST < d <= n and LEAST < np.count_nonzero(beyond) <= 2 * LEAST:
        near = (lengths > NEARLY * penalty.threshold).nonzero()[0]
        if near.size <= 2 * LEAST:
            return near
    return features_to_add(beyond, inside, n, block.crossovers, persists and d <= n)


def _count_outside(beyond: np.ndarray, inside: np.ndarray) -> int:
    """Return how many features violate the optimality conditions of those that are not gathered."""
    return int(np.count_nonzero(beyond) - np.count_nonzero(beyond.take(inside)))


def _are_many(gathered: int, outside: int, before: float, block: Block) -> bool:
    """Whether so many features are gathered, or expected to be used, that coordinate descent costs less.

    ``outside`` and ``before`` are the numbers of features outside that violate the optimality conditions, now and before the last
    ones were gathered: where these explain much of what others explain, the number falls steeply.
    """
    sizes = block.crossovers
    return gathered > sizes.persistent_features or outside > max(sizes.persistent_features, sizes.pulled_share * before)


def minimum(
    H: np.ndarray,
    slopes: np.ndarray,
    beyond: np.ndarray,
    V: np.ndarray,
    penalty: JointPenalty,
    goal: Goal,
    deadline: float,
    crossovers: Crossovers = USUAL,
    *,
    persists: bool = True,
    by_points: bool = True,
) -> tuple[np.ndarray, bool, bool]:
    """Return the minimiser, starting at V, of shape (K, m), at which the smooth part has these slopes; whether it meets the goal;
    and whether proximal points have not failed, which are taken only if they have not before (``by_points``). Where steps in the
    norms do not meet the goal, other steps follow only if ``persists``.

    Features that are zero get the norm at which each alone would be best, given how far their slopes are beyond their thresholds.
    At V = 0 and without a ridge the steps start without those that the strongest explains; if the violation is then not halved at
    each step, they start again with all. If it explains all others, its model is the minimiser.
    The other norms move by the Newton step for
    1/‖Z_j‖ = 1, which is exact for features that do not depend on each other (as 1/‖W‖ is for the radius of a trust region: Moré
    and Sorensen 1983). Where a step has raised the largest violation, the next one is the Newton step of ψ.
    """
    q, constant = -slopes, goal.losses
    starts, explained = np.count_nonzero(V), None
    if starts:
        q = V @ H - slopes
        constant -= 0.5 * float(np.vdot(V, slopes - q))
    elif not np.count_nonzero(penalty.ridge):
        own, explained = strongest_alone(H, q, beyond, penalty.threshold)
        if own is not None:
            return own, True, by_points
    model = NormModel.of(H, q, penalty)
    norms, alone = beyond / model.single, None
    if starts:
        sizes = feature_norms(V)
        norms = np.where(sizes > 0.0, sizes, norms)
    elif explained is not None:
        norms, alone = np.where(explained, 0.0, norms), norms
    best, least, in_vain = None, np.inf, 0
    while in_vain < IN_VAIN:
        at = model.at(norms)
        left = at.violation()
        raised = left > WORSE * least
        in_vain = 0 if left < 0.5 * least else in_vain + (1 if raised else IDLE)
        if left < least:
            best, least = at, left
        if left <= goal.violation or time.perf_counter() > deadline:
            break
        if in_vain and alone is not None:
            norms, alone, best, least, in_vain = alone, None, None, np.inf, 0
            continue
        if left <= goal.close:
            W = at.model()
            value, gap = model.value_and_gap(at, W, constant)
            if gap <= goal.gap * value:
                return W, True, by_points
        norms = model.stepped(at, raised=raised)
    V, done = V if best is None else best.model(), least <= goal.violation
    if done or not persists or time.perf_counter() > deadline:
        return V, done, by_points
    if by_points:
        V, done = by_proximal_points(H, q, V, penalty, goal.violation, deadline, crossovers)
    if done or time.perf_counter() > deadline:
        return V, done, by_points
    return *by_interior_points(model, norms if best is None else best.norms, goal, constant, deadline), False


def strongest_alone(
    H: np.ndarray, q: np.ndarray, beyond: np.ndarray, threshold: np.ndarray
) -> tuple[np.ndarray | None, np.ndarray]:
    """Return the model of the strongest feature alone, if it is the minimiser, and which other features that model explains.

    These have slopes within their thresholds there. There is no ridge; ``beyond`` is how far the slopes at W = 0 are beyond them.
    """
    i = int(beyond.argmax())
    own, single, most = H[i], H.item(i, i), beyond.item(i)
    w = q[:, i] * (most / (single * (most + threshold.item(i))) if single > 0.0 else 0.0)
    explained = feature_norms(q - np.multiply.outer(w, own)) <= threshold
    explained[i] = False
    if not single > 0.0 or np.count_nonzero(explained) < explained.size - 1:
        return None, explained
    W = np.zeros(q.shape)
    W[:, i] = w
    return W, explained


class AtNorms(NamedTuple):
    """The minimum over W for given norms ν."""

    norms: np.ndarray  # ν
    used: np.ndarray  # features with ν_j > 0
    Z: np.ndarray  # W_j/ν_j of these, or of all features where they are few
    N: np.ndarray  # own (D(ν) own + D(threshold))⁻¹ of the same features, where own = H + D(ridge)
    lengths: np.ndarray  # ‖Z_j‖ of all features; of those with ν_j = 0, Z_j are their slopes over −threshold_j
    beyond: np.ndarray  # threshold_j (‖Z_j‖ − 1)

    def model(self) -> np.ndarray:
        """Return W."""
        if len(self.N) == self.norms.size:
            return self.Z * self.norms
        W = np.zeros((len(self.Z), len(self.norms)))
        W[:, self.used] = self.Z * self.norms.take(self.used)
        return W

    def violation(self) -> float:
        """Return the largest distance of the slopes of a feature from the subdifferential of the penalty."""
        used = self.beyond if self.used.size == self.beyond.size else self.beyond.take(self.used)
        low = -used.item(used.argmin()) if used.size else 0.0
        return max(largest(self.beyond), low)


class NormModel(NamedTuple):
    """ψ as a function of the norms; see the top of this file."""

    right: np.ndarray  # Q and, below it, own = H + D(ridge)
    penalty: JointPenalty
    single: np.ndarray  # diagonal of ``own``, and ∞ where it is zero: such a feature stays zero
    q: np.ndarray  # Q

    @classmethod
    def of(cls, H: np.ndarray, q: np.ndarray, penalty: JointPenalty) -> NormModel:
        """Return ψ for the matrix H of the smooth part."""
        right, K = np.concatenate([q, H]), len(q)
        diagonal = right.reshape(-1)[K * len(H) :: len(H) + 1]
        diagonal += penalty.ridge
        single = diagonal.copy()
        if single.size and not single.item(single.argmin()) > 0.0:
            single[~(single > 0.0)] = np.inf
        return cls(right, penalty, single, q)

    def at(self, norms: np.ndarray) -> AtNorms:
        """Solve for Z: of the features with ν_j > 0 alone, unless there are few."""
        right, nu, threshold, used = self.right, norms, self.penalty.threshold, norms.nonzero()[0]
        K, some = len(right) - norms.size, used.size < norms.size > SMALL
        if some:
            rows = right[K:].take(used, axis=0)
            right = np.concatenate([self.q, rows]).take(used, axis=1)
            nu, threshold = nu.take(used), threshold.take(used)
        M = right[K:] * nu[:, None]
        diagonal = M.reshape(-1)[:: len(M) + 1]
        diagonal += threshold
        if len(M):  # the transpose of an array in C order is what LAPACK works on, without a copy
            _, _, found, failed = _gesv()(M.T, right.T, 1)
            right = found.T if not failed else np.full(right.shape, np.nan)
        Z, N = right[:K], right[K:]
        whole = self.penalty.threshold
        lengths = feature_norms((self.q - (Z * nu).dot(rows)) / whole if some else Z)
        return AtNorms(norms, used, Z, N, lengths, whole * lengths - whole)

    def value_and_gap(self, at: AtNorms, W: np.ndarray, constant: float) -> tuple[float, float]:
        """Return n P and n(P − D) at W, the model for these norms, given the losses at W = 0.

        The slopes are −Z_j(threshold_j + ridge_j ν_j).
        """
        norms, steepness = at.norms * at.lengths, at.lengths * (self.penalty.threshold + self.penalty.ridge * at.norms)
        product = -float(norms.dot(steepness))
        losses = constant + 0.5 * (product - float(np.vdot(self.q, W)))
        return self.penalty.value_and_gap(norms, product, steepness, losses)

    def meets(self, goal: Goal, at: AtNorms, constant: float) -> bool:
        """Whether the model for these norms meets one of the bounds, given the losses at W = 0."""
        if at.violation() <= goal.violation:
            return True
        value, gap = self.value_and_gap(at, at.model(), constant)
        return gap <= goal.gap * value

    def couplings(self, at: AtNorms) -> np.ndarray:
        """Return N_ij ⟨Z_i, Z_j⟩ of the features in ``at.N``; see :meth:`stepped`."""
        found: np.ndarray = at.Z.T.dot(at.Z)
        found *= at.N
        return found

    def stepped(self, at: AtNorms, *, raised: bool) -> np.ndarray:
        """Return the norms after a Newton step for 1/‖Z_j‖ = 1; if the last step has raised the violation, for ‖Z_j‖² = 1.

        The gradient of ψ is ½ threshold_j(1 − ‖Z_j‖²). Its second derivatives are N_ij ⟨Z_i, Z_j⟩ threshold_j with
        N = own (D(ν) own + D(threshold))⁻¹, since ∂Z_i/∂ν_j = −N_ji Z_j: a positive semidefinite matrix, by Schur's theorem on
        products.
        """
        lengths, beyond, nu, threshold, used = at.lengths, at.beyond, at.norms, self.penalty.threshold, at.used
        if not used.size:
            return np.maximum(beyond / self.single, 0.0)
        curvature = self.couplings(at)
        some, right = used.size < nu.size, (0.5 * (lengths + 1.0) if raised else lengths * lengths) * beyond
        if some:
            nu, right, threshold = nu.take(used), right.take(used), threshold.take(used)
            curvature = curvature if len(curvature) == used.size else curvature.take(used, axis=0).take(used, axis=1)
        curvature *= threshold
        nu = np.maximum(nu + solution(curvature, right), KEPT * nu if raised else 0.0)
        if some:  # the others get the norm at which each alone would be best
            norms = np.maximum(at.beyond / self.single, 0.0)
            norms[used] = nu
            return norms
        return nu


@cache
def _gesv() -> Any:
    """Return LAPACK's function, imported on first use: SciPy's own wrapper takes longer than a small system."""
    from scipy.linalg.lapack import dgesv

    return dgesv


def by_interior_points(
    model: NormModel, norms: np.ndarray, goal: Goal, constant: float, deadline: float
) -> tuple[np.ndarray, bool]:
    """Return a model, and whether it meets the goal, by primal-dual interior-point steps for the minimum of ψ over ν ≥ 0.

    The steps are Newton's for ∇ψ(ν) = s and ν_j s_j = μ, with Mehrotra's choice of μ and his correction. Features whose s_j is a
    large part of its value at ν = 0 are zero in the model: the steps leave a little of their norms.
    """
    threshold = model.penalty.threshold
    nu, s = np.maximum(norms, START * largest(norms)), 0.5 * threshold
    found, done = model.at(norms), False
    for _ in range(MOST_STEPS):
        at, mu = model.at(nu), float(nu @ s)
        if not (np.isfinite(at.lengths).all() and mu > 0.0) or time.perf_counter() > deadline:
            break
        if model.meets(goal, at, constant):
            found = model.at(np.where(s < INACTIVE * threshold, nu, 0.0))
            if done := model.meets(goal, found, constant):
                break
        K = model.couplings(at) * threshold
        K[np.diag_indices(len(K))] += s / nu
        slopes, target, second = -0.5 * (at.lengths + 1.0) * at.beyond, 0.0, np.zeros(len(nu))
        for last in (False, True):
            step = solution(K.copy(), (target - second) / nu - slopes)
            change = (target - second - s * step) / nu - s
            length = min(1.0, BOUNDARY * _longest(nu, step), BOUNDARY * _longest(s, change))
            if not last:
                reached = float((nu + length * step) @ (s + length * change))
                target, second = (reached / mu) ** 3 * mu / len(nu), step * change
        nu, s = nu + length * step, s + length * change
    return found.model(), done


def _longest(values: np.ndarray, step: np.ndarray) -> float:
    """Return the largest multiple of a step that leaves the values nonnegative."""
    falls = step < 0.0
    return float(np.minimum.reduce(values[falls] / -step[falls], initial=math.inf))
