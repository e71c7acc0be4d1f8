"""Stochastic Dual Newton Ascent."""

from __future__ import annotations

import numpy as np

from dualnewton.solvers.dual import piecewise
from dualnewton.solvers.dual.base import Solver
from dualnewton.solvers.dual.block import curvature_of, solve_block


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
