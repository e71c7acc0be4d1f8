"""The optimum of a piecewise linear loss and a quadratic penalty, by one linear system after a stage of smoothed losses.

The loss declares its kinks, and a stage of the proximal point method shows which examples lie on one: at its margin s the
smoothed loss φ_μ = (φ* + μu²/2)* has the slope u = (s − k)/μ if that lies strictly between the slopes of φ at the kink k, and a
vertex otherwise. If these examples are the right ones, their linear system (:mod:`~dualnewton.solvers.dual.kink_system`) gives
the optimum up to rounding. A proximal step determines the margins only up to the square root of the rounding error of its own
gap. A loss whose kinks do not cover all its slopes is not piecewise linear: it is left to the proximal steps.

The result is a candidate; like every point, it is certified by the problem itself.
"""

from __future__ import annotations

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import solves_kinks
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Result
from dualnewton.solvers.dual.kink_system import Pair, solved_on_kinks
from dualnewton.solvers.dual.piecewise import free_kinks


def finish(
    problem: Problem,  # problem with the original loss
    smoothed: Problem,  # same with φ_μ and the offsets o − μα̂
    stage: Result,  # result of a method for the smoothed problem; the linear system may cost as much as this run
    relative_gap: float,  # certified relative gap of the problem so far
    tuning: Tuning = DEFAULT,  # numbers by which costs are predicted
) -> Pair | None:
    """Find the free examples from a solution of a smoothed problem; return the resulting w and α, or None if they are infeasible.

    1. Find the set by the kinks of the loss. 2. Take every α_i from the smoothed problem, and solve for the free ones.
    """
    pieces = problem.pieces if problem.data.capabilities.local else None
    if pieces is None or not problem.regularizer.form.is_quadratic:
        return None
    # 1. The free examples, by the slopes of the smoothed losses
    alpha = -smoothed.loss.derivative(smoothed.margins(stage.w, stage.intercept), problem.y)
    at = free_kinks(pieces, alpha)
    free = int(np.count_nonzero(~np.isnan(at) & (problem.c > 0.0)))
    if not solves_kinks(problem, free, relative_gap, stage.plan, stage.n_epochs, tuning):
        return None
    # 2. The vertices from the smoothed problem, the free ones from the system
    return solved_on_kinks(problem, alpha, at)
