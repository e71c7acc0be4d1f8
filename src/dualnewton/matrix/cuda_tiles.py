"""Products of large sparse matrices with one vector on an NVIDIA GPU, from a copy of the matrix in tiles.

In a product by rows, each entry reads an element of the vector at a random address. If the vector exceeds the L1 cache, these
reads take two thirds of the time. The copy has the entries in an order in which they read shared memory instead:

- A *group* is some hundred consecutive rows, which belong to one warp. Its sums are in shared memory.
- A *tile* is a range of columns. The entries of a group are stored tile by tile, and all warps of a block work on the same tile
  or the next. Their elements of the vector are in shared memory, in a buffer for two tiles (double buffering): while the warps
  multiply the entries of a tile, a further warp copies the elements of the next one to the other half. Each warp goes on to the
  next tile when the barrier of that half reports its arrival; a half is filled again when all warps have released it.
- A *window* is 32 consecutive entries, one for each thread of a warp. Within a tile the entries of a group are in rounds: one
  entry from each bank of shared memory in which the group has sums, then a second one from each, and so on. So the threads of a
  window rarely add to the same bank or to the same row. Where two entries of a window are of one row, these have different
  *turns*, and the warp adds turn by turn: each sum has a fixed order, and equal calls return equal bits.

An entry takes eight bytes: its value as float32, the place of its vector element in the buffer (16 bits), its row in the group
(9) and its turn (5).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualnewton.matrix.cuda_library import THREADS, added, capability, cupy, kernel, limit

WARPS = 31
"""Groups of a block, each of a warp; one more warp copies tiles."""

GROUP, WIDTH = 489, 6600
"""Most rows of a group, and columns of a tile: the sums of 31 groups and two tiles take 222 KiB of shared memory."""

AHEAD = 12
"""Windows that a thread reads ahead, so that the GPU has enough reads in flight."""

LEAST = 1 << 24
"""Smallest number of entries, for which a product takes some 0.1 ms in either form."""

NEAR = 1 << 14
"""Length of a vector (128 KiB) up to which the L1 cache holds it, so that tiles save nothing."""

FILLED = 64
"""Least entries of a group in a tile, in the mean: with fewer, copying tiles takes longer than the reads that it saves."""

BANKS = 16
"""Banks of shared memory, in numbers of float64: so many are read or written at a time, if they are in different banks."""

LAYOUT = r"""
// The entries of each group in the order of tiles; `lengths` are the numbers of entries of its tiles with the zeros after them,
// which are computed without FILL. A thread has the rows lane, lane + 32, ... of the group; two threads share a bank.
extern "C" __global__ void layout(
    const float* data, const int* indices, const INDEX* indptr, int* lengths, const long long* starts, uint2* entries, int n,
    int group, int width, int tiles, int groups, int range)
{
    __shared__ int sizes_of_warps[THREADS / 32][BANKS];
    int own = (blockIdx.x * THREADS + threadIdx.x) / 32, lane = threadIdx.x % 32, bank = lane % BANKS;
    if (own >= groups) return;
    int* sizes = sizes_of_warps[threadIdx.x / 32];
    lengths += (long long)own * tiles;
    starts += (long long)own * tiles;
    const long long begin = FILL ? starts[0] : 0;
    const int NONE = 0x7fffffff;
    int place[ROWS], end[ROWS];  // the next entry of each row, and the end of the row
    int window[ROWS], turn[ROWS];  // of the row's previous entry
    int column[ROWS];  // of the row's first entry behind the present tile
    #pragma unroll
    for (int j = 0; j < ROWS; ++j) {
        long long row = (long long)own * group + j * 32 + lane;
        bool there = j * 32 + lane < group && row < n;
        place[j] = there ? (int)indptr[row] : 0;
        end[j] = there ? (int)indptr[row + 1] : 0;
        window[j] = -1, turn[j] = 0;
        column[j] = place[j] < end[j] ? indices[place[j]] : NONE;
    }
    int total = 0, opened = 0;  // entries and zeros so far, and the tile of the first entry of the last window
    for (int t = 0; t < tiles; ++t) {
        int low = t * width, high = low + width, stop[ROWS], count = 0;
        #pragma unroll
        for (int j = 0; j < ROWS; ++j) {
            stop[j] = place[j];
            while (column[j] < high) {
                ++stop[j];
                column[j] = stop[j] < end[j] ? indices[stop[j]] : NONE;
            }
            count += stop[j] - place[j];
        }
        int all = __reduce_add_sync(0xffffffffu, count);
        if (!FILL) {
            // Zeros end a window at the start of a range, and before a third tile.
            int rest = (32 - total % 32) % 32;
            if (rest && (t % range == 0 || (all && opened < t - 1))) {
                if (lane == 0) lengths[t - 1] += rest;
                total += rest;
            }
            if (total % 32 == 0 || total % 32 + all > 32) opened = t;
            total += all;
            if (lane == 0) lengths[t] = all + (t == tiles - 1 ? (32 - total % 32) % 32 : 0);
            #pragma unroll
            for (int j = 0; j < ROWS; ++j) place[j] = stop[j];
            continue;
        }
        total = (int)(starts[t] - begin);
        uint2* to = entries + begin;
        int other = __shfl_xor_sync(0xffffffffu, count, BANKS), shift = (t % range & 1) * width - low;
        __syncwarp();
        sizes[bank] = count + other;
        __syncwarp();
        int taken = 0;
        for (bool some = true; some;) {
            some = false;
            #pragma unroll
            for (int j = 0; j < ROWS; ++j) {
                if (place[j] == stop[j]) continue;
                // The two threads of a bank take turns; k is the entry's number in the bank, which follow each other in turn.
                int k = taken + min(taken + (lane >= BANKS), other), at = total;
                for (int b = 0; b < BANKS; ++b) at += min(sizes[b], k) + (b < bank && sizes[b] > k);
                turn[j] = at / 32 == window[j] ? turn[j] + 1 : 0;
                window[j] = at / 32;
                unsigned where = ((unsigned)turn[j] << 9 | (j * 32 + lane)) << 16 | (indices[place[j]] + shift);
                to[at] = make_uint2(where, __float_as_uint(data[place[j]]));
                ++place[j], ++taken;
                some = true;
            }
        }
        if (lane < lengths[t] - all) to[total + all + lane] = make_uint2((unsigned)group << 16, 0);
    }
}
"""

PRODUCT = r"""
__device__ inline double of_entry(double x) { return ENTRY; }
__device__ inline unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

// The same, kept in a register: the compiler would compute it anew for each window.
__device__ inline unsigned kept_address(const void* p)
{
    unsigned address;
    asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(shared_address(p)));
    return address;
}

__device__ inline double read_shared(unsigned address)
{
    double x;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(x) : "r"(address) : "memory");
    return x;
}

__device__ inline void add_shared(unsigned address, double x)
{
    asm volatile("st.shared.f64 [%0], %1;" :: "r"(address), "d"(read_shared(address) + x) : "memory");
}

// Start to copy numbers to shared memory; `arrived` changes its phase when they are there.
__device__ inline void fetch(double* to, const double* from, long long count, unsigned long long* arrived)
{
    unsigned bytes = 8 * (unsigned)count, barrier = shared_address(arrived);
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
        "r"(shared_address(to)), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

__device__ inline void wait(unsigned long long* barrier, unsigned phase)
{
    unsigned done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2;"
            " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(shared_address(barrier)), "r"(phase) : "memory");
}

// Sums over the tiles of a range (one of gridDim.y) of f(entry) times the element of w at its column, for each row.
extern "C" __global__ void __launch_bounds__(THREADS, 1) product(
    const uint2* entries, const long long* starts, const double* w, double* out, long long n, long long d, int group, int width,
    int tiles, int groups, int range)
{
    extern __shared__ __align__(16) double buffer[];  // elements of the vector for two tiles, then the sums of all groups
    __shared__ __align__(8) unsigned long long arrived[2], released[2];  // barriers of both halves
    const int warps = THREADS / 32 - 1;  // the last one copies
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, own = blockIdx.x * warps + warp;
    int first = blockIdx.y * range, count = min(tiles, first + range) - first;
    if (threadIdx.x == 0) {
        for (int k = 0; k < 2; ++k) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared_address(arrived + k)) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(shared_address(released + k)), "r"(warps) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (warp == warps) {
        for (int t = 0; lane == 0 && t < count; ++t) {
            if (t > 1) wait(released + (t & 1), (t >> 1) - 1 & 1);
            long long low = (long long)(first + t) * width;
            fetch(buffer + (t & 1) * width, w + low, min((long long)width, d - low), arrived + (t & 1));
        }
        return;
    }
    double* sums = buffer + 2 * width + warp * (group + 1);  // and one for zeros
    for (int i = lane; i <= group; i += 32) sums[i] = 0.0;
    __syncwarp();
    const unsigned buffer_address = kept_address(buffer), sums_address = kept_address(sums);
    const unsigned released_address = kept_address(released);
    const long long* bounds = starts + (long long)min(own, groups - 1) * tiles + first;
    const long long begin = bounds[0];
    // The entry at which a tile of the range begins; a warp without a group has none, in any tile.
    auto start = [&](int t) { return own < groups ? (unsigned)(bounds[t] - begin) : 0; };
    const uint2* source = entries + begin + lane;
    uint2 ahead[AHEAD];
    #pragma unroll
    for (int u = 0; u < AHEAD; ++u) ahead[u] = __ldcs(source + u * 32);
    // A window has entries of two tiles at most. The warp waits for tile t + 1 before the first window with entries of it, and
    // releases tile t after the last one with entries of that: the next of these is due before window number `event`.
    int t = 0;
    unsigned later = start(1), after = start(2), event = later >> 5;
    bool entered = false;  // whether the warp has waited for tile t + 1
    wait(arrived, 0);
    auto next = [&]() {
        if (t + 1 == count) return false;
        if (!entered) {
            wait(arrived + (t + 1 & 1), t + 1 >> 1 & 1);
            event = later + 31 >> 5;
        } else {
            __syncwarp();
            if (lane == 0)
                asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];"
                    :: "r"(released_address + 8 * (t & 1)) : "memory");
            ++t, later = after, after = start(t + 2), event = later >> 5;
        }
        entered = !entered;
        return true;
    };
    for (unsigned k = 0;; source += AHEAD * 32) {
        #pragma unroll
        for (int u = 0; u < AHEAD; ++u, ++k) {
            while (k >= event)
                if (!next()) goto done;
            uint2 entry = ahead[u];
            ahead[u] = __ldcs(source + (AHEAD + u) * 32);  // also behind the last window, where others or zeros are
            double term = of_entry((double)__uint_as_float(entry.y)) * read_shared(buffer_address + 8 * (entry.x & 0xffff));
            unsigned sum = sums_address + (entry.x >> 13 & 511 * 8), turn = entry.x >> 25;
            if (!__any_sync(0xffffffffu, turn)) {
                add_shared(sum, term);
                __syncwarp();
            } else {
                unsigned last = __reduce_max_sync(0xffffffffu, turn);
                for (unsigned v = 0; v <= last; ++v) {
                    if (turn == v) add_shared(sum, term);
                    __syncwarp();
                }
            }
        }
    }
done:
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
        return LEAST <= entries < 1 << 31 and FILLED * self.groups * self.tiles <= entries


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
        self.starts = xp.zeros(lengths.size + 2, np.int64)  # one more, which warps read ahead
        self._write(matrix, lengths, self.starts, np.intp(0), fill=0)
        xp.cumsum(lengths, dtype=np.int64, out=self.starts[1:-1])
        self.entries = xp.empty(2 * (int(self.starts[-2]) + 32 * AHEAD), np.uint32)
        self._write(matrix, lengths, self.starts, self.entries, fill=1)

    def _write(self, matrix: Any, lengths: Any, starts: Any, entries: Any, *, fill: int) -> None:
        """Compute the lengths of the tiles or, with ``fill``, write the entries."""
        group, groups, tiles = self.shape[:3]
        index = "int" if matrix.indptr.dtype.itemsize == 4 else "long long"
        made = kernel("layout", LAYOUT, FILL=fill, ROWS=-(-group // 32), BANKS=BANKS, INDEX=index)
        counts = (np.int32(count) for count in (self.size[0], group, WIDTH, tiles, groups, self.shape.range))
        arguments = matrix.data, matrix.indices, matrix.indptr, lengths, starts, entries, *counts
        made((-(-32 * groups // THREADS),), (THREADS,), arguments)

    def times(self, w: Any, entry: str, out: Any = None) -> Any:
        """Return f(A) w for a function f of an entry, in C, and a vector of float64 on the GPU; in ``out`` if it is given."""
        xp, (n, d), (group, groups, tiles, ranges) = cupy(), self.size, self.shape
        if d % 2 or w.data.ptr % 16:  # the GPU copies 16 bytes at a time
            w, given = xp.zeros(d + d % 2), w
            w[:d] = given
        found = xp.empty((ranges, n)) if out is None or ranges > 1 else out
        macros = {"THREADS": 32 * (WARPS + 1), "AHEAD": AHEAD, "ENTRY": entry, "GPU": self.gpu}
        made = kernel("product", PRODUCT, most_shared(self.gpu), **macros)
        counts = *map(np.int64, (n, w.size)), *map(np.int32, (group, WIDTH, tiles, groups, self.shape.range))
        grid, arguments = (-(-groups // WARPS), ranges), (self.entries, self.starts, w, found, *counts)
        made(grid, (32 * (WARPS + 1),), arguments, shared_mem=shared_by(group))
        if ranges > 1:
            found = added(found, out)
        return found.reshape(n)
