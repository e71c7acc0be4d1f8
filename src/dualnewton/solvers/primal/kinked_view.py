"""A problem in the form of the interior-point method: a sum of convex piecewise linear terms, and a ridge.

    n P(x) = Σ_i c_i φ_i(z_i) + Σ_j λn (½ v_j w_j² + t_j |w_j|),        z = Ãx + o,  x = (w, b)

A threshold t_j |w_j| is the loss of one more example: its row is r_j e_j, its weight λn t_j / r_j, its kink 0, and its slope
rises there from −1 to 1. With r_j, the root mean square of feature j, its margin has the same unit as the others. These examples
follow those of the data; none of their rows is stored (:class:`~dualnewton.solvers.primal.step_systems.Coordinates`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.solvers.primal.interior_steps import State, Terms, starting_state
from dualnewton.solvers.primal.step_systems import Coordinates, System

COLD = 0.5
"""Relative gap of a start above which the least-squares fit is better."""

START = 2.0
"""s and t start with this multiple of the root mean square distance of a margin from its kinks."""

LEAST_VARIANCE = 1e-12
"""Variance of a feature, as a fraction of its mean square, below which it is a rounding error."""


def root_mean_squares(data: Data, used: np.ndarray | None = None, *, intercept: bool = False) -> np.ndarray:
    """Return r_j of each feature over the rows in the mask ``used``, all by default; 1 for a feature that is zero.

    With an intercept r_j is the deviation from the mean of the feature, since b takes up the mean; at least that of rounding.
    """
    each = np.full(data.n, 1.0 / data.n) if used is None else used / max(np.count_nonzero(used), 1)
    squares = data.column_norms(each)
    if intercept:
        means = np.square(data.transposed_times(each))
        squares = np.maximum(squares - means, LEAST_VARIANCE * squares)
    return np.sqrt(np.where(squares > 0.0, squares, 1.0))


class View:
    """A problem of the loop: its terms, and what its points mean."""

    def __init__(
        self,
        problem: Any,  # has a piecewise linear loss and a penalty Σ ½ v_j w_j² + t_j |w_j|
        sizes: np.ndarray,  # (d,) r_j
        # The linear system of the data for a ridge and the units of x.
        system_of: Callable[[np.ndarray, np.ndarray], System],
    ) -> None:
        rows, scale = problem.unit, problem.lam * problem.n
        kinks, (threshold, factor, _, _) = rows.loss.kinks(rows.y), problem.regularizer.form.limits(problem.d)
        self.rows, self.n = rows, rows.n  # examples of the data; those of the thresholds follow
        self.thresholds = bool(threshold.any())  # whether the penalty has thresholds
        # If the loss has M kinks, each threshold has M equal kinks, with jumps of 2/M.
        several = len(kinks)
        added = np.zeros((several, problem.d if self.thresholds else 0))
        # (M, N) The margins at which a slope increases, with offsets.
        self.positions = np.hstack([[kink.position for kink in kinks], added])
        jumps = np.hstack([[kink.right - kink.left for kink in kinks], added + 2.0 / several])
        least, offset = np.append(kinks[0].left, added[0] - 1.0), np.append(rows.o, added[0])
        self.c = np.append(rows.c, scale * threshold / sizes) if self.thresholds else rows.c
        one = np.ones(1 if rows.fit_intercept else 0)
        # λn v_j, and 0 for an intercept; and the units of x, if the unit of a margin is one.
        self.ridge, self.units = np.append(scale / factor, 0.0 * one), np.append(1.0 / sizes, one)
        system = system_of(self.ridge, self.units)
        live = None if rows.sample_weight is None or self.c.all() else self.c > 0.0
        c = None if rows.sample_weight is None and not self.thresholds else self.c
        system = Coordinates(system, sizes) if self.thresholds else system
        self.terms = Terms(system, self.positions - offset, jumps, least, c, live)

    @property
    def has_ridge(self) -> bool:
        """Whether the penalty is quadratic; if it is not, the problem is a linear program."""
        return bool(self.ridge.any())

    @property
    def is_ridge(self) -> bool:
        """Whether the penalty is quadratic in every coefficient, and nothing else."""
        return not self.thresholds and bool(self.ridge[: self.rows.d].all())

    def losses(self, z: np.ndarray) -> np.ndarray:
        """The losses of the examples for their margins without offset; for a penalty without thresholds."""
        return np.asarray(self.rows.loss.value(z + self.rows.o, self.rows.y))

    def start(self, pair: CertifiedPair, *, single: bool) -> State:
        """Return an interior point: the least-squares fit, or one that is nearer to the pair the smaller the pair's gap is."""
        if (
            self.is_ridge
            and pair.certificate.relative_gap > COLD
            and (fit := starting_state(self.terms, single=single))
        ):
            return fit
        terms, x = self.terms, np.append(pair.w, pair.intercept) if self.rows.fit_intercept else np.array(pair.w)
        r = terms.system.margins(x) - terms.kinks
        size = float(np.square(r if terms.live is None else r[:, terms.live]).mean())
        unit = START * math.sqrt(size) or 1.0
        inside = min(0.5, math.sqrt(max(pair.certificate.relative_gap, 0.0)))
        p = np.clip(self.split(pair.alpha), inside * terms.jumps, (1.0 - inside) * terms.jumps)
        apart = 2.0 * inside * unit * np.sqrt(terms.even)
        boxes = np.stack([p, terms.jumps - p, np.maximum(-r, 0.0) + apart, np.maximum(r, 0.0) + apart])
        return terms.at(x, r, boxes, unit, single=single)

    def split(self, alpha: np.ndarray) -> np.ndarray:
        """Return p of a dual point, in which the jumps are filled from left to right; thresholds have the slope 0."""
        slopes, jumps = np.zeros(len(self.c)), self.terms.jumps
        slopes[: self.n] = -alpha
        before = np.cumsum(jumps, axis=0) - jumps
        return np.clip(slopes - self.terms.least - before, 0.0, jumps)

    def dual_point(self, p: np.ndarray) -> np.ndarray:
        """Return α of the examples of the data."""
        slopes = self.terms.least + self.terms.fold(p)
        return self.rows.loss.nearest_dual(-slopes[: self.n], self.rows.y)

    def with_zeros(self, state: State) -> np.ndarray:
        """Return x with zeros for coefficients whose slope is farther from its ends than their margin from 0, in their units."""
        d, x, (p, q, _, _) = self.rows.d, state.x, state.boxes
        distance = (np.minimum(p, q) / self.terms.jumps)[:, self.n :].max(axis=0)
        zero = np.abs(x[:d]) < distance * state.unit * self.units[:d]
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
        taken = np.where(on, p, np.where(p < q, 0.0, self.terms.jumps))
        return at, self.dual_point(taken)
