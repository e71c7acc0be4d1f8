"""Formatting of numbers for tables and claims."""

from __future__ import annotations

import math
from collections.abc import Iterable

MISSING = "–"

ROUNDING = 1e-16
"""Value at which a gap of zero is drawn on a logarithmic axis, about the rounding error of float64."""


def seconds(value: float | None) -> str:
    """Format a time in milliseconds or seconds, with three significant digits."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{1e3 * value:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def count(value: float | None, most: float = math.inf) -> str:
    """Format a number with three significant digits, or as a whole number; infinity is shown as "> most" or "not reached"."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return f"> {count(most)}" if math.isfinite(most) else "not reached"
    return f"{value:.0f}" if 100.0 <= value < 1e6 or value == round(value) else f"{value:.3g}"


def gap(value: float | None) -> str:
    """Format a gap with two significant digits."""
    return MISSING if value is None or not math.isfinite(value) else f"{value:.1e}"


def chain(values: Iterable[str]) -> str:
    """Join values by arrows."""
    return " → ".join(values)
