"""Blocks of consecutive rows in memory, and the two products that a pass computes with each block."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from dualnewton.matrix.linear import as_float64, csr_rows, is_sparse, transposed

FEW, CACHED = 3, 1 << 16
"""Number of columns up to which RᵀA is computed column by column where A has more entries than this (0.5 MiB): one product takes
up to twice as long with the kernels of OpenBLAS for AVX2 (Haswell, Zen), and half as long with those for AVX-512 while A is in
the cache."""

FEW_MODELS, TINY, NARROW = 3, 1 << 14, 24
"""Number of models up to which AWᵀ is computed column by column, and entries and features of a dense A up to which it is one
product in any case. (SciPy's product of sparse rows with two columns takes twice the time of two products with one.)"""


class LibraryBlock:
    """A block A of consecutive rows of the data, whose products are computed by BLAS, or by SciPy on a view of the rows."""

    def __init__(self, X: Any, rows: slice) -> None:
        self.rows = rows
        if is_sparse(X):
            self.A: Any = csr_rows(X, rows.start, rows.stop)
            self.transposed: Any = transposed(self.A)
        else:
            self.A = X[rows]
            self.transposed = self.A.T

    def read(self, reused: list[np.ndarray]) -> LibraryBlock:
        """Return a block whose two products do not convert the entries again; ``reused`` holds their array, once there is one."""
        if self.A.dtype == np.float64:
            return self
        wide: Any = copy.copy(self)
        if is_sparse(self.A):
            wide.A = as_float64(self.A)
            wide.transposed = transposed(wide.A)
            return wide
        if not reused or len(reused[0]) < len(self.A):
            reused[:] = [np.empty(self.A.shape)]
        wide.A = reused[0][: len(self.A)]
        wide.A[:] = self.A
        wide.transposed = wide.A.T
        return wide

    def product(self, W: np.ndarray) -> np.ndarray:
        """Return A Wᵀ, with contiguous columns."""
        if self.A.size > TINY and not np.count_nonzero(W):  # most runs start at zero; W.any() takes longer
            return np.zeros((len(W), self.A.shape[0])).T
        if len(W) == 1:
            return np.asarray(self.A.dot(W[0])[:, None])
        if by_columns(self.A, len(W)):
            return np.array([self.A.dot(w) for w in W]).T
        return np.asfortranarray(self.A @ W.T) if is_sparse(self.A) else W.dot(self.transposed).T

    def gathered(self, R: np.ndarray) -> np.ndarray:
        """Return Rᵀ A."""
        sparse = is_sparse(self.A)
        if R.shape[1] == 1 and (sparse or self.A.size > CACHED):
            return np.asarray((self.transposed @ R[:, 0])[None])
        if R.shape[1] <= FEW and (sparse or self.A.size > CACHED):
            return np.array([self.transposed @ column for column in np.ascontiguousarray(R.T)])
        if sparse:
            return np.asarray((self.transposed @ R).T)
        return R.T.dot(self.A)  # half the time of the product with the transpose


def by_columns(A: Any, models: int) -> bool:
    """Whether the products of A with the coefficients of several models are computed model by model, where that is faster."""
    return models <= FEW_MODELS and (is_sparse(A) or (A.size > TINY and A.shape[1] >= NARROW))
