"""From one format to another, in memory that does not grow with the file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.io import catalog
from dualnewton.io.dataset import DataError
from dualnewton.io.formats import MAPPED, SOURCES, SUFFIXES, format_of
from dualnewton.io.gathered import Gathered, gather, of_dataset
from dualnewton.io.pieces import Maker, SpilledPieces
from dualnewton.io.source import BLOCK, Wanted
from dualnewton.io.streams import SUFFIXES as COMPRESSED
from dualnewton.io.streams import Report, stem
from dualnewton.io.writers import WRITERS

DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True)
class Converted:
    """What was written: n and d, the stored entries, where the labels came from, and the file."""

    path: Path
    shape: tuple[int, int]
    entries: int
    is_sparse: bool
    target: str | None


def convert(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    target: str | int | bool | None = None,
    weights: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    dtype: str | None = None,
    block: int = BLOCK,
    report: Report | None = None,
) -> Converted:
    """Write a data file, or a named data set, in the format that the name of the new file ends with.

    The source is read once, in blocks; these wait in unnamed files beside the new one until it is known how many rows and
    columns there are. The new file is there whole or not at all. Sparse data stay sparse in npz and svmlight files, and
    become dense in npy, CSV and Parquet files.

    Parameters
    ----------
    source : path or str
        A file, or a name of the catalog.
    out : path
        The new file: .npz, .npy, .svm, .csv, .tsv or .parquet; text with .gz, .bz2 or .xz after it is compressed.
    target, weights, n_features, zero_based
        As of :func:`dualnewton.io.read`.
    dtype : {"float64", "float32"}, optional
        What X is stored as; by default what it is.
    block : int
        Bytes that are read at a time.
    report : callable, optional
        Told how many bytes have been read.
    """
    new = Path(out)
    writer = _writer(new)
    if dtype is not None and dtype not in DTYPES:
        raise DataError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if not new.absolute().parent.is_dir():
        raise DataError(f"{new}: there is no folder {new.parent}")
    options: dict[str, Any] = {"target": target, "weights": weights, "n_features": n_features, "zero_based": zero_based}
    with _named(new), contextlib.ExitStack() as files:

        def spilled() -> SpilledPieces:
            # A file without a name is gone when the process is, however it ends.
            return SpilledPieces(files.enter_context(tempfile.TemporaryFile(dir=new.absolute().parent)))

        data = _gathered(source, Wanted(**options, block=block, report=report), options, spilled)
        n, d = data.shape
        done = Converted(new, (n, d), data.X.length if data.is_sparse else n * d, data.is_sparse, data.target)
        writer(data, new, np.dtype(data.X.dtype if dtype is None else DTYPES[dtype]))
    return done


@contextlib.contextmanager
def _named(path: Path) -> Iterator[None]:
    """Have an error about no file in particular, such as a full disk, name this one."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise


def _gathered(source: str | os.PathLike[str], wanted: Wanted, options: dict[str, Any], make: Maker) -> Gathered:
    path = Path(source)
    if not path.exists():
        return of_dataset(catalog.find(str(source), **options), wanted.block)
    kind = format_of(path)
    if kind in MAPPED:
        return of_dataset(MAPPED[kind](path, wanted), wanted.block)
    return gather(SOURCES[kind](path, wanted), make)


def _writer(out: Path) -> Callable[[Gathered, Path, Any], None]:
    kind = SUFFIXES.get(stem(out).suffix.lower())
    if kind is None:
        raise DataError(f"{out}: the ending must say the format, one of {', '.join(SUFFIXES)}")
    if kind not in ("svmlight", "csv") and out.suffix.lower() in COMPRESSED:
        raise DataError(f"{out}: only svmlight and CSV files are compressed, got the ending {out.suffix}")
    return WRITERS[kind]
