"""Coefficients of any origin, read from a text file."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task
    from dualnewton.io import Dataset

ENDINGS = (".csv", ".txt", ".tsv")
"""Endings of files that hold bare coefficients; files with any other ending are read as model files."""

INTERCEPT = "intercept"
"""The name of the row that holds b."""


@dataclass(frozen=True, eq=False)
class Coefficients:
    """The coefficients in a file."""

    path: str
    coef: np.ndarray  # (K, d) one row for each column of numbers in the file
    intercept: np.ndarray | None = None  # (K,) row named "intercept", if there is one
    features: tuple[str, ...] | None = None  # names of the features
    columns: tuple[str, ...] | None = None  # names of the columns of numbers

    def ordered(self, task: Task, dataset: Dataset) -> tuple[np.ndarray, np.ndarray | None]:
        """Return coefficients and intercepts in the order of the classes and the features of a task."""
        rows, places = self._rows(task), self._places(dataset)
        return self.coef[np.ix_(rows, places)], None if self.intercept is None else self.intercept[rows]

    def _rows(self, task: Task) -> list[int]:
        """Find the column of each class; if there is only one, its name is ignored."""
        classes = list(map(str, task.names))
        wanted = len(classes) if len(classes) > 2 else 1
        if len(self.coef) != wanted:
            what = (
                f"a column for each of the classes {', '.join(classes)}" if wanted > 1 else "one column of coefficients"
            )
            raise DualnewtonError(f"{self.path} must have {what}, got {len(self.coef)} column(s)")
        if wanted == 1 or self.columns is None:
            return list(range(wanted))
        if sorted(self.columns) != sorted(classes):
            raise DualnewtonError(
                f"{self.path} must have the classes {', '.join(classes)} as columns, got {', '.join(self.columns)}"
            )
        return [self.columns.index(name) for name in classes]

    def _places(self, dataset: Dataset) -> list[int]:
        """Find the coefficient of each feature: by name if both have names, else by position."""
        d, own = dataset.X.shape[1], self.coef.shape[1]
        if own != d:
            raise DualnewtonError(
                f"{self.path} must have {d} coefficients, one for each feature of {dataset.name}, got {own}"
            )
        if self.features is None or dataset.feature_names is None:
            return list(range(d))
        place = {name: k for k, name in enumerate(self.features)}
        absent = [name for name in dataset.feature_names if name not in place]
        if absent:
            raise DualnewtonError(f"{self.path} has no coefficient for the feature {absent[0]!r} of {dataset.name}")
        return [place[name] for name in dataset.feature_names]


def read_coefficients(path: str) -> Coefficients:
    """Read a table with the columns feature and coefficient (or one column for each class), or a line or column of numbers.

    Cells are separated by commas, tabs (.tsv) or spaces (.txt).
    """
    with open(path, encoding="utf-8-sig", newline="") as file:
        try:
            lines = file.read().splitlines()
        except UnicodeDecodeError:
            raise DualnewtonError(f"{path} is not text") from None
    rows = [[cell.strip() for cell in row] for row in _split(path, lines) if any(cell.strip() for cell in row)]
    if not rows:
        raise DualnewtonError(f"{path} is empty, expected coefficients")
    header = None if any(_is_number(cell) for cell in rows[0]) else rows.pop(0)
    if any(not _is_number(row[0]) for row in rows) or (header is not None and len(header) > 1):
        return _table(path, header, rows)
    if len(rows) > 1 and any(len(row) > 1 for row in rows):
        raise DualnewtonError(f"{path} must be a line or a column of numbers, or have the columns feature,coefficient")
    numbers = np.array([[_number(path, cell) for row in rows for cell in row]], dtype=float)
    if not numbers.size:
        raise DualnewtonError(f"{path} has a header and no coefficients")
    return Coefficients(path, numbers)


def _split(path: str, lines: list[str]) -> list[list[str]]:
    if path.lower().endswith(".txt") and not any("," in line for line in lines):
        return [line.split() for line in lines]
    try:
        return list(csv.reader(lines, delimiter="\t" if path.lower().endswith(".tsv") else ","))
    except csv.Error as error:
        raise DualnewtonError(f"{path} is not a table: {error}") from None


def _table(path: str, header: list[str] | None, rows: list[list[str]]) -> Coefficients:
    """Read features and their coefficients."""
    width = len(header or rows[0])
    wrong = next((row for row in rows if len(row) != width), None)
    if wrong is not None or width < 2 or not rows:
        seen = f"a row of {len(wrong)}: {','.join(wrong)[:40]}" if wrong is not None else "fewer"
        raise DualnewtonError(
            f"{path} must have {max(width, 2)} cells in each row, a feature and its coefficients, got {seen}"
        )
    names = [row[0] for row in rows]
    repeated = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if repeated is not None:
        raise DualnewtonError(f"{path} must name each feature once, got {repeated!r} more than once")
    numbers = np.array([[_number(path, cell) for cell in row[1:]] for row in rows], dtype=float).T
    features = [k for k, name in enumerate(names) if name != INTERCEPT]
    if not features:
        raise DualnewtonError(f"{path} has an intercept and no coefficients")
    return Coefficients(
        path,
        numbers[:, features],
        numbers[:, names.index(INTERCEPT)] if INTERCEPT in names else None,
        tuple(names[k] for k in features),
        None if header is None else tuple(header[1:]),
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: str, cell: str) -> float:
    if not _is_number(cell) or not math.isfinite(float(cell)):
        raise DualnewtonError(f"{path} must hold finite numbers, got {cell[:40]!r}")
    return float(cell)
