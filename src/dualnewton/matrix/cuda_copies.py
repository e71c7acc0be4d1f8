"""Copies of matrices in the host's memory to an NVIDIA GPU: of all rows at once, or piece by piece for each pass."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix.cuda import CudaData, as_cuda
from dualnewton.matrix.cuda_library import cupy, namespace
from dualnewton.matrix.linear import Matrix, cut
from dualnewton.matrix.protocol import Data
from dualnewton.matrix.streamed import StreamedData
from dualnewton.validation import data_matrix

SHARE = 0.5
"""Largest share of the memory of a GPU that the rows may take there. The rest is for vectors over rows and for Gram products. It
is a share of all memory, not of what is free, so that equal settings give equal bits."""

PIECE = 1 << 28
"""Bytes of a piece (256 MiB): a copy of 5 ms, against which starting kernels takes little."""


def on_gpu(X: Any) -> Data:
    """Return rows as data on the GPU; rows of the host that are too many for it as data that each pass copies there in pieces."""
    if not (isinstance(X, np.ndarray) or sp.issparse(X)):
        return as_cuda(X)
    total = cupy().cuda.Device().mem_info[1]
    if size_there(X) <= SHARE * total:
        return as_cuda(X)
    return streamed(data_matrix("X", X))


def size_there(X: Any) -> int:
    """Return the bytes that rows take on the GPU, where sparse ones have a transposed copy, and those of float32 two in tiles."""
    if not sp.issparse(X):
        return int(X.nbytes)
    return (4 if X.dtype == np.float32 else 2) * (X.data.nbytes + X.indices.nbytes)


def streamed(X: Matrix, piece: int = PIECE) -> StreamedData:
    """Return checked rows in the host's memory as data that are copied to the GPU in pieces of about ``piece`` bytes."""
    return StreamedData(cut(X, piece), Copier(X))


class Piece(CudaData):
    """Rows on the GPU for one pass."""

    lasting = False


class Copier:
    """Copies parts of a matrix to the GPU, on a stream of its own, beside the kernels of other streams.

    The memory of the matrix is page-locked for as long as this object exists: the GPU then reads it itself, at 55 GB/s on an
    H200, where copies of pageable memory take a thread of the host and run at 9 GB/s. Locking takes 25 ms for each GB, once.
    Where the system refuses it, as for files that are mapped read-only, the memory stays pageable.

    Parameters
    ----------
    X : array in C order or CSR array
        The matrix.
    """

    def __init__(self, X: Matrix) -> None:
        self.stream = cupy().cuda.Stream(non_blocking=True)
        for array in (X.data, X.indices) if sp.issparse(X) else (X,):
            if _locked(array):
                weakref.finalize(self, cupy().cuda.runtime.hostUnregister, array.ctypes.data)

    def __call__(self, rows: Matrix) -> CudaData:
        """Return rows on the GPU, once they have arrived.

        When the returned object is deleted, CuPy gives its memory to later copies at once, even if a kernel still reads it.
        The caller must wait for its kernels before that; each operation of ``Data`` waits when it copies its result to the host.
        """
        with self.stream:
            if sp.issparse(rows):
                from cupyx.scipy.sparse import csr_matrix

                parts = [self._copied(part) for part in (rows.data, rows.indices, rows.indptr)]
                there = csr_matrix((parts[0], parts[1], parts[2]), shape=rows.shape)
            else:
                there = self._copied(rows)
            self.stream.synchronize()
        return Piece(there, namespace())

    def _copied(self, array: np.ndarray) -> Any:
        made = cupy().empty(array.shape, array.dtype)
        made.set(np.ascontiguousarray(array), stream=self.stream)
        return made


def _locked(array: np.ndarray) -> bool:
    """Lock the pages of an array in memory; return False if the system refuses, or if they are locked already."""
    runtime = cupy().cuda.runtime
    try:
        runtime.hostRegister(array.ctypes.data, array.nbytes, 0)
    except runtime.CUDARuntimeError:
        return False
    return True
