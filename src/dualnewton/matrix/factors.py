"""Cholesky factors of d×d matrices: by LAPACK in memory, by a kernel in threads if large, or on the device of the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import ALGEBRA, Algebra, on_host
from dualnewton.validation import frozen

TILE = 128
"""Rows and columns of a tile of a large factor: a tile takes about 0.1 ms, and 1450 rows have 78 tiles for the threads."""

SOLVED = 2
"""Rows of tiles of a factor for each thread of a solve, which takes less than 0.1 ms for them."""

LARGE = 1 << 10
"""Largest number of rows of a factor that LAPACK computes; larger ones are computed by tiles, in threads."""

BETWEEN = 1 << 32
"""Number of multiplications of a factor between two checks of the deadline: about a tenth of a second of one thread."""

EPS = float(np.finfo(np.float64).eps)
"""Smallest lift of the diagonal of an indefinite matrix, relative to its largest entry."""


def factorised(H: Any, diagonal: np.ndarray, check: Callable[[], None] | None = None, *, lifted: bool = True) -> Any:
    """Return the lower Cholesky factor of H + D(diagonal), or what a device has instead (``Algebra``); H is overwritten.

    If rounding has made the matrix indefinite, the smallest multiple that makes it definite is added to its diagonal; without
    ``lifted``, None is returned. A matrix with entries that are not numbers, after an overflow, becomes the identity: no multiple
    would do.
    """
    if (elsewhere := ALGEBRA.get(type(H))) is not None:
        return _factorised_there(elsewhere, H, diagonal)
    on_diagonal = H.diagonal()  # a view, which takes half the time of einsum's
    on_diagonal.setflags(write=True)
    on_diagonal += diagonal
    lift, kept = 0.0, on_diagonal.copy()
    while True:
        if len(H) <= LARGE:
            # LAPACK is called directly: SciPy's wrappers take longer than a small factor.
            from scipy.linalg.lapack import dpotrf

            factor, failed = dpotrf(H.T, lower=True, clean=False, overwrite_a=True)
        else:
            factor, failed = by_tiles(H, check)
        if not failed:
            return factor
        if not lifted:
            return None
        upper = np.triu_indices(len(H), 1)  # it has been written to
        H[upper] = H.T[upper]
        lift = _next_lift(lift, kept)
        kept += lift
        on_diagonal[...] = kept
        if not lift < np.inf:
            H[...], on_diagonal[...] = 0.0, 1.0


def _next_lift(lift: float, diagonal: np.ndarray) -> float:
    """Return the number that is added to the diagonal of an indefinite matrix, given the one before."""
    return 100.0 * lift or EPS * float(np.abs(diagonal).max()) or 1.0


def _factorised_there(algebra: Algebra, H: Any, diagonal: np.ndarray) -> Any:
    """Do the same as :func:`factorised` on a device, where H is not overwritten."""
    lift, kept = 0.0, diagonal
    while True:
        factor, failed = algebra.cholesky(H, kept)
        if not failed:
            return factor
        lift = _next_lift(lift, on_host(H.diagonal()) + kept)
        kept = kept + lift
        if not lift < np.inf:
            H, kept = np.zeros_like(H), np.ones_like(diagonal)


def solved(factor: Any, g: np.ndarray) -> np.ndarray:
    """Solve with a factor, for a NumPy array g."""
    if (elsewhere := ALGEBRA.get(type(factor))) is not None:
        return np.asarray(elsewhere.solve(factor, g))
    if len(factor) > LARGE and g.ndim == 1:
        return solved_by_tiles(factor, g)
    from scipy.linalg.lapack import dpotrs

    return np.asarray(dpotrs(factor, g, lower=True)[0])


def by_tiles(H: np.ndarray, check: Callable[[], None] | None = None) -> tuple[np.ndarray, int]:
    """Return the lower Cholesky factor of H, and zero if H is positive definite; ``check`` is called between columns of tiles.

    The factor is written to the upper triangle of H, transposed, so that no second matrix is allocated.
    """
    from dualnewton.kernels import factors
    from dualnewton.kernels.blas import blas_address, lapack_address

    size, tiles = len(H), -(-len(H) // TILE)
    rows = np.ascontiguousarray(H, dtype=np.float64)
    *products, factorise = factors.CHOLESKY
    blas = np.array([*map(blas_address, products), lapack_address(factorise)], dtype=np.intp)
    done, state = np.zeros(tiles**2, dtype=np.int64), np.zeros(1, dtype=np.int64)
    columns = max(1, BETWEEN // (size**2 * TILE))
    for first in range(0, tiles, columns):
        last = min(first + columns, tiles)
        arguments = rows, TILE, first, last, np.zeros(1, dtype=np.int64), done, state, blas
        workers().run(factors.cholesky, tiles, *arguments)
        if check is not None:
            check()
        if state[0]:
            break
    return rows.T, int(state[0])


def solved_by_tiles(factor: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Solve with a large factor; threads share the tiles."""
    from dualnewton.kernels import factors
    from dualnewton.kernels.blas import blas_address

    rows, x = np.ascontiguousarray(factor.T), np.array(g, dtype=np.float64)
    tiles, blas = -(-len(rows) // TILE), np.array([*map(blas_address, factors.SOLVE)], dtype=np.intp)
    counter, done, state = (np.zeros(size, dtype=np.int64) for size in (1, 2 * tiles, 1))
    arguments = frozen(rows), TILE, x, counter, done, state, blas
    workers().run(factors.solve, -(-tiles // SOLVED), *arguments)
    return x
