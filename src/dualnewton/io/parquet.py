"""Parquet files, read with pyarrow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from dualnewton.errors import MissingPackageError
from dualnewton.files.npy import damage
from dualnewton.io.columns import Columns, assign, infinite, missing, not_numbers
from dualnewton.io.dataset import DataError
from dualnewton.io.source import ReadOptions, Rows, Source, refuse_zero_based


@dataclass(frozen=True, eq=False)
class ParquetSource(Source):
    """A Parquet file."""

    columns: Columns = None  # type: ignore[assignment]

    def blocks(self) -> Iterator[Rows]:
        before = 0
        for batch in batches(self.path, self.wanted, self.wanted.block):
            if batch.num_rows:
                yield self._block(batch, before)
            before += batch.num_rows

    def _block(self, batch: Any, before: int) -> Rows:
        features = self.columns.features.tolist()
        X = np.empty((batch.num_rows, len(features)))
        for k, j in enumerate(features):
            X[:, k] = self.numbers(batch.column(j), j, before)
        return Rows(X, {name: self.vector(name, batch.column(j), before) for name, j in self.vectors.items()})

    @property
    def vectors(self) -> dict[str, int]:
        """The columns of labels, weights and offsets, by their field of a data set."""
        target = {} if self.columns.target is None else {"y": self.columns.target}
        return target | dict(self.columns.numbers)

    def vector(self, name: str, column: Any, before: int) -> np.ndarray:
        """Return the labels, weights or offsets in a column; ``before`` counts the rows before it."""
        return self.labels(column, before) if name == "y" else self.numbers(column, self.vectors[name], before)

    def numbers(self, column: Any, j: int, before: int) -> np.ndarray:
        """Return the values of column j as finite numbers; ``before`` counts the rows before them."""
        import pyarrow as pa

        self.require_all(column, j, before)
        found = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        if not (finite := np.isfinite(found)).all():
            at = int(np.argmin(finite))
            kind = missing if np.isnan(found[at]) else infinite
            raise kind(self.path, self.columns, j, f", row {before + at}", found[at])
        return found

    def labels(self, column: Any, before: int) -> np.ndarray:
        """Return the values of the target as numbers or text; ``before`` counts the rows before them."""
        import pyarrow as pa

        self.require_all(column, self.columns.target or 0, before)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if is_type(column.type, *NUMBERS):
            return self.numbers(column, self.columns.target or 0, before)
        return np.array(column.cast(pa.string()).to_pylist())

    def require_all(self, column: Any, j: int, before: int) -> None:
        """Raise an error if a value of column j is missing."""
        if column.null_count:
            at = column.is_null().to_pylist().index(True)
            raise missing(self.path, self.columns, j, f", row {before + at}", "null")


def source(path: Path, wanted: ReadOptions) -> ParquetSource:
    """Read the names and types of the columns and assign their roles."""
    refuse_zero_based(path, wanted)
    with opened(path) as file, faults(path):
        schema = file.schema_arrow
    names = tuple(schema.names)
    columns = assign(path, names, True, wanted)
    words = [j for j in columns.features.tolist() if not is_type(schema.field(j).type, *NUMBERS)]
    if words:
        raise not_numbers(path, columns, words, "", schema.field(words[0]).type)
    for j in columns.numbers.values():
        if not is_type(schema.field(j).type, *NUMBERS):
            raise not_numbers(path, columns, [j], "", schema.field(j).type)
    features = tuple(names[j] for j in columns.features)
    return ParquetSource(path, wanted, features, columns.target_text, columns.files, False, columns)


def batches(path: Path, wanted: ReadOptions, block: int) -> Iterator[Any]:
    """Yield the record batches of a file, of about ``block`` bytes each, and report the share that is read."""
    with opened(path) as file, faults(path):
        rows, before = max(1, block // (8 * max(1, len(file.schema_arrow.names)))), 0
        for batch in file.iter_batches(batch_size=rows):
            yield batch
            before += batch.num_rows
            if wanted.report is not None:
                wanted.report(path.stat().st_size * before // max(1, file.metadata.num_rows))


NUMBERS = ("integer", "floating", "boolean", "decimal")
"""Types of Arrow that are read as numbers."""


def is_type(kind: Any, *names: str, coded: bool = False) -> bool:
    """Whether a type of Arrow is one of these, such as "integer"; or, if ``coded``, codes of distinct values of such a type."""
    import pyarrow as pa

    kind = kind.value_type if coded and pa.types.is_dictionary(kind) else kind
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def pyarrow_for(path: Path, what: str = "Parquet files") -> Any:
    """Return the module pyarrow, or raise an error that says how to install it; ``what`` needs it."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingPackageError(f"{path}: {what} need pyarrow: pip install pyarrow ({error})") from None
    return pyarrow


@contextlib.contextmanager
def opened(path: Path, raw: IO[bytes] | None = None, buffer_size: int = 0) -> Iterator[Any]:
    """Open a Parquet file, or the one that is open already; columns are read in blocks of ``buffer_size`` bytes, at once if 0."""
    pyarrow = pyarrow_for(path)
    options = {"page_checksum_verification": True, "buffer_size": buffer_size}
    with (
        open(path, "rb") if raw is None else contextlib.nullcontext(raw) as given,
        faults(path),
        pyarrow.parquet.ParquetFile(given, **options) as file,
    ):
        yield file


def faults(path: Path) -> contextlib.AbstractContextManager[None]:
    """Convert the exceptions that pyarrow raises for a damaged file into a ``DataError`` that names the file."""
    import pyarrow as pa

    kinds = (pa.ArrowException, ValueError, KeyError, IndexError, TypeError, OverflowError, MemoryError)
    return damage(DataError, f"{path}: not a Parquet file that can be read, or damaged", kinds, errnos=())
