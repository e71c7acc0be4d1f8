"""Uniform access to the rows of the data, dense or CSR.

Every kernel receives three arrays (:class:`Rows`) and needs no case distinction: ``data`` is the matrix itself if it has two
dimensions, else the entries of a CSR matrix whose column indices and row starts are the other two. The functions below are
resolved by the type of ``data`` when a kernel is compiled. Sums are accumulated in float64. (The arrays are separate arguments:
reference counting when unpacking a tuple in the innermost loop cost a third of a sweep.)
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from dualnewton.kernels._jit import least, most, overloads, prefetch
from dualnewton.kernels.gradients import call_gradient
from dualnewton.validation import frozen

ENTRIES, INDICES = 8, 16
"""Number of entries (8 bytes) and of indices (4 bytes) per cache line; constants, since a division per row would be slow."""

_UNSIGNED = {np.dtype(np.int32): np.dtype(np.uint32), np.dtype(np.int64): np.dtype(np.uint64)}
"""Unsigned types for column indices: the check for negative indices, which count from the end, took half of a sparse sweep."""


class Rows(NamedTuple):
    """The data as the kernels take it; read-only views, so that writable and read-only input share one compilation."""

    data: np.ndarray
    columns: np.ndarray
    starts: np.ndarray

    @classmethod
    def of(cls, X: Any) -> Rows:
        """Wrap a C-order array or a CSR array without a copy."""
        if sp.issparse(X):
            return cls(frozen(X.data), frozen(X.indices.view(_UNSIGNED[X.indices.dtype])), frozen(X.indptr))
        return cls(frozen(X), frozen(np.empty(0, dtype=np.uint64)), frozen(np.empty(0, dtype=np.int64)))


in_order: Any = partial(overloads, fastmath={"nsz"})
"""Decorator like ``overloads`` for sums whose order is kept; of short rows, several are summed at the same time."""


def _is_dense(data: Any) -> bool:
    return data.ndim == 2


@overloads
def entries(starts, i):
    """Return the range of positions of the stored entries of row i, as unsigned integers."""
    return lambda starts, i: range(np.uintp(starts[i]), np.uintp(starts[i + 1]))


@overloads
def dot(data, columns, starts, i, w):
    """a_iᵀw."""

    def dense(data, columns, starts, i, w):
        total = 0.0
        for j in range(w.size):
            total += data[i, j] * w[j]
        return total

    def sparse(data, columns, starts, i, w):
        total = 0.0
        for p in entries(starts, i):
            total += data[p] * w[columns[p]]
        return total

    return dense if _is_dense(data) else sparse


@in_order
def _sparse_square(data, starts, i):
    """‖a_i‖² of a sparse row, summed in the order of the entries: with the bits of ``Problem.norms``."""

    def square(data, starts, i):
        total = 0.0
        for p in entries(starts, i):
            x = np.float64(data[p])
            total += x * x
        return total

    return square


@overloads
def square(data, columns, starts, i):
    """‖a_i‖²."""

    def dense(data, columns, starts, i):
        total = 0.0
        for j in range(data.shape[1]):
            x = np.float64(data[i, j])
            total += x * x
        return total

    def sparse(data, columns, starts, i):
        return _sparse_square(data, starts, i)

    return dense if _is_dense(data) else sparse


@overloads
def add(data, columns, starts, i, factor, w):
    """w += factor · a_i."""

    def dense(data, columns, starts, i, factor, w):
        for j in range(w.size):
            w[j] += factor * data[i, j]

    def sparse(data, columns, starts, i, factor, w):
        for p in entries(starts, i):
            w[columns[p]] += factor * data[p]

    return dense if _is_dense(data) else sparse


@overloads
def shrink(data, columns, starts, i, w_bar, w, limits):
    """w_j = ∇g*(w̄_j) for a_ij ≠ 0: soft threshold limits[0], factor limits[1], then clip to [limits[2], limits[3]]."""

    def dense(data, columns, starts, i, w_bar, w, limits):
        for j in range(w.size):
            s = w_bar[j]
            s -= least(most(s, -limits[0, j]), limits[0, j])
            w[j] = least(most(limits[1, j] * s, limits[2, j]), limits[3, j])

    def sparse(data, columns, starts, i, w_bar, w, limits):
        for p in entries(starts, i):
            j = columns[p]
            s = w_bar[j]
            s -= least(most(s, -limits[0, j]), limits[0, j])
            w[j] = least(most(limits[1, j] * s, limits[2, j]), limits[3, j])

    return dense if _is_dense(data) else sparse


@overloads
def follow(data, columns, starts, indices, first, last, w_bar, w, limits, gradient):
    """Update w = ∇g*(w̄) after w̄ has changed by multiples of the rows indices[first:last].

    A separable ∇g* is given by ``limits`` and applied to the changed features only; any other is the function at the address
    ``gradient``. If both are empty, w and w̄ are the same array and nothing is done.
    """

    def dense(data, columns, starts, indices, first, last, w_bar, w, limits, gradient):
        if limits.shape[1] > 0:
            shrink(data, columns, starts, 0, w_bar, w, limits)  # every row has all features
        elif gradient.size > 0:
            call_gradient(gradient, w_bar, w)

    def sparse(data, columns, starts, indices, first, last, w_bar, w, limits, gradient):
        if limits.shape[1] > 0:
            for p in range(first, last):
                shrink(data, columns, starts, indices[p], w_bar, w, limits)
        elif gradient.size > 0:
            call_gradient(gradient, w_bar, w)

    return dense if _is_dense(data) else sparse


@overloads
def fetch(data, columns, starts, i):
    """Prefetch the entries of row i."""

    def dense(data, columns, starts, i):
        # The hardware prefetcher continues long rows by itself.
        for j in range(0, least(data.shape[1], 512), ENTRIES):
            prefetch(data, i * data.shape[1] + j)

    def sparse(data, columns, starts, i):
        first, last = starts[i], starts[i + 1]
        p = first
        while p < last:
            prefetch(data, p)
            p += ENTRIES
        p = first
        while p < last:
            prefetch(columns, p)
            p += INDICES

    return dense if _is_dense(data) else sparse


@overloads
def fetch_place(data, columns, starts, i):
    """Prefetch the row start of row i."""

    def dense(data, columns, starts, i):
        pass

    def sparse(data, columns, starts, i):
        prefetch(starts, i)

    return dense if _is_dense(data) else sparse


@overloads
def spread(data, columns, starts, i, factor, dense):
    """Write factor · a_i into a dense vector, at the nonzero entries of a_i only."""

    def from_dense(data, columns, starts, i, factor, dense):
        for j in range(dense.size):
            dense[j] = factor * data[i, j]

    def from_sparse(data, columns, starts, i, factor, dense):
        for p in entries(starts, i):
            dense[columns[p]] = factor * data[p]

    return from_dense if _is_dense(data) else from_sparse
