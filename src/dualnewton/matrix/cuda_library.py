"""CuPy as the library of arrays on an NVIDIA GPU: copies to the host, and Cholesky factors."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from dualnewton import row_arrays
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.device import Namespace

LOCKED = 1 << 19, 1 << 26
"""Bytes of the least and the largest array that is copied to page-locked memory of the host: 8 MB take 0.2 ms there instead of 2.
CuPy keeps such memory for later copies."""


@cache
def cupy() -> Any:
    """Return CuPy, with its arrays declared as row arrays; raise an error if it is missing or finds no GPU."""
    try:
        import cupy as found
    except ImportError:
        raise DualnewtonError(
            "data on a GPU need CuPy, which is not installed: pip install dualnewton[gpu] (for CUDA 12)"
        ) from None
    try:
        devices = found.cuda.runtime.getDeviceCount()
    except found.cuda.runtime.CUDARuntimeError:
        devices = 0
    if not devices:
        raise DualnewtonError("data on a GPU need an NVIDIA GPU, and CuPy finds none on this machine")
    row_arrays.declare(found.ndarray, _to_host, CudaAlgebra())
    return found


def _to_host(array: Any) -> np.ndarray:
    """Copy an array to the host's memory, that of a model with many features to page-locked memory."""
    low, high = LOCKED
    if not (low <= array.nbytes <= high and array.flags.c_contiguous):
        return array.get()
    import cupyx

    made = cupyx.empty_like_pinned(array)
    array.get(out=made)
    return made


class CudaAlgebra:
    """Cholesky factors on the GPU."""

    def cholesky(self, H: Any) -> tuple[Any, bool]:
        """Return the lower factor, and whether H was not positive definite."""
        import cupyx

        with cupyx.errstate(linalg="raise"):
            try:
                return cupy().linalg.cholesky(H), False
            except np.linalg.LinAlgError:
                return None, True

    def solve(self, factor: Any, g: np.ndarray) -> np.ndarray:
        """Solve by two triangular systems."""
        from cupyx.scipy.linalg import solve_triangular

        half = solve_triangular(factor, cupy().asarray(g), lower=True)
        return solve_triangular(factor, half, trans=1, lower=True).get()


@cache
def namespace() -> Namespace:
    """Return CuPy with its sparse matrices."""
    xp = cupy()
    from cupyx.scipy import sparse

    return Namespace(xp, sparse.issparse)
