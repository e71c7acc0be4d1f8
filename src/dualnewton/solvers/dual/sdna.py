"""Stochastic Dual Newton Ascent."""

from __future__ import annotations

import numpy as np

from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.block import curvature_of, solve_block


class SDNA(Solver):
    """Maximise the dual over a random set of examples, with the full Gram matrix of the set (Section 4, algorithm SDNA).

        h = argmin ⟨A_S w, h⟩ + ½ hᵀ X_S h + Σ_{i∈S} φ*_i(−α_i − h_i),   X = A Aᵀ/(λn);   α_S += h;   ᾱ += (1/λn) Σ h_i a_i

    For g = ½‖w‖² this is the exact maximum of D over the set; for any other g it maximises a lower bound of D,
    which is valid because g* is 1-smooth. With one example per set it is SDCA, with all examples it is Newton's method.
    """

    def round(self, S: np.ndarray) -> None:
        problem = self.problem
        rows = problem.data.rows(S)
        u = rows @ self.w + (problem.o[S] + self.intercept)
        curvature = curvature_of(rows, problem.lam * problem.n, self.intercept_curvature)
        beta = solve_block(problem.loss, problem.y[S], u, curvature, self.alpha[S], problem.c[S])
        self.move(S, rows, beta)
