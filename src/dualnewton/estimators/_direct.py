"""Ridge regression with fewer examples than features, for all outputs and penalties from the n×n products of the examples."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.planning.direct import factorises_each
from dualnewton.solvers.primal.curvature import Cholesky


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

        values, vectors = eigh(self.K)
        return np.maximum(values, 0.0), self._projected(vectors)

    def _projected(self, columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(self.unit, self.unit @ columns)

    def duals(self, alpha: Any) -> np.ndarray:
        """Return v, of shape (n, K), for one alpha or one for each of the K targets."""
        values, vectors = self.spectrum
        return np.asarray(vectors @ ((vectors.T @ self.targets) / (values[:, None] + alpha)))

    def _each_dual(self, alphas: np.ndarray) -> list[np.ndarray]:
        """Return v for each alpha: from the eigenvalues if they are known, or from a factor for each alpha if these are few."""
        if "spectrum" in vars(self) or not factorises_each(len(alphas)):
            return [self.duals(alpha) for alpha in alphas]
        factors = (Cholesky(self.K.copy(), np.full(len(self.K), alpha)) for alpha in alphas)
        return [self._projected(factor.solve(self.targets)) for factor in factors]

    def models(self, data: Data, rows: np.ndarray, Y: np.ndarray, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K); ``rows`` are those of the products."""
        c, (m, K) = np.square(self.s) / np.square(self.s).sum(), Y.shape
        V = np.zeros((data.n, len(alphas) * K + 1))
        V[rows, :-1] = np.stack([self.s[:, None] * v for v in self._each_dual(alphas)], axis=1).reshape(m, -1)
        V[rows, -1] = c
        sums = data.transposed_times(V)
        W = np.ascontiguousarray(sums[:, :-1].T).reshape(len(alphas), K, -1)
        return W, c @ Y - W @ sums[:, -1] if self.unit.any() else np.zeros(W.shape[:2])
