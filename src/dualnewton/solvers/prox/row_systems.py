"""The models of ``paths.py`` with more features in use than rows: linear systems of the size of the rows.

    n P_f(w, b) = ½ Σ_i c_fi (x_iᵀw + b − y_i)² + Σ_j ½ ridge_j w_j² + threshold_j |w_j|,      also w ≥ 0

The dual problem minimises over r with Σ_i r_i = 0, for s = Xᵀr,

    ψ(r) = ½ Σ_i r_i²/c_i − yᵀr + ½ Σ_j shrunk(s_j)²/ridge_j,

a piecewise quadratic function. Its minimum has r_i = c_i (y_i − x_iᵀw − b) and w_j = shrunk(s_j)/ridge_j. Newton's method solves

    (D(1/c) + K) r + b = y − Σ_j w̄_j x_j,      K = Σ_j x_j x_jᵀ/ridge_j,      w̄_j = −sign_j threshold_j/ridge_j

over the features j in use, with their signs. From the model of the last strength, with its signs, one or two systems are enough.
K changes by the features that come into use or leave. Models between two strengths are interpolated: their gap is of second order
in the distance of the strengths, so that few of them need a system.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from dualnewton.solvers.direct.active_set import Kinks, solution
from dualnewton.solvers.prox.subproblem import Penalty

MOST_STEPS, HALVINGS, ENOUGH = 40, 12, 1e-4
"""Largest number of Newton steps from one strength to the next, of halvings of each, and sufficient fraction of the predicted
decrease."""

FINEST = 1e-14
"""Relative gap that counts as rounding."""

APART = 4
"""Distance of the strengths that are solved for first; the models between them start where these interpolate them. (At a
distance of 8, there are 4 to 20 % fewer systems for 200 rows, and more evaluations.)"""


@dataclass(frozen=True, eq=False)
class RowSum:
    """Σ_j k_j a_j a_jᵀ over features j, a_j the entries of some rows."""

    k: np.ndarray  # (m,) coefficients
    K: np.ndarray  # (rows, rows) sum, with rounding errors of what was added and subtracted on the way

    def changed(self, A: np.ndarray, rows: np.ndarray, k: np.ndarray) -> RowSum:
        """Return the sum with other coefficients for the features A, of shape (m, n): by what changes, or anew if that is less.

        Features may be new, but none is missing.
        """
        old = np.append(self.k, np.zeros(k.size - self.k.size))
        places, K, change = np.flatnonzero(k != old), self.K, k - old
        if places.size > np.count_nonzero(k):
            places, K, change = np.flatnonzero(k), np.zeros_like(K), k
        part = A[places[:, None], rows]
        return RowSum(k, K + (part * change[places, None]).T @ part)


class RowSystems:
    """F models over dense features on few rows, solved for falling penalties."""

    def __init__(
        self,
        A: np.ndarray,  # (m, n) features, one row each, about any origin
        c: np.ndarray,  # (F, n) weights of the rows
        y: np.ndarray,  # (F, n) targets, about their means if there is an intercept
        *,
        fit_intercept: bool,  # whether there is one
    ) -> None:
        self.A, self.c, self.y, self.fit_intercept = A, c, y, fit_intercept
        self.rows = [np.flatnonzero(own) for own in c]
        self.sums = tuple(RowSum(np.zeros(0), np.zeros((own.size, own.size))) for own in self.rows)

    @staticmethod
    def can_take(penalty: Penalty) -> bool:
        """Whether there is a ridge and a threshold for every feature, and no bounds but zero from below."""
        return bool(np.all(penalty.ridge > 0.0)) and penalty.kinks() is not None

    def add(self, more: np.ndarray) -> None:
        """Add features."""
        self.A = np.append(self.A, more, axis=0)

    def walk(
        self, start: np.ndarray, penalties: Sequence[Penalty], goals: Sequence[float], is_over: Callable[[], bool]
    ) -> np.ndarray:
        """Return the models for falling penalties, of shape (strengths, F, m).

        A model is done when its relative gap is at most the goal as a fraction of the threshold: a violation of ε times the
        threshold makes a relative gap of about 2ε at most.
        """
        found, point, sums = np.empty((len(penalties), *start.shape)), _Point(self, start), list(self.sums)

        def go(k: int) -> None:
            kinks = penalties[k].kinks()
            assert kinks is not None
            point.go(kinks, max(goals[k] / float(kinks.high.max()), FINEST), sums, is_over)
            found[k] = point.V

        go(0)
        for low in range(0, len(penalties) - 1, APART):
            high = min(low + APART, len(penalties) - 1)
            point.place(found[low])
            go(high)
            for left, middle, right in _middles(low, high):
                first, own, last = (float(penalties[k].threshold.max()) for k in (left, middle, right))
                part = (first - own) / (first - last) if first > last else 0.0
                point.place((1.0 - part) * found[left] + part * found[right])
                go(middle)
        self.sums = tuple(sums)
        return found


def _middles(low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """Yield all numbers between two, each after the ones to its left and right between which it is in the middle."""
    if high - low > 1:
        middle = (low + high) // 2
        yield low, middle, high
        yield from _middles(low, middle)
        yield from _middles(middle, high)


class _Point:
    """Where the models are: V of shape (F, m), R = r at the best intercepts of shape (F, n), and S = Xᵀr of shape (F, m)."""

    def __init__(self, of: RowSystems, V: np.ndarray) -> None:
        self.of, self.A, self.c, self.y = of, of.A, of.c, of.y
        self.inverse = np.divide(1.0, self.c, out=np.zeros_like(self.c), where=self.c > 0.0)
        self.R, self.S = np.empty(self.c.shape), np.empty(V.shape)
        self.place(V)

    def place(self, V: np.ndarray) -> None:
        """Place the models at V."""
        self.V = V.copy()
        self._evaluate(np.arange(len(V)))

    def _evaluate(self, some: np.ndarray) -> None:
        """Compute R and S of some models."""
        c, missed = self.c[some], self.y[some] - self.V[some] @ self.A
        if self.of.fit_intercept:
            missed -= (np.einsum("fi,fi->f", c, missed) / c.sum(axis=1))[:, None]
        self.R[some] = c * missed
        self.S[some] = self.R[some] @ self.A.T

    def go(self, kinks: Kinks, goal: float, sums: list[RowSum], is_over: Callable[[], bool]) -> None:
        """Move to the minima for a penalty, up to relative gaps of ``goal``; ``sums`` are updated."""
        R, S, left = self.R.copy(), self.S.copy(), np.arange(len(self.V))
        for _ in range(MOST_STEPS):
            left = left[self._gaps(left, kinks) > goal]
            if left.size == 0 or is_over():
                return
            signs, aims = np.sign(self.V[left]), np.empty((left.size, self.A.shape[1]))
            for i, f in enumerate(left.tolist()):
                k = np.where(signs[i] != 0.0, float(kinks.ridge.max()) / kinks.ridge, 0.0)
                sums[f] = sums[f].changed(self.A, self.of.rows[f], k)
                aims[i] = self._aim(f, signs[i], kinks, sums[f].K)
            R[left], S[left] = self._toward(aims, left, R[left], S[left], kinks)
            self.V[left] = kinks.shrunk(S[left]) / kinks.ridge
            self._evaluate(left)

    def _gaps(self, some: np.ndarray, kinks: Kinks) -> np.ndarray:
        """Return the relative gaps of some models, at the dual points R."""
        V, S, R = self.V[some], self.S[some], self.R[some]
        squares = np.einsum("fi,fi,fi->f", R, R, self.inverse[some])
        penalty = np.abs(V) @ kinks.high + 0.5 * np.square(V) @ kinks.ridge
        conjugate = 0.5 * np.square(kinks.shrunk(S)) @ (1.0 / kinks.ridge)
        gap = penalty + conjugate - np.einsum("fj,fj->f", V, S)
        return np.asarray(gap / np.maximum(0.5 * squares + penalty, np.finfo(float).tiny))

    def _toward(
        self, aims: np.ndarray, some: np.ndarray, R: np.ndarray, S: np.ndarray, kinks: Kinks
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return dual points between R and the Newton points at which ψ is less than at R, and their S; R if there is none."""
        y, inverse, step = self.y[some], self.inverse[some], aims - R
        along = step @ self.A.T

        def value(t: np.ndarray) -> np.ndarray:
            r, s = R + t[:, None] * step, S + t[:, None] * along
            losses = np.einsum("fi,fi->f", r, 0.5 * inverse * r - y)
            return np.asarray(losses + 0.5 * np.square(kinks.shrunk(s)) @ (1.0 / kinks.ridge))

        slope = np.einsum("fi,fi->f", step, inverse * R - y)
        slope += np.einsum("fj,fj->f", along, kinks.shrunk(S) / kinks.ridge)
        here, t = value(np.zeros(len(R))), np.ones(len(R))
        for _ in range(HALVINGS):
            high = value(t) > here + ENOUGH * t * np.minimum(slope, 0.0)
            if not high.any():
                break
            t[high] *= 0.5
        else:
            t[high] = 0.0  # the signs at R give a direction in which ψ falls
        return R + t[:, None] * step, S + t[:, None] * along

    def _aim(self, f: int, signs: np.ndarray, kinks: Kinks, K: np.ndarray) -> np.ndarray:
        """Return r that minimises ψ with the features that have signs, and their thresholds whatever sign s has.

        K is that of these features, times the largest ridge.
        """
        own, top = self.of.rows[f], float(kinks.ridge.max())
        roots = np.sqrt(self.c[f, own])
        M = K * (roots * roots[:, None])
        M.ravel()[:: len(M) + 1] += top
        right = roots * (self.y[f, own] + ((signs * kinks.high / kinks.ridge) @ self.A)[own])
        x = solution(M, np.asfortranarray(np.column_stack([top * right, roots])))
        b = float(roots @ x[:, 0]) / float(roots @ x[:, 1]) if self.of.fit_intercept else 0.0
        found = np.zeros(self.A.shape[1])
        found[own] = roots * (x[:, 0] - b * x[:, 1])
        return found
