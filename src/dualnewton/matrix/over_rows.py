"""Functions of a loss over vectors with an entry per row, which read no data: compiled, in threads that share the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dualnewton.losses.base import LabelForm
from dualnewton.matrix.protocol import RowVectors
from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import SUMMED
from dualnewton.validation import frozen

PART_ROWS = 1 << 11
"""Rows that a thread takes at a time. What a function writes for nobody (48 KiB) then stays in the first cache, and is below the
128 KiB from which the allocator maps new memory, for which 16 threads would wait for each other."""

ONES, ZEROS = frozen(np.ones(PART_ROWS)), frozen(np.zeros(PART_ROWS))
"""Stand for weights and offsets that are absent."""


def row_parts(n: int) -> np.ndarray:
    """Return the first rows of the parts of n rows, followed by n: parts of about equal sizes, none of which is short."""
    return np.linspace(0, n, max(1, -(-n // PART_ROWS)) + 1).astype(np.intp)


def sum_over_rows(
    function: Any,
    loss: Any,
    z: np.ndarray,
    rows: RowVectors,
    *,
    slopes: np.ndarray | None = None,
    kept: np.ndarray | None = None,
    factors: np.ndarray | None = None,
    sign: float = 1.0,
) -> float:
    """Run a ``RowFunction`` of a loss on vectors of all rows, in threads; return the sum of its values.

    Margins z of several columns have the shape (n, K); slopes and factors, which are written, have a row for each column.
    """
    from dualnewton.kernels.row_vectors import over_rows

    ends, K = row_parts(len(z)), loss.columns
    margins, given = np.ascontiguousarray(z.T, dtype=np.float64), own_vectors(loss, rows)
    zeros = ZEROS if K == 1 else np.zeros(PART_ROWS * K)
    read = [(margins.ctypes.data, margins.itemsize), *map(place_of, given, (None, ONES, zeros))]
    written = [(0, 0) if each is None else (each.ctypes.data, each.itemsize) for each in (slopes, kept, factors)]
    vectors, values = np.array(read + written, dtype=np.intp), np.zeros(len(ends) - 1)
    fields = function.p, function.q
    arguments = ends, np.zeros(1, dtype=np.int64), function.address, fields, K, vectors, float(sign), values
    workers().run(over_rows, len(values), *arguments)
    return float(values.sum())


def dual_sums(function: Any, loss: Any, alpha: np.ndarray, rows: RowVectors) -> tuple[float, ...]:
    """Return the sums over all rows of c φ*(−α; y), by the ``RowFunction`` of conjugates, and of cαo, (cα)², cα², cα and c|α|.

    The function may be None; the first sum is then zero. The others do not depend on it, in any bit.
    """
    from dualnewton.kernels.row_vectors import dual_terms

    z, given = np.ascontiguousarray(alpha, dtype=np.float64), own_vectors(loss, rows)
    vectors = np.array([place_of(z), *map(place_of, given, (None, ONES, ZEROS))], dtype=np.intp)
    address, *fields = (0, 0.0, 0.0) if function is None else (function.address, function.p, function.q)
    sums = np.empty((-(-z.size // PART_ROWS), 6))
    arguments = z.size, PART_ROWS, SUMMED, np.zeros(1, dtype=np.int64), address, tuple(fields), vectors, sums
    workers().run(dual_terms, len(sums), *arguments)
    return tuple(sums.sum(axis=0).tolist())


def own_vectors(loss: Any, rows: RowVectors) -> list[np.ndarray | None]:
    """Return labels, weights and offsets in the layout of row functions: numbers of 8 bytes, those of a row adjacent."""
    kind = np.int64 if loss.label_form is LabelForm.CLASS else np.float64
    return [np.ascontiguousarray(rows.y, dtype=kind), _contiguous(rows.c), _contiguous(rows.o)]


def place_of(values: np.ndarray | None, absent: np.ndarray | None = None) -> tuple[int, int]:
    """Return the address of an array and the bytes between its rows; those of a constant block if it is absent."""
    if values is not None:
        return values.ctypes.data, values.itemsize * math.prod(values.shape[1:])
    assert absent is not None
    return absent.ctypes.data, 0


def _contiguous(values: np.ndarray | None) -> np.ndarray | None:
    return None if values is None else np.ascontiguousarray(values, dtype=np.float64)
