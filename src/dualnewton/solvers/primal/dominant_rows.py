"""The curvature of fewer rows than features: the rows that contribute most to the Hessian.

A sketch of fewer rows than features leaves most directions out, whichever rows are drawn. Scaling up the weights of the drawn
rows, as a larger sketch does, would overestimate the curvature along them. With their own weights they give a lower bound on the
Hessian. The speed of conjugate steps then depends only on the spread of the eigenvalues that the bound misses, which is least
for the dominant rows.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dualnewton.matrix import Data, count_active, linear
from dualnewton.solvers.primal.curvature import Cholesky, Curvature, Woodbury, gram_of
from dualnewton.solvers.primal.decisions import Decisions

FEW = 256
"""Number of sampled rows from which the mean curvature of the remaining rows is estimated."""

SPANNED = 1e-8
"""Eigenvalues of the Gram matrix below this fraction of the mean squared row norm count as zero: they are rounding."""


class DominantRows:
    """Σ w_i a_i a_iᵀ over the rows with the largest w_i‖a_i‖², plus a diagonal for the other rows."""

    def __init__(
        self,
        data: Data,
        ridge: np.ndarray,  # (d,) or (d + 1,) penalties; with one more entry if there is an intercept
        decisions: Decisions,  # choose whether the products of all rows are kept
    ) -> None:
        self.data, self.ridge, self.intercept, self.decisions = data, ridge, ridge.size > data.d, decisions
        # Products of two rows in the exact curvatures so far. Once these are as many as all rows have, those are computed and
        # kept: the classes of a one-vs-rest model have other active rows, and each of them has others from step to step.
        self.multiplied = 0.0

    @cached_property
    def _norms(self) -> np.ndarray:
        """‖a_i‖² of each row, each feature divided by its scale.

        Fewer rows than features span few directions: the scale is the ridge. Otherwise it includes the curvature of the rows.
        """
        data, ridge = self.data, self.ridge[: self.data.d]
        scale = ridge if data.n < data.d else ridge + np.square(data.feature_norms)
        return data.row_scores(1.0 / scale)

    @cached_property
    def _products(self) -> np.ndarray:
        """A D(ridge)⁻¹ Aᵀ of all rows."""
        return gram_of(self.data.rows(slice(None)), self.ridge[: self.data.d])

    def at(self, weights: np.ndarray, size: int) -> Curvature:
        """Return an estimate of Aᵀ D(weights) A + D(ridge) from ``size`` rows, exact if no more have a positive weight."""
        data, ridge = self.data, self.ridge[: self.data.d]
        if (active := count_active(weights)) <= size:
            chosen = data.active(weights)
            rows, own, gram = data.rows(chosen), data.entries(weights, chosen), None
            if self.decisions.keeps_products(self.multiplied) and data.capabilities.whole and data.capabilities.local:
                gram = self._products.take(chosen, axis=0).take(chosen, axis=1)
            else:
                self.multiplied += float(chosen.size) ** 2
            return Woodbury(rows, own, ridge, gram, intercept=self.intercept, exact=True, chosen=chosen).placed(data)
        chosen, some = data.dominant(weights, self._norms, size, FEW if data.n < data.d else 0)
        rows, own, gram = data.rows(chosen), data.entries(weights, chosen), None
        if some is not None:
            gram = gram_of(rows, ridge)
            missed = self._missed(rows, gram, some, data.entries(weights, some))
            lift = 1.0 + missed * (active - size) / (data.d - size)
            diagonal, gram = ridge * lift, gram / lift
        else:
            diagonal = data.column_norms(weights) - np.asarray(own @ linear.squared(rows))
            np.maximum(diagonal, 0.0, out=diagonal)
            diagonal += ridge
        made = Woodbury(rows, own, diagonal, gram, intercept=self.intercept, scaled_well=False, chosen=chosen)
        return made.placed(data)

    def _missed(self, rows: Any, gram: np.ndarray, some: Any, weights: np.ndarray) -> float:
        """Return the mean curvature of some other rows in directions that these rows do not span, as a multiple of the ridge."""
        across = linear.to_dense(rows @ linear.scale_columns(self.data.rows(some), 1.0 / self.ridge[: self.data.d]).T)
        inside = Cholesky(gram.copy(), np.full(len(gram), SPANNED * float(gram.diagonal().mean())))
        outside = self.data.entries(self._norms, some) - (across * inside.solve(across)).sum(axis=0)
        return float((weights * np.maximum(outside, 0.0)).mean())
