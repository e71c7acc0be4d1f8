"""Problems over the same rows that differ in λ and weights: what was checked once is not checked again."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from dualnewton.validation import frozen


def like(problem: Any, *, lam: float | None = None, sample_weight: np.ndarray | None = None) -> Any:
    """Return the problem with another λ, other weights, or both.

    To check X again for each of the hundreds of problems of a grid would take as long as a pass over the data for each.
    """
    twin = object.__new__(type(problem))
    for field in fields(problem):
        object.__setattr__(twin, field.name, getattr(problem, field.name))
    if lam is not None:
        object.__setattr__(twin, "lam", lam)
    if sample_weight is not None:
        object.__setattr__(twin, "sample_weight", frozen(sample_weight))
    return twin
