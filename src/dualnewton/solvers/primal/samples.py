"""The start of a smooth problem with many more rows than unknowns: its solution on random samples of the rows.

The minimiser on m of n rows is within about D/(2m) of the optimum, in units of P, for D unknowns; and the Hessian of the sample,
times n/m, is the Hessian of all rows up to a relative error of √(D/m), which makes it a good first matrix of L-BFGS. Each sample
is several times as large as the one before and starts from its solution: only the first, smallest sample needs more than one or
two steps of Newton's method. Then a few gradients of all rows suffice.

Uniform samples miss features that few rows have and classes with few rows. If the first sample has too few rows of
either kind, the run starts without samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.objective.alike import on_rows
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import label_weights
from dualnewton.row_arrays import on_host
from dualnewton.solvers.primal.curvature import Curvature
from dualnewton.solvers.primal.model import Found, Model
from dualnewton.solvers.primal.sketching import RARE

if TYPE_CHECKING:
    from dualnewton.solvers.primal.newton import Descent

SETTLED = 0.05
"""Suboptimality of a solution on a sample, as a fraction of the distance between the optima of the sample and of all rows."""

EVEN = 0.25
"""Least effective number of rows of a weighted sample, as a fraction of its rows."""

MOST_STEPS = 20
"""Largest number of steps on one sample."""


def solve_samples(method: Descent, rng: np.random.Generator) -> tuple[list[Found], float]:
    """Solve the problems of a method on its samples, one after the other; return the solutions and the number of passes."""
    n, problems = method.data.n, [model.objective.problem for model in method.models]
    found, passes = [Found(model.trial.x) for model in method.models], 0.0
    draws = [method.data.strata(rng, size) for size in method.samples]
    for size, (data, sampled) in zip(method.samples, on_rows(problems, method.data, draws), strict=True):
        if size == method.samples[0] and not represents(data, sampled):
            return found, passes
        points = [model.objective.parts(one.x) for model, one in zip(method.models, found, strict=True)]
        inner = type(method)(
            sampled,
            data,
            [(W[0], b[0]) if len(W) == 1 else (W, b) for W, b in points],
            tol=0.0,
            sketch=size,
            newton=True,
            decisions=method.decisions.on(data),
        )
        steps = _settle(inner, rng)
        passes += steps * size / n
        found = [Found(model.place.x, _of_all(model.curvature, n / size), size) for model in inner.models]
    return found, passes


def _of_all(curvature: Any, factor: float) -> Curvature:
    return curvature.times(factor)


def _settle(method: Descent, rng: np.random.Generator) -> int:
    """Take steps until each model is closer to the minimiser of its sample than this minimiser is to that of all rows.

    The last step is not evaluated if it is expected to get there: Newton's method divides the possible decrease by a larger
    factor at each step than at the one before.
    """
    models, decreases = method.models, [math.nan for _ in method.models]
    for steps in range(1, MOST_STEPS + 1):
        method.advance(rng)
        before, decreases = decreases, [-0.5 * model.direction.slope for model in models]
        next_ones = [now * now / last if last > 0.0 else math.inf for now, last in zip(decreases, before, strict=True)]
        if all(_is_small(*each) and not each[0].trial.failures for each in zip(models, next_ones, strict=True)):
            for model in models:
                model.skip()
            return steps
        method.evaluate()
        if all(model.stuck or _is_settled(model) for model in models):
            return steps
    return MOST_STEPS


def _is_small(model: Model, decrease: float) -> bool:
    """Whether a possible decrease of n P is small, compared with the distance between the optima."""
    place = model.place
    return decrease <= SETTLED * place.x.size * abs(place.value) / len(place.margins)


def _is_settled(model: Model) -> bool:
    gradient, curvature = model.place.gradient, model.curvature
    return curvature is not None and _is_small(model, 0.5 * float(gradient @ curvature.solve(gradient)))


def represents(data: Data, problems: Sequence[Problem]) -> bool:
    """Whether enough rows of a sample have each feature, enough belong to each class, and enough have a noticeable weight."""
    return data.has_each(RARE) and represents_labels(data, problems)


def represents_labels(data: Data, problems: Sequence[Problem]) -> bool:
    """Whether enough rows of a sample belong to each class, and enough have a noticeable weight."""
    for problem in problems:
        least = max(2, problem.columns)
        known = label_weights(problem.y, None, least)
        kinds, counts = np.unique(on_host(problem.y), return_counts=True) if known is None else known
        if len(kinds) < least or (len(kinds) == least and counts.min() < RARE):
            return False
        c = problem.sample_weight
        if c is not None and float(c.sum()) ** 2 < EVEN * data.n * float(c @ c):
            return False
    return True
