"""First stage of SDNA's rounds on dense data: gathered rows A_S and Gram blocks A_S A_Sᵀ, read once from memory.

Neither depends on w or α, so that any thread may compute any range of sets. The order of summation within a set is fixed;
the result has the same bits for every division of the work. The products are those of the gathered copy, in column tiles that
fit into the second-level cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.kernels._jit import lean_call, least, most
from dualnewton.kernels.thin import add_products

_TILE = 1 << 15
"""Number of entries in a column tile of a set: 256 KiB of float64, less than the second-level cache of current processors."""

_LINE = 64
"""Bytes per cache line."""


def room_for_rows(sets: int, size: int, d: int, dtype: Any = np.float64) -> np.ndarray:
    """Return zeros of shape (sets, size, width ≥ d) in the memory layout that is fastest for the kernels.

    Rows are aligned to cache lines and an odd number of lines apart: no load then straddles two lines, and the same column of
    adjacent rows does not map to the same cache set. Other layouts cost up to a quarter more (d = 4096, sets of 64).
    """
    line = _LINE // np.dtype(dtype).itemsize
    width = line * (-(-d // line) | 1)
    room = np.zeros(sets * size * width + line, dtype=dtype)
    skipped = -(room.ctypes.data // room.itemsize) % line
    return room[skipped : skipped + sets * size * width].reshape(sets, size, width)


@lean_call
def gather_and_gram(A, indices, starts, first, last, rows_out, gram_out):
    """Write the rows and the Gram block of the sets first, …, last-1; set s is ``indices[starts[s]:starts[s+1]]``.

    For a set S of t examples, ``rows_out[s-first, :t, :d]`` becomes A_S and ``gram_out[s-first, :t, :t]`` the whole
    symmetric A_S A_Sᵀ; nothing else is written. The result has the same bits for every division into ranges.

    A is in C order, float64 or float32, and may be read-only; ``rows_out`` has its type or a wider one, fastest in the layout
    of :func:`room_for_rows`. Products of float32 rows are summed in float64.
    """
    d = A.shape[1]
    for s in range(first, last):
        begin, t, rows, G = starts[s], starts[s + 1] - starts[s], rows_out[s - first], gram_out[s - first]
        for i in range(t):
            e = indices[begin + i]
            for k in range(d):
                rows[i, k] = A[e, k]
            for j in range(i + 1):
                G[i, j] = 0.0
        width = most(_TILE // most(t, 1), 1)
        for low in range(0, d, width):
            for i in range(0, t, 4):
                for j in range(0, i + 1, 4):
                    add_products(rows, i, t, rows, j, t, low, least(d, low + width), G)
        for i in range(t):
            for j in range(i):
                G[j, i] = G[i, j]
