"""Operations on rows that have been gathered in memory as float64, dense and CSR alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.workers import workers
from dualnewton.validation import frozen, without_repeats

Matrix = Any
"""A NumPy array or a SciPy CSR array, one example per row; both support ``@``, ``.T`` and row indexing."""


COMPARED = 1 << 20
"""Stored entries up to which one thread compares the column indices: the answers take 1 MiB."""

STRIPE = 256
"""Rows of a square matrix that a thread computes at a time. SciPy's objects take 0.3 ms, one thread after the other, and the
products of 1400 sparse rows 7 ms: with 128 rows, 16 threads took 4.3 ms."""

MANY, SHARED = 1 << 10, 16
"""Number of sparse rows above which a kernel multiplies them (their factor is then computed by a kernel as well), and rows that a
thread takes at a time."""

FEATURES = 4096
"""Features whose products are summed in float32; with fewer at a time, the matrix of the sums is read more often."""

NARROWED = 1 << 20
"""Entries of dense rows that a thread copies in float32 at a time."""

SAMPLED, EXAMINED = 1 << 14, 1 << 21
"""Entries of a sample of dense rows, and of rows whose nonzero entries are searched for at a time."""


def gram(rows: Matrix, scale: np.ndarray | None = None) -> np.ndarray:
    """Return rows D(scale) rowsᵀ, dense, for scale > 0; ones by default. Threads share many sparse rows."""
    rows = rows if scale is None else scale_columns(rows, np.sqrt(scale))
    if not sp.issparse(rows) or rows.shape[0] <= STRIPE:
        return to_dense(rows @ rows.T)
    rows, other = sp.csr_array(rows), sp.csr_array(rows.T)
    found = np.empty((rows.shape[0], rows.shape[0]), rows.dtype)
    if len(found) > MANY and rows.dtype == np.float64:
        return _gram_by_kernel(rows, other, found)

    def fill(low: int) -> None:
        (csr_rows(rows, low, min(low + STRIPE, len(found))) @ other).toarray(out=found[low : low + STRIPE])

    workers().each(range(0, len(found), STRIPE), fill)
    return found


def _gram_by_kernel(rows: Matrix, columns: Matrix, found: np.ndarray) -> np.ndarray:
    """Write rows rowsᵀ to ``found``, given rowsᵀ as well: a row of it is summed where it lies."""
    from dualnewton.kernels import few_rows
    from dualnewton.kernels.rows import Rows

    workers().run(
        few_rows.gram,
        -(-len(found) // SHARED),
        *Rows.of(rows),
        *Rows.of(columns),
        np.zeros(1, dtype=np.int64),
        SHARED,
        found,
    )
    return found


def narrow_gram(rows: np.ndarray, scale: np.ndarray | None = None) -> np.ndarray:
    """Return rows D(scale) rowsᵀ for dense rows in half the time: summed in float32 over ``FEATURES`` at a time."""
    found = np.zeros((len(rows), len(rows)))
    for low in range(0, rows.shape[1], FEATURES):
        part = rows[:, low : low + FEATURES].astype(np.float32)
        if scale is not None:
            part *= np.sqrt(scale[low : low + FEATURES]).astype(np.float32)
        found += part @ part.T
    return found


def in_single(X: np.ndarray) -> np.ndarray:
    """Return a copy of dense rows in float32, made by threads, for kernels that visit them many times."""
    copy = np.empty(X.shape, np.float32)
    step = max(1, NARROWED // X.shape[1])

    def narrow(low: int) -> None:
        copy[low : low + step] = X[low : low + step]

    workers().each(range(0, len(X), step), narrow)
    return copy


def with_few_entries(X: Matrix, most: float) -> Matrix:
    """Return dense rows as a CSR array if at most ``most`` of their entries are nonzero; else, and if they are sparse, unchanged.

    Rows at equal distances tell most dense data apart without a pass over all entries.
    """
    if is_sparse(X) or most == 0.0:
        return X
    (n, d), found, columns, ends = X.shape, list[np.ndarray](), list[np.ndarray](), [np.zeros(1, dtype=np.intp)]
    sample = X[:: max(1, n * d // SAMPLED)]
    if np.count_nonzero(sample) * n > 2.0 * most * len(sample):
        return X
    step = max(1, EXAMINED // max(d, 1))
    for part in (X[low : low + step] for low in range(0, n, step)):
        inside = part != 0.0
        ends.append(ends[-1][-1] + np.cumsum(np.count_nonzero(inside, axis=1)))
        if ends[-1][-1] > most:
            return X
        places = np.flatnonzero(inside)
        found.append(part.reshape(-1)[places])
        columns.append((places % d).astype(np.int32 if max(d, most) < np.iinfo(np.int32).max else np.int64))
    indices = np.concatenate(columns)
    return sp.csr_array((np.concatenate(found), indices, np.concatenate(ends).astype(indices.dtype)), shape=(n, d))


def scaled_both(H: np.ndarray, factors: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """D(factors) H D(factors), in ``out``, which may be H, or in a new array; threads share its rows."""
    found = np.empty_like(H) if out is None else out

    def fill(low: int) -> None:
        own = slice(low, low + STRIPE)
        np.multiply(H[own], factors, out=found[own])
        found[own] *= factors[own, None]

    workers().each(range(0, len(H), STRIPE), fill)
    return found


def is_sparse(X: Matrix) -> bool:
    """Whether X is stored sparsely. (SciPy's check of an abstract class takes ten times as long as that of one type.)"""
    return type(X) is not np.ndarray and bool(sp.issparse(X))


def entries(X: Matrix) -> np.ndarray:
    """Return the stored entries as a flat array, without a copy of a CSR array or of one in C order."""
    return X.data if sp.issparse(X) else X.reshape(-1)


def dense_if_full(X: Matrix) -> Matrix:
    """Return CSR rows without repeated entries that store all of their entries as an array, a view of these; others unchanged.

    Readers of sparse formats return dense data in this form. Products with an array take a fraction of the time.
    """
    if not is_sparse(X) or X.nnz < X.shape[0] * X.shape[1]:
        return X
    return X.data[: X.nnz].reshape(X.shape)


def to_dense(rows: Matrix) -> np.ndarray:
    """Return rows as a NumPy array."""
    return rows.toarray() if is_sparse(rows) else rows


def diagonal(values: np.ndarray) -> Any:
    """D(values), sparse. (The oldest supported SciPy has no ``diags_array``.)"""
    return sp.dia_array((np.asarray(values)[None, :], [0]), shape=(len(values), len(values)))


def scale_rows(X: Matrix, factors: np.ndarray) -> Matrix:
    """D(factors) X."""
    if not sp.issparse(X):
        return factors[:, None] * X
    scaled = X.astype(np.float64)
    scaled.data *= np.repeat(factors, np.diff(X.indptr))
    return scaled


def scale_columns(X: Matrix, factors: np.ndarray) -> Matrix:
    """X D(factors)."""
    if not sp.issparse(X):
        return X * factors
    # A product with SciPy's diagonal matrix reads all features, even if the rows have few.
    scaled = X.astype(np.float64)
    scaled.data *= factors[X.indices]
    return scaled


def stacked(parts: Sequence[Matrix], *, dense: bool, axis: int = 0) -> Matrix:
    """Concatenate dense or sparse matrices along the given axis, into a NumPy array or a CSR array."""
    if dense:
        return np.concatenate([to_dense(part) for part in parts], axis=axis)
    return (sp.hstack if axis else sp.vstack)([sp.csr_array(part) for part in parts], format="csr")


def some_rows(X: Matrix, indices: np.ndarray) -> Matrix:
    """Return the rows with these indices. (``take`` is faster than NumPy's indexing.)"""
    return X[indices] if sp.issparse(X) else X.take(indices, axis=0)


def some_columns(X: Matrix, indices: np.ndarray) -> Matrix:
    """Return the columns with these indices, a NumPy array in C order. (That of NumPy's indexing is not.)"""
    return X[:, indices] if sp.issparse(X) else X.take(indices, axis=1)


def cut(X: Matrix, size: int) -> list[Matrix]:
    """Cut rows into pieces of about ``size`` bytes, whose entries are not copied."""
    n, sparse = X.shape[0], sp.issparse(X)
    stored = X.data.nbytes + X.indices.nbytes if sparse else X.nbytes
    step = max(1, n * size // max(1, stored))
    ends = itertools.pairwise([*range(0, n, step), n])
    return [csr_rows(X, low, high) if sparse else X[low:high] for low, high in ends]


def csr_rows(X: Matrix, low: int, high: int) -> Matrix:
    """Return consecutive rows of a CSR array, whose entries are not copied, as by SciPy's slices."""
    first, last = X.indptr[low], X.indptr[high]
    parts = X.data[first:last], X.indices[first:last], X.indptr[low : high + 1] - first
    return sparse_view(sp.csr_array, parts, (high - low, X.shape[1]))


def sparse_view(kind: Any, parts: tuple[np.ndarray, ...], shape: tuple[int, int]) -> Any:
    """Return a sparse matrix of these arrays, which are neither copied nor checked.

    SciPy's constructor takes as long as a product with some thousand entries, and copies arrays that are views of a small part of
    another.
    """
    matrix = object.__new__(kind)
    vars(matrix).update(_attributes(kind), _shape=shape)
    matrix.data, matrix.indices, matrix.indptr = parts
    return matrix


@lru_cache
def _attributes(kind: Any) -> dict[str, Any]:
    """Return the attributes of an empty sparse matrix, of which some depend on the version of SciPy."""
    return vars(kind((1, 1)))


def transposed(X: Matrix) -> Matrix:
    """Return Xᵀ of a dense or CSR array, with the same memory."""
    return sparse_view(sp.csc_array, (X.data, X.indices, X.indptr), X.shape[::-1]) if is_sparse(X) else X.T


def multiplied(X: Matrix) -> Callable[[np.ndarray], np.ndarray]:
    """Return v ↦ Xv for vectors and matrices v.

    SciPy's ``@`` takes a microsecond to find its function for a vector, which is private: ``@`` replaces it where it is missing.
    """
    of_vector = getattr(X, "_matmul_vector", X.__matmul__)
    return lambda v: np.asarray(of_vector(v) if v.ndim == 1 else X @ v)


def sums_of_rows(X: Matrix) -> Callable[[np.ndarray], np.ndarray]:
    """Return v ↦ Xᵀv for CSR rows and vectors v with many zeros: rows whose factor is zero are not read."""
    from dualnewton.kernels.passes import row_sums
    from dualnewton.kernels.rows import Rows

    rows, (n, d) = Rows.of(X), X.shape
    places = np.empty(n + 1, dtype=np.intp)
    row_sums.prepare(*rows, frozen(np.empty(0)), places, np.empty(0))

    def sums(v: np.ndarray) -> np.ndarray:
        row_sums(*rows, frozen(v), places, found := np.zeros(d))
        return found

    return sums


def squared_lengths(starts: np.ndarray) -> float:
    """Return the sum of the squared numbers of stored entries of rows, given where these begin."""
    lengths = np.diff(starts).astype(float)
    return float(lengths.dot(lengths))


def order_by_length(X: Matrix, most: float) -> np.ndarray | None:
    """Return the rows of a CSR array in the order of their numbers of stored entries, rows of one length in their own order.

    Products with rows in this order take less time: the processor predicts where a row ends from the lengths of those before it.
    None if there are more than ``most`` stored entries for each row whose length differs from that of the row before it.
    """
    lengths = np.diff(X.indptr)
    changes = np.count_nonzero(lengths[1:] != lengths[:-1])
    if not changes or X.nnz > most * changes:
        return None
    # NumPy sorts short integers by their digits, in a tenth of the time.
    return np.argsort(lengths.astype(np.uint16) if X.shape[1] <= 0xFFFF else lengths, kind="stable")


def as_float64(X: Matrix) -> Matrix:
    """Return X as float64. (SciPy's ``astype`` also copies the indices and looks for repeated ones.)"""
    if X.dtype == np.float64:
        return X
    if not is_sparse(X):
        return X.astype(np.float64)
    return sparse_view(type(X), (X.data.astype(np.float64), X.indices, X.indptr), X.shape)


def in_order(X: Matrix) -> bool:
    """Whether the column indices of each row of a CSR array increase, so that none is repeated; threads share many rows.

    SciPy's check, whose loop is over rows, takes up to three times as long on short rows in one thread. But it has no temporary
    arrays, and is one call without the interpreter's lock.
    """
    if X.nnz <= COMPARED:
        return _columns_increase(X)
    # A piece for each thread: the combined answer does not depend on their number, and SciPy's objects take 0.1 ms each.
    parts = cut(X, (X.indices.nbytes + X.data.nbytes) // (1 + workers().helpers) + 1)
    return all(workers().each(parts, lambda part: part.has_canonical_format))


def _columns_increase(X: Matrix) -> bool:
    """Do the same by comparing all indices with the next ones."""
    starts = X.indptr
    if not (starts[1:] >= starts[:-1]).all():
        return False
    columns = X.indices[: starts[-1]]
    increase = columns[1:] > columns[:-1]
    first, last = np.searchsorted(starts, np.array([1, columns.size], starts.dtype))
    increase[starts[first:last] - 1] = True  # from the last entry of a row to the first one of another
    return bool(increase.all())


def squared(X: Matrix) -> Matrix:
    """Return the squares of the entries; those of a sparse matrix as float64, with the same arrays of indices."""
    if not is_sparse(X):
        return np.square(X)
    return sparse_view(type(X), (np.square(X.data, dtype=np.float64), X.indices, X.indptr), X.shape)


def nonzeros(X: Matrix) -> np.ndarray:
    """Return the number of nonzero entries of each column."""
    return np.bincount(X.indices, minlength=X.shape[1]) if sp.issparse(X) else np.count_nonzero(X, axis=0)


def without_empty_columns(X: Matrix) -> tuple[Matrix, np.ndarray]:
    """Return a CSR array without the columns that store no entry, sharing its entries, and the indices of the other columns."""
    used = np.zeros(X.shape[1], dtype=np.bool_)
    used[X.indices] = True
    features = np.flatnonzero(used)
    places = np.cumsum(used, dtype=X.indices.dtype) - 1
    return sparse_view(type(X), (X.data, places[X.indices], X.indptr), (X.shape[0], features.size)), features


def squared_norms(X: Matrix, kind: Any = np.float64) -> np.ndarray:
    """‖x_i‖² of each row, of dense rows summed in this type."""
    if sp.issparse(X):
        X = without_repeats(X)
        squares = np.square(X.data, dtype=np.float64)
        # As if all entries were in one column, which takes no vector of ones for many columns.
        return sp.csr_array((squares, np.zeros_like(X.indices), X.indptr), shape=(X.shape[0], 1)) @ np.ones(1)
    return np.einsum("ij,ij->i", X, X, dtype=kind)


def row_scores(X: Matrix, scale: np.ndarray) -> np.ndarray:
    """Σ_j scale_j x_ij² of each row, without a copy of dense rows: the memory of a large one is new to the process, and slow."""
    if is_sparse(X):
        return np.asarray(squared(X) @ scale)
    return np.asarray(np.einsum("ij,ij,j->i", X, X, scale, dtype=np.float64))


def with_constant(X: Matrix, value: float) -> Matrix:
    """Return X with a constant column appended."""
    column = np.full((X.shape[0], 1), value)
    return sp.hstack([X, sp.csr_array(column)], format="csr") if sp.issparse(X) else np.hstack([X, column])
