"""Small data sets on disk, in every format that ``dualnewton.data.open`` reads."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from dualnewton.io import opening

N, D = 600, 6
CUTS = [0, 250, 253, N]
RNG = np.random.default_rng(5)
DENSE = RNG.standard_normal((N, D))
SPARSE = sp.csr_array(DENSE * (RNG.random((N, D)) < 0.5))
Y = np.where(DENSE[:, 0] + 0.5 * RNG.standard_normal(N) > 0.0, 1.0, -1.0)
WEIGHTS, OFFSET = RNG.uniform(0.5, 2.0, N), 0.1 * RNG.standard_normal(N)
NAMES = tuple(f"x{j}" for j in range(D))


def small_pieces(monkeypatch, size=1 << 11):
    """Let pieces have about 2 KiB, however much memory is allowed."""
    for name in ("DENSE", "SPARSE", "LEAST"):
        monkeypatch.setattr(opening, name, size)
    monkeypatch.setattr(opening, "OF_FEATURE", 0)


def _npy(path, rows):
    np.save(path, DENSE[rows])
    for name, values in (("y", Y), ("sample_weight", WEIGHTS), ("offset", OFFSET)):
        np.save(path.with_name(f"{path.stem}.{name}.npy"), values[rows])


def _npz(path, rows, save=np.savez):
    own = SPARSE[rows]
    vectors = {"y": Y[rows], "sample_weight": WEIGHTS[rows], "offset": OFFSET[rows]}
    save(path, data=own.data, indices=own.indices, indptr=own.indptr, shape=own.shape, **vectors)


def _compressed(path, rows):
    _npz(path, rows, np.savez_compressed)


def _parquet(path, rows):
    columns = dict(zip(NAMES, DENSE[rows].T, strict=True))
    columns |= {"y": Y[rows], "w": WEIGHTS[rows], "o": OFFSET[rows]}
    pq.write_table(pa.table(columns), path, row_group_size=100)


def _svmlight(path, rows):
    dump_svmlight_file(SPARSE[rows], Y[rows], str(path), zero_based=False)


def _csv(path, rows):
    header = ",".join([*NAMES, "y", "w", "o"])
    table = np.column_stack([DENSE, Y, WEIGHTS, OFFSET])[rows]
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.17g")


COLUMNS = {"target": "y", "weights": "w", "offset": "o"}
FORMATS = {
    "npy": (_npy, ".npy", {}),
    "npz": (_npz, ".npz", {}),
    "compressed npz": (_compressed, ".npz", {}),
    "parquet": (_parquet, ".parquet", COLUMNS),
    "svmlight": (_svmlight, ".svm", {"weights": WEIGHTS, "offset": OFFSET}),
    "csv": (_csv, ".csv", COLUMNS),
}


def rows_of(kind):
    """The rows of the data set in a format: sparse ones, or all."""
    return SPARSE if kind in ("npz", "compressed npz", "svmlight") else DENSE


def written(folder, kind):
    """Write the data set as three files, and return the options with which it is opened."""
    write, suffix, options = FORMATS[kind]
    folder.mkdir(exist_ok=True)
    for k, (low, high) in enumerate(pairwise(CUTS)):
        write(folder / f"part-{k}{suffix}", slice(low, high))
    return options


def written_without_offsets(folder):
    """Write the sparse rows and their labels as three npz files."""
    folder.mkdir(exist_ok=True)
    for k, (low, high) in enumerate(pairwise(CUTS)):
        own = SPARSE[low:high]
        arrays = {"data": own.data, "indices": own.indices, "indptr": own.indptr, "shape": own.shape}
        np.savez(folder / f"part-{k}.npz", **arrays, y=Y[low:high])
