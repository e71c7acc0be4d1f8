"""Writers of data files in each format; they write piece by piece, so the data set is never in memory as a whole."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualnewton.files.archive import FIRST_DAY
from dualnewton.files.replacing import replacing
from dualnewton.io.dataset import DataError
from dualnewton.io.gathered import Gathered
from dualnewton.io.matrices import LABELS, NAMES, OFFSET, WEIGHTS, beside
from dualnewton.io.parquet import pyarrow_for
from dualnewton.io.source import BLOCK, Rows, SparseRows
from dualnewton.io.streams import compressing
from dualnewton.io.words import TARGETS

ALIGNED = 64
"""Alignment in bytes of an array in an npz file, that of NumPy's npy files, so that the array can be memory-mapped."""

PADDING = 0xD935
"""Identifier of an extra field of a zip header that only contains padding; Android's zipalign uses the same identifier."""

LAST = {OFFSET: OFFSET, WEIGHTS: WEIGHTS, LABELS: TARGETS[0]}
"""The last columns of a table, and their names: offsets, weights and labels, as far as there are any."""

Write = Callable[[Gathered, Path, Any], None]


def npz(data: Gathered, path: Path, dtype: Any) -> None:
    """Write an archive whose members ``read`` can memory-map; sparse rows stay sparse."""
    _refuse_unrelated_files(data, path, (LABELS,))
    n, d = data.shape
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        add = partial(_member, archive, file)
        if data.indices is None or data.starts is None:
            add("X", (n, d), dtype, data.X.drain())
        else:
            index = np.dtype(data.index_dtype)
            add("shape", (2,), np.dtype(np.int64), [np.array([n, d], dtype=np.int64)])
            add("data", (data.X.length,), dtype, data.X.drain())
            shifted = (part - data.shift for part in data.indices.drain())
            add("indices", (data.indices.length,), index, shifted)
            add("indptr", (n + 1,), index, data.starts.drain())
        for name, shape, kind, parts in _beside(data):
            add(name, shape, kind, parts)


def npy(data: Gathered, path: Path, dtype: Any) -> None:
    """Write a dense matrix, and its labels, weights, offsets and feature names into files beside it, such as NAME.y.npy."""
    _refuse_unrelated_files(data, path, (LABELS, WEIGHTS, OFFSET, NAMES))
    with contextlib.ExitStack() as files:
        # The matrix gets its name last, after the files with its labels, weights and feature names.
        matrix = files.enter_context(replacing(path))
        for name, shape, kind, parts in _beside(data):
            _array(files.enter_context(replacing(beside(path, name))), shape, kind, parts)
        _array(matrix, data.shape, dtype, (rows.X for rows in dense(replace(data, vectors={}))))


def svmlight(data: Gathered, path: Path, dtype: Any) -> None:
    """Write lines of label and index:value with indices from 1; the zeros of dense rows are omitted."""
    if LABELS not in data.vectors or data.vectors[LABELS].dtype.kind == "U":
        found = "text" if LABELS in data.vectors else "none"
        raise DataError(f"{path}: a svmlight file needs labels that are numbers, the data have {found}")
    with replacing(path) as file, compressing(file, path) as out:
        for rows in data.rows():
            out.write("".join(_lines(rows, dtype)).encode())


def table(data: Gathered, path: Path, dtype: Any) -> None:
    """Write values separated by commas (tabs for .tsv) below a header line; the labels are the last column."""
    delimiter = "\t" if ".tsv" in path.suffixes else ","
    names = _names(data, path)
    with replacing(path) as file, compressing(file, path) as out:
        text = io.TextIOWrapper(out, encoding="utf-8", newline="")
        writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
        writer.writerow(names)
        for rows in dense(data):
            X, columns = rows.X, [rows.vectors[name].tolist() for name in LAST if name in rows.vectors]
            for k, row in enumerate(X.astype(dtype, copy=False).astype(str) if dtype == np.float32 else X.tolist()):
                writer.writerow([*row, *(column[k] for column in columns)])
        text.detach()


def parquet(data: Gathered, path: Path, dtype: Any) -> None:
    """Write a Parquet file with one column for each feature; the labels are the last."""
    pa = pyarrow_for(path)
    names = _names(data, path)
    with replacing(path) as file, contextlib.ExitStack() as closing:
        writer: Any = None
        for rows in dense(data):
            columns = [np.ascontiguousarray(column, dtype=dtype) for column in rows.X.T]
            columns += [rows.vectors[name] for name in LAST if name in rows.vectors]
            batch = pa.record_batch([pa.array(column) for column in columns], names=names)
            writer = writer or closing.enter_context(pa.parquet.ParquetWriter(file, batch.schema))
            writer.write_batch(batch)


WRITERS: dict[str, Write] = {"npz": npz, "npy": npy, "svmlight": svmlight, "csv": table, "parquet": parquet}


def header(shape: tuple[int, ...], dtype: Any) -> bytes:
    """Return the header of an npy file."""
    stream = io.BytesIO()
    kind = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(stream, {"descr": kind, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def dense(data: Gathered) -> Iterator[Any]:
    """Yield dense rows, at most BLOCK bytes of float64 at a time, since sparse rows grow when they become dense."""
    d = data.shape[1]
    few = max(1, BLOCK // (8 * d))
    for rows in data.rows():
        for at in range(0, len(rows), few):
            some = slice(at, min(at + few, len(rows)))
            X = _spread(rows.X, some, d) if isinstance(rows.X, SparseRows) else rows.X[some]
            yield Rows(X, {name: part[some] for name, part in rows.vectors.items()})


def _spread(rows: SparseRows, some: slice, d: int) -> np.ndarray:
    ends = rows.ends[some]
    first = int(rows.ends[some.start - 1]) if some.start else 0
    X = np.zeros((len(ends), d), dtype=rows.data.dtype)
    which = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=first))
    X[which, rows.indices[first : ends[-1]]] = rows.data[first : ends[-1]]
    return X


def _lines(rows: Rows, dtype: Any) -> Iterator[str]:
    y = [_label(float(label)) for label in rows.vectors[LABELS].tolist()]
    if isinstance(rows.X, SparseRows):
        starts = [0, *rows.X.ends.tolist()]
        pairs = [(rows.X.indices[a:b], rows.X.data[a:b]) for a, b in itertools.pairwise(starts)]
    else:
        pairs = [((nonzero := np.flatnonzero(row)), row[nonzero]) for row in rows.X]
    for label, (indices, values) in zip(y, pairs, strict=True):
        texts = values.astype(dtype, copy=False).tolist() if dtype == np.float64 else values.astype(dtype).astype(str)
        yield f"{label}{''.join(f' {j}:{value}' for j, value in zip((indices + 1).tolist(), texts, strict=True))}\n"


def _label(number: float) -> str:
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else repr(number)


def _names(data: Gathered, path: Path) -> list[str]:
    """Return the names of all columns of a table, including those of the offsets, weights and labels."""
    names = list(data.feature_names or (f"x{j}" for j in range(data.shape[1])))
    more = [LAST[name] for name in LAST if name in data.vectors]
    if taken := set(names).intersection(more):
        raise DataError(
            f"{path}: a feature is named {taken.pop()!r}, which the table uses for another column: rename the feature"
        )
    return names + more


Part = tuple[str, tuple[int, ...], np.dtype, Iterable[np.ndarray]]


def _beside(data: Gathered) -> Iterator[Part]:
    """Yield the name, shape, type and pieces of the labels, weights, offsets and feature names that the data set has."""
    for name, pieces in data.vectors.items():
        yield name, (pieces.length,), pieces.dtype, pieces.drain()
    if data.feature_names is not None:
        names = np.array(data.feature_names)
        yield NAMES, names.shape, names.dtype, [names]


def _refuse_unrelated_files(data: Gathered, path: Path, entries: tuple[str, ...]) -> None:
    """Raise an error if an existing file would be read as labels, weights, offsets or names that the new file does not have."""
    there = {*data.vectors, *(() if data.feature_names is None else (NAMES,))}
    for name in entries:
        if name not in there and beside(path, name).exists():
            raise DataError(f"{path}: {beside(path, name)} exists and would be read as its {name}: remove it first")


def _member(
    archive: zipfile.ZipFile,
    file: IO[bytes],
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    parts: Iterable[np.ndarray],
) -> None:
    """Add an array to an archive at an aligned offset."""
    info = zipfile.ZipInfo(f"{name}.npy", FIRST_DAY)
    # The array is preceded by 30 bytes, the name, the padding field and the 20-byte zip64 field for sizes above 4 GiB.
    place = file.tell() + 30 + len(info.filename) + 4 + 20
    fill = -place % ALIGNED
    info.extra = struct.pack("<HH", PADDING, fill) + bytes(fill)
    with archive.open(info, "w", force_zip64=True) as member:
        _array(member, shape, dtype, parts)


def _array(file: IO[bytes], shape: tuple[int, ...], dtype: Any, parts: Iterable[np.ndarray]) -> None:
    file.write(header(shape, dtype))
    for part in parts:
        file.write(np.ascontiguousarray(part, dtype=dtype).data)
