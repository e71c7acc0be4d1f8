"""Dual rounds over single examples of sparse data: all sweeps of a fit, without the loop.

A step is a sweep over all examples, then sweeps over the active ones until their residual is a tenth, both by the kernel that
shrinks (:mod:`dualnewton.kernels.shrinking`). The mean residual of a sweep over all examples predicts the gap. In 24 random fits
of each loss, the gap was 0.2 to 1.2 of it for piecewise linear losses, at most 0.5 of it for quadratic ones and twice for the
logistic loss; after sweeps over the active examples it was up to seven times theirs. With many examples the gap is estimated
from some of them once it may be small enough, since it is the mean of φ(z) + φ*(−α) + αz: also after sweeps over the active ones.
"""

from __future__ import annotations

import math
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

CLOSE = 50.0
"""Mean residual, in units of the wanted gap, from which on the gap is estimated: a step divides it by ten and more."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:  # noqa: ARG001
    """Take steps until the expected gap is small enough, or too many more are expected; a start has no dual point."""
    from dualnewton.solvers.dual.compiled import CompiledEngine  # loads Numba

    n = problem.n
    engine = CompiledEngine([problem], Shuffled(n, 1), [problem.no_dual()], separable_rounds=False, shrinks=True)
    close = CLOSE if _estimates(problem) else 1.0
    # The order of the visits is random but always the same: the planner chose this method, and a direct solver has no seed.
    rng, gaps, visited = np.random.default_rng(0), list[float](), 0
    # D is at most P(0): it is computed only where the gap may be small enough, or the progress slow.
    enough_at_zero = limits.tol * problem.label_sums.at_zero / n if problem.offset is None else math.inf
    while True:
        visits = engine.visits(0)
        visited += engine.shrink(0, visits, _draws(rng, n), FOCUSED_RESIDUAL)
        gaps.append(visits.first_residual / n)
        wanted = 0.0
        if gaps[-1] <= close * enough_at_zero or len(gaps) > OBSERVED:
            wanted = limits.tol * abs(engine.dual(0))
            left = min(limits.most - len(gaps), block.crossovers.round_steps)
            slow = len(gaps) > OBSERVED and further_steps(gaps[-1 - OBSERVED], gaps[-1], wanted, OBSERVED) > left
            if _is_small(problem, engine, gaps[-1], wanted) or slow:
                break
        if len(gaps) >= limits.most or limits.is_late():
            break
        engine.adapt(0, gaps[-1], gaps[-1])
        for _ in range(math.ceil(KinkedSweeps.focused_epochs)):
            if not visits.ended:
                visited += engine.shrink(0, visits, _draws(rng, n), FOCUSED_RESIDUAL)
        if _estimates(problem) and _is_small(problem, engine, gaps[-1], wanted):
            break
    w, b, _ = engine.model(0)
    if problem.fit_intercept:  # that of the rounds follows w
        b = problem.best_intercept(w)
    return Found(w.copy(), b, math.ceil(0.5 * visited / n), engine.alpha(0).copy())


def _draws(rng: np.random.Generator, visits: int) -> np.ndarray:
    """Return a random number for each of so many visits; most steps end long before their limit."""
    return rng.integers(0, 1 << 32, size=visits, dtype=np.uint32)


def _estimates(problem: Problem) -> bool:
    """Whether the gap is estimated from some of many examples; those at a kink of their loss would vary too much."""
    return problem.n >= MANY and not problem.loss.kinked


def _is_small(problem: Problem, engine: Any, residual: float, wanted: float) -> bool:
    """Whether the gap is expected to be at most the wanted one, given the mean residual of the last sweep over all examples."""
    if not _estimates(problem):
        return residual <= wanted
    return residual <= CLOSE * wanted and _estimated_gap(problem, engine) <= NEARLY * wanted


def _estimated_gap(problem: Problem, engine: Any) -> float:
    """Return the mean of φ(z) + φ*(−α) + αz over some examples, for the w of the rounds, which is that of α up to rounding."""
    some = slice(None, None, problem.n // ESTIMATED)
    (w, b, _), alpha, vectors = engine.model(0), engine.alpha(0)[some], problem.row_vectors.part(some)
    z = vectors.shifted(problem.data.rows(some) @ w + b)
    losses = problem.loss.value(z, vectors.y) + alpha * z
    own = float(losses.sum() if vectors.c is None else vectors.c @ losses)
    return (own + problem.loss.conjugates(alpha, vectors.y, vectors.c)) / len(alpha)
