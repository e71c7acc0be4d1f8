"""The optimum of a piecewise linear loss and a quadratic penalty, by one linear system, after a stage of the proximal point method.

The loss declares its kinks, and a stage of the proximal point method tells which examples lie on one: at its margin s the smooth
neighbour φ_μ = (φ* + μu²/2)* has the slope u = (s − k)/μ if that lies strictly between the slopes of φ at the kink k, and a
vertex otherwise. The linear system of these examples (:mod:`~dualnewton.solvers.outer.kink_system`) gives the optimum but for
rounding, if they are the right ones. A proximal step knows the margins only up to the root of what rounding leaves of its own
gap. A loss whose kinks do not account for all its slopes is not piecewise linear: it is left to the proximal steps.

What is found here is a guess; like every point, it is certified by the problem itself.
"""

from __future__ import annotations

import numpy as np

from dualnewton.losses.base import is_piecewise_linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import solves_kinks
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Result
from dualnewton.solvers.outer.kink_system import Pair, on_kinks


def finish(
    problem: Problem, neighbour: Problem, stage: Result, relative_gap: float, tuning: Tuning = DEFAULT
) -> Pair | None:
    """Guess from a solution of a smoothed problem who is free, and return the w and α that follow; None where that is no use.

    Parameters
    ----------
    problem : Problem
        With the loss itself.
    neighbour : Problem
        The same with φ_μ and the offsets o − μα̂.
    stage : Result
        What a method has found for the neighbour, and after how much work: the system may cost as much.
    relative_gap : float
        What is known of the problem so far.
    tuning : Tuning
        What the system may cost.
    """
    kinks = problem.loss.kinks(problem.y)
    if not (problem.regularizer.form.is_quadratic and is_piecewise_linear(kinks, *problem.loss.domain(problem.y))):
        return None
    s = neighbour.margins(stage.w, stage.intercept)
    u, at = neighbour.loss.derivative(s, problem.y), np.full(problem.n, np.nan)
    for kink in kinks:
        np.copyto(at, kink.position, where=(kink.left < u) & (u < kink.right) & (problem.c > 0.0))
    free = int(np.count_nonzero(~np.isnan(at)))
    if not solves_kinks(problem, free, relative_gap, stage.plan, stage.n_epochs, tuning):
        return None
    return on_kinks(problem, at, -u)
