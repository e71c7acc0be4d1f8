"""Least squares of several outputs with a quadratic penalty, such as ridge regression of K targets: one matrix for all of them.

    n P_k(x) = Σ c_i φ(ã_iᵀx + o_ik; y_ik) + ½ Σ_j ridge_kj x_j²,        ã_i = (a_i, 1),   x = (w, b),   no ridge on b

The loss φ is quadratic and the rows have the same weights in all outputs, so that the Hessian depends on λ alone: outputs with
equal λ share its factor. One Newton step of each output from zero would be exact without rounding; further steps, with gradients
computed from the rows, reduce the error that rounding has left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat

import numpy as np

from dualnewton.matrix.blocks import by_columns
from dualnewton.matrix.factors import factorised, solved
from dualnewton.objective.groups import TOGETHER
from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import stacked
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Start, weighted_sums

ROUNDED = 1e-13
"""Relative error of a sum of products in :func:`is_exact`: hundreds of times the usual one."""


def solve(problems: Sequence[Problem], block: Block, starts: Sequence[Start | None], limits: Limits) -> list[Found]:
    """Take steps until the expected gap of every output is small enough, or none is halved any more."""
    first, rows = problems[0], block.rows
    d, free = first.d, first.fit_intercept
    ridge = ridges(problems)
    x, cold = np.zeros(ridge.shape), all(start is None for start in starts)
    for own, start in zip(x, starts, strict=True):
        if start is not None:
            own[:d], own[d:] = start
    (inverse, diagonal), halves = hessian_inverses(first, rows, ridge), 0.5 / ridge[:, :d]
    best, least, steps = x, np.full(len(problems), np.inf), 0
    while True:
        losses, gradients = evaluate_outputs(problems, rows, x)
        pull = ridge * x
        values, gradients = losses + 0.5 * np.add.reduce(pull * x, axis=1), gradients + pull
        if cold and steps == 0:  # a step is taken in any case
            way, steps = inverse(gradients), 1
            x = x - way
            ends = values - 0.5 * np.add.reduce(gradients * way, axis=1)
            moved, shares = np.square(way) @ diagonal, 2.0 * halves @ diagonal[:d]
            enough, corner = WELL_BELOW * limits.tol * ends, float(diagonal[d]) if free else 0.0
            if all(map(is_exact, moved.tolist(), shares.tolist(), repeat(corner), enough.tolist())):
                return found_models(x, d, steps)
            continue
        gaps = np.add.reduce(gradients[:, :d] ** 2 * halves, axis=1)
        gaps = gaps + np.abs(gradients[:, d]) if free else gaps
        lower, halved = gaps < least, gaps < 0.5 * least
        best = x if lower.all() else np.where(lower[:, None], x, best)
        least = np.minimum(gaps, least)
        far = halved & ~((gaps <= WELL_BELOW * limits.tol * np.abs(values)) & (steps > 0))
        if not far.any() or steps >= limits.most or (steps and limits.is_late()):
            return found_models(best, d, max(steps, 1))
        x = x - inverse(gradients)
        steps += 1


def evaluate_outputs(problems: Sequence[Problem], rows: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the losses of each output at its model, a row of x, and their gradients.

    Some outputs are evaluated at a time, so that arrays with an entry per row stay in the cache.
    """
    first, (n, d) = problems[0], rows.shape
    losses, gradients, weights, c = np.empty(len(x)), np.empty(x.shape), first.c, first.sample_weight
    shifted, some = any(each.offset is not None for each in problems), max(1, TOGETHER // n)
    for low in range(0, len(x), some):
        part = slice(low, low + some)
        own, here = problems[part], x[part]
        z = products(rows, here) if np.count_nonzero(here) else np.zeros((len(own), n))
        z = z + stacked([each.o for each in own]) if shifted else z
        values, slopes = first.loss.value_and_derivative(z, stacked([each.y for each in own]))
        losses[part], mass = values @ weights, slopes if c is None else c * slopes
        gradients[part, :d] = weighted_sums(mass.T, rows)
        if x.shape[1] > d:
            gradients[part, d] = slopes @ weights
    return losses, gradients


def is_exact(moved: float, shares: float, corner: float, enough: float) -> bool:
    """Whether the Newton step of an output leaves at most this gap, by an estimate of its rounding errors.

    The certificate then takes the place of another evaluation. A step s leaves about r_j = ε √H_jj ‖√H_kk s_k‖ of the gradient,
    and the gap Σ_j r_j²/(2 ridge_j), and |r_j| for an intercept. H is the Hessian without the ridge, ``moved`` Σ_k H_kk s_k²,
    ``shares`` Σ_j H_jj/ridge_j, and ``corner`` H_jj of the intercept, or 0.
    """
    return 0.5 * ROUNDED**2 * moved * shares + ROUNDED * math.sqrt(moved * corner) <= enough


def found_models(x: np.ndarray, d: int, steps: int) -> list[Found]:
    """Return the model of each row of x, with an intercept if rows are longer than d."""
    return [Found(own[:d], float(own[d]) if own.size > d else 0.0, steps) for own in x]


def ridges(problems: Sequence[Problem]) -> np.ndarray:
    """λn v_j of each problem, and 0 for the intercept, as an array of shape (K, m)."""
    first = problems[0]
    found = np.zeros((len(problems), first.d + first.fit_intercept))
    for own, problem in zip(found, problems, strict=True):
        weights = problem.regularizer.form.weights
        own[: problem.d] = problem.lam * problem.n * (1.0 if weights is None else weights)
    return found


def products(rows: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return the margins of each model, of shape (K, n); BLAS is slower with matrices of few columns than with vectors."""
    d = rows.shape[1]
    W, b = x[:, :d], x[:, d:]
    Z = np.array([rows @ w for w in W]) if by_columns(rows, len(W)) else W @ rows.T
    if b.size:
        Z += b
    return Z


def hessian_inverses(
    problem: Problem, rows: np.ndarray, ridge: np.ndarray
) -> tuple[Callable[[np.ndarray], np.ndarray], np.ndarray]:
    """Return the product of each row of an array of shape (K, m) with the inverse of its Hessian; equal ones have one factor.

    The second value is the diagonal of the Hessian without the ridge.
    """
    d, m = problem.d, ridge.shape[1]
    H = np.empty((m, m))
    c = problem.sample_weight
    scaled = rows if c is None else np.sqrt(c)[:, None] * rows
    H[:d, :d] = scaled.T @ scaled
    if m > d:
        H[d, :d] = H[:d, d] = problem.c @ rows
        H[d, d] = problem.c.sum()
    H *= float(problem.loss.second_derivative(np.zeros(1), problem.y[:1])[0])
    if (ridge == ridge[0]).all():
        L = factorised(H.copy(), ridge[0])
        return lambda right: solved(L, right.T).T, H.diagonal()
    each = [factorised(H.copy(), own) for own in ridge]
    return lambda right: np.array([solved(L, own) for L, own in zip(each, right, strict=True)]), H.diagonal()
