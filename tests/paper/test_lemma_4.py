"""Lemma 4: for quadratic losses and g = ½‖w‖² SDNA contracts the dual error by 1 − σ₁, the sharper rate."""

import numpy as np
import pytest

from dualnewton import losses, theory
from dualnewton.solvers import SDNA
from erm import dual_points, expected_dual_after_a_round, optimum
from tables import make_problem, samplings_for

N = 5


def dual_hessian(problem):
    rows = np.sqrt(problem.c)[:, None] * problem.X
    return rows @ rows.T / (problem.lam * problem.n) + problem.loss.gamma * np.eye(problem.n)


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("lam", [0.02, 0.5])
def test_lemma_4_dual_contraction_of_sdna_in_the_quadratic_case(weights, lam):
    problem = make_problem(losses.Squared(), n=N, lam=lam, weights=weights)
    best, hessian, known = optimum(problem), dual_hessian(problem), {}
    for sampling in samplings_for(N):
        sigma1 = float(theory.sigma1(hessian, hessian, sampling))
        for alpha in dual_points(problem):
            after = best - expected_dual_after_a_round(SDNA, problem, sampling, alpha, known)
            assert after <= (1.0 - sigma1) * (best - problem.dual(alpha)) + 1e-10


def test_lemma_4_is_sharp_so_a_larger_rate_would_be_noticed():
    """In the worst direction the contraction is exactly 1 − σ₁."""
    problem = make_problem(losses.Squared(), n=N, lam=0.1)
    best, hessian = optimum(problem), dual_hessian(problem)
    optimal = np.linalg.solve(hessian, problem.y)
    for sampling in samplings_for(N):
        mean = np.asarray(theory.expected_inverse(hessian, sampling))
        values, vectors = np.linalg.eigh(_root(hessian) @ mean @ _root(hessian))
        worst = np.linalg.solve(_root(hessian), vectors[:, 0])
        alpha = optimal + worst
        ratio = (best - expected_dual_after_a_round(SDNA, problem, sampling, alpha)) / (best - problem.dual(alpha))
        assert ratio == pytest.approx(1.0 - values[0], abs=1e-7)
        if values[0] < 0.9:
            assert ratio > 1.0 - 1.05 * values[0]


def _root(matrix):
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T
