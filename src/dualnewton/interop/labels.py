"""Labels: the classes, and the class of each example."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError

FEW = 20
"""Largest number of distinct whole-number labels that are interpreted as classes; with more, y is a regression target."""

LARGEST = 2.0**53
"""Whole numbers up to here are exact in float64."""

SHOWN = 5
"""Number of labels that a message lists."""


def tidy(y: Any) -> np.ndarray:
    """Return labels as integers if they are whole numbers in any type, otherwise unchanged or as text."""
    y = np.asarray(y)
    if y.dtype.kind in "iub":
        return y.astype(np.int64)
    if y.dtype.kind == "f":
        whole = bool(np.all((np.abs(y) < LARGEST) & (np.floor(y) == y)))
        return y.astype(np.int64) if whole else y.astype(np.float64)
    return y.astype(str)


def are_classes(y: np.ndarray) -> bool:
    """Guess whether tidied labels are classes: text, or few distinct whole numbers."""
    return y.dtype.kind == "U" or (y.dtype.kind == "i" and len(np.unique(y)) <= FEW)


def codes_of(y: Any, classes: np.ndarray) -> np.ndarray:
    """Return the number of the class of each label.

    Labels are compared as text, so that 1, 1.0 and "1" are equal: another file may store them in another type.
    """
    values, positions = np.unique(tidy(y), return_inverse=True)
    number = {str(label): k for k, label in enumerate(classes.tolist())}
    unknown = [str(value) for value in values.tolist() if str(value) not in number]
    if unknown:
        raise DualnewtonError(
            f"the target must hold the classes of the model, {listed(number)}, got {listed(unknown)} as well"
        )
    return np.array([number[str(value)] for value in values.tolist()], dtype=np.int64)[positions.reshape(-1)]


def listed(labels: Any) -> str:
    """Name some labels."""
    names = [str(label) for label in labels]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
