"""The linear systems of interior-point steps on small data, by rows or by the Gram matrix of fewer rows than features.

A step solves (D(ridge) + Ãᵀ D(weights) Ã) Δx = −(imbalance + Ãᵀ mass), in variables x that determine the margins.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.blas import dsyrk
from scipy.linalg.lapack import dpotrf, dpotrs

LIFTS = (1e-14, 1e-11, 1e-8)
"""Fractions of its diagonal that are added to a matrix, in turn, if it has no Cholesky factor."""

LONG = 32
"""Length of rows from which they are scaled one by one; shorter ones are transposed first, and scaled as columns."""


class Rows:
    """The linear part of a step for x = (w, b), with the matrix D(ridge) + Ãᵀ D(weights) Ã.

    Parameters
    ----------
    columns : array of shape (d, n) or (d + 1, n)
        Ãᵀ: the transpose of rows in C order, or for short rows an array in C order, so that scaling the examples is fast.
    ridge : array
        λn v_j, and 0 for the intercept.
    d : int
        Number of features.
    """

    restricts = True

    def __init__(self, columns: np.ndarray, ridge: np.ndarray, d: int) -> None:
        self.columns, self.by_rows = columns, len(columns) >= LONG
        self.ridge, self.d, self.inverse = ridge, d, 0.5 / ridge[:d]
        self.diagonal = np.zeros((len(ridge), len(ridge)), order="F")
        self.diagonal.ravel("K")[:: len(ridge) + 1] = ridge
        self.scaled = np.empty_like(self.columns)
        self.plain: np.ndarray | None = None

    @classmethod
    def of(cls, rows: np.ndarray, ridge: np.ndarray, d: int) -> Rows:
        """Return the matrix of Ã in C order."""
        return cls(rows.T if rows.shape[1] >= LONG else np.ascontiguousarray(rows.T), ridge, d)

    def margins(self, x: np.ndarray) -> np.ndarray:
        """ãᵀx of each example."""
        return x @ self.columns

    def imbalance(self, x: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """ridge ∘ x + Σ_i mass_i ã_i."""
        return self.ridge * x + self.columns @ mass

    def gap(self, imbalance: np.ndarray, unit: float) -> float:
        """What an imbalance adds to n(P − D), if the unit of a margin is ``unit``."""
        own = imbalance[: self.d]
        return float(self.inverse @ (own * own)) + unit * sum(map(abs, imbalance[self.d :].tolist()))

    def penalty(self, x: np.ndarray) -> float:
        """½ Σ ridge_j x_j²."""
        return 0.5 * float(self.ridge @ (x * x))

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float) -> np.ndarray | None:
        """argmin_x Σ_i c_i (ã_iᵀx − target_i)²/(2 width) + ½ Σ ridge_j x_j²."""
        if self.plain is None:
            self.plain = self._weighted(c, self.diagonal)
        self.factor = _cholesky(self.plain + (width - 1.0) * self.diagonal)
        return None if self.factor is None else self._solved(self.columns @ (c * targets))

    def factorise(self, weights: np.ndarray) -> bool:
        """Factorise the matrix of a step; return whether that is possible."""
        self.factor = _cholesky(self._weighted(weights, self.diagonal))
        return self.factor is not None

    def _weighted(self, weights: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Ãᵀ D(weights) Ã plus a matrix, at least its lower triangle."""
        if self.by_rows:
            np.multiply(self.columns, np.sqrt(weights), out=self.scaled)
            return np.asarray(dsyrk(1.0, self.scaled, 1.0, added, lower=1))
        # For so few features a product with the transpose of another matrix is faster than one with its own.
        np.multiply(self.columns, weights, out=self.scaled)
        H = self.scaled @ self.columns.T
        H += added
        return H.T

    def _solved(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(dpotrs(self.factor, right, lower=1, overwrite_b=1)[0])

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Δx and ÃΔx that remove the imbalance plus Σ_i mass_i ã_i."""
        dx = self._solved(-(imbalance + self.columns @ mass))
        return dx, dx @ self.columns

    def restricted(self, kept: np.ndarray) -> Rows:
        """Return the matrix of some examples."""
        columns = self.columns.T[kept].T if self.by_rows else self.columns.take(kept, axis=1)
        return Rows(columns, self.ridge, self.d)

    def model(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return w and b."""
        return x[: self.d], float(x[self.d]) if len(x) > self.d else 0.0


class Gram:
    """The linear part of a step for fewer examples than features: w = V⁻¹Aᵀβ, x = β, or (β, b) with Σ β_i = 0.

    With K = A V⁻¹ Aᵀ the margins are Kβ + b, and λnβ + mass = 0 is the condition of balance, for which a step solves

        (λn D(weights)⁻¹ + K) Δβ = −(λnβ + mass)/weights − Δb.

    Parameters
    ----------
    rows : array of shape (n, d)
        A.
    K : array of shape (n, n)
        A V⁻¹ Aᵀ.
    v : array of shape (d,), optional
        The diagonal of V; ones by default.
    lamn : float
        λn.
    intercept : bool
        Whether b is free.
    """

    restricts = False  # x has an entry for each example

    def __init__(self, rows: np.ndarray, K: np.ndarray, v: np.ndarray | None, lamn: float, *, intercept: bool) -> None:
        self.rows, self.K, self.v, self.lamn, self.n, self.intercept = rows, K, v, lamn, len(rows), intercept

    def margins(self, x: np.ndarray) -> np.ndarray:
        """Kβ + b."""
        return self.K @ x[: self.n] + (x[self.n] if self.intercept else 0.0)

    def imbalance(self, x: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """λnβ + mass, and with an intercept −Σ β_i."""
        left = self.lamn * x[: self.n] + mass
        return np.append(left, -x[: self.n].sum()) if self.intercept else left

    def gap(self, imbalance: np.ndarray, unit: float) -> float:
        """What an imbalance adds to n(P − D), if the unit of a margin is ``unit``."""
        own = imbalance[: self.n]
        free = own.sum() + self.lamn * imbalance[self.n] if self.intercept else 0.0  # Σ mass_i
        return 0.5 * float(own @ (self.K @ own)) / self.lamn + unit * abs(float(free))

    def penalty(self, x: np.ndarray) -> float:
        """λn/2 times the penalty of w."""
        return 0.5 * self.lamn * float(x[: self.n] @ (self.K @ x[: self.n]))

    def factorise(self, weights: np.ndarray) -> bool:
        """Factorise the matrix of a step; return whether that is possible."""
        self.roots = np.sqrt(weights)
        scaled = self.K * self.roots
        scaled *= self.roots[:, None]
        scaled.ravel()[:: self.n + 1] += self.lamn
        self.factor = _cholesky(scaled.T)
        if self.factor is not None and self.intercept:
            self.along = self._solved(self.roots)
        return self.factor is not None

    def fitted(self, targets: np.ndarray, c: np.ndarray, width: float) -> np.ndarray | None:
        """Return the least-squares fit to the targets: see :meth:`Rows.fitted`."""
        zeros = np.zeros(self.n + self.intercept)
        return self.direction(zeros, -c * targets / width)[0] if self.factorise(c / width) else None

    def _solved(self, right: np.ndarray) -> np.ndarray:
        return np.asarray(dpotrs(self.factor, right, lower=1)[0])

    def direction(self, imbalance: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return Δx and the change of the margins that remove the imbalance plus the mass."""
        step = self._solved((imbalance[: self.n] + mass) / self.roots)
        if not self.intercept:
            beta = -self.roots * step
            return beta, self.K @ beta
        b = -(imbalance[self.n] + float(self.roots @ step)) / float(self.roots @ self.along)
        beta = -self.roots * (step + b * self.along)
        return np.append(beta, b), self.K @ beta + b

    def model(self, x: np.ndarray) -> tuple[np.ndarray, float]:
        """Return w and b."""
        w = x[: self.n] @ self.rows
        return w if self.v is None else w / self.v, float(x[self.n]) if self.intercept else 0.0


def _cholesky(H: np.ndarray) -> np.ndarray | None:
    """Return the lower Cholesky factor of H, in Fortran order; None if rounding has made it indefinite."""
    factor, failed = dpotrf(H, lower=1, clean=0)
    for lift in LIFTS:
        if not failed:
            break
        H.ravel("K")[:: len(H) + 1] *= 1.0 + lift
        factor, failed = dpotrf(H, lower=1, clean=0)
    return None if failed else factor
