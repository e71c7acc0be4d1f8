"""Kernels for passes over rows that NumPy and SciPy would first convert or copy: float32 data, and sparse Gram matrices.

    products(*rows, first, last, W, Z)               Z[i, k] = a_iᵀw_k
    gather(*rows, first, last, R, G)                 g_k += Σ R[i, k] a_i
    curvature(*rows, indices, weights, H, border)    H += Σ weight a aᵀ below the diagonal, border += Σ weight a
    diagonal(*rows, weights, out)                    out_j += Σ weight a_j²
    row_scores(*rows, scale, out)                    out_i = Σ_j scale_j a_ij²

``first`` and ``last`` delimit a range of rows. Sums are accumulated in float64 for every storage type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import jit, overloads
from dualnewton.kernels.models import Kernel


@jit
def _products(data, columns, starts, first, last, W, Z):
    for i in range(first, last):
        for k in range(W.shape[0]):
            Z[i - first, k] = row.dot(data, columns, starts, i, W[k])


@jit
def _gather(data, columns, starts, first, last, R, G):
    for i in range(first, last):
        for k in range(G.shape[0]):
            if R[i - first, k] != 0.0:
                row.add(data, columns, starts, i, R[i - first, k], G[k])


def _add_outer(data: Any, columns: Any, starts: Any, i: int, weight: float, H: Any, border: Any) -> None:
    """H += weight a_i a_iᵀ, at or below the diagonal; border += weight a_i."""
    raise NotImplementedError("for compiled code")


@overloads(_add_outer)
def _add_outer_of(data, columns, starts, i, weight, H, border):
    def dense(data, columns, starts, i, weight, H, border):
        for j in range(data.shape[1]):
            scaled = weight * data[i, j]
            border[j] += scaled
            if scaled != 0.0:
                for k in range(j + 1):
                    H[j, k] += scaled * data[i, k]

    def sparse(data, columns, starts, i, weight, H, border):
        # Updating two rows of H at a time halves the reads of the entries. It relies on sorted column indices.
        one, first, last = np.uintp(1), np.uintp(starts[i]), np.uintp(starts[i + 1])
        p = first
        while p + one < last:
            j, k = columns[p], columns[p + one]
            to_j, to_k = weight * data[p], weight * data[p + one]
            border[j] += to_j
            border[k] += to_k
            H_j, H_k = H[j], H[k]
            for q in range(first, p + one):
                H_j[columns[q]] += to_j * data[q]
                H_k[columns[q]] += to_k * data[q]
            H_k[k] += to_k * data[p + one]
            p += one + one
        if p < last:
            j, to_j = columns[p], weight * data[p]
            border[j] += to_j
            H_j = H[j]
            for q in range(first, last):
                H_j[columns[q]] += to_j * data[q]

    return dense if data.ndim == 2 else sparse


@jit
def _curvature(data, columns, starts, indices, weights, H, border):
    for s in range(indices.size):
        _add_outer(data, columns, starts, indices[s], weights[s], H, border)


def _add_squares(data: Any, columns: Any, starts: Any, i: int, weight: float, out: Any) -> None:
    """out_j += weight a_ij²."""
    raise NotImplementedError("for compiled code")


@overloads(_add_squares)
def _add_squares_of(data, columns, starts, i, weight, out):
    def dense(data, columns, starts, i, weight, out):
        for j in range(out.size):
            out[j] += weight * data[i, j] * data[i, j]

    def sparse(data, columns, starts, i, weight, out):
        for p in row.entries(starts, i):
            out[columns[p]] += weight * data[p] * data[p]

    return dense if data.ndim == 2 else sparse


@jit
def _diagonal(data, columns, starts, weights, out):
    for i in range(weights.size):
        if weights[i] != 0.0:
            _add_squares(data, columns, starts, i, weights[i], out)


def _scaled_square(data: Any, columns: Any, starts: Any, i: int, scale: Any) -> float:
    """Σ_j scale_j a_ij²."""
    raise NotImplementedError("for compiled code")


@overloads(_scaled_square)
def _scaled_square_of(data, columns, starts, i, scale):
    def dense(data, columns, starts, i, scale):
        total = 0.0
        for j in range(scale.size):
            total += scale[j] * data[i, j] * data[i, j]
        return total

    def sparse(data, columns, starts, i, scale):
        total = 0.0
        for p in row.entries(starts, i):
            total += scale[columns[p]] * data[p] * data[p]
        return total

    return dense if data.ndim == 2 else sparse


@jit
def _row_scores(data, columns, starts, scale, out):
    for i in range(out.size):
        out[i] = _scaled_square(data, columns, starts, i, scale)


products, gather = Kernel(_products), Kernel(_gather)
curvature, diagonal, row_scores = Kernel(_curvature), Kernel(_diagonal), Kernel(_row_scores)
