"""The start of a problem whose rows are many for the coefficients in use: its solution on a random sample of the rows.

On m rows u coefficients are known up to about √(u/m) of their size. That is far closer to the minimum than w = 0, so that
Newton's method needs about half as many steps on all rows, and those on the sample cost a fraction m/n each. Features that no row
of the sample has stay at zero; the next steps on all rows include them where they violate the optimality conditions.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dualnewton.objective.alike import on_rows
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.primal.samples import represents_labels
from dualnewton.solvers.primal.sketching import RARE
from dualnewton.solvers.prox.model import Known, Trial

if TYPE_CHECKING:
    from dualnewton.solvers.prox.newton import Proximal

SETTLED = 0.03
"""Relative gap to which the sample is solved: on all rows its solution has a gap of about a tenth."""

CURVED = 48
"""Rows per nonzero coefficient from which on the curvature of the sample serves the first step on all rows. (With 20 to 30 of
them, two or three more steps followed.)"""

WORSE = 2.0
"""Largest ratio of the values per row, on all rows and on the sample, with which its solution is the starting point. With few
rows for each coefficient, or with a row that is unlike all others, the solution may be worse on all rows than w = 0."""

MOST_STEPS = 20
"""Largest number of steps on the sample."""


def begin(method: Proximal, deadline: Deadline) -> float:
    """Evaluate the solutions on the sample, and return the epochs of work; then the given points, where these are better."""
    models, given = method.models, [model.trial for model in method.models]
    values, epochs = _solve_sample(method, deadline)
    method.evaluate(models)
    poor = [k for k, model in enumerate(models) if not model.value <= WORSE * values[k]]
    for k in poor:
        models[k].restart(given[k])
    if poor:
        method.evaluate([models[k] for k in poor])
    return epochs + 1.0 + bool(poor)


def _solve_sample(method: Proximal, deadline: Deadline) -> tuple[list[float], float]:
    """Move the trial points to the solutions on the sample; return the values expected there, and the epochs of work.

    The points stay where they are if a class has too few rows in the sample.
    """
    task, points = method.models[0].task, [model.point() for model in method.models]
    rng = np.random.default_rng(0)  # the steps use no random numbers: their bits do not depend on the seed of the run
    draws = [method.data.strata(rng, method.sample)]
    ((rows, problems),) = on_rows([model.task.problem for model in method.models], method.data, draws)
    if not represents_labels(rows, problems):
        return [math.inf for _ in points], 0.0
    starts = [(point.w, point.intercept) for point in points]
    inner = type(method)(problems, rows, starts, tol=SETTLED, compiled=method.compiled, sizes=task.sizes)
    factor, epochs = method.data.n / rows.n, 0.0
    for _ in range(MOST_STEPS):
        if deadline.is_over() or all(model.stuck or model.gap <= SETTLED * abs(model.value) for model in inner.models):
            break
        epochs += inner.step(rng, deadline.at, np.inf)
    common = np.tile(rows.nonzeros() >= RARE, task.problem.columns)
    for model, found in zip(method.models, inner.models, strict=True):
        model.trial = Trial(found.place.w, found.place.b)
        if found.known is not None and CURVED * np.count_nonzero(found.place.w) <= rows.n:
            own = common[found.known.inside]
            curvature = found.known.curvature.only(np.flatnonzero(own)).times(factor)
            model.known, model.progress = Known(found.known.inside[own], curvature), replace(model.progress, factor=0.0)
    return [factor * abs(found.value) for found in inner.models], epochs / factor
