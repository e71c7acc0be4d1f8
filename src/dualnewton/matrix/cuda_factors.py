"""Factors of positive definite matrices of up to some thousand rows on a GPU, for a few solves each.

cuSOLVER factorises 1001 rows by 190 small kernels in 1.1 ms, and cuBLAS solves by substitution in 0.14 ms: both wait for one
small step after the other. Here one kernel computes U = L⁻ᵀ for B = LLᵀ, whose blocks exchange tiles through memory, and a
solve B⁻¹g = U(Uᵀg) is two products with vectors.

Right-looking elimination of the columns of (B; I) by tiles gives (L; L⁻ᵀ): the rows below B need no further step, since they are
eliminated beside those of B. The rows of U are zero left of the diagonal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.matrix.cuda_library import THREADS, awaited, cupy, exchange, kernel, limit, partial_sums, sent

LARGEST = 2048
"""Largest number of rows of a matrix that these kernels factorise; cuSOLVER takes less time for larger ones."""

TILE = 64
"""Rows and columns of a tile."""

LENGTHWISE = 1024
"""Threads of a block that multiplies columns of U by a vector."""

SHARED = 2 * 8 * TILE * (TILE + 1)
"""Bytes of shared memory of a block: two tiles."""

FACTOR = r"""
#define LENGTH (TILE + 1)  // of a row of a tile in shared memory: threads of a warp then read from different banks

// A barrier of all blocks. What other blocks wrote before it is read past the L1 cache of a multiprocessor (__ldcg).
__device__ inline void meet(int* arrived, int* expected)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        *expected += gridDim.x;
        __threadfence();
        atomicAdd(arrived, 1);
        while (*(volatile int*)arrived < *expected) { }
        __threadfence();
    }
    __syncthreads();
}

// A tile to shared memory, all numbers of a thread before the first is written.
__device__ inline void read_tile(double* tile, const double* from, int N)
{
    double2 held[TILE / 4];
    #pragma unroll
    for (int e = 0; e < TILE / 4; ++e) {
        int k = 2 * threadIdx.x + 4 * TILE * e;
        held[e] = __ldcg((const double2*)(from + (long long)(k / TILE) * N + k % TILE));
    }
    #pragma unroll
    for (int e = 0; e < TILE / 4; ++e) {
        int k = 2 * threadIdx.x + 4 * TILE * e;
        double* to = tile + k / TILE * LENGTH + k % TILE;
        to[0] = held[e].x;
        to[1] = held[e].y;
    }
}

// 1/x by two steps of Newton's method, after an approximation of 20 bits.
__device__ inline double reciprocal(double x)
{
    double r;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(r) : "d"(x));
    r = fma(fma(-x, r, 1.0), r, r);
    return fma(fma(-x, r, 1.0), r, r);
}

// A tile is eliminated with the diagonal tile above it: a thread has a row of either in registers. The products of a column are
// subtracted while the threads wait for the next pivot, those of that pivot's column before; roots are taken at the end.
__device__ void eliminate(const double* diagonal, double* own, double* tiles, int N, double* failed)
{
    __shared__ __align__(16) double columns[3][TILE];
    __shared__ double scales[TILE];
    int t = threadIdx.x;
    read_tile(tiles, diagonal, N);
    read_tile(tiles + TILE * LENGTH, own, N);
    __syncthreads();
    double a[TILE], factor = 0.0;
    #pragma unroll
    for (int c = 0; c < TILE; ++c) a[c] = tiles[t * LENGTH + c];
    if (t < TILE) columns[0][t] = a[0];
    #pragma unroll
    for (int j = 0; j < TILE; ++j) {
        const double *now = columns[j % 3], *before = columns[(j + 2) % 3];
        __syncthreads();
        double pivot = now[j], inverse = reciprocal(pivot);
        if (j > 0) {
            #pragma unroll
            for (int c = j + 1; c < TILE; ++c) a[c] -= factor * before[c];
        }
        factor = a[j] * inverse;
        if (j + 1 < TILE) {
            a[j + 1] -= factor * now[j + 1];
            if (t < TILE) columns[(j + 1) % 3][t] = a[j + 1];
        }
        if (t == j) scales[j] = pivot;
    }
    __syncthreads();
    if (t < TILE) {
        double pivot = scales[t];
        if (!(pivot > 0.0)) *failed = 1.0;
        scales[t] = rsqrt(pivot);
    }
    __syncthreads();
    #pragma unroll
    for (int c = 0; c < TILE; ++c) tiles[t * LENGTH + c] = a[c] * scales[c];
    __syncthreads();
    #pragma unroll 8
    for (int k = t; k < TILE * TILE; k += 2 * TILE)
        own[(long long)(k / TILE) * N + k % TILE] = tiles[(TILE + k / TILE) * LENGTH + k % TILE];
    __syncthreads();
}

// C -= P Q' for three tiles: a thread has 8 × 4 numbers of C.
__device__ void subtract(const double* P, const double* Q, double* C, double* tiles, int N)
{
    int row = threadIdx.x / 16, column = threadIdx.x % 16;
    double *left = tiles, *right = tiles + TILE * LENGTH, sums[8][4];
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) sums[i][j] = __ldcg(C + (long long)(row + 8 * i) * N + column + 16 * j);
    read_tile(left, P, N);
    read_tile(right, Q, N);
    __syncthreads();
    #pragma unroll 4
    for (int k = 0; k < TILE; ++k) {
        double p[8], q[4];
        #pragma unroll
        for (int i = 0; i < 8; ++i) p[i] = left[(row + 8 * i) * LENGTH + k];
        #pragma unroll
        for (int j = 0; j < 4; ++j) q[j] = right[(column + 16 * j) * LENGTH + k];
        #pragma unroll
        for (int i = 0; i < 8; ++i)
            #pragma unroll
            for (int j = 0; j < 4; ++j) sums[i][j] -= p[i] * q[j];
    }
    #pragma unroll
    for (int i = 0; i < 8; ++i)
        #pragma unroll
        for (int j = 0; j < 4; ++j) C[(long long)(row + 8 * i) * N + column + 16 * j] = sums[i][j];
    __syncthreads();
}

// U = L⁻ᵀ of H + D(added) = LLᵀ, filled up by the identity to N rows, with L below the diagonal tiles of A. `found` is 1 if the
// matrix is not positive definite. The two numbers of `state` are zero at first.
extern "C" __global__ void __launch_bounds__(2 * TILE) inverse_root(
    const double* H, const double* added, double* A, double* U, int m, int N, double* state, double* found)
{
    extern __shared__ __align__(16) double tiles[];
    double* failed = state + 1;
    int T = N / TILE, expected = 0, *arrived = (int*)state;
    for (long long k = (long long)blockIdx.x * blockDim.x + threadIdx.x; k < (long long)N * N; k += gridDim.x * blockDim.x) {
        int i = (int)(k / N), j = (int)(k % N);
        double one = i == j ? 1.0 : 0.0;
        A[k] = i < m && j < m ? H[(long long)i * m + j] + (i == j ? added[i] : 0.0) : one;
        U[k] = one;
    }
    meet(arrived, &expected);
    for (int k = 0; k < T; ++k) {
        const double* diagonal = A + (long long)k * TILE * (N + 1);
        for (int task = blockIdx.x; task < T; task += gridDim.x)  // tiles of U down to the diagonal, then those of L below it
            eliminate(diagonal, (task <= k ? U : A) + (long long)task * TILE * N + k * TILE, tiles, N, failed);
        meet(arrived, &expected);
        int right = T - 1 - k;
        for (int task = blockIdx.x; task < T * right; task += gridDim.x) {
            int i = task / right, j = k + 1 + task % right;
            if (i > k && j > i) continue;  // above the diagonal of A
            double* rows = (i <= k ? U : A) + (long long)i * TILE * N;
            subtract(rows + k * TILE, A + (long long)j * TILE * N + k * TILE, rows + j * TILE, tiles, N);
        }
        meet(arrived, &expected);
    }
    if (blockIdx.x == 0 && threadIdx.x == 0) *found = __ldcg(failed);
}
"""

PRODUCTS = r"""
// y = U'g for U of N columns, zero below its diagonal: a block has 32 columns, its warps take turns at the rows.
extern "C" __global__ void transposed_product(const double* U, const double* g, double* y, int m, int N)
{
    __shared__ double buffer[THREADS];
    int t = threadIdx.x, column = blockIdx.x * 32 + t % 32, last = min(m, blockIdx.x * 32 + 32);
    double total = 0.0;
    #pragma unroll 8
    for (int i = t / 32; i < last; i += THREADS / 32) total += U[(long long)i * N + column] * g[i];
    buffer[t] = total;
    __syncthreads();
    if (t >= 32) return;
    for (int k = 32 + t; k < THREADS; k += 32) total += buffer[k];
    y[column] = total;
}

// x = U y: a warp adds a row.
extern "C" __global__ void product(const double* U, const double* y, double* x, int m, int N)
{
    int lane = threadIdx.x % 32, i = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (i >= m) return;
    double total = 0.0;
    #pragma unroll 8
    for (int j = i / 32 * 32 + lane; j < m; j += 32) total += U[(long long)i * N + j] * y[j];
    for (int half = 16; half > 0; half /= 2) total += __shfl_down_sync(0xffffffffu, total, half);
    if (lane == 0) x[i] = total;
}
"""


def inverse_root(H: Any, diagonal: np.ndarray) -> tuple[Any, bool]:
    """Return U with UUᵀ = (H + D(diagonal))⁻¹, filled up by the identity, and whether the matrix was not positive definite."""
    xp, m, own = cupy(), len(H), exchange()
    N, gpu = -(-m // TILE) * TILE, xp.cuda.runtime.getDevice()
    A, U, state = xp.empty((N, N)), xp.empty((N, N)), sent(np.zeros(2))
    buffer, place = own.take(1)
    made = kernel("inverse_root", FACTOR, SHARED, together=True, TILE=TILE, GPU=gpu)
    arguments = H, sent(diagonal), A, U, np.int32(m), np.int32(N), state, np.intp(own.here + place)
    made((limit(gpu, "MultiProcessorCount"),), (2 * TILE,), arguments, shared_mem=SHARED)
    awaited()
    return U, buffer[0] != 0.0


def solved(U: Any, g: np.ndarray) -> np.ndarray:
    """UUᵀg for a vector g, in memory."""
    m, N, own = len(g), len(U), exchange()
    buffer, place = own.take(m)
    y, sizes = partial_sums(N), (np.int32(m), np.int32(N))
    down = kernel("transposed_product", PRODUCTS, THREADS=LENGTHWISE)
    down((N // 32,), (LENGTHWISE,), (U, sent(g), y, *sizes))
    kernel("product", PRODUCTS)((-(-m // (THREADS // 32)),), (THREADS,), (U, y, np.intp(own.here + place), *sizes))
    awaited()
    return buffer.copy()
