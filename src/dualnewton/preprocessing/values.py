"""The values of an Arrow column as NumPy arrays: numbers with NaN where one is missing, or codes of distinct texts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io.parquet import is_type
from dualnewton.preprocessing import notations

DAY, HOUR = 86_400.0, 3_600.0
"""Seconds of a day, the unit of dates, and of an hour, the unit of times of a day."""

LARGEST_WHOLE = 2.0**53
"""Floats below this are written as integers if they are whole."""


class Texts(NamedTuple):
    """A column as text: the code of each value, −1 where it is missing, and the distinct texts in the order of the codes."""

    codes: np.ndarray
    distinct: list[str]


def is_text(column: Any) -> bool:
    """Return True if the values are text."""
    return is_type(column.type, "string", "large_string", "string_view", coded=True)


def is_date(column: Any) -> bool:
    """Return True if the values are dates, with or without a time."""
    return is_type(column.type, "date", "timestamp")


def is_boolean(column: Any) -> bool:
    """Return True if the values are true or false."""
    return is_type(column.type, "boolean")


def is_numeric(column: Any) -> bool:
    """Return True if the values are numbers, or times of a day."""
    return is_type(column.type, "integer", "floating", "decimal", "time")


def is_empty(column: Any) -> bool:
    """Return True if every value is missing."""
    return column.null_count == len(column)


def texts(column: Any) -> Texts:
    """Return a column of any type as text, without the spaces around it; whole numbers are written without decimals."""
    import pyarrow as pa
    import pyarrow.compute as pc

    coded = column if pa.types.is_dictionary(column.type) else pc.dictionary_encode(column)
    whole = coded.combine_chunks() if hasattr(coded, "combine_chunks") else coded
    if isinstance(whole, pa.ChunkedArray):  # chunks with different dictionaries
        whole = whole.unify_dictionaries().combine_chunks()
    written = [None if value is None else _written(value) for value in whole.dictionary.to_pylist()]
    codes = pc.fill_null(whole.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    # Values that differ only in surrounding spaces are merged; the order is that of the text.
    distinct = sorted({text for text in written if text})
    place = {text: k for k, text in enumerate(distinct)}
    table = np.array([place.get(text or "", -1) for text in written] + [-1], dtype=np.int64)
    codes = table[codes]  # the code −1 takes the last entry
    used = np.unique(codes[codes >= 0])
    if len(used) < len(distinct):  # a dictionary may hold values that no row has, as after a selection of rows
        narrow = np.full(len(distinct) + 1, -1, dtype=np.int64)
        narrow[used] = np.arange(len(used))
        codes, distinct = narrow[codes], [distinct[k] for k in used]
    return Texts(codes, distinct)


def _written(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST_WHOLE:
        return str(int(value))
    return str(value).strip()


def numbers(
    name: str, column: Any, decimal: str = ".", *, lenient: bool = False, order: str = notations.ISO
) -> np.ndarray:
    """Return a column as float64 with NaN for missing values.

    True is 1 and false 0; dates are days since 1970-01-01, times of a day hours; text must be numbers or dates in the notations
    of ``preprocessing.notations``.

    ``decimal`` is the decimal mark in text, ``order`` the order of day and month. If ``lenient``, text that is not a number
    counts as missing, as long as most distinct values are numbers; otherwise it is an error, as an infinite value is.
    """
    import pyarrow as pa

    if is_empty(column):
        return np.full(len(column), np.nan)
    if is_text(column):
        codes, distinct = texts(column)
        values = notations.days_in(distinct, order) if order else notations.numbers_in(distinct, decimal)
        wrong_share = float(np.mean(np.isnan(values)))
        if wrong_share > (0.5 if lenient else 0.0):
            wrong = distinct[int(np.argmax(np.isnan(values)))]
            wanted = f"dates with the {order}" if order else "numbers"
            raise DualnewtonError(f"the column {name!r} must hold {wanted}, got {wrong[:40]!r}")
        found = np.append(values, np.nan)[codes]
    elif is_date(column):
        found = _micro(column, pa.timestamp("us", tz=getattr(column.type, "tz", None))) / (1e6 * DAY)
    elif pa.types.is_time(column.type):
        found = _micro(column, pa.time64("us")) / (1e6 * HOUR)
    elif is_numeric(column) or is_boolean(column):
        found = _floats(column)
    else:
        raise DualnewtonError(f"the column {name!r} must hold numbers, got {column.type}")
    if np.isinf(found).any():
        value = found[int(np.argmax(np.isinf(found)))]
        raise DualnewtonError(f"the column {name!r} must be finite, got {value}: correct or remove the value")
    return found


def _micro(column: Any, kind: Any) -> np.ndarray:
    """Return dates or times as microseconds."""
    import pyarrow as pa

    return _floats(column.cast(kind).cast(pa.int64()))


def _floats(column: Any) -> np.ndarray:
    """Return numbers as float64 with NaN for missing values."""
    import pyarrow as pa

    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    found = whole.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.array(found, dtype=np.float64)


def day(days: float) -> str:
    """Return days since 1970-01-01 as a date."""
    return str(np.datetime64(int(np.floor(days)), "D"))
