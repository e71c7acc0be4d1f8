"""Products of the rows that SDNA's rounds on dense data have gathered: with each other, with the models, and their combinations.

These thin matrix products do not use BLAS: K and t are small, the rows are padded, and the result must not depend on the build or
the threads of BLAS.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import lean_call, least

_TILE = 512
"""Number of columns per tile of an update: those of four rows and of a model (20 KiB) stay in the first-level cache."""


@lean_call
def add_products(X, i, m, Y, k, n, low, high, out):
    """Add the products over columns [low, high) of rows i … i+3 of X with rows k … k+3 of Y to ``out``: sixteen sums at a time.

    X has m rows and Y has n; a row past the last is replaced by the last, and its products are dropped.
    """
    a0, a1 = X[i, low:high], X[least(i + 1, m - 1), low:high]
    a2, a3 = X[least(i + 2, m - 1), low:high], X[least(i + 3, m - 1), low:high]
    w0, w1 = Y[k, low:high], Y[least(k + 1, n - 1), low:high]
    w2, w3 = Y[least(k + 2, n - 1), low:high], Y[least(k + 3, n - 1), low:high]
    u00 = u01 = u02 = u03 = u10 = u11 = u12 = u13 = u20 = u21 = u22 = u23 = u30 = u31 = u32 = u33 = 0.0
    for j in range(w0.shape[0]):
        x0, x1, x2, x3 = w0[j], w1[j], w2[j], w3[j]
        a = np.float64(a0[j])
        u00 += a * x0
        u01 += a * x1
        u02 += a * x2
        u03 += a * x3
        a = np.float64(a1[j])
        u10 += a * x0
        u11 += a * x1
        u12 += a * x2
        u13 += a * x3
        a = np.float64(a2[j])
        u20 += a * x0
        u21 += a * x1
        u22 += a * x2
        u23 += a * x3
        a = np.float64(a3[j])
        u30 += a * x0
        u31 += a * x1
        u32 += a * x2
        u33 += a * x3
    u = ((u00, u01, u02, u03), (u10, u11, u12, u13), (u20, u21, u22, u23), (u30, u31, u32, u33))
    for r in range(least(4, m - i)):
        for c in range(least(4, n - k)):
            out[i + r, k + c] += u[r][c]


@lean_call
def _margins_of_one(rows, i, t, w, k, U):
    """U[i+r, k] = ⟨rows[i+r], w⟩ for r = 0 … 3; a row past the last is replaced by the last, and its product dropped."""
    a0, a1, a2, a3 = rows[i], rows[least(i + 1, t - 1)], rows[least(i + 2, t - 1)], rows[least(i + 3, t - 1)]
    u0 = u1 = u2 = u3 = 0.0
    for j in range(w.shape[0]):
        x = w[j]
        u0 += a0[j] * x
        u1 += a1[j] * x
        u2 += a2[j] * x
        u3 += a3[j] * x
    u = (u0, u1, u2, u3)
    for r in range(least(4, t - i)):
        U[i + r, k] = u[r]


@lean_call
def block_margins(rows, t, W, U):
    """U[:t] = rows[:t, :d] Wᵀ, for W of shape (K, d) and U of shape (≥ t, K); rows may be wider than d."""
    K, d = W.shape
    for k in range(0, K, 4):
        if K - k > 1:
            for i in range(t):
                for m in range(k, least(K, k + 4)):
                    U[i, m] = 0.0
            for i in range(0, t, 4):
                add_products(rows, i, t, W, k, K, 0, d, U)
        else:
            for i in range(0, t, 4):
                _margins_of_one(rows, i, t, W[k], k, U)


@lean_call
def block_update(rows, t, H, W):
    """W += H[:t]ᵀ rows[:t, :d], for W of shape (K, d) and H of shape (≥ t, K); rows may be wider than d.

    W is read and written once for four rows.
    """
    K, d = W.shape
    for low in range(0, d, _TILE):
        high = least(d, low + _TILE)
        for i in range(0, t // 4 * 4, 4):
            a0, a1, a2, a3 = rows[i, low:high], rows[i + 1, low:high], rows[i + 2, low:high], rows[i + 3, low:high]
            for k in range(K):
                w, h0, h1, h2, h3 = W[k, low:high], H[i, k], H[i + 1, k], H[i + 2, k], H[i + 3, k]
                for j in range(w.size):
                    w[j] += (h0 * a0[j] + h1 * a1[j]) + (h2 * a2[j] + h3 * a3[j])
        for i in range(t // 4 * 4, t):
            a = rows[i, low:high]
            for k in range(K):
                w, h = W[k, low:high], H[i, k]
                for j in range(w.size):
                    w[j] += h * a[j]
