"""Kernels that add the sums of parts, in the order of the parts, by ranges that threads take one after the other.

    totals(counter, step, width, sums, out)     out[k, j] = Σ_p sums[p, j·width + k], for ``step`` numbers j at a time
    gram_totals(counter, step, sums, out)       out = Σ_p sums[p], symmetric, of which sums[p] has the entries on and above the
                                                diagonal; ``step`` rows at a time

All threads call a kernel with the same arguments; each takes the next range from the counter until none is left.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import jit
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.team import TeamKernel


@jit
def _add(more, total):
    for i in range(total.size):
        total[i] += more[i]


@jit
def _totals(counter, step, width, sums, out):
    room = np.empty(step * width)
    low = step * next_number(counter)
    while low < out.shape[1]:
        high = min(low + step, out.shape[1])
        own = room[: (high - low) * width]
        own[:] = 0.0
        for p in range(sums.shape[0]):
            _add(sums[p, low * width : high * width], own)
        for k in range(out.shape[0]):
            row = out[k, low:high]
            for j in range(row.size):
                row[j] = own[j * width + k]
        low = step * next_number(counter)


@jit
def _gram_totals(counter, step, sums, out):
    d = out.shape[0]
    room = np.empty((step, d))
    low = step * next_number(counter)
    while low < d:
        high = min(low + step, d)
        room[:] = 0.0
        for p in range(sums.shape[0]):
            for j in range(low, high):
                _add(sums[p, j, j:], room[j - low, j:])
        for j in range(low, high):
            for k in range(j, d):  # a loop: assigning rows would also compile the message for unequal shapes
                out[j, k] = room[j - low, k]
        for k in range(low, d):
            for j in range(low, min(high, k)):
                out[k, j] = room[j - low, k]
        low = step * next_number(counter)


totals, gram_totals = TeamKernel(_totals), TeamKernel(_gram_totals)
