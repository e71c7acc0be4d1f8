"""Root of a nondecreasing function of one variable, used for the intercept: its optimality condition is Σ c_i φ′(z_i + b) = 0."""

from __future__ import annotations

import math
from collections.abc import Callable

EXACT = 1e-15
"""Stopping tolerance on |value|, as a fraction of the sum of its absolute terms: a few float64 roundings."""

MOST = 3000
"""Maximum number of evaluations; bisection of the whole float64 range, from a width of 2^1024 to 2^−1074, takes 2098."""


def zero_of(function: Callable[[float], tuple[float, float, float]], near: float, reach: Callable[[], float]) -> float:
    """Return the argument at which a nondecreasing function is zero, or the evaluated one with the least absolute value.

    Until the sign changes, the method takes Newton steps from ``near`` with a factor that doubles each time. (If all labels
    agree, the slope of a margin loss vanishes only at infinity; in floating point it underflows to zero at a finite b.) Once the
    root is bracketed, a Newton step that leaves the bracket, or follows one that did not halve |value|, is replaced by bisection.

    ``function`` returns for b the value, its derivative, and the sum of the absolute terms of the value; ``reach`` the length
    of the step where the derivative is zero.
    """
    low, high, b, best, last, doubled = -math.inf, math.inf, near, (math.inf, near), math.inf, 1.0
    for _ in range(MOST):
        value, slope, terms = function(b)
        best = min(best, (abs(value), b))
        if abs(value) <= EXACT * terms:
            break
        low, high = (low, b) if value > 0.0 else (b, high)
        step = -value / slope if slope > 0.0 else -math.copysign(reach(), value)
        if math.isfinite(low) and math.isfinite(high):
            trial = b + step
            slow = not abs(value) <= 0.5 * last
            b = 0.5 * (low + high) if slow or not low < trial < high else trial
            if not low < b < high:
                break  # the bracket holds no further float64 number
        else:
            b, doubled = b + doubled * step, 2.0 * doubled
            if not math.isfinite(b):
                break
        last = abs(value)
    return best[1]
