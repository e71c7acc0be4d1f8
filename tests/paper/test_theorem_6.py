"""Theorem 6: E[P(w^k) − D(α^k)] ≤ (1 − σ₁ᵖʳᵒˣ)^k/θ · (D* − D(α⁰)) for SDNA with a uniform sampling."""

import numpy as np
import pytest

from dualnewton import losses, samplings, theory
from dualnewton.solvers import SDCA, SDNA
from erm import gaps_along, optimum
from tables import make_problem, name_of

N, ROUNDS, SEEDS = 12, 60, 20
LAWS = [samplings.Serial(N), samplings.Nice(N, 3), samplings.Partition(N, 4), samplings.Nice(N, 9)]


def mean_gaps(solver_class, problem, sampling, **kwargs):
    return np.mean(
        [gaps_along(solver_class, problem, sampling, ROUNDS, seed, **kwargs) for seed in range(SEEDS)], axis=0
    )


def bound(problem, sampling, rate):
    start = optimum(problem) - problem.dual(np.zeros(problem.n))
    return (1.0 - rate) ** np.arange(ROUNDS + 1) / theory.theta(problem, sampling) * start


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic(), losses.SquaredHinge()], ids=name_of)
@pytest.mark.parametrize("sampling", LAWS, ids=repr)
def test_theorem_6_duality_gap_of_sdna(loss, sampling):
    problem = make_problem(loss, n=N, d=4, lam=0.1)
    assert (
        mean_gaps(SDNA, problem, sampling) <= bound(problem, sampling, theory.rates(problem, sampling).sigma1_prox)
    ).all()


def test_theorem_6_would_notice_a_method_that_is_too_slow():
    problem = make_problem(losses.Squared(), n=N, d=4, lam=0.1)
    sampling = samplings.Nice(N, 9)
    rate = theory.rates(problem, sampling).sigma1_prox
    slow = mean_gaps(SDCA, problem, sampling, v=np.full(N, 300.0))
    assert (slow > bound(problem, sampling, rate)).any()
