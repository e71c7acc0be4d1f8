"""Steps on the regularised risk of a small problem: the line search, and L-BFGS from a given Hessian."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from dualnewton.solvers.direct.block import Limits
from dualnewton.solvers.direct.risk import ROUNDING, Point, Risk
from dualnewton.solvers.primal.lbfgs import CURVED
from dualnewton.solvers.primal.line_search import first_length, line_minimum

SUFFICIENT, MOST_TRIALS = 1e-4, 8
"""Armijo's fraction of the predicted decrease that a step must reach, and how many points along a step are tried."""

LEAST_SECANT = 10.0
"""Largest slope at the end of a step that is too long, relative to that at its start, for which a secant is tried first."""

MOST_PAIRS = 12
"""Pairs that L-BFGS keeps; those of 30 steps save few passes, and take longer than a pass over small data."""

OBSERVED, OBSERVED_JOINT, PATIENCE = 8, 3, 32
"""Steps over which the decrease of the gap is measured, since that of single L-BFGS steps varies, and fewest of them where the
joint Hessian of all classes follows, for half of whose cost in steps it is measured; and steps after which the method ends if
more further steps are expected than the limit allows."""

SERVED = 5
"""Steps that a Hessian serves at least, if it costs as many."""

Pairs = list[tuple[np.ndarray, np.ndarray, float]]
"""Steps s, the differences y of the gradients at their ends, and the products sᵀy."""


def step(
    risk: Risk,
    at: Point,
    way: np.ndarray,
    level: float = ROUNDING,
    margins: np.ndarray | None = None,
    *,
    exact: bool = False,
) -> tuple[Point, bool]:
    """Return the point after a step, shortened to the lowest point on the way where the whole step is too long.

    A step is accepted by Armijo's rule. The second value says whether it is the last: its predicted decrease was at most
    ``level`` of the objective. The margins of the step are computed if they are not given. ``exact`` asks for an accurate search
    of the lowest point, for steps that cost much more than the search: where one example shortens the step, a secant through the
    slopes at its ends ends far before that point.
    """
    slope, loss, margins = float(at.gradient @ way), risk.loss, risk.margins(way) if margins is None else margins
    t = 1.0 if loss.gamma is not None else first_length(loss, margins)
    for trial in range(MOST_TRIALS):
        x, z = (at.x + way, at.margins + margins) if t == 1.0 else (at.x + t * way, at.margins + t * margins)
        value, slopes, pull = risk.losses(x, z)
        if value <= at.value + SUFFICIENT * t * slope:
            return risk.point(x, z, value, slopes, pull), not slope < -level * abs(at.value)
        end = float(np.vdot(slopes, margins)) + float(pull @ way)  # a gradient would cost a product with X
        end = end if math.isfinite(end) else math.inf
        # Where the values differ by rounding only, the slope along the step must have become smaller.
        if value <= at.value + risk.rounding * abs(at.value) and abs(end) < -slope:
            return risk.point(x, z, value, slopes, pull), not slope < -level * abs(at.value)
        if trial == 0 and not exact and 0.0 < end < LEAST_SECANT * abs(slope):
            t *= slope / (slope - end)  # where the slope would be zero if it grew evenly
        else:
            ends = t * slope, t * end
            t *= line_minimum(loss, risk.vectors, risk.ridge, at.x, x, at.margins, z, slopes=ends)
        if t == 0.0:
            break
    return at, True


def is_close(risk: Risk, at: Point, goal: float) -> bool:
    """Whether the gap of the dual point that belongs to x is at most ``goal``, relative to P."""
    return risk.gap(at) <= goal * abs(at.value)


def quasi_newton(
    risk: Risk,
    at: Point,
    inverse: Callable[[np.ndarray], np.ndarray],
    limits: Limits,
    pairs: Pairs,
    is_slow: Callable[[list[float], float], bool] | None = None,
) -> tuple[Point, int, bool]:
    """Take steps of L-BFGS from the matrix whose inverse is given.

    Return where they end, their number, and whether they are the last: the expected relative gap is at most ``limits.tol``, or a
    predicted decrease was rounding. They also end at the limits, and when ``is_slow``, given the gaps so far and the wanted one,
    says that a new matrix costs less. ``pairs`` are those of earlier steps; those of the new ones are added.
    """
    gaps = [risk.gap(at)]
    while gaps[-1] > (goal := limits.tol * abs(at.value)):
        late = len(gaps) > limits.most or time.perf_counter() > limits.deadline
        if late or (is_slow is not None and is_slow(gaps, goal)):
            return at, len(gaps) - 1, False
        found, stuck = step(risk, at, lbfgs_step(inverse, pairs, -at.gradient))
        if stuck:
            return found, len(gaps), True
        add_pair(pairs, at, found)
        at = found
        gaps.append(risk.gap(at))
    return at, len(gaps) - 1, True


def add_pair(pairs: Pairs, at: Point, found: Point) -> None:
    """Add the pair of a step, if the objective is curved along it, and drop the oldest if there are too many."""
    s, y = found.x - at.x, found.gradient - at.gradient
    if (product := float(s.dot(y))) > CURVED * math.sqrt(float(s.dot(s)) * float(y.dot(y))):
        pairs.append((s, y, product))
        del pairs[:-MOST_PAIRS]


def is_slow(gaps: list[float], goal: float, price: float, observed: int = OBSERVED) -> bool:
    """Whether more than ``price`` further steps are expected, by the decrease of the gap in the last ``observed`` ones.

    A gap far larger than P contains little information: with a weak penalty it is so large at points near the minimum, too.
    """
    return len(gaps) > observed and further_steps(gaps[-1 - observed], gaps[-1], goal, observed) > price


def needs_hessian(gaps: list[float], goal: float, price: float) -> bool:
    """Whether a new Hessian is expected to save more steps than its cost, ``price`` steps, given the gaps since the last one.

    Steps from the old one are expected to go on at their mean rate. From a new one the logarithm of the decrease doubles with
    each Hessian (quadratic convergence): 2r + 4r + … + 2ˢr for the s next ones, where r is that of the first step from the old.

    The first steps from a Hessian say little about the later ones, to which they give corrections: it serves at least as many
    steps as it costs, up to ``SERVED``, unless the gap has grown.
    """
    if not (gaps[-1] < gaps[0] and goal > 0.0):
        return True
    if len(gaps) - 1 < min(SERVED, price):
        return False
    left, mean = math.log(gaps[-1] / goal), math.log(gaps[0] / gaps[-1]) / (len(gaps) - 1)
    renewed = max(1.0, math.log2(1.0 + left / (2.0 * max(math.log(gaps[0] / gaps[1]), mean))))
    return further_steps(gaps[0], gaps[-1], goal, len(gaps) - 1) > price + renewed


def further_steps(first: float, gap: float, goal: float, steps: int) -> float:
    """Return the number of steps from a gap to another, at the rate of earlier steps from the first gap."""
    if gap <= goal:
        return 0.0
    return steps * math.log(gap / goal) / math.log(first / gap) if gap < first and goal > 0.0 else math.inf


def lbfgs_step(inverse: Callable[[np.ndarray], np.ndarray], pairs: Pairs, q: np.ndarray) -> np.ndarray:
    """Return B⁻¹q by the two loops of L-BFGS over the pairs (s, y, sᵀy), from B₀⁻¹; q is overwritten."""
    shares = []
    for s, y, product in reversed(pairs):
        shares.append(s.dot(q) / product)
        q -= shares[-1] * y
    r = inverse(q)
    for (s, y, product), share in zip(pairs, reversed(shares), strict=True):
        r += (share - y.dot(r) / product) * s
    return r
