"""Dual rounds over single examples of small sparse data: all sweeps of a fit, without the loop.

A step is one call of the kernel that shrinks (:mod:`dualnewton.kernels.shrinking`): a sweep over all examples, then sweeps over
the active ones until their residual is a tenth. The residual gives the gap that is left.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.samplings import Shuffled
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import further
from dualnewton.solvers.dual.kinked import KinkedSweeps
from dualnewton.solvers.dual.sweeps import FOCUSED_RESIDUAL

OBSERVED = 4
"""Steps by whose rate further ones are predicted."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:  # noqa: ARG001
    """Take steps until the expected gap is small enough, or too many more are expected; a start has no dual point."""
    from dualnewton.solvers.dual.compiled import CompiledEngine  # loads Numba

    n = problem.n
    engine = CompiledEngine([problem], Shuffled(n, 1), [problem.no_dual()], separable_rounds=False, shrinks=True)
    most_visits = math.ceil((1.0 + KinkedSweeps.focused_epochs) * n)
    # The order of the visits is random but always the same: the planner chose this method, and a direct solver has no seed.
    rng, gaps, visited = np.random.default_rng(0), list[float](), 0
    while len(gaps) < limits.most and not limits.is_late():
        visits = engine.visits(0)
        draws = rng.integers(0, 1 << 32, size=most_visits, dtype=np.uint32)
        visited += engine.shrink(0, visits, draws, FOCUSED_RESIDUAL)
        # The mean residual is about the gap of a piecewise linear loss, and half to all of it of a smooth one.
        gaps.append(visits.residual / n)
        wanted = WELL_BELOW * limits.tol * abs(engine.dual(0))
        left = min(limits.most - len(gaps), block.crossovers.round_steps)
        slow = len(gaps) > OBSERVED and further(gaps[-1 - OBSERVED], gaps[-1], wanted, OBSERVED) > left
        if gaps[-1] <= wanted or slow:
            break
        engine.adapt(0, gaps[-1], gaps[-1])
    w, b, _ = engine.model(0)
    if problem.fit_intercept:  # that of the rounds follows w
        b = problem.best_intercept(w)
    return Found(w.copy(), b, math.ceil(0.5 * visited / n), engine.alpha(0).copy())
