"""A problem in the form of the interior-point method: a sum of convex piecewise linear terms, and a ridge.

    n P(x) = Σ_i c_i φ_i(z_i) + Σ_j λn (½ v_j w_j² + t_j |w_j|),        z = Ãx + o,  x = (w, b)

A threshold t_j |w_j| is the loss of one more example: its row is r_j e_j, its weight λn t_j / r_j, its kink 0, and its slope
rises there from −1 to 1. With r_j, the root mean square of feature j, its margin has the same unit as the others. These examples
follow those of the data; none of their rows is stored (:class:`~dualnewton.solvers.primal.newton_system.WithCoordinates`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix import Data

LEAST_VARIANCE = 1e-12
"""Variance of a feature, as a fraction of its mean square, below which it is a rounding error."""

SMALL_PART = 10.0
"""s or t absorbs a rounding error if it is this many times as large."""


def root_mean_squares(data: Data, *, intercept: bool = False) -> np.ndarray:
    """Return r_j of each feature; 1 for a feature that is zero.

    With an intercept r_j is the deviation from the mean of the feature, since b takes up the mean; at least that of rounding.
    """
    each = np.full(data.n, 1.0 / data.n)
    squares = data.column_norms(each)
    if intercept:
        means = np.square(data.transposed_times(each))
        squares = np.maximum(squares - means, LEAST_VARIANCE * squares)
    return np.sqrt(np.where(squares > 0.0, squares, 1.0))


class View:
    """Kinks, jumps, weights and ridge of a problem.

    Parameters
    ----------
    problem : Problem or Unpenalised
        Has a piecewise linear loss and a penalty Σ ½ v_j w_j² + t_j |w_j|.
    sizes : array of shape (d,)
        r_j.

    Attributes
    ----------
    n : int
        Number of examples of the data; those of the thresholds follow.
    positions, kinks, jumps : arrays of shape (M, N)
        Margins at which a slope increases, with and without offsets, and the increases.
    least : array of shape (N,)
        Slopes left of all kinks.
    c : array of shape (N,)
        Weights.
    ridge : array
        λn v_j, and 0 for an intercept.
    units : array
        Units of x, if the unit of a margin is one.
    thresholds : bool
        Whether the penalty has thresholds.
    """

    def __init__(self, problem: Any, sizes: np.ndarray) -> None:
        rows, scale = problem.unit, problem.lam * problem.n
        kinks, (threshold, factor, _, _) = rows.loss.kinks(rows.y), problem.regularizer.form.limits(problem.d)
        self.rows, self.n, self.c = rows, rows.n, rows.c
        self.positions = np.stack([kink.position for kink in kinks])
        self.jumps = np.stack([kink.right - kink.left for kink in kinks])
        self.kinks, self.least = self.positions - rows.o, kinks[0].left
        self.live = None if rows.sample_weight is None or self.c.all() else self.c > 0.0
        one = np.ones(1 if rows.fit_intercept else 0)
        self.ridge = np.append(scale / factor, 0.0 * one)
        self.units = np.append(1.0 / sizes, one)
        self.thresholds = bool(threshold.any())
        if self.thresholds:
            self._append(scale * threshold / sizes)

    def _append(self, weights: np.ndarray) -> None:
        """Append an example for each threshold; if the loss has M kinks, each threshold has M equal kinks, with jumps of 2/M."""
        several, of = len(self.jumps), np.zeros((len(self.jumps), len(weights)))
        self.positions = np.concatenate([self.positions, of], axis=1)
        self.kinks = np.concatenate([self.kinks, of], axis=1)
        self.jumps = np.concatenate([self.jumps, of + 2.0 / several], axis=1)
        self.least = np.concatenate([self.least, of[0] - 1.0])
        self.c = np.concatenate([self.c, weights])
        self.live = None if self.live is None else self.c > 0.0

    @property
    def has_ridge(self) -> bool:
        """Whether the penalty is quadratic; if it is not, the problem is a linear program."""
        return bool(self.ridge.any())

    def dual_point(self, p: np.ndarray) -> np.ndarray:
        """Return α of the examples of the data."""
        return self.rows.loss.nearest_dual(-self.slopes(p)[: self.n], self.rows.y)

    def slopes(self, p: np.ndarray) -> np.ndarray:
        """Return −α_i."""
        return self.least + p.sum(axis=0)

    def split(self, alpha: np.ndarray) -> np.ndarray:
        """Return p of a dual point, in which the jumps are filled from left to right; thresholds have the slope 0."""
        slopes = np.zeros(len(self.c))
        slopes[: self.n] = -alpha
        before = np.cumsum(self.jumps, axis=0) - self.jumps
        return np.clip(slopes - self.least - before, 0.0, self.jumps)

    def gap(self, boxes: np.ndarray) -> float:
        """Σ c_i (p s + q t)."""
        return float((boxes[:2] * boxes[2:]).sum(axis=(0, 1)) @ self.c)

    def size(self, r: np.ndarray, scale: float) -> float:
        """The contribution of an imbalance r to n(P − D).

        It is the distance of w from w(α) for entries with a ridge, and the unit of x_j times |r_j| for the others.
        """
        ridged = self.ridge > 0.0
        quadratic = np.square(r[ridged]) / (2.0 * self.ridge[ridged])
        return float(quadratic.sum()) + scale * float(np.abs(r[~ridged]) @ self.units[~ridged])

    def living(self, values: np.ndarray) -> np.ndarray:
        """Return the values of the examples of positive weight."""
        return values if self.live is None else values[..., self.live]

    def mean(self, products: np.ndarray) -> float:
        """Return the mean over all examples of positive weight."""
        return float(np.mean(self.living(products)))

    def alive(self, way: np.ndarray) -> np.ndarray:
        """Return a step in which examples of weight zero do not change."""
        return way if self.live is None else way * self.live

    def length(self, boxes: np.ndarray, way: np.ndarray) -> float:
        """Return the largest multiple of the step, at most one, that leaves p, q, s, t nonnegative."""
        return 1.0 / max(1.0, float(-self.living(way / boxes).min()))

    def take_up(self, boxes: np.ndarray, z: np.ndarray) -> None:
        """Change s and t so that z − k = t − s to the last digit: the one that hardly changes, or the one that increases."""
        off = z - self.kinks + boxes[2] - boxes[3]
        down = np.where(off > 0.0, boxes[2], boxes[3]) >= SMALL_PART * np.abs(off)
        boxes[2] -= np.where((off > 0.0) == down, off, 0.0)
        boxes[3] += np.where((off > 0.0) == down, 0.0, off)

    def with_zeros(self, x: np.ndarray, boxes: np.ndarray, scale: float) -> np.ndarray:
        """Return x with zeros for coefficients whose slope is farther from its ends than their margin from 0, in their units."""
        d = self.rows.d
        if not self.thresholds:
            return x
        room = (np.minimum(boxes[0], boxes[1]) / self.jumps)[:, self.n :].max(axis=0)
        zero = np.abs(x[:d]) < room * scale * self.units[:d]
        return np.append(np.where(zero, 0.0, x[:d]), x[d:])

    def nearest_vertices(self, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the kink of each example that seems to lie on one (else NaN), and α with the other examples at vertices.

        Of p s = μ the smaller factor tends to zero. Moving α_i to its vertex changes the margin by c_i p ‖a_i‖²/λn (in the
        norm of the penalty), which is negligible only if it is less than s. The α of examples on a kink are unchanged: with
        repeated rows many are optimal, and those near an interior point are feasible.
        """
        (p, q, s, t), d = boxes, self.rows.d
        moved = self.c * self.rows.data.row_scores(1.0 / self.ridge[:d])
        at, on = np.full(self.n, np.nan), (s < moved * p) & (t < moved * q) & (self.c > 0.0)
        for position, free in zip(self.positions, on, strict=True):
            np.copyto(at, position, where=free)
        taken = np.where(on, p, np.where(p < q, 0.0, self.jumps))
        return at, self.dual_point(taken)
