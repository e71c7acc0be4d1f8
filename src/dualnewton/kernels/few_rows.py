"""Kernels over a few sparse rows of many features, for Woodbury's formula, by parts that threads take one after the other.

    gram(*rows, *columns, counter, step, out)           out = A Aᵀ, for ``step`` rows at a time; ``columns`` are the rows of Aᵀ
    inside(*rows, counter, step, roots, g, out)         out_i = roots_i Σ_j a_ij g_j, for ``step`` rows at a time
    outside(values, places, counter, step, ends, u, g, inverse, out)
        out_j = inverse_j g_j − Σ_i a_ij u_i, for ``step`` features at a time; the entries are in the order of their features:
        entry p is values[p], of row places[0, p] and feature places[1, p], and those of part s begin at ends[s]

Each number of the result is a sum of its own, so that no bit depends on the threads.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import lean, least
from dualnewton.kernels._memory import view
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.team import TeamKernel


@lean
def _inside(data, columns, starts, counter, step, roots, g, out):
    low = step * next_number(counter)
    while low < out.size:
        for i in range(low, least(low + step, out.size)):
            total = 0.0
            for p in row.entries(starts, i):
                total += data[p] * g[columns[p]]
            out[i] = roots[i] * total
        low = step * next_number(counter)


@lean
def _outside(values, places, counter, step, ends, u, g, inverse, out):
    part = next_number(counter)
    while part < ends.size - 1:
        for j in range(part * step, least(part * step + step, out.size)):
            out[j] = inverse[j] * g[j]
        for p in range(np.uintp(ends[part]), np.uintp(ends[part + 1])):
            out[np.uintp(places[1, p])] -= values[p] * u[np.uintp(places[0, p])]
        part = next_number(counter)


@lean
def _gram(data, columns, starts, values, others, firsts, counter, step, out):
    n, low = out.shape[0], step * next_number(counter)
    while low < n:
        for i in range(low, least(low + step, n)):
            own = view(out, i * n, n)
            for k in range(n):
                own[k] = 0.0
            for p in row.entries(starts, i):
                entry = data[p]
                for q in row.entries(firsts, columns[p]):
                    own[others[q]] += entry * values[q]
        low = step * next_number(counter)


inside, outside, gram = TeamKernel(_inside), TeamKernel(_outside), TeamKernel(_gram)
