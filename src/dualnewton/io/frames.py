"""Tables with columns of any type: CSV and Parquet files as Arrow tables, for `dualnewton fit` and its models."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dualnewton.io.columns import refuse_repeated
from dualnewton.io.dataset import DataError
from dualnewton.io.formats import format_of
from dualnewton.io.layout import EncodingError, Layout, layout_of, not_text
from dualnewton.io.parquet import batches, faults, is_type, pyarrow_for
from dualnewton.io.source import ReadOptions
from dualnewton.io.streams import reading

OTHERS = ("cp1252", "latin-1")
"""Encodings that are tried if a file is not UTF-8; the last one decodes any bytes."""


@dataclass(frozen=True, eq=False)
class Frame:
    """A table in memory."""

    path: Path
    table: Any  # its columns: numbers, booleans, dates, or text as codes of distinct values
    has_names: bool = True  # False if the names were generated
    layout: Layout | None = None  # how a text file is written; None for Parquet

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(self.table.column_names)

    @property
    def decimal(self) -> str:
        """The decimal mark of numbers in text."""
        return "." if self.layout is None else self.layout.decimal

    def rows(self, which: Any) -> Frame:
        """Return some rows, by index or by a mask."""
        import numpy as np
        import pyarrow as pa

        index = np.flatnonzero(which) if np.asarray(which).dtype == bool else np.asarray(which)
        return replace(self, table=self.table.take(pa.array(index)))

    def renamed(self, names: Collection[str]) -> Frame:
        """Return the same columns with other names."""
        return replace(self, table=self.table.rename_columns(list(names)))

    def __str__(self) -> str:
        said = f"{self.path.name}: {self.table.num_rows} rows, {self.table.num_columns} columns"
        if self.layout is None:
            return said
        notes = [f"separated by {SHOWN[self.layout.delimiter]}"] * (self.layout.delimiter != ",")
        notes += ["decimal commas"] * (self.layout.decimal == ",")
        notes += [f"read as {self.layout.encoding}"] * (not self.layout.encoding.startswith("utf-8"))
        notes += ["without column names"] * (not self.has_names)
        return ", ".join([said, *notes])


SHOWN = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}


def is_table(path: str | Path) -> bool:
    """Return True if a path is a CSV or Parquet file."""
    return Path(path).is_file() and format_of(Path(path)) in READERS


def read_frame(path: str | Path, wanted: ReadOptions, text: Collection[str] = ()) -> Frame:
    """Read a CSV or Parquet file with the types that its columns have.

    A text file may be compressed. Columns in ``text``, and those with leading zeros, are kept as they are written. A damaged
    file is a ``DataError`` that says where.
    """
    file = Path(path)
    frame = READERS[format_of(file)](file, wanted, text)
    refuse_repeated(file, frame.names)
    if frame.table.num_rows == 0:
        raise DataError(f"{file}: holds no examples")
    return frame


def _parquet(path: Path, wanted: ReadOptions, text: Collection[str]) -> Frame:
    found = list(batches(path, wanted, wanted.block))
    if not found:
        raise DataError(f"{path}: holds no examples")
    from dualnewton.io.arrow_csv import retyped

    table = pyarrow_for(path).Table.from_batches(found)
    with faults(path):
        for j, field in enumerate(table.schema):
            if is_type(field.type, "string", "large_string", "string_view", coded=True):
                table = table.set_column(j, field.name, retyped(table.column(j), text=field.name in text))
    return Frame(path, table)


def _csv(path: Path, wanted: ReadOptions, text: Collection[str]) -> Frame:
    pyarrow_for(path, "Tables")
    errors: list[EncodingError] = []
    for encoding in _encodings(wanted):
        try:
            return _read(path, replace(wanted, encoding=encoding), text)
        except EncodingError as error:
            errors.append(error)
    raise errors[0]


def _encodings(wanted: ReadOptions) -> Iterator[str | None]:
    """Yield the encoding that the user names, or else UTF-8 (or that of a byte order mark) and then others."""
    yield wanted.encoding
    if wanted.encoding is None:
        yield from OTHERS


def _read(path: Path, wanted: ReadOptions, text: Collection[str]) -> Frame:
    import pyarrow as pa

    from dualnewton.io.arrow_csv import typed

    layout = layout_of(path, wanted)
    refuse_repeated(path, layout.names)
    types = {name: pa.string() for name in {*text, *layout.codes}.intersection(layout.names)}
    try:
        with reading(path, wanted.report) as stream:
            table = typed(stream, layout, types)
    except UnicodeDecodeError as error:
        raise not_text(path, layout.encoding, error.reason) from None
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise not_text(path, layout.encoding, "in a column of text") from None
        raise _fault(path, layout, error) from None
    if any(is_type(field.type, "binary", coded=True) for field in table.schema):
        raise not_text(path, layout.encoding, "in a column of text")
    last = table.slice(max(table.num_rows - 1, 0)).to_pylist()
    if any(isinstance(value, str) and "\n" in value for row in last for value in row.values()):
        _check(path, layout)  # Arrow ends a quote that is not closed at the end of the file
    return Frame(path, table, layout.has_names, layout)


def _fault(path: Path, layout: Layout, error: Exception) -> DataError:
    """Return the error for a file that Arrow cannot parse."""
    try:
        _check(path, layout)
    except DataError as found:
        return found
    return DataError(f"{path}: not a table that can be read ({' '.join(str(error).split())[:120]})")


def _check(path: Path, layout: Layout) -> None:
    """Raise an error for the first line that is wrong, as Python's ``csv`` finds it: another number of values, an open quote."""
    from dualnewton.io.tables import lines_of

    wanted = len(layout.names)
    with lines_of(path, layout, ReadOptions()) as lines:
        for number, row in lines:
            if len(row) != wanted:
                raise DataError(f"{path}, line {number}: expected {wanted} values, found {len(row)}")


READERS = {"csv": _csv, "parquet": _parquet}
"""The reader of each format of tables."""
