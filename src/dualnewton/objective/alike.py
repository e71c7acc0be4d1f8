"""Problems made of another one: with another λ or other weights, or on some of its rows."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from typing import Any

import numpy as np

from dualnewton.validation import frozen

OF_DATA = ("data", "n", "d", "columns")
"""What is computed from X and the loss alone, once."""

OF_ROWS = ("y", "sample_weight", "offset")
"""What has an entry for each row."""


@cache
def _kept(kind: Any) -> tuple[str, ...]:
    """Return the names of what such problems share."""
    return *(field.name for field in fields(kind)), *(name for name in OF_DATA if hasattr(kind, name))


def like(
    problem: Any, *, lam: float | None = None, sample_weight: np.ndarray | None = None, regularizer: Any = None
) -> Any:
    """Return the problem with another λ, other weights or another regulariser, each if given.

    To check X again for each of the hundreds of problems of a grid would take as long as a pass over the data for each.
    """
    kind: Any = type(problem)
    twin = object.__new__(kind)
    for name in _kept(kind):
        object.__setattr__(twin, name, getattr(problem, name))
    if lam is not None:
        object.__setattr__(twin, "lam", lam)
    if regularizer is not None:
        object.__setattr__(twin, "regularizer", regularizer)
    if sample_weight is not None:
        object.__setattr__(twin, "sample_weight", frozen(sample_weight))
    return twin


def on_rows(problem: Any, rows: np.ndarray, data: Any) -> Any:
    """Return the problem on some of its rows, of which ``data`` holds the features."""
    own = [field.name for field in fields(problem) if field.name in OF_ROWS]
    given = {name: getattr(problem.unit, name) for name in own}
    return replace(
        problem,
        X=data,
        **{name: None if each is None else problem.data.take(each, rows) for name, each in given.items()},
    )
