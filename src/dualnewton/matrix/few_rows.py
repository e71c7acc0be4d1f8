"""Products with a few rows of many features, for Woodbury's formula: in memory, sparse ones by kernels that threads share."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix import linear
from dualnewton.matrix.vectors import LONG
from dualnewton.matrix.workers import workers
from dualnewton.validation import frozen

ROWS, FEATURES = 64, 1 << 12
"""Rows, and features, that a thread takes at a time: 64 rows of 40 entries take about 5 µs."""


class SharedRows:
    """A D⁻¹ for sparse rows A in memory, with its entries by rows and by features: threads share the rows and the features."""

    def __init__(self, rows: Any, diagonal: np.ndarray) -> None:
        from dualnewton.kernels.rows import Rows

        self.inverse = frozen(1.0 / diagonal)
        scaled = linear.scale_columns(rows, self.inverse)
        (self.n, self.d), self.rows = scaled.shape, Rows.of(scaled)
        by_features = linear.transposed(scaled).tocsr()
        places = by_features.indices, np.sort(scaled.indices)
        self.values, self.places = frozen(by_features.data), frozen(np.array(places, dtype=np.uint32))
        self.ends = by_features.indptr[np.minimum(np.arange(-(-self.d // FEATURES) + 1) * FEATURES, self.d)].astype(
            np.intp
        )

    def inside(self, roots: np.ndarray, g: np.ndarray) -> np.ndarray:
        """D(roots) A D⁻¹ g."""
        from dualnewton.kernels import few_rows

        found = np.empty(self.n)
        arguments = *self.rows, np.zeros(1, dtype=np.int64), ROWS, *map(_given, (roots, g)), found
        workers().run(few_rows.inside, -(-self.n // ROWS), *arguments)
        return found

    def outside(self, u: np.ndarray, g: np.ndarray) -> np.ndarray:
        """D⁻¹ (g − Aᵀu)."""
        from dualnewton.kernels import few_rows

        found, shared = np.empty(self.d), (FEATURES, self.ends, *map(_given, (u, g)), self.inverse)
        arguments = self.values, self.places, np.zeros(1, dtype=np.int64), *shared, found
        workers().run(few_rows.outside, len(self.ends) - 1, *arguments)
        return found


def _given(values: np.ndarray) -> np.ndarray:
    """Return a read-only view, for which alone the kernels are compiled."""
    return frozen(np.ascontiguousarray(values))


def as_factor(rows: Any, diagonal: np.ndarray) -> Any:
    """Return rows in memory in the form in which they are multiplied repeatedly."""
    return SharedRows(rows, diagonal) if linear.is_sparse(rows) and rows.shape[1] >= LONG else rows


def inside(rows: Any, roots: np.ndarray, g: Any, diagonal: Any) -> Any:
    """D(roots) A D(diagonal)⁻¹ g for rows A of any kind."""
    return rows.inside(roots, g) if type(rows) is SharedRows else roots * (rows @ (g / diagonal))


def outside(rows: Any, u: np.ndarray, g: Any, diagonal: Any) -> Any:
    """D(diagonal)⁻¹ (g − Aᵀu) for rows A of any kind."""
    return rows.outside(u, g) if type(rows) is SharedRows else (g - rows.T @ u) / diagonal
