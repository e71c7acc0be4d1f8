"""Lemma 1: E[M_Ŝ] ≻ 0 for M ≻ 0 and a proper sampling."""

import numpy as np
import pytest

from dualnewton import theory
from tables import name_of, samplings_for


def check(M, expected):
    """The smallest eigenvalue is at least λmin(M) min p: Σ_S Prob(S) xᵀM_S x ≥ λmin(M) Σ_S Prob(S) ‖x_S‖²."""
    p = expected.diagonal() / M.diagonal()
    assert p.min() > 0.0
    assert np.linalg.eigvalsh(expected)[0] >= np.linalg.eigvalsh(M)[0] * p.min() * (1.0 - 1e-9) > 0.0


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("which", range(len(samplings_for(3))))
def test_the_expected_submatrix_is_positive_definite(n, which):
    sampling = samplings_for(n)[which]
    A = np.random.default_rng(n).standard_normal((n, n))
    M = A @ A.T + 1e-3 * np.eye(n)
    check(M, theory.expected_submatrix(M, sampling))


def test_an_improper_sampling_would_be_noticed():
    M = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.0]])
    P = np.ones((3, 3))
    P[2] = P[:, 2] = 0.0  # the third example is never drawn
    with pytest.raises(AssertionError):
        check(M, P * M)


@pytest.mark.parametrize("sampling", samplings_for(5), ids=name_of)
def test_the_expected_submatrix_is_the_mean_over_the_law(sampling):
    M = np.cov(np.random.default_rng(0).standard_normal((5, 20)))
    mean = np.zeros((5, 5))
    for members, probability in sampling.support():
        mean[np.ix_(members, members)] += probability * M[np.ix_(members, members)]
    np.testing.assert_allclose(theory.expected_submatrix(M, sampling), mean, atol=1e-14)
