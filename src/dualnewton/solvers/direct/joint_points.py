"""Proximal point steps for least squares of K outputs whose features have a threshold each; see ``joint.py``."""

from __future__ import annotations

import time

import numpy as np

from dualnewton.matrix.factors import factorised, solved
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.regularizers.base import largest
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct.active_set import (
    FALL,
    FIRST,
    HALVINGS,
    LAST,
    MOST_NEWTON,
    MOST_PROXIMAL,
    SHARPER,
    solution,
)
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, solved_by_factors

PRODUCTS, INEXACT = 30, 1e-2
"""Conjugate gradient steps at most, and the fraction of the residual at which they stop."""

ROUNDING = 1e-15
"""Relative change of the model that is rounding."""

IN_VAIN, IDLE = 12, 2
"""Consecutive steps that leave more than half of the least violation, after which other steps are used: after a raised violation
each step leaves about two thirds of it. A step that neither raises nor halves it counts as two: rounding may be reached."""

RISE = 1e-9
"""Rise of the objective, as a fraction of it, above which a proximal step has failed."""


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

    Return the point with the least violation, and whether this is at most ``goal``. The weights κ fall from step to step: a
    violation that is not halved says little before they have reached their end. Where they are so small that the Newton steps of
    a proximal step fail, the objective rises.
    """
    part, best, least, in_vain, lowest = FIRST, V, np.inf, 0, np.inf
    for _ in range(MOST_PROXIMAL):
        V = proximal_point(H, q, V, penalty, part * H.diagonal(), deadline, crossovers)
        slopes = V @ H - q
        value = 0.5 * float(np.vdot(V, slopes - q)) + penalty.value(V)
        if not value <= lowest + RISE * abs(lowest):
            break
        left = largest(penalty.violations(V, slopes))
        in_vain = 0 if left < 0.5 * least or part > LAST else in_vain + 1
        if left < least:
            best, least = V, left
        if left <= goal or in_vain > IN_VAIN or time.perf_counter() > deadline:
            break
        part, lowest = max(part * FALL, LAST), value
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
            way[:, free] += _direction(square, stretched, stretched - own, units, left, crossovers)
        bent, t = way @ H, 1.0
        slope, here = -float(np.vdot(way, He)), 0.5 * float(np.square(feature_norms(W)) @ total)
        linear, curved = float(np.vdot(p, bent)), float(np.vdot(way, bent))
        for _ in range(HALVINGS):
            new, U, norms = shortened_at(eta + t * bent)
            growth = t * linear + 0.5 * t * t * curved + 0.5 * float(np.square(feature_norms(new)) @ total) - here
            if growth <= 1e-4 * t * slope + ROUNDING * here:
                break
            t *= 0.5
        p, eta, W = p + t * way, eta + t * bent, new
    return W


def _direction(
    H: np.ndarray,
    added: np.ndarray,
    bend: np.ndarray,
    units: np.ndarray,
    right: np.ndarray,
    sizes: Crossovers,
) -> np.ndarray:
    """Return M⁻¹ right for M = I ⊗ (H + D(added)) less bend_j u_j u_jᵀ for each feature j, with unit vectors u_j.

    Where M is large and Woodbury's formula fails, the first part alone, whose factor has the size of H, is the preconditioner of
    conjugate gradients.
    """
    K, m = right.shape
    if K * m <= sizes.factorised_unknowns:
        first, M = H.copy(), np.zeros((K, m, K, m))
        first.ravel()[:: m + 1] += added
        np.einsum("kikj->kij", M)[...] = first
        # The entries that couple the columns of each feature.
        np.einsum("kjlj->klj", M)[...] -= (bend * units)[:, None] * units
        return solution(M.reshape(K * m, K * m), right.ravel()).reshape(K, m)
    if (found := solved_by_factors(H, added, bend, units, right)) is not None:
        return found

    def times(way: np.ndarray) -> np.ndarray:
        return way @ H + added * way - bend * np.einsum("kj,kj->j", units, way) * units

    factor = factorised(H.copy(), added)
    return conjugate_gradients(times, right, lambda r: solved(factor, r.T).T, fraction=INEXACT, most=PRODUCTS)[0]
