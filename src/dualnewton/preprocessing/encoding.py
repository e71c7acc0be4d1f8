"""The encoding of a table: the matrix of its columns, and coefficients in their original units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.io.frames import Frame
from dualnewton.preprocessing.columns import Categorical, Encoded, Numeric, from_dict, to_dict
from dualnewton.preprocessing.roles import Choices, Kind, Role

DENSE, SPARSE = 8, 12
"""Bytes of an entry in a dense and in a sparse matrix."""

GAIN = 2
"""The matrix is sparse if that takes less than 1/GAIN of the memory; products with it cost more per entry."""


NAMED = 5
"""Columns that an error lists at most."""


class Matrix(NamedTuple):
    """The matrix of a table, and messages about its values (missing, unknown)."""

    X: Any
    notes: list[str]


@dataclass(frozen=True)
class Encoding:
    """The transformation of the columns of a table into those of a matrix."""

    columns: tuple[Any, ...]  # columns that the model uses, in order
    names: tuple[str, ...]  # all columns of the table of the fit, in order
    has_names: bool = True  # False if the table had no header, so that columns are found by position
    target: str | None = None  # column that the model predicts
    identifiers: tuple[str, ...] = ()  # columns that name a row; `predict` copies them

    @classmethod
    def fit(
        cls,
        frame: Frame,
        roles: Sequence[Role],
        *,
        standardise: bool = True,
        target: str | None = None,
        choices: Choices | None = None,
        weights: np.ndarray | None = None,
    ) -> Encoding:
        """Learn the encoding from the rows of a fit.

        If ``standardise``, numbers and dates get mean 0 and standard deviation 1, with these weights of the rows.
        """
        columns: list[Encoded] = []
        for role in roles:
            column = frame.table.column(role.name)
            if role.kind is Kind.CATEGORY:
                columns.append(Categorical.fit(role, column))
            elif role.kind.used:
                lenient = choices is not None and role.name in choices.numeric
                how: dict[str, Any] = {"standardise": standardise, "lenient": lenient, "weights": weights}
                columns.append(Numeric.fit(role, column, frame.decimal, **how))
        if not columns:
            left_out = ", ".join(f"{role.name} ({role.kind.value}: {role.seen})" for role in roles[:NAMED])
            more = f" and {len(roles) - NAMED} more" if len(roles) > NAMED else ""
            reason = f": left out are {left_out}{more}" if roles else ""
            raise DualnewtonError(f"{frame.path}: no column is left for the features{reason}")
        identifiers = tuple(role.name for role in roles if role.kind is Kind.IDENTIFIER)
        made = cls(tuple(columns), frame.names, frame.has_names, target, identifiers)
        repeated = [label for label, count in Counter(made.labels).items() if count > 1]
        if repeated:
            raise DualnewtonError(
                f"{frame.path}: two encoded columns would have the name {repeated[0]!r}: rename one of them"
            )
        return made

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the columns of the matrix."""
        return tuple(label for column in self.columns for label in column.labels)

    @property
    def categorical(self) -> tuple[str, ...]:
        """The columns of categories, whose values are read as text."""
        return tuple(column.name for column in self.columns if isinstance(column, Categorical))

    def matrix(self, frame: Frame) -> Matrix:
        """Encode a table that has the columns of the fit, in any order, possibly with other columns."""
        frame = self.named(frame)
        there = set(frame.names)
        absent = [column.name for column in self.columns if column.name not in there]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise DualnewtonError(
                f"{frame.path} has no column {absent[0]!r}{more}, which the model was fitted on (columns: "
                f"{', '.join(frame.names[:8])}{', …' if len(frame.names) > 8 else ''})"
            )
        notes: list[str] = []
        entries: list[tuple[Any, Any, Any]] = []
        at, n = 0, frame.table.num_rows
        for column in self.columns:
            for rows, offsets, value in column.entries(frame.table.column(column.name), frame.decimal, notes):
                entries.append((rows, at + offsets, value))
            at += len(column.labels)
        return Matrix(_matrix(entries, n, at), notes)

    def named(self, frame: Frame) -> Frame:
        """Return a table without a header with the names of the fit, by position; the target may be absent."""
        if frame.has_names:
            return frame
        count = len(frame.names)
        rest = tuple(name for name in self.names if name != self.target)
        names = next((each for each in (self.names, rest) if len(each) == count), None)
        if names is None:
            raise DualnewtonError(
                f"{frame.path} has no header and {count} columns; the model was fitted on a table of {len(self.names)}"
            )
        return frame.renamed(names)

    # Units -----------------------------------------------------------------------------------------------------------

    def in_original_units(self, coef: np.ndarray, intercept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return coefficients and intercepts in the original units of the table.

        With x̃ = (x − m)/s, wᵀx̃ + b = (w/s)ᵀx + b − (w/s)ᵀm.
        """
        shifts, scales = (np.concatenate(parts) for parts in zip(*(each.affine for each in self.columns), strict=True))
        original = coef / scales
        return original, intercept - original @ shifts

    # Files -----------------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as values for JSON."""
        return {
            "columns": [to_dict(column) for column in self.columns],
            "names": list(self.names),
            "has_names": self.has_names,
            "target": self.target,
            "identifiers": list(self.identifiers),
        }

    @classmethod
    def from_dict(cls, words: Any) -> Encoding:
        """Undo :meth:`to_dict`; raise a ``DualnewtonError`` if the fields are invalid."""
        keys = ("columns", "names", "has_names", "target", "identifiers")
        if not isinstance(words, Mapping) or set(words) != set(keys):
            raise DualnewtonError(f"table must have exactly the fields {', '.join(keys)}")
        for key in ("columns", "names", "identifiers"):
            if not isinstance(words[key], list) or (
                key != "columns" and not all(isinstance(x, str) for x in words[key])
            ):
                raise DualnewtonError(f"{key} must be a list of names, got {words[key]!r:.40}")
        if not isinstance(words["has_names"], bool) or not isinstance(words["target"], str | None):
            raise DualnewtonError("has_names must be true or false, and target a name or null")
        columns = tuple(from_dict(column) for column in words["columns"])
        return cls(columns, tuple(words["names"]), words["has_names"], words["target"], tuple(words["identifiers"]))


def _matrix(entries: Sequence[tuple[Any, Any, Any]], n: int, d: int) -> Any:
    """Return the matrix with these entries, sparse if that takes much less memory."""
    stored = sum(n if isinstance(rows, slice) else len(rows) for rows, _, _ in entries)
    if GAIN * SPARSE * stored < DENSE * n * d:
        import scipy.sparse as sp

        everywhere = np.arange(n)
        rows = np.concatenate([everywhere[rows] for rows, _, _ in entries])
        columns = np.concatenate([np.broadcast_to(each, len(everywhere[rows])) for rows, each, _ in entries])
        data = np.concatenate([np.broadcast_to(each, len(everywhere[rows])) for rows, _, each in entries])
        return sp.csr_array(sp.coo_array((data.astype(np.float64), (rows, columns)), shape=(n, d)))
    X = np.zeros((n, d))
    for rows, each, data in entries:
        X[rows, each] = data
    return X
