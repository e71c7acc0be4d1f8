"""Second stage of SDNA's rounds on dense data: margins and update of K models from one gathered block.

These two thin matrix products do not use BLAS: K and t are small, the rows are padded, and the result must not depend on the
build or the threads of BLAS. Compared with BLAS on one thread, they are mostly faster for one to three models (up to 4 times
for few rows; 1.3 times slower for 64 rows of length 50) and, on long rows, mostly also for ten models; they are slower for ten
models on rows of length 500 (up to 1.5 times) or 50 (up to 1.9 times).
"""

from __future__ import annotations

from dualnewton.kernels._jit import lean_call, least
from dualnewton.kernels._lanes import (
    LANES,
    combined,
    fma,
    fma_four,
    four,
    four_totals,
    load,
    load_four,
    places_of_rows,
    spread,
    spread_four,
    store,
    zeros,
)

_TILE = 512
"""Number of columns per tile of an update: those of four rows and three models (28 KiB) stay in the first-level cache."""


@lean_call
def _margins_of_one(rows, i, t, W, k, U):
    """U[i+r, k] = ⟨rows[i+r], W[k]⟩ for r = 0 … 3; a row past the last is replaced by the last, and its product dropped."""
    d = W.shape[1]
    places, w = places_of_rows(0, i, t - 1, rows.shape[1]), k * d
    u = v = four(zeros())  # two sums per row hide the latency of the multiply-add
    j = 0
    while j + 2 * LANES <= d:
        x, y = load(W, w + j, zeros()), load(W, w + j + LANES, zeros())
        u, v = fma_four(load_four(rows, places, j, x), x, u), fma_four(load_four(rows, places, j + LANES, y), y, v)
        j += 2 * LANES
    sums = four_totals(u, v)
    for r in range(least(4, t - i)):
        total = sums[r]
        for q in range(j, d):
            total += rows[i + r, q] * W[k, q]
        U[i + r, k] = total


@lean_call
def _margins_of_four(rows, i, t, W, k, U):
    """U[i+r, k+m] for r, m = 0 … 3: sixteen sums in registers, so that each number is read once for four of them."""
    last, last_model = t - 1, W.shape[0] - 1
    a0, a1, a2, a3 = rows[i], rows[least(i + 1, last)], rows[least(i + 2, last)], rows[least(i + 3, last)]
    w0, w1, w2, w3 = W[k], W[least(k + 1, last_model)], W[least(k + 2, last_model)], W[least(k + 3, last_model)]
    u00 = u01 = u02 = u03 = u10 = u11 = u12 = u13 = u20 = u21 = u22 = u23 = u30 = u31 = u32 = u33 = 0.0
    for j in range(w0.shape[0]):
        x0, x1, x2, x3 = w0[j], w1[j], w2[j], w3[j]
        a = a0[j]
        u00 += a * x0
        u01 += a * x1
        u02 += a * x2
        u03 += a * x3
        a = a1[j]
        u10 += a * x0
        u11 += a * x1
        u12 += a * x2
        u13 += a * x3
        a = a2[j]
        u20 += a * x0
        u21 += a * x1
        u22 += a * x2
        u23 += a * x3
        a = a3[j]
        u30 += a * x0
        u31 += a * x1
        u32 += a * x2
        u33 += a * x3
    u = ((u00, u01, u02, u03), (u10, u11, u12, u13), (u20, u21, u22, u23), (u30, u31, u32, u33))
    for r in range(least(4, t - i)):
        for m in range(least(4, last_model + 1 - k)):
            U[i + r, k + m] = u[r][m]


@lean_call
def margins_of_model(rows, t, W, U):
    """U[:t] = rows[:t, :d] Wᵀ for one model; :func:`block_margins` does the same, but takes longer to compile."""
    for i in range(0, t, 4):
        _margins_of_one(rows, i, t, W, 0, U)


@lean_call
def block_margins(rows, t, W, U):
    """U[:t] = rows[:t, :d] Wᵀ, for W of shape (K, d) and U of shape (≥ t, K); rows may be wider than d."""
    K = W.shape[0]
    for k in range(0, K, 4):
        if K - k > 1:
            for i in range(0, t, 4):
                _margins_of_four(rows, i, t, W, k, U)
        else:
            for i in range(0, t, 4):
                _margins_of_one(rows, i, t, W, k, U)


@lean_call
def _coefficient(H, i, t, k):
    """H[i, k], or zero for the padding rows of the last group of four."""
    return H[i, k] if i < t else 0.0


@lean_call
def _update_one(rows, i, t, H, k, W, lo, hi):
    """W[k] += Σ_r H[i+r, k] rows[i+r] on columns [lo, hi), r = 0 … 3: W is read and written once for four rows."""
    last, w = t - 1, k * W.shape[1]
    i1, i2, i3 = least(i + 1, last), least(i + 2, last), least(i + 3, last)
    places = places_of_rows(0, i, last, rows.shape[1])
    h0, h1 = H[i, k], _coefficient(H, i + 1, t, k)
    h2, h3 = _coefficient(H, i + 2, t, k), _coefficient(H, i + 3, t, k)
    h = spread_four(h0, h1, h2, h3)
    j = lo
    while j + LANES <= hi:
        store(W, w + j, combined(load_four(rows, places, j, zeros()), h, load(W, w + j, zeros())))
        j += LANES
    for q in range(j, hi):
        W[k, q] += (h0 * rows[i, q] + h1 * rows[i1, q]) + (h2 * rows[i2, q] + h3 * rows[i3, q])


@lean_call
def update_of_model(rows, t, H, W):
    """W += H[:t]ᵀ rows[:t, :d] for one model; :func:`block_update` does the same, but takes longer to compile."""
    d = W.shape[1]
    for lo in range(0, d, _TILE):
        hi = least(d, lo + _TILE)
        for i in range(0, t, 4):
            _update_one(rows, i, t, H, 0, W, lo, hi)


@lean_call
def _update_three(rows, i, t, H, k, W, lo, hi):
    """:func:`_update_one` for the models k, k+1, k+2, in explicit vectors: LLVM cannot know that the outputs do not overlap."""
    last = t - 1
    a0, a1, a2 = rows[i, lo:hi], rows[least(i + 1, last), lo:hi], rows[least(i + 2, last), lo:hi]
    a3, w0, w1, w2 = rows[least(i + 3, last), lo:hi], W[k, lo:hi], W[k + 1, lo:hi], W[k + 2, lo:hi]
    h00, h01, h02 = H[i, k], H[i, k + 1], H[i, k + 2]
    h10, h11, h12 = _coefficient(H, i + 1, t, k), _coefficient(H, i + 1, t, k + 1), _coefficient(H, i + 1, t, k + 2)
    h20, h21, h22 = _coefficient(H, i + 2, t, k), _coefficient(H, i + 2, t, k + 1), _coefficient(H, i + 2, t, k + 2)
    h30, h31, h32 = _coefficient(H, i + 3, t, k), _coefficient(H, i + 3, t, k + 1), _coefficient(H, i + 3, t, k + 2)
    v00, v01, v02 = spread(h00), spread(h01), spread(h02)
    v10, v11, v12 = spread(h10), spread(h11), spread(h12)
    v20, v21, v22 = spread(h20), spread(h21), spread(h22)
    v30, v31, v32 = spread(h30), spread(h31), spread(h32)
    j, whole, zero = 0, w0.shape[0] // LANES * LANES, zeros()
    while j < whole:
        x0, x1, x2, x3 = load(a0, j, zero), load(a1, j, zero), load(a2, j, zero), load(a3, j, zero)
        store(w0, j, fma(x3, v30, fma(x2, v20, fma(x1, v10, fma(x0, v00, load(w0, j, zero))))))
        store(w1, j, fma(x3, v31, fma(x2, v21, fma(x1, v11, fma(x0, v01, load(w1, j, zero))))))
        store(w2, j, fma(x3, v32, fma(x2, v22, fma(x1, v12, fma(x0, v02, load(w2, j, zero))))))
        j += LANES
    for q in range(whole, w0.shape[0]):
        w0[q] += h00 * a0[q] + h10 * a1[q] + h20 * a2[q] + h30 * a3[q]
        w1[q] += h01 * a0[q] + h11 * a1[q] + h21 * a2[q] + h31 * a3[q]
        w2[q] += h02 * a0[q] + h12 * a1[q] + h22 * a2[q] + h32 * a3[q]


@lean_call
def block_update(rows, t, H, W):
    """W += H[:t]ᵀ rows[:t, :d], for W of shape (K, d) and H of shape (≥ t, K); rows may be wider than d."""
    K, d = W.shape
    threes = K // 3 * 3
    for lo in range(0, d, _TILE):
        hi = least(d, lo + _TILE)
        for k in range(0, threes, 3):
            for i in range(0, t, 4):
                _update_three(rows, i, t, H, k, W, lo, hi)
        for k in range(threes, K):
            for i in range(0, t, 4):
                _update_one(rows, i, t, H, k, W, lo, hi)
