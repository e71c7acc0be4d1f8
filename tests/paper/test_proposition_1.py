"""Proposition 1: E[F(x⁺) − F*] ≤ (1 − σ₃ᵖʳᵒˣ)(F(x) − F*) for PCDM, checked in exact expectation."""

import numpy as np
import pytest

from dualnewton import samplings, theory
from dualnewton.methods import Absolute, Composite, Quadratic, Square, Zero, pcdm
from methods.exact import (
    ElasticNet,
    assert_contracts,
    composites,
    describe,
    expected_value,
    feasible_points,
    minimum,
    separables,
)
from tables import name_of, samplings_for, uniform_samplings_for

N = 4


def sigma_of(F, sampling, v=None):
    v = theory.eso(F.f.M, sampling) if v is None else v
    return theory.sigma3_prox(F.f.M, F.f.G, F.gamma, sampling, v)


@pytest.mark.parametrize("F", composites(N), ids=describe)
def test_contraction(F):
    optimum = minimum(F)[0]
    for sampling in uniform_samplings_for(N):
        sigma = sigma_of(F, sampling)
        assert 0.0 < sigma <= 1.0
        assert_contracts(pcdm, F, optimum, sampling, sigma, feasible_points(F, 3))


@pytest.mark.parametrize("F", composites(N), ids=describe)
def test_contraction_with_a_vector_of_ones_own(F):
    optimum = minimum(F)[0]
    for sampling in (samplings.Nice(N, 2), samplings.Independent(np.full(N, 0.4))):
        v = theory.eso(F.f.M, sampling) * np.linspace(1.0, 2.0, N)

        def pcdm_with_v(F, sampling, x0, iterations, rng, v=v):
            return pcdm(F, sampling, x0, iterations, rng, v=v)

        assert_contracts(pcdm_with_v, F, optimum, sampling, sigma_of(F, sampling, v), feasible_points(F, 3))


@pytest.mark.parametrize("psi", separables(N), ids=name_of)
def test_the_rate_is_attained_where_coordinates_do_not_interact(psi):
    """For M diagonal and v = diag M, E[F(x⁺) − F*] = (1 − τ/n)(F(x) − F*) at every x."""
    F = Composite(Quadratic(np.diag([0.5, 1.0, 2.0, 4.0]), [1.0, -2.0, 0.5, 3.0]), psi)
    optimum, sampling = minimum(F)[0], samplings.Nice(N, 3)
    sigma = sigma_of(F, sampling)
    assert sigma == pytest.approx(3 / 4, rel=1e-12)
    for x in feasible_points(F, 2):
        left = expected_value(pcdm, F, sampling, x) - optimum
        assert left == pytest.approx((1.0 - sigma) * (F.value(x) - optimum), rel=1e-9)
    with pytest.raises(AssertionError):  # so the check would notice a rate that is five percent too good
        assert_contracts(pcdm, F, optimum, sampling, 1.05 * sigma, feasible_points(F, 2))


@pytest.mark.parametrize("psi", [Zero(), Absolute(0.7), Square(0.8), ElasticNet()], ids=name_of)
def test_a_vector_that_is_no_eso_breaks_the_contraction(psi):
    """PCDM that believes in single coordinates takes v = diag M; with all coordinates at once this is too bold."""
    F = Composite(Quadratic(0.1 * np.eye(N) + 0.9), psi)
    sampling, believed = samplings.Nice(N, N), samplings.Serial(N)
    sigma = sigma_of(F, sampling, np.diag(F.f.M))
    with pytest.raises(AssertionError):
        assert_contracts(pcdm, F, minimum(F)[0], sampling, sigma, feasible_points(F, 3), claimed=believed)


def test_samplings_that_are_not_uniform_are_refused():
    F = composites(N)[0]
    refused = [sampling for sampling in samplings_for(N) if not sampling.is_uniform]
    assert len(refused) >= 3
    for sampling in refused:
        with pytest.raises(ValueError, match=r"sampling must be uniform .* Section 3"):
            pcdm(F, sampling, np.zeros(N), 1, 0)
