"""Words in data files that have a meaning: names of targets, missing values, numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable

TARGETS = ("target", "label", "y", "class")
"""Column names that mark the target if the user does not name it, in order of preference."""

MISSING = {"", "na", "n/a", "#n/a", "nan", "null", "?"}
"""Spellings of a missing value, in lower case; the comparison ignores case."""


def is_number(text: str) -> bool:
    """Return True if a text is a finite number, without the underscores and non-ASCII digits that Python accepts."""
    if "_" in text or not text.isascii():
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def are_codes(texts: Iterable[str]) -> bool:
    """Return True if texts are digits and one has a leading zero, as 00501 has: writing them as numbers would change them."""
    there = [text.strip() for text in texts if text.strip().lower() not in MISSING]
    return any(len(text) > 1 and text[0] == "0" for text in there) and all(map(str.isdecimal, there))
