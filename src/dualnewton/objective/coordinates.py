"""Problems with more features than examples, rewritten in at most n coordinates.

With the penalty (λ/2) Σ v_j w_j² the minimiser has the form w = V⁻¹Xᵀβ, for any loss. In coordinates u of a basis of this span
that is orthonormal for V,

    a_iᵀw = r_iᵀu,        Σ v_j w_j² = ‖u‖²,

so that the rows r_i replace a_i, and ½‖u‖² the penalty; labels, weights, offsets and intercept are unchanged. P and D of the
two problems agree at w and u, and at equal α.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import Data, MemoryData
from dualnewton.objective.alike import like
from dualnewton.regularizers import L2

ROUNDING = 1e-13
"""A row is linearly dependent on other rows if its component outside their span is below this fraction of its squared norm."""


def in_coordinates(problem: Any, data: MemoryData) -> Any:
    """Return the problem with other rows, of any number of features, and the penalty (λ/2)‖u‖²."""
    twin = like(problem)
    for name, value in {"X": data.X, "data": data, "d": data.d, "regularizer": L2()}.items():
        object.__setattr__(twin, name, value)
    return twin


@dataclass(frozen=True, eq=False)
class Factor:
    """The rows in coordinates by the factor X V⁻¹ Xᵀ = L Lᵀ.

    Pivoting orders the rows so that rows that depend on earlier ones add no coordinate: r rows span all, their rows L_r of L are
    triangular, and w = V⁻¹ X_rᵀ L_r⁻ᵀ u.

    Attributes
    ----------
    data : Data
        X.
    weights : array of shape (d,), optional
        v; ones by default.
    rows : array of shape (n, r)
        L.
    pivots : array of shape (r,)
        The rows that span all others.
    """

    data: Data
    weights: np.ndarray | None
    rows: np.ndarray
    pivots: np.ndarray

    @classmethod
    def of(cls, data: Data, weights: np.ndarray | None = None) -> Factor:
        """Factorise the n×n products of the rows; each row is scaled to unit length for the choice of the pivots."""
        from scipy.linalg.lapack import dpstrf

        K = data.row_gram(scale=None if weights is None else 1.0 / weights)
        sizes = np.sqrt(np.diagonal(K))
        unit = 1.0 / np.where(sizes > 0.0, sizes, 1.0)
        K = K * unit
        K *= unit[:, None]
        L, order, rank, _ = dpstrf(K.T, tol=ROUNDING, lower=1)
        order, rank = order - 1, max(rank, 1)  # if all rows are zero there is one coordinate, which is zero
        rows = np.zeros((data.n, rank))
        rows[order] = np.tril(L)[:, :rank]
        rows *= sizes[:, None]
        return cls(data, weights, rows, order[:rank])

    @cached_property
    def matrix(self) -> MemoryData:
        """L, wrapped in the data protocol."""
        return MemoryData(self.rows)

    def problem(self, problem: Any) -> Any:
        """Return a problem over X in these coordinates."""
        return in_coordinates(problem, self.matrix)

    def lifted(self, u: np.ndarray) -> np.ndarray:
        """Return w of u: vectors, or matrices with a row for each model."""
        V = np.zeros((self.data.n, *u.shape[:-1]))
        V[self.pivots] = self._solved(u.T, transposed=True)
        w = self.data.transposed_times(V).T
        return np.ascontiguousarray(w if self.weights is None else w / self.weights)

    def coordinates(self, w: np.ndarray) -> np.ndarray:
        """Return u of the point of the span that is nearest to w: of w itself if it lies in the span."""
        return np.ascontiguousarray(self._solved(self.data.times(w.T)[self.pivots], transposed=False).T)

    def _solved(self, right: np.ndarray, *, transposed: bool) -> np.ndarray:
        from scipy.linalg.lapack import dtrtrs

        found, _ = dtrtrs(self.rows[self.pivots], right, lower=1, trans=int(transposed))
        return np.asarray(found)
