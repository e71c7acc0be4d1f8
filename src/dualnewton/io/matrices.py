"""Data sets from the arrays of npy and npz files."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.io import arrays
from dualnewton.io.arrays import Members, labels, matrix, require_one_each, vector, vector_file
from dualnewton.io.dataset import OPTIONS, DataError, Dataset
from dualnewton.io.source import ReadOptions, check_width, refuse_zero_based, separate_files

LABELS, WEIGHTS, OFFSET, NAMES = "y", "sample_weight", "offset", "feature_names"
"""The names of the labels, weights, offsets and feature names in an npz file, and in files beside an npy file (NAME.y.npy)."""

SPARSE = {"csr": sp.csr_array, "csc": sp.csc_array}
"""The formats of scipy.sparse.save_npz that have the arrays indptr and indices."""

STEP = 1 << 20
"""Number of indices validated at a time; the temporary arrays of the check then take at most 8 MiB."""


def beside(path: Path, entry: str) -> Path:
    """Return the path of the file that holds the labels, weights or feature names of an npy file."""
    return path.with_name(f"{path.stem}.{entry}.npy")


def arrays_beside(path: Path) -> dict[str, np.ndarray]:
    """Return the labels, weights, offsets and feature names in files beside an npy file, as far as they exist."""
    names = (LABELS, WEIGHTS, OFFSET, NAMES)
    return {name: arrays.npy(beside(path, name)) for name in names if beside(path, name).is_file()}


def npy(path: Path, wanted: ReadOptions) -> Dataset:
    """Memory-map a dense matrix; its labels are a column, or the file NAME.y.npy in the same folder."""
    refuse_zero_based(path, wanted)
    entries = arrays_beside(path)
    return dense(path, matrix(path, arrays.npy(path)), entries, wanted)


def npz(path: Path, wanted: ReadOptions) -> Dataset:
    """Open a dense matrix X, or the arrays of a sparse one, with the labels y."""
    refuse_zero_based(path, wanted)
    members = entries_of(path, Members(path))
    if "X" in members:
        return dense(path, matrix(path, members["X"]), members, wanted)
    with arrays.faults(path):
        X = _compressed(path, members) if has_compressed_rows(path, members) else _coordinates(path, members)
    X.resize((X.shape[0], sparse_width(path, X.shape[1], wanted)))
    return finished(path, X, members, wanted)


def entries_of(path: Path, members: Mapping[str, np.ndarray]) -> Any:
    """Return the arrays of an npz file, with the labels beside it if it has none."""
    if LABELS in members or not beside(path, LABELS).is_file():
        return members
    return ChainMap({LABELS: arrays.npy(beside(path, LABELS))}, members)  # type: ignore[arg-type]


def has_compressed_rows(path: Path, members: Any) -> bool:
    """Whether a sparse matrix is stored by indptr and indices, else by coordinates; raise an error if it has neither."""
    absent = {"data", "shape"}.difference(members) or {"indptr", "indices"}.difference(members)
    if absent and not {"row", "col", "data", "shape"}.issubset(members):
        raise DataError(f"{path}: expected entries X, or data, indices, indptr and shape; it has {', '.join(members)}")
    return not absent


def sparse_width(path: Path, d: int, wanted: ReadOptions) -> int:
    """Return the number of features of a sparse matrix of d columns: the requested one, if it is not smaller."""
    if wanted.n_features is not None and wanted.n_features < d:
        raise DataError(f"{path}: has {d} features, so n_features must be at least that, got {wanted.n_features}")
    if isinstance(wanted.target, int) and wanted.target is not False:
        raise DataError(
            f"{path}: target={wanted.target!r} is not allowed, the labels of a sparse matrix are an entry (y)"
        )
    return d if wanted.n_features is None else wanted.n_features


def dense(
    path: Path,
    X: Any,
    entries: Any,
    wanted: ReadOptions,
    column_of: Callable[[Any, int], np.ndarray] = lambda X, j: np.asarray(X[:, j]),
    features_of: Callable[[Any, np.ndarray], Any] = lambda X, rest: np.ascontiguousarray(X[:, rest]),
) -> Dataset:
    """Return the data set of a dense matrix.

    If the labels are a column of it, ``column_of`` returns this column and ``features_of`` the matrix of the others.
    """
    column = _column(wanted.target, X.shape[1], entries)
    if column is None:
        check_width(path, X.shape[1], wanted)
        return finished(path, X, entries, wanted)
    rest = np.delete(np.arange(X.shape[1]), column)
    check_width(path, len(rest), wanted)
    if len(rest) == 0:
        raise DataError(f"{path}: no column is left for the features")
    entries = ChainMap({LABELS: column_of(X, column)}, entries)
    if NAMES in entries and entries[NAMES].shape == X.shape[1:]:
        entries[NAMES] = entries[NAMES][rest]
    found = finished(path, features_of(X, rest), entries, ReadOptions(None, wanted.weights, wanted.offset))
    return replace(found, target=f"the column {column}")


def _column(target: str | int | bool | None, d: int, entries: Any) -> int | None:
    """Return the index of the column that ``target`` names, or None if it names an array or nothing."""
    if target is None or target is False or target in entries:
        return None
    try:
        number = int(target)
    except ValueError:
        return None
    return number % d if -d <= number < d else None


def finished(path: Path, X: Any, entries: Any, wanted: ReadOptions) -> Dataset:
    """Return the data set of a matrix with the labels, weights, offsets and names among the entries."""
    n, d = X.shape
    y, target_text = None, None
    if wanted.target is not False:
        entry = LABELS if wanted.target is None else str(wanted.target)
        if entry in entries:
            y, target_text = labels(path, entries[entry]), f"the array {entry!r}"
            if len(y) != n:
                raise DataError(f"{path}: {entry} must have one label for each of {n} examples, has {len(y)}")
        elif wanted.target is not None:
            raise DataError(
                f"{path}: target={entry!r} is neither an array ({', '.join(entries)}) nor one of {d} columns"
            )
    names, numbers = None, _numbers(path, entries, n, wanted)
    if NAMES in entries:
        found = labels(path, entries[NAMES])
        if found.dtype.kind != "U" or len(found) > d:
            raise DataError(f"{path}: {NAMES} must be text, one name for each of {d} features, got {found.shape}")
        names = tuple(found.tolist()) if len(found) == d else None
    return Dataset(X, y, **numbers, feature_names=names, name=path.stem, target=target_text)


def _numbers(path: Path, entries: Any, n: int, wanted: ReadOptions) -> dict[str, Any]:
    """Return the weights and the offsets, by their field: arrays with this name, or the arrays or files that options name."""
    names = {
        name: name if (asked := getattr(wanted, option)) is None else str(asked) for name, option in OPTIONS.items()
    }
    found = {name: vector(path, entry, entries[entry]) for name, entry in names.items() if entry in entries}
    files = separate_files(path, wanted, f"an array ({', '.join(entries)})", known=found)
    found |= {name: vector_file(file) for name, file in files.items()}
    for name, numbers in found.items():
        require_one_each(files.get(name, path), name, numbers, n)
    return found


def stated_shape(path: Path, members: Any) -> tuple[int, int]:
    """Return the shape of a sparse matrix as its file states it."""
    shape = members["shape"]
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or min(shape) < 1 or max(shape) > 1 << 62:
        raise DataError(f"{path}: shape must be two positive integers, got {shape.tolist()!r:.60}")
    return int(shape[0]), int(shape[1])


def _compressed(path: Path, members: Any) -> Any:
    """Return a matrix from data, indices and indptr after checking their range, because compiled kernels do not check it."""
    kind = stated_format(members)
    if kind not in SPARSE:
        raise DataError(f"{path}: the sparse matrix has the format {kind!r:.20}, expected csr, csc or coo")
    shape = stated_shape(path, members)
    data, indices, starts = members["data"], members["indices"], members["indptr"]
    major, minor = shape if kind == "csr" else shape[::-1]
    if not (data.ndim == indices.ndim == starts.ndim == 1 and indices.dtype.kind in "iu" and starts.dtype.kind in "iu"):
        raise DataError(f"{path}: data, indices and indptr must be vectors, the last two of integers")
    if len(starts) != major + 1 or starts[0] != 0 or starts[-1] != len(data) or len(data) != len(indices):
        raise DataError(
            f"{path}: indptr must have {major + 1} entries from 0 to {len(data)}, the number of entries of data"
        )
    for at in range(0, major, STEP):
        if (np.diff(starts[at : at + STEP + 1].astype(np.int64)) < 0).any():
            raise DataError(f"{path}: indptr must not decrease")
    _in_range(path, "indices", indices, minor)
    X = SPARSE[kind]((_floats(path, data), indices, starts), shape=shape)
    return X if kind == "csr" else sp.csr_array(X)


def _coordinates(path: Path, members: Any) -> Any:
    shape = stated_shape(path, members)
    data, row, column = members["data"], members["row"], members["col"]
    if not data.ndim == row.ndim == column.ndim == 1 or not len(data) == len(row) == len(column):
        raise DataError(f"{path}: data, row and col must be vectors of one length")
    _in_range(path, "row", row, shape[0])
    _in_range(path, "col", column, shape[1])
    return sp.csr_array(sp.coo_array((_floats(path, data), (row, column)), shape=shape))


def stated_format(members: Any) -> str:
    """Return the format of a sparse matrix as its file states it; csr by default."""
    if "format" not in members:
        return "csr"
    value = members["format"]
    return bytes(value.item()).decode("ascii", "replace") if value.dtype.kind == "S" and value.size == 1 else str(value)


def _in_range(path: Path, what: str, indices: np.ndarray, size: int) -> None:
    if indices.dtype.kind not in "iu":
        raise DataError(f"{path}: {what} must be integers, got {indices.dtype}")
    for at in range(0, len(indices), STEP):
        some = indices[at : at + STEP]
        if some.min() < 0 or some.max() >= size:
            raise DataError(f"{path}: {what} must lie in [0, {size}), got {some.min()} … {some.max()}")


def _floats(path: Path, data: np.ndarray) -> np.ndarray:
    if data.dtype.kind not in "fiub":
        raise DataError(f"{path}: data must be numbers, got {data.dtype}")
    kept = data.dtype.isnative and data.dtype in (np.float32, np.float64)
    return data if kept else data.astype(np.float64)
