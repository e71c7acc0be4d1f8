"""Products and linear combinations of several vectors in memory, by kernels in threads if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import compiled_function, inner_products, is_elsewhere
from dualnewton.validation import frozen

LONG = 1 << 16
"""Length from which kernels are used: ten products of two such vectors take about half a millisecond in one thread."""

PART = 1 << 13
"""Numbers of a vector that a thread takes at a time (64 KiB): 100000 have 13 parts."""

SHARE = 1 << 15
"""Numbers of all vectors for each thread (256 KiB, about 0.02 ms)."""


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
    workers().run(vectors.products, _threads(size, len(pairs)), *arguments)
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
    workers().run(vectors.combination, _threads(size, len(rows)), *arguments)
    return total


def difference(u: Any, v: Any) -> Any:
    """Return u − v."""
    return combination(np.array([1.0, -1.0]), (u, v)) if _is_long(u) else u - v


def total(u: Any, v: Any) -> Any:
    """Return u + v."""
    return combination(np.ones(2), (u, v)) if _is_long(u) else u + v


def penalised(gradient: Any, x: Any, ridge: Any, scale: Any) -> tuple[Any, tuple[float, ...]]:
    """Return g = gradient + ridge ∘ x and the sums of ridge_j x_j², g_j² and scale_j g_j²."""
    if (function := compiled_function("penalised_of", None, x)) is not None:
        return function(gradient, x, ridge, scale)
    if not _is_long(x):
        shrinkage = ridge * x
        g = gradient + shrinkage
        return g, inner_products((shrinkage, x), (g, g), (scale * g, g))
    from dualnewton.kernels import vectors

    g, sums = np.empty(x.size), np.empty((-(-x.size // PART), 3))
    given = [frozen(np.ascontiguousarray(each)) for each in (gradient, x, ridge, scale)]
    workers().run(vectors.penalised, _threads(x.size, 5), *given, PART, np.zeros(1, dtype=np.int64), g, sums)
    return g, tuple(sums.sum(axis=0).tolist())


def _is_long(vector: Any) -> bool:
    """Whether kernels are used for a vector: it is long, and in memory."""
    return vector.size >= LONG and not is_elsewhere(vector)


def _threads(size: int, count: int) -> int:
    """Return the number of threads among which ``count`` vectors of this length are shared."""
    return min(-(-size // PART), -(-size * count // SHARE))
