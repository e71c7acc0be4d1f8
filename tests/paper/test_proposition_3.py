"""Proposition 3 (appendix): σ₂ as a function of σ₃ for τ-nice sampling, G = M and v = β diag M."""

import numpy as np
import pytest

from dualnewton import samplings, theory

CASES = [(n, tau) for n in (2, 3, 6) for tau in range(1, n + 1)]


def definite(n, seed):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A @ A.T + 0.05 * np.eye(n)


@pytest.mark.parametrize(("n", "tau"), [(1, 1), *CASES])
@pytest.mark.parametrize("seed", range(3))
def test_sigma2_follows_from_sigma3(n, tau, seed):
    M, sampling = definite(n, seed), samplings.Nice(n, tau)
    v = theory.eso(M, sampling)
    beta = v[0] / M[0, 0]
    np.testing.assert_allclose(v, beta * M.diagonal(), rtol=1e-12)
    assert 1.0 - 1e-12 <= beta <= tau * (1.0 + 1e-12)
    s3 = theory.sigma3(M, M, sampling, v)
    assert theory.sigma2_from_sigma3(s3, beta=beta, n=n, tau=tau) == pytest.approx(
        theory.sigma2(M, M, sampling), rel=1e-9
    )


def test_it_holds_for_the_conservative_vector_too():
    M, sampling = definite(6, 0), samplings.Nice(6, 3)
    s3 = theory.sigma3(M, M, sampling, 3.0 * M.diagonal())
    assert theory.sigma2_from_sigma3(s3, beta=3.0, n=6, tau=3) == pytest.approx(theory.sigma2(M, M, sampling), rel=1e-9)


def test_another_tau_would_be_noticed():
    M, sampling = definite(6, 0), samplings.Nice(6, 3)
    s3 = theory.sigma3(M, M, sampling, 3.0 * M.diagonal())
    assert theory.sigma2_from_sigma3(s3, beta=3.0, n=6, tau=4) != pytest.approx(theory.sigma2(M, M, sampling), rel=1e-3)
