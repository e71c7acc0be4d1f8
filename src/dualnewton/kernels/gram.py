"""First stage of SDNA's rounds on dense data: gathered rows A_S and Gram blocks A_S A_Sᵀ, read once from memory.

Neither depends on w or α, so that any thread may compute any range of sets. The order of summation within a set is fixed;
the result has the same bits for every division of the work.

A set is processed in column tiles that fit into the second-level cache, and a tile in blocks of 4×4 rows whose sixteen sums stay
in registers. Diagonal blocks read the data and write the gathered copy; blocks below the diagonal read the copy; the upper
triangle is mirrored. Each step of the arithmetic also prefetches two cache lines of the next tile or set: prefetching all of
them at once would delay the loads that the arithmetic needs. Rows are addressed by flat offsets, not by array views:
Numba's reference counting of views cost a tenth of the time for rows of length 100.

Products of float32 rows are summed in float32, in eight lanes, where the error is harmless: margins and dual variables are
kept in float64, and G determines only the length of a step. With an error δ in G a step still increases the dual as long as ‖δ‖
is small compared with the curvature γλn of the conjugates. Blocks with larger norms are summed in float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from dualnewton.kernels._jit import jit, overloads
from dualnewton.kernels._lanes import LANES, add, fetch_to_l2, fma, lanes_of, load, narrow_zeros, store, totals, zeros

PANEL = 4
"""Number of rows of a register block."""

_TILE = 1 << 15
"""Number of entries in a column tile of a set: 256 KiB of float64, less than the second-level cache of current processors."""

_LINE = 64
"""Bytes per cache line."""

TINY = 1e-20
"""Smallest value of max ‖a_i‖² for which a set is summed in float32, whose smallest normal number is 1e-38."""


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


@jit
def _add_row(G, i, j, c0, c1, c2, c3):
    """G[i, j:j+4] += (Σ c0, Σ c1, Σ c2, Σ c3), sums over lanes."""
    place, sums = i * G.shape[1] + j, totals(c0, c1, c2, c3)
    store(G, place, add(load(G, place, sums), sums))


@jit
def _diagonal_block(A, indices, begin, t, i, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero):
    """Gather columns [lo, hi) of rows i … i+3 of the set and add their products with each other.

    A row past the last is replaced by the last; its sums are written to the padding of G.
    """
    last, d, width = t - 1, A.shape[1], rows.shape[2]
    i1, i2, i3 = min(i + 1, last), min(i + 2, last), min(i + 3, last)
    a0, a1 = indices[begin + i] * d, indices[begin + i1] * d
    a2, a3 = indices[begin + i2] * d, indices[begin + i3] * d
    r0, r1, r2, r3 = base + i * width, base + i1 * width, base + i2 * width, base + i3 * width
    next0, next1 = ahead * d + ahead_lo - lo, also_ahead * d + ahead_lo - lo
    c00, c10, c11, c20, c21 = zero, zero, zero, zero, zero
    c22, c30, c31, c32, c33 = zero, zero, zero, zero, zero
    k = lo
    while k < hi:
        fetch_to_l2(A, next0 + k)
        fetch_to_l2(A, next1 + k)
        x0, x1 = load(A, a0 + k, zero), load(A, a1 + k, zero)
        x2, x3 = load(A, a2 + k, zero), load(A, a3 + k, zero)
        store(rows, r0 + k, x0)
        store(rows, r1 + k, x1)
        store(rows, r2 + k, x2)
        store(rows, r3 + k, x3)
        c00 = fma(x0, x0, c00)
        c10, c11 = fma(x1, x0, c10), fma(x1, x1, c11)
        c20, c21, c22 = fma(x2, x0, c20), fma(x2, x1, c21), fma(x2, x2, c22)
        c30, c31, c32, c33 = fma(x3, x0, c30), fma(x3, x1, c31), fma(x3, x2, c32), fma(x3, x3, c33)
        k += lanes_of(zero)
    _add_row(G, i, i, c00, c10, c20, c30)
    _add_row(G, i + 1, i, c10, c11, c21, c31)
    _add_row(G, i + 2, i, c20, c21, c22, c32)
    _add_row(G, i + 3, i, c30, c31, c32, c33)


@jit
def _square_block(A, t, i, j, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero):
    """Add the products over columns [lo, hi) of gathered rows i … i+3 with rows j … j+3, j < i."""
    last, d, width = t - 1, A.shape[1], rows.shape[2]
    a0, a1 = base + i * width, base + min(i + 1, last) * width
    a2, a3 = base + min(i + 2, last) * width, base + min(i + 3, last) * width
    b0, b1, b2, b3 = base + j * width, base + (j + 1) * width, base + (j + 2) * width, base + (j + 3) * width
    next0, next1 = ahead * d + ahead_lo - lo, also_ahead * d + ahead_lo - lo
    c00, c01, c02, c03 = zero, zero, zero, zero
    c10, c11, c12, c13 = zero, zero, zero, zero
    c20, c21, c22, c23 = zero, zero, zero, zero
    c30, c31, c32, c33 = zero, zero, zero, zero
    k = lo
    while k < hi:
        fetch_to_l2(A, next0 + k)
        fetch_to_l2(A, next1 + k)
        y0, y1 = load(rows, b0 + k, zero), load(rows, b1 + k, zero)
        y2, y3 = load(rows, b2 + k, zero), load(rows, b3 + k, zero)
        x = load(rows, a0 + k, zero)
        c00, c01, c02, c03 = fma(x, y0, c00), fma(x, y1, c01), fma(x, y2, c02), fma(x, y3, c03)
        x = load(rows, a1 + k, zero)
        c10, c11, c12, c13 = fma(x, y0, c10), fma(x, y1, c11), fma(x, y2, c12), fma(x, y3, c13)
        x = load(rows, a2 + k, zero)
        c20, c21, c22, c23 = fma(x, y0, c20), fma(x, y1, c21), fma(x, y2, c22), fma(x, y3, c23)
        x = load(rows, a3 + k, zero)
        c30, c31, c32, c33 = fma(x, y0, c30), fma(x, y1, c31), fma(x, y2, c32), fma(x, y3, c33)
        k += lanes_of(zero)
    _add_row(G, i, j, c00, c01, c02, c03)
    _add_row(G, i + 1, j, c10, c11, c12, c13)
    _add_row(G, i + 2, j, c20, c21, c22, c23)
    _add_row(G, i + 3, j, c30, c31, c32, c33)


@jit
def _tile(A, indices, begin, t, lo, hi, rows, base, G, coming, number, ahead_lo, zero):
    """Process columns [lo, hi) of one set in vectors like ``zero``; prefetch columns from ``ahead_lo`` on of ``number`` rows.

    The prefetched rows are ``indices[coming:coming + number]``, distributed over the register blocks. A block prefetches two
    rows during its arithmetic; any further ones are prefetched at once, which happens only for sets of fewer than twelve rows,
    whose time is memory-bound anyway.
    """
    panels = (t + PANEL - 1) // PANEL
    blocks, block = panels * (panels + 1) // 2, 0
    for i in range(0, t, PANEL):
        for j in range(i, -1, -PANEL):
            one, end = block * number // blocks, (block + 1) * number // blocks
            block += 1
            ahead = indices[coming + min(one, number - 1)]
            also_ahead = indices[coming + one + 1] if one + 1 < end else ahead
            for more in range(one + 2, end):
                row = indices[coming + more] * A.shape[1]
                for k in range(ahead_lo, ahead_lo + hi - lo, _LINE // A.itemsize):
                    fetch_to_l2(A, row + k)
            if i == j:
                _diagonal_block(A, indices, begin, t, i, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero)
            else:
                _square_block(A, t, i, j, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero)


@jit
def _last_columns(A, indices, begin, t, whole, rows, s, G):
    """Gather the last columns from ``whole`` on, fewer than four, and add their products to the lower triangle."""
    for i in range(t):
        for k in range(whole, A.shape[1]):
            x = np.float64(A[indices[begin + i], k])
            rows[s, i, k] = x
            for j in range(i + 1):
                G[i, j] += x * rows[s, j, k]


@jit
def _block(A, indices, begin, t, rows, s, G, coming, number, zero):
    """Gather the rows of one set and write the lower triangle of their Gram block, in vectors like ``zero``."""
    d, line = A.shape[1], _LINE // A.itemsize
    base = s * rows.shape[1] * rows.shape[2]
    whole = d // lanes_of(zero) * lanes_of(zero)
    for i in range(G.shape[0]):
        for j in range(G.shape[1]):
            G[i, j] = 0.0
    tiles = (t * whole + _TILE - 1) // _TILE
    width = line * ((whole + tiles * line - 1) // (tiles * line)) if tiles > 1 else max(whole, 1)
    for lo in range(0, whole, width):
        hi = min(whole, lo + width)
        is_last = hi >= whole  # prefetch the first tile of the next set, else the next tile of this one
        ahead, rows_ahead, ahead_lo = (coming, number, 0) if is_last else (begin, t, hi)
        _tile(A, indices, begin, t, lo, hi, rows, base, G, ahead, rows_ahead, ahead_lo, zero)
    fours = d // LANES * LANES
    if whole < fours:  # four columns left after groups of eight
        _tile(A, indices, begin, t, whole, fours, rows, base, G, coming, number, whole, zeros())
    _last_columns(A, indices, begin, t, fours, rows, s, G)


def _produce(A, indices, begin, t, rows, s, G, coming, number, limit):
    """Gather the rows of one set and write the lower triangle of their Gram block, in float32 if ``limit`` allows it."""
    raise NotImplementedError("for compiled code")


@overloads(_produce)
def _produce_of(A, indices, begin, t, rows, s, G, coming, number, limit):
    def double(A, indices, begin, t, rows, s, G, coming, number, limit):
        _block(A, indices, begin, t, rows, s, G, coming, number, zeros())

    def single(A, indices, begin, t, rows, s, G, coming, number, limit):
        largest = 0.0
        if limit > 0.0:
            _block(A, indices, begin, t, rows, s, G, coming, number, narrow_zeros())
            for i in range(t):
                largest = max(largest, G[i, i])
        if not TINY <= largest <= limit / t:
            _block(A, indices, begin, t, rows, s, G, coming, number, zeros())

    return single if A.dtype == types.float32 else double


@jit
def gather_and_gram(A, indices, starts, first, last, rows_out, gram_out, horizon=0, limit=0.0):
    """Write the rows and the Gram block of the sets first, …, last-1; set s is ``indices[starts[s]:starts[s+1]]``.

    For a set S of t examples, ``rows_out[s-first, :t, :d]`` becomes A_S and ``gram_out[s-first, :t, :t]`` the whole
    symmetric A_S A_Sᵀ; nothing else is written. The result has the same bits for every division into ranges.

    Parameters
    ----------
    A : C-order (n, d) array
        The data, float64 or float32; it may be read-only.
    indices, starts : int64 arrays
    first, last : int
        The range of sets to produce.
    rows_out : array of the type of A or wider, of shape (≥ last-first, ≥ t, ≥ d)
        The layout of :func:`room_for_rows` is the fastest.
    gram_out : float64 array of shape (≥ last-first, ≥ t, ≥ t)
    horizon : int
        Sets from ``last`` to ``horizon - 1`` may be prefetched: the number of sets if the same thread processes them next, 0 if
        another thread does.
    limit : float
        Products of float32 rows are summed in float32 if t max‖a_i‖² ≤ limit.
    """
    horizon = max(last, horizon)
    largest = 0
    for s in range(first, last):
        largest = max(largest, starts[s + 1] - starts[s])
    padded = (largest + PANEL - 1) // PANEL * PANEL
    G = np.empty((padded, padded))  # padded to whole register blocks, which need no bounds checks
    for s in range(first, last):
        begin, t, place = starts[s], starts[s + 1] - starts[s], s - first
        if t == 0:
            continue
        coming, number = begin, 1  # prefetch nothing new, or (below) the first tile of the next set
        if s + 1 < horizon and starts[s + 2] > starts[s + 1]:
            coming, number = starts[s + 1], starts[s + 2] - starts[s + 1]
        _produce(A, indices, begin, t, rows_out, place, G, coming, number, limit)
        for i in range(t):
            for j in range(i + 1):
                gram_out[place, i, j] = G[i, j]
                gram_out[place, j, i] = G[i, j]
