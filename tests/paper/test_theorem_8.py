"""Theorem 8: E[P(w^k) − D(α^k)] ≤ (1 − θ)^k/θ · (D* − D(α⁰)) for minibatch SDCA, its quadratic term being v_i/(λn)."""

import numpy as np
import pytest

from dualnewton import losses, samplings, theory
from dualnewton.solvers import SDCA
from tables import LOSSES, make_problem, name_of
from test_theorem_6 import LAWS, bound, mean_gaps


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic(), losses.SquaredHinge()], ids=name_of)
@pytest.mark.parametrize(
    "sampling", [*LAWS, samplings.Independent(np.linspace(0.1, 0.5, 12))], ids=lambda s: type(s).__name__
)
def test_theorem_8_duality_gap_of_sdca(loss, sampling):
    problem = make_problem(loss, n=12, d=4, lam=0.1)
    assert (mean_gaps(SDCA, problem, sampling) <= bound(problem, sampling, theory.theta(problem, sampling))).all()


@pytest.mark.parametrize("lam", [0.03, 2.0], ids=["steps too long", "steps too short"])
def test_theorem_8_fails_for_the_misprinted_quadratic_term(lam):
    """With v_i in the place of v_i/(λn) the steps are too long for λn < 1 and too short for λn > 1."""
    sampling = samplings.Nice(12, 6)
    problem = make_problem(LOSSES[0], n=12, d=4, lam=lam)
    v = theory.eso_from_data(problem.X, sampling)
    rate = theory.theta(problem, sampling)
    misprinted = mean_gaps(SDCA, problem, sampling, v=v * lam * 12)
    corrected = mean_gaps(SDCA, problem, sampling)
    assert (corrected <= bound(problem, sampling, rate) + 1e-12).all()
    assert (misprinted > bound(problem, sampling, rate) + 1e-6).any()
