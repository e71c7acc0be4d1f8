"""Encoded columns: the transformation of one column of a table into columns of a matrix, as plain data for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import filterfalse
from typing import Any, ClassVar, Protocol

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.preprocessing import notations, values
from dualnewton.preprocessing.roles import Kind, Role

Entries = tuple[Any, Any, Any]
"""Rows (all of them, or their indices), columns counted from the first of this column, and values."""


class Encoded(Protocol):
    """A column of a table that has become one or more columns of a matrix."""

    @property
    def name(self) -> str:
        """The name of the column of the table."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of its columns of the matrix."""

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        """Shift and scale of each of these, which holds (x − shift)/scale of a value x in original units."""

    @property
    def described(self) -> str:
        """A short description of the encoding."""

    def entries(self, column: Any, decimal: str, notes: list[str]) -> Iterator[Entries]:
        """Yield the entries that are not zero; messages for the user about the values are added to ``notes``."""


@dataclass(frozen=True)
class Numeric:
    """Numbers, booleans or dates: x ↦ (x − mean)/scale, and a column of 0 and 1 for missing values if the fit had some."""

    name: str
    kind: str  # "number", "boolean" (True is 1) or "date" (days since 1970-01-01)
    fill: float  # replacement of a missing value: the median, or the most frequent of true and false
    mean: float = 0.0
    scale: float = 1.0
    indicator: bool = False  # whether there is a column for missing values
    lenient: bool = False  # whether text that is not a number counts as missing
    # "month first" or "day first" in dates that are text; empty if the reader of the file has converted them.
    order: str = notations.ISO

    word: ClassVar[str] = "numeric"

    @classmethod
    def fit(
        cls, role: Role, column: Any, decimal: str, *, standardise: bool, lenient: bool, weights: np.ndarray | None
    ) -> Numeric:
        """Compute the replacement of missing values, then the weighted mean and the standard deviation with it."""
        x = values.numbers(role.name, column, decimal, lenient=lenient, order=role.order)
        missing = np.isnan(x)
        boolean, known = role.kind is Kind.BOOLEAN, x[~missing]
        fill = float(known.mean() > 0.5 if boolean else np.median(known))
        mean, scale = 0.0, 1.0
        if standardise and not boolean:
            x[missing] = fill
            mean, scale = _mean_and_scale(role.name, x, weights)
        return cls(role.name, role.kind.value, fill, mean, scale, bool(missing.any()), lenient, role.order)

    def __post_init__(self) -> None:
        if self.kind not in ("number", "boolean", "date"):
            raise DualnewtonError(f"kind must be number, boolean or date, got {self.kind!r:.40}")
        orders = (notations.ISO, notations.MONTH_FIRST, notations.DAY_FIRST)
        if self.order not in orders:
            raise DualnewtonError(f"order must be one of {orders}, got {self.order!r:.40}")
        numbers = (self.fill, self.mean, self.scale)
        if not all(isinstance(x, int | float) and np.isfinite(x) for x in numbers) or self.scale <= 0.0:
            raise DualnewtonError(f"fill, mean and scale > 0 must be finite numbers, got {numbers}")

    @property
    def labels(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} missing")[: 1 + self.indicator]

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        one = 1 + self.indicator
        return np.array([self.mean, 0.0][:one]), np.array([self.scale, 1.0][:one])

    @property
    def described(self) -> str:
        base = {"number": "unchanged", "boolean": "1 for true, 0 for false", "date": "days since 1970-01-01"}[self.kind]
        parts = ["standardised"] if self.scale != 1.0 or self.mean != 0.0 else [base]
        if self.kind == "date" and parts[0] == "standardised":
            parts = [f"{base}, standardised"]
        parts += [f"missing: {self._filled} and an indicator"] if self.indicator else []
        return "; ".join(parts)

    def _refuse_other_kinds(self, column: Any) -> None:
        """Raise an error for dates where the fit had none, and the reverse: as days and as numbers they are far apart."""
        if values.is_empty(column) or values.is_date(column) == (self.kind == "date"):
            return
        if self.kind != "date":
            wanted = "numbers" if self.kind == "number" else "true and false"
            raise DualnewtonError(f"the column {self.name!r} must hold {wanted}, as in the fit, got dates")
        if not values.is_text(column):
            raise DualnewtonError(f"the column {self.name!r} must hold dates, as in the fit, got numbers")
        if not self.order:  # the reader of the file would have converted dates
            wrong = next(
                filterfalse(notations.is_iso_date, values.texts(column).distinct), "dates in several notations"
            )
            raise DualnewtonError(f"the column {self.name!r} must hold dates, as in the fit, got {wrong[:40]!r}")

    @property
    def _filled(self) -> str:
        if self.kind == "boolean":
            return f"most frequent ({'true' if self.fill else 'false'})"
        return f"median {values.day(self.fill) if self.kind == 'date' else format(self.fill, 'g')}"

    def entries(self, column: Any, decimal: str, notes: list[str]) -> Iterator[Entries]:
        self._refuse_other_kinds(column)
        x = values.numbers(self.name, column, decimal, lenient=self.lenient, order=self.order)
        missing = np.flatnonzero(np.isnan(x))
        if self.kind == "boolean" and (other := np.setdiff1d(x, (0.0, 1.0, np.nan))).size:
            raise DualnewtonError(f"the column {self.name!r} must hold true and false, as in the fit, got {other[0]:g}")
        if len(missing):
            x[missing] = self.fill
            if not self.indicator:
                notes.append(f"{self.name}: {len(missing)} missing, replaced by {self._filled}; the fit had none")
        yield slice(None), 0, (x - self.mean) / self.scale
        if self.indicator:
            yield missing, 1, 1.0


def _mean_and_scale(name: str, x: np.ndarray, weights: np.ndarray | None) -> tuple[float, float]:
    """Return the mean and the standard deviation; 1 for the latter if the values differ by rounding errors only.

    They are those of scikit-learn's ``StandardScaler``, which takes milliseconds for a column, and minutes for a table of
    20,000 columns.
    """
    weights = weights if weights is not None and weights.any() else None  # without any weight the fit itself is refused
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(np.average(x, weights=weights))
        rest = x - mean
        variance = float(np.average(np.square(rest), weights=weights) - np.average(rest, weights=weights) ** 2)
    if not np.isfinite(variance):
        raise DualnewtonError(
            f"the column {name!r} must hold numbers whose squares are finite, got {x[np.argmax(np.abs(x))]:.3g}: "
            "use a larger unit, or leave the column out (--drop)"
        )
    total = len(x) if weights is None else float(weights.sum())
    rounding = total * np.finfo(float).eps * variance + (total * mean * np.finfo(float).eps) ** 2
    return mean, 1.0 if variance <= rounding else float(np.sqrt(variance))


@dataclass(frozen=True)
class Categorical:
    """Categories: a column of 0 and 1 for each value, and one for missing values if the fit had some.

    A value that did not occur in the fit is 0 in all of them.
    """

    name: str
    distinct: tuple[str, ...]
    indicator: bool = False  # whether there is a column for missing values

    word: ClassVar[str] = "categorical"

    @classmethod
    def fit(cls, role: Role, column: Any) -> Categorical:
        """Store the distinct values of the fit."""
        codes, distinct = values.texts(column)
        return cls(role.name, tuple(distinct), bool((codes < 0).any()))

    def __post_init__(self) -> None:
        object.__setattr__(self, "distinct", tuple(self.distinct))
        if not self.distinct or not all(isinstance(text, str) for text in self.distinct):
            raise DualnewtonError(f"distinct must be texts, got {self.distinct!r:.40}")

    @property
    def labels(self) -> tuple[str, ...]:
        each = tuple(f"{self.name}={text}" for text in self.distinct)
        return each + (f"{self.name} missing",) * self.indicator

    @property
    def affine(self) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(len(self.labels)), np.ones(len(self.labels))

    @property
    def described(self) -> str:
        more = ", one for missing values" if self.indicator else ""
        return f"{len(self.labels)} columns of 0 and 1{more}"

    def entries(self, column: Any, decimal: str, notes: list[str]) -> Iterator[Entries]:  # noqa: ARG002
        codes, distinct = values.texts(column)
        place = {text: k for k, text in enumerate(self.distinct)}
        unknown = [k for k, text in enumerate(distinct) if text not in place]
        if unknown:
            rows = int(np.isin(codes, unknown).sum())
            some = ", ".join(repr(distinct[k]) for k in unknown[:3]) + (", …" if len(unknown) > 3 else "")
            notes.append(
                f"{self.name}: {rows} of {len(codes)} values are new ({some}), encoded as none of the known ones"
            )
        missing = len(self.distinct) if self.indicator else -1
        if not self.indicator and (codes < 0).any():
            notes.append(f"{self.name}: {int((codes < 0).sum())} missing, encoded as none of the known values")
        known = np.array([place.get(text, -1) for text in distinct] + [missing], dtype=np.int64)[codes]
        rows_known = np.flatnonzero(known >= 0)
        yield rows_known, known[rows_known], 1.0


KINDS: dict[str, type[Numeric] | type[Categorical]] = {kind.word: kind for kind in (Numeric, Categorical)}
"""Kinds of encoded columns by their names in files."""


def to_dict(column: Any) -> dict[str, Any]:
    """Return an encoded column as values for JSON."""
    return {"encoded": column.word, **asdict(column)}


def from_dict(words: Mapping[str, Any]) -> Any:
    """Undo :func:`to_dict`; raise a ``DualnewtonError`` if the fields are invalid."""
    if not isinstance(words, Mapping) or words.get("encoded") not in KINDS:
        raise DualnewtonError(f"a column must be {' or '.join(KINDS)}, got {words!r:.60}")
    fields = {key: value for key, value in words.items() if key != "encoded"}
    if not isinstance(fields.get("name"), str):
        raise DualnewtonError(f"a column must have a name, got {fields.get('name')!r:.40}")
    if not all(isinstance(fields.get(flag, False), bool) for flag in ("indicator", "lenient")):
        raise DualnewtonError(f"indicator and lenient of {fields['name']!r:.40} must be true or false")
    try:
        return KINDS[words["encoded"]](**fields)
    except TypeError as error:
        raise DualnewtonError(f"the column {fields['name']!r:.40} is wrong: {error}") from None
