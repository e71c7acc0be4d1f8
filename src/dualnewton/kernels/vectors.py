"""Kernels over long vectors, given by their addresses, in parts of ``step`` numbers that threads take one after the other.

    products(pairs, length, step, counter, sums)            sums[p, k] = the product of the two vectors pairs[k], in part p
    combination(factors, vectors, step, counter, out)       out = Σ_k factors[k] vectors[k]
    combination_along(factors, vectors, along, step, counter, out, sums)
        the same, and sums[p] = the product of ``along`` with part p of out
    pair(now, before, along, rows, step, counter, out, sums)
        out[k] = now[k] − before[k] of three vectors; in part p, the products of the rows, then of out[0] and out[1], with out[2]
        (sums[p, 2k]) and with ``along`` (sums[p, 2k + 1]), then the squares of out[0] and out[2]
    penalised(l, x, ridge, scale, step, counter, g, sums)   g = l + ridge ∘ x; sums of ridge x², g² and scale g², in each part

The sums of the parts are kept apart, so that they do not depend on which thread computed which part.
"""

from __future__ import annotations

from typing import Any

from numba import float64, intp, types
from numba.extending import intrinsic

from dualnewton.kernels._jit import lean, least, prefetch
from dualnewton.kernels._memory import array_at, view
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.team import TeamKernel

FETCHED = 128
"""Numbers that are prefetched (1 KiB)."""


@intrinsic
def pointer(typingctx: Any, address: Any) -> Any:
    """Return an address as a pointer to float64 numbers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    return types.CPointer(float64)(intp), codegen


@lean
def _fetch(address, size):
    """Prefetch the first numbers of the next vector: the processor recognises only what follows them."""
    vector = array_at(pointer(address), size)
    for i in range(0, least(size, FETCHED), 8):
        prefetch(vector, i)


@lean
def _product(u, v):
    total = 0.0
    for i in range(u.size):
        total += u[i] * v[i]
    return total


@lean
def _products(pairs, length, step, counter, sums):
    part = next_number(counter)
    while part < sums.shape[0]:
        low = part * step
        size = least(step, length - low)
        for k in range(pairs.shape[0]):
            if k + 1 < pairs.shape[0]:
                _fetch(pairs[k + 1, 0] + 8 * low, size)
            u, v = array_at(pointer(pairs[k, 0] + 8 * low), size), array_at(pointer(pairs[k, 1] + 8 * low), size)
            sums[part, k] = _product(u, v)
        part = next_number(counter)


@lean
def _set_multiple(factor, v, total):
    for i in range(total.size):
        total[i] = factor * v[i]


@lean
def _add_multiple(factor, v, total):
    for i in range(total.size):
        total[i] += factor * v[i]


@lean
def _combine(factors, vectors, low, own):
    _set_multiple(factors[0], array_at(pointer(vectors[0] + 8 * low), own.size), own)
    for k in range(1, factors.size):
        if k + 1 < factors.size:
            _fetch(vectors[k + 1] + 8 * low, own.size)
        _add_multiple(factors[k], array_at(pointer(vectors[k] + 8 * low), own.size), own)


@lean
def _combination(factors, vectors, step, counter, out):
    low = step * next_number(counter)
    while low < out.size:
        own = view(out, low, least(step, out.size - low))
        _combine(factors, vectors, low, own)
        low = step * next_number(counter)


@lean
def _penalised(unpenalised, x, ridge, scale, step, counter, g, sums):
    part = next_number(counter)
    while part < sums.shape[0]:
        square, size, scaled = 0.0, 0.0, 0.0
        for j in range(part * step, least(part * step + step, g.size)):
            shrinkage = ridge[j] * x[j]
            gradient = unpenalised[j] + shrinkage
            g[j] = gradient
            square += shrinkage * x[j]
            size += gradient * gradient
            scaled += scale[j] * gradient * gradient
        sums[part, 0], sums[part, 1], sums[part, 2] = square, size, scaled
        part = next_number(counter)


@lean
def _combination_along(factors, vectors, along, step, counter, out, sums):
    part = next_number(counter)
    while part < sums.size:
        low = part * step
        own = view(out, low, least(step, out.size - low))
        _combine(factors, vectors, low, own)
        sums[part] = _product(view(along, low, own.size), own)
        part = next_number(counter)


@lean
def _subtract(now, before, out):
    for i in range(out.size):
        out[i] = now[i] - before[i]


@lean
def _pair(now, before, along, rows, step, counter, out, sums):
    part, length, m = next_number(counter), out.shape[1], rows.size
    while part < sums.shape[0]:
        low = part * step
        size = least(step, length - low)
        for k in range(3):
            ends = array_at(pointer(now[k] + 8 * low), size), array_at(pointer(before[k] + 8 * low), size)
            _subtract(ends[0], ends[1], view(out, k * length + low, size))
        y, g = view(out, 2 * length + low, size), view(along, low, size)
        for k in range(m):
            if k + 1 < m:
                _fetch(rows[k + 1] + 8 * low, size)
            row = array_at(pointer(rows[k] + 8 * low), size)
            sums[part, 2 * k], sums[part, 2 * k + 1] = _product(row, y), _product(row, g)
        for k in range(2):
            row = view(out, k * length + low, size)
            sums[part, 2 * (m + k)], sums[part, 2 * (m + k) + 1] = _product(row, y), _product(row, g)
        s = view(out, low, size)
        sums[part, 2 * m + 4], sums[part, 2 * m + 5] = _product(s, s), _product(y, y)
        part = next_number(counter)


products, combination, penalised = TeamKernel(_products), TeamKernel(_combination), TeamKernel(_penalised)
combination_along, pair = TeamKernel(_combination_along), TeamKernel(_pair)
