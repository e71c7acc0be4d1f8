"""Piecewise linear losses by dual rounds on the loss itself: where that is possible, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass

from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.planning.tuning import DEFAULT, Tuning

METHODS = ("sdna", "sdca")
"""The methods whose rounds take a piecewise linear loss as it is; all others take smoothed losses."""


def takes_rounds(problem: Problem, method: str) -> bool:
    """Whether dual rounds solve the problem without smoothing its kinked loss."""
    able = problem.data.capabilities.random_rows and problem.regularizer.strongly_convex
    return method in METHODS and problem.loss.kinked and able and problem.pieces is not None


@dataclass(frozen=True, eq=False)
class KinkSystems:
    """Decides whether the linear system of the free examples is worth its cost."""

    costs: Costs
    tuning: Tuning = DEFAULT

    @classmethod
    def of(cls, problem: Problem, tuning: Tuning | None) -> KinkSystems:
        """Decide for the data of a problem."""
        tuning = DEFAULT if tuning is None else tuning
        return cls(Costs.of(problem.data.profile, tuning), tuning)

    def solves_system(self, free: int, epochs: float) -> bool:
        """Whether the system costs no more than ``late_kink_factor`` times the epochs so far."""
        if free > self.tuning.kink_system:
            return False
        return self.costs.gram(free) <= self.tuning.late_kink_factor * epochs * self.costs.epoch
