"""The kind of each column of a table, found from its values, and whether a fit uses it."""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io.words import are_codes
from dualnewton.preprocessing import notations, values

FEW, MANY, SHARE = 20, 1000, 0.5
"""Text is interpreted as categories if it has at most FEW distinct values, or at most MANY that are at most SHARE of the rows."""

NAMED = re.compile(
    r"(^|[\W_])(?i:id|ids|uuid|guid|key|index|nr|no)$|[a-z](ID|Id|Nr|No)$|(?i:kundennr|nummer|number)$|^Unnamed: 0$"
)
"""Names of identifiers. Integers with one of these names are interpreted as identifiers if they differ in all rows."""

SHOWN = 4
"""Number of values of a category that a description lists."""


class Kind(enum.Enum):
    """The kind of a column; the value is its name in messages."""

    NUMBER = "number"
    BOOLEAN = "boolean"
    DATE = "date"
    CATEGORY = "category"
    IDENTIFIER = "identifier"
    CONSTANT = "constant"
    EMPTY = "empty"
    NESTED = "nested"
    DROPPED = "dropped"

    @property
    def used(self) -> bool:
        """Whether a fit uses columns of this kind."""
        return self in (Kind.NUMBER, Kind.BOOLEAN, Kind.DATE, Kind.CATEGORY)


@dataclass(frozen=True)
class Choices:
    """The choices of the user about columns; each is a collection of names."""

    drop: Collection[str] = ()  # columns that are left out
    features: Collection[str] = ()  # if not empty: all columns that are used
    # Columns of these kinds, whatever their values look like.
    categorical: Collection[str] = ()
    numeric: Collection[str] = ()

    def check(self, names: Sequence[str], others: Collection[str] = ()) -> None:
        """Raise an error for a name that is not a feature, and for a column with two contradictory choices.

        ``others`` are the columns that are no features.
        """
        for word in ("drop", "features", "categorical", "numeric"):
            for name in getattr(self, word):
                if name not in names:
                    near = difflib.get_close_matches(name, names, 1)
                    hint = f"; did you mean {near[0]!r}?" if near else ""
                    hint = ", which is the target, the weights or the offset" if name in others else hint
                    raise DualnewtonError(f"--{word} must name columns of the features, got {name!r}{hint}")
        for one, other in (
            ("categorical", "numeric"),
            ("drop", "features"),
            ("drop", "categorical"),
            ("drop", "numeric"),
        ):
            both = set(getattr(self, one)) & set(getattr(self, other))
            if both:
                raise DualnewtonError(f"a column cannot be in both --{one} and --{other}, got {min(both)!r}")


@dataclass(frozen=True)
class Role:
    """The kind of a column."""

    name: str
    kind: Kind
    seen: str  # short description of its values
    missing: int = 0  # number of missing values
    order: str = notations.ISO  # order of day and month in dates that are text


def roles_of(table: Any, features: Sequence[str], choices: Choices, decimal: str = ".") -> tuple[Role, ...]:
    """Return the role of each column of a table that may be a feature.

    ``features`` are the columns except target and weights; ``decimal`` is the decimal mark of numbers in text.
    """
    choices.check(features, table.column_names)
    return tuple(_role(name, table.column(name), choices, decimal) for name in features)


def _role(name: str, column: Any, choices: Choices, decimal: str) -> Role:
    missing = column.null_count
    if name in choices.drop or (choices.features and name not in choices.features):
        return Role(name, Kind.DROPPED, "as asked", missing)
    if values.is_empty(column):
        return Role(name, Kind.EMPTY, "no values", missing)
    asked = name in choices.features
    if name in choices.categorical:
        return _texts(name, column, decimal, asked=True, category=True)
    if name in choices.numeric:
        return _numbers(name, column, decimal, asked=True)
    if values.is_text(column):
        return _texts(name, column, decimal, asked=asked)
    if values.is_numeric(column) or values.is_boolean(column) or values.is_date(column):
        return _numbers(name, column, decimal, asked=asked)
    return Role(name, Kind.NESTED, str(column.type), missing)


def _texts(name: str, column: Any, decimal: str, *, asked: bool, category: bool = False) -> Role:
    """Return the role of a column of text: numbers or dates in some notation, categories, or an identifier.

    It is no identifier if the user has asked for the column, and it is a category if the user has called it one.
    """
    codes, distinct = values.texts(column)
    missing, rows = int(np.sum(codes < 0)), len(codes)
    numbers, as_codes = notations.numbers_in(distinct, decimal), are_codes(distinct)
    if not category and not as_codes and not np.isnan(numbers).any():
        return _numbers(name, column, decimal, asked=True)
    order = notations.order_of(distinct)
    if order and not category and not np.isnan(notations.days_in(distinct, order)).any():
        return _numbers(name, column, decimal, asked=True, order=order)
    if len(distinct) == 1 and not missing:
        return Role(name, Kind.CONSTANT, f"always {distinct[0]}")
    allowed = max(min(FEW, rows - missing - 1), min(MANY, SHARE * (rows - missing)))
    if not asked and len(distinct) > allowed:
        hint = ""
        if as_codes:
            hint = f", with leading zeros: --numeric {name} uses them"
        elif np.mean(np.isfinite(numbers)) > SHARE:
            words = distinct[int(np.argmax(np.isnan(numbers)))]
            hint = f", most of them numbers, but not {words[:20]!r}: --numeric {name} uses them"
        if order == notations.ISO:
            hint = ", dates in which day and month cannot be distinguished: write them as 2023-12-31"
        return Role(name, Kind.IDENTIFIER, f"text with {len(distinct)} distinct values{hint}", missing)
    more = f", … ({len(distinct)} in all)" if len(distinct) > SHOWN else ""
    return Role(name, Kind.CATEGORY, ", ".join(distinct[:SHOWN]) + more, missing)


def _numbers(name: str, column: Any, decimal: str, asked: bool, order: str = notations.ISO) -> Role:
    """Return the role of a column of numbers, booleans or dates; ``asked`` if the user chose it."""
    x = values.numbers(name, column, decimal, lenient=asked, order=order)
    there = x[np.isfinite(x)]
    missing = len(x) - len(there)
    low, high = there.min(), there.max()
    date = values.is_date(column) or bool(order)
    said = f"{values.day(low)} to {values.day(high)}" if date else f"{low:g} to {high:g}"
    if low == high and not missing:
        return Role(name, Kind.CONSTANT, f"always {said.split(' to ')[0]}")
    if values.is_boolean(column):
        return Role(name, Kind.BOOLEAN, f"true in {np.mean(there):.0%}", missing)
    if date:
        return Role(name, Kind.DATE, said + (f", {order}" if order else ""), missing, order)
    if not asked and not missing and len(x) > FEW and _name_rows(name, x):
        return Role(name, Kind.IDENTIFIER, f"a different whole number in each of {len(x)} rows")
    return Role(name, Kind.NUMBER, said, missing)


def _name_rows(name: str, x: np.ndarray) -> bool:
    """Return True if numbers are interpreted as identifiers of the rows."""
    return bool(NAMED.search(name)) and bool(np.all(np.floor(x) == x)) and len(np.unique(x)) == len(x)
