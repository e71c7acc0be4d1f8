"""Reading of a data file in any format, which is known by the suffix of the path or else by the first bytes of the file."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from dualnewton.files.npy import MAGIC
from dualnewton.io import matrices, parquet, svmlight, tables
from dualnewton.io.dataset import DataError, Dataset
from dualnewton.io.gathered import gather
from dualnewton.io.pieces import Pieces
from dualnewton.io.source import ReadOptions, Source
from dualnewton.io.streams import Progress, reading, stem

SOURCES: dict[str, Callable[[Path, ReadOptions], Source]] = {
    "svmlight": svmlight.source,
    "csv": tables.source,
    "parquet": parquet.source,
}
"""Formats that are read sequentially, in blocks."""

MAPPED: dict[str, Callable[[Path, ReadOptions], Dataset]] = {"npy": matrices.npy, "npz": matrices.npz}
"""Formats whose arrays are memory-mapped."""

SUFFIXES = {
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".npy": "npy",
    ".npz": "npz",
}

REFUSED = {
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "spreadsheets are not read: save the sheet as CSV"),
    **dict.fromkeys((".json", ".jsonl"), "JSON is not read: write the records as CSV or Parquet"),
    ".zip": "zip archives are not read: unpack it first",
}
"""Suffixes of formats that users may expect, and what to do instead."""

STARTS = {MAGIC: "npy", b"PK\x03\x04": "npz", b"PK\x05\x06": "npz", b"PAR1": "parquet"}

SVMLIGHT = re.compile(rb"^[^\S\n]*[+-]?[\d.][^\s,;]*[^\S\n]+(qid:|\d+:[+-]?[\d.])", re.MULTILINE)
"""The beginning of a svmlight line: a label, and a first index:value or qid."""

HEAD = 1 << 16
"""Bytes of a file that are examined to determine its format, the size of the read buffer."""


def read(
    path: str | os.PathLike[str],
    *,
    target: str | int | bool | None = None,
    weights: str | int | None = None,
    offset: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
    progress: Progress | None = None,
) -> Dataset:
    r"""Read a data file: svmlight, CSV, Parquet, npz or npy.

    Parameters
    ----------
    path : path
        The file. Text may be compressed by gzip, bzip2 or xz.
    target : str or int, optional
        The column (by name, or by number from 0, negative from the end) or the array with the labels. By default the column
        named target, label, y or class, else the last; in npz and npy files the array y. ``False``: there are no labels.
    weights, offset : str or int, optional
        The column or array with the weights of the examples, and with the offsets that are added to their margins; or another
        file with one number per line.
    n_features : int, optional
        The number of columns of X. A sparse file may use fewer, as test sets often do.
    zero_based : bool, optional
        True if a svmlight file numbers its features from 0. By default it does if and only if the index 0 occurs.
    encoding : str, optional
        The encoding of a CSV file, a codec of Python such as "latin-1"; UTF-8 by default, or that of its byte order mark.
    decimal : {".", ","}, optional
        The decimal mark of a CSV file; by default a comma if its numbers have commas and no points.
    progress : callable, optional
        Called with the number of bytes read and the size of the file; not called for memory-mapped files.

    Raises
    ------
    DataError
        If the file is damaged or does not match the options; the message is one line with the place.
    OSError
        If the file cannot be opened.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import dualnewton as dn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "two.svm").write_text("1 1:0.5 3:2\n-1 2:1\n")
    >>> data = dn.data.read(folder / "two.svm")
    >>> data.X.shape, data.y
    ((2, 3), array([ 1., -1.]))
    """
    file = Path(path)
    kind = format_of(file)
    size = file.stat().st_size
    report = None if progress is None else lambda done: progress(done, size)
    wanted = ReadOptions(target, weights, offset, n_features, zero_based, encoding, decimal, report=report)
    if kind in MAPPED:
        return MAPPED[kind](file, wanted)
    return gather(SOURCES[kind](file, wanted), Pieces).dataset()


def format_of(path: Path) -> str:
    """Return the name of a file's format."""
    suffix = stem(path).suffix.lower()
    if suffix in REFUSED:
        raise DataError(f"{path}: {REFUSED[suffix]}")
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    with reading(path) as stream:
        start = stream.read(HEAD)
    for magic, name in STARTS.items():
        if start.startswith(magic):
            return name
    if SVMLIGHT.search(start):
        return "svmlight"
    if any(mark in start for mark in (b",", b";", b"\t")) and b"\0" not in start:
        return "csv"
    raise DataError(
        f"{path}: its ending and its first bytes show no known format; known are svmlight (.svm), CSV (.csv, .tsv), "
        "Parquet (.parquet), .npz and .npy"
    )
