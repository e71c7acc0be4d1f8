"""Products of a block of rows with the coefficients of several models, and sums of its rows, for the kernels of passes."""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import lean, lean_call, least, overloads, prefetch
from dualnewton.kernels._lanes import (
    LANES,
    add_products,
    add_totals,
    combined,
    fetch_to_l2,
    fma,
    load_four,
    places_of_rows,
    sixteen,
    spread,
    spread_four,
    store,
    zeros,
)
from dualnewton.kernels._lanes import load as load_lanes
from dualnewton.kernels._memory import address, borrowed, give_back, view
from dualnewton.kernels.blas import call_gemm

FEW = 2
"""Number of columns up to which rows are multiplied by plain loops: for so few, BLAS and padded vector registers are slower."""

DOTS = 12
"""Number of columns up to which margins of dense rows are products of vectors, four columns at a time. For 4 columns these take
0.3 of the time of BLAS on rows of 50 to 100 entries, 0.6 on rows of 10 or 400; for 10 columns 0.5 to 1.2."""

PAST = 2
"""Blocks of four dense rows by which rows are prefetched for margins: four rows are read at a time, which the processor does not
predict. Margins of four columns take 0.7 of the time without it."""

SUMS = 12
"""Number of columns up to which sums of dense rows are sums of vectors, two columns at a time. With 3 to 12 columns these take
0.3 to 0.7 of the time of BLAS with vectors of 256 bits, on rows of 50 to 1000 entries (rows of 12: up to 1.0); with 512 bits, 0.8
to 1.6 (up to 8 columns, rows of 50)."""

AHEAD = np.uintp(24)
"""Number of entries by which the coefficients of a sparse row's features are prefetched if there are several columns: their
matrix exceeds the second-level cache."""


CACHED, LINE = 1 << 19, 8
"""Numbers of a gradient of several columns (4 MiB) above which the places of the next sparse row are prefetched, and those of a
cache line. With 29 MB of ten columns this takes 0.83 of the time, with 10 MB of ten the same, with 6 MB of five 0.85, with 3 MB
of three 1.3 times."""


@overloads
def _float64_rows(data, first, last, buffer):
    """Return the address of dense rows in float64: their own, or that of the copy in ``buffer``."""

    def own(data, first, last, buffer):
        return address(data) + 8 * data.shape[1] * first

    def copied(data, first, last, buffer):
        for i in range(first, last):
            for j in range(data.shape[1]):
                buffer[i - first, j] = data[i, j]
        return address(buffer)

    return own if data.dtype.bitwidth == 64 else copied


@lean
def _sparse_dot(data, columns, starts, i, w):
    """a_iᵀw by four partial sums, since a single sum would wait for each addition."""
    one, two, three, four = np.uintp(1), np.uintp(2), np.uintp(3), np.uintp(4)
    p, end = np.uintp(starts[i]), np.uintp(starts[i + 1])
    u0 = u1 = u2 = u3 = 0.0
    while p + four <= end:
        u0 += data[p] * w[columns[p]]
        u1 += data[p + one] * w[columns[p + one]]
        u2 += data[p + two] * w[columns[p + two]]
        u3 += data[p + three] * w[columns[p + three]]
        p += four
    while p < end:
        u0 += data[p] * w[columns[p]]
        p += one
    return (u0 + u1) + (u2 + u3)


# The two loops over dense rows below are functions of their own, with views of what they read: inlined into a kernel, where
# registers are short, margins of one column took 1.7 times as long on rows of 100 entries.


@lean_call
def _one_margin(data, first, last, W, k, Z):
    """Z[k, i] = a_iᵀw_k for dense rows."""
    d, m = W.shape[1], last - first
    rows, w, z = view(data, first * d, (m, d)), view(W, k * d, d), view(Z, k * Z.shape[1] + first, m)
    for i in range(m):
        total = 0.0
        for j in range(d):
            total += rows[i, j] * w[j]
        z[i] = total


@lean_call
def _four_margins(data, first, last, W, k, Z):
    """Z[k+m, i] = a_iᵀw_{k+m} for m = 0 … 3, of four dense rows at a time: sixteen sums in registers."""
    d, n, i = W.shape[1], Z.shape[1], first
    models, whole = places_of_rows(0, k, k + 3, d), d - d % LANES
    # The coefficients of the features that fill no register, after zeros for features before these.
    rest, of_rest = borrowed((4, LANES), 0.0), places_of_rows(0, 0, 3, LANES)
    for m in range(4):
        for j in range(LANES):
            rest[m, j] = W[k + m, d - LANES + j] if d - LANES + j >= whole else 0.0
    while i + 4 <= last and d >= LANES:
        rows, sums, coming = places_of_rows(0, i, i + 3, d), sixteen(zeros()), (i + 4 * PAST) * d
        for j in range(0, whole, LANES):  # four rows have twice as many cache lines as a row has vectors
            fetch_to_l2(data, coming + 2 * j)
            fetch_to_l2(data, coming + 2 * j + 2 * d)
            sums = add_products(load_four(W, models, j, zeros()), load_four(data, rows, j, zeros()), sums)
        if whole < d:
            sums = add_products(load_four(rest, of_rest, 0, zeros()), load_four(data, rows, d - LANES, zeros()), sums)
        for m in range(4):
            store(Z, (k + m) * n + i, zeros())
        add_totals(Z, k, i, sums)
        i += 4
    give_back(rest)
    for m in range(k, k + 4):
        _one_margin(data, i, last, W, m, Z)


@overloads
def margins(data, columns, starts, first, last, W, blas, buffer, Z):
    """Z[k, i] = a_iᵀw_k for the rows from first to last; W is K×d for dense rows, d×K for sparse ones."""

    def dense(data, columns, starts, first, last, W, blas, buffer, Z):
        K, d = W.shape
        if K <= DOTS:
            fours = K // 4 * 4
            for k in range(0, fours, 4):
                _four_margins(data, first, last, W, k, Z)
            for k in range(fours, K):
                _one_margin(data, first, last, W, k, Z)
        else:
            rows = _float64_rows(data, first, last, buffer)
            # In column-major order Z = Aᵀ Wᵀ with A of d×m.
            call_gemm(blas[0], 1, last - first, K, d, rows, d, address(W), d, 0.0, address(Z) + 8 * first, Z.shape[1])

    def sparse(data, columns, starts, first, last, W, blas, buffer, Z):
        K, end = W.shape[1], np.uintp(columns.size - 1)
        if K == 1:
            w = view(W, 0, W.size)
            for i in range(first, last):
                Z[0, i] = _sparse_dot(data, columns, starts, i, w)
        elif K == FEW:
            for i in range(first, last):
                total = other = 0.0
                for p in row.entries(starts, i):
                    total += data[p] * W[columns[p], 0]
                    other += data[p] * W[columns[p], 1]
                Z[0, i], Z[1, i] = total, other
        else:
            for i in range(first, last):
                for k in range(0, K, 4 * LANES):
                    u0 = u1 = u2 = u3 = zeros()
                    two, three, four = k + LANES < K, k + 2 * LANES < K, k + 3 * LANES < K
                    furthest = least(K - k, 4 * LANES) - 1
                    for p in row.entries(starts, i):
                        soon = np.intp(columns[least(p + AHEAD, end)]) * K + k
                        prefetch(W, soon)
                        prefetch(W, soon + furthest)
                        value, place = spread(np.float64(data[p])), np.intp(columns[p]) * K + k
                        u0 = fma(load_lanes(W, place, u0), value, u0)
                        if two:
                            u1 = fma(load_lanes(W, place + LANES, u0), value, u1)
                        if three:
                            u2 = fma(load_lanes(W, place + 2 * LANES, u0), value, u2)
                        if four:
                            u3 = fma(load_lanes(W, place + 3 * LANES, u0), value, u3)
                    store(buffer, k, u0)
                    if two:
                        store(buffer, k + LANES, u1)
                    if three:
                        store(buffer, k + 2 * LANES, u2)
                    if four:
                        store(buffer, k + 3 * LANES, u3)
                for k in range(Z.shape[0]):
                    Z[k, i] = buffer[0, k]

    return dense if data.ndim == 2 else sparse


@lean_call
def _add_fours(data, first, last, R, k, at, G):
    """g_k += Σ_i R[k, at + i − first] a_i over dense rows, four at a time: the sum is read and written once for them."""
    d, whole, g = G.shape[1], G.shape[1] - G.shape[1] % LANES, k * G.shape[1]
    for i in range(first, last, 4):
        p = at + i - first
        r0, r1, r2, r3 = R[k, p], R[k, p + 1], R[k, p + 2], R[k, p + 3]
        if r0 != 0.0 or r1 != 0.0 or r2 != 0.0 or r3 != 0.0:
            rows, r = places_of_rows(0, i, i + 3, d), spread_four(r0, r1, r2, r3)
            for j in range(0, whole, LANES):
                store(G, g + j, combined(load_four(data, rows, j, zeros()), r, load_lanes(G, g + j, zeros())))
            for j in range(whole, d):
                G[k, j] += (r0 * data[i, j] + r1 * data[i + 1, j]) + (r2 * data[i + 2, j] + r3 * data[i + 3, j])


@lean_call
def _add_fours_twice(data, first, last, R, k, at, G):
    """The same for k and k + 1: the rows are read once for two sums, whose factors take half of 16 registers."""
    d, whole, g, h = G.shape[1], G.shape[1] - G.shape[1] % LANES, k * G.shape[1], (k + 1) * G.shape[1]
    for i in range(first, last, 4):
        rows, p = places_of_rows(0, i, i + 3, d), at + i - first
        r0, r1, r2, r3 = R[k, p], R[k, p + 1], R[k, p + 2], R[k, p + 3]
        s0, s1, s2, s3 = R[k + 1, p], R[k + 1, p + 1], R[k + 1, p + 2], R[k + 1, p + 3]
        r, s = spread_four(r0, r1, r2, r3), spread_four(s0, s1, s2, s3)
        for j in range(0, whole, LANES):
            x = load_four(data, rows, j, zeros())
            store(G, g + j, combined(x, r, load_lanes(G, g + j, zeros())))
            store(G, h + j, combined(x, s, load_lanes(G, h + j, zeros())))
        for j in range(whole, d):
            G[k, j] += (r0 * data[i, j] + r1 * data[i + 1, j]) + (r2 * data[i + 2, j] + r3 * data[i + 3, j])
            G[k + 1, j] += (s0 * data[i, j] + s1 * data[i + 1, j]) + (s2 * data[i + 2, j] + s3 * data[i + 3, j])


@lean_call
def gather_range(data, columns, begins, stops, first, last, at, R, buffer, G):
    """The sum of :func:`gather` for several columns of sparse rows, over the entries from begins[i] to stops[i] of each row i."""
    M, step, fetches = G.shape[1], buffer.shape[0], G.size > CACHED
    for k in range(R.shape[0], M):
        for s in range(step):
            buffer[s, k] = 0.0  # padding: numbers left in this memory may be subnormal, and their products slow
    for low in range(first, last, step):
        # The factors of a row side by side. They are read much later than they are written, so that no load waits for the writes.
        high = least(low + step, last)
        for k in range(R.shape[0]):
            for i in range(low, high):
                buffer[i - low, k] = R[k, at + i - first]
        for i in range(low, high):
            if fetches and i + 1 < last:
                for p in range(np.uintp(begins[i + 1]), np.uintp(stops[i + 1])):
                    for k in range(0, M, LINE):
                        prefetch(G, np.intp(columns[p]) * M + k)
                    prefetch(G, np.intp(columns[p]) * M + M - 1)
            for k in range(0, M, 4 * LANES):
                two, three, four = k + LANES < M, k + 2 * LANES < M, k + 3 * LANES < M
                own = (i - low) * M + k
                u0 = load_lanes(buffer, own, zeros())
                u1 = load_lanes(buffer, own + LANES * two, u0)
                u2 = load_lanes(buffer, own + 2 * LANES * three, u0)
                u3 = load_lanes(buffer, own + 3 * LANES * four, u0)
                for p in range(np.uintp(begins[i]), np.uintp(stops[i])):
                    value, place = spread(np.float64(data[p])), np.intp(columns[p]) * M + k
                    store(G, place, fma(value, u0, load_lanes(G, place, u0)))
                    if two:
                        store(G, place + LANES, fma(value, u1, load_lanes(G, place + LANES, u0)))
                    if three:
                        store(G, place + 2 * LANES, fma(value, u2, load_lanes(G, place + 2 * LANES, u0)))
                    if four:
                        store(G, place + 3 * LANES, fma(value, u3, load_lanes(G, place + 3 * LANES, u0)))


@overloads
def gather(data, columns, starts, first, last, at, R, blas, buffer, G, cached):
    """g_k += Σ_i R[k, at + i − first] a_i over the rows from first to last; G is M×d for dense rows, d×M for sparse ones.

    ``cached`` says that the rows were just read.
    """

    def dense(data, columns, starts, first, last, at, R, blas, buffer, G, cached):
        (M, d), shift = G.shape, at - first
        if M <= SUMS:
            # For few sums, rows that come from memory are read one after the other, so that the processor prefetches them.
            fours = first + (last - first) // 4 * 4 if cached or M > FEW else first
            for k in range(0, M - 1, 2):
                _add_fours_twice(data, first, fours, R, k, at, G)
            if M % 2 == 1:
                _add_fours(data, first, fours, R, M - 1, at, G)
            for i in range(fours, last):
                for k in range(M):
                    if R[k, i + shift] != 0.0:
                        row.add(data, columns, starts, i, R[k, i + shift], G[k])
        else:
            rows = _float64_rows(data, first, last, buffer)
            # In column-major order G += A R with A of d×m.
            call_gemm(blas[0], 0, d, M, last - first, rows, d, address(R) + 8 * at, R.shape[1], 1.0, address(G), d)

    def sparse(data, columns, starts, first, last, at, R, blas, buffer, G, cached):
        M, shift = G.shape[1], at - first
        if M == 1:
            g = view(G, 0, G.size)
            for i in range(first, last):
                factor = R[0, i + shift]
                if factor != 0.0:
                    for p in row.entries(starts, i):
                        g[columns[p]] += factor * data[p]
        elif M == FEW:
            for i in range(first, last):
                factor, other = R[0, i + shift], R[1, i + shift]
                for p in row.entries(starts, i):
                    G[columns[p], 0] += factor * data[p]
                    G[columns[p], 1] += other * data[p]
        else:
            n = starts.size - 1
            gather_range(data, columns, view(starts, 0, n), view(starts, 1, n), first, last, at, R, buffer, G)

    return dense if data.ndim == 2 else sparse
