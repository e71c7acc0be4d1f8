"""Products of large sparse matrices with one vector on an NVIDIA GPU, from a copy of the matrix in tiles.

In the order of the rows, each entry reads a number of the vector at a random place, which takes two thirds of the time of a
product if the vector exceeds the L1 cache. In tiles these reads are in shared memory:

- A *group* is some hundred rows, whose sums one warp adds up in shared memory; a block of threads has a group per warp.
- A *tile* is a range of columns, whose numbers of the vector a block copies to shared memory, the next while it multiplies the
  present one. The entries of a group are stored tile by tile.
- A *window* is 32 entries, one for each thread of a warp. Within a tile, the first entries of all rows come first, then the
  second ones, and so on, so that a window rarely has two entries of a row. Where it does, they have different *turns*, and the
  warp adds turn by turn. So each sum has a fixed order, and equal calls return equal bits.

An entry takes eight bytes: its value as float32, its column in the tile (16 bits), its row in the group (9) and its turn (5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix.cuda_library import THREADS, added, capability, cupy, kernel, limit

WARPS = 32
"""Warps, and so groups, of a block."""

GROUP, WIDTH = 474, 6600
"""Most rows of a group, and columns of a tile: the sums of 32 groups and two tiles take 222 KiB of shared memory."""

AHEAD = 6
"""Windows that a thread reads ahead, so that the GPU has enough reads in flight."""

LEAST = 1 << 24
"""Smallest number of entries, for which a product takes some 0.1 ms in either form."""

NEAR = 1 << 14
"""Length of a vector (128 KiB) up to which the L1 cache holds it, so that tiles save nothing."""

PADDING = 0.25
"""Largest share of windows that is left empty because tiles end within a window, on average half of the last one."""

LAYOUT = r"""
// The entries of each group in the order of tiles. Without FILL: the lengths of the parts, in entries. A thread has the rows
// lane, lane + 32, ... of the group, and keeps the place and the column of the next entry of each.
extern "C" __global__ void layout(
    const float* data, const int* indices, const INDEX* indptr, int* lengths, const long long* starts, uint2* entries, int n,
    int group, int width, int tiles, int groups)
{
    const int NONE = 0x7fffffff;
    int own = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (own >= groups) return;
    int place[ROWS], end[ROWS], column[ROWS];
    #pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        long long row = (long long)own * group + j * 32 + lane;
        bool there = j * 32 + lane < group && row < n;
        place[j] = there ? (int)indptr[row] : 0;
        end[j] = there ? (int)indptr[row + 1] : 0;
        column[j] = place[j] < end[j] ? indices[place[j]] : NONE;
    }
    for (int t = 0; t < tiles; ++t) {
        long long start = FILL ? starts[(long long)own * tiles + t] : 0;
        int low = t * width, high = low + width;
        int total = 0, opened = 0;  // entries of the tile so far, and the level of the first one in the last window
        for (int level = 0;; ++level) {
            int first = total;
            #pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                bool has = column[j] < high;
                unsigned mask = __ballot_sync(0xffffffffu, has);
                if (has) {
                    if (FILL) {
                        int at = total + __popc(mask & ((1u << lane) - 1));
                        unsigned turn = (at & ~31) >= first ? 0 : level - opened;
                        unsigned where = (turn << 9 | (j * 32 + lane)) << 16 | (column[j] - low);
                        entries[start + at] = make_uint2(where, __float_as_uint(data[place[j]]));
                    }
                    ++place[j];
                    column[j] = place[j] < end[j] ? indices[place[j]] : NONE;
                }
                total += __popc(mask);
            }
            if (total == first) break;
            int window = total & ~31;
            if (window >= first) opened = window == total ? level + 1 : level;
        }
        int rest = (32 - total % 32) % 32;  // zeros of a row after the last one
        if (FILL && lane < rest) entries[start + total + lane] = make_uint2((unsigned)group << 16, 0);
        if (!FILL && lane == 0) lengths[(long long)own * tiles + t] = total + rest;
    }
}
"""

PRODUCT = r"""
__device__ inline double of(double x) { return ENTRY; }
__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// Start to copy numbers to shared memory; `arrived` changes its phase when they are there.
__device__ inline void fetch(double* to, const double* from, long long count, unsigned long long* arrived)
{
    unsigned bytes = 8 * (unsigned)count, barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
        "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ inline void wait(unsigned long long* arrived, unsigned phase)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;"
            " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_address(arrived)), "r"(phase) : "memory");
}

// Sums over the tiles of a range (one of gridDim.y) of f(entry) times the number of w at its column, for each row.
extern "C" __global__ void __launch_bounds__(THREADS, 1) product(
    const uint2* entries, const long long* starts, const double* w, double* out, long long n, long long d, int group, int width,
    int tiles, int groups, int range)
{
    extern __shared__ __align__(16) double room[];
    __shared__ __align__(8) unsigned long long arrived[2];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = blockIdx.x * (THREADS / 32) + warp;
    double* sums = room + 2 * width + warp * (group + 1);  // and one for the zeros at the end of windows
    for (int i = lane; i <= group; i += 32) sums[i] = 0.0;
    int first = blockIdx.y * range, count = min(tiles, first + range) - first;
    // Windows of the group in this range: all of them, up to the end of the present tile, and to that of the next one.
    const long long* bounds = starts + (long long)min(own, groups - 1) * tiles + first;
    long long begin = bounds[0];
    int all = own < groups ? (int)((bounds[count] - begin) / 32) : 0;
    int stop = (int)((bounds[1] - begin) / 32), next = count > 1 ? (int)((bounds[2] - begin) / 32) : 0;
    const uint2* mine = entries + begin + lane;
    uint2 ahead[AHEAD];
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) ahead[u] = u < all ? __ldcs(mine + u * 32) : make_uint2(0, 0);
    auto copy = [&](int t) {
        long long low = (long long)(first + t) * width;
        fetch(room + (t & 1) * width, w + low, min((long long)width, d - low), arrived + (t & 1));
    };
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2; ++k)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(arrived + k)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int t = 0; t < min(2, count); ++t) copy(t);
    }
    __syncthreads();
    int t = 0;
    const double* tile = room;
    wait(arrived, 0);
    auto advance = [&]() {
        __syncthreads();  // no warp still reads the present tile, whose place the one after the next takes
        ++t;
        if (threadIdx.x == 0 && t + 1 < count) copy(t + 1);
        stop = next;
        if (t + 1 < count) next = (int)((bounds[t + 2] - begin) / 32);
        tile = room + (t & 1) * width;
        wait(arrived + (t & 1), t >> 1 & 1);
    };
    for (int base = 0; base < all; base += AHEAD) {
        #pragma unroll
        for (int u = 0; u < AHEAD; ++u) {
            int k = base + u;
            if (k >= all) break;
            while (k == stop) advance();
            uint2 entry = ahead[u];
            if (k + AHEAD < all) ahead[u] = __ldcs(mine + (k + AHEAD) * 32);
            double term = of((double)__uint_as_float(entry.y)) * tile[entry.x & 0xffff];
            unsigned row = entry.x >> 16 & 511, turn = entry.x >> 25;
            unsigned last = __any_sync(0xffffffffu, turn) ? __reduce_max_sync(0xffffffffu, turn) : 0;
            for (unsigned v = 0; v <= last; ++v) {
                if (turn == v) sums[row] += term;
                __syncwarp();
            }
        }
    }
    while (t < count - 1) advance();
    for (int i = lane; i < group; i += 32) {
        long long row = (long long)own * group + i;
        if (own < groups && row < n) out[blockIdx.y * n + row] = sums[i];
    }
}
"""


class Shape(NamedTuple):
    """How a matrix is divided among the blocks of a GPU."""

    group: int  # rows of a group
    groups: int
    tiles: int
    ranges: int  # of the tiles; each block multiplies a group per warp with one range

    @classmethod
    def of(cls, n: int, d: int, processors: int) -> Shape:
        """Return groups and ranges such that each multiprocessor has the same number of blocks, or nearly."""
        tiles, blocks = -(-d // WIDTH), -(-n // (WARPS * GROUP))
        if blocks >= processors:
            blocks, ranges = -(-blocks // processors) * processors, 1
        else:
            ranges = min(tiles, processors // blocks)
            blocks = max(blocks, processors // ranges)
        group = -(-n // (WARPS * blocks))
        range_ = -(-tiles // ranges)
        return cls(group, -(-n // group), tiles, -(-tiles // range_))

    @property
    def range(self) -> int:
        """Tiles of a range."""
        return -(-self.tiles // self.ranges)

    def fits(self, entries: int) -> bool:
        """Whether a matrix with so many entries is large, and has enough of them in each tile of a group."""
        return LEAST <= entries < 1 << 31 and 16 * self.groups * self.tiles <= PADDING * entries


def shape_of(matrix: Any, gpu: int) -> Shape | None:
    """Return the shape for a CSR matrix of float32 on the GPU with this number; None if products without tiles are as fast."""
    n, d = matrix.shape
    if matrix.dtype != np.float32 or d <= NEAR or matrix.indices.dtype.itemsize != 4:
        return None
    if capability(gpu) < 9 or most_shared(gpu) < shared_by(GROUP):
        return None
    shape = Shape.of(n, d, limit(gpu, "MultiProcessorCount"))
    return shape if shape.fits(int(matrix.nnz)) else None


def shared_by(group: int) -> int:
    """Return the bytes of shared memory that a block uses: two tiles, and the sums of its groups."""
    return 8 * (2 * WIDTH + WARPS * (group + 1))


def most_shared(gpu: int) -> int:
    """Return the bytes of shared memory that a block may use on the GPU with this number, without 1 KiB for other things."""
    return limit(gpu, "MaxSharedMemoryPerBlockOptin") - 1024


class Tiles:
    """A copy of a CSR matrix in tiles.

    Parameters
    ----------
    matrix : cupyx CSR matrix of float32
        The matrix, with the entries of each row in the order of columns.
    shape : Shape
        How it is divided.
    gpu : int
        The number of the GPU.
    """

    def __init__(self, matrix: Any, shape: Shape, gpu: int) -> None:
        self.size, self.shape, self.gpu = matrix.shape, shape, gpu
        xp = cupy()
        self.longest = int(xp.diff(matrix.indptr).max())  # entries of a row
        lengths = xp.empty(shape.groups * shape.tiles, np.int32)
        self.starts = xp.zeros(lengths.size + 1, np.int64)
        self._lay(matrix, lengths, self.starts, np.intp(0), fill=0)
        xp.cumsum(lengths, dtype=np.int64, out=self.starts[1:])
        self.entries = xp.empty(2 * int(self.starts[-1]), np.uint32)
        self._lay(matrix, lengths, self.starts, self.entries, fill=1)

    def _lay(self, matrix: Any, lengths: Any, starts: Any, entries: Any, *, fill: int) -> None:
        group, groups, tiles = self.shape[:3]
        index = "int" if matrix.indptr.dtype.itemsize == 4 else "long long"
        made = kernel("layout", LAYOUT, FILL=fill, ROWS=-(-group // 32), INDEX=index)
        counts = (np.int32(count) for count in (self.size[0], group, WIDTH, tiles, groups))
        arguments = matrix.data, matrix.indices, matrix.indptr, lengths, starts, entries, *counts
        made((-(-32 * groups // THREADS),), (THREADS,), arguments)

    def times(self, w: Any, entry: str) -> Any:
        """Return f(A) w for a function f of an entry, in C, and a vector of float64 on the GPU."""
        xp, (n, d), (group, groups, tiles, ranges) = cupy(), self.size, self.shape
        if d % 2 or w.data.ptr % 16:  # the GPU copies 16 bytes at a time
            w, given = xp.zeros(d + d % 2), w
            w[:d] = given
        found = xp.empty((ranges, n))
        macros = {"THREADS": 32 * WARPS, "AHEAD": AHEAD, "ENTRY": entry, "GPU": self.gpu}
        made = kernel("product", PRODUCT, most_shared(self.gpu), **macros)
        counts = *map(np.int64, (n, w.size)), *map(np.int32, (group, WIDTH, tiles, groups, self.shape.range))
        grid, arguments = (-(-groups // WARPS), ranges), (self.entries, self.starts, w, found, *counts)
        made(grid, (32 * WARPS,), arguments, shared_mem=shared_by(group))
        return found[0] if ranges == 1 else added(found)
