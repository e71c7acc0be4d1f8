"""The optimum of a piecewise linear loss and a quadratic penalty, by one linear system, once it is known who lies on a kink.

At the optimum every −α_i is a vertex of φ* (an end of its domain, or a kink of φ* itself), which is a number that is known. Or it
lies inside a piece on which φ* is linear. Then example i is *free*, and its margin is the slope k_i of that piece, a kink of φ:

    a_iᵀw + b + o_i = k_i  for all free i,      w = V⁻¹ Σ c_i α_i a_i / λn,      Σ c_i α_i = 0 if b is free,

for g = ½ wᵀVw. This is linear in the free α_i and b, and the right set gives the optimum but for rounding. A proximal step knows
the margins only up to the root of what rounding leaves of its own gap.

The loss declares its kinks, and a stage of the proximal point method tells which examples lie on one: at its margin s the smooth
neighbour φ_μ = (φ* + μu²/2)* has the slope u = (s − k)/μ if that lies strictly between the slopes of φ at the kink k, and a
vertex otherwise. A loss whose kinks do not account for all its slopes is not piecewise linear: it is left to the proximal steps.

What is found here is a guess; like every point, it is certified by the problem itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dualnewton.losses import Kink
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import solves_kinks
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Result
from dualnewton.solvers.primal.curvature import Cholesky

LIFT = 1e-13
"""Fraction of the mean diagonal entry that is added to the diagonal, since repeated rows make the matrix singular."""

REFINED = 3
"""Solves with one factor, each with the residual that the one before has left: the lift is gone, and rounding is what remains."""

OUTSIDE = 0.1
"""Distance by which −α_i may leave its domain, as a fraction of the length of the domain; farther out, the set of examples on a
kink was wrong, and no certificate is computed."""

Pair = tuple[np.ndarray, np.ndarray]
"""w and α."""


def finish(
    problem: Problem, neighbour: Problem, stage: Result, relative_gap: float, tuning: Tuning = DEFAULT
) -> Pair | None:
    """Guess from a solution of a smoothed problem who is free, and return the w and α that follow; None where that is no use.

    1. Find the set by the kinks of the loss. 2. Take every α_i from the neighbour. 3. Solve for the free ones. 4. See whether
    they are feasible.

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
    kinks, (low, high) = problem.loss.kinks(problem.y), problem.loss.domain(problem.y)
    if not (problem.regularizer.form.is_quadratic and is_piecewise_linear(kinks, low, high)):
        return None
    # 1. Who is free
    s = neighbour.margins(stage.w, stage.intercept)
    u, at = neighbour.loss.derivative(s, problem.y), np.full(problem.n, np.nan)
    for kink in kinks:
        np.copyto(at, kink.position, where=(kink.left < u) & (u < kink.right))
    free = np.flatnonzero(~np.isnan(at) & (problem.c > 0.0))
    if not solves_kinks(problem, free.size, relative_gap, stage.plan, stage.n_epochs, tuning):
        return None
    # 2. The vertices, and where the free ones start
    alpha = -u
    w = problem.w_of(alpha)
    with np.errstate(over="ignore", invalid="ignore"):  # a wrong set may lead anywhere
        # 3. The free ones
        if free.size:
            w, alpha[free] = _solved(problem, free, at[free], w, alpha)
        # 4. Feasible?
        inside = np.clip(-alpha, low, high)
        near = np.abs(inside + alpha) <= OUTSIDE * (high - low)
    return (w, -inside) if near.all() and np.isfinite(w).all() else None


def is_piecewise_linear(kinks: Sequence[Kink], low: np.ndarray, high: np.ndarray) -> bool:
    """Whether the slopes at the kinks, from left to right, fill the domain of φ* without a gap: then φ is linear between them."""
    ends = [low, *(kink.right for kink in kinks)]
    starts = [*(kink.left for kink in kinks), high]
    return bool(kinks) and all(np.all(end == start) for end, start in zip(ends, starts, strict=True))


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
        h = factor.solve(q * (kinks - problem.o[free] - rows @ w - b))
        if problem.fit_intercept:
            beta = float(q @ h - missing) / float(q @ along)
            h, b = h - beta * along, b + beta
        step = h / q
        at, missing = at + step, missing - float(c @ step)
        moved = rows.T @ (c * step) / (problem.lam * problem.n)
        w = w + problem.regularizer.grad_conjugate(moved)
    return w, at


def _gram(problem: Problem, rows: linear.Matrix) -> np.ndarray:
    """A V⁻¹ Aᵀ / λn."""
    v = problem.regularizer.form.weights
    scaled = rows if v is None else linear.scale_columns(rows, np.sqrt(1.0 / v))
    return linear.gram(scaled) / (problem.lam * problem.n)
