"""Which problems are so small that the interpreter, and not arithmetic, decides how long a fit takes."""

from __future__ import annotations

from dualnewton.objective.problem import Problem
from dualnewton.planning.eligible import has_hessian
from dualnewton.planning.tuning import SMALL

WIDEST = 256
"""Features up to which a Newton step on small data factorises the d×d Hessian in well under a millisecond."""


def takes_one_block(problem: Problem) -> bool:
    """Whether Newton's method should work on one dense block of all rows (:mod:`dualnewton.solvers.primal.small`)."""
    small = problem.d <= WIDEST and problem.n * problem.d <= SMALL
    return small and problem.columns == 1 and problem.data.capabilities.whole and has_hessian(problem)
