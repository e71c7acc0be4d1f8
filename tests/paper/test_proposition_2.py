"""Proposition 2: σ₁ᵖʳᵒˣ ≥ σ₃ᵖʳᵒˣ, the proximal Method 1 against PCDM; and what Section 3 says about γ = 0."""

import numpy as np
import pytest

from dualnewton import samplings, theory
from tables import name_of, samplings_for, uniform_samplings_for

N = 5
GAMMAS = [0.0, 0.3, np.linspace(0.0, 2.0, N)]


def matrices(seed):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((N, N))
    M = A @ A.T + 0.1 * np.eye(N)
    return M, rng.uniform(0.1, 1.0) * M


def check(M, G, gamma, sampling, v):
    prox1, prox3 = theory.sigma1_prox(M, G, gamma, sampling), theory.sigma3_prox(M, G, gamma, sampling, v)
    assert 0.0 < prox3 <= prox1 * (1.0 + 1e-10)
    assert prox1 <= sampling.p.max() * (1.0 + 1e-12)  # (τ/n) min(1, s)


@pytest.mark.parametrize("sampling", uniform_samplings_for(N), ids=name_of)
@pytest.mark.parametrize("gamma", GAMMAS, ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_newton_blocks_are_no_slower_than_pcdm(sampling, gamma, seed):
    M, G = matrices(seed)
    check(M, G, gamma, sampling, theory.eso(M, sampling))


@pytest.mark.parametrize("sampling", uniform_samplings_for(N), ids=name_of)
def test_without_strong_convexity_of_the_separable_part_it_is_sigma2_cut_at_p(sampling):
    M, G = matrices(0)
    expected = min(sampling.p[0], theory.sigma2(M, G, sampling))
    assert theory.sigma1_prox(M, G, 0.0, sampling) == pytest.approx(expected, rel=1e-10)


def test_a_vector_that_is_no_eso_breaks_it():
    M, G = matrices(0)
    sampling = samplings.Nice(N, 3)
    with pytest.raises(AssertionError):
        check(M, G, 0.3, sampling, 0.01 * theory.eso(M, sampling))


@pytest.mark.parametrize("sampling", [s for s in samplings_for(N) if not s.is_uniform], ids=name_of)
def test_unequal_marginals_are_refused(sampling):
    M, G = matrices(0)
    with pytest.raises(ValueError, match="sampling must be uniform"):
        theory.sigma1_prox(M, G, 0.3, sampling)
    with pytest.raises(ValueError, match="sampling must be uniform"):
        theory.sigma3_prox(M, G, 0.3, sampling, theory.eso(M, sampling))
