"""CUDA source of the passes over rows on a GPU; the functions of a loss that they call are in ``cuda_translation``."""

ROW = r"""
// What a target computes of one row (see RowForm): FACTORS numbers r, of which KEPT are kept without the weight.
__device__ inline void of_row(
    long long i, double z, const double* y, const double* c, const double* o, const double* p, double* keep, double* r)
{
    double weight = c ? c[i] : 1.0, label = y[i];
    if (o) z += o[i];
    double sign = KEPT ? -1.0 : 1.0;
    double slope_ = sign * slope(z, label, p);
    r[0] = weight * slope_;
    if (KEPT > 0) keep[0] = slope_;
    if (KEPT > 1) {
        keep[1] = direction(z, label, p);
        r[1] = weight * keep[1];
    }
    if (THIRDS) for (int k = 0; k < BASE; ++k) r[BASE + k] = r[k] / 3.0;
}

__device__ inline double loss_of_row(
    long long i, double z, const double* y, const double* c, const double* o, const double* p)
{
    return (c ? c[i] : 1.0) * value(o ? z + o[i] : z, y[i], p);
}
"""

SUMMED = r"""
// Add the numbers of all threads of a block in a fixed order; the first thread returns the sum.
__device__ inline double block_sum(double x, double* buffer)
{
    buffer[threadIdx.x] = x;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) buffer[threadIdx.x] += buffer[threadIdx.x + half];
        __syncthreads();
    }
    double total = buffer[0];
    __syncthreads();
    return total;
}
"""

OF_ROWS = (
    ROW
    + SUMMED
    + r"""
// Losses of rows whose margins are known. Each block has a range of rows and writes its sums: value, Σ r.
extern "C" __global__ void of_rows(
    const double* Z, const double* y, const double* c, const double* o, const double* p, double* kept, double* R,
    double* sums, long long n, long long step)
{
    __shared__ double buffer[THREADS];
    long long low = blockIdx.x * step, high = min(low + step, n);
    double total = 0.0, slopes[FACTORS] = {};
    for (long long i = low + threadIdx.x; i < high; i += THREADS) {
        double r[FACTORS], keep[KEPT + 1];
        of_row(i, Z[i], y, c, o, p, keep, r);
        total += loss_of_row(i, Z[i], y, c, o, p);
        for (int k = 0; k < KEPT; ++k) kept[k * n + i] = keep[k];
        for (int k = 0; k < FACTORS; ++k) { slopes[k] += r[k]; R[i * FACTORS + k] = r[k]; }
    }
    double* own = sums + blockIdx.x * (FACTORS + 1);
    total = block_sum(total, buffer);
    if (threadIdx.x == 0) own[0] = total;
    for (int k = 0; k < FACTORS; ++k) {
        double sum = block_sum(slopes[k], buffer);
        if (threadIdx.x == 0) own[1 + k] = sum;
    }
}
"""
)

ADDED = r"""
// The sums of the columns of a matrix, added in a fixed order: `lanes` threads add a row of as many columns, every few rows.
extern "C" __global__ void added(const double* sums, double* out, int rows, int width, int lanes)
{
    __shared__ double buffer[THREADS];
    int t = threadIdx.x, column = blockIdx.x * lanes + t % lanes;
    double total = 0.0;
    if (column < width) {
        #pragma unroll 4
        for (int i = t / lanes; i < rows; i += THREADS / lanes) total += sums[(long long)i * width + column];
    }
    buffer[t] = total;
    __syncthreads();
    if (t >= lanes || column >= width) return;
    for (int k = lanes + t; k < THREADS; k += lanes) total += buffer[k];
    out[column] = total;
}
"""

ROW_SUMS = r"""
// SUMS sums over rows of the numbers that TERMS adds to `total` for one row. Each block has a range of rows and writes its sums.
extern "C" __global__ void row_sums(
    const double* z, const double* y, const double* c, const double* o, const double* p, const double* way, double at,
    double* out, double* sums, long long n, long long step)
{
    __shared__ double buffer[THREADS];
    long long low = blockIdx.x * step, high = min(low + step, n);
    double total[SIZE] = {};
    for (long long i = low + threadIdx.x; i < high; i += THREADS) {
        double weight = c ? c[i] : 1.0;
        TERMS
    }
    #pragma unroll
    for (int k = 0; k < SUMS; ++k) {
        double sum = block_sum(total[k], buffer);
        if (threadIdx.x == 0) sums[(long long)blockIdx.x * SUMS + k] = sum;
    }
}
"""

DENSE_PASS = (
    ROW
    + SUMMED
    + r"""
// A float as a double times 2^-896, exactly, by its bits: conversions of the processor are few per cycle, and step 1 uses them.
__device__ inline double small(float x)
{
    int bits = __float_as_int(x);
    return __hiloint2double((bits >> 3) & 0x8fffffff, bits << 29);
}
__device__ inline double small(double x) { return x; }
#define GROWTH (sizeof(REAL) == 4 ? __hiloint2double((1023 + 896) << 20, 0) : 1.0)

// Start to copy ROWS rows from `first` on to shared memory, 16 bytes a thread at a time, with zeros for rows from `high` on.
__device__ inline void fetch(REAL* tile, const REAL* X, long long first, long long high, int d, int thread, int threads)
{
    int whole = ROWS * d * (int)sizeof(REAL);
    int bytes = (int)max(0LL, min((long long)ROWS, high - first)) * d * (int)sizeof(REAL);
    const char* source = (const char*)(X + first * d);
    for (int at = 16 * thread; at < whole; at += 16 * threads) {
        int own = max(0, min(16, bytes - at));
        char* target = (char*)tile + at;
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::
            "r"((unsigned)__cvta_generic_to_shared(target)), "l"(own ? source + at : (const char*)X), "r"(own) : "memory");
#else
        for (int k = 0; k < 16; k += 4) *(int*)(target + k) = k < own ? *(const int*)(source + at + k) : 0;
#endif
    }
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// The columns of a thread: COLUMNS single ones, or quadruples of adjacent ones that are read together (QUADS).
__device__ inline int column_of(int first, int m, int width)
{
    return QUADS ? 4 * (first + m / 4 * width) + m % 4 : first + m * width;
}

// The entries of a thread in a row in shared memory; zeros for columns that it does not have.
__device__ inline void entries_of(REAL* x, const REAL* row, int first, int width, int d)
{
    if (QUADS) {
        #pragma unroll
        for (int m = 0; m < COLUMNS; m += 4) {
            float4 read = {};
            if (column_of(first, m, width) < d) read = *(const float4*)(row + column_of(first, m, width));
            x[m] = read.x; x[m + 1] = read.y; x[m + 2] = read.z; x[m + 3] = read.w;
        }
    } else {
        #pragma unroll
        for (int m = 0; m < COLUMNS; ++m)
            x[m] = m < COLUMNS - 1 || first + m * width < d ? row[first + m * width] : (REAL)0;
    }
}

// Margins, losses and sums of factors times rows, in one read of dense rows. A block has a range of rows. TEAM of its warps share
// ROWS rows at a time, each thread COLUMNS entries of a row, while the next rows arrive in shared memory (STAGES tiles in turn):
// 1. the products with w are added over the threads, so that 32/ROWS threads of a warp have the margin of one row; 2. these
// evaluate its derivatives; 3. each thread adds to its columns. Losses, which no step waits for, are evaluated once each thread
// of the team has the margin of another row.
extern "C" __global__ void __launch_bounds__(THREADS, PER) dense_pass(
    const REAL* X, const double* w, double b, const double* y, const double* c, const double* o, const double* p, double* Z,
    double* kept, double* sums, long long n, int d, long long step)
{
    extern __shared__ __align__(16) unsigned char tiles[];
    const int WARPS = THREADS / 32, TEAMS = WARPS / TEAM, WIDTH = 32 * TEAM, SAME = 32 / ROWS, TURNS = SAME * TEAM;
    __shared__ __align__(16) double buffer[THREADS];
    __shared__ double parts[2][WARPS][ROWS];
    long long low = blockIdx.x * step, high = min(low + step, n);
    int t = threadIdx.x, lane = t % 32, warp = t / 32, team = warp / TEAM, member = warp % TEAM, turn = 0, stage = 0;
    int column = member * 32 + lane, mine = lane / SAME;
    const bool IN_BUFFER = FACTORS * ROWS <= 32;  // whether the factors of a tile fit into the part of a warp
    REAL* ring = (REAL*)tiles + (long long)team * STAGES * ROWS * d;
    int done = 0, waiting = -1;  // tiles since the last losses, and the row whose loss this thread evaluates next
    double held = 0.0, weights[COLUMNS], total = 0.0, slopes[FACTORS] = {}, added[FACTORS][COLUMNS] = {};
    #pragma unroll
    for (int m = 0; m < COLUMNS; ++m) {
        int j = column_of(column, m, WIDTH);
        weights[m] = j < d ? w[j] : 0.0;
    }
    for (int s = 0; s < STAGES - 1; ++s)
        fetch(ring + s * ROWS * d, X, low + (s * TEAMS + team) * ROWS, high, d, column, WIDTH);
    for (long long base = low; base < high; base += TEAMS * ROWS) {
        long long first = base + team * ROWS;  // beyond the range for some teams of the last turn, which meet the others below
#if __CUDA_ARCH__ >= 800
        asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory");
#endif
        // The rows are there for all threads of the team, and none of them still reads the tile that is filled next.
        if (TEAM > 1) __syncthreads(); else __syncwarp();
        int next = stage ? stage - 1 : STAGES - 1;
        fetch(ring + next * ROWS * d, X, first + (STAGES - 1) * TEAMS * ROWS, high, d, column, WIDTH);
        const REAL* tile = ring + stage * ROWS * d;
        stage = stage + 1 < STAGES ? stage + 1 : 0;
        double z[ROWS];
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            REAL x[COLUMNS];
            entries_of(x, tile + i * d, column, WIDTH, d);
            z[i] = 0.0;
            #pragma unroll
            for (int m = 0; m < COLUMNS; ++m) z[i] += weights[m] * (double)x[m];
        }
        // Of two threads that exchange sums, each goes on with half of the rows.
        #pragma unroll
        for (int level = 0; level < 4; ++level) {
            const int half = ROWS >> (level + 1), other = 16 >> level;
            #pragma unroll
            for (int i = 0; i < ROWS / 2; ++i) if (i < half) {
                bool upper = lane & other;
                double kept_sum = upper ? z[i + half] : z[i], sent = upper ? z[i] : z[i + half];
                z[i] = kept_sum + __shfl_xor_sync(0xffffffffu, sent, other);
            }
        }
        #pragma unroll
        for (int other = SAME / 2; other > 0; other /= 2) z[0] += __shfl_xor_sync(0xffffffffu, z[0], other);
        double margin = z[0];
        if (TEAM > 1) {
            // Two buffers in turn: a warp that is ahead writes where no other warp still reads.
            if (lane % SAME == 0) parts[turn][warp][mine] = margin;
            __syncthreads();
            margin = 0.0;
            #pragma unroll
            for (int k = 0; k < TEAM; ++k) margin += parts[turn][team * TEAM + k][mine];
            turn ^= 1;
        }
        margin += b;
        double r[FACTORS] = {}, keep[KEPT + 1];
        long long row = first + mine;
        if (row < high) {
            of_row(row, margin, y, c, o, p, keep, r);
            if (done == member * SAME + lane % SAME) { waiting = (int)(row - low); held = margin; }
            if (lane % SAME == 0 && member == 0) {
                Z[row] = margin;
                for (int k = 0; k < KEPT; ++k) kept[k * n + row] = keep[k];
                for (int k = 0; k < FACTORS; ++k) slopes[k] += r[k];
            }
        }
        if (++done == TURNS || base + TEAMS * ROWS >= high) {
            if (waiting >= 0) total += loss_of_row(low + waiting, held, y, c, o, p);
            done = 0; waiting = -1;
        }
        if (IN_BUFFER) {
            #pragma unroll
            for (int k = 0; k < FACTORS; ++k) if (lane % SAME == 0) buffer[warp * 32 + k * ROWS + mine] = r[k];
            __syncwarp();
        }
        #pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            REAL x[COLUMNS];
            double factors[FACTORS];
            #pragma unroll
            for (int k = 0; k < FACTORS; ++k)
                factors[k] = IN_BUFFER ? buffer[warp * 32 + k * ROWS + i] : __shfl_sync(0xffffffffu, r[k], i * SAME);
            entries_of(x, tile + i * d, column, WIDTH, d);
            #pragma unroll
            for (int m = 0; m < COLUMNS; ++m)
                #pragma unroll
                for (int k = 0; k < FACTORS; ++k) added[k][m] += factors[k] * small(x[m]);
        }
    }
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");  // of the zeros beyond the range
#endif
    __syncwarp();  // no thread still reads factors in `buffer`
    double* own = sums + blockIdx.x * (1 + FACTORS + (long long)FACTORS * d);
    total = block_sum(total, buffer);
    if (t == 0) own[0] = total;
    #pragma unroll
    for (int k = 0; k < FACTORS; ++k) {
        double sum = block_sum(slopes[k], buffer);
        if (t == 0) own[1 + k] = sum;
        #pragma unroll
        for (int m = 0; m < COLUMNS; ++m) {
            buffer[t] = added[k][m];
            __syncthreads();
            int j = column_of(column, m, WIDTH);
            if (team == 0 && j < d) {
                double x = 0.0;
                for (int g = 0; g < TEAMS; ++g) x += buffer[g * WIDTH + column];
                own[1 + FACTORS + (long long)k * d + j] = GROWTH * x;
            }
            __syncthreads();
        }
    }
}
"""
)

OF_ENTRY = "__device__ inline double of(double x) { return ENTRY; }\n"

DENSE_TIMES = (
    OF_ENTRY
    + r"""
// Z = f(A) W for dense rows, a function f of an entry and K rows of W': LANES threads multiply ROWS rows at a time, so that they
// read W' less often.
extern "C" __global__ void dense_times(const REAL* X, const double* W, double* Z, long long n, int d)
{
    int lane = threadIdx.x % LANES;
    long long all = (long long)gridDim.x * (THREADS / LANES) * ROWS;
    long long own = ((long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES) * ROWS;
    for (long long i = own; i - own % ((THREADS / LANES) * ROWS) < n; i += all) {
        double z[ROWS][K] = {};
        int count = (int)min((long long)ROWS, n - i);
        for (int j = lane; j < d; j += LANES) {
            double x[ROWS];
            #pragma unroll
            for (int r = 0; r < ROWS; ++r) x[r] = r < count ? of((double)X[(i + r) * d + j]) : 0.0;
            #pragma unroll
            for (int k = 0; k < K; ++k) {
                double w = W[(long long)k * d + j];
                #pragma unroll
                for (int r = 0; r < ROWS; ++r) z[r][k] += w * x[r];
            }
        }
        #pragma unroll
        for (int r = 0; r < ROWS; ++r)
            #pragma unroll
            for (int k = 0; k < K; ++k) {
                for (int half = LANES / 2; half > 0; half /= 2)
                    z[r][k] += __shfl_down_sync(0xffffffffu, z[r][k], half, LANES);
                if (lane == 0 && r < count) Z[(i + r) * K + k] = z[r][k];
            }
    }
}
"""
)

DENSE_TRANSPOSED = (
    OF_ENTRY
    + r"""
// Sums of f(A)' R for dense rows and K columns of R: a block a range of rows, whose sums it writes.
extern "C" __global__ void dense_transposed(const REAL* X, const double* R, double* sums, long long n, int d, long long step)
{
    extern __shared__ double factors[];
    long long low = blockIdx.x * step, high = min(low + step, n);
    int column = blockIdx.y * THREADS + threadIdx.x;
    double added[K] = {};
    for (long long first = low; first < high; first += TILE) {
        int count = (int)min((long long)TILE, high - first);
        __syncthreads();
        for (int k = threadIdx.x; k < count * K; k += THREADS) factors[k] = R ? R[first * K + k] : 1.0;
        __syncthreads();
        if (column < d) {
            #pragma unroll 4
            for (int i = 0; i < count; ++i) {
                double x = of((double)X[(first + i) * d + column]);
                for (int k = 0; k < K; ++k) added[k] += factors[i * K + k] * x;
            }
        }
    }
    if (column < d) for (int k = 0; k < K; ++k) sums[((long long)blockIdx.x * K + k) * d + column] = added[k];
}
"""
)

CSR_TIMES = r"""
// Z = f(A) W for CSR rows and a function f of an entry, added to Z if `add`: LANES threads a row, each with TOGETHER entries at a
// time, whose numbers in W it reads together. With the transposed matrix it gives f(A)' R.
extern "C" __global__ void csr_times(
    const REAL* data, const int* indices, const INDEX* indptr, const double* W, double* Z, long long n, int add)
{
    int lane = threadIdx.x % LANES;
    long long rows = (long long)gridDim.x * (THREADS / LANES);
    long long first = (long long)blockIdx.x * (THREADS / LANES) + threadIdx.x / LANES;
    for (long long i = first; i - threadIdx.x / LANES < n; i += rows) {
        double z[K] = {};
        long long end = i < n ? indptr[i + 1] : 0;
        for (long long s = i < n ? indptr[i] + lane : 0; s < end; s += LANES * TOGETHER) {
            double entries[TOGETHER], w[TOGETHER][K];
            int columns[TOGETHER];
            #pragma unroll
            for (int u = 0; u < TOGETHER; ++u) {
                bool own = s + u * LANES < end;
                double x = own ? (double)data[s + u * LANES] : 0.0;
                columns[u] = own ? indices[s + u * LANES] : -1;
                entries[u] = ENTRY;
            }
            #pragma unroll
            for (int u = 0; u < TOGETHER; ++u)
                #pragma unroll
                for (int k = 0; k < K; ++k) w[u][k] = columns[u] < 0 ? 0.0 : W[(long long)columns[u] * K + k];
            #pragma unroll
            for (int u = 0; u < TOGETHER; ++u)
                #pragma unroll
                for (int k = 0; k < K; ++k) z[k] += w[u][k] * entries[u];
        }
        for (int k = 0; k < K; ++k) {
            for (int half = LANES / 2; half > 0; half /= 2) z[k] += __shfl_down_sync(0xffffffffu, z[k], half, LANES);
            if (lane == 0 && i < n) Z[i * K + k] = (add ? Z[i * K + k] : 0.0) + z[k];
        }
    }
}
"""

SCALED = r"""
struct __align__(TOGETHER == 4 ? 16 : sizeof(REAL)) Read { REAL each[TOGETHER]; };
struct __align__(TOGETHER == 4 ? 16 : sizeof(OUT)) Written { OUT each[TOGETHER]; };

// Rows times the roots of their weights (or the weights themselves), for a matrix product: d entries, ones up to m, then zeros. A
// thread writes TOGETHER entries at a time, of which a row has `parts`.
extern "C" __global__ void scaled_rows(
    const REAL* X, const long long* rows, const double* weights, OUT* out, long long first, long long count, int d, int m,
    int width, int root)
{
    PLACE parts = width / TOGETHER, all = (PLACE)count * parts, threads = (PLACE)gridDim.x * THREADS;
    #pragma unroll 4
    for (PLACE place = (PLACE)blockIdx.x * THREADS + threadIdx.x; place < all; place += threads) {
        PLACE k = place / parts;
        int j = TOGETHER * (int)(place - k * parts);
        long long s = first + k;
        double weight = weights ? (root ? sqrt(weights[s]) : weights[s]) : 1.0;
        Read read = {};
        Written written;
        if (j < d) read = *(const Read*)(X + (rows ? rows[s] : s) * d + j);
        #pragma unroll
        for (int e = 0; e < TOGETHER; ++e)
            written.each[e] = (OUT)(weight * (j + e < d ? (double)read.each[e] : j + e < m ? 1.0 : 0.0));
        *(Written*)(out + (long long)k * width + j) = written;
    }
}
"""

STRATA = r"""
// A random row of each of `size` strata of consecutive rows, by the numbers of SplitMix64 (see DeviceData.strata).
extern "C" __global__ void strata(long long* out, long long n, long long size, unsigned long long seed)
{
    long long k = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (k >= size) return;
    long long low = k * n / size, high = (k + 1) * n / size;
    unsigned long long x = (k + 1) * STEP + seed;
    x = (x ^ (x >> 30)) * FIRST;
    x = (x ^ (x >> 27)) * SECOND;
    x = (x ^ (x >> 31)) >> 11;
    out[k] = low + (long long)((double)x * (1.0 / 9007199254740992.0) * (double)(high - low));
}
"""

SYMMETRIC = r"""
// The whole of a symmetric matrix of m columns, given a half of it in a matrix of more columns whose other half is zero.
extern "C" __global__ void symmetric(const double* half, double* H, int width, int m)
{
    int i = blockIdx.y, j = blockIdx.x * THREADS + threadIdx.x;
    if (j >= m) return;
    double own = half[(long long)i * width + j];
    H[(long long)i * m + j] = i == j ? own : own + half[(long long)j * width + i];
}
"""
