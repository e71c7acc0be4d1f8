"""The zero of a nondecreasing function of one variable: the best intercept, where the derivatives of the losses cancel."""

from __future__ import annotations

import math
from collections.abc import Callable

EXACT = 1e-15
"""A value below this fraction of the terms it is the sum of is zero but for rounding."""

MOST = 3000
"""Evaluations: enough to halve the whole range of floating point numbers to nothing."""


def zero_of(function: Callable[[float], tuple[float, float, float]], near: float, reach: float) -> float:
    """Return where a nondecreasing function is zero, or as near to it as can be.

    Newton's steps from ``near``, doubled each time until the sign has changed. (With one class only the slope of a margin loss
    reaches zero at the end of the line alone; in floating point it does so soon enough.) Then the zero lies between two points,
    and a step that leaves them, or follows one that has not halved the value, goes to their middle.

    Parameters
    ----------
    function : callable
        b ↦ the value, its derivative, and the sum of the absolute terms that make up the value.
    near : float
        Where to begin.
    reach : float
        The first step where the derivative is zero.
    """
    low, high, b, best, last, doubled = -math.inf, math.inf, near, (math.inf, near), math.inf, 1.0
    for _ in range(MOST):
        value, slope, terms = function(b)
        best = min(best, (abs(value), b))
        if abs(value) <= EXACT * terms:
            break
        low, high = (low, b) if value > 0.0 else (b, high)
        step = -value / slope if slope > 0.0 else -math.copysign(reach, value)
        if math.isfinite(low) and math.isfinite(high):
            trial = b + step
            slow = not abs(value) <= 0.5 * last
            b = 0.5 * (low + high) if slow or not low < trial < high else trial
            if not low < b < high:
                break  # no number lies between
        else:
            b, doubled = b + doubled * step, 2.0 * doubled
            if not math.isfinite(b):
                break
        last = abs(value)
    return best[1]
