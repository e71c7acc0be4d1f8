"""Functions of vectors over many features on a GPU, a kernel each, for what a method computes between two passes.

Each block of threads has its own part of the vectors; the sums of the blocks are added in order, so that equal calls return equal
bits. In memory, ``matrix/vectors.py`` and ``solvers/primal/lbfgs.py`` compute the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.matrix.cuda_library import THREADS, cupy, kernel, limit, partial_sums, sent, totals
from dualnewton.matrix.cuda_source import SUMMED

INNER_PRODUCTS = r"""
// Up to three inner products of vectors of n numbers, of the numbers of each block.
extern "C" __global__ void inner_products(
    const double* u, const double* v, const double* u2, const double* v2, const double* u3, const double* v3, double* sums,
    long long n)
{
    __shared__ double buffer[THREADS];
    const double* left[3] = {u, u2, u3};
    const double* right[3] = {v, v2, v3};
    double total[PAIRS] = {};
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS)
        #pragma unroll
        for (int k = 0; k < PAIRS; ++k) total[k] += left[k][i] * right[k][i];
    #pragma unroll
    for (int k = 0; k < PAIRS; ++k) {
        double sum = block_sum(total[k], buffer);
        if (threadIdx.x == 0) sums[blockIdx.x * PAIRS + k] = sum;
    }
}
"""

PENALISED = r"""
// g = gradient + ridge x, and the sums of ridge_j x_j², g_j² and scale_j g_j², of the numbers of each block.
extern "C" __global__ void penalised(
    const double* gradient, const double* x, const double* ridge, const double* scale, double* g, double* sums, long long n)
{
    __shared__ double buffer[THREADS];
    double total[3] = {};
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS) {
        double shrinkage = ridge[i] * x[i], own = gradient[i] + shrinkage;
        g[i] = own;
        total[0] += shrinkage * x[i], total[1] += own * own, total[2] += scale[i] * own * own;
    }
    #pragma unroll
    for (int k = 0; k < 3; ++k) {
        double sum = block_sum(total[k], buffer);
        if (threadIdx.x == 0) sums[blockIdx.x * 3 + k] = sum;
    }
}
"""

PAIR = r"""
// The differences s, y, m of x, g and z at two ends of a step; a copy `to` of `count` rows of n numbers, followed by s and m; and
// the products of all these rows with y, then with g, and sᵀs and yᵀy: those of the numbers of each block. A thread takes four
// rows at a time.
extern "C" __global__ void pair(
    const double* rows, const double* x, const double* x0, const double* g, const double* g0, const double* z, const double* z0,
    double* to, double* difference, double* sums, int count, long long n)
{
    __shared__ double buffer[THREADS];
    const int all = count + 2;
    double* own_sums = sums + (long long)blockIdx.x * 2 * (all + 1);
    double squares[2] = {};
    for (int first = 0; first < all; first += 4) {
        double total[4][2] = {};
        for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS) {
            double gradient = g[i], y = gradient - g0[i];
            if (first == 0) difference[i] = y, squares[1] += y * y;
            #pragma unroll
            for (int k = 0; k < 4; ++k) {
                int r = first + k;
                if (r >= all) break;
                double own;
                if (r < count) own = rows[r * n + i];
                else if (r == count) own = x[i] - x0[i], squares[0] += own * own;
                else own = z[i] - z0[i];
                to[r * n + i] = own;
                total[k][0] += own * y, total[k][1] += own * gradient;
            }
        }
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            #pragma unroll
            for (int v = 0; v < 2; ++v) {
                double sum = block_sum(total[k][v], buffer);
                if (threadIdx.x == 0 && first + k < all) own_sums[v * all + first + k] = sum;
            }
    }
    #pragma unroll
    for (int v = 0; v < 2; ++v) {
        double sum = block_sum(squares[v], buffer);
        if (threadIdx.x == 0) own_sums[2 * all + v] = sum;
    }
}
"""

COMBINATION = r"""
// scale z + the sum of `count` rows of n numbers, each times its factor; and its product with g, of the numbers of each block.
extern "C" __global__ void combination(
    double scale, const double* z, const double* factors, const double* rows, const double* g, double* out, double* sums,
    int count, long long n)
{
    __shared__ double buffer[THREADS];
    double product = 0.0;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS) {
        double total = scale * z[i];
        #pragma unroll 4
        for (int r = 0; r < count; ++r) total += factors[r] * rows[r * n + i];
        out[i] = total;
        product += g[i] * total;
    }
    product = block_sum(product, buffer);
    if (threadIdx.x == 0) sums[blockIdx.x] = product;
}
"""


def inner_products(*pairs: tuple[Any, Any]) -> tuple[float, ...]:
    """Return the inner products of up to three pairs of vectors of one length."""
    xp, nowhere, n = cupy(), np.intp(0), pairs[0][0].size
    blocks = _blocks(n)
    sums = partial_sums(blocks * len(pairs))
    given = [xp.ascontiguousarray(each) for pair in pairs for each in pair]
    made = kernel("inner_products", SUMMED + INNER_PRODUCTS, PAIRS=len(pairs))
    made((blocks,), (THREADS,), (*given, *[nowhere] * (6 - len(given)), sums, np.int64(n)))
    return tuple(totals(sums, blocks, len(pairs)).tolist())


def pair(rows: Any, now: Any, before: Any) -> tuple[Any, Any, np.ndarray, np.ndarray]:
    """Return the rows, if there are any, followed by the differences s and m of x and of the image at two ends of a step; the
    difference y of the gradients; the products of the rows with y and with the last gradient; and sᵀs and yᵀy.
    """
    xp, n, count = cupy(), now.x.size, 0 if rows is None else len(rows)
    ends = now.x, before.x, now.gradient, before.gradient, now.image, before.image
    to, y, blocks, width = xp.empty((count + 2, n)), xp.empty(n), 4 * _blocks(n), 2 * (count + 3)
    sums = partial_sums(blocks * width)
    given = np.intp(0) if rows is None else rows, *map(xp.ascontiguousarray, ends), to, y, sums
    made = kernel("pair", SUMMED + PAIR)
    made((blocks,), (THREADS,), (*given, np.int32(count), np.int64(n)))
    found = totals(sums, blocks, width)
    return to, y, found[:-2].reshape(2, count + 2), found[-2:]


def combination(scale: float, z: Any, factors: np.ndarray, rows: Any, g: Any) -> tuple[Any, float]:
    """Return scale z plus the sum of the rows of a matrix, each times its factor, and its product with g."""
    found, (count, n) = cupy().empty(z.size), rows.shape
    blocks = 4 * _blocks(n)
    sums = partial_sums(blocks)
    arguments = np.float64(scale), z, sent(factors), rows, g, found, sums, np.int32(count), np.int64(n)
    kernel("combination", SUMMED + COMBINATION)((blocks,), (THREADS,), arguments)
    return found, float(totals(sums, blocks, 1)[0])


def penalised(gradient: Any, x: Any, ridge: Any, scale: Any) -> tuple[Any, tuple[float, ...]]:
    """Return g = gradient + ridge ∘ x and the sums of ridge_j x_j², g_j² and scale_j g_j²."""
    xp, blocks = cupy(), 4 * _blocks(x.size)
    found, sums = xp.empty(x.size), partial_sums(3 * blocks)
    given = map(xp.ascontiguousarray, (gradient, x, ridge, scale))
    made = kernel("penalised", SUMMED + PENALISED)
    made((blocks,), (THREADS,), (*given, found, sums, np.int64(x.size)))
    return found, tuple(totals(sums, blocks, 3).tolist())


def _blocks(n: int) -> int:
    """Return the number of blocks that share vectors of n numbers."""
    return min(limit(cupy().cuda.runtime.getDevice(), "MultiProcessorCount"), -(-n // THREADS))


OF_VECTORS: dict[str, Callable[..., Any]] = {
    "inner_products_of": inner_products,
    "pair_of": pair,
    "combination_of": combination,
    "penalised_of": penalised,
}
"""Functions of vectors, which need no loss."""
