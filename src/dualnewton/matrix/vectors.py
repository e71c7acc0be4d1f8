"""Products and linear combinations of several vectors in memory, by kernels in threads if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from dualnewton.matrix.workers import workers

LONG = 1 << 16
"""Length from which kernels are used: ten products of two such vectors take about half a millisecond in one thread."""

PART = 1 << 13
"""Numbers of a vector that a thread takes at a time (64 KiB): 100000 have 13 parts."""

SHARE = 1 << 18
"""Numbers of all vectors for each thread (2 MiB, about 0.1 ms): to start another thread takes 0.03 ms."""


def products(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the product of the two vectors of each pair; all have the same length, and the type float64."""
    size = pairs[0][0].size
    if size < LONG:
        # By ``dot``, since ``@`` on vectors keeps the interpreter's lock.
        return np.array([u.dot(v) for u, v in pairs])
    from dualnewton.kernels import vectors

    given = [tuple(map(np.ascontiguousarray, pair)) for pair in pairs]
    places = np.array([[u.ctypes.data, v.ctypes.data] for u, v in given], dtype=np.intp)
    sums = np.empty((-(-size // PART), len(pairs)))
    arguments = places, size, PART, np.zeros(1, dtype=np.int64), sums
    vectors.products.prepare(*arguments)
    workers().share(partial(vectors.products, *arguments), _threads(size, len(pairs)))
    return sums.sum(axis=0)


def combination(factors: np.ndarray, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return the sum of vectors, each times its factor."""
    size = rows[0].size
    if size < LONG:
        from scipy.linalg.blas import daxpy

        total = np.zeros(size)
        for factor, row in zip(factors.tolist(), rows, strict=True):
            # In place, in a quarter of the time of NumPy, which writes each product first.
            total = daxpy(row, total, a=factor)
        return total
    from dualnewton.kernels import vectors

    given, total = list(map(np.ascontiguousarray, rows)), np.empty(size)
    places = np.array([row.ctypes.data for row in given], dtype=np.intp)
    arguments = np.ascontiguousarray(factors), places, PART, np.zeros(1, dtype=np.int64), total
    vectors.combination.prepare(*arguments)
    workers().share(partial(vectors.combination, *arguments), _threads(size, len(rows)))
    return total


def _threads(size: int, count: int) -> int:
    """Return the number of threads among which ``count`` vectors of this length are shared."""
    return min(-(-size // PART), -(-size * count // SHARE))
