"""CuPy as the library of arrays on an NVIDIA GPU: compiled kernels, copies to the host, and Cholesky factors."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from dualnewton import row_arrays
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.device import Namespace

THREADS = 256
"""Threads per block of every kernel."""

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
    row_arrays.declare(found.ndarray, _to_host, CudaAlgebra(), functions=_row_function, additions=_additions)
    return found


def _row_function(name: str, loss: Any) -> Any:
    from dualnewton.matrix.cuda_rows import row_function  # compiles its kernels by this module

    return row_function(name, loss)


def _additions(n: int) -> int:
    from dualnewton.matrix.cuda_rows import additions

    return additions(n)


@cache
def kernel(name: str, source: str, shared: int = 0, **defined: Any) -> Any:
    """Compile a kernel, with these macros defined; CuPy keeps the binary on disk. ``shared`` limits its shared memory in bytes.

    That is a setting on one GPU, so that the number of the GPU must be among the macros.
    """
    macros = "".join(f"#define {key} {value}\n" for key, value in {"THREADS": THREADS, **defined}.items())
    made = cupy().RawKernel(macros + source, name, options=("--std=c++14",))
    if shared:
        made.max_dynamic_shared_size_bytes = shared
    return made


@lru_cache(maxsize=256)
def numbers(gpu: int, *given: float) -> Any:  # noqa: ARG001
    """Return some numbers, the parameters of a loss, on the GPU with this number, which must be the current one; copied once."""
    return cupy().asarray(given)


@lru_cache(maxsize=256)
def limit(gpu: int, name: str) -> int:
    """Return a limit of the GPU with this number, zero where it is not known."""
    return int(cupy().cuda.Device(gpu).attributes.get(name, 0))


@cache
def capability(gpu: int) -> int:
    """Return the major compute capability of the GPU with this number."""
    return int(cupy().cuda.Device(gpu).compute_capability[:-1])


def added(sums: Any) -> Any:
    """Return the sums of the columns of a matrix on the GPU; CuPy's own function takes five times as long to start."""
    from dualnewton.matrix.cuda_source import ADDED

    rows, width = sums.shape
    found = cupy().empty(width)
    kernel("added", ADDED)((-(-width // 32),), (THREADS,), (sums, found, np.int32(rows), np.int32(width)))
    return found


def ranges(n: int, most: int, unit: int = 1) -> tuple[int, int]:
    """Return the rows per block, a multiple of ``unit``, and the number of blocks, which has a maximum."""
    step = -(-n // (most * unit)) * unit
    return step, -(-n // step)


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
        from cupy.cuda import cublas, device

        # A matrix in C order is its transpose for cuBLAS, which is called directly: CuPy's function copies the factor first.
        m, one, x = len(factor), np.ones(1), cupy().array(g, dtype=np.float64, order="F")
        for transposed in (cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N):
            form = cublas.CUBLAS_SIDE_LEFT, cublas.CUBLAS_FILL_MODE_UPPER, transposed, cublas.CUBLAS_DIAG_NON_UNIT
            given = m, x.size // m, one.ctypes.data, factor.data.ptr, m, x.data.ptr, m
            cublas.dtrsm(device.get_cublas_handle(), *form, *given)
        return np.asarray(x.get())


@cache
def namespace() -> Namespace:
    """Return CuPy with its sparse matrices."""
    xp = cupy()
    from cupyx.scipy import sparse

    return Namespace(xp, sparse.issparse)
