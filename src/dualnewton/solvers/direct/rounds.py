"""Dual rounds over single examples of sparse data: all sweeps of a fit, without the loop.

A step is a sweep over all examples, then sweeps over the active ones until their residual is a tenth, both by the kernel that
shrinks (:mod:`dualnewton.kernels.shrinking`). The mean residual of a sweep over all examples predicts the gap. In 24 random fits
of each loss, the gap was 0.2 to 1.2 of it for piecewise linear losses, at most 0.5 of it for quadratic ones and twice for the
logistic loss; after sweeps over the active examples it was up to seven times theirs. With many examples the gap is estimated
from some of them once it may be small enough, since it is the mean of φ(z) + φ*(−α) + αz: also after sweeps over the active ones.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.samplings import Shuffled
from dualnewton.solvers.direct.block import Block, Found, Limits, Start
from dualnewton.solvers.direct.descent import further_steps
from dualnewton.solvers.dual.kinked import KinkedSweeps
from dualnewton.solvers.dual.sweeps import FOCUSED_RESIDUAL

OBSERVED = 4
"""Steps by whose rate further ones are predicted."""

ESTIMATED, MANY, NEARLY = 1 << 10, 1 << 11, 0.8
"""Examples from which the gap is estimated, the least number of all examples for that, and the largest estimate that ends the
steps, as a fraction of the wanted gap: it varies by about a tenth."""

DRAWN = 1 << 13
"""Random numbers drawn at a time, if all visits of a step need as many: they take as long as a call of the kernel."""

CLOSE, NEAR = 50.0, 10.0
"""Mean residuals of a sweep over all examples, in units of the wanted gap, from which on the gap is estimated: after the sweeps
over active ones that follow, and before. The gap was 0.03 to 0.3 of that residual, and 0.1 to 1 of it."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:  # noqa: ARG001
    """Take steps until the expected gap is small enough, or too many more are expected; a start has no dual point."""
    from dualnewton.solvers.dual.compiled import CompiledEngine  # loads Numba

    n = problem.n
    engine = CompiledEngine([problem], Shuffled(n, 1), [problem.no_dual()], separable_rounds=False, shrinks=True)
    # At a kink of the loss, the gaps of single examples vary too much for an estimate.
    estimates = n >= MANY and not problem.loss.kinked
    focused = math.ceil(
        KinkedSweeps.focused_epochs * n
    )  # visits of a step to active examples at most; most need far fewer
    drawn = max(n, min(n + focused, DRAWN))
    # The order of the visits is random but always the same: the planner chose this method, and a direct solver has no seed.
    draw: Any = partial(np.random.default_rng(0).integers, 0, 1 << 32, size=drawn, dtype=np.uint32)
    gaps, visited = list[float](), 0
    # D is at most P(0): it is computed only where the gap may be small enough, or the progress slow.
    at_zero = limits.tol * engine.largest_dual(0)
    first = CLOSE * at_zero if estimates else at_zero
    while True:
        visits, draws = engine.visits(0), draw()
        visited += engine.shrink(0, visits, draws[:n], FOCUSED_RESIDUAL)
        gaps.append(visits.first_residual / n)
        wanted = 0.0
        if gaps[-1] <= first or len(gaps) > OBSERVED:
            wanted = limits.tol * abs(engine.dual(0))
            most = min(limits.most - len(gaps), block.crossovers.round_steps)
            if len(gaps) > OBSERVED and further_steps(gaps[-1 - OBSERVED], gaps[-1], wanted, OBSERVED) > most:
                break
            close = gaps[-1] <= (NEAR if estimates else 1.0) * wanted
            if close and (not estimates or engine.estimated(0, ESTIMATED)[0] <= NEARLY * wanted):
                break
        if len(gaps) >= limits.most or limits.is_late():
            break
        engine.adapt(0, gaps[-1], gaps[-1])
        draws, left = draws[n:], focused
        while left > 0 and not visits.ended:
            draws = draws if draws.size else draw()
            visited += engine.shrink(0, visits, draws[:left], FOCUSED_RESIDUAL)
            draws, left = draws[:0], left - draws.size
        if estimates and gaps[-1] <= CLOSE * wanted and engine.estimated(0, ESTIMATED)[0] <= NEARLY * wanted:
            break
    w, b, _ = engine.model(0)
    if problem.fit_intercept:  # that of the rounds follows w
        b = problem.best_intercept(w)
    return Found(w.copy(), b, math.ceil(0.5 * visited / n), engine.alpha(0).copy())
