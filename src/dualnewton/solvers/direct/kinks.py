"""Small problems with a convex piecewise linear loss and a quadratic penalty: all interior-point steps in one call.

    n P(x) = Σ c_i φ_i(z_i) + ½ Σ ridge_j x_j²,      z_i = ã_iᵀx + o_i,  ã_i = (a_i, 1),  x = (w, b),  and no ridge on b

The steps and their symbols are those of :mod:`~dualnewton.solvers.primal.interior_steps`. On small data the interpreter takes
most of the time, so that

1. the start is the least-squares fit to the kinks, from which 6 to 12 steps lead to a relative gap of 1e-4,
2. a step takes about 40 array operations on p, q, s, t in one array, and one Cholesky factor: d×d, or n×n for fewer examples than
   features (:mod:`~dualnewton.solvers.primal.step_systems`),
3. once most dual variables are near an end of their interval at a kink, the steps continue with the other examples alone
   (``Terms.restricted``), and the gap over all examples checks that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dualnewton.objective.coordinates import Reflections, products_suffice
from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.block import Block, Found, Limits, Start
from dualnewton.solvers.primal.interior_search import Search
from dualnewton.solvers.primal.interior_steps import Terms, starting_state
from dualnewton.solvers.primal.step_systems import Gram, Rows

FINE = 1e-5
"""Relative gap below which the solutions of the linear systems are refined."""


def solve(problem: Problem, block: Block, start: Start | None, limits: Limits) -> Found:  # noqa: ARG001
    """Take steps until the gap is small enough, or rounding stops them.

    A start is not used, because interior-point methods converge slowly from points near the boundary.
    """
    if problem.n < problem.d and (span := products_of(problem, block, limits.tol)[1]) is not None:
        inner = Block(span.matrix, block.crossovers)
        own = solve(span.problem(problem), inner, None, limits)
        return own._replace(w=span.lifted(own.w))
    live = slice(None) if problem.sample_weight is None or problem.c.all() else np.flatnonzero(problem.c > 0.0)
    with np.errstate(all="ignore"):  # the certificate would show a point that overflow has made wrong
        whole = terms_of(problem, block, live, limits.tol)
        at = starting_state(whole)
        if at is None:
            return Found(np.zeros(problem.d), 0.0, 1, np.zeros(problem.n))
        y, o = problem.y[live], 0.0 if problem.offset is None else problem.offset[live]
        search = Search(whole, at, lambda z: problem.loss.value(z + o, y), block.crossovers)
        steps = 1  # the start is a step
        while steps < limits.most and not search.is_stuck and not limits.is_late():
            search.advance(fine=search.state.gap < FINE * search.value)
            steps += 1
            if search.is_over(limits.tol):
                break
        alpha = np.zeros(problem.n)
        alpha[live] = -whole.least - whole.fold(search.all_p())
        w, b = whole.system.model(search.best.x)
        return Found(w, b, steps, problem.loss.nearest_dual(alpha, problem.y))


def products_of(problem: Problem, block: Block, tol: float) -> tuple[np.ndarray, Any]:
    """Return K = A V⁻¹ Aᵀ, and None, or coordinates of the rows if K may have lost some of them.

    All problems of a fit share them.
    """
    key, v = (products_of, problem.regularizer), problem.regularizer.form.weights
    if key not in block.cache:
        scaled = block.rows if v is None else block.rows / np.sqrt(v)
        K = scaled @ scaled.T
        block.cache[key] = K, None if products_suffice(K, tol) else Reflections.of(block.data, v)
    made: tuple[np.ndarray, Any] = block.cache[key]
    return made


def terms_of(problem: Problem, block: Block, live: Any, tol: float) -> Terms:
    """Return the losses of the examples of positive weight."""
    kinks, lamn, v = problem.loss.kinks(problem.y[live]), problem.lam * problem.n, problem.regularizer.form.weights
    positions, jumps = np.array([k.position for k in kinks]), np.array([k.right - k.left for k in kinks])
    if problem.offset is not None:
        positions = positions - problem.offset[live]
    c = None if problem.sample_weight is None else problem.c[live]
    matrix: Rows | Gram
    if problem.n < problem.d:
        K = products_of(problem, block, tol)[0][live][:, live]
        matrix = Gram(block.rows[live], K, v, lamn, intercept=problem.fit_intercept)
    elif c is None and lamn in block.cache:
        matrix = block.cache[lamn]  # of another class, with the products of its columns
    else:
        rows = block.extended if problem.fit_intercept else block.rows
        ridge = np.zeros(rows.shape[1])
        ridge[: problem.d] = lamn if v is None else lamn * v
        matrix = Rows.of(rows if c is None else rows[live], problem.d, ridge)
        if c is None:
            block.cache[lamn] = matrix
    return Terms(matrix, positions, jumps, kinks[0].left, c)
