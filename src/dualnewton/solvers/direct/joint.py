"""Least squares of K outputs with a threshold for the norm of each feature's coefficients: the multi-task Lasso and elastic net.

    n P(W, b) = ½ Σ c_i ‖W x_i + b − t_i‖² + Σ_j ½ ridge_j ‖W_j‖² + threshold_j ‖W_j‖

The turns are those of ``thresholds.py``. Over the features gathered, each step 1. sets those features to zero that a move of
block coordinate descent, in all features at once, would leave at zero, and starts those that it would not, 2. takes a Newton step
on the features in use, at which the norms are smooth, with a line search.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.direct.active_set import LIFT, solution
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.direct.thresholds import IN_VAIN as MOST_IN_VAIN
from dualnewton.solvers.direct.thresholds import Rows, value_and_gap, wanted
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, minimise

FACTORISED = 150
"""Coefficients in use up to which a Newton step factorises its matrix; beyond, conjugate gradients need a smaller one."""

PRODUCTS, INEXACT = 30, 1e-2
"""Conjugate gradient steps at most, and the fraction of the residual at which they stop."""

HALVINGS, ROUNDING = 12, 1e-15
"""Halvings of a Newton step at most, and the relative change of the model that is rounding."""

IN_VAIN = 3
"""Newton steps in a row that leave more than half of the violations: sweeps of coordinate descent take over."""


def solve(problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float) -> Found:
    """Add features and minimise over them until the gap is small enough, or rounding stops its fall."""
    penalty, rows = JointPenalty.of(problem), Rows(problem, block.rows)
    W = np.zeros((problem.columns, problem.d)) if start is None else np.array(start[0])
    rows.gather(np.flatnonzero(W.any(axis=0)))
    best, least, in_vain, steps = W, np.inf, 0, 0
    while True:
        losses, slopes = rows.evaluate(W[:, rows.inside].T)
        value, gap = value_and_gap(problem, W, losses, slopes)
        in_vain = in_vain + 1 if gap > 0.5 * least else 0
        if gap < least:
            best, least = W, gap
        if gap <= WELL_BELOW * tol * value or steps >= most or time.perf_counter() > deadline:
            break
        more = wanted(np.maximum(feature_norms(slopes) - penalty.threshold, 0.0), rows.inside, problem.n)
        if not more.size and in_vain > MOST_IN_VAIN:
            break
        rows.gather(more)
        inside, part = rows.inside, penalty.only(rows.inside)
        goal = WELL_BELOW * tol * float(part.threshold.min(initial=np.inf))
        V = minimum(rows.matrix(), slopes[:, inside], W[:, inside], part, goal, deadline)
        W = np.zeros(W.shape)
        W[:, inside] = V
        steps += 1
    return Found(best, rows.intercept(best[:, rows.inside].T), max(steps, 1))


def minimum(
    H: np.ndarray, slopes: np.ndarray, V: np.ndarray, penalty: JointPenalty, goal: float, deadline: float
) -> np.ndarray:
    """Return the minimiser, starting at V, of shape (K, m), at which the smooth part has these slopes."""
    diagonal, q = H.diagonal(), V @ H - slopes
    curvature = diagonal + penalty.ridge
    inverse = 1.0 / np.where(curvature > 0.0, curvature, np.inf)
    best, least, in_vain = V, np.inf, 0
    while in_vain < IN_VAIN:
        u = diagonal * V - slopes
        norms = feature_norms(u)
        used = norms > penalty.threshold
        started = u * ((norms - penalty.threshold) * inverse / np.where(used, norms, 1.0))
        free = used.nonzero()[0]
        V = np.where(V[:, free] != 0.0, V[:, free], started[:, free])
        part, rows = penalty.only(free), H.take(free, axis=0)
        V = stepped(rows.take(free, axis=1), q[:, free], V, part)
        slopes = V @ rows - q
        whole = np.zeros(q.shape)
        whole[:, free] = V
        V = whole
        left = float(penalty.violations(V, slopes).max(initial=0.0))
        in_vain = 0 if left < 0.5 * least else in_vain + 1
        if left < least:
            best, least = V, left
        if left <= goal or time.perf_counter() > deadline:
            return best
    return minimise(H, best @ H - q, best, penalty, goal, deadline=Deadline(deadline))


def stepped(H: np.ndarray, q: np.ndarray, V: np.ndarray, penalty: JointPenalty) -> np.ndarray:
    """Return V after a Newton step on ½⟨V, VH⟩ − ⟨q, V⟩ plus the penalty, as long as the first of its halves that is lower."""
    slopes, norms = V @ H - q, feature_norms(V)
    units = V / np.where(norms > 0.0, norms, 1.0)
    bend = penalty.threshold / np.where(norms > 0.0, norms, 1.0)
    gradient = slopes + penalty.ridge * V + penalty.threshold * units
    way = _direction(H, penalty.ridge + bend, bend, units, -gradient)
    linear, curved = float(np.vdot(slopes, way)), float(np.vdot(way @ H, way))
    before, t = penalty.value(V), 1.0
    for _ in range(HALVINGS):
        new = V + t * way
        if t * linear + 0.5 * t * t * curved + penalty.value(new) - before <= ROUNDING * before:
            return new
        t *= 0.5
    return V


def _direction(H: np.ndarray, added: np.ndarray, bend: np.ndarray, units: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return M⁻¹ right for M = I ⊗ (H + D(added)) less bend_j u_j u_jᵀ for each feature j, with unit vectors u_j.

    Where M is large, the first part alone, whose factor has the size of H, is the preconditioner of conjugate gradients.
    """
    K, m = right.shape
    if K * m <= FACTORISED:
        M, each = np.zeros((K, m, K, m)), np.arange(m)
        joined = bend * units[:, None] * units
        for k in range(K):
            M[k, :, k, :] = H
            M[k, each, k, each] += added
            for other in range(K):
                M[k, each, other, each] -= joined[k, other]
        return solution(M.reshape(K * m, K * m), right.ravel()).reshape(K, m)
    first = H.copy()
    first.ravel()[:: m + 1] += added
    inverse = factor(first)
    x, residual = np.zeros(right.shape), right
    way = z = inverse(residual)
    power = float(np.vdot(residual, z))
    goal = INEXACT**2 * power
    for _ in range(PRODUCTS):
        if power <= goal:
            break
        product = way @ H + added * way - bend * np.einsum("kj,kj->j", units, way) * units
        t = power / float(np.vdot(way, product))
        x, residual = x + t * way, residual - t * product
        z = inverse(residual)
        last, power = power, float(np.vdot(residual, z))
        way = z + (power / last) * way
    return x


def factor(M: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the product with M⁻¹ of an array of shape (K, m); its diagonal is lifted where it is singular to rounding."""
    from scipy.linalg.lapack import dpotrf, dpotrs

    lift = 0.0
    while True:
        L, failed = dpotrf(M.T)
        if not failed:
            return lambda right: dpotrs(L, right.T)[0].T
        lift = 100.0 * lift or LIFT * float(M.diagonal().max()) or 1.0
        M.ravel()[:: len(M) + 1] += lift
