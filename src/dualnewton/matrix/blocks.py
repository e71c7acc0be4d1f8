"""Blocks of consecutive rows in memory, and the two products that a pass computes with each block."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse as sp

FEW, FEW_MODELS = 3, 8
"""Largest numbers of columns for which RᵀA, and of models for which AWᵀ, are computed column by column: BLAS is slower with so
few columns."""


class LibraryBlock:
    """A block A of consecutive rows of the data, whose products are computed by BLAS, or by SciPy on a view of the rows."""

    def __init__(self, X: Any, rows: slice) -> None:
        self.rows = rows
        if sp.issparse(X):
            start, stop = X.indptr[rows.start], X.indptr[rows.stop]
            parts = X.data[start:stop], X.indices[start:stop], X.indptr[rows.start : rows.stop + 1] - start
            shape = rows.stop - rows.start, X.shape[1]
            self.A: Any = sparse_view(sp.csr_array, parts, shape)
            self.transposed: Any = sparse_view(sp.csc_array, parts, shape[::-1])
        else:
            self.A = X[rows]
            self.transposed = self.A.T

    def read(self, room: list[np.ndarray]) -> LibraryBlock:
        """Return a block whose two products do not convert the entries again; ``room`` holds a buffer for reuse."""
        if self.A.dtype == np.float64:
            return self
        wide: Any = copy.copy(self)
        if sp.issparse(self.A):
            values = self.A.data.astype(np.float64)
            wide.A = sparse_view(sp.csr_array, (values, self.A.indices, self.A.indptr), self.A.shape)
            wide.transposed = sparse_view(sp.csc_array, (values, self.A.indices, self.A.indptr), self.A.shape[::-1])
            return wide
        if not room or len(room[0]) < len(self.A):
            room[:] = [np.empty(self.A.shape)]
        wide.A = room[0][: len(self.A)]
        wide.A[:] = self.A
        wide.transposed = wide.A.T
        return wide

    def products(self, W: np.ndarray, out: np.ndarray) -> None:
        """Out = A Wᵀ."""
        if not W.any():  # most runs start at zero
            out[:] = 0.0
        elif len(W) == 1 or (len(W) <= FEW_MODELS and not sp.issparse(self.A)):
            for k, w in enumerate(W):
                out[:, k] = self.A @ w
        else:
            out[:] = self.A @ W.T

    def gather(self, R: np.ndarray, out: np.ndarray) -> None:
        """Out += Rᵀ A."""
        if len(out) <= FEW:
            for k, column in enumerate(np.ascontiguousarray(R.T)):
                out[k] += self.transposed @ column
        elif sp.issparse(self.A):
            out += (self.transposed @ R).T
        else:  # half the time of the product with the transpose
            out += R.T @ self.A


def sparse_view(kind: Any, parts: tuple[np.ndarray, ...], shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of these arrays; SciPy's constructor would copy arrays that are views of a small part of another."""
    matrix = kind(shape, dtype=parts[0].dtype)
    matrix.data, matrix.indices, matrix.indptr = parts
    return matrix
