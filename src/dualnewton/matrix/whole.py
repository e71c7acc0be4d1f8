"""Products with a whole matrix in memory, dense or CSR, summed in float64: for ``memory``, and for the theory, whose functions
take matrices from users. All other code uses the data protocol.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.blocks import by_columns
from dualnewton.matrix.linear import Matrix, as_float64, csr_rows, is_sparse, transposed
from dualnewton.matrix.workers import workers

CHUNK = 1 << 20
"""Number of entries that are converted to float64 at a time (8 MiB), so that a product needs no second copy of the data."""

GATHERED = 1 << 18
"""Number of entries that a thread gathers at a time (2 MiB)."""

FEW = 4
"""Largest number of columns for which Xᵀ A is computed column by column: BLAS is slower then. Above it the product (Aᵀ X)ᵀ takes
half the time of Xᵀ A, since its long side is contiguous."""


def times(X: Matrix, w: np.ndarray) -> np.ndarray:
    """X w."""
    if not np.count_nonzero(w):  # most runs start at w = 0; w.any() takes longer
        return np.zeros((X.shape[0], *w.shape[1:]))
    if X.dtype == np.float64:
        if w.ndim == 2 and by_columns(X, w.shape[1]):
            return np.stack([X @ column for column in np.ascontiguousarray(w.T)], axis=1)
        return X @ w
    return np.concatenate([rows @ w for _, rows in widened(X)])


def transposed_times(X: Matrix, a: np.ndarray) -> np.ndarray:
    """Xᵀ a."""
    if not a.any():
        return np.zeros((X.shape[1], *a.shape[1:]))
    if X.dtype == np.float64:
        if is_sparse(X):
            return transposed(X) @ a
        if a.ndim == 1:
            return X.T @ a
        rows = np.ascontiguousarray(a.T)
        return (np.array([row @ X for row in rows]) if len(rows) <= FEW else rows @ X).T
    return sum((transposed(rows) @ a[part] for part, rows in widened(X)), start=np.zeros((X.shape[1], *a.shape[1:])))


def take_rows(X: Matrix, indices: np.ndarray | slice) -> Matrix:
    """Return the given rows as float64, sparse or dense as they are stored."""
    everything = isinstance(indices, slice) and indices == slice(None)  # of which SciPy's slice would be a copy
    rows = X if everything else X[indices] if isinstance(indices, slice) or is_sparse(X) else _gathered(X, indices)
    return rows if rows.dtype == np.float64 else as_float64(rows)


def _gathered(X: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """Return dense rows, in threads if they are many; NumPy gathers several times faster by take() than by indexing."""
    step = max(1, GATHERED // X.shape[1])
    if len(indices) <= step:
        return X.take(indices, axis=0)
    found = np.empty((len(indices), X.shape[1]), X.dtype)

    def gather(low: int) -> None:
        # Modes other than "raise" write directly to the array.
        np.take(X, indices[low : low + step], axis=0, out=found[low : low + step], mode="wrap")

    workers().each(range(0, len(indices), step), gather)
    return found


def widened(X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield chunks of rows as float64, all in the same buffer: allocating new memory would cost more than the products."""
    stored = X.nnz if sp.issparse(X) else X.size
    step = max(1, CHUNK * X.shape[0] // max(1, stored))
    buffer = None if sp.issparse(X) or X.dtype == np.float64 else np.empty((min(step, X.shape[0]), X.shape[1]))
    for start in range(0, X.shape[0], step):
        part = slice(start, start + step)
        if buffer is None:
            yield part, as_float64(csr_rows(X, start, min(start + step, X.shape[0])) if sp.issparse(X) else X[part])
        else:
            wide = buffer[: X[part].shape[0]]
            wide[:] = X[part]
            yield part, wide
