"""The producer of SDNA's pipeline on dense data: the gathered rows A_S and their Gram blocks A_S A_Sᵀ, read once from memory.

Neither depends on w or α, so any thread may compute any range of the sets to come: each set is summed in an order of its own,
and cutting the work differently changes no bit.

A set is worked off in column tiles that stay in the second-level cache, a tile in blocks of 4×4 rows whose sixteen sums stay in
registers. Blocks on the diagonal read the data and write the gathered copy on their way, the others, below it, read the copy; the
rest is mirrored. Meanwhile the lines of the next tile or set are fetched, two with every step of the arithmetic:
asked for all at once they would hold up the loads that the arithmetic waits for.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels._lanes import LANES, add, fetch_to_l2, fma, load, store, totals, zeros

PANEL = 4
"""Rows of a register block."""

_TILE = 1 << 15
"""Entries of a column tile of a set: 256 KiB, a part of any second-level cache in use."""

_LINE = 8
"""Numbers (of 8 bytes) in a cache line."""


def room_for_rows(sets: int, size: int, d: int) -> np.ndarray:
    """Return zeros of shape (sets, size, width ≥ d), laid out for the kernels.

    Rows begin on a cache line and are an odd number of lines apart: no load then straddles two lines, and the same column of
    neighbouring rows does not compete for one place in the cache. Other layouts were seen to cost up to
    a quarter more (d = 4096, sets of 64).
    """
    width = _LINE * (-(-d // _LINE) | 1)
    room = np.zeros(sets * size * width + _LINE)
    skipped = -(room.ctypes.data // room.itemsize) % _LINE
    return room[skipped : skipped + sets * size * width].reshape(sets, size, width)


@jit
def _add_row(G, i, j, c0, c1, c2, c3):
    """G[i, j:j+4] += the sums over lanes of c0 … c3."""
    row = G[i]
    store(row, j, add(load(row, j), totals(c0, c1, c2, c3)))


@jit
def _diagonal_block(A, S, i, lo, hi, rows, G, ahead, also_ahead, ahead_lo):
    """Gather columns [lo, hi) of rows i … i+3 of the set and add their products with each other.

    A row past the last is replaced by the last: its sums fall into the padding of G.
    """
    last = S.size - 1
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    a0, a1, a2, a3 = A[S[i]], A[S[i1]], A[S[i2]], A[S[i3]]
    r0, r1, r2, r3 = rows[i], rows[i1], rows[i2], rows[i3]
    next0, next1, shift = A[ahead], A[also_ahead], ahead_lo - lo
    c00, c10, c11, c20, c21 = zeros(), zeros(), zeros(), zeros(), zeros()
    c22, c30, c31, c32, c33 = zeros(), zeros(), zeros(), zeros(), zeros()
    k = lo
    while k < hi:
        fetch_to_l2(next0, k + shift)
        fetch_to_l2(next1, k + shift)
        x0, x1, x2, x3 = load(a0, k), load(a1, k), load(a2, k), load(a3, k)
        store(r0, k, x0)
        store(r1, k, x1)
        store(r2, k, x2)
        store(r3, k, x3)
        c00 = fma(x0, x0, c00)
        c10, c11 = fma(x1, x0, c10), fma(x1, x1, c11)
        c20, c21, c22 = fma(x2, x0, c20), fma(x2, x1, c21), fma(x2, x2, c22)
        c30, c31, c32, c33 = fma(x3, x0, c30), fma(x3, x1, c31), fma(x3, x2, c32), fma(x3, x3, c33)
        k += LANES
    _add_row(G, i, i, c00, c10, c20, c30)
    _add_row(G, i + 1, i, c10, c11, c21, c31)
    _add_row(G, i + 2, i, c20, c21, c22, c32)
    _add_row(G, i + 3, i, c30, c31, c32, c33)


@jit
def _square_block(A, last, i, j, lo, hi, rows, G, ahead, also_ahead, ahead_lo):
    """Add the products over columns [lo, hi) of gathered rows i … i+3 with rows j … j+3, j < i."""
    a0, a1, a2, a3 = rows[i], rows[min(i + 1, last)], rows[min(i + 2, last)], rows[min(i + 3, last)]
    b0, b1, b2, b3 = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
    next0, next1, shift = A[ahead], A[also_ahead], ahead_lo - lo
    c00, c01, c02, c03 = zeros(), zeros(), zeros(), zeros()
    c10, c11, c12, c13 = zeros(), zeros(), zeros(), zeros()
    c20, c21, c22, c23 = zeros(), zeros(), zeros(), zeros()
    c30, c31, c32, c33 = zeros(), zeros(), zeros(), zeros()
    k = lo
    while k < hi:
        fetch_to_l2(next0, k + shift)
        fetch_to_l2(next1, k + shift)
        y0, y1, y2, y3 = load(b0, k), load(b1, k), load(b2, k), load(b3, k)
        x = load(a0, k)
        c00, c01, c02, c03 = fma(x, y0, c00), fma(x, y1, c01), fma(x, y2, c02), fma(x, y3, c03)
        x = load(a1, k)
        c10, c11, c12, c13 = fma(x, y0, c10), fma(x, y1, c11), fma(x, y2, c12), fma(x, y3, c13)
        x = load(a2, k)
        c20, c21, c22, c23 = fma(x, y0, c20), fma(x, y1, c21), fma(x, y2, c22), fma(x, y3, c23)
        x = load(a3, k)
        c30, c31, c32, c33 = fma(x, y0, c30), fma(x, y1, c31), fma(x, y2, c32), fma(x, y3, c33)
        k += LANES
    _add_row(G, i, j, c00, c01, c02, c03)
    _add_row(G, i + 1, j, c10, c11, c12, c13)
    _add_row(G, i + 2, j, c20, c21, c22, c23)
    _add_row(G, i + 3, j, c30, c31, c32, c33)


@jit
def _tile(A, S, lo, hi, rows, G, coming, ahead_lo):
    """Work off columns [lo, hi) of one set, and fetch the columns from ``ahead_lo`` of the rows ``coming``.

    These are shared out over the register blocks. A block fetches two rows while it computes; where more fall to it (sets of
    fewer than twelve rows: little arithmetic, bound by memory anyway) the others are asked for at once.
    """
    panels = (S.size + PANEL - 1) // PANEL
    blocks, block = panels * (panels + 1) // 2, 0
    for i in range(0, S.size, PANEL):
        for j in range(i, -1, -PANEL):
            begin, end = block * coming.size // blocks, (block + 1) * coming.size // blocks
            block += 1
            ahead = coming[min(begin, coming.size - 1)]
            also_ahead = coming[begin + 1] if begin + 1 < end else ahead
            for more in range(begin + 2, end):
                row = A[coming[more]]
                for k in range(ahead_lo, ahead_lo + hi - lo, _LINE):
                    fetch_to_l2(row, k)
            if i == j:
                _diagonal_block(A, S, i, lo, hi, rows, G, ahead, also_ahead, ahead_lo)
            else:
                _square_block(A, S.size - 1, i, j, lo, hi, rows, G, ahead, also_ahead, ahead_lo)


@jit
def _last_columns(A, S, whole, rows, G):
    """Gather the fewer than four columns from ``whole`` on, and add their products to the lower triangle."""
    for i in range(S.size):
        for k in range(whole, A.shape[1]):
            x = rows[i, k] = A[S[i], k]
            for j in range(i + 1):
                G[i, j] += x * rows[j, k]


@jit
def gather_and_gram(A, indices, starts, first, last, rows_out, gram_out, horizon=0):
    """Write the rows and the Gram block of the sets first, …, last-1; set s is ``indices[starts[s]:starts[s+1]]``.

    For a set S of t examples, ``rows_out[s-first, :t, :d]`` becomes A_S in float64 and ``gram_out[s-first, :t, :t]`` the whole
    symmetric A_S A_Sᵀ; nothing else is written. Bit for bit the same for every choice of ranges.

    Parameters
    ----------
    A : C-order (n, d) array
        float64 or float32, may be read-only.
    indices, starts : int64 arrays
    first, last : int
        The range of sets to produce.
    rows_out : float64 array of shape (≥ last-first, ≥ t, ≥ d)
        Fastest as :func:`room_for_rows` makes it.
    gram_out : float64 array of shape (≥ last-first, ≥ t, ≥ t)
    horizon : int
        Sets from ``last`` to before this one may be fetched ahead: the number of sets where the same thread goes on with them, 0
        where another does.
    """
    d = A.shape[1]
    whole = d // LANES * LANES
    horizon = max(last, horizon)
    largest = 0
    for s in range(first, last):
        largest = max(largest, starts[s + 1] - starts[s])
    padded = (largest + PANEL - 1) // PANEL * PANEL
    G = np.empty((padded, padded))  # whole register blocks, so that none needs to ask where the set ends
    for s in range(first, last):
        S = indices[starts[s] : starts[s + 1]]
        if S.size == 0:
            continue
        rows, out = rows_out[s - first], gram_out[s - first]
        G[:] = 0.0
        tiles = (S.size * whole + _TILE - 1) // _TILE
        width = _LINE * ((whole + tiles * _LINE - 1) // (tiles * _LINE)) if tiles > 1 else max(whole, 1)
        for lo in range(0, whole, width):
            hi = min(whole, lo + width)
            coming, ahead_lo = S, hi  # the next tile of this set …
            if hi == whole:
                coming, ahead_lo = S[:1], 0  # … or nothing new …
                if s + 1 < horizon and starts[s + 2] > starts[s + 1]:
                    coming = indices[starts[s + 1] : starts[s + 2]]  # … or the first tile of the next
            _tile(A, S, lo, hi, rows, G, coming, ahead_lo)
        _last_columns(A, S, whole, rows, G)
        for i in range(S.size):
            for j in range(i + 1):
                out[i, j] = G[i, j]
                out[j, i] = G[i, j]
