"""Numbers and dates that are written as text: currencies, percentages, separators of thousands, dates with slashes."""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence

import numpy as np

from dualnewton.io.words import is_number

NUMERIC = re.compile(r"[\d\s.,+\-eE$€£¥%]+")
"""The characters of numbers, by which most other texts are excluded at little cost."""

SIGNS = re.compile(r"^([+-]?)[$€£¥]\s?|\s?[$€£¥%]$")
"""A sign of a currency before or after a number, or one of a percentage after it."""

GAPS = re.compile(r"(?<=\d)[ \u00a0\u2009\u202f](?=\d{3}(?!\d))")
"""Spaces between groups of three digits."""

GROUPED = {
    ".": re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?"),
    ",": re.compile(r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?"),
}
"""Numbers with separators of thousands, by their decimal mark."""

SLASHED = re.compile(
    r"(?P<first>\d{1,2})(?P<mark>[/-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})"
    r"(?:[ T](?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<seconds>\d{2}))?(?: ?(?P<half>[AaPp][Mm]))?)?"
)
"""Dates whose day and month are numbers with slashes or hyphens, with or without a time."""

MONTH_FIRST, DAY_FIRST, ISO = "month first", "day first", ""
"""Orders of day and month in such dates; ISO for dates that the reader of files has converted, and if no order is known."""

MONTHS, PIVOT = 12, 69
"""Months of a year, and the first two-digit year that belongs to the 20th century, as in POSIX (69 is 1969, 68 is 2068)."""


def numbers_in(texts: Sequence[str], decimal: str) -> np.ndarray:
    """Return texts as numbers, NaN if a text is not a number.

    Signs of currencies and separators of thousands are removed. Percentages are counted in percent; beside numbers without the
    sign they are not accepted as numbers, since 5% and 0.05 might mean the same.
    """
    percent = [text.endswith("%") for text in texts]
    mixed = any(percent) and not all(percent)
    found = [
        np.nan if mixed and marked else _number(text, decimal) for text, marked in zip(texts, percent, strict=True)
    ]
    return np.array(found, dtype=float)


def _number(text: str, decimal: str) -> float:
    if not NUMERIC.fullmatch(text):
        return np.nan
    bare = GAPS.sub("", SIGNS.sub(r"\1", text))
    thousands = "," if decimal == "." else "."
    if thousands in bare:
        if not GROUPED[decimal].fullmatch(bare):
            return np.nan
        bare = bare.replace(thousands, "")
    plain = bare.replace(decimal, ".")
    return float(plain) if is_number(plain) else np.nan


def order_of(texts: Sequence[str]) -> str | None:
    """Return the order of day and month in dates with slashes, ISO if it is undetermined, None if the texts are not dates.

    One value above 12 determines the order of the whole column.
    """
    matches = [SLASHED.fullmatch(text) for text in texts]
    found = [match for match in matches if match is not None]
    if not found or len(found) < len(texts):
        return None
    first, second = (max(int(match[place]) for match in found) for place in ("first", "second"))
    if min(first, second) > MONTHS:
        return None
    return DAY_FIRST if first > MONTHS else MONTH_FIRST if second > MONTHS else ISO


def is_iso_date(text: str) -> bool:
    """Return True if a text is a date such as 2023-12-31, with or without a time."""
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def days_in(texts: Sequence[str], order: str) -> np.ndarray:
    """Return dates in an order as days since 1970-01-01, NaN if a text is not a date."""
    return np.array([_day(SLASHED.fullmatch(text), order) for text in texts], dtype=float)


def _day(match: re.Match[str] | None, order: str) -> float:
    if match is None:
        return np.nan
    month, day = (int(match[place]) for place in ("first", "second"))
    if order == DAY_FIRST:
        month, day = day, month
    year = int(match["year"])
    if len(match["year"]) == 2:
        year += 1900 if year >= PIVOT else 2000
    hour, minute, seconds = (int(match[place] or 0) for place in ("hour", "minute", "seconds"))
    if match["half"]:
        hour = hour % 12 + 12 * (match["half"].lower() == "pm")
    try:
        moment = datetime.datetime(year, month, day, hour, minute, seconds)
    except ValueError:
        return np.nan
    return (moment - datetime.datetime(1970, 1, 1)) / datetime.timedelta(days=1)
