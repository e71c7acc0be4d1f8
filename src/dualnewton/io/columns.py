"""The roles of the columns of a table: features, target and weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualnewton.io.dataset import DataError
from dualnewton.io.source import Wanted, check_width, separate_weights

TARGETS = ("target", "label", "y", "class")
"""Column names that mark the target if the user does not name it, in order of preference."""


@dataclass(frozen=True)
class Columns:
    """The role of each column of a table.

    Parameters
    ----------
    names : tuple of str
        The names of all columns, for error messages.
    features : array of int
        The columns of X, in order.
    target, weights : int, optional
        The columns of y and of the weights.
    target_text : str, optional
        A description of the target column, such as "the last column ('price')".
    weights_file : path, optional
        The file with the weights, if they are not in a column.
    """

    names: tuple[str, ...]
    features: np.ndarray
    target: int | None
    weights: int | None
    target_text: str | None
    weights_file: Path | None

    def name(self, j: int) -> str:
        """Return the quoted name of a column, for error messages."""
        return repr(self.names[j])


def assign(path: Path, names: tuple[str, ...], has_names: bool, wanted: Wanted) -> Columns:
    """Assign a role to every column of a table.

    The target is the column that the user names, by name or by number (from 0, or from the end if negative); otherwise the first
    column whose name is in ``TARGETS``; otherwise the last column.

    Parameters
    ----------
    path : path
        The file, for error messages.
    names : tuple of str
        The names of all columns.
    has_names : bool
        True if the names come from the file, False if they were generated.
    wanted : Wanted
        The options of the user.
    """
    d = len(names)
    weights, beside = None, None
    if wanted.weights is not None:
        weights = _number_of(names, wanted.weights)
        if weights is None:
            beside = separate_weights(path, wanted, f"a column ({_list(names)})")
    target, target_text = None, None
    if wanted.target is None:
        by_name = [j for name in TARGETS for j in range(d) if names[j].lower() == name and j != weights]
        target = by_name[0] if by_name and has_names else d - 1 if weights != d - 1 else d - 2
        target_text = (
            f"the column {names[target]!r}" if by_name and has_names else f"the last column ({names[target]!r})"
        )
    elif wanted.target is not False:
        target = _number_of(names, wanted.target)
        if target is None:
            raise DataError(f"{path}: target must name one of the columns ({_list(names)}), got {wanted.target!r}")
        target_text = f"the column {names[target]!r}"
    if target is not None and target == weights:
        raise DataError(f"{path}: the column {names[target]!r} cannot be both the target and the weights")
    features = np.array([j for j in range(d) if j not in (target, weights)], dtype=np.intp)
    if len(features) == 0:
        raise DataError(f"{path}: no column is left for the features (columns: {_list(names)})")
    check_width(path, len(features), wanted)
    return Columns(names, features, target, weights, target_text, beside)


def _number_of(names: tuple[str, ...], asked: str | int) -> int | None:
    """Return the index of the column that ``asked`` names or numbers; None if it is neither a unique name nor in range."""
    if isinstance(asked, str) and names.count(asked) == 1:
        return names.index(asked)
    try:
        number = int(asked)
    except ValueError:
        return None
    return number % len(names) if -len(names) <= number < len(names) else None


def _list(names: tuple[str, ...], shown: int = 8) -> str:
    more = f", … {len(names)} in all" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def not_numbers(path: Path, columns: Columns, which: list[int], where: str, seen: object) -> DataError:
    """Return the error for feature columns that contain text."""
    named = ", ".join(columns.name(j) for j in which[:8]) + (f" and {len(which) - 8} more" if len(which) > 8 else "")
    kind, verb = ("column", "is") if len(which) == 1 else ("columns", "are")
    return DataError(
        f"{path}{where}: the {kind} {named} {verb} not numeric (found {str(seen)[:40]!r}): "
        "features must be numbers, so encode categories (one column each) or leave the column out"
    )


def missing(path: Path, columns: Columns, j: int, where: str, seen: object) -> DataError:
    """Return the error for a missing value."""
    return DataError(
        f"{path}{where}, column {columns.name(j)}: the value is missing (found {str(seen)[:40]!r}): fill it in or remove the row"
    )


def infinite(path: Path, columns: Columns, j: int, where: str, seen: object) -> DataError:
    """Return the error for an infinite value."""
    return DataError(f"{path}{where}, column {columns.name(j)}: the value must be finite, found {str(seen)[:40]!r}")
