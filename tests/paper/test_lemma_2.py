"""Lemma 2: 0 ≺ D(p) (E[M_Ŝ])⁻¹ D(p) ⪯ E[(M_Ŝ)⁻¹]."""

import numpy as np
import pytest

from dualnewton import samplings, theory
from tables import samplings_for


def check(below, above):
    assert np.linalg.eigvalsh(below)[0] > 0.0
    assert np.linalg.eigvalsh(above - below)[0] >= -1e-11 * np.abs(above).max()


def both_sides(M, sampling):
    D = np.diag(sampling.p)
    return D @ np.linalg.inv(theory.expected_submatrix(M, sampling)) @ D, theory.expected_inverse(M, sampling)


def definite(n, seed):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return A @ A.T + 0.05 * np.eye(n)


@pytest.mark.parametrize("n", [3, 6])
@pytest.mark.parametrize("which", range(len(samplings_for(3))))
@pytest.mark.parametrize("seed", range(3))
def test_the_inverse_of_the_mean_is_below_the_mean_of_the_inverse(n, which, seed):
    check(*both_sides(definite(n, seed), samplings_for(n)[which]))


@pytest.mark.parametrize(
    "sampling", [samplings.Serial(4, [0.1, 0.2, 0.3, 0.4]), samplings.Partition(4, 2), samplings.Nice(4, 4)]
)
def test_they_are_equal_where_no_two_sets_overlap(sampling):
    np.testing.assert_allclose(*both_sides(definite(4, 0), sampling), rtol=1e-9, atol=1e-12)


def test_the_inequality_is_strict_and_not_the_other_way_round():
    below, above = both_sides(definite(5, 1), samplings.Nice(5, 2))
    with pytest.raises(AssertionError):
        check(above, below)
