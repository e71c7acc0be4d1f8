"""The optimum of a piecewise linear loss and a quadratic penalty, by one linear system, given which examples lie on a kink.

Every other −α_i is at a vertex of φ*, which is known. The free examples, those on a kink k_i, satisfy

    a_iᵀw + b + o_i = k_i  for all free i,      w = V⁻¹ Σ c_i α_i a_i / λn,      Σ c_i α_i = 0 if b is free,

for g = ½ wᵀVw: linear in the free α_i and b.
"""

from __future__ import annotations

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.solvers.primal.curvature import Cholesky

LIFT = 1e-13
"""Fraction of the mean diagonal entry that is added to the diagonal, since repeated rows make the matrix singular."""

REFINED = 3
"""Number of solves with one factor, each for the residual of the one before: these remove the effect of the added diagonal."""

OUTSIDE = 0.1
"""Distance by which −α_i may leave its domain, as a fraction of the length of the domain; beyond it, the set of examples on a
kink was wrong, and no certificate is computed."""

Pair = tuple[np.ndarray, np.ndarray]
"""w and α."""


def solved_on_kinks(
    problem: Problem,  # with a quadratic penalty
    alpha: np.ndarray,  # (n,) dual variables of all other examples, and starting values of the free ones
    at: np.ndarray,  # (n,) kinks of the free examples; NaN for all others
) -> Pair | None:
    """Return the w and α that put the free examples on their kinks; None if that α is far from feasible."""
    free, alpha = np.flatnonzero(~np.isnan(at) & (problem.c > 0.0)), alpha.copy()
    low, high = problem.loss.domain(problem.y)
    w = problem.w_of(alpha)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a wrong set may give any numbers
        if free.size:
            w, alpha[free] = _solved(problem, free, at[free], w, alpha)
        inside = np.clip(-alpha, low, high)
        near = np.abs(inside + alpha) <= OUTSIDE * (high - low)
    return (w, -inside) if near.all() and np.isfinite(w).all() else None


def _solved(problem: Problem, free: np.ndarray, kinks: np.ndarray, w: np.ndarray, alpha: np.ndarray) -> Pair:
    """Return w and the free α_i for which their margins lie on the kinks and Σ c_i α_i = 0, starting at w = w(α).

    In the variables h_i = √c_i Δα_i, and with q_i = √c_i, residuals r and the imbalance t = −Σ c_i α_i,

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
            beta = (q @ h - missing) / (q @ along)
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
