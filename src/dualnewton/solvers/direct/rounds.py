"""Dual rounds over single examples of small sparse data: all sweeps of a fit, without the loop.

A step is a sweep over all examples, then sweeps over the active ones until their residual is a tenth, both by the kernel that
shrinks (:mod:`dualnewton.kernels.shrinking`). The last step ends after the sweep over all examples, since the mean residual of
that sweep predicts the gap. In 24 random fits of each loss, the gap was 0.2 to 1.2 of it for piecewise linear losses, at most 0.5
of it for quadratic ones and twice for the logistic loss; after sweeps over the active examples it was up to seven times theirs.
"""

from __future__ import annotations

import math

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.samplings import Shuffled
from dualnewton.solvers.direct.block import Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import further_steps
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
    # D is at most P(0): it is computed only where the gap may be small enough, or the progress slow.
    enough_at_zero = limits.tol * problem.label_sums.at_zero / n if problem.offset is None else math.inf
    while True:
        visits, draws = engine.visits(0), rng.integers(0, 1 << 32, size=most_visits, dtype=np.uint32)
        visited += engine.shrink(0, visits, draws[:n], FOCUSED_RESIDUAL)
        gaps.append(visits.first_residual / n)
        if gaps[-1] <= enough_at_zero or len(gaps) > OBSERVED:
            wanted = limits.tol * abs(engine.dual(0))
            left = min(limits.most - len(gaps), block.crossovers.round_steps)
            slow = len(gaps) > OBSERVED and further_steps(gaps[-1 - OBSERVED], gaps[-1], wanted, OBSERVED) > left
            if gaps[-1] <= wanted or slow:
                break
        if len(gaps) >= limits.most or limits.is_late():
            break
        engine.adapt(0, gaps[-1], gaps[-1])
        visited += engine.shrink(0, visits, draws[n:], FOCUSED_RESIDUAL)
    w, b, _ = engine.model(0)
    if problem.fit_intercept:  # that of the rounds follows w
        b = problem.best_intercept(w)
    return Found(w.copy(), b, math.ceil(0.5 * visited / n), engine.alpha(0).copy())
