"""Least squares of one or several outputs with more features than examples, by the products of the rows.

    n P_k(w, b) = ½ Σ c_i (a_iᵀw + b − t_ik)² + ½ λn Σ_j v_j w_j²

With S = D(s) and s_i = √c_i the minimum is w = V⁻¹Xᵀ S u, where u solves the system of K = S X V⁻¹ Xᵀ S,

    (K + λn I) u + b s = S t,        sᵀu = 0 with an intercept.

K is summed in float32 where the rows are dense and not very few. The rounding errors of K that u multiplies leave a residual ρ of
the system, and the gap n(P − D) = ρᵀKρ/(2λn). Where an estimate of that gap is too large, ρ is computed from X, and u is
corrected by the same factor (iterative refinement), which leaves the errors of K times the correction; where corrections are too
slow, K is summed in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits

ERRORS: dict[type, float] = {np.float32: 1e-7, np.float64: 5e-15}
"""Error of an entry of K relative to (K_ii K_jj)^½ in the estimate of the gap: twice the largest that was measured."""

SLOW = 0.1
"""Largest fraction of the gap that a correction may leave."""


def solve(problems: Sequence[Problem], block: Block, limits: Limits) -> list[Found] | None:
    """Return the solution of every output; None if rounding errors are too large for it in float64, too.

    The problems differ in targets and offsets alone.
    """
    first = problems[0]
    many = first.n * first.d >= block.crossovers.narrowed_entries and not first.data.profile.sparse
    narrow = many and (first.regularizer, np.float64) not in block.cache
    found = _corrected(problems, block, limits, np.float32) if narrow else None
    return found or _corrected(problems, block, limits, np.float64)


def _corrected(problems: Sequence[Problem], block: Block, limits: Limits, kind: type) -> list[Found] | None:
    """Correct the solution until the gap of every output is small enough; None if corrections are slow."""
    first, data = problems[0], problems[0].data
    ridge, penalty = first.lam * first.n, first.regularizer.form.weights
    curved = float(first.loss.second_derivative(np.zeros(1), first.y[:1])[0])
    s = np.sqrt(curved * first.c)
    K = _weighted(products_of_rows(first, block, kind), first, s)
    if (system := _System.of(K, ridge, s, free=first.fit_intercept)) is None:
        return None
    T = np.array([first.loss.derivative(problem.o, problem.y) for problem in problems]) * (-s / curved)

    def lifted(u: np.ndarray) -> np.ndarray:
        w = _for_each(data.transposed_times, u * s)
        return w if penalty is None else w / penalty

    (u, b), before, steps = system.solved(T), np.inf, 1
    W, gaps = lifted(u), expected_gaps(u, K.diagonal(), ridge, ERRORS[kind])
    wanted = WELL_BELOW * limits.tol * 0.5 * ridge * _inner(u, T)
    while not (gaps <= wanted).all():
        rest = T - b[:, None] * s - s * _for_each(data.times, W) - ridge * u
        if first.fit_intercept:  # the best intercept for these coefficients
            shift = (rest @ s) / (s @ s)
            b, rest = b + shift, rest - shift[:, None] * s
        gaps = np.maximum(_inner(rest @ K, rest), 0.0) / (2.0 * ridge)
        if (gaps <= wanted).all() or steps >= limits.most or limits.is_late():
            break
        if not gaps.max() <= SLOW * before:
            return None
        du, db = system.solved(rest)
        before, gaps = float(gaps.max()), expected_gaps(du, K.diagonal(), ridge, ERRORS[kind])
        u, b, W, steps = u + du, b + db, W + lifted(du), steps + 1
    return [Found(w, float(own), steps) for w, own in zip(W, b, strict=True)]


def _for_each(product: Callable[[np.ndarray], np.ndarray], vectors: np.ndarray) -> np.ndarray:
    """Return the product of a matrix with each row of an array: that of one vector, which takes fewer calls, or of all."""
    return product(vectors[0])[None] if len(vectors) == 1 else product(vectors.T).T


def expected_gaps(u: np.ndarray, diagonal: np.ndarray, ridge: float, error: float) -> np.ndarray:
    """Return about n(P − D) for each row of u, if the entries of K have independent errors: ρ = −(errors of K)u."""
    found: np.ndarray = (0.5 * error**2 / ridge) * float(diagonal @ diagonal) * (np.square(u) @ diagonal)
    return found


class _System:
    """K + λn I with its border s, if the intercept is free, by the Cholesky factor of the first."""

    def __init__(self, factor: np.ndarray, s: np.ndarray, *, free: bool) -> None:
        self.factor, self.s, self.along = factor, s, _solved(factor, s) if free else None

    @classmethod
    def of(cls, K: np.ndarray, ridge: float, s: np.ndarray, *, free: bool) -> _System | None:
        """Factorise the matrix; None if it is not positive definite in float64."""
        from scipy.linalg.lapack import dpotrf

        M = K.copy()
        M.reshape(-1)[:: len(K) + 1] += ridge
        L, failed = dpotrf(M.T, overwrite_a=1)
        return None if failed or not np.isfinite(L[-1, -1]) else cls(L, s, free=free)

    def solved(self, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return u and b of each row of right sides."""
        u = _solved(self.factor, right.T).T
        if self.along is None:
            return u, np.zeros(len(u))
        b = (u @ self.s) / (self.along @ self.s)
        return u - b[:, None] * self.along, b


def _solved(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    from scipy.linalg.lapack import dpotrs

    found: np.ndarray = dpotrs(factor, right)[0]
    return found


def _inner(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.einsum("ki,ki->k", u, v)
    return found


def products_of_rows(problem: Problem, block: Block, kind: type) -> np.ndarray:
    """Return K without weights, summed in this type, once for all problems of a fit."""
    penalty, key = problem.regularizer.form.weights, (problem.regularizer, kind)
    if key not in block.cache:
        scale = None if penalty is None else 1.0 / penalty
        narrow = kind is np.float32
        block.cache[key] = linear.narrow_gram(block.rows, scale) if narrow else problem.data.row_gram(scale=scale)
    K: np.ndarray = block.cache[key]
    return K


def _weighted(K: np.ndarray, problem: Problem, s: np.ndarray) -> np.ndarray:
    """Return D(s) K D(s)."""
    return K if problem.sample_weight is None and s[0] == 1.0 else K * s * s[:, None]
