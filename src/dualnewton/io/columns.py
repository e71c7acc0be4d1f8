"""The roles of the columns of a table: features, target, weights and offsets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np

from dualnewton.io.dataset import OPTIONS, DataError
from dualnewton.io.source import ReadOptions, check_width, separate_files
from dualnewton.io.words import TARGETS


@dataclass(frozen=True)
class Columns:
    """The role of each column of a table."""

    names: tuple[str, ...]  # names of all columns, for error messages
    features: np.ndarray  # columns of X, in order
    target: int | None
    target_text: str | None  # description of the target column, such as "the last column ('price')"
    # The column, or else the file, of the weights and of the offsets, by their field of a data set.
    numbers: Mapping[str, int]
    files: Mapping[str, Path]

    def name(self, j: int) -> str:
        """Return the quoted name of a column, for error messages."""
        return repr(self.names[j])


def assign(path: Path, names: tuple[str, ...], has_names: bool, wanted: ReadOptions) -> Columns:
    """Assign a role to every column of a table.

    The target is the column that the user names, by name or by number (from 0, or from the end if negative); otherwise the first
    column whose name is in ``TARGETS``; otherwise the last column.

    ``has_names`` is False if the names were generated; ``path`` is for error messages.
    """
    refuse_repeated(path, names)
    d = len(names)
    asked = {
        name: number_of(names, given)
        for name, option in OPTIONS.items()
        if (given := getattr(wanted, option)) is not None
    }
    numbers = {name: j for name, j in asked.items() if j is not None}
    files = separate_files(path, wanted, f"a column ({_list(names)})", known=numbers)
    target, target_text = None, None
    if wanted.target is None:
        free = [j for j in range(d) if j not in numbers.values()]
        by_name = [j for name in TARGETS for j in free if names[j].lower() == name]
        target = by_name[0] if by_name and has_names else (free or [d - 1])[-1]
        target_text = (
            f"the column {names[target]!r}" if by_name and has_names else f"the last column ({names[target]!r})"
        )
    elif wanted.target is not False:
        target = number_of(names, wanted.target)
        if target is None:
            near = difflib.get_close_matches(str(wanted.target), names, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"{path}: target must name one of the columns ({_list(names)}), got {wanted.target!r}{hint}"
            )
        target_text = f"the column {names[target]!r}"
    roles = {} if target is None else {"target": target}
    roles |= {OPTIONS[name]: j for name, j in numbers.items()}
    for (one, j), (other, k) in combinations(roles.items(), 2):
        if j == k:
            raise DataError(f"{path}: the column {names[j]!r} cannot be both the {one} and the {other}")
    features = np.array([j for j in range(d) if j not in roles.values()], dtype=np.intp)
    if len(features) == 0:
        taken = ", ".join(f"{names[j]!r} is the {role}" for role, j in roles.items())
        raise DataError(f"{path}: no column is left for the features: {taken or 'the file has no columns'}")
    check_width(path, len(features), wanted)
    return Columns(names, features, target, target_text, numbers, files)


def refuse_repeated(path: Path, names: tuple[str, ...]) -> None:
    """Raise an error if two columns have the same name, since a model finds its columns by name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{path}: every column must have its own name, got {name!r} {names.count(name)} times: rename one"
            )
        seen.add(name)


def number_of(names: tuple[str, ...], asked: str | int) -> int | None:
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
    # A damaged file may have line breaks within a name.
    return ", ".join(name if name.isprintable() else repr(name) for name in names[:shown]) + more


def not_numbers(path: Path, columns: Columns, which: list[int], where: str, seen: object) -> DataError:
    """Return the error for feature columns that contain text."""
    named = ", ".join(columns.name(j) for j in which[:8]) + (f" and {len(which) - 8} more" if len(which) > 8 else "")
    kind, verb = ("column", "is") if len(which) == 1 else ("columns", "are")
    return DataError(
        f"{path}{where}: the {kind} {named} {verb} not numeric (found {str(seen)[:40]!r}): "
        "features must be numbers here; `dualnewton fit` encodes categories"
    )


def missing(path: Path, columns: Columns, j: int, where: str, seen: object) -> DataError:
    """Return the error for a missing value."""
    return DataError(
        f"{path}{where}, column {columns.name(j)}: the value is missing (found {str(seen)[:40]!r}): fill it in or remove the row"
    )


def infinite(path: Path, columns: Columns, j: int, where: str, seen: object) -> DataError:
    """Return the error for an infinite value."""
    return DataError(f"{path}{where}, column {columns.name(j)}: the value must be finite, found {str(seen)[:40]!r}")
