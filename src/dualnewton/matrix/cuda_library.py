"""CuPy as the library of arrays on an NVIDIA GPU: compiled kernels, copies to the host, and Cholesky factors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np

from dualnewton import row_arrays
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.device import Namespace

THREADS = 256
"""Threads per block of every kernel."""

TO_GPU, TO_HOST = 1, 2
"""Directions of a copy (cudaMemcpyKind)."""

LOCKED = 1 << 26
"""Bytes of the largest array that is copied to page-locked memory of the host: 8 MB take 0.2 ms there instead of 2. CuPy keeps
such memory for later copies."""

EXCHANGED, CAPACITY = 1 << 16, 1 << 20
"""Largest number of entries of an array that is copied through :class:`Exchange`, and the capacity of its buffer in numbers."""


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
def kernel(name: str, source: str, shared: int = 0, *, together: bool = False, **defined: Any) -> Any:
    """Compile a kernel, with these macros defined; CuPy keeps the binary on disk. ``shared`` limits its shared memory in bytes.

    That is a setting on one GPU, so that the number of the GPU must be among the macros. All blocks of a kernel run ``together``
    if they wait for each other.
    """
    macros = "".join(f"#define {key} {value}\n" for key, value in {"THREADS": THREADS, **defined}.items())
    made = cupy().RawKernel(macros + source, name, options=("--std=c++14",), enable_cooperative_groups=together)
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


class Exchange(threading.local):
    """Memory of a thread for short arrays on their way to a GPU and back, and for sums of the blocks of a kernel.

    For 8 kB, CuPy's functions take 26 µs to the GPU and 17 µs from it, on the host of an H200, and several times as long between
    other work; page-locked memory and its copy on the GPU, both allocated once, take a third of that. A kernel writes sums to
    the page-locked memory itself. Both are used in order, and again from the start once the GPU has done all work.
    """

    def __init__(self) -> None:
        cuda = cupy().cuda
        self.memory, self.there, self.blocks = (
            cuda.alloc_pinned_memory(8 * CAPACITY),
            cuda.alloc(8 * CAPACITY),
            cuda.alloc(8 * CAPACITY),
        )
        self.numbers = np.frombuffer(self.memory, np.float64, CAPACITY)
        self.here, self.away = self.memory.ptr, self.there.ptr
        self.used = 0

    def take(self, count: int) -> tuple[np.ndarray, int]:
        """Return a buffer for ``count`` numbers, and the offset of its start in bytes."""
        first, last = self.used, self.used + count
        if last > CAPACITY:
            cupy().cuda.runtime.deviceSynchronize()
            first, last = 0, count
        self.used = last
        return self.numbers[first:last], 8 * first


@cache
def _exchange(gpu: int) -> Exchange:  # noqa: ARG001
    """Return the memory for copies to and from the GPU with this number, each thread's own."""
    return Exchange()


def exchange() -> Exchange:
    """Return the memory for copies to and from the current GPU."""
    return _exchange(cupy().cuda.runtime.getDevice())


def sent(array: np.ndarray) -> Any:
    """Return a copy of a NumPy array on the GPU, as float64 in C order, for a kernel that is started next: mostly its address."""
    xp = cupy()
    if array.size > EXCHANGED:
        return xp.ascontiguousarray(xp.asarray(array, dtype=np.float64))
    own = exchange()
    buffer, place = own.take(array.size)
    buffer.reshape(array.shape)[...] = array
    xp.cuda.runtime.memcpyAsync(
        own.away + place, own.here + place, buffer.nbytes, TO_GPU, xp.cuda.get_current_stream().ptr
    )
    return np.intp(own.away + place)


def partial_sums(count: int) -> Any:
    """Return memory on the GPU for the sums of the blocks of a kernel, of which :func:`totals` is called next."""
    if count > CAPACITY:
        return cupy().empty(count)
    return np.intp(exchange().blocks.ptr)


def totals(sums: Any, rows: int, width: int) -> np.ndarray:
    """Return the sums of the columns of a matrix on the GPU, in memory, once the GPU has computed it."""
    if width > EXCHANGED:
        found = cupy().empty(width)
        _add(sums, found, rows, width)
        return found.get()
    own = exchange()
    buffer, place = own.take(width)
    _add(sums, np.intp(own.here + place), rows, width)
    awaited()
    return buffer.copy()


def promised(sums: Any, rows: int, width: int) -> Callable[[], np.ndarray]:
    """Return a function that returns the same, for few columns; the GPU may be given other work before it is called."""
    own, event = exchange(), cupy().cuda.Event(disable_timing=True)
    buffer, place = own.take(width)
    _add(sums, np.intp(own.here + place), rows, width)
    event.record()

    def found() -> np.ndarray:
        event.synchronize()
        return buffer.copy()

    return found


def added(sums: Any, out: Any = None) -> Any:
    """Return the sums of the columns of a matrix on the GPU, in ``out`` if it is given; CuPy's own function takes five times as
    long to start.
    """
    rows, width = sums.shape
    found = cupy().empty(width) if out is None else out
    _add(sums, found, rows, width)
    return found


def awaited() -> None:
    """Wait until the GPU has done the work of this thread."""
    cupy().cuda.get_current_stream().synchronize()


def _add(sums: Any, found: Any, rows: int, width: int) -> None:
    from dualnewton.matrix.cuda_source import ADDED

    lanes = min(32, 1 << (width - 1).bit_length())
    arguments = sums, found, np.int32(rows), np.int32(width), np.int32(lanes)
    kernel("added", ADDED)((-(-width // lanes),), (THREADS,), arguments)


def ranges(n: int, most: int, unit: int = 1) -> tuple[int, int]:
    """Return the rows per block, a multiple of ``unit``, and the number of blocks, which has a maximum."""
    step = -(-n // (most * unit)) * unit
    return step, -(-n // step)


def _to_host(array: Any) -> np.ndarray:
    """Copy an array to the host's memory, through page-locked memory; that of a model with many features stays there."""
    xp, size = cupy(), array.nbytes
    if not (0 < size <= LOCKED and array.flags.c_contiguous):
        return array.get()
    if size > 8 * EXCHANGED:
        import cupyx

        made = cupyx.empty_like_pinned(array)
        array.get(out=made)
        return made
    own, stream = exchange(), xp.cuda.get_current_stream()
    buffer, place = own.take(-(-size // 8))
    xp.cuda.runtime.memcpyAsync(own.here + place, array.data.ptr, size, TO_HOST, stream.ptr)
    stream.synchronize()
    return buffer.view(np.uint8)[:size].view(array.dtype).reshape(array.shape).copy()


class CudaAlgebra:
    """Factors on the GPU: L⁻ᵀ for a matrix LLᵀ of up to some thousand rows (``cuda_factors.py``), else L."""

    def cholesky(self, H: Any, diagonal: np.ndarray) -> tuple[Any, bool]:
        """Return a factor of H + D(diagonal), and whether that was not positive definite."""
        from dualnewton.matrix import cuda_factors

        if len(H) <= cuda_factors.LARGEST:
            return cuda_factors.inverse_root(H, diagonal)
        import cupyx

        B = H.copy()
        B.reshape(-1)[:: len(B) + 1] += cupy().asarray(diagonal)
        with cupyx.errstate(linalg="raise"):
            try:
                return cupy().linalg.cholesky(B), False
            except np.linalg.LinAlgError:
                return None, True

    def solve(self, factor: Any, g: np.ndarray) -> np.ndarray:
        """Solve by two products with a vector, or by two triangular systems."""
        from cupy.cuda import cublas, device

        from dualnewton.matrix import cuda_factors

        if len(factor) <= cuda_factors.LARGEST:
            return cuda_factors.solved(factor, g)
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
