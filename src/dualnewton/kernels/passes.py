"""Kernels for passes over the rows, in parts that threads take one after the other, without the interpreter's lock.

    evaluate(*rows, parts, counter, ends, step, W, b, calls, blas, Z, kept, values, slopes, R, shape, G)
        margins Z, the functions of rows in ``calls``, their sums in each block, and G[p] = Σ R[k, i] a_i of each part p, with
        this shape; or the factors R of all rows instead of G, if R has their size
    gather_parts(*rows, parts, counter, ends, blas, R, shape, bounds, stride, cuts, G)
        G[p] from factors R of all rows, by ranges of its rows: range s begins at bounds[s]. For sparse rows and several columns
        these are ranges of features, for which threads read the same rows; each takes the entries of row i from
        cuts[s * stride + i] to cuts[(s + 1) * stride + i].
    cut(*rows, ends, counter, bounds, cuts)          these places, for rows whose columns increase; stride is the number of rows
    diagonal(*rows, ends, counter, weights, d, out)  out[p, j] = Σ weight a_j² of each part p
    row_scores(*rows, ends, counter, scale, out)     out_i = Σ_j scale_j a_ij²
    gram(*rows, ends, counter, step, indices, weights, blas, like, border, H)
        H[p] = Σ weight a aᵀ of each part p, on and above the diagonal, by products in the type of ``like``, and Σ weight a;
        below the diagonal are zeros
    curvature(*rows, indices, weights, H, border)    H += Σ weight a aᵀ below the diagonal, border += Σ weight a
    row_sums(*rows, weights, places, out)            out += Σ weight a, without rows of weight zero; places is a buffer of n + 1

Part p has the rows from ends[p] to ends[p + 1]; in the first two kernels the blocks of rows from parts[p] to parts[p + 1], and
block s has the rows from ends[s] to ends[s + 1]. All threads call a kernel with the same arguments; each takes the next part from
the counter until none is left. Sums are accumulated in float64 for every storage type, and those of the parts are kept apart, so
that they do not depend on which thread computed which part. Those to which a thread adds for each row have cache lines of their
own, since a line that two threads write to moves between their cores at each write: G, out and border have longer rows than they
use, and sums of numbers are held in registers.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels import rows as row
from dualnewton.kernels._jit import lean, least, overloads
from dualnewton.kernels._memory import address, borrowed, give_back, view
from dualnewton.kernels.atomic import next_number
from dualnewton.kernels.blas import call_single_syrk, call_syrk
from dualnewton.kernels.elementary import number_of
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.products import FEW as FEW
from dualnewton.kernels.products import gather, gather_range, margins
from dualnewton.kernels.row_functions import call
from dualnewton.kernels.team import TeamKernel


@lean
def _block(data, columns, starts, low, high, W, b, calls, blas, buffer, unkept, at, Z, kept, values, slopes, R):
    """Margins and functions of the rows from low to high; their sums; the factors of row ``low`` are in column ``at`` of R."""
    n, K, width = Z.shape[1], b.size, R.shape[1]
    if W.size > 0:
        margins(data, columns, starts, low, high, W, blas, buffer, Z)
    for k in range(K):
        for i in range(low, high):
            Z[k, i] = b[k] + (Z[k, i] if W.size > 0 else 0.0)
    for s in range(calls.shape[0]):
        slope, held, factor = calls[s, 9], calls[s, 10], calls[s, 11]
        if calls[s, 0] == 0:
            for i in range(high - low):
                R[factor, at + i] = R[held, at + i] / 3.0
        else:
            values[calls[s, 1]] += call(
                calls[s, 0],
                number_of(calls[s, 12]),
                number_of(calls[s, 13]),
                high - low,
                calls[s, 14],
                n,
                0 if slope < 0 else n,
                width,
                address(Z) + 8 * (calls[s, 2] * n + low),
                calls[s, 3] + low * calls[s, 4],
                calls[s, 5] + low * calls[s, 6],
                calls[s, 7] + low * calls[s, 8],
                address(unkept) if slope < 0 else address(kept) + 8 * (slope * n + low),
                address(unkept) if held < 0 else address(kept) + 8 * (held * n + low),
                address(R) + 8 * (factor * width + at),
                1.0 if slope < 0 else -1.0,
            )
    for k in range(R.shape[0]):
        total = 0.0
        for i in range(high - low):
            total += R[k, at + i]
        slopes[k] = total


@lean
def _clear(own):
    for j in range(own.shape[0]):
        for k in range(own.shape[1]):
            own[j, k] = 0.0


@lean
def _evaluate(
    data, columns, starts, parts, counter, ends, step, W, b, calls, blas, Z, kept, values, slopes, R, shape, G
):
    fused, M = R.shape[1] == 0, slopes.shape[1]
    held, unkept, buffer = (
        borrowed((M if fused else 0, step), 0.0),
        borrowed(step, 0.0),
        borrowed((blas[1], blas[2]), 0.0),
    )
    part = next_number(counter)
    while part < parts.size - 1:
        own = view(G, part * G.shape[1], shape)
        if fused:
            _clear(own)
        for block in range(parts[part], parts[part + 1]):
            low, high, at = ends[block], ends[block + 1], 0 if fused else ends[block]
            _block(
                data, columns, starts, low, high, W, b, calls, blas, buffer, unkept, at, Z, kept, values[block], slopes[block],
                held if fused else R,
            )  # fmt: skip
            if fused and M > 0:
                gather(data, columns, starts, low, high, 0, held, blas, buffer, own, W.size > 0)
        part = next_number(counter)
    give_back(held)
    give_back(unkept)
    give_back(buffer)


@overloads
def _gather_some(data, columns, begins, stops, starts, first, last, R, blas, buffer, G):
    """Add the rows of a block to G, or some entries of sparse rows: those of row i from begins[i] to stops[i]."""

    def rows(data, columns, begins, stops, starts, first, last, R, blas, buffer, G):
        gather(data, columns, starts, first, last, first, R, blas, buffer, G, False)

    def entries(data, columns, begins, stops, starts, first, last, R, blas, buffer, G):
        if G.shape[1] > FEW:
            gather_range(data, columns, begins, stops, first, last, first, R, buffer, G)
        else:
            gather(data, columns, starts, first, last, first, R, blas, buffer, G, False)

    return rows if data.ndim == 2 else entries


@lean
def _gather_parts(data, columns, starts, parts, counter, ends, blas, R, shape, bounds, stride, cuts, G):
    buffer, ranges, n = borrowed((blas[1], blas[2]), 0.0), bounds.size - 1, R.shape[1]
    share = next_number(counter)
    while share < (parts.size - 1) * ranges:
        part, place = share // ranges, share % ranges
        own = view(G, part * G.shape[1], shape)
        _clear(view(own, bounds[place] * shape[1], (bounds[place + 1] - bounds[place], shape[1])))
        begins, stops = view(cuts, place * stride, n), view(cuts, (place + 1) * stride, n)
        for block in range(parts[part], parts[part + 1]):
            _gather_some(data, columns, begins, stops, starts, ends[block], ends[block + 1], R, blas, buffer, own)
        share = next_number(counter)
    give_back(buffer)


@lean
def _cut(data, columns, starts, ends, counter, bounds, cuts):
    part, n = next_number(counter), starts.size - 1
    while part < ends.size - 1:
        for i in range(ends[part], ends[part + 1]):
            p, end = starts[i], starts[i + 1]
            cuts[i] = p
            for s in range(1, bounds.size - 1):
                while p < end and np.intp(columns[p]) < bounds[s]:
                    p += 1
                cuts[s * n + i] = p
            cuts[(bounds.size - 1) * n + i] = end
        part = next_number(counter)


# Gram matrices, squares ---------------------------------------------------------------------------------------------------------


@overloads
def _write_row(data, columns, starts, i, factor, out):
    """Out = factor · a_i, dense."""

    def dense(data, columns, starts, i, factor, out):
        for j in range(out.size):
            out[j] = factor * data[i, j]

    def sparse(data, columns, starts, i, factor, out):
        for j in range(out.size):
            out[j] = 0.0
        for p in row.entries(starts, i):
            out[columns[p]] += factor * data[p]

    return dense if data.ndim == 2 else sparse


@overloads
def _add_outer(data, columns, starts, i, weight, H, border):
    """H += weight a_i a_iᵀ, at or below the diagonal; border += weight a_i."""

    def dense(data, columns, starts, i, weight, H, border):
        for j in range(data.shape[1]):
            scaled = weight * data[i, j]
            border[j] += scaled
            if scaled != 0.0:
                for k in range(j + 1):
                    H[j, k] += scaled * data[i, k]

    def sparse(data, columns, starts, i, weight, H, border):
        # Updating two rows of H at a time halves the reads of the entries. It relies on sorted column indices.
        one, first, last = np.uintp(1), np.uintp(starts[i]), np.uintp(starts[i + 1])
        p = first
        while p + one < last:
            j, k = columns[p], columns[p + one]
            to_j, to_k = weight * data[p], weight * data[p + one]
            border[j] += to_j
            border[k] += to_k
            H_j, H_k = H[j], H[k]
            for q in range(first, p + one):
                H_j[columns[q]] += to_j * data[q]
                H_k[columns[q]] += to_k * data[q]
            H_k[k] += to_k * data[p + one]
            p += one + one
        if p < last:
            j, to_j = columns[p], weight * data[p]
            border[j] += to_j
            H_j = H[j]
            for q in range(first, last):
                H_j[columns[q]] += to_j * data[q]

    return dense if data.ndim == 2 else sparse


@overloads
def _add_square(rows, first, count, sign, blas, product, H):
    """H += sign · BᵀB for consecutive rows B, on and above the diagonal; ``product`` is a buffer for BᵀB of float32 rows."""

    def double(rows, first, count, sign, blas, product, H):
        d = rows.shape[1]
        call_syrk(blas[0], d, count, sign, address(rows) + 8 * first * d, d, 1.0, address(H), d)

    def single(rows, first, count, sign, blas, product, H):
        d = rows.shape[1]
        call_single_syrk(blas[1], d, count, sign, address(rows) + 4 * first * d, d, 0.0, address(product), d)
        for j in range(d):
            for k in range(j, d):
                H[j, k] += product[j, k]

    return double if rows.dtype.bitwidth == 64 else single


@lean
def _gram(data, columns, starts, ends, counter, step, indices, weights, blas, like, border, H):
    d = H.shape[1]
    rows, product = borrowed((step, d), like), borrowed((d if like.itemsize < 8 else 0, d), like)
    part = next_number(counter)
    while part < ends.size - 1:
        own, sums = H[part], view(border, part * border.shape[1], d)
        for j in range(d):
            sums[j] = 0.0
            for k in range(d):
                own[j, k] = 0.0
        for low in range(ends[part], ends[part + 1], step):
            # Rows of positive weight are collected from the start of the buffer, those of negative weight from its end.
            high, positive, negative = least(low + step, ends[part + 1]), 0, step
            for s in range(low, high):
                if weights[s] != 0.0:
                    negative -= weights[s] < 0.0
                    place = positive if weights[s] > 0.0 else negative
                    positive += weights[s] > 0.0
                    _write_row(data, columns, starts, indices[s], np.sqrt(abs(weights[s])), rows[place])
                    row.add(data, columns, starts, indices[s], weights[s], sums)
            if positive > 0:
                _add_square(rows, 0, positive, 1.0, blas, product, own)
            if negative < step:
                _add_square(rows, negative, step - negative, -1.0, blas, product, own)
        part = next_number(counter)
    give_back(rows)
    give_back(product)


@lean
def _curvature(data, columns, starts, indices, weights, H, border):
    for s in range(indices.size):
        _add_outer(data, columns, starts, indices[s], weights[s], H, border)


@lean
def _row_sums(data, columns, starts, weights, places, out):
    count = 0  # the rows are listed first, without a branch: a wrong prediction would take as long as a short row
    for i in range(weights.size):
        places[count] = i
        count += weights[i] != 0.0
    for s in range(count):
        row.add(data, columns, starts, places[s], weights[places[s]], out)


@overloads
def _add_squares(data, columns, starts, i, weight, out):
    """out_j += weight a_ij²."""

    def dense(data, columns, starts, i, weight, out):
        for j in range(out.size):
            out[j] += weight * data[i, j] * data[i, j]

    def sparse(data, columns, starts, i, weight, out):
        for p in row.entries(starts, i):
            out[columns[p]] += weight * data[p] * data[p]

    return dense if data.ndim == 2 else sparse


@lean
def _diagonal(data, columns, starts, ends, counter, weights, d, out):
    part = next_number(counter)
    while part < ends.size - 1:
        own = view(out, part * out.shape[1], d)
        for j in range(own.size):
            own[j] = 0.0
        for i in range(ends[part], ends[part + 1]):
            if weights[i] != 0.0:
                _add_squares(data, columns, starts, i, weights[i], own)
        part = next_number(counter)


@overloads
def _scaled_square(data, columns, starts, i, scale):
    """Σ_j scale_j a_ij²."""

    def dense(data, columns, starts, i, scale):
        total = 0.0
        for j in range(scale.size):
            total += scale[j] * data[i, j] * data[i, j]
        return total

    def sparse(data, columns, starts, i, scale):
        total = 0.0
        for p in row.entries(starts, i):
            total += scale[columns[p]] * data[p] * data[p]
        return total

    return dense if data.ndim == 2 else sparse


@lean
def _row_scores(data, columns, starts, ends, counter, scale, out):
    part = next_number(counter)
    while part < ends.size - 1:
        for i in range(ends[part], ends[part + 1]):
            out[i] = _scaled_square(data, columns, starts, i, scale)
        part = next_number(counter)


evaluate, gather_parts, gram, curvature = (
    TeamKernel(_evaluate),
    TeamKernel(_gather_parts),
    TeamKernel(_gram),
    Kernel(_curvature),
)
diagonal, row_scores, cut = TeamKernel(_diagonal), TeamKernel(_row_scores), TeamKernel(_cut)
row_sums = Kernel(_row_sums)
