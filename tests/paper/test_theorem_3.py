"""Theorem 3: E[f(x⁺) − f*] ≤ (1 − σ_m)(f(x) − f*) for Methods 1, 2, 3, checked in exact expectation."""

import numpy as np
import pytest

from dualnewton import samplings, theory
from dualnewton.methods import Quadratic, method1, method2, nsync
from methods.exact import EXAMPLE, assert_contracts, expected_value, quadratic, softplus_sum
from tables import name_of, samplings_for

N = 4
QUADRATICS = [quadratic(N), Quadratic(EXAMPLE)]
SMOOTH = softplus_sum(N)

RATES = {
    method1: lambda f, sampling: theory.sigma1(f.M, f.G, sampling),
    method2: lambda f, sampling: theory.sigma2(f.M, f.G, sampling),
    nsync: lambda f, sampling: theory.sigma3(f.M, f.G, sampling, theory.eso(f.M, sampling)),
}
METHODS = pytest.mark.parametrize("method", RATES, ids=lambda method: method.__name__)
EVERY_SAMPLING = pytest.mark.parametrize("k", range(len(samplings_for(N))), ids=[name_of(s) for s in samplings_for(N)])


def points(n):
    return np.random.default_rng(3).standard_normal((4, n)) * np.geomspace(0.1, 10.0, 4)[:, None]


def minimum_of_softplus_sum():
    x = np.zeros(N)
    for _ in range(2000):
        x = x - np.linalg.solve(SMOOTH.M, SMOOTH.gradient(x))
    assert np.abs(SMOOTH.gradient(x)).max() < 1e-13
    return SMOOTH.value(x)


SMOOTH_MINIMUM = minimum_of_softplus_sum()


@EVERY_SAMPLING
@METHODS
@pytest.mark.parametrize("f", QUADRATICS, ids=["random", "Example 2.3"])
def test_contraction_on_quadratics(f, method, k):
    n = len(f.M)
    sampling = samplings_for(n)[k]
    assert_contracts(method, f, f.value(f.minimiser), sampling, RATES[method](f, sampling), points(n))


@EVERY_SAMPLING
@METHODS
def test_contraction_on_a_function_that_is_not_quadratic(method, k):
    sampling = samplings_for(N)[k]
    sigma = RATES[method](SMOOTH, sampling)
    assert 0.0 < sigma < 1.0
    assert_contracts(method, SMOOTH, SMOOTH_MINIMUM, sampling, sigma, points(N))


def worst_point(f, rate_matrix):
    """x with x − x* = M^−½ y, y the eigenvector of the smallest eigenvalue of M^½ E M^½: there Theorem 3 is an equality."""
    values, vectors = np.linalg.eigh(f.M)
    root, inverse_root = (vectors * values**power @ vectors.T for power in (0.5, -0.5))
    return f.minimiser + inverse_root @ np.linalg.eigh(root @ rate_matrix @ root)[1][:, 0]


@EVERY_SAMPLING
@pytest.mark.parametrize("method", [method1, method2], ids=lambda method: method.__name__)
def test_the_rates_of_methods_1_and_2_are_attained_by_quadratics(method, k):
    f, sampling = QUADRATICS[0], samplings_for(N)[k]
    D = np.diag(sampling.p)
    matrices = {
        method1: np.asarray(theory.expected_inverse(f.M, sampling)),
        method2: D @ np.linalg.inv(theory.expected_submatrix(f.M, sampling)) @ D,
    }
    x = worst_point(f, matrices[method])
    sigma, optimum = RATES[method](f, sampling), f.value(f.minimiser)
    ratio = (expected_value(method, f, sampling, x) - optimum) / (f.value(x) - optimum)
    assert ratio == pytest.approx(1.0 - sigma, abs=1e-11)
    if sigma < 1.0 - 1e-9:
        with pytest.raises(AssertionError):  # so the check would notice a rate that is five percent too good
            assert_contracts(method, f, optimum, sampling, 1.05 * sigma, [x])


def test_the_rate_of_method_3_is_attained_by_single_coordinates():
    f, sampling = QUADRATICS[0], samplings.Serial(N)
    x = worst_point(f, np.diag(sampling.p / theory.eso(f.M, sampling)))
    optimum = f.value(f.minimiser)
    ratio = (expected_value(nsync, f, sampling, x) - optimum) / (f.value(x) - optimum)
    assert ratio == pytest.approx(1.0 - RATES[nsync](f, sampling), abs=1e-11)


def test_a_vector_that_is_no_eso_breaks_the_contraction():
    """Method 3 that believes in single coordinates takes v = diag M; with the sets of a 3-nice sampling it even ascends."""
    f, sampling, optimum = QUADRATICS[1], samplings.Nice(3, 3), 0.0
    believed = samplings.Serial(3)
    sigma = theory.sigma3(f.M, f.G, sampling, np.diag(f.M))
    x = np.ones(3)
    with pytest.raises(AssertionError):
        assert_contracts(nsync, f, optimum, sampling, sigma, [x], claimed=believed)
    assert expected_value(nsync, f, sampling, x, claimed=believed) > f.value(x)
