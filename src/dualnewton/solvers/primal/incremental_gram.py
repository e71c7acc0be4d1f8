"""The Hessian of all rows, updated by the rows whose weight has changed since the last step.

The curvature of a row under the squared hinge or Huber's loss is one number or zero. It changes for few rows between steps, and
for fewer near the optimum, so that a step of Newton's method costs little more than its passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix import Data, count_active
from dualnewton.row_arrays import on_host

CANCELLED = 1e-6
"""A diagonal entry, with the ridge, below this fraction of the largest value that it has had has lost digits: recompute."""


@dataclass(frozen=True, eq=False)
class Sum:
    """H = Σ weights_i ã_i ã_iᵀ, and the largest value that each entry of its diagonal has had."""

    weights: np.ndarray
    H: np.ndarray
    largest: np.ndarray


class Change(NamedTuple):
    """Weights, and how they differ from those of the last sum."""

    weights: np.ndarray
    rows: Any  # whose weight differs
    active: int  # how many weights are not zero
    few: bool  # whether these rows are so few that the sum is updated


class IncrementalGram:
    """Σ weights_i ã_i ã_iᵀ over all rows, computed from the sum for the last weights.

    Attributes
    ----------
    last : Sum, optional
        The last sum.
    """

    def __init__(
        self,
        data: Data,
        *,
        intercept: bool,  # whether a constant feature is appended to the rows
        ridge: np.ndarray,  # (d,) or (d + 1,) what is added to the diagonal of the sum before it is factorised
        # Largest share of the weighted rows whose weight may have changed for an update; above it the sum is
        # recomputed.
        updated_share: float,
    ) -> None:
        self.data, self.intercept, self.ridge, self.updated_share = data, intercept, ridge, updated_share
        self.last: Sum | None = None
        self.compared: Change | None = None  # the last weights that have been compared with those of the last sum

    def changed(self, weights: np.ndarray) -> float:
        """Return the share of the rows that are read for the sum with these weights."""
        if self.last is None:
            return count_active(weights) / weights.size
        change = self._change(self.last, weights)
        return (change.rows.size if change.few else change.active) / weights.size

    def _change(self, last: Sum, weights: np.ndarray) -> Change:
        """Return the rows whose weight differs from that of the last sum."""
        if self.compared is None or self.compared.weights is not weights:
            rows, active = self.data.changed(weights, last.weights), count_active(weights)
            self.compared = Change(weights, rows, active, rows.size <= self.updated_share * active)
        return self.compared

    def at(self, weights: np.ndarray, *, single: bool = False) -> tuple[np.ndarray, int]:
        """Return a copy of the sum with these weights, and the number of rows that were read for it.

        Products are in single precision if ``single``.
        """
        read = 0
        if self.last is not None:
            self.last, read = self._updated(self.last, weights, single)
        if self.last is None:
            active = self.data.active(weights)
            H = self.data.weighted_gram(
                self.data.take(weights, active), active, intercept=self.intercept, single=single, keep=True
            )
            self.last, read = Sum(weights, H, on_host(H.diagonal()).copy()), read + active.size
        return self.last.H.copy(), read

    def _updated(self, last: Sum, weights: np.ndarray, single: bool) -> tuple[Sum | None, int]:
        """Add the rows whose weight changed; return None if they are many, or if subtraction lost digits.

        A feature that no row with a weight has any more is zero up to rounding, far below the ridge.
        """
        change, H = self._change(last, weights), last.H
        changed, self.compared = change.rows, None
        if not change.few:
            return None, 0
        if changed.size:
            difference = self.data.take(weights - last.weights, changed)
            H = H + self.data.weighted_gram(difference, changed, intercept=self.intercept, single=single, keep=True)
        left = on_host(H.diagonal())
        largest = np.maximum(last.largest, left)
        return (Sum(weights, H, largest) if (left + self.ridge >= CANCELLED * largest).all() else None), changed.size
