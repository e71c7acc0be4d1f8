"""Cholesky factors of d×d matrices: by LAPACK in memory, or on the device that has the Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import ALGEBRA

BLOCK, STRIPE = 256, 256
"""Columns of a Cholesky factor between two checks of the deadline (less than a tenth of a second for 4000 features), and rows
below them that a thread computes at a time."""

LARGE = 1 << 10
"""Largest number of rows of a factor that LAPACK computes without a check, in 0.7 times the time of blocks."""

EPS = float(np.finfo(np.float64).eps)
"""Smallest lift of the diagonal of an indefinite matrix, relative to its largest entry."""


def factorised(H: Any, diagonal: np.ndarray, check: Callable[[], None] | None = None) -> Any:
    """Return the lower Cholesky factor of H + D(diagonal); H is changed in place.

    If rounding has made the matrix indefinite, the smallest multiple that makes it definite is added to its diagonal. A matrix
    with entries that are not numbers, after an overflow, becomes the identity: no multiple would do.
    """
    elsewhere = ALGEBRA.get(type(H))
    if elsewhere is None:
        on_diagonal = np.einsum("ii->i", H)  # a view
    else:
        on_diagonal, diagonal = H.reshape(-1)[:: len(H) + 1], np.asarray(diagonal, like=H)
    on_diagonal += diagonal
    factor: Any
    failed: int
    lift = 0.0
    while True:
        if elsewhere is not None:
            factor, failed = elsewhere.cholesky(H)
        elif check is None or len(H) <= LARGE:
            # LAPACK is called directly: SciPy's wrappers take longer than a small factor.
            from scipy.linalg.lapack import dpotrf

            factor, failed = dpotrf(H.T, lower=True, clean=False)
        else:
            factor, failed = _by_blocks(H, check)
        if not failed:
            return factor
        lift = 100.0 * lift or EPS * float(np.abs(on_diagonal).max()) or 1.0
        on_diagonal += lift
        if not lift < np.inf:
            H[...], on_diagonal[...] = 0.0, 1.0


def solved(factor: Any, g: np.ndarray) -> np.ndarray:
    """Solve with a factor, for a NumPy array g."""
    if (elsewhere := ALGEBRA.get(type(factor))) is not None:
        return np.asarray(elsewhere.solve(factor, g))
    from scipy.linalg.lapack import dpotrs

    return np.asarray(dpotrs(factor, g, lower=True)[0])


def _by_blocks(H: np.ndarray, check: Callable[[], None]) -> tuple[np.ndarray, int]:
    """Return the lower Cholesky factor of H, and zero if H is positive definite; ``check`` is called after each block.

    Threads share the rows below a block, in stripes of ``STRIPE`` rows, so that their number changes no bit.
    """
    from scipy.linalg.blas import dtrsm
    from scipy.linalg.lapack import dpotrf

    L, size = np.array(H, order="F"), len(H)
    for low in range(0, size, BLOCK):
        high = min(low + BLOCK, size)
        done = np.ascontiguousarray(L[low:high, :low])
        corner, failed = dpotrf(L[low:high, low:high] - done @ done.T, lower=True)
        if failed:
            return L, failed
        L[low:high, low:high] = corner

        def fill(first: int, own: slice = slice(low, high), done: np.ndarray = done, corner: Any = corner) -> None:
            rows = slice(first, first + STRIPE)
            left = L[rows, own] - L[rows, : own.start] @ done.T
            L[rows, own] = dtrsm(1.0, corner, left, side=True, lower=True, trans_a=True)

        workers().each(range(high, size, STRIPE), fill)
        check()
    return L, 0
