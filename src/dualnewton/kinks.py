"""The optimum of a piecewise linear loss and a quadratic penalty, by one linear system, once it is known who lies on a kink.

At the optimum every −α_i is a vertex of φ* (an end of its domain, or a kink of φ* itself), which is a number that is known. Or it
lies inside a piece on which φ* is linear. Then example i is *free*, and its margin is the slope k_i of that piece, a kink of φ:

    a_iᵀw + b + o_i = k_i  for all free i,      w = V⁻¹ Σ c_i α_i a_i / λn,      Σ c_i α_i = 0 if b is free,

for g = ½ wᵀVw. This is linear in the free α_i and b, and the right set gives the optimum but for rounding. A proximal step knows
the margins only up to the root of what rounding leaves of its own gap.

The smooth neighbour φ_μ = (φ* + μu²/2)* knows the set and the kinks. At the margin s, u = φ_μ′(s) lies inside a piece where
φ_μ″(s) = 1/μ, and s − μu is the slope of that piece; u is a vertex where φ_μ″(s) = 0. So a loss of the user's own has to say
nothing more. A φ_μ″ between the two belongs to a loss that is not piecewise linear: it is left to the proximal steps.

What is found here is a guess. The problem itself judges it, like everything else.
"""

from __future__ import annotations

import numpy as np

from dualnewton.matrix import linear
from dualnewton.problem import Problem
from dualnewton.regularizers import L2
from dualnewton.result import Result
from dualnewton.solvers.costs import Costs
from dualnewton.solvers.curvature import Cholesky

MOST = 2000
"""Free examples; the matrix of the system is dense."""

RIPE, LONGER = 1e-8, 4.0
"""Above this relative gap more free examples than unknowns in w and b are taken for a guess too early: they can all lie on kinks
only where rows repeat or depend on each other. Below it the stages come near to rounding, and the system may cost more."""

LIFT = 1e-13
"""Of the mean diagonal entry is added to the diagonal: rows may be repeated, or be more than the features."""

REFINED = 3
"""Solves with one factor, each with the residual that the one before has left: the lift is gone, and rounding is what remains."""

OUTSIDE = 0.1
"""Of the length of its domain is how far −α_i may end outside. Further away the set was wrong, and a judge would be a waste."""

SLOPE = 1e-6
"""The relative difference up to which φ_μ″ is 1/μ."""

Pair = tuple[np.ndarray, np.ndarray]
"""w and α."""


def finish(problem: Problem, neighbour: Problem, stage: Result, relative_gap: float) -> Pair | None:
    """Guess from a solution of a smoothed problem who is free, and return the w and α that follow; None where that is no use.

    1. Ask the neighbour for the set. 2. Take every α_i from it. 3. Solve for the free ones. 4. See whether they are feasible.

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
    """
    if type(problem.regularizer) is not L2:
        return None
    # 1. Who is free
    s, width = neighbour.margins(stage.w, stage.intercept), neighbour.loss.gamma
    u, curvature = neighbour.loss.derivatives(s, problem.y)
    free = np.flatnonzero((curvature > 0.0) & (problem.c > 0.0))
    ripe = relative_gap <= RIPE
    if free.size > (MOST if ripe else min(MOST, problem.d + problem.fit_intercept)):
        return None
    if (costs := Costs.of(problem.data.profile)).gram(free.size) > (LONGER if ripe else 1.0) * _spent(costs, stage):
        return None
    if np.abs(width * curvature[free] - 1.0).max(initial=0.0) > SLOPE:
        return None
    # 2. The vertices, and where the free ones start
    alpha = -u
    w = problem.w_of(alpha)
    low, high = problem.loss.domain(problem.y)
    with np.errstate(over="ignore", invalid="ignore"):  # a wrong set may lead anywhere
        # 3. The free ones
        if free.size:
            w, alpha[free] = _solved(problem, free, s[free] - width * u[free], w, alpha)
        # 4. Feasible?
        inside = np.clip(-alpha, low, high)
        near = np.abs(inside + alpha) <= OUTSIDE * (high - low)
    return (w, -inside) if near.all() and np.isfinite(w).all() else None


def _solved(problem: Problem, free: np.ndarray, kinks: np.ndarray, w: np.ndarray, alpha: np.ndarray) -> Pair:
    """Return w and the free α_i that put their margins on the kinks and the masses in balance, from w = w(α) on.

    In the variables h_i = √c_i Δα_i, and with q_i = √c_i, residuals r and what is missing of the balance, t = −Σ c_i α_i,

        K h + βq = r,        qᵀh = t,        K = D(q) A V⁻¹ Aᵀ D(q) / λn.
    """
    c, rows = problem.c[free], problem.data.rows(free)
    q, at, b = np.sqrt(c), alpha[free], 0.0
    K = _gram(problem, linear.scale_rows(rows, q))
    scale = float(np.einsum("ii->i", K).mean()) or 1.0
    missing = -float(problem.c @ alpha) if problem.fit_intercept else 0.0
    factor = Cholesky(K, np.full(free.size, LIFT * scale))
    along = factor.solve(q)
    for _ in range(REFINED):
        h = factor.solve(q * (kinks - problem.o[free] - linear.times(rows, w) - b))
        if problem.fit_intercept:
            beta = float(q @ h - missing) / float(q @ along)
            h, b = h - beta * along, b + beta
        step = h / q
        at, missing = at + step, missing - float(c @ step)
        moved = linear.transposed_times(rows, c * step) / (problem.lam * problem.n)
        w = w + problem.regularizer.grad_conjugate(moved)
    return w, at


def _gram(problem: Problem, rows: linear.Matrix) -> np.ndarray:
    """A V⁻¹ Aᵀ / λn."""
    v = problem.regularizer.limits(problem.d)
    scaled = rows if v is None else linear.scale_columns(rows, np.sqrt(v[1]))
    return linear.gram(scaled) / (problem.lam * problem.n)


def _spent(costs: Costs, stage: Result) -> float:
    """What a stage has cost at least: its passes and, of a primal method, one curvature."""
    return stage.n_epochs * costs.data_pass + (costs.sketch(stage.plan.tau) if stage.plan.is_primal else 0.0)
