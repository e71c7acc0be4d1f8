"""CSV files read with Arrow: blocks of plain numbers, about eight times as fast as Python's ``csv``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.io.columns import Columns
from dualnewton.io.layout import Layout
from dualnewton.io.source import Rows
from dualnewton.io.streams import reading
from dualnewton.io.words import MISSING

if TYPE_CHECKING:
    from dualnewton.io.tables import TableSource

PARSED, WIDE = 1 << 20, 4
"""Bytes that one thread parses at a time, at least this many per character of a line: Arrow needs blocks of a line or more."""


class NotPlainError(Exception):
    """A value is not a plain finite number, or the file is invalid; the reader in ``tables`` decides which."""


def options(layout: Layout, *, first: bool = True, quotes: bool = True, **convert: Any) -> dict[str, Any]:
    """Return the options with which Arrow reads a file of this layout.

    ``first`` is True for the beginning of a file, which may hold the header. ``quotes`` is False if no value is quoted, so
    that each line is a row; Arrow then finds the rows faster. ``convert`` has further options of the conversion of columns.
    """
    from pyarrow import csv

    return {
        "read_options": csv.ReadOptions(
            block_size=max(PARSED, WIDE * layout.longest),
            column_names=list(layout.names),
            skip_rows=layout.blank if first else 0,
            skip_rows_after_names=int(layout.has_names and first),
            encoding=layout.encoding.removesuffix("-sig"),
        ),
        "parse_options": csv.ParseOptions(delimiter=layout.delimiter, newlines_in_values=quotes),
        "convert_options": csv.ConvertOptions(decimal_point=layout.decimal, **convert),
    }


def plain_blocks(source: TableSource) -> Iterator[Rows]:
    """Yield the examples of a file of finite numbers, with labels of numbers or text.

    Arrow's own stream reads more than 32 blocks ahead. Here it is given one block of whole lines at a time. A value that is
    anything else is a ``NotPlainError`` before its block.
    """
    import pyarrow as pa
    from pyarrow import csv

    columns, layout, first = source.columns, source.layout, True
    types = {name: pa.float64() for name in layout.names}
    if columns.target is not None:
        types[layout.names[columns.target]] = pa.string()
    with reading(source.path, source.wanted.report, source.member) as stream, _plain():
        while block := stream.read(source.wanted.block):
            block += stream.readline()
            quotes = b'"' in block
            if (quotes and block.count(b'"') % 2) or layout.encoding == "utf-16":
                raise NotPlainError  # the end of the block may be inside a quoted value, or inside a character
            if not block.isspace():
                settings = options(layout, first=first, quotes=quotes, column_types=types, null_values=[])
                table = csv.read_csv(pa.BufferReader(block), **settings)
                if table.num_rows:
                    yield _rows(table, columns, source.text_labels)
            first = False


def _rows(table: Any, columns: Columns, text_labels: bool) -> Rows:
    X = np.empty((table.num_rows, len(columns.features)))
    at = 0
    # A batch has some thousand rows, which stay in the processor's cache while they are transposed.
    for batch in table.to_batches():
        for k, j in enumerate(columns.features.tolist()):
            X[at : at + batch.num_rows, k] = batch.column(j)
        at += batch.num_rows
    if not np.isfinite(X).all():
        raise NotPlainError
    vectors = {name: table.column(j).to_numpy() for name, j in columns.numbers.items()}
    if not all(np.isfinite(each).all() for each in vectors.values()):
        raise NotPlainError
    if columns.target is not None:
        vectors["y"] = _labels(table.column(columns.target), text_labels)
    return Rows(X, vectors)


def _labels(column: Any, text_labels: bool) -> np.ndarray:
    """Return the labels as numbers if all labels of the block are numbers, else as text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = pc.utf8_trim_whitespace(column).combine_chunks().dictionary_encode()
    distinct = coded.dictionary.to_pylist()
    if any(text.lower() in MISSING for text in distinct):
        raise NotPlainError
    if not text_labels:
        try:
            numbers = coded.dictionary.cast(pa.float64()).to_numpy()
        except pa.ArrowInvalid:
            from dualnewton.io.tables import numbers_in

            numbers = numbers_in(distinct)
        if numbers is not None and np.isfinite(numbers).all():
            return numbers[coded.indices.to_numpy()]
    return np.array(distinct)[coded.indices.to_numpy()]


@contextlib.contextmanager
def _plain() -> Iterator[None]:
    """Convert the errors of Arrow and of decoding into ``NotPlainError``."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise NotPlainError from error


# Columns of any type ---------------------------------------------------------------------------------------------------------


def typed(stream: Any, layout: Layout, types: Mapping[str, Any]) -> Any:
    """Return the table of a CSV file with the types that its values have: numbers, booleans, dates, or text with few copies.

    ``types`` has known types of columns; those of the others are inferred from all their values.
    """
    from pyarrow import csv

    return csv.read_csv(stream, **options(layout, column_types=types, **_types_of_values()))


def _types_of_values() -> dict[str, Any]:
    """Return the options with which types are inferred."""
    from pyarrow import csv

    return {
        "null_values": sorted(
            {form for word in MISSING for form in (word, word.upper(), word.capitalize(), "NaN", "N/a")}
        ),
        "strings_can_be_null": True,
        "auto_dict_encode": True,
        "auto_dict_max_cardinality": 2**31 - 1,
        "timestamp_parsers": [csv.ISO8601, *DATES],
    }


def retyped(column: Any, *, text: bool = False) -> Any:
    """Return a column of text of another file as it is read from a CSV file: dates, times, booleans, or text with missing values.

    Numbers stay text, since digits may be codes; and so does everything else if ``text``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    texts = column.cast(pa.string())
    coded = (texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts).dictionary_encode()
    buffer = pa.BufferOutputStream()
    csv.write_csv(pa.table({"text": coded.dictionary}), buffer, csv.WriteOptions(quoting_style="all_valid"))
    settings = csv.ConvertOptions(**_types_of_values())
    parsing = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
    longest = pc.max(pc.binary_length(coded.dictionary)).as_py() or 0
    reading_blocks = csv.ReadOptions(block_size=max(PARSED, WIDE * longest))
    found = csv.read_csv(pa.BufferReader(buffer.getvalue()), reading_blocks, parsing, settings).column(0)
    if not text and (pa.types.is_temporal(found.type) or pa.types.is_boolean(found.type)):
        return found.take(coded.indices)
    there = found.is_valid().combine_chunks()
    return pc.if_else(there.take(coded.indices), coded, pa.scalar(None, coded.type))


DATES = ("%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S")
"""Notations of dates besides ISO 8601. Dates with the month or the day first and slashes are ambiguous, and stay text."""
