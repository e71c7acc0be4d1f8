"""Weighted Gram products AᵀDA and ADAᵀ, computed in pieces; all code of the library uses these functions for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.linear import Matrix, scale_columns, scale_rows, to_dense

DENSE_PIECE, FEWEST = 1 << 20, 1 << 7
"""Number of entries per piece of a dense matrix, and minimum number of its columns; a piece of 4000 rows takes about 0.2 s."""

PRODUCTS, SPARSE_PRODUCTS = 1 << 30, 1 << 25
"""Number of multiplications, of dense and of sparse rows, between two calls of ``check``: about a tenth of a second."""


FEW_ENTRIES = 1 << 14
"""Entries of dense rows up to which their Gram matrix is one general product."""

MIRRORED = 1 << 6
"""Rows of a block whose triangle is mirrored at a time."""

ABOVE = ~np.tri(MIRRORED, dtype=bool)
"""The entries above the diagonal of such a block."""


def coupled(grams: Iterable[np.ndarray], classes: int) -> np.ndarray:
    """Return Σ_{k<l} (e_k − e_l)(e_k − e_l)ᵀ ⊗ S_kl as an array of shape (K, m, K, m), given S_kl for each pair of K classes."""
    made: np.ndarray | None = None
    for (k, other), S in zip(combinations(range(classes), 2), grams, strict=True):
        made = np.zeros((classes, len(S), classes, len(S))) if made is None else made
        made[k, :, k] += S
        made[other, :, other] += S
        made[k, :, other] = made[other, :, k] = -S
    assert made is not None
    return made


def pair_multiples(classes: int) -> np.ndarray:
    """Return the multiples of the matrices S_kl in the K² blocks of :func:`coupled`, a row for each block: 1, −1 or 0."""
    first, second = np.triu_indices(classes, 1)  # in the order of combinations
    pair, made = np.arange(len(first)), np.zeros((classes, classes, len(first)))
    made[first, first, pair] = made[second, second, pair] = 1.0
    made[first, second, pair] = made[second, first, pair] = -1.0
    return made.reshape(classes**2, -1)


def outer_products(rows: Matrix, weights: np.ndarray, kind: type) -> np.ndarray:
    """Return AᵀD(weights)A; for dense rows as products BᵀB, for which BLAS needs half the multiplications."""
    if sp.issparse(rows):
        return to_dense(rows.T @ scale_rows(rows, weights))
    if (weights == weights[:1]).all():  # needs no scaled copy
        same: np.ndarray = rows.astype(kind, copy=False)
        products, scale = same.T @ same, weights[:1].sum()
        return np.asarray(products if scale == 1.0 else scale * products)
    if (negative := weights < 0.0).any():
        parts = np.flatnonzero(~negative), np.flatnonzero(negative)
        added, subtracted = (outer_products(rows.take(own, axis=0), np.abs(weights[own]), kind) for own in parts)
        return added - subtracted
    scaled = np.multiply(rows, np.sqrt(weights)[:, None], out=np.empty(rows.shape, kind), casting="same_kind")
    return np.asarray(scaled.T @ scaled)


def few_products(rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return AᵀD(weights)A and Aᵀweights of few dense rows, by a general product: calls that save half of it take longer."""
    weighted = rows * weights[:, None]
    return weighted.T @ rows, weighted.sum(axis=0)


def bordered(H: np.ndarray, border: np.ndarray, weights: np.ndarray, *, intercept: bool) -> np.ndarray:
    """Append the row and the column of a constant feature, if there is an intercept."""
    if not intercept:
        return H
    d = len(H)
    whole = np.empty((d + 1, d + 1))  # np.block takes 12 µs, as long as the sums of a small matrix
    whole[:d, :d], whole[d, :d], whole[:d, d], whole[d, d] = H, border, border, weights.sum()
    return whole


def column_pieces(A: Matrix, size: int) -> list[slice]:
    """Return slices of the columns of A for which dense copies of ``size`` rows are small; one slice if A is sparse."""
    if sp.issparse(A):
        return [slice(None)]
    step = max(FEWEST, DENSE_PIECE // max(size, 1))
    return [slice(low, low + step) for low in range(0, A.shape[1], step)]


def add_products(H: np.ndarray, A: Matrix, B: Matrix, check: Callable[[], None]) -> None:
    """H += A Bᵀ, in pieces of the columns of dense matrices and of the rows of sparse ones; H is stored row by row."""
    if sp.issparse(A):
        other, step = sp.csr_array(B.T), max(1, SPARSE_PRODUCTS // max(B.nnz, 1))
        for low in range(0, A.shape[0], step):
            H[low : low + step] += to_dense(A[low : low + step] @ other)
            check()
        return
    from scipy.linalg.blas import dgemm

    step = max(FEWEST, PRODUCTS // max(H.size, 1))
    for low in range(0, A.shape[1], step):
        part = slice(low, low + step)
        # BLAS uses column-major order: this computes Hᵀ += B Aᵀ in place.
        dgemm(1.0, B[:, part].T, A[:, part].T, beta=1.0, c=H.T, trans_a=True, overwrite_c=True)
        check()


def last_products(A: Matrix, first: int, weights: np.ndarray) -> np.ndarray:
    """Return the rows of A D(weights) Aᵀ from ``first`` on; BLAS needs half the multiplications for their symmetric part."""
    more = A[first:]
    if sp.issparse(A):
        return to_dense(scale_columns(more, weights) @ A.T)
    even = bool((weights == weights[:1]).all())  # needs no scaled copy
    own, scale = (more, weights[:1].sum()) if even else (more * np.sqrt(weights), 1.0)
    H = np.empty((len(more), len(A)))
    H[:, :first] = (own if even else more * weights) @ A[:first].T
    H[:, first:] = own @ own.T
    return H if scale == 1.0 else scale * H


def sum_of_grams(pieces: Iterable[Matrix], size: int, check: Callable[[], None]) -> np.ndarray:
    """Σ M Mᵀ over matrices with ``size`` rows."""
    from scipy.linalg.blas import dsyrk

    H = np.zeros((size, size))
    for M in pieces:
        if sp.issparse(M):
            add_products(H, M, M, check)
        else:
            # BLAS uses column-major order: the upper triangle of Hᵀ is the lower one of H.
            dsyrk(1.0, M.T, beta=1.0, c=H.T, trans=True, overwrite_c=True)
        check()
    return mirrored(H)


def mirrored(H: np.ndarray) -> np.ndarray:
    """Copy the lower triangle of H to the upper one, block by block, and return H: ``np.tril`` reads whole rows three times."""
    for low in range(0, len(H), MIRRORED):
        high = min(low + MIRRORED, len(H))
        H[low:high, high:] = H[high:, low:high].T
        square = H[low:high, low:high]
        np.copyto(square, square.T.copy(), where=ABOVE[: high - low, : high - low])
    return H
