"""Theorem 7: in the quadratic case the gap of SDNA falls with the sharper rate σ₁."""

import numpy as np
import pytest

from dualnewton import losses, samplings, theory
from dualnewton.solvers import SDCA, SDNA
from tables import make_problem
from test_theorem_6 import LAWS, bound, mean_gaps


@pytest.mark.parametrize("sampling", LAWS, ids=repr)
def test_theorem_7_duality_gap_of_sdna_in_the_quadratic_case(sampling):
    problem = make_problem(losses.Squared(), n=12, d=4, lam=0.1)
    rates = theory.rates(problem, sampling)
    assert rates.sigma1 >= rates.sigma1_prox
    rounding = 1e-15  # of P − D, which are about one
    assert (mean_gaps(SDNA, problem, sampling) <= bound(problem, sampling, rates.sigma1) + rounding).all()


def test_theorem_7_is_about_sdna_and_not_about_sdca():
    """With large sets the rate is out of reach of a method that ignores the curvature between examples."""
    problem = make_problem(losses.Squared(), n=12, d=4, lam=0.01)
    sampling = samplings.Nice(12, 9)
    rate = theory.rates(problem, sampling).sigma1
    assert (mean_gaps(SDNA, problem, sampling) <= bound(problem, sampling, rate)).all()
    assert (mean_gaps(SDCA, problem, sampling) > bound(problem, sampling, rate)).any()
    assert np.isfinite(rate)
