"""The few products the library asks of the data, for dense and CSR rows alike, always summed in float64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.validation import without_repeats

Matrix = Any
"""A NumPy array or a SciPy CSR array, one example per row; both know ``@``, ``.T`` and row indexing."""

_CHUNK = 1 << 20
"""Entries of the data that are widened to float64 at a time: the judge must not need a second copy of the data."""


def times(X: Matrix, w: np.ndarray) -> np.ndarray:
    """X w."""
    if not w.any():  # where every run begins
        return np.zeros((X.shape[0], *w.shape[1:]))
    if X.dtype == np.float64:
        return X @ w
    return np.concatenate([rows @ w for _, rows in _widened(X)])


def transposed_times(X: Matrix, a: np.ndarray) -> np.ndarray:
    """Xᵀ a."""
    if not a.any():
        return np.zeros((X.shape[1], *a.shape[1:]))
    if X.dtype == np.float64:
        return X.T @ a
    return sum((rows.T @ a[part] for part, rows in _widened(X)), start=np.zeros((X.shape[1], *a.shape[1:])))


def take_rows(X: Matrix, indices: np.ndarray | slice) -> Matrix:
    """Return the given rows as float64, in the storage they have."""
    # NumPy gathers rows by take() several times as fast as by an index.
    rows = X[indices] if sp.issparse(X) or isinstance(indices, slice) else X.take(indices, axis=0)
    return rows.astype(np.float64, copy=False)


def gram(rows: Matrix) -> np.ndarray:
    """Return rows rowsᵀ, dense."""
    return to_dense(rows @ rows.T)


def is_sparse(X: Matrix) -> bool:
    """Whether X is stored sparsely."""
    return bool(sp.issparse(X))


def to_dense(rows: Matrix) -> np.ndarray:
    """Return rows as a NumPy array."""
    return rows.toarray() if sp.issparse(rows) else rows


def scale_rows(X: Matrix, factors: np.ndarray) -> Matrix:
    """D(factors) X."""
    return sp.csr_array(sp.diags_array(factors) @ X) if sp.issparse(X) else factors[:, None] * X


def scale_columns(X: Matrix, factors: np.ndarray) -> Matrix:
    """X D(factors)."""
    return sp.csr_array(X @ sp.diags_array(factors)) if sp.issparse(X) else X * factors


def stacked(parts: Sequence[Matrix], *, dense: bool, axis: int = 0) -> Matrix:
    """Join matrices of any storage below one another, or (axis 1) side by side, as a NumPy array or as a CSR array."""
    if dense:
        return np.concatenate([to_dense(part) for part in parts], axis=axis)
    return (sp.hstack if axis else sp.vstack)([sp.csr_array(part) for part in parts], format="csr")


def squared(X: Matrix) -> Matrix:
    """Return the squares of the entries."""
    return X.power(2) if sp.issparse(X) else np.square(X)


def nonzeros(X: Matrix) -> np.ndarray:
    """Return the number of nonzero entries of each column."""
    return np.bincount(X.indices, minlength=X.shape[1]) if sp.issparse(X) else np.count_nonzero(X, axis=0)


def squared_norms(X: Matrix) -> np.ndarray:
    """‖x_i‖² of each row."""
    if sp.issparse(X):
        X = without_repeats(X)
        squares = np.square(X.data, dtype=np.float64)
        return sp.csr_array((squares, X.indices, X.indptr), shape=X.shape) @ np.ones(X.shape[1])
    return np.concatenate([np.einsum("ij,ij->i", rows, rows) for _, rows in _widened(X)])


def with_constant(X: Matrix, value: float) -> Matrix:
    """Return X with a constant column appended."""
    column = np.full((X.shape[0], 1), value)
    return sp.hstack([X, sp.csr_array(column)], format="csr") if sp.issparse(X) else np.hstack([X, column])


def _widened(X: Matrix) -> Iterator[tuple[slice, Matrix]]:
    """Yield chunks of rows as float64; the next takes the place of the last, for fresh memory costs more than the products."""
    stored = X.nnz if sp.issparse(X) else X.size
    step = max(1, _CHUNK * X.shape[0] // max(1, stored))
    room = None if sp.issparse(X) or X.dtype == np.float64 else np.empty((min(step, X.shape[0]), X.shape[1]))
    for start in range(0, X.shape[0], step):
        part = slice(start, start + step)
        if room is None:
            yield part, X[part].astype(np.float64, copy=False)
        else:
            wide = room[: X[part].shape[0]]
            wide[:] = X[part]
            yield part, wide
