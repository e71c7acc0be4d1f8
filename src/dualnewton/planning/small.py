"""Problems so small that the overhead of the interpreter exceeds the time of the arithmetic."""

from __future__ import annotations

from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import is_small
from dualnewton.planning.eligible import has_hessian
from dualnewton.planning.tuning import DEFAULT, Tuning


def takes_one_block(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether Newton's method should work on one dense block of all rows (:mod:`dualnewton.solvers.primal.small`)."""
    return problem.columns == 1 and fits_one_block(problem, tuning) and has_hessian(problem)


def fits_one_block(problem: Problem, tuning: Tuning = DEFAULT) -> bool:
    """Whether all rows, as one dense block, are so few that passes over the data would take longer than the arithmetic."""
    small = problem.d <= tuning.one_block_features and is_small(tuning, problem.n, problem.d)
    return small and problem.data.capabilities.whole
