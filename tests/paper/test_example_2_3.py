"""Example 2.3, to the digits printed there."""

import numpy as np
import pytest

from dualnewton import samplings, theory

M = np.array([[1.0, 0.99, 0.9999], [0.99, 1.0, 0.99], [0.9999, 0.99, 1.0]])
SAMPLING = samplings.Nice(3, 2)
V = np.full(3, 2.0)


def test_the_expected_inverse():
    printed = [[1683.50, -16.58, -1666.58], [-16.58, 33.50, -16.58], [-1666.58, -16.58, 1683.50]]
    np.testing.assert_allclose(theory.expected_inverse(M, SAMPLING), printed, atol=0.005)


def test_the_matrix_of_method_2():
    printed = [[0.9967, -0.3268, -0.3365], [-0.3268, 0.9902, -0.3268], [-0.3365, -0.3268, 0.9967]]
    D = np.diag(SAMPLING.p)
    np.testing.assert_allclose(D @ np.linalg.inv(theory.expected_submatrix(M, SAMPLING)) @ D, printed, atol=5e-5)


def test_two_two_two_is_an_eso_and_only_just():
    assert theory.is_eso(M, SAMPLING, V)
    assert not theory.is_eso(M, SAMPLING, 0.99 * V)
    assert (theory.eso(M, SAMPLING) <= V).all()


def test_the_three_rates():
    # The paper prints the third as a second σ₂.
    assert theory.sigma1(M, M, SAMPLING) == pytest.approx(0.33501, abs=5e-6)
    assert theory.sigma2(M, M, SAMPLING) == pytest.approx(1.3332e-4, abs=5e-9)
    assert theory.sigma3(M, M, SAMPLING, V) == pytest.approx(3.3333e-5, abs=5e-10)


def test_the_digits_tell_a_wrong_sampling():
    assert theory.sigma1(M, M, samplings.Serial(3)) != pytest.approx(0.33501, abs=5e-6)
    assert theory.sigma2(M, M, samplings.Nice(3, 3)) != pytest.approx(1.3332e-4, abs=5e-9)
