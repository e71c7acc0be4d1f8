"""The curvature of fewer rows than features: the rows that contribute most to the Hessian.

A sketch of fewer rows than features leaves most directions out, whichever rows are drawn. To count those that are drawn for
those that are not, as a larger sketch does, would make up curvature along the former. With their own weights they are a lower
bound of the Hessian, and conjugate steps need not care what it misses but for its spread, of which the dominant rows leave the
least.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix import Data, linear
from dualnewton.solvers.primal.curvature import Cholesky, Curvature, Woodbury, gram_of

FEW = 256
"""Rows that tell what all others are like."""

SPANNED = 1e-8
"""Eigenvalues of the Gram matrix below this fraction of the mean squared row norm count as zero: they are rounding."""


class HeaviestRows:
    """Σ w_i a_i a_iᵀ over the rows with the largest w_i‖a_i‖², and for the others a diagonal.

    Parameters
    ----------
    data : Data
        The data.
    ridge : array of shape (d,) or (d + 1,)
        The penalties; with one more where there is an intercept.
    """

    def __init__(self, data: Data, ridge: np.ndarray) -> None:
        self.data, self.ridge, self.intercept = data, ridge, ridge.size > data.d
        self.norms: np.ndarray | None = None

    def at(self, weights: np.ndarray, size: int) -> Curvature:
        """Return Aᵀ D(weights) A + D(ridge), near enough, from so many rows; exactly, if no more have any weight."""
        data, ridge = self.data, self.ridge[: self.data.d]
        (active,) = np.nonzero(weights)
        if active.size <= size:  # all there are
            chosen = active if active.size else np.zeros(1, dtype=np.intp)  # a row of no weight stands for none
            return Woodbury(data.rows(chosen), weights[chosen], ridge, intercept=self.intercept, exact=True)
        # Fewer rows than features span few directions. Else their curvature is spread over all, by the scale of the features.
        wide = data.n < data.d
        features = np.arange(data.d)
        if self.norms is None:
            scale = ridge if wide else ridge + data.column_norms(np.ones(data.n), features)
            self.norms = data.row_scores(1.0 / scale)
        order = active[np.argsort(-weights[active] * self.norms[active], kind="stable")]
        chosen, others = np.sort(order[:size]), order[size:]
        rows, own = data.rows(chosen), weights[chosen]
        if wide:
            gram = gram_of(rows, ridge)
            lift = 1.0 + self._missed(rows, gram, others, weights)
            return Woodbury(rows, own, ridge * lift, gram / lift, intercept=self.intercept, scaled_well=False)
        left = data.column_norms(weights, features) - np.asarray(own @ linear.squared(rows))
        return Woodbury(rows, own, ridge + np.maximum(left, 0.0), intercept=self.intercept, scaled_well=False)

    def _missed(self, rows: Any, gram: np.ndarray, others: np.ndarray, weights: np.ndarray) -> float:
        """Return the mean curvature of other rows in the directions which these do not span, as a multiple of the ridge."""
        some = others[np.linspace(0, others.size - 1, min(FEW, others.size)).astype(int)]
        across = linear.to_dense(rows @ linear.scale_columns(self.data.rows(some), 1.0 / self.ridge[: self.data.d]).T)
        inside = Cholesky(gram.copy(), np.full(len(gram), SPANNED * float(gram.diagonal().mean())))
        outside = self.norms[some] - (across * inside.solve(across)).sum(axis=0)  # type: ignore[index]
        return float((weights[some] * np.maximum(outside, 0.0)).mean()) * others.size / (self.data.d - len(gram))
