"""A quadratic model of K columns with a penalty on the norm of each feature's coefficients, minimised.

    min_V  ⟨slopes, V − W⟩ + ½ Σ_k (v_k − w_k)ᵀH(v_k − w_k) + Σ_j ½ ridge_j ‖V_j‖² + threshold_j ‖V_j‖

V has a row v_k for each column of margins and a column V_j for each feature. Sweeps of block coordinate descent find which
features are zero: with u = H_jj V_j − slopes_j the best V_j is (1 − threshold_j/‖u‖)₊ u/(H_jj + ridge_j). Where the features in
use depend on each other, sweeps are slow, and alternate with Newton steps in these features, at which the norms are smooth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dualnewton.kernels.constants import CANCELLED
from dualnewton.objective.conjugate_gradients import conjugate_gradients
from dualnewton.objective.problem import Problem
from dualnewton.regularizers.base import largest
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.primal.curvature import Cholesky
from dualnewton.solvers.prox.rounds import AT_ONCE, Point, alternate, reachable_goal

SWEEPS, MOST_SWEEPS = 8, 300
"""Sweeps between two Newton steps, at least and at most; between them, as many as cost as much as a step."""

PRODUCTS, INEXACT = 300, 1e-3
"""Where the matrix of a Newton step is large, or singular to rounding, conjugate gradients make at most so many products with it,
and stop at this fraction of the residual."""

BETWEEN, MEMORY, LIFT = 5, 5, 1e-12
"""Sweeps between two points that are remembered, points from which the next is extrapolated, and the fraction of its trace that
is added to the diagonal of the matrix of their changes, which may be singular."""

ROUNDS, MOST_IN_VAIN, SHRINKS = 200, 6, 0.9
"""Largest number of rounds of sweeps and a step; and of consecutive rounds that leave this fraction of the largest violation,
after which the violation is taken for rounding."""

HALVINGS = 8
"""Fractions 1, ½, ¼, … of a Newton step that are tried."""

LEVEL = 1e-14
"""Changes of the model below this fraction of its terms are rounding."""


class JointPenalty(NamedTuple):
    """Σ_j ½ ridge_j ‖V_j‖² + threshold_j ‖V_j‖."""

    ridge: np.ndarray
    threshold: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> JointPenalty:
        """Return n λ g of a problem, from the form of its regulariser."""
        scale = problem.lam * problem.n
        form, both = problem.regularizer.form, np.empty((2, problem.d))
        both[0], both[1] = scale / form.factor, scale * form.threshold
        return cls(both[0], both[1])

    def only(self, features: np.ndarray) -> JointPenalty:
        """Return the part of some features."""
        return JointPenalty(self.ridge.take(features), self.threshold.take(features))

    def value(self, V: np.ndarray) -> float:
        """Return the sum."""
        return self.value_at(feature_norms(V))

    def value_at(self, norms: np.ndarray) -> float:
        """Return the sum, given the norms."""
        return float((0.5 * self.ridge * norms + self.threshold).dot(norms))

    def value_and_gap(
        self, norms: np.ndarray, product: float, steepness: np.ndarray, losses: float
    ) -> tuple[float, float]:
        """Return n P, and n(P − D) for the dual point of V: as it is with a ridge, else shortened until it is feasible.

        Of V and the slopes there, the norms of each feature and their inner product are given.
        """
        penalty = self.value_at(norms)
        if np.count_nonzero(self.ridge):
            beyond = np.maximum(steepness - self.threshold, 0.0)
            return losses + penalty, penalty + product + 0.5 * float(beyond.dot(beyond / self.ridge))
        r = 1.0 / max(largest(steepness / self.threshold), 1.0)
        return losses + penalty, penalty + r * product + (1.0 - r) ** 2 * losses

    def violations(self, V: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Return the distance of −slopes_j, without the ridge, from the subdifferential of the penalty at V_j, for each j."""
        norms = feature_norms(V)
        if (count := np.count_nonzero(norms)) == norms.size:
            return feature_norms(slopes + V * (self.ridge + self.threshold / norms))
        if count == 0:
            return np.maximum(feature_norms(slopes) - self.threshold, 0.0)
        used = norms > 0.0
        pull = slopes + V * (self.ridge + self.threshold / np.where(used, norms, 1.0))
        return np.maximum(feature_norms(pull) - np.where(used, 0.0, self.threshold), 0.0)


Sweep = Callable[..., bool]
"""See :func:`sweeps`."""


def sweeps(
    H: np.ndarray,
    slopes: np.ndarray,
    V: np.ndarray,
    ridge: np.ndarray,
    threshold: np.ndarray,
    most: int,
    goal: float,
) -> bool:
    """Minimise over one feature after the other, in place: V, and the slopes H(V − W) + … that belong to it.

    The last sweep is one in which no feature moved its slope by more than ``goal``. Return whether there was such a sweep among
    the first ``most``. This is what the kernel of the same name does (``kernels/joint.py``).
    """
    own = H.diagonal()
    curvature = own + ridge
    for _ in range(most):
        largest = 0.0
        for j in range(V.shape[1]):
            u = own[j] * V[:, j] - slopes[:, j]
            norm = float(np.sqrt(u @ u))
            shrink = (1.0 - threshold[j] / norm) / curvature[j] if norm > threshold[j] and curvature[j] > 0.0 else 0.0
            change = shrink * u - V[:, j]
            size = float(np.sqrt(change @ change))
            if size > 0.0:
                V[:, j] += change
                slopes += change[:, None] * H[j]
                largest = max(largest, size * float(curvature[j]))
        if largest <= goal:
            return True
    return False


def sweep_of(*, compiled: bool) -> Sweep:
    """Return block coordinate descent in NumPy, or its kernel."""
    if not compiled:
        return sweeps
    from dualnewton.kernels import joint  # loads Numba

    return joint.sweeps


def minimise(
    H: np.ndarray,  # (m, m) symmetric, positive semidefinite; the same for each column
    # (K, m) The start, and the slopes of the smooth part there, without the ridge.
    slopes: np.ndarray,
    W: np.ndarray,
    penalty: JointPenalty,
    goal: float = 0.0,  # violation that is small enough; rounding sets a limit of its own
    sweep: Sweep = sweeps,  # :func:`sweeps`, or its compiled twin
    # When it has passed, the current point is returned, at which the model does not exceed its value at W.
    deadline: Deadline = NEVER,
    *,
    crossovers: Crossovers = USUAL,  # tuned numbers of sweeps and Newton steps
) -> np.ndarray:
    """Return the minimiser V of the model, starting at W."""
    goal = reachable_goal(goal, H, feature_norms(slopes), feature_norms(W))
    point = _Point(H, slopes, W, penalty, sweep, deadline, crossovers)
    with suppress(OutOfTime):
        alternate(point, goal, rounds=ROUNDS, in_vain=MOST_IN_VAIN, shrinks=SHRINKS)
    return point.v


class _Point(Point):
    """The current V, which moves to the minimum."""

    penalty: JointPenalty

    def sweep(self, goal: float) -> None:
        """Sweep as often as a Newton step would cost, a few sweeps at a time: only V and the slopes pass from one to the next."""
        K, size = self.v.shape
        if not size:
            return
        used = int(np.count_nonzero(self.v.any(axis=0)))
        count = min(max(SWEEPS, int(used * used / (self.crossovers.joint_sweeps_divisor * size))), MOST_SWEEPS)
        at_once = max(1, min(BETWEEN, AT_ONCE // (K * size * size)))
        before = [(self.v.copy(), self.slopes.copy())]
        for made in range(0, count, at_once):
            most = min(at_once, count - made)
            ended = self.sweeps(self.H, self.slopes, self.v, self.penalty.ridge, self.penalty.threshold, most, goal)
            self.deadline.check()
            if ended:
                return
            before.append((self.v.copy(), self.slopes.copy()))
            if len(before) > MEMORY:
                self._extrapolate(before)
                before = [(self.v.copy(), self.slopes.copy())]

    def _extrapolate(self, before: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
        """Move to the combination of earlier points whose last change is least (Anderson), if the model is lower there.

        The slopes are affine in V, so that those of the combination, whose weights sum to one, are known. Between two points the
        smooth part changes by half the sum of their slopes times the difference.
        """
        changes = np.stack([(new - old).ravel() for (old, _), (new, _) in pairwise(before)])
        G = changes @ changes.T
        G[np.diag_indices_from(G)] += LIFT * float(np.trace(G))
        weights = np.linalg.solve(G, np.ones(len(G)))
        weights /= weights.sum()
        V, slopes = (sum(w * point[k] for w, point in zip(weights, before[1:], strict=True)) for k in (0, 1))
        change = 0.5 * float(np.vdot(slopes + self.slopes, V - self.v))
        if change + self.penalty.value(V) < self.penalty.value(self.v):
            self.v[:], self.slopes[:] = V, slopes

    def step(self) -> bool:
        """Take the longest of the fractions of a Newton step over the features in use by which the model falls, if one does.

        Return True: a step that changes nothing is rounding.
        """
        used = np.flatnonzero(self.v.any(axis=0) | (self.penalty.threshold == 0.0))
        if used.size == 0:
            return True
        part, old, H = self.penalty.only(used), self.v[:, used], self.H[np.ix_(used, used)]
        newton = _Newton(H, part, old)
        gradient = self.slopes[:, used] + part.ridge * old + part.threshold * newton.units
        way = newton.solve(-gradient, self.deadline, self.crossovers.joint_factor)
        bent, linear = way @ H, float(np.vdot(self.slopes[:, used], way))
        curved, before, steep = float(np.vdot(bent, way)), part.value(old), float(feature_norms(gradient).max())
        # By rounding, H may have negative eigenvalues: see ``_longest_fraction`` in ``kernels/joint.py``.
        curved += CANCELLED * float(np.square(np.abs(way) @ np.sqrt(np.maximum(H.diagonal(), 0.0))).sum())
        for t in 0.5 ** np.arange(HALVINGS):
            new = old + t * way
            change = t * linear + 0.5 * t * t * curved + part.value(new) - before
            level = abs(change) <= LEVEL * (
                abs(linear) + before
            )  # where the values differ by rounding, the violations decide
            left = part.violations(new, self.slopes[:, used] + t * bent).max() if level else np.inf
            if float(left) < steep if level else change < 0.0:
                self.v[:, used] = new
                self.slopes += t * (way @ self.H[used])
                break
        self.deadline.check()
        return True


class _Newton:
    """The Hessian of the model at features none of which is zero: I ⊗ H and, for each feature, ridge I + bend (I − uuᵀ).

    Here u = V_j/‖V_j‖ and bend = threshold_j/‖V_j‖.
    """

    def __init__(self, H: np.ndarray, penalty: JointPenalty, V: np.ndarray) -> None:
        norms = feature_norms(V)
        norms = np.where(norms > 0.0, norms, 1.0)
        self.H, self.ridge, self.units, self.bend = H, penalty.ridge, V / norms, penalty.threshold / norms

    def solve(self, right: np.ndarray, deadline: Deadline, factorised: int) -> np.ndarray:
        """Return the product of its inverse with an array of shape (K, m): exact up to ``factorised`` features, else inexact."""
        if not self.bend.any():  # the columns are independent
            return Cholesky(self.H.copy(), self.ridge.copy(), check=deadline.check).solve(right.T).T
        if right.shape[1] <= factorised:
            way = solved_by_factors(self.H, self.ridge + self.bend, self.bend, self.units, right)
            if way is not None:
                return way
        return self._by_products(right, deadline)

    def _times(self, v: np.ndarray) -> np.ndarray:
        along = self.bend * np.einsum("kj,kj->j", self.units, v)
        return v @ self.H + (self.ridge + self.bend) * v - along * self.units

    def _by_products(self, right: np.ndarray, deadline: Deadline) -> np.ndarray:
        """Solve by conjugate gradients, preconditioned by the diagonal."""
        scale = 1.0 / (self.H.diagonal() + self.ridge + self.bend)
        return conjugate_gradients(
            self._times, right, scale.__mul__, fraction=INEXACT, most=PRODUCTS, check=deadline.check
        )[0]


def solved_by_factors(
    H: np.ndarray, added: np.ndarray, bend: np.ndarray, units: np.ndarray, right: np.ndarray
) -> np.ndarray | None:
    """Solve with matrices of m rows, by Woodbury's formula as in ``kernels/joint.py``; None if one is singular to rounding.

    The matrix is I ⊗ Q − UUᵀ with Q = H + D(added) and the columns √bend_j u_j of U, and with N = Q⁻¹

        (I ⊗ Q − UUᵀ)⁻¹ = I ⊗ N + (I ⊗ N) U (I − J)⁻¹ Uᵀ (I ⊗ N),        J_ij = √(bend_i bend_j) u_iᵀu_j N_ij.
    """
    from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

    Q, each = H.copy(), np.arange(len(H))
    Q[each, each] += added
    L, failed = dpotrf(Q.T, lower=1, overwrite_a=1)  # Q is symmetric, so that its transpose is Q for LAPACK
    if failed:
        return None
    N, _ = dpotri(L, lower=1, overwrite_c=1)
    N = np.tril(N)
    N += N.T
    N[each, each] *= 0.5
    U = np.sqrt(bend) * units
    joined = (U.T @ U) * -N
    joined[each, each] += 1.0
    L, failed = dpotrf(joined.T, lower=1, overwrite_a=1)
    if failed:
        return None
    way = right @ N
    inner, _ = dpotrs(L, np.einsum("kj,kj->j", U, way), lower=1)
    return np.asarray(way + (U * inner) @ N)
