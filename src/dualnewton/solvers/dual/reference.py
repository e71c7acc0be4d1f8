"""Rounds of SDNA, of minibatch SDCA and of the iterative Hessian sketch in NumPy, as the paper prints them: the specification."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling
from dualnewton.solvers.dual import piecewise
from dualnewton.solvers.dual.base import Solver, intercept_curvature
from dualnewton.solvers.dual.block import (
    MAX_NEWTON_STEPS,
    ROUNDING,
    TOLERANCE,
    DiagonalCurvature,
    curvature_of,
    halve_until_descent,
    solve_block,
)
from dualnewton.theory import eso_from_data
from dualnewton.validation import vector


class SDNA(Solver):
    """Maximise the dual over a random set of examples, with the full Gram matrix of the set (Section 4, algorithm SDNA).

        h = argmin ⟨A_S w, h⟩ + ½ hᵀ X_S h + Σ_{i∈S} φ*_i(−α_i − h_i),   X = A Aᵀ/(λn);   α_S += h;   ᾱ += (1/λn) Σ h_i a_i

    For g = ½‖w‖² this is the exact maximum of D over the set; for any other g it maximises a lower bound of D,
    which is valid because g* is 1-smooth. With one example per set it is SDCA, with all examples it is Newton's method.
    """

    takes_pieces = True

    def round(self, S: np.ndarray) -> None:
        problem = self.problem
        rows = problem.data.rows(S)
        u = rows @ self.w + (problem.o[S] + self.intercept)
        lam_n, alpha, c = problem.lam * problem.n, self.alpha[S], problem.c[S]
        if self.pieces is not None:
            gram = piecewise.gram_of(rows, lam_n, self.intercept_curvature)
            beta = piecewise.solve_block(self.pieces[S], u, gram, alpha, c, self.deadline)
        else:
            curvature = curvature_of(rows, lam_n, self.intercept_curvature)
            beta = solve_block(problem.loss, problem.y[S], u, curvature, alpha, c, self.deadline)
        self.move(S, rows, beta)


def eso_vectors(problems: Sequence[Problem], sampling: Sampling, squares: Sequence[float]) -> list[np.ndarray]:
    """Return an ESO vector for the rows √c_i (a_i, √ρ) of each problem; problems with equal rows share it.

    Parameters
    ----------
    problems, sampling : sequence of Problem, Sampling
        Problems that share X, and Ŝ.
    squares : sequence of float
        ρ of each problem, the square of the constant feature of the intercept; zero without an intercept.
    """
    found: list[np.ndarray] = []
    for problem, rho in zip(problems, squares, strict=True):
        before = zip(problems, squares, found, strict=False)
        v = next((v for other, square, v in before if square == rho and np.array_equal(other.c, problem.c)), None)
        if v is None:
            rows = problem.data.rows(slice(None))
            rows = linear.with_constant(rows, np.sqrt(rho)) if rho else rows
            v = eso_from_data(linear.scale_rows(rows, np.sqrt(problem.c)), sampling)
        found.append(v)
    return found


class SDCA(Solver):
    """Update each example of a random set separately, with steps that are jointly safe (Section 4, algorithm SDCA).

        h_i = argmin (a_iᵀw) h + (v_i/λn) h²/2 + φ*_i(−α_i − h)   for i ∈ S,        E[(A Aᵀ)_Ŝ] ⪯ D(p)D(v)

    The paper prints v_i/2 for the quadratic term; only with v_i/(λn) is this PCDM on the dual and equal to SDNA for |S| = 1.

    Parameters
    ----------
    v : array of shape (n,), optional
        An ESO vector for the rows √c_i a_i (with the constant feature of the intercept, if there is one); computed from
        the data by default.
    """

    takes_pieces = True

    def __init__(self, problem: Problem, sampling: Sampling, v: np.ndarray | None = None) -> None:
        super().__init__(problem, sampling)
        if v is None:
            (v,) = eso_vectors([problem], sampling, [_constant_square(problem)])
        self.v = vector("v", v, problem.n, low=0.0)

    @classmethod
    def for_each(cls, problems: Sequence[Problem], sampling: Sampling) -> list[Self]:
        vectors = eso_vectors(problems, sampling, [_constant_square(problem) for problem in problems])
        return [cls(problem, sampling, v) for problem, v in zip(problems, vectors, strict=True)]

    def round(self, S: np.ndarray) -> None:
        problem = self.problem
        rows = problem.data.rows(S)
        u = rows @ self.w + (problem.o[S] + self.intercept)
        # v is defined for the variables √c_i α_i, in which every example has weight one.
        diagonal, alpha, ones = self.v[S] / (problem.lam * problem.n), self.alpha[S], np.ones(S.size)
        if self.pieces is not None:
            beta = piecewise.solve_one(self.pieces[S], u, diagonal, alpha)
        else:
            beta = solve_block(problem.loss, problem.y[S], u, DiagonalCurvature(diagonal), alpha, ones, self.deadline)
        self.move(S, rows, beta)


def _constant_square(problem: Problem) -> float:
    """ρ; zero without an intercept."""
    return intercept_curvature(problem) * problem.lam * problem.n


class IterativeHessianSketch(Solver):
    """Take the same steps as SDNA, computed in the d primal variables (Theorem 10).

        w⁺ = argmin (1/n) Σ_{i∈S} c_i φ_i(a_iᵀw + o_i) + (λ/2)‖w − w̃‖²,        w̃ = w − (1/λn) Σ_{i∈S} c_i α_i a_i

    For the squared loss this is the sketched least-squares problem of Theorem 10, one d×d solve; for any other loss it is the
    dual of the block subproblem, solved by Newton's method. It is cheaper than the dual form if |S| > d.
    g must be ½‖w‖²: the theorem requires that ∇g* is the identity.
    """

    def __init__(self, problem: Problem, sampling: Sampling) -> None:
        if not problem.regularizer.form.is_plain:
            raise DualnewtonError(
                f'"ihs" needs regularizer L2(), got {problem.regularizer!r}: Theorem 10 requires g = ½‖w‖²; use "sdna"'
            )
        super().__init__(problem, sampling)

    def round(self, S: np.ndarray) -> None:
        problem, c = self.problem, self.problem.c[S]
        lam_n = problem.lam * problem.n
        # The intercept is one more coefficient, whose feature is the constant √ρ.
        feature = np.sqrt(self.intercept_curvature * lam_n)
        rows = linear.to_dense(problem.data.rows(S))
        model = self.w
        if problem.fit_intercept:
            rows = linear.with_constant(rows, feature)
            model = np.append(model, self.intercept / feature)
        centre = model - rows.T @ (c * self.alpha[S]) / lam_n

        model = _minimise(problem, rows, S, centre, model)

        # At the minimum w⁺ − w̃ = −(1/λn) Σ c_i φ′(z_i) a_i: the new dual variables are −φ′ at the new margins.
        self.alpha[S] = -problem.loss.derivative(rows @ model + problem.o[S], problem.y[S])
        self.alpha_bar = model[: problem.d]
        self.intercept = float(model[-1] * feature) if problem.fit_intercept else 0.0


def _minimise(problem: Problem, rows: np.ndarray, S: np.ndarray, centre: np.ndarray, model: np.ndarray) -> np.ndarray:
    """Minimise Σ c_i φ_i(rows m) + (λn/2)‖m − centre‖² by Newton's method with step halving."""
    from scipy.linalg import cho_factor, cho_solve

    loss, y, c, o = problem.loss, problem.y[S], problem.c[S], problem.o[S]
    lam_n = problem.lam * problem.n

    def value(m: np.ndarray) -> float:
        away = m - centre
        return float(c @ loss.value(rows @ m + o, y) + 0.5 * lam_n * away @ away)

    now = value(model)
    for _ in range(MAX_NEWTON_STEPS):
        z = rows @ model + o
        push = rows.T @ (c * loss.derivative(z, y))
        pull = lam_n * (model - centre)
        if np.abs(push + pull).max() <= TOLERANCE * max(np.abs(push).max(), np.abs(pull).max()):
            break
        hessian = (rows.T * (c * loss.second_derivative(z, y))) @ rows
        hessian[np.diag_indices_from(hessian)] += lam_n
        step = cho_solve(cho_factor(hessian), -(push + pull))
        t, found = halve_until_descent(now, ROUNDING * abs(now), lambda t: (value(model + t * step),))  # noqa: B023
        if found is None:
            break
        (now,) = found
        model = model + t * step
    return model
