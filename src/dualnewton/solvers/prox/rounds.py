"""Rounds of coordinate descent and a Newton step, for the minimisers of quadratic models with a penalty."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import Deadline

AT_ONCE = 1 << 25
"""Multiplications of sweeps between two checks of the deadline: some hundredths of a second."""

ROUNDING, CANCELLED = 4e-16, 1e-16
"""A violation is rounding below the first fraction of the largest slope, and below the second of the terms that cancel in it,
which are bounded by ‖Σ_i H_ji V_i‖ ≤ √H_jj Σ_i √H_ii ‖V_i‖."""


class Point(ABC):
    """The current point v of a minimisation, and the slopes of the smooth part there, without the ridge."""

    def __init__(
        self,
        H: np.ndarray,
        slopes: np.ndarray,
        v: np.ndarray,
        penalty: Any,
        sweep: Callable[..., bool],
        deadline: Deadline,
        crossovers: Crossovers = USUAL,
    ) -> None:
        self.H, self.slopes, self.v, self.penalty = H, slopes.copy(), v.copy(), penalty
        self.sweeps, self.deadline, self.crossovers = sweep, deadline, crossovers

    @property
    def violation(self) -> float:
        """The largest violation of the optimality conditions."""
        return float(self.penalty.violations(self.v, self.slopes).max(initial=0.0))

    @abstractmethod
    def sweep(self, goal: float) -> None:
        """Minimise over one coordinate or feature after the other, as often as a Newton step would cost."""

    @abstractmethod
    def step(self) -> bool:
        """Take Newton steps; return whether they ended at the minimum over the coordinates in use, up to rounding."""


def reachable_goal(
    goal: float,  # violation that is wanted
    H: np.ndarray,  # (m, m) Hessian of the model
    # (m,) The norms of the slopes and of the coefficients of each feature.
    slopes: np.ndarray,
    sizes: np.ndarray,
) -> float:
    """Return the goal, or the violation that rounding may leave if that is larger."""
    roots = np.sqrt(np.maximum(H.diagonal(), 0.0))
    cancelled = CANCELLED * float(roots.max(initial=0.0)) * float(roots @ sizes)
    return max(goal, ROUNDING * float(slopes.max(initial=0.0)), cancelled)


def alternate(point: Point, goal: float, *, rounds: int, in_vain: int, shrinks: float) -> bool:
    """Do rounds of sweeps and Newton steps until no violation exceeds the goal; return whether that was achieved.

    After ``in_vain`` rounds in a row that end at the minimum over the coordinates in use and leave more than ``shrinks`` times
    the least violation so far, the rest is rounding.
    """
    least, failed = np.inf, 0
    for _ in range(rounds):
        point.sweep(goal)
        if point.violation <= goal:
            return True
        ended = point.step()
        left = point.violation
        failed = failed + 1 if ended and left > shrinks * least else 0
        least = min(least, left)
        if left <= goal or failed >= in_vain:
            return left <= goal
    return False
