"""Theorem 10: on ridge regression SDNA's primal iterates are those of an Iterative Hessian Sketch."""

import numpy as np
import pytest

from dualnewton import losses
from dualnewton.solvers import SDNA, IterativeHessianSketch
from tables import make_problem, samplings_for

N, D = 6, 4


def sketched_step(problem, w, alpha, S, *, forget_alpha=False):
    """argmin (1/2n)‖A_S w' − b_S‖² + (λ/2)‖w'‖² + ⟨w', (1/n) A_Sᵀα_S − λw⟩, as the theorem states it."""
    rows = problem.X[S]
    linear = rows.T @ (0.0 if forget_alpha else alpha[S]) / problem.n if not forget_alpha else 0.0
    hessian = rows.T @ rows / problem.n + problem.lam * np.eye(problem.d)
    return np.linalg.solve(hessian, rows.T @ problem.y[S] / problem.n + problem.lam * w - linear)


@pytest.mark.parametrize("solver_class", [SDNA, IterativeHessianSketch], ids=lambda c: c.__name__)
@pytest.mark.parametrize("lam", [1e-3, 0.1, 10.0])
def test_theorem_10_primal_iterates_are_those_of_the_sketch(solver_class, lam):
    problem = make_problem(losses.Squared(), n=N, d=D, lam=lam)
    for sampling in samplings_for(N):
        solver = solver_class(problem, sampling)
        for S in sampling.draw(np.random.default_rng(0), 20):
            expected = sketched_step(problem, solver.w, solver.alpha, S)
            solver.round(S)
            np.testing.assert_allclose(solver.w, expected, rtol=1e-9, atol=1e-10)


def test_theorem_10_needs_the_dual_variables():
    problem = make_problem(losses.Squared(), n=N, d=D, lam=0.1)
    solver = SDNA(problem, samplings_for(N)[2])
    differences = []
    for S in solver.sampling.draw(np.random.default_rng(0), 20):
        wrong = sketched_step(problem, solver.w, solver.alpha, S, forget_alpha=True)
        solver.round(S)
        differences.append(np.abs(solver.w - wrong).max())
    assert max(differences) > 1e-2
