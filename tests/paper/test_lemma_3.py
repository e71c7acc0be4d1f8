"""Lemma 3: SDNA contracts the dual error by 1 − σ₁ᵖʳᵒˣ in expectation, for uniform samplings."""

import numpy as np
import pytest

from dualnewton import theory
from dualnewton.solvers import SDCA, SDNA
from erm import dual_points, expected_dual_after_a_round, optimum
from tables import LOSSES, make_problem, name_of, regularizers_for, uniform_samplings_for

N = 5


def worst_ratio(solver_class, problem, sampling, best, **kwargs):
    """max over several α of E[D* − D(α⁺)] / (D* − D(α))."""
    return max(
        (best - expected_dual_after_a_round(solver_class, problem, sampling, alpha, **kwargs))
        / (best - problem.dual(alpha))
        for alpha in dual_points(problem)
    )


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", [{}, {"weights": True, "offset": True}], ids=str)
def test_lemma_3_dual_contraction_of_sdna(loss, form):
    problem = make_problem(loss, n=N, lam=0.2, **form)
    best, known = optimum(problem), {}
    for sampling in uniform_samplings_for(N):
        ratio = worst_ratio(SDNA, problem, sampling, best, known=known)
        assert ratio <= 1.0 - theory.rates(problem, sampling).sigma1_prox + 1e-9


def test_lemma_3_holds_for_every_regulariser():
    for regularizer in regularizers_for(4):
        problem = make_problem(LOSSES[1], n=N, lam=0.2, regularizer=regularizer)
        best, known = optimum_by_many_rounds(problem), {}
        for sampling in uniform_samplings_for(N):
            ratio = worst_ratio(SDNA, problem, sampling, best, known=known)
            assert ratio <= 1.0 - theory.rates(problem, sampling).sigma1_prox + 1e-6


def optimum_by_many_rounds(problem):
    import dualnewton as dn

    return dn.solve(problem, tol=1e-13, max_epochs=20_000, random_state=0).certificate.primal


def test_lemma_3_would_notice_steps_that_are_too_short():
    problem = make_problem(LOSSES[0], n=N, lam=0.2)
    best = optimum(problem)
    sampling = uniform_samplings_for(N)[1]
    rate = theory.rates(problem, sampling).sigma1_prox
    timid = np.full(N, 100.0)  # SDCA with a curvature bound far too large
    assert worst_ratio(SDCA, problem, sampling, best, v=timid) > 1.0 - rate + 1e-3
