"""Paths of least squares of K outputs with a joint penalty, for fewer rows than features: some minima, and lines between them.

    n P(W) = ½‖AWᵀ − T‖² + Σ_j ½ ridge ‖W_j‖² + threshold ‖W_j‖

Only some strengths (*knots*) are solved. Between two knots, coefficients and residuals are interpolated linearly in the
threshold. If ‖A_jᵀR‖ ≤ threshold holds for the residuals R of both, it holds for those between, by convexity: the dual point
of an interpolated model is feasible for all features, and its gap is of second order in the distance of the knots. (A model
extrapolated from two knots violates the constraints of all features in use to first order.) Where a gap between two knots
exceeds the tolerance, the strength in the middle becomes a knot, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.deadline import Until
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, Sweep, minimise

AHEAD = 6
"""Largest distance of two knots, in strengths. (Farther knots are fewer, and take more Newton steps each.)"""

EXTRAPOLATED = np.array([0.0, 0.5, 1.0])
"""Parts of the way from a knot to the extrapolated model: the next knot begins at the one with the least objective."""

KNOT, BETWEEN = 0.25, 0.9
"""Fractions of the wanted relative gap that a knot and an interpolated model may have. (The certificate rounds differently.)"""

FEWEST, ENTERING = 50, 0.5
"""Features that may enter a working set at a time: at least, and as a fraction of the features in use."""

VIOLATION, ENOUGH, TIGHTER = 0.25, 0.1, 0.5
"""Largest violation that a minimisation over a working set may leave, as a fraction of the threshold times the wanted gap, and of
the largest violation of the features that were left out; and the factor of the former for each further working set."""

IN_VAIN = 4
"""Working sets in a row that do not halve the least gap, after which the rest is rounding."""


@dataclass(frozen=True, eq=False)
class Knot:
    """The minimum for one strength: its index, W of shape (K, d), and the slopes (AWᵀ − T)ᵀA there."""

    place: int
    W: np.ndarray
    slopes: np.ndarray


class Columns:
    """Columns of A that models use, and their products, which are computed once."""

    def __init__(self, A: np.ndarray) -> None:
        self.A, self.place, self.count = A, np.full(A.shape[1], -1), 0
        self.rows, self.products = np.zeros((0, len(A))), np.zeros((0, 0))

    def gather(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the columns of some features, as rows, and the matrix of their products."""
        more, old = features[self.place[features] < 0], self.count
        if more.size:
            self.count = size = old + more.size
            self.place[more] = np.arange(old, size)
            if size > len(self.rows):
                rows, products = np.zeros((2 * size, len(self.A))), np.zeros((2 * size, 2 * size))
                rows[:old], products[:old, :old] = self.rows[:old], self.products[:old, :old]
                self.rows, self.products = rows, products
            self.rows[old:size] = self.A[:, more].T
            new = self.rows[old:size] @ self.rows[:size].T
            self.products[old:size, :size], self.products[:old, old:size] = new, new[:, :old].T
        own = self.place[features]
        return self.rows[own], self.products[own[:, None], own]


class JointPath:
    """The models for falling strengths."""

    def __init__(
        self,
        # (n, d) and (n, K) Rows and targets, about their means if there are intercepts, times the roots of the weights.
        A: np.ndarray,
        T: np.ndarray,
        # (strengths,) Both fall or stay.
        ridges: np.ndarray,
        thresholds: np.ndarray,
        tol: float,  # relative gap of each model
        sweep: Sweep,  # block coordinate descent (:func:`~dualnewton.solvers.prox.joint_subproblem.sweeps`)
        is_over: Callable[[], bool],  # whether to stop; the remaining models are those of the last knot
    ) -> None:
        self.A, self.T, self.ridges, self.thresholds, self.tol = A, T, ridges, thresholds, tol
        self.sweep, self.is_over, self.columns = sweep, is_over, Columns(A)
        self.along, self.squares = T.T @ A, float(np.vdot(T, T))
        self.models = np.zeros((len(ridges), *self.along.shape))

    def solve(self) -> np.ndarray:
        """Return the models, of shape (strengths, K, d)."""
        last, step = len(self.ridges) - 1, 1
        before = knot = self._knot(0, np.zeros(self.along.shape), -self.along)
        while knot.place < last:
            if self.is_over():
                self.models[knot.place :] = knot.W
                break
            place = min(knot.place + step, last)
            following = self._knot(place, *self._start(before, knot, place))
            step = min(2 * step, AHEAD) if self._fill(knot, following) else max(1, step // 2)
            before, knot = knot, following
        return self.models

    def _start(self, before: Knot, knot: Knot, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the point, on the line through two knots, where the minimisation for a strength begins, and its slopes."""
        farther = float(self._fractions(before, knot, np.array(place))) - 1.0
        if before is knot or not farther > 0.0:
            return knot.W, knot.slopes
        parts = (farther * EXTRAPOLATED)[:, None, None]
        W, slopes = knot.W + parts * (knot.W - before.W), knot.slopes + parts * (knot.slopes - before.slopes)
        _, values = self._gaps(W, slopes, np.full(len(parts), place), self.along)
        best = int(np.argmin(values))
        return W[best], slopes[best]

    def _fill(self, left: Knot, right: Knot) -> bool:
        """Compute the models between two knots; return whether interpolation sufficed."""
        between = np.arange(left.place + 1, right.place)
        if not between.size:
            return True
        V, slopes, used = self._interpolated(left, right, between)
        gaps, _ = self._gaps(V, slopes, between, self.along[:, used])
        if np.all(gaps <= BETWEEN * self.tol) or self.is_over():
            self.models[between[:, None], :, used] = np.moveaxis(V, 2, 1)
            return True
        middle = between[between.size // 2]
        # Features that neither knot uses may enter, so that all slopes are needed.
        f = self._fractions(left, right, middle)
        start = (1.0 - f) * left.W + f * right.W, (1.0 - f) * left.slopes + f * right.slopes
        knot = self._knot(int(middle), *start)
        self._fill(left, knot)
        self._fill(knot, right)
        return False

    def _fractions(self, left: Knot, right: Knot, places: np.ndarray) -> np.ndarray:
        """Return how far strengths are on the way from the left knot to the right one."""
        thresholds = self.thresholds
        way = thresholds[left.place] - thresholds[right.place]
        return (thresholds[left.place] - thresholds[places]) / (way or 1.0)

    def _interpolated(self, left: Knot, right: Knot, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return models and slopes of the features that one of two knots uses, and these features."""
        used = np.flatnonzero(left.W.any(axis=0) | right.W.any(axis=0))
        f = self._fractions(left, right, places)[:, None, None]
        V, slopes = (
            (1.0 - f) * a[:, used] + f * b[:, used] for a, b in ((left.W, right.W), (left.slopes, right.slopes))
        )
        return V, slopes, used

    def _gaps(
        self, V: np.ndarray, slopes: np.ndarray, places: np.ndarray, along: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return (P − D)/P and n P of models of some features (see ``solvers/prox/joint.py``), each for its strength."""
        ridge, threshold = self.ridges[places], self.thresholds[places]
        norms, steepness = (np.sqrt(np.einsum("akj,akj->aj", each, each)) for each in (V, slopes))
        product = np.einsum("akj,akj->a", V, slopes)
        losses = np.maximum(0.5 * (self.squares + product - np.einsum("akj,kj->a", V, along)), 0.0)
        penalty = 0.5 * ridge * np.einsum("aj,aj->a", norms, norms) + threshold * norms.sum(axis=1)
        if ridge.all():
            beyond = np.maximum(steepness - threshold[:, None], 0.0)
            gaps = penalty + product + 0.5 * np.einsum("aj,aj->a", beyond, beyond) / ridge
        else:
            r = threshold / np.maximum(steepness.max(axis=1, initial=0.0), threshold)
            gaps = penalty + r * product + (1.0 - r) ** 2 * losses
        values = losses + penalty
        return gaps / np.where(values > 0.0, values, 1.0), values

    # One knot -----------------------------------------------------------------------------------------------------------

    def _knot(self, place: int, W: np.ndarray, slopes: np.ndarray) -> Knot:
        """Minimise for one strength, starting at a point with its slopes, over working sets of features."""
        least, in_vain, tighter, here = math.inf, 0, 1.0, np.array([place])
        while True:
            (gap,), (value,) = self._gaps(W[None], slopes[None], here, self.along)
            in_vain = 0 if gap <= 0.5 * least else in_vain + 1
            least = min(least, float(gap))
            if gap <= KNOT * self.tol or in_vain >= IN_VAIN or self.is_over():
                break
            W, slopes = self._over_set(place, W, slopes, float(value), tighter)
            tighter *= TIGHTER
        self.models[place] = W
        return Knot(place, W, slopes)

    def _over_set(
        self, place: int, W: np.ndarray, slopes: np.ndarray, value: float, tighter: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Minimise over the features in use and those that violate the optimality conditions most; return W and the slopes."""
        ridge, threshold = float(self.ridges[place]), float(self.thresholds[place])
        used = W.any(axis=0)
        beyond = np.where(used, 0.0, feature_norms(slopes) - threshold)
        entering, most = np.flatnonzero(beyond > 0.0), max(FEWEST, int(ENTERING * np.count_nonzero(used)))
        left_out = 0.0
        if entering.size > most:
            order = np.argpartition(-beyond[entering], most)
            left_out, entering = float(beyond[entering[order[most]]]), entering[order[:most]]
        inside = np.sort(np.concatenate([np.flatnonzero(used), entering]))
        # A violation ε of m features costs the gap mε²/(2 ridge) or, where the dual point is scaled, about ε/threshold of P.
        by_ridge = math.sqrt(self.tol * KNOT * value * ridge / max(inside.size, 1))
        goal = max(ENOUGH * left_out, tighter * max(VIOLATION * self.tol * threshold, by_ridge))
        rows, products = self.columns.gather(inside)
        penalty = JointPenalty(np.full(inside.size, ridge), np.full(inside.size, threshold))
        start = np.ascontiguousarray(slopes[:, inside]), np.ascontiguousarray(W[:, inside])
        V = minimise(products, *start, penalty, goal, self.sweep, Until(ended=self.is_over))
        W = np.zeros(W.shape)
        W[:, inside] = V
        return W, (V @ rows - self.T.T) @ self.A
