"""Data sets whose rows stay on disk: files of any format, cut into pieces that are read whenever a pass needs them."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp

from dualnewton.files.npy import header
from dualnewton.io import matrices, parquet
from dualnewton.io.arrays import Members, faults, labels, vector, vector_file
from dualnewton.io.dataset import OPTIONS, VECTORS, DataError, Dataset
from dualnewton.io.formats import SOURCES, format_of
from dualnewton.io.gathered import Gathered, gather
from dualnewton.io.pieces import SpilledPieces
from dualnewton.io.row_groups import ParquetSegment
from dualnewton.io.segments import DenseSegment, SparseSegment
from dualnewton.io.source import ReadOptions, refuse_zero_based
from dualnewton.io.stored import SpilledFile, StoredArray, StoredFile, stored_array
from dualnewton.matrix import ChunkedData
from dualnewton.matrix.segments import Held, Segment
from dualnewton.validation import data_matrix

DENSE, SPARSE, LEAST, SHARE = 1 << 26, 1 << 24, 1 << 16, 16
"""Usual sizes of a piece in bytes, its least size, and its largest share of the allowed memory: two pieces are in memory at a
time, and a pass needs memory for the sums of its parts. Dense rows are mapped (64 MiB: calls for each piece, and adding its Gram
matrix, then cost little); sparse ones are read into buffers (16 MiB: what was just read is still in the processor's cache)."""

OF_FEATURE = 768
"""Least bytes of sparse rows for each feature: a pass has 16 parts for threads (64 entries of 12 bytes)."""

MEMORY = "4G"
"""The default memory of a fit; a constant, since the size of the pieces determines the last bits of sums."""

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Options:
    """The options with which files are opened."""

    wanted: ReadOptions  # options of the readers
    memory: int  # bytes of memory that the data set may use
    spill: Path | None  # folder for the rows of text files; that of the file by default

    @property
    def gathered(self) -> float:
        """The entries of float64 that take up an eighth of the memory, for samples of the rows."""
        return self.memory / 64.0

    def size(self, d: int, *, sparse: bool) -> int:
        """Return the size of a piece in bytes for rows of d features."""
        wanted = max(SPARSE, OF_FEATURE * d) if sparse else DENSE
        return max(LEAST, min(wanted, self.memory // SHARE))

    def spilled(self, path: Path) -> IO[bytes]:
        """Return an unnamed file, which the system deletes when the process ends, for whatever reason."""
        return tempfile.TemporaryFile(dir=self.spill or path.absolute().parent)


def open(  # noqa: A001 (public as dualnewton.data.open)
    source: Any,
    *,
    target: Any = None,
    weights: Any = None,
    offset: Any = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    memory: int | str = MEMORY,
    spill: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Open data that stay on disk: a file, a folder of files, several files, or memory-mapped arrays.

    The rows are cut into pieces, which a thread reads ahead of the arithmetic in each pass of a fit or a prediction; labels,
    weights and offsets are in memory. Rows of npy, npz and Parquet files are read from these files. Text (svmlight, CSV) and the
    compressed arrays of npz files are parsed once, into unnamed files that take about the space of the rows in binary form.

    Parameters
    ----------
    source : path, array or sequence of these
        A file in a format of :func:`read`; a folder of files of one format; a pattern such as
        ``big/part-*.npz``; a list of files; a memory-mapped array, or a list of memory-mapped arrays. Files of a folder or a
        pattern are taken in the order of their names.
    target, weights, offset : str, int or array, optional
        The labels, the weights and the offsets that are added to the margins: as for :func:`read`, or an array of all rows.
    n_features, zero_based, encoding, decimal
        As for :func:`read`.
    memory : int or str
        Bytes of memory that a fit may use, such as "2G" (K, M, G, T: powers of 1024). With less memory, pieces are smaller and
        sums differ in their last bits; from 256M on pieces are equal, unless there are more than 20 000 sparse or 2000 dense
        features.
    spill : path, optional
        The folder for the unnamed files of text; by default that of the text file.

    Returns
    -------
    Dataset
        Pass its ``X`` to ``Problem``, or the data set to ``fit``, ``predict`` and ``score`` of estimators.

    Raises
    ------
    DataError
        If a file is damaged, or does not match the options or the other files; the message is one line with the place.
    OSError
        If a file cannot be opened.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> import dualnewton as dn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> np.savez(folder / "part-0.npz", X=np.eye(3), y=np.array([1.0, -1.0, 1.0]))
    >>> np.savez(folder / "part-1.npz", X=-np.eye(3), y=np.array([-1.0, 1.0, -1.0]))
    >>> dataset = dn.data.open(folder, memory="1G")
    >>> problem = dn.Problem(dataset.X, dataset.y, dn.losses.Logistic(), lam=0.1)
    >>> dn.solve(problem).converged
    True
    """
    beside = {"target": target, "weights": weights, "offset": offset}
    arrays = {name: value for name, value in beside.items() if not isinstance(value, str | int | None)}
    words: Any = {name: None if name in arrays else value for name, value in beside.items()}
    files = _given_files(words)
    if "target" in arrays or "target" in files:
        words["target"] = False
    more: Any = {"n_features": n_features, "zero_based": zero_based, "encoding": encoding, "decimal": decimal}
    wanted = ReadOptions(**(words | dict.fromkeys(files)), **more)
    options = Options(wanted, bytes_of(memory), None if spill is None else Path(spill))
    given = source if isinstance(source, list | tuple) else [source]
    if given and not any(isinstance(each, str | os.PathLike) for each in given):
        found = _of_arrays(given, options)
    else:
        found = _of_files(_paths(given), options)
    for name, path in files.items():
        arrays[name] = vector_file(path)
    return _with_arrays(found, arrays)


def bytes_of(memory: int | str) -> int:
    """Return a number of bytes, given as such or with a unit, such as "2G" or "1.5 GiB"."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d*)?)\s*([KMGT]?)(?:i?B)?\s*", str(memory), re.IGNORECASE)
    size = 0 if found is None else int(float(found[1]) * UNITS[found[2].upper()])
    if size < 1 or isinstance(memory, bool):
        raise DataError(f'memory must be a number of bytes such as 2000000000 or "2G", got {memory!r}')
    return size


def _given_files(words: dict[str, Any]) -> dict[str, Path]:
    """Return the options that name files of numbers, one for each row of all files together; numbers are names of columns."""
    paths = {name: Path(word) for name, word in words.items() if isinstance(word, str) and word}
    return {name: path for name, path in paths.items() if path.suffix and path.is_file()}


# Files ---------------------------------------------------------------------------------------------------------------


def _paths(given: Sequence[Any]) -> list[Path]:
    """Return the files of paths, folders and patterns."""
    found: list[Path] = []
    for each in given:
        path = Path(each)
        if path.is_dir():
            found += _in_folder(path)
        elif not path.exists() and glob.has_magic(str(each)):
            some = sorted(map(Path, glob.glob(str(each))))
            if not some:
                raise DataError(f"no file matches {str(each)!r}")
            found += some
        else:
            found.append(path)
    if not found:
        raise DataError("source must name at least one file, got none")
    return found


def _in_folder(folder: Path) -> list[Path]:
    """Return the files of a folder by name, without hidden files, markers such as _SUCCESS, and arrays of other files."""
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith((".", "_"))]
    if inner := [path for path in files if path.is_dir()]:
        raise DataError(f"{inner[0]} is a folder inside a folder of files: give the files as a list or as a pattern")
    names = (matrices.LABELS, matrices.WEIGHTS, matrices.OFFSET, matrices.NAMES)
    found = [path for path in files if not path.name.endswith(tuple(f".{name}.npy" for name in names))]
    if not found:
        raise DataError(f"{folder}: the folder has no files of data")
    return found


def _of_files(paths: Sequence[Path], options: Options) -> Dataset:
    kinds = [format_of(path) for path in paths]
    for path, kind in zip(paths, kinds, strict=True):
        if kind != kinds[0]:
            raise DataError(f"{path}: all files must have one format, {paths[0]} is {kinds[0]} and this is {kind}")
    datasets = OPENERS.get(kinds[0], _texts)(paths, options)
    for path, each in zip(paths, datasets, strict=True):
        _require_alike(path, each, paths[0], datasets[0])
    name = paths[0].stem if len(paths) == 1 else paths[0].absolute().parent.name
    return Dataset(
        ChunkedData.of([each.X for each in datasets], options.gathered),
        **{field: _joined([getattr(each, field) for each in datasets]) for field in VECTORS},
        feature_names=datasets[0].feature_names,
        name=name,
        target=datasets[0].target,
    )


def _require_alike(path: Path, data: Dataset, first_path: Path, first: Dataset) -> None:
    """Raise an error if a file has other columns, or other vectors beside its rows, than the first."""
    d, wanted = data.X.profiles[0].d, first.X.profiles[0].d
    if d != wanted:
        raise DataError(f"{path}: has {d} features, {first_path} has {wanted}")
    if data.feature_names != first.feature_names:
        raise DataError(f"{path}: its feature names are not those of {first_path}")
    for field, what in (("y", "labels"), ("sample_weight", "weights"), ("offset", "offsets")):
        here, there = getattr(data, field), getattr(first, field)
        if (here is None) != (there is None):
            one, other = (path, first_path) if here is None else (first_path, path)
            raise DataError(f"{one}: has no {what}, {other} has them")
    if data.y is not None and first.y is not None and (data.y.dtype.kind == "U") != (first.y.dtype.kind == "U"):
        raise DataError(f"{path}: its labels are {_kind(data.y)}, those of {first_path} are {_kind(first.y)}")


def _kind(y: np.ndarray) -> str:
    return "text" if y.dtype.kind == "U" else "numbers"


def _joined(vectors: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Return vectors of all files as one in memory, if each file has one."""
    found = [each for each in vectors if each is not None]
    return np.concatenate(found) if found else None


# Arrays in files -----------------------------------------------------------------------------------------------------


def _of_npy(path: Path, options: Options) -> Dataset:
    refuse_zero_based(path, options.wanted)
    with faults(path), StoredFile(path).opened() as file:
        found = header(file, os.fstat(file.fileno()).st_size)
    array = StoredArray(StoredFile(path), found.start, found.shape, found.dtype)
    return _dense(path, array, found.in_columns, matrices.arrays_beside(path), options)


def _of_npz(path: Path, options: Options) -> Dataset:
    refuse_zero_based(path, options.wanted)
    members, file = Members(path), StoredFile(path)
    entries = matrices.entries_of(path, members)
    if "X" in members:
        array, in_columns = _member(members, "X", file, options)
        return _dense(path, array, in_columns, entries, options)
    kind = matrices.stated_format(members)
    if not matrices.has_compressed_rows(path, members) or kind != "csr":
        raise DataError(f"{path}: rows of a sparse matrix can be read in pieces if its format is csr, got {kind!r:.20}")
    d = matrices.sparse_width(path, matrices.stated_shape(path, members)[1], options.wanted)
    stored = _rows_of(_member(members, name, file, options)[0] for name in ("data", "indices", "indptr"))
    for name, array in zip(("data", "indices", "indptr"), stored, strict=True):
        _require_kind(path, name, array, 1, "fiub" if name == "data" else "iu")
    if stored[2].shape[0] != matrices.stated_shape(path, members)[0] + 1:
        raise DataError(f"{path}: indptr must have one entry more than there are rows, has {stored[2].shape[0]}")
    segment = SparseSegment(stored, d, options.size(d, sparse=True))
    return matrices.finished(path, segment, entries, options.wanted)


def _member(members: Members, name: str, file: StoredFile, options: Options) -> tuple[StoredArray, bool]:
    """Return an array inside an npz file, or in an unnamed file if it is compressed, and whether it is in Fortran order."""
    found = members.place(name)
    if found is not None:
        return StoredArray(file, found[1], found[0].shape, found[0].dtype), found[0].in_columns
    with contextlib.ExitStack() as closing:
        spill = closing.enter_context(options.spilled(members.path))
        stated = members.expand(name, spill)
        closing.pop_all()
    return StoredArray(SpilledFile(spill, members.path), 0, stated.shape, stated.dtype), stated.in_columns


def _dense(path: Path, array: StoredArray, in_columns: bool, entries: Any, options: Options) -> Dataset:
    _require_kind(path, "X", array, 2, "fiub")
    if in_columns:
        raise DataError(f"{path}: X is stored column by column; rows can be read in pieces if it is saved in C order")
    segment = DenseSegment(array, options.size(array.shape[1], sparse=False))
    return matrices.dense(path, segment, entries, options.wanted, DenseSegment.column, DenseSegment.with_features)


def _require_kind(path: Path, name: str, array: StoredArray, dimensions: int, kinds: str) -> None:
    if len(array.shape) != dimensions or array.dtype.kind not in kinds or (dimensions == 2 and 0 in array.shape):
        what = "a nonempty matrix" if dimensions == 2 else "a vector"
        raise DataError(f"{path}: {name} must be {what} of numbers, got {array.dtype} of shape {array.shape}")


# Parquet -------------------------------------------------------------------------------------------------------------


def _parquet(paths: Sequence[Path], options: Options) -> list[Dataset]:
    sources = [parquet.source(path, options.wanted) for path in paths]
    names = sources[0].feature_names or ()
    if len(set(names)) < len(names):
        raise DataError(f"{paths[0]}: columns must have different names to be read in pieces")
    found = []
    for source in sources:
        own = set(source.feature_names or ())
        if own != set(names):
            (other, *_), has = (sorted(set(names) - own), "no") if set(names) - own else (sorted(own - set(names)), "a")
            raise DataError(f"{source.path}: has {has} column {other!r}, other than {paths[0]}")
        segment = ParquetSegment(source, names, options.size(len(names), sparse=False))
        if segment.profiles:
            vectors: Any = segment.beside()
            found.append(Dataset(segment, **vectors, feature_names=names, target=source.target))
    if not found:
        raise DataError(f"{paths[0]}: holds no examples")
    return found


# Text ----------------------------------------------------------------------------------------------------------------


def _texts(paths: Sequence[Path], options: Options) -> list[Dataset]:
    """Parse text files once, into unnamed files."""
    found = [gather(SOURCES[format_of(path)](path, options.wanted), partial(_spilled, path, options)) for path in paths]
    # Indices count from 0 in all files if they do in one.
    shift = min(each.shift for each in found)
    widths = [each.shape[1] + each.shift - shift for each in found]
    d = (options.wanted.n_features or max(widths)) if found[0].is_sparse else None
    return [_of_text(each, shift, d, options) for each in found]


def _spilled(path: Path, options: Options) -> SpilledPieces:
    """Return pieces that are kept in an unnamed file."""
    owner = SpilledFile(options.spilled(path), path)
    return SpilledPieces(owner.file, owner)


def _of_text(data: Gathered, shift: int, d: int | None, options: Options) -> Dataset:
    vectors: Any = {name: pieces.joined() for name, pieces in data.vectors.items()}
    more: Any = {"feature_names": data.feature_names, "name": data.name, "target": data.target}
    segment: Segment
    if d is None:
        segment = DenseSegment(_stored(data.X, data.shape), options.size(data.shape[1], sparse=False))
    else:
        shapes = (data.X.length,), (data.X.length,), (data.shape[0] + 1,)
        arrays = map(_stored, (data.X, data.indices, data.starts), shapes)
        segment = SparseSegment(_rows_of(arrays), d, options.size(d, sparse=True), shift)
    return Dataset(segment, **vectors, **more)


def _stored(pieces: Any, shape: tuple[int, ...]) -> StoredArray:
    """Return the array whose pieces lie one after the other in an unnamed file."""
    pieces.owner.file.flush()
    return StoredArray(pieces.owner, 0, shape, pieces.one_dtype())


def _rows_of(arrays: Iterable[StoredArray]) -> tuple[StoredArray, StoredArray, StoredArray]:
    """Return the three arrays of sparse rows."""
    data, indices, starts = arrays
    return data, indices, starts


OPENERS: dict[str, Callable[[Sequence[Path], Options], list[Dataset]]] = {
    "npy": lambda paths, options: [_of_npy(path, options) for path in paths],
    "npz": lambda paths, options: [_of_npz(path, options) for path in paths],
    "parquet": _parquet,
}
"""Formats whose rows are read from the original file; the files of other formats are parsed by :func:`_texts`."""


# Arrays that are given ----------------------------------------------------------------------------------------------


def _of_arrays(given: Sequence[Any], options: Options) -> Dataset:
    """Return the rows of arrays: those of memory-mapped ones are read from their files, the others stay in memory."""
    segments = [_of_array(each, k, options) for k, each in enumerate(given)]
    return Dataset(ChunkedData.of(segments, options.gathered), name="arrays")


def _of_array(given: Any, number: int, options: Options) -> Segment:
    if sp.issparse(given):
        rows = sp.csr_array(given)
        parts = [part for each in (rows.data, rows.indices, rows.indptr) if (part := stored_array(each)) is not None]
        if len(parts) == 3:
            return SparseSegment(_rows_of(parts), rows.shape[1], options.size(rows.shape[1], sparse=True))
        return Held(data_matrix(f"source[{number}]", rows), number)
    array = stored_array(np.asanyarray(given))
    if array is None or len(array.shape) != 2 or array.dtype.kind not in "fiub":
        return Held(data_matrix(f"source[{number}]", given), number)
    return DenseSegment(array, options.size(array.shape[1], sparse=False))


def _with_arrays(data: Dataset, arrays: dict[str, Any]) -> Dataset:
    """Return the data set with labels, weights and offsets that are given as arrays."""
    n, more = data.X.profile.n, dict[str, Any]()
    for field, name in {"y": "target", **OPTIONS}.items():
        if name in arrays:
            value = np.asarray(arrays[name])
            found = labels(Path(name), value) if field == "y" and value.ndim == 1 else value
            found = found if field == "y" else vector(Path(name), "the array", found)
            if len(found) != n:
                raise DataError(f"{name} must have one entry for each of {n} examples, has {len(found)}")
            more[field] = found
    if "y" in more:
        more["target"] = "the array given as target"
    return replace(data, **more)
