"""The Hessian of all rows from one step to the next, where most rows keep their weight: only those that do not are touched.

The curvature of a squared hinge or of Huber's loss is some number or none. From step to step few rows change sides, fewer and
fewer near the end, so that a step of Newton's method costs little more than its passes.
"""

from __future__ import annotations

import numpy as np

from dualnewton.matrix import Data

FEW = 0.5
"""Largest fraction of the weighted rows whose weight may have changed for an update; beyond it the sum is computed anew."""

CANCELLED = 1e-6
"""A diagonal entry that subtraction has left below this fraction of its largest value so far is mostly rounding: recompute."""


def active_rows(weights: np.ndarray) -> np.ndarray:
    """Return the rows that have a weight; one that has none stands for none."""
    (active,) = np.nonzero(weights)
    return active if active.size else np.zeros(1, dtype=np.intp)


class KeptSum:
    """Σ weights_i ã_i ã_iᵀ over all rows, with a memory of the last one.

    Parameters
    ----------
    data : Data
        The data.
    intercept : bool
        Whether a constant feature is appended to the rows.

    Attributes
    ----------
    single : bool
        Whether products in single precision are good enough.
    """

    def __init__(self, data: Data, *, intercept: bool) -> None:
        self.data, self.intercept = data, intercept
        self.weights = self.largest = np.empty(0)
        self.H, self.trusted, self.single = np.empty((0, 0)), False, False

    def at(self, weights: np.ndarray) -> tuple[np.ndarray, int]:
        """Return the sum with these weights, for the caller to keep, and the number of rows that had to be read for it."""
        read = self._changed_to(weights) if self.weights.size else 0
        if not self.trusted:
            active = active_rows(weights)
            self.H = self.data.weighted_gram(weights[active], active, intercept=self.intercept, single=self.single)
            self.largest, self.trusted = self.H.diagonal().copy(), True
            read += active.size
        self.weights = weights
        return self.H.copy(), read

    def _changed_to(self, weights: np.ndarray) -> int:
        """Add what has changed, if that is little; the sum is not to be trusted if it is not, or if too little is left."""
        changed = np.flatnonzero(weights != self.weights)
        if changed.size > FEW * np.count_nonzero(weights):
            self.trusted = False
            return 0
        if changed.size:
            difference = weights[changed] - self.weights[changed]
            self.H += self.data.weighted_gram(difference, changed, intercept=self.intercept, single=self.single)
        left = self.H.diagonal()
        self.largest = np.maximum(self.largest, left)
        self.trusted = bool((left >= CANCELLED * self.largest).all())
        return changed.size
