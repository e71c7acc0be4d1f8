"""Products and linear combinations of several vectors in memory, by kernels in threads if they are long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import compiled_function, inner_products, is_elsewhere
from dualnewton.validation import frozen

Vectors = Sequence[np.ndarray]

LONG = 1 << 16
"""Length from which kernels are used: ten products of two such vectors take about half a millisecond in one thread."""

PART = 1 << 13
"""Numbers of a vector that a thread takes at a time (64 KiB): 100000 have 13 parts."""

SMALL_PART = 1 << 11
"""The same where each part is multiplied by several vectors (16 KiB): three parts fit into a core's first cache, and threads
share them more evenly."""

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
    places = np.array([[_place(u), _place(v)] for u, v in given], dtype=np.intp)
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

    (_alive, places), total = _places(rows), np.empty(size)
    arguments = np.ascontiguousarray(factors), places, SMALL_PART, np.zeros(1, dtype=np.int64), total
    workers().run(vectors.combination, _threads(size, len(rows)), *arguments)
    return total


def combination_along(factors: np.ndarray, rows: Sequence[np.ndarray], along: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the sum of vectors in memory, each times its factor, and its product with the vector ``along``."""
    size = along.size
    if size < LONG:
        total = combination(factors, rows)
        return total, float(along.dot(total))
    from dualnewton.kernels import vectors

    (_alive, places), total, sums = _places(rows), np.empty(size), np.empty(-(-size // SMALL_PART))
    given = np.ascontiguousarray(factors), places, frozen(np.ascontiguousarray(along)), SMALL_PART
    workers().run(
        vectors.combination_along, _threads(size, len(rows)), *given, np.zeros(1, dtype=np.int64), total, sums
    )
    return total, float(sums.sum())


def pair(
    now: Vectors, before: Vectors, rows: Vectors, along: np.ndarray
) -> tuple[Vectors, np.ndarray, np.ndarray, np.ndarray]:
    """Return the differences (s, z, y) of three vectors at two points, and products of the rows, s and z: with y, and with the
    vector ``along``; and the squares of s and y. Each part of a vector is read while a cache has it.
    """
    size, count = along.size, len(rows) + 2
    if size < LONG:
        s, z, y = (u - v for u, v in zip(now, before, strict=True))
        every = (*rows, s, z)
        of_y, of_along = (np.array([row.dot(vector) for row in every]) for vector in (y, along))
        return (s, z, y), of_y, of_along, np.array([s.dot(s), y.dot(y)])
    from dualnewton.kernels import vectors

    places = [_places(each) for each in (now, before, rows)]
    out, sums = np.empty((3, size)), np.empty((-(-size // SMALL_PART), 2 * count + 2))
    given = *(each for _, each in places[:2]), frozen(np.ascontiguousarray(along)), places[2][1], SMALL_PART
    workers().run(vectors.pair, _threads(size, count + 8), *given, np.zeros(1, dtype=np.int64), out, sums)
    found = sums.sum(axis=0)
    return tuple(out), found[: 2 * count : 2], found[1 : 2 * count : 2], found[2 * count :]


def difference(u: Any, v: Any) -> Any:
    """Return u − v."""
    return combination(np.array([1.0, -1.0]), (u, v)) if _is_long(u) else u - v


def total(u: Any, v: Any) -> Any:
    """Return u + v."""
    return combination(np.ones(2), (u, v)) if _is_long(u) else u + v


def less_multiple(u: Any, factor: float, v: Any) -> Any:
    """Return u − factor v."""
    return combination(np.array([1.0, -factor]), (u, v)) if _is_long(u) else u - factor * v


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


def _places(rows: Sequence[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    """Return vectors as contiguous arrays, which must stay alive, and their addresses."""
    given = list(map(np.ascontiguousarray, rows))
    return given, np.array(list(map(_place, given)), dtype=np.intp)


def _place(array: np.ndarray) -> int:
    """Return the address of an array; ``array.ctypes`` takes several times as long."""
    return int(array.__array_interface__["data"][0])


def _is_long(vector: Any) -> bool:
    """Whether kernels are used: for a long vector in memory."""
    return vector.ndim == 1 and vector.size >= LONG and not is_elsewhere(vector)


def _threads(size: int, count: int) -> int:
    """Return the number of threads among which ``count`` vectors of this length are shared."""
    return min(-(-size // PART), -(-size * count // SHARE))
