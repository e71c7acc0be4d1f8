"""Least squares with a threshold for each feature on sparse data: Lasso and elastic net, by the stored entries of the features.

The sweeps are those of ``prox/column_descent.py``. As on a dense block (``thresholds.py``), more features than examples are
reached from w = 0 by way of stronger penalties, so that few features are in use on the way.
"""

from __future__ import annotations

import time

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Start
from dualnewton.solvers.direct.thresholds import ROUGHLY, falling
from dualnewton.solvers.prox.column_descent import SWEEPS
from dualnewton.solvers.prox.entry_paths import LOOSELY, EntryModel
from dualnewton.solvers.prox.subproblem import Penalty


def solve(problem: Problem, block: Block, start: Start | None, *, tol: float, most: int, deadline: float) -> Found:
    """Sweep until the gap is small enough; a step is a round of sweeps."""
    y = problem.y if problem.offset is None else problem.y - problem.offset
    crossovers, penalty = block.crossovers, Penalty.of(problem)
    if (features := block.kept.get("entries: features")) is None:
        features = block.kept["entries: features"] = block.data.columns(np.arange(problem.d))
    limits = SWEEPS * most, crossovers.largest_matrix
    model = EntryModel(features, y, problem.c, *limits, fit_intercept=problem.fit_intercept)
    strengths: tuple[float, ...] = (1.0,)
    if start is None:
        w = np.zeros(problem.d)
        highest = float((np.abs(model.columns.known) / penalty.threshold).max(initial=0.0))
        strengths = falling(highest, crossovers.path_ladder if problem.d > problem.n else 0.0)
    else:
        w = np.asarray(start[0])
    for strength in strengths:
        here = penalty.times(strength)
        part = WELL_BELOW * tol / LOOSELY if strength == 1.0 else ROUGHLY
        w = model.minimum(w, here, part * float(here.threshold.min()), lambda: time.perf_counter() > deadline)
    return Found(w.copy(), float(model.target_mean - model.mean @ w), min(most, 1 + model.sweeps // SWEEPS))
