"""Least squares of K outputs with a threshold for the norm of each feature's coefficients: the multi-task Lasso and elastic net.

    n P(W, b) = ½ Σ c_i ‖W x_i + b − t_i‖² + Σ_j ½ ridge_j ‖W_j‖² + threshold_j ‖W_j‖

The outer iteration is that of ``thresholds.py``. Over the features gathered, each step 1. predicts by one simultaneous move of
block coordinate descent which features are zero, and gives those that leave zero their first values, 2. takes a Newton step in
the other features, at which the norms are smooth; with a line search, unless the whole step halves the largest violation.
Where steps no longer do so, proximal point steps follow, as in ``active_set.py``, and sweeps of coordinate descent if these fail.
On larger blocks (``Crossovers.small_entries``) the solver ends there, or before it gathers many features: Newton systems
with all outputs of these take several times as long as the compiled coordinate descent with which the loop continues.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.direct.active_set import (
    FALL,
    FIRST,
    LAST,
    MOST_NEWTON,
    MOST_PROXIMAL,
    SHARPER,
    lifted,
    solution,
)
from dualnewton.solvers.direct.active_set import HALVINGS as MOST_HALVINGS
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.thresholds import IN_VAIN as MOST_IN_VAIN
from dualnewton.solvers.direct.thresholds import TRUSTED, Rows, value_and_gap, wanted
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, minimise, solved_by_factors

PRODUCTS, INEXACT = 30, 1e-2
"""Conjugate gradient steps at most, and the fraction of the residual at which they stop."""

HALVINGS, ROUNDING = 12, 1e-15
"""Halvings of a Newton step at most, and the relative change of the model that is rounding."""

CLOSE = 0.03
"""Violation, as a fraction of the threshold, from which on the gap is computed: it may be small long before the violation is."""

IN_VAIN = 3
"""Steps in a row that leave more than half of the violations: other steps take over."""


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
    best, least, in_vain, steps = W, np.inf, 0, 0
    persists = problem.n * problem.d <= block.crossovers.small_entries
    while True:
        losses, slopes = rows.evaluate(W[:, rows.inside].T)
        beyond = np.maximum(feature_norms(slopes) - penalty.threshold, 0.0)
        if steps or start is not None:
            value, gap = value_and_gap(problem, W, losses, slopes)
            in_vain = in_vain + 1 if gap > 0.5 * least else 0
            if gap < least:
                best, least = W, gap
            if gap <= WELL_BELOW * limits.tol * value or steps >= limits.most or limits.is_late():
                break
        elif limits.is_late() or not np.count_nonzero(beyond):  # or zero is the minimum
            break
        more = wanted(beyond, rows.inside, problem.n, block.crossovers, persists and problem.d <= problem.n)
        if not more.size and in_vain > MOST_IN_VAIN:
            break
        if not persists and rows.inside.size + more.size > block.crossovers.persistent_features:
            break
        rows.gather(more)
        inside, part = rows.inside, penalty.only(rows.inside)
        low = float(np.minimum.reduce(part.threshold, initial=np.inf))
        goal = Goal(WELL_BELOW * limits.tol * low, WELL_BELOW**2 * limits.tol, CLOSE * low, losses)
        V, done = minimum(
            rows.matrix(),
            slopes[:, inside],
            W[:, inside],
            part,
            goal,
            limits.deadline,
            block.crossovers,
            persists=persists,
        )
        W = np.zeros(W.shape)
        W[:, inside] = V
        steps += 1
        if (done and limits.tol >= TRUSTED and inside.size == problem.d) or not (done or persists):
            best = W
            break
    return Found(best, rows.intercept(best[:, rows.inside].T), max(steps, 1))


def minimum(
    H: np.ndarray,
    slopes: np.ndarray,
    V: np.ndarray,
    penalty: JointPenalty,
    goal: Goal,
    deadline: float,
    crossovers: Crossovers = USUAL,
    *,
    persists: bool = True,
) -> tuple[np.ndarray, bool]:
    """Return the minimiser, starting at V, of shape (K, m), at which the smooth part has these slopes; and whether it meets the
    goal by Newton steps. Where these do not, other steps follow only if ``persists``.
    """
    bound, q, constant, largest = H.diagonal(), -slopes, goal.losses, math.nan
    best, least, in_vain = V, np.inf, 0
    if np.count_nonzero(V):
        q = V @ H - slopes
        constant -= 0.5 * float(np.vdot(V, slopes - q))
        largest = float(np.maximum.reduce(penalty.violations(V, slopes), initial=0.0))
    while in_vain < IN_VAIN:
        if in_vain == 1:  # simultaneous moves were too long: from now on H ≼ D(bound)
            bound = np.abs(H).sum(axis=0)
        u = bound * V - slopes
        beyond = (norms := feature_norms(u)) - penalty.threshold
        if math.isnan(largest):  # at V = 0, where u = −slopes
            largest = float(np.maximum.reduce(beyond, initial=0.0))
        free = (beyond > 0.0).nonzero()[0]
        own, part, rows, square, right = V, penalty, H, H, q
        if free.size < len(H):
            part, rows = penalty.only(free), H.take(free, axis=0)
            own, square, right = V.take(free, axis=1), rows.take(free, axis=1), q.take(free, axis=1)
            norms, beyond, u = norms.take(free), beyond.take(free), u.take(free, axis=1)
        if (nonzero := np.count_nonzero(own)) < own.size:
            curvature = (bound + penalty.ridge).take(free)
            first = u * (beyond / np.where(curvature > 0.0, curvature, np.inf) / norms)
            own = np.where(own != 0.0, own, first) if nonzero else first
        step = newton_step(square, right, own, part, crossovers)
        for whole in (True, False):
            new = moved(own, step.way) if whole else shortened(step, square, own, part)
            slopes, V = new @ rows - q, new
            if free.size < len(H):
                V = np.zeros(q.shape)
                V[:, free] = new
            left = float(np.maximum.reduce(penalty.violations(V, slopes, lengths := feature_norms(V)), initial=0.0))
            if left < 0.5 * largest:
                break
        in_vain = 0 if left < 0.5 * least else in_vain + 1
        if left < least:
            best = V
            least = largest = left
        if left <= goal.violation or time.perf_counter() > deadline:
            return best, left <= goal.violation
        if left <= goal.close:
            value, gap = penalty.value_and_gap(V, lengths, slopes, constant + 0.5 * float(np.vdot(V, slopes - q)))
            if gap <= goal.gap * value:
                return V, True
    if not persists:
        return best, False
    best, done = by_proximal_points(H, q, best, penalty, goal.violation, deadline, crossovers)
    if done or time.perf_counter() > deadline:
        return best, done
    until = Deadline(deadline)
    return minimise(H, best @ H - q, best, penalty, goal.violation, deadline=until, crossovers=crossovers), False


def by_proximal_points(
    H: np.ndarray,
    q: np.ndarray,
    V: np.ndarray,
    penalty: JointPenalty,
    goal: float,
    deadline: float,
    crossovers: Crossovers = USUAL,
) -> tuple[np.ndarray, bool]:
    """Take the proximal point steps of ``active_set.py``, for features whose coefficients are vectors; they converge for any H.

    Return the last point that has halved the largest violation in time, and whether its violation is at most ``goal``.
    """
    part, best, least, in_vain = FIRST, V, np.inf, 0
    for _ in range(MOST_PROXIMAL):
        V = proximal_point(H, q, V, penalty, part * H.diagonal(), deadline, crossovers)
        left = float(np.maximum.reduce(penalty.violations(V, V @ H - q), initial=0.0))
        in_vain = 0 if left < 0.5 * least else in_vain + 1
        if left < least:
            best, least = V, left
        if left <= goal or in_vain > IN_VAIN or time.perf_counter() > deadline:
            break
        part = max(part * FALL, LAST)
    return best, least <= goal


def proximal_point(
    H: np.ndarray,
    q: np.ndarray,
    V: np.ndarray,
    penalty: JointPenalty,
    kappa: np.ndarray,
    deadline: float,
    crossovers: Crossovers = USUAL,
) -> np.ndarray:
    """Return about the minimum of the model plus ½ Σ_j κ_j ‖W_j − V_j‖² over W, by semismooth Newton steps.

    The derivative of the shortened U_j/total_j is ((1 − t)I + t uuᵀ)/total_j, where t = threshold_j/‖U_j‖ and u = U_j/‖U_j‖; its
    inverse is total_j (aI − (a − 1)uuᵀ), where a = 1/(1 − t).
    """
    center, total = kappa * V, penalty.ridge + kappa
    total = np.where(total > 0.0, total, 1.0)
    p, eta, start = V, V @ H - q, V

    def shortened_at(eta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return W, and U with the norms of its features."""
        U = center - eta
        norms = feature_norms(U)
        divisors = np.where(norms > 0.0, norms, 1.0)
        return U * (np.maximum(1.0 - penalty.threshold / divisors, 0.0) / total), U, divisors

    W, U, norms = shortened_at(eta)
    for _ in range(MOST_NEWTON):
        e = W - p
        He = e @ H
        size = float(np.vdot(e, He))
        moved_by = float(np.square(feature_norms(W - start)) @ kappa)
        if size <= SHARPER**2 * moved_by or size <= 0.0 or time.perf_counter() > deadline:
            break
        free, way = (norms > penalty.threshold).nonzero()[0], e.copy()
        if free.size:
            length, own = norms.take(free), total.take(free)
            stretched = own * length / (length - penalty.threshold.take(free))
            square = H.take(free, axis=0).take(free, axis=1)
            units, left = U.take(free, axis=1) / length, -He.take(free, axis=1)
            way[:, free] += _direction(square, stretched, stretched - own, units, left, crossovers, exact=True)
        bent, t = way @ H, 1.0
        slope, here = -float(np.vdot(way, He)), 0.5 * float(np.square(feature_norms(W)) @ total)
        linear, curved = float(np.vdot(p, bent)), float(np.vdot(way, bent))
        for _ in range(MOST_HALVINGS):
            new, U, norms = shortened_at(eta + t * bent)
            growth = t * linear + 0.5 * t * t * curved + 0.5 * float(np.square(feature_norms(new)) @ total) - here
            if growth <= 1e-4 * t * slope + ROUNDING * here:
                break
            t *= 0.5
        p, eta, W = p + t * way, eta + t * bent, new
    return W


class Step(NamedTuple):
    """A Newton step at V: its direction, the slopes of the smooth part there, and the norms of the features."""

    way: np.ndarray
    slopes: np.ndarray
    norms: np.ndarray


def newton_step(H: np.ndarray, q: np.ndarray, V: np.ndarray, penalty: JointPenalty, sizes: Crossovers) -> Step:
    """Return the Newton step at V on ½⟨V, VH⟩ − ⟨q, V⟩ plus the penalty; by a factor of its matrix up to so many unknowns."""
    slopes, norms = V @ H - q, feature_norms(V)
    divisors = norms if np.count_nonzero(norms) == norms.size else np.where(norms > 0.0, norms, 1.0)
    units, bend = V / divisors, penalty.threshold / divisors
    added = penalty.ridge + bend
    return Step(_direction(H, added, bend, units, -(slopes + added * V), sizes), slopes, norms)


def shortened(step: Step, H: np.ndarray, V: np.ndarray, penalty: JointPenalty) -> np.ndarray:
    """Return V after a Newton step, halved until the objective decreases."""
    way, slopes, norms = step
    before = penalty.value_at(norms)
    for _ in range(HALVINGS):
        new = moved(V, way)
        change = new - V
        if float(np.vdot(slopes + 0.5 * (change @ H), change)) + penalty.value(new) - before <= ROUNDING * before:
            return new
        way = 0.5 * way
    return V


def moved(V: np.ndarray, way: np.ndarray) -> np.ndarray:
    """Return V + way, with zero for the features that have moved past zero, where the norm has a kink that the step ignores."""
    new = V + way
    past = np.add.reduce(new * V) < 0.0
    if np.count_nonzero(past):
        new[:, past] = 0.0
    return new


def _direction(
    H: np.ndarray,
    added: np.ndarray,
    bend: np.ndarray,
    units: np.ndarray,
    right: np.ndarray,
    sizes: Crossovers,
    *,
    exact: bool = False,
) -> np.ndarray:
    """Return M⁻¹ right for M = I ⊗ (H + D(added)) less bend_j u_j u_jᵀ for each feature j, with unit vectors u_j.

    Where M is large, the first part alone, whose factor has the size of H, is the preconditioner of conjugate gradients; if the
    direction must be ``exact``, only where Woodbury's formula fails.
    """
    K, m = right.shape
    first = H.copy()
    first.ravel()[:: m + 1] += added
    if K * m <= sizes.factorised_unknowns:
        M = np.zeros((K, m, K, m))
        np.einsum("kikj->kij", M)[...] = first
        # The entries that couple the columns of each feature.
        np.einsum("kjlj->klj", M)[...] -= (bend * units)[:, None] * units
        return solution(M.reshape(K * m, K * m), right.ravel()).reshape(K, m)
    if (exact or m <= sizes.factorised_features) and (
        found := solved_by_factors(H, added, bend, units, right)
    ) is not None:
        return found
    inverse = factor(first)
    x, residual = np.zeros(right.shape), right
    way = z = inverse(residual)
    power = float(np.vdot(residual, z))
    goal = INEXACT**2 * power
    for _ in range(PRODUCTS):
        if power <= goal:
            break
        product = way @ H + added * way - bend * np.einsum("kj,kj->j", units, way) * units
        if not (curved := float(np.vdot(way, product))) > 0.0:  # a flat direction, by rounding
            break
        t = power / curved
        x, residual = x + t * way, residual - t * product
        z = inverse(residual)
        last, power = power, float(np.vdot(residual, z))
        way = z + (power / last) * way
    return x


def factor(M: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the product with M⁻¹ of an array of shape (K, m); its diagonal is increased if it is singular to rounding."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    lift = 0.0
    while True:
        L, failed = dpotrf(M.T)
        if not failed:
            return lambda right: dpotrs(L, right.T)[0].T
        lift = lifted(M, lift)
