"""Problems derived from another one: with another λ or other weights, or on some of its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.row_arrays import SHORT
from dualnewton.validation import frozen, positive

OF_DATA = ("data", "n", "d", "columns")
"""Attributes that depend on X and the loss alone, computed once."""

OF_ROWS = ("y", "sample_weight", "offset")
"""Attributes with an entry per row."""


@cache
def _shared_names(kind: Any) -> tuple[str, ...]:
    """Return the names of the attributes that derived problems share."""
    return *(field.name for field in fields(kind)), *(name for name in OF_DATA if hasattr(kind, name))


def like(
    problem: Any, *, lam: float | None = None, sample_weight: np.ndarray | None = None, regularizer: Any = None
) -> Any:
    """Return the problem with another λ, other weights or another regulariser, each if given.

    Checking X again for each of the hundreds of problems of a grid would take a pass over the data for each.
    """
    kind: Any = type(problem)
    twin = object.__new__(kind)
    own = vars(twin)
    own.update({name: getattr(problem, name) for name in _shared_names(kind)})
    if lam is not None:
        own["lam"] = lam
    if regularizer is not None:
        own["regularizer"] = regularizer
    if sample_weight is not None:
        own["sample_weight"] = frozen(sample_weight)
    return twin


def with_labels(problem: Any, targets: Sequence[Any], lams: Sequence[float]) -> list[Any]:
    """Return the problem with other labels, which are checked, and other λ; X, weights and offsets are not checked again."""
    data, loss, n, twins = problem.data, problem.loss, problem.n, []
    checked: Any = None
    if n <= SHORT and all(type(y) is np.ndarray and y.shape == (n,) for y in targets):
        with suppress(DualnewtonError):  # each is checked below, so that the error names the entry
            checked = loss.labels(np.concatenate(targets), n * len(targets)).reshape(len(targets), n)
    if checked is None:
        checked = [loss.labels(data.adopted("y", y), n) for y in targets]
    shared = vars(like(problem)) | {"g": problem.g}
    for y, lam in zip(checked, lams, strict=True):
        twin = object.__new__(type(problem))
        vars(twin).update(shared, y=data.placed(y), lam=positive("lam", lam))
        twins.append(twin)
    return twins


def on_rows(problems: Sequence[Any], data: Any, draws: Sequence[np.ndarray]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the rows of each of several sets as separate data, with the problems on them.

    The problems have the rows of ``data``. Their labels and weights are not checked again.
    """
    owned = [
        {name: given for name in OF_ROWS if (given := getattr(problem.unit, name)) is not None} for problem in problems
    ]
    arrays = {id(each): each for own in owned for each in own.values()}
    for rows, entries in data.subsets(draws, list(arrays.values())):
        taken = dict(zip(arrays, (frozen(rows.placed(each)) for each in entries), strict=True))
        yield (
            rows,
            [
                _on_rows_of(problem, rows, {name: taken[id(each)] for name, each in own.items()})
                for problem, own in zip(problems, owned, strict=True)
            ],
        )


def _on_rows_of(problem: Any, data: Any, of_rows: dict[str, Any]) -> Any:
    """Return the problem over other rows, given their labels, weights and offsets by name."""
    kind: Any = type(problem)
    twin = object.__new__(kind)
    vars(twin).update({field.name: getattr(problem, field.name) for field in fields(kind)}, X=data)
    vars(twin).update({name: each for name, each in of_rows.items() if name in vars(twin)})
    return twin
