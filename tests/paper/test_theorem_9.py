"""Theorem 9: θ(Ŝ) ≤ σ₁ᵖʳᵒˣ ≤ σ₁ for uniform samplings, so SDNA is never slower than SDCA."""

import pytest

from dualnewton import losses, regularizers, samplings, theory
from tables import LOSSES, make_problem, name_of, uniform_samplings_for

N = 6
LAMBDAS = [1e-3, 1 / N, 10.0]


def check(theta, sigma1_prox, sampling):
    assert 0.0 < theta <= sigma1_prox * (1.0 + 1e-12)
    # The proof prints 1 ≤ (n/τ)θ; the opposite is what it needs, and what holds.
    assert sigma1_prox <= sampling.p.max() * (1.0 + 1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("sampling", uniform_samplings_for(N), ids=name_of)
@pytest.mark.parametrize("lam", LAMBDAS)
def test_sdna_is_no_slower_than_sdca(loss, sampling, lam):
    problem = make_problem(loss, n=N, lam=lam, weights=True)
    found = theory.rates(problem, sampling)
    assert found.theta == theory.theta(problem, sampling)
    check(found.theta, found.sigma1_prox, sampling)


@pytest.mark.parametrize("sampling", uniform_samplings_for(N), ids=name_of)
@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("weights", [False, True])
def test_the_quadratic_bound_is_the_sharpest(sampling, lam, weights):
    problem = make_problem(losses.Squared(), n=N, lam=lam, weights=weights)
    found = theory.rates(problem, sampling)
    assert found.sigma1_prox <= found.sigma1 * (1.0 + 1e-10)
    assert found.sigma1 <= 1.0


def test_the_quadratic_bound_can_be_far_sharper():
    found = theory.rates(make_problem(losses.Squared(), n=N, lam=1e-3), samplings.Nice(N, 4))
    assert found.sigma1 > 3.0 * found.sigma1_prox


def test_a_vector_that_is_no_eso_breaks_it():
    problem = make_problem(losses.Logistic(), n=N, lam=1e-3, regularizer=regularizers.ElasticNet(0.1))
    sampling = samplings.Nice(N, 3)
    v = 0.01 * theory.eso_from_data(theory.dual_rows(problem), sampling)
    with pytest.raises(AssertionError):
        check(theory.theta(problem, sampling, v), theory.rates(problem, sampling).sigma1_prox, sampling)
