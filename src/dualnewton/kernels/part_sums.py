"""Kernels that add the sums of parts, in the order of the parts, or place coefficients, by ranges that threads take one by one.

    totals(counter, step, width, sums, out)     out[k, j] = Σ_p sums[p, j·width + k], for ``step`` numbers j at a time
    gram_totals(counter, step, sums, out)       out = Σ_p sums[p], symmetric, of which sums[p] has the entries on and above the
                                                diagonal; ``step`` rows at a time
    interleaved(counter, step, rows, out)       out[j, k] = rows[k, j], and zero for further k, for ``step`` numbers j at a time

All threads call a kernel with the same arguments; each takes the next range from the counter until none is left.
"""

from __future__ import annotations

from dualnewton.kernels._jit import lean, least
from dualnewton.kernels._memory import borrowed, give_back, view
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.team import TeamKernel


@lean
def _add(more, total):
    for i in range(total.size):
        total[i] += more[i]


@lean
def _totals(counter, step, width, sums, out):
    buffer, total = borrowed(step * width, 0.0), out.shape[1]
    low = step * next_number(counter)
    while low < total:
        size = least(step, total - low)
        own = view(buffer, 0, size * width)
        for i in range(own.size):
            own[i] = 0.0
        for p in range(sums.shape[0]):
            _add(view(sums, p * sums.shape[1] + low * width, own.size), own)
        for k in range(out.shape[0]):
            row = view(out, k * total + low, size)
            for j in range(size):
                row[j] = own[j * width + k]
        low = step * next_number(counter)
    give_back(buffer)


@lean
def _gram_totals(counter, step, sums, out):
    d = out.shape[0]
    buffer = borrowed((step, d), 0.0)
    low = step * next_number(counter)
    while low < d:
        high = least(low + step, d)
        for j in range(high - low):
            for k in range(d):
                buffer[j, k] = 0.0
        for p in range(sums.shape[0]):
            for j in range(low, high):
                _add(view(sums, (p * d + j) * d + j, d - j), view(buffer, (j - low) * d + j, d - j))
        for j in range(low, high):
            for k in range(j, d):
                out[j, k] = buffer[j - low, k]
        for k in range(low, d):
            for j in range(low, least(high, k)):
                out[k, j] = buffer[j - low, k]
        low = step * next_number(counter)
    give_back(buffer)


@lean
def _interleaved(counter, step, rows, out):
    (K, d), width = rows.shape, out.shape[1]
    low = step * next_number(counter)
    while low < d:
        size = least(step, d - low)
        own = view(out, low * width, (size, width))
        for k in range(K):
            row = view(rows, k * d + low, size)
            for j in range(size):
                own[j, k] = row[j]
        for k in range(K, width):
            for j in range(size):
                own[j, k] = 0.0
        low = step * next_number(counter)


totals, gram_totals, interleaved = TeamKernel(_totals), TeamKernel(_gram_totals), TeamKernel(_interleaved)
