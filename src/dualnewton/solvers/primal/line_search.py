"""The minimum on the line between two points whose margins are known, without a pass over the data."""

from __future__ import annotations

import math

import numpy as np

from dualnewton.losses import Loss
from dualnewton.matrix import RowVectors
from dualnewton.matrix.vectors import LONG, difference
from dualnewton.objective.row_sums import slope_along

CLOSE = 0.05
"""The search ends when the slope is at most this fraction of the slope at the start."""

MOST_STEPS = 40

LONGEST = 100.0
"""The largest first change of a margin for a loss without γ. Its φ″ may grow exponentially: where it is tiny, a Newton step is
orders of magnitude longer than the distance to the minimum."""


def first_length(loss: Loss, way: np.ndarray) -> float:
    """Return the part of a step that is tried first: 1, or less where a margin of a loss without γ would move too far."""
    if loss.gamma is not None or float(np.vdot(way, way)) <= LONGEST**2:
        return 1.0
    return LONGEST / max(LONGEST, float(np.abs(way).max()))


def line_minimum(
    loss: Loss,
    rows: RowVectors,
    ridge: np.ndarray,
    x: np.ndarray,
    end: np.ndarray,
    margins: np.ndarray,
    end_margins: np.ndarray,
    *,
    slopes: tuple[float, float],
) -> float:
    """Return t ∈ [0, 1) that approximately minimises the convex Σ c φ(z + t(z′ − z)) + ½ Σ ridge (x + t(x′ − x))².

    The slope grows with t: its zero is found by the secant rule, kept in its bracket by bisection. ``slopes`` are those at both
    ends. t is 0 only if the slope at the start is not negative.
    """
    way = end - x
    margins_way = difference(end_margins, margins) if margins.size >= LONG else end_margins - margins
    linear, quadratic = float(ridge @ (x * way)), float(ridge @ (way * way))

    def slope(t: float) -> float:
        total = linear + t * quadratic + slope_along(loss, margins, margins_way, t, rows)
        return total if math.isfinite(total) else math.inf

    low, high = 0.0, 1.0
    at_low, at_high = slopes[0], slopes[1] if math.isfinite(slopes[1]) else math.inf
    goal = CLOSE * abs(at_low)
    if at_low >= 0.0:
        return 0.0
    t = 0.5
    for _ in range(MOST_STEPS):
        at_t = slope(t)
        if abs(at_t) <= goal or at_high <= goal:
            break
        low, at_low, high, at_high = (low, at_low, t, at_t) if at_t > 0.0 else (t, at_t, high, at_high)
        secant = low - at_low * (high - low) / (at_high - at_low)
        # Kept away from the ends of the bracket, near which the secant rule converges slowly.
        t = min(max(secant, low + 0.1 * (high - low)), high - 0.1 * (high - low))
    return t
