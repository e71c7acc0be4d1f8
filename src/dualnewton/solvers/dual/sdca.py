"""Minibatch Stochastic Dual Coordinate Ascent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling
from dualnewton.solvers.dual import piecewise
from dualnewton.solvers.dual.base import Solver, intercept_curvature
from dualnewton.solvers.dual.block import DiagonalCurvature, solve_block
from dualnewton.theory import eso_from_data
from dualnewton.validation import vector


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
