"""Weighted Gram matrices of dense rows on a GPU, by its matrix units for float64.

cuBLAS needs rows that are scaled by the roots of their weights and converted to float64, which are written to memory and read
again (:func:`product`): for 100 features that takes longer than the product. For few features (:func:`gram`), a block of threads
converts a few rows in shared memory, and its warps multiply them there. X is read once and nothing else is written than the sums
of each block.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix import cuda_source
from dualnewton.matrix.cuda_library import THREADS, capability, cupy, kernel, limit, ranges
from dualnewton.matrix.cuda_rows import row_function
from dualnewton.row_arrays import RowArray

WIDEST = 128
"""Largest number of columns, with that of the intercept: each thread holds part of the whole product in registers."""

CAPABILITY = 9
"""Least compute capability of GPUs with the instruction that multiplies matrices of 16×8 and 8×8 in float64."""

ROWS = 16
"""Rows that a block of threads multiplies at a time."""

BLOCKS, LEAST = 2, 4
"""Blocks per multiprocessor, and tiles of ``ROWS`` rows of each at least: its sums take as long to write as a few tiles."""

HALVES = 512
"""Columns from which cuBLAS takes less time for half of a Gram matrix than for all of it: half the time for 2000."""

EVEN = 8
"""Multiple to which the rows of a product are filled with zeros: for 1001 columns instead of 1008, cuBLAS takes 1.6 times as
long."""

ENTRIES = 1 << 28
"""Number of entries of scaled rows that cuBLAS multiplies at a time (2 GiB in float64)."""

SCALING = 32
"""Blocks per multiprocessor of the kernel that scales rows."""

SOURCE = r"""
#define WARPS (THREADS / 32)
#define LENGTH (16 * TALL + 4)  // of a row in shared memory: threads of a half warp then read from different banks
#define EACH ((ROWS * 16 * TALL + THREADS - 1) / THREADS)
#define TILES ((TALL * (TALL + 1) + WARPS - 1) / WARPS)  // of 16×8 numbers on and below the diagonal, of each warp

// Some entries of the rows from `first` on, those of one thread, to registers; zeros from row `high` on.
__device__ inline void load(
    REAL* held, double* weight, const REAL* X, const long long* rows, const double* weights, long long first, long long high,
    int d)
{
    int t = threadIdx.x, row = t / d, column = t % d, down = THREADS / d, right = THREADS % d;
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        long long s = first + row;
        held[e] = row < ROWS && s < high ? X[(rows ? rows[s] : s) * d + column] : (REAL)0;
        row += down; column += right;
        if (column >= d) { column -= d; ++row; }
    }
    *weight = t < ROWS && first + t < high ? weights[first + t] : 0.0;
}

__device__ inline void store(const REAL* held, double weight, double* tile, double* scales, int d)
{
    int t = threadIdx.x, row = t / d, column = t % d, down = THREADS / d, right = THREADS % d;
    #pragma unroll
    for (int e = 0; e < EACH; ++e) {
        if (row < ROWS) tile[row * LENGTH + column] = (double)held[e];
        row += down; column += right;
        if (column >= d) { column -= d; ++row; }
    }
    if (t < ROWS) scales[t] = weight;
}

// Σ weights_s ã_s ã_sᵀ over a range of rows for each block, on and below the diagonal, of 16·TALL columns: d features, ones up to
// m, then zeros. A warp has TILES tiles of the product, row by row of tiles, and adds the products of 8 rows at a time.
extern "C" __global__ void __launch_bounds__(THREADS, 2) gram(
    const REAL* X, const long long* rows, const double* weights, double* sums, long long size, int d, int m, long long step)
{
    __shared__ double tiles[2][ROWS * LENGTH], scales[2][ROWS];
    long long low = blockIdx.x * step, high = min(low + step, size);
    int t = threadIdx.x, lane = t % 32, warp = t / 32, group = lane / 4, member = lane % 4;
    for (int k = t; k < 2 * ROWS * LENGTH; k += THREADS) {
        int column = k % LENGTH;
        (&tiles[0][0])[k] = column >= d && column < m ? 1.0 : 0.0;
    }
    int places[TILES];  // 256 times the first row of each tile, and its first column; the last warps may repeat the last tile
    #pragma unroll
    for (int q = 0; q < TILES; ++q) {
        int tile = min(warp * TILES + q, TALL * (TALL + 1) - 1), above = 0;
        while ((above + 1) * (above + 2) <= tile) ++above;
        places[q] = (16 * above << 8) + 8 * (tile - above * (above + 1));
    }
    double added[TILES][4] = {}, weight;
    REAL held[EACH];
    load(held, &weight, X, rows, weights, low, high, d);
    __syncthreads();
    store(held, weight, tiles[0], scales[0], d);
    __syncthreads();
    int turn = 0;
    for (long long first = low; first < high; first += ROWS, turn ^= 1) {
        load(held, &weight, X, rows, weights, first + ROWS, high, d);  // arrives while this tile is multiplied
        #pragma unroll
        for (int k = 0; k < ROWS; k += 8) {
            const double* tile = tiles[turn] + (k + member) * LENGTH + group;
            double one = scales[turn][k + member], other = scales[turn][k + member + 4], a[4];
            #pragma unroll
            for (int q = 0; q < TILES; ++q) {
                if (q == 0 || places[q] >> 8 != places[q - 1] >> 8) {
                    const double* own = tile + (places[q] >> 8);
                    a[0] = one * own[0];
                    a[1] = one * own[8];
                    a[2] = other * own[4 * LENGTH];
                    a[3] = other * own[4 * LENGTH + 8];
                }
                const double* across = tile + (places[q] & 255);
                double b[2] = {across[0], across[4 * LENGTH]};
                asm volatile(
                    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                    : "+d"(added[q][0]), "+d"(added[q][1]), "+d"(added[q][2]), "+d"(added[q][3])
                    : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
            }
        }
        store(held, weight, tiles[turn ^ 1], scales[turn ^ 1], d);
        __syncthreads();
    }
    double* own = sums + (long long)blockIdx.x * (16 * TALL) * (16 * TALL);
    #pragma unroll
    for (int q = 0; q < TILES; ++q) {
        if (warp * TILES + q >= TALL * (TALL + 1)) continue;
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            own[((places[q] >> 8) + group + 8 * (k / 2)) * (16 * TALL) + (places[q] & 255) + 2 * member + k % 2] = added[q][k];
    }
}

// The sum over the blocks, in order, as a whole symmetric matrix of m columns.
extern "C" __global__ void gram_sum(const double* sums, double* H, int blocks, int m)
{
    int at = blockIdx.x * THREADS + threadIdx.x, i = at / m, j = at % m;
    if (i >= m || j > i) return;
    double total = 0.0;
    #pragma unroll 8
    for (int b = 0; b < blocks; ++b) total += sums[((long long)b * (16 * TALL) + i) * (16 * TALL) + j];
    H[i * m + j] = H[j * m + i] = total;
}
"""


def multiplies(gpu: int, m: int) -> bool:
    """Whether the GPU with this number multiplies m columns by these kernels."""
    return m <= WIDEST and capability(gpu) >= CAPABILITY


def gram(gpu: int, X: Any, weights: RowArray, rows: RowArray | None, *, intercept: bool) -> Any:
    """Σ_s weights_s ã_s ã_sᵀ on the GPU, over some rows or all; ã has an appended constant 1 if ``intercept``."""
    xp, d = cupy(), X.shape[1]
    m, size = d + intercept, len(X) if rows is None else int(rows.size)
    tall = -(-m // 16)
    macros = {"REAL": "float" if X.dtype == np.float32 else "double", "TALL": tall, "ROWS": ROWS}
    most = max(1, min(BLOCKS * limit(gpu, "MultiProcessorCount"), size // (LEAST * ROWS)))
    step, blocks = ranges(size, most, ROWS)
    sums, H = xp.empty((blocks, (16 * tall) ** 2)), xp.empty((m, m))
    given = (
        X,
        np.intp(0) if rows is None else rows,
        weights,
        sums,
        np.int64(size),
        np.int32(d),
        np.int32(m),
        np.int64(step),
    )
    kernel("gram", SOURCE, **macros)((blocks,), (THREADS,), given)
    kernel("gram_sum", SOURCE, **macros)((-(-m * m // THREADS),), (THREADS,), (sums, H, np.int32(blocks), np.int32(m)))
    return H


def product(gpu: int, X: Any, weights: RowArray, rows: RowArray | None, *, intercept: bool, single: bool) -> Any:
    """Return the same by cuBLAS, from products in float32 if ``single``."""
    # The product is started as if no weight were negative, before the GPU has looked for one.
    negative: Any = row_function("negative_of", None)
    negative = negative(weights, waits=False)
    H = _product(gpu, X, weights, rows, intercept=intercept, single=single)
    return _product(gpu, X, weights, rows, intercept=intercept, single=single, signed=True) if negative()[0] else H


def _product(
    gpu: int,
    X: Any,
    weights: RowArray,
    rows: RowArray | None,
    *,
    intercept: bool,
    single: bool,
    signed: bool = False,
) -> Any:
    from cupy import cublas

    xp, m, size = cupy(), X.shape[1] + intercept, len(X) if rows is None else int(rows.size)
    width, kind = -(-m // EVEN) * EVEN, np.float32 if single else np.float64
    half = width >= HALVES and not (signed or single)
    step = max(1, min(size, ENTRIES // width))
    H = xp.zeros((width, width))
    buffers = [xp.empty((step, width), kind) for _ in range(1 + signed)]
    for first in range(0, size, step):
        left, *right = (each[: size - first] for each in buffers)
        scale(gpu, X, weights, rows, left, first, m, root=not signed)
        for other in right:
            scale(gpu, X, None, rows, other, first, m)
        if half:
            cublas.syrk("T", left, out=H, beta=1.0, lower=True)
        else:
            H += left.T @ (right[0] if right else left)
    if not half:
        return xp.ascontiguousarray(H[:m, :m])
    whole = xp.empty((m, m))
    symmetric = kernel("symmetric", cuda_source.SYMMETRIC)
    symmetric((-(-m // THREADS), m), (THREADS,), (H, whole, np.int32(width), np.int32(m)))
    return whole


def scale(
    gpu: int,
    X: Any,
    weights: RowArray | None,
    rows: RowArray | None,
    out: Any,
    first: int = 0,
    m: int = 0,
    *,
    root: bool = False,
) -> None:
    """Write rows from ``first`` on, with ones up to column m and zeros beyond, times their weights or the roots of these."""
    real, made = ("float" if each.dtype == np.float32 else "double" for each in (X, out))
    nowhere = np.intp(0)
    arguments = (
        X, nowhere if rows is None else rows, nowhere if weights is None else weights, out, np.int64(first),
        np.int64(len(out)), np.int32(X.shape[1]), np.int32(m), np.int32(out.shape[1]), np.int32(root),
    )  # fmt: skip
    together = 1 if X.shape[1] % 4 or out.shape[1] % 4 else 4  # each row then starts at a multiple of 16 bytes
    blocks = SCALING * limit(gpu, "MultiProcessorCount")
    # Divisions of 32 bits are faster; a thread goes beyond the last entry by less than 2³⁰.
    place = "unsigned" if out.size < 1 << 31 else "unsigned long long"
    scaled = kernel("scaled_rows", cuda_source.SCALED, REAL=real, OUT=made, TOGETHER=together, PLACE=place)
    scaled((blocks,), (THREADS,), arguments)
