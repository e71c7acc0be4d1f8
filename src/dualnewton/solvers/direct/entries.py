"""Least squares with a threshold for each feature: Lasso and elastic net, by the stored entries of the features.

The features are sparse, or dense and nearly independent of each other, so that few sweeps suffice. These are the sweeps of
``prox/column_descent.py``. As on a dense block (``thresholds.py``), more features than examples are
reached from w = 0 by way of stronger penalties, so that few features are in use on the way.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels.constants import SWEEPS
from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start
from dualnewton.solvers.direct.thresholds import ROUGHLY, falling_multiples
from dualnewton.solvers.prox.entry_paths import LOOSELY, EntryModel
from dualnewton.solvers.prox.subproblem import Penalty


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:
    """Sweep until the gap is small enough; a step is a round of sweeps."""
    return swept(problem, block, start, limits, SWEEPS * limits.most)[0]


def swept(problem: Problem, block: Block, start: Start | None, limits: Limits, most: int) -> tuple[Found, bool]:
    """Sweep at most so often; return the model, and whether these sweeps sufficed."""
    y = problem.y if problem.offset is None else problem.y - problem.offset
    crossovers, penalty = block.crossovers, Penalty.of(problem)
    if (features := block.cache.get("entries: features")) is None:
        features = block.cache["entries: features"] = block.data.columns(np.arange(problem.d))
    # Dense features are swept only if that is expected to suffice without Newton steps.
    newton = crossovers.largest_matrix if problem.data.profile.sparse else 0
    model = EntryModel(features, y, problem.c, most, newton, fit_intercept=problem.fit_intercept)
    strengths: tuple[float, ...] = (1.0,)
    if start is None:
        w = np.zeros(problem.d)
        highest = float((np.abs(model.columns.known) / penalty.threshold).max(initial=0.0))
        strengths = falling_multiples(highest, crossovers.path_ladder if problem.d > problem.n else 0.0)
    else:
        w = np.asarray(start[0])
    for strength in strengths:
        here = penalty.times(strength)
        part = WELL_BELOW * limits.tol / LOOSELY if strength == 1.0 else ROUGHLY
        w = model.minimum(w, here, part * float(here.threshold.min()), limits.is_late)
        model.most = most - model.sweeps
        if model.is_slow:
            break
    steps = min(max(1, most // SWEEPS), 1 + model.sweeps // SWEEPS)
    return Found(w.copy(), float(model.target_mean - model.mean @ w), steps), not model.is_slow
