"""Minibatch Stochastic Dual Coordinate Ascent."""

from __future__ import annotations

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import Sampling
from dualnewton.solvers.dual import piecewise
from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.block import DiagonalCurvature, solve_block
from dualnewton.theory import eso_from_data
from dualnewton.validation import vector


class SDCA(Solver):
    """Update each example of a random set separately, with steps safe for all of them together (Section 4, algorithm SDCA).

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
            rows = problem.data.rows(slice(None))
            if problem.fit_intercept:
                rows = linear.with_constant(rows, np.sqrt(self.intercept_curvature * problem.lam * problem.n))
            v = eso_from_data(linear.scale_rows(rows, np.sqrt(problem.c)), sampling)
        self.v = vector("v", v, problem.n, low=0.0)

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
