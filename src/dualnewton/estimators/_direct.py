"""Ridge regression with fewer examples than features, solved for all outputs and penalties by one n×n eigendecomposition."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix import Data


class ByExamples:
    """The solutions from the eigenvalues of the n×n products X Xᵀ: w = Xᵀ D(s) v, (PKP + alpha I) v = P D(s) y.

    Here s = √c for weights c that are not all zero, K = D(s) X Xᵀ D(s), and P removes the component along s if there is an
    intercept. Y has the shape (n, outputs).
    """

    def __init__(self, products: np.ndarray, Y: np.ndarray, c: np.ndarray, *, fit_intercept: bool) -> None:
        from scipy.linalg import eigh

        self.s = np.sqrt(c)
        self.unit = self.s / np.linalg.norm(self.s) if fit_intercept else np.zeros(len(c))
        values, vectors = eigh(self._projected(self._projected(products * np.outer(self.s, self.s)).T))
        self.values, self.vectors = np.maximum(values, 0.0), self._projected(vectors)
        self.along = self.vectors.T @ self._projected(self.s[:, None] * Y)  # exactly zero if the targets are constant

    def _projected(self, columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(self.unit, self.unit @ columns)

    def duals(self, alpha: Any) -> np.ndarray:
        """Return v, of shape (n, K), for one alpha or one for each of the K targets."""
        return np.asarray(self.vectors @ (self.along / (self.values[:, None] + alpha)))

    def models(self, data: Data, rows: np.ndarray, Y: np.ndarray, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K); ``rows`` are those of the products."""
        c, (m, K) = np.square(self.s) / np.square(self.s).sum(), Y.shape
        V = np.zeros((data.n, len(alphas) * K + 1))
        V[rows, :-1] = np.stack([self.s[:, None] * self.duals(alpha) for alpha in alphas], axis=1).reshape(m, -1)
        V[rows, -1] = c
        sums = data.transposed_times(V)
        W = np.ascontiguousarray(sums[:, :-1].T).reshape(len(alphas), K, -1)
        return W, c @ Y - W @ sums[:, -1] if self.unit.any() else np.zeros(W.shape[:2])
