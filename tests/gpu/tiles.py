"""Products of sparse matrices by copies in tiles, on a GPU."""

import numpy as np
import scipy.sparse as sp
from tests.gpu.cases import close, cuda

from dualnewton.matrix import MemoryData, cuda_tiles
from dualnewton.row_arrays import on_host


def check_tiles():
    """Products with copies in tiles agree with those in memory, also for long, empty and equal rows, and repeat to the bit."""
    before = cuda_tiles.LEAST, cuda_tiles.NEAR, cuda_tiles.FILLED
    cuda_tiles.LEAST, cuda_tiles.NEAR, cuda_tiles.FILLED = 1, 0, 0
    try:
        rng = np.random.default_rng(12)
        for n, d in ((1, 20_000), (3001, 40_001), (70_003, 3), (400, 300_000)):
            X = sp.random_array((n, d), density=min(0.3, 3e4 / d / n**0.5), format="lil", dtype=np.float32, rng=rng)
            X[n // 2] = rng.standard_normal(d)  # more entries in a tile than a warp has threads
            X[n // 3] = 0.0
            X[:, d // 3] = 1.0
            _check_tiles(cuda(sp.csr_array(X)), MemoryData(sp.csr_array(X)), rng)
    finally:
        cuda_tiles.LEAST, cuda_tiles.NEAR, cuda_tiles.FILLED = before


def _check_tiles(data, here, rng):
    n, d = here.X.shape
    w, r, weights = rng.standard_normal(d), rng.standard_normal(n), rng.random(n)
    for tiles, A in ((data.tiles, here.X), (data.transposed_tiles, here.X.T.tocsr())):
        group, groups, count, _ = tiles.shape
        starts = on_host(tiles.starts)[:-1]
        entries = on_host(tiles.entries)[: 2 * starts[-1]].reshape(-1, 2)
        owners = np.repeat(np.arange(groups * count), np.diff(starts))
        group_of, tile = owners // count, owners % count
        rows, turns = entries[:, 0] >> 16 & 511, entries[:, 0] >> 25
        kept = rows < group
        turn_of_row = rows + 512 * turns + np.where(kept, 0, 512 * 32 * (1 + np.arange(len(rows)) % 32))
        assert all(len(np.unique(window)) == 32 for window in turn_of_row.reshape(-1, 32)), (
            "two entries of a row in a turn"
        )
        windows = np.arange(len(rows)) // 32
        for each in (group_of, tile // tiles.shape.range):
            assert (each.reshape(-1, 32) == each[::32, None]).all(), "a window of two groups or ranges"
        least, most = np.full(windows[-1] + 1, count), np.zeros(windows[-1] + 1, int)
        np.minimum.at(least, windows[kept], tile[kept])
        np.maximum.at(most, windows[kept], tile[kept])
        assert (most <= least + 1).all(), "entries of more than two tiles in a window"
        half = tile % tiles.shape.range % 2
        columns = ((tile - half) * cuda_tiles.WIDTH + (entries[:, 0] & 0xFFFF))[kept]
        values = np.ascontiguousarray(entries[:, 1]).view(np.float32)[kept]
        whole = sp.csr_array((values, ((group_of * group + rows)[kept], columns)), shape=A.shape)
        assert whole.nnz == A.nnz, (whole.nnz, A.nnz)
        assert abs(whole - A).max() == 0.0
    close(data.times(w), here.times(w))
    close(data.transposed_times(data.placed(r)), here.transposed_times(r))
    close(data.column_norms(data.placed(weights)), here.column_norms(weights))
    close(data.row_scores(w**2), here.row_scores(w**2))
    close(data.absolute_sums(data.placed(weights)), here.absolute_sums(weights))
    for work in (lambda: data.times(w), lambda: data.transposed_times(data.placed(r))):
        assert np.array_equal(on_host(work()), on_host(work()))
