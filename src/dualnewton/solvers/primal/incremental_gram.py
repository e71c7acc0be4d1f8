"""The Hessian of all rows, updated by the rows whose weight has changed since the last step.

The curvature of a row under the squared hinge or Huber's loss is one number or zero. It changes for few rows between steps, and
for fewer near the optimum, so that a step of Newton's method costs little more than its passes.
"""

from __future__ import annotations

from dataclasses import dataclass

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

    def changed(self, weights: np.ndarray) -> float:
        """Return the share of the rows that are read for the sum with these weights."""
        active, changed = count_active(weights), weights.size
        if self.last is not None:
            changed = self.data.changed(weights, self.last.weights).size
        return (changed if changed <= self.updated_share * active else active) / weights.size

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
        changed, H = self.data.changed(weights, last.weights), last.H
        if changed.size > self.updated_share * count_active(weights):
            return None, 0
        if changed.size:
            difference = self.data.take(weights - last.weights, changed)
            H = H + self.data.weighted_gram(difference, changed, intercept=self.intercept, single=single, keep=True)
        left = on_host(H.diagonal())
        largest = np.maximum(last.largest, left)
        return (Sum(weights, H, largest) if (left + self.ridge >= CANCELLED * largest).all() else None), changed.size
