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

from dualnewton.kernels._jit import lean_call, least, most, overloads
from dualnewton.kernels._lanes import (
    LANES,
    add_own_products,
    add_products,
    add_totals,
    fetch_to_l2,
    lanes_of,
    load_four,
    narrow_zeros,
    places_of_chosen,
    places_of_rows,
    sixteen,
    store_four,
    ten,
    zeros,
)

PANEL = 4
"""Number of rows of a register block."""

_TILE = 1 << 15
"""Number of entries in a column tile of a set: 256 KiB of float64, less than the second-level cache of current processors."""

_LINE = 64
"""Bytes per cache line."""

TINY = 1e-20
"""Smallest value of max ‖a_i‖² for which a set is summed in float32, whose smallest normal number is 1e-38."""


def buffer_for_rows(sets: int, size: int, d: int, dtype: Any = np.float64) -> np.ndarray:
    """Return zeros of shape (sets, size, width ≥ d) in the memory layout that is fastest for the kernels.

    Rows are aligned to cache lines and an odd number of lines apart: no load then straddles two lines, and the same column of
    adjacent rows does not map to the same cache set. Other layouts cost up to a quarter more (d = 4096, sets of 64).
    """
    line = _LINE // np.dtype(dtype).itemsize
    width = line * (-(-d // line) | 1)
    buffer = np.zeros(sets * size * width + line, dtype=dtype)
    skipped = -(buffer.ctypes.data // buffer.itemsize) % line
    return buffer[skipped : skipped + sets * size * width].reshape(sets, size, width)


@lean_call
def _diagonal_block(A, indices, begin, t, i, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero):
    """Gather columns [lo, hi) of rows i … i+3 of the set and add their products with each other.

    A row past the last is replaced by the last; its sums are written to the padding of G.
    """
    d = A.shape[1]
    given, kept = places_of_chosen(indices, begin, i, t - 1, d), places_of_rows(base, i, t - 1, rows.shape[2])
    next0, next1 = ahead * d + ahead_lo - lo, also_ahead * d + ahead_lo - lo
    sums, k = ten(zero), lo
    while k < hi:
        fetch_to_l2(A, next0 + k)
        fetch_to_l2(A, next1 + k)
        x = load_four(A, given, k, zero)
        store_four(rows, kept, k, x)
        sums = add_own_products(x, sums)
        k += lanes_of(zero)
    add_totals(G, i, i, sums)


@lean_call
def _square_block(A, t, i, j, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero):
    """Add the products over columns [lo, hi) of gathered rows i … i+3 with rows j … j+3, j < i."""
    d, width = A.shape[1], rows.shape[2]
    these, those = places_of_rows(base, i, t - 1, width), places_of_rows(base, j, t - 1, width)
    next0, next1 = ahead * d + ahead_lo - lo, also_ahead * d + ahead_lo - lo
    sums, k = sixteen(zero), lo
    while k < hi:
        fetch_to_l2(A, next0 + k)
        fetch_to_l2(A, next1 + k)
        sums = add_products(load_four(rows, these, k, zero), load_four(rows, those, k, zero), sums)
        k += lanes_of(zero)
    add_totals(G, i, j, sums)


@lean_call
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
            ahead = indices[coming + least(one, number - 1)]
            also_ahead = indices[coming + one + 1] if one + 1 < end else ahead
            for more in range(one + 2, end):
                row = indices[coming + more] * A.shape[1]
                for k in range(ahead_lo, ahead_lo + hi - lo, _LINE // A.itemsize):
                    fetch_to_l2(A, row + k)
            if i == j:
                _diagonal_block(A, indices, begin, t, i, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero)
            else:
                _square_block(A, t, i, j, lo, hi, rows, base, G, ahead, also_ahead, ahead_lo, zero)


@lean_call
def _last_columns(A, indices, begin, t, whole, rows, s, G):
    """Gather the last columns from ``whole`` on, fewer than four, and add their products to the lower triangle."""
    for i in range(t):
        for k in range(whole, A.shape[1]):
            x = np.float64(A[indices[begin + i], k])
            rows[s, i, k] = x
            for j in range(i + 1):
                G[i, j] += x * rows[s, j, k]


@lean_call
def _block(A, indices, begin, t, rows, s, G, coming, number, zero):
    """Gather the rows of one set and write the lower triangle of their Gram block, in vectors like ``zero``."""
    d, line = A.shape[1], _LINE // A.itemsize
    base = s * rows.shape[1] * rows.shape[2]
    whole = d // lanes_of(zero) * lanes_of(zero)
    for i in range(-(-t // PANEL) * PANEL):
        for j in range(-(-t // PANEL) * PANEL):
            G[i, j] = 0.0
    tiles = (t * whole + _TILE - 1) // _TILE
    width = line * ((whole + tiles * line - 1) // (tiles * line)) if tiles > 1 else most(whole, 1)
    for lo in range(0, whole, width):
        hi = least(whole, lo + width)
        is_last = hi >= whole  # prefetch the first tile of the next set, else the next tile of this one
        ahead, rows_ahead, ahead_lo = (coming, number, 0) if is_last else (begin, t, hi)
        _tile(A, indices, begin, t, lo, hi, rows, base, G, ahead, rows_ahead, ahead_lo, zero)
    fours = d // LANES * LANES
    if whole < fours:  # four columns left after groups of eight
        _tile(A, indices, begin, t, whole, fours, rows, base, G, coming, number, whole, zeros())
    _last_columns(A, indices, begin, t, fours, rows, s, G)


@overloads
def _produce(A, indices, begin, t, rows, s, G, coming, number, limit):
    """Gather the rows of one set and write the lower triangle of their Gram block, in float32 if ``limit`` allows it."""

    def double(A, indices, begin, t, rows, s, G, coming, number, limit):
        _block(A, indices, begin, t, rows, s, G, coming, number, zeros())

    def single(A, indices, begin, t, rows, s, G, coming, number, limit):
        largest = 0.0
        if limit > 0.0:
            _block(A, indices, begin, t, rows, s, G, coming, number, narrow_zeros())
            for i in range(t):
                largest = most(largest, G[i, i])
        if not TINY <= largest <= limit / t:
            _block(A, indices, begin, t, rows, s, G, coming, number, zeros())

    return single if A.dtype == types.float32 else double


@lean_call
def gather_and_gram(A, indices, starts, first, last, rows_out, gram_out, horizon=0, limit=0.0):
    """Write the rows and the Gram block of the sets first, …, last-1; set s is ``indices[starts[s]:starts[s+1]]``.

    For a set S of t examples, ``rows_out[s-first, :t, :d]`` becomes A_S and ``gram_out[s-first, :t, :t]`` the whole
    symmetric A_S A_Sᵀ; nothing else is written. The result has the same bits for every division into ranges.

    A is in C order, float64 or float32, and may be read-only; ``rows_out`` has its type or a wider one, fastest in the layout
    of :func:`buffer_for_rows`. Sets from ``last`` to ``horizon - 1`` may be prefetched: the number of sets if the same thread
    processes them next, 0 if another thread does. Products of float32 rows are summed in float32 if t max‖a_i‖² ≤ ``limit``.
    """
    horizon = most(last, horizon)
    for s in range(first, last):
        begin, t, place = starts[s], starts[s + 1] - starts[s], s - first
        if t == 0:
            continue
        coming, number = begin, 1  # prefetch nothing new, or (below) the first tile of the next set
        if s + 1 < horizon and starts[s + 2] > starts[s + 1]:
            coming, number = starts[s + 1], starts[s + 2] - starts[s + 1]
        G = gram_out[place]
        _produce(A, indices, begin, t, rows_out, place, G, coming, number, limit)
        for i in range(t):
            for j in range(i):
                G[j, i] = G[i, j]
