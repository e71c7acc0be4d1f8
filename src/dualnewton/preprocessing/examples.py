"""The examples of a table: its rows that have a target, with it, their weights and their offsets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io import Dataset
from dualnewton.io.arrays import require_one_each, vector_file
from dualnewton.io.columns import assign
from dualnewton.io.dataset import OPTIONS, VECTORS
from dualnewton.io.frames import Frame
from dualnewton.io.source import ReadOptions
from dualnewton.preprocessing import notations, values


@dataclass(frozen=True, eq=False)
class Examples:
    """Rows of a table."""

    frame: Frame  # all columns
    features: tuple[str, ...]  # columns except target, weights and offsets
    target: str | None = None  # column of the target
    y: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    left_out: int = 0  # number of rows that were left out, since they have no target

    def __len__(self) -> int:
        return int(self.frame.table.num_rows)

    def some(self, rows: np.ndarray) -> Examples:
        """Return the rows with these indices."""
        picked: Any = {name: own[rows] for name in VECTORS if (own := getattr(self, name)) is not None}
        return replace(self, frame=self.frame.rows(rows), **picked)

    def dataset(self, X: Any, names: tuple[str, ...]) -> Dataset:
        """Return a data set with the matrix X of these rows."""
        vectors: Any = {name: getattr(self, name) for name in VECTORS}
        return Dataset(X, **vectors, feature_names=names, name=self.frame.path.stem, target=self.target)


def examples_of(frame: Frame, wanted: ReadOptions, *, labelled: bool = True) -> Examples:
    """Find target, weights and offsets of a table, and leave out rows without a target if one is required.

    ``wanted`` names their columns, as for :func:`dualnewton.io.read`.
    """
    columns = assign(frame.path, frame.names, frame.has_names, wanted)
    features = tuple(frame.names[j] for j in columns.features)
    vectors: dict[str, Any] = {name: _column(frame, name, j) for name, j in columns.numbers.items()}
    for field, file in columns.files.items():
        vectors[field] = vector_file(file)
        require_one_each(file, field, vectors[field], frame.table.num_rows)
    if columns.target is None:
        return Examples(frame, features, **vectors)
    name = frame.names[columns.target]
    y, there = labels(frame, name)
    examples = Examples(frame, features, name, y, **vectors)
    if there.all() or not labelled:
        return examples
    if not there.any():
        raise DualnewtonError(f"{frame.path}: the target {name!r} has no values")
    return replace(examples.some(np.flatnonzero(there)), left_out=int((~there).sum()))


def labels(frame: Frame, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the labels in a column, numbers or text, and a mask of the rows that have one."""
    column, decimal = frame.table.column(name), frame.decimal
    if values.is_numeric(column):
        x = values.numbers(name, column, decimal)
        return x, ~np.isnan(x)
    if not (values.is_text(column) or values.is_boolean(column) or values.is_empty(column)):
        raise DualnewtonError(
            f"{frame.path}: the target {name!r} must hold numbers, categories, or true and false, got "
            f"{'dates' if values.is_date(column) else column.type}"
        )
    codes, distinct = values.texts(column)
    numbers = notations.numbers_in(distinct, decimal)
    if distinct and values.is_text(column) and not np.isnan(numbers).any():  # prices, percentages, thousands
        return np.append(numbers, np.nan)[codes], codes >= 0
    return np.array([*distinct, ""])[codes], codes >= 0


def _column(frame: Frame, field: str, column: int) -> np.ndarray:
    """Return the weights or offsets in a column."""
    what, given = OPTIONS[field].removesuffix("s"), frame.table.column(column)
    if values.is_date(given):
        raise DualnewtonError(f"the {what}s in {frame.names[column]!r} must be numbers, got dates")
    found = values.numbers(frame.names[column], given, frame.decimal)
    if np.isnan(found).any():
        row = int(np.argmax(np.isnan(found)))
        raise DualnewtonError(f"the {what}s in {frame.names[column]!r} must not be missing, as in row {row}")
    return found
