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
from dualnewton.matrix import Data, MemoryData, linear
from dualnewton.objective.alike import like
from dualnewton.regularizers import L2

ROUNDING = 1e-13
"""A row is linearly dependent on other rows if its component outside their span is below this fraction of its squared norm."""

DIGITS = 1.5e-12
"""Products K of rows of unit length suffice for a relative gap ``tol`` if 1/‖K⁻¹‖₁ is at least DIGITS/tol: below, interior points
lose the directions that a small penalty makes large (measured on rows with features of different scales)."""


def products_suffice(K: np.ndarray, tol: float) -> bool:
    """Whether the products K = X V⁻¹ Xᵀ of the rows determine their span well enough for this relative gap.

    They do not show whether a row depends on others exactly, or differs from them in features of a small scale. (Rows of zeros
    are no obstacle.)
    """
    from scipy.linalg.lapack import dpocon, dpotrf

    sizes = np.sqrt(np.diagonal(K))
    unit = 1.0 / np.where(sizes > 0.0, sizes, 1.0)
    scaled = K * unit
    scaled *= unit[:, None]
    scaled.ravel()[:: len(K) + 1] = 1.0
    size = float(np.abs(scaled).sum(axis=0).max())
    factor, failed = dpotrf(scaled.T, lower=1, clean=0, overwrite_a=1)
    return not failed and bool(tol * size * dpocon(factor, size, uplo="L")[0] >= DIGITS)


def in_coordinates(problem: Any, data: MemoryData) -> Any:
    """Return the problem with other rows, of any number of features, and the penalty (λ/2)‖u‖²."""
    twin = like(problem)
    for name, value in {"X": data.X, "data": data, "d": data.d, "regularizer": L2()}.items():
        object.__setattr__(twin, name, value)
    return twin


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The rows in the coordinates of a basis of their span."""

    data: Data  # X
    weights: np.ndarray | None  # (d,) v; ones by default
    rows: np.ndarray  # (n, r) r_i

    @cached_property
    def matrix(self) -> MemoryData:
        """The rows, wrapped in the data protocol."""
        return MemoryData(self.rows)

    def problem(self, problem: Any) -> Any:
        """Return a problem over X in these coordinates."""
        return in_coordinates(problem, self.matrix)


@dataclass(frozen=True, eq=False)
class Factor(Coordinates):
    """The rows in coordinates by the factor X V⁻¹ Xᵀ = L Lᵀ.

    Pivoting orders the rows so that rows that depend on earlier ones add no coordinate: r rows span all, their rows L_r of L are
    triangular, and w = V⁻¹ X_rᵀ L_r⁻ᵀ u.
    """

    pivots: np.ndarray  # (r,) rows that span all others

    @classmethod
    def of(cls, data: Data, weights: np.ndarray | None = None, K: np.ndarray | None = None) -> Factor:
        """Factorise the n×n products of the rows, which may be known; each row is scaled to unit length to choose the pivots."""
        from scipy.linalg.lapack import dpstrf

        K = data.row_gram(scale=None if weights is None else 1.0 / weights) if K is None else K
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

        found, _ = dtrtrs(self._triangle, right, lower=0, trans=int(not transposed))
        return np.asarray(found)

    @cached_property
    def _triangle(self) -> np.ndarray:
        """L_rᵀ in the order of LAPACK, which copies matrices of another order for each solve."""
        return self.rows[self.pivots].T


@dataclass(frozen=True, eq=False)
class Reflections(Coordinates):
    """The rows in coordinates by the factor V^-½ Xᵀ = Q Lᵀ, from Householder reflections of dense rows; w = V^-½ Q u.

    It takes about four times as long as products of the rows, which square their condition number: here features of all scales
    keep their digits.
    """

    reflections: tuple[np.ndarray, np.ndarray]  # Q, as LAPACK stores it

    @classmethod
    def of(cls, data: Data, weights: np.ndarray | None = None) -> Reflections:
        """Factorise the rows."""
        from scipy.linalg.lapack import dgeqrf

        rows = np.asarray(linear.to_dense(data.rows(slice(None))), dtype=np.float64)
        made, scales, *_ = dgeqrf(rows.T if weights is None else (rows / np.sqrt(weights)).T)
        return cls(data, weights, np.ascontiguousarray(np.triu(made[: data.n]).T), (made, scales))

    def lifted(self, u: np.ndarray) -> np.ndarray:
        """Return w of u."""
        from scipy.linalg.lapack import dormqr

        right = np.zeros((self.data.d, 1), order="F")
        right[: self.data.n, 0] = u
        w = dormqr("L", "N", *self.reflections, right, lwork=self.data.d)[0][:, 0]
        return w if self.weights is None else w / np.sqrt(self.weights)
