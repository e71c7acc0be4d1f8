"""Conversion of data files between formats, with memory use that does not depend on the size of the file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.io import catalog
from dualnewton.io.dataset import DataError, named
from dualnewton.io.formats import MAPPED, SOURCES, SUFFIXES, format_of
from dualnewton.io.gathered import Gathered, gather, of_dataset
from dualnewton.io.pieces import Maker, SpilledPieces
from dualnewton.io.source import BLOCK, ReadOptions
from dualnewton.io.streams import SUFFIXES as COMPRESSED
from dualnewton.io.streams import Report, stem
from dualnewton.io.writers import WRITERS

DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True)
class Converted:
    """A summary of the new file: its path, n and d, the number of stored entries, and where the labels came from."""

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
    offset: str | int | None = None,
    n_features: int | None = None,
    zero_based: bool | None = None,
    dtype: str | None = None,
    block: int = BLOCK,
    report: Report | None = None,
) -> Converted:
    r"""Write a data file, or a named data set, in the format given by the suffix of the new file.

    The source is read once, in blocks. The blocks are kept in unnamed temporary files in the folder of the new file until the
    numbers of rows and columns are known. The new file appears under its name only when it is complete. Sparse data stay sparse
    in npz and svmlight files, and become dense in npy, CSV and Parquet files.

    Parameters
    ----------
    source : path or str
        A file, or a name of the catalog.
    out : path
        The new file: .npz, .npy, .svm, .csv, .tsv or .parquet; a second suffix .gz, .bz2 or .xz compresses svmlight and CSV.
    target, weights, offset, n_features, zero_based
        The options of :func:`dualnewton.io.read`.
    dtype : {"float64", "float32"}, optional
        The type of X in the new file; by default that of the source.
    block : int
        The number of bytes read at a time.
    report : callable, optional
        Called with the number of bytes read so far.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import dualnewton as dn
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "two.svm").write_text("1 1:0.5 3:2\n-1 2:1\n")
    >>> _ = dn.data.convert(folder / "two.svm", folder / "two.npz")
    >>> dn.data.read(folder / "two.npz").X.shape
    (2, 3)
    """
    new = Path(out)
    writer = _writer(new)
    if dtype is not None and dtype not in DTYPES:
        raise DataError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype!r}")
    if not new.absolute().parent.is_dir():
        raise DataError(f"{new}: there is no folder {new.parent}")
    options: dict[str, Any] = {"target": target, "weights": weights, "offset": offset}
    options |= {"n_features": n_features, "zero_based": zero_based}
    with named(new), contextlib.ExitStack() as files:

        def spilled() -> SpilledPieces:
            # The system deletes an unnamed file when the process ends, for whatever reason.
            return SpilledPieces(files.enter_context(tempfile.TemporaryFile(dir=new.absolute().parent)))

        data = _gathered(source, ReadOptions(**options, block=block, report=report), options, spilled)
        n, d = data.shape
        done = Converted(new, (n, d), data.X.length if data.is_sparse else n * d, data.is_sparse, data.target)
        writer(data, new, np.dtype(data.X.dtype if dtype is None else DTYPES[dtype]))
    return done


def _gathered(source: str | os.PathLike[str], wanted: ReadOptions, options: dict[str, Any], make: Maker) -> Gathered:
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
        raise DataError(f"{out}: the ending must name the format, one of {', '.join(SUFFIXES)}")
    if kind not in ("svmlight", "csv") and out.suffix.lower() in COMPRESSED:
        raise DataError(f"{out}: only svmlight and CSV files can be compressed, got the ending {out.suffix}")
    return WRITERS[kind]
