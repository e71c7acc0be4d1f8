"""A pass over the rows in a longer number type than float64, which kernels and BLAS do not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix.protocol import Data

ENTRIES = 1 << 18
"""Number of entries of X that are converted at a time (4 MiB)."""


def extended_pass(data: Data, w: np.ndarray, mass: np.ndarray, take: Callable[[slice, np.ndarray], Any]) -> np.ndarray:
    """Give the margins Xw of each block of rows to ``take``; return Xᵀ mass, of shape (d, K), in the number type of w.

    For w of shape (d,), ``mass`` has the shape (n,) and the margins of m rows (m,); for (K, d) these are (n, K) and (m, K).
    """
    columns = len(w) if w.ndim > 1 else 1
    along, step = np.zeros((data.d, columns), dtype=w.dtype), max(1, ENTRIES * data.n // max(data.profile.stored, 1))
    for start in range(0, data.n, step):
        rows = slice(start, min(start + step, data.n))
        X: Any = data.rows(rows).astype(w.dtype)
        take(rows, X @ w.T)
        along += X.T @ mass[rows].reshape(-1, columns)
    return along
