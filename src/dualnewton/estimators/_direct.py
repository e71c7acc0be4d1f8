"""Ridge regression with fewer examples than features, for all outputs and penalties from the n×n products of the examples."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix import Data
from dualnewton.planning.direct import factorises_each, inverts_each
from dualnewton.solvers.primal.curvature import Cholesky

CANCELLED = 1e-8
"""Fraction of a diagonal entry up to which a pivot of its factor, or what removing the intercept leaves of it, has lost too many
digits: then the eigenvalues, which are never negative, take the place of the inverse."""


class Inverse(NamedTuple):
    """For one alpha: v, of shape (n, K), and the diagonal of P(PKP + alpha I)⁻¹P."""

    duals: np.ndarray
    diagonal: np.ndarray


class ByExamples:
    """The solutions from the n×n products X Xᵀ: w = Xᵀ D(s) v, (PKP + alpha I) v = P D(s) y.

    Here s = √c for weights c that are not all zero, K = D(s) X Xᵀ D(s), and P removes the component along s if there is an
    intercept. Y has the shape (n, outputs).
    """

    def __init__(self, products: np.ndarray, Y: np.ndarray, c: np.ndarray, *, fit_intercept: bool) -> None:
        self.s = np.sqrt(c)
        self.unit = self.s / np.linalg.norm(self.s) if fit_intercept else np.zeros(len(c))
        self.K = self._projected(self._projected(products * np.outer(self.s, self.s)).T)
        self.targets = self._projected(self.s[:, None] * Y)  # exactly zero if the targets are constant

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of PKP and its eigenvectors."""
        from scipy.linalg import eigh

        values, vectors = eigh(self.K, driver="evd")  # a third less time than the default driver
        return np.maximum(values, 0.0), self._projected(vectors)

    @property
    def is_decomposed(self) -> bool:
        """Whether the eigenvalues are known."""
        return "spectrum" in vars(self)

    def _projected(self, columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(self.unit, self.unit @ columns)

    def duals(self, alpha: Any) -> np.ndarray:
        """Return v, of shape (n, K), for one alpha or one for each of the K targets."""
        values, vectors = self.spectrum
        return np.asarray(vectors @ ((vectors.T @ self.targets) / (values[:, None] + alpha)))

    def _each_dual(self, alphas: np.ndarray) -> list[np.ndarray]:
        """Return v for each alpha: from the eigenvalues if they are known, or from a factor for each alpha if these are few."""
        if self.is_decomposed or not factorises_each(len(alphas)):
            return [self.duals(alpha) for alpha in alphas]
        factors = (Cholesky(self.K.copy(), np.full(len(self.K), alpha)) for alpha in alphas)
        return [self._projected(factor.solve(self.targets)) for factor in factors]

    def inverses(self, alphas: np.ndarray) -> list[Inverse]:
        """Return what leave-one-out errors need, for each alpha: from the inverse of a matrix for each if these are few."""
        if inverts_each(len(alphas)):
            found = [inverse for inverse in map(self._inverse, alphas) if inverse is not None]
            if len(found) == len(alphas):
                return found
        values, vectors = self.spectrum
        squares = np.square(vectors)
        return [Inverse(self.duals(alpha), squares @ (1.0 / (values + alpha))) for alpha in alphas]

    def _inverse(self, alpha: float) -> Inverse | None:
        """Invert PKP + alpha I; None if it is nearly singular, or if a row has nearly all weight."""
        from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

        # Along the unit vector PKP is zero. An eigenvalue like the others is put there, so that removing it cancels few digits.
        level = float(np.trace(self.K)) / len(self.K)
        M = self.K + np.outer(level * self.unit, self.unit)
        M.reshape(-1)[:: len(M) + 1] += alpha
        sizes = M.diagonal().copy()
        factor, failed = dpotrf(M.T, lower=1, overwrite_a=1)  # M is symmetric, so that its transpose is M for LAPACK
        if failed or np.any(np.square(factor.diagonal()) <= CANCELLED * sizes):
            return None
        duals = self._projected(dpotrs(factor, self.targets, lower=1)[0])
        whole = dpotri(factor, lower=1, overwrite_c=1)[0].diagonal()
        diagonal = whole - np.square(self.unit) / (level + alpha)
        return None if np.any(diagonal <= CANCELLED * whole) else Inverse(duals, diagonal)

    def models(
        self,
        data: Data,
        rows: np.ndarray,
        Y: np.ndarray,
        alphas: np.ndarray,
        duals: Sequence[np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K); ``rows`` are those of the products, v may be known."""
        c, (m, K) = np.square(self.s) / np.square(self.s).sum(), Y.shape
        V = np.zeros((data.n, len(alphas) * K + 1))
        V[rows, :-1] = np.stack([self.s[:, None] * v for v in duals or self._each_dual(alphas)], axis=1).reshape(m, -1)
        V[rows, -1] = c
        sums = data.transposed_times(V)
        W = np.ascontiguousarray(sums[:, :-1].T).reshape(len(alphas), K, -1)
        return W, c @ Y - W @ sums[:, -1] if self.unit.any() else np.zeros(W.shape[:2])
