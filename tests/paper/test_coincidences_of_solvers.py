"""Section 4's remarks: SDNA is proximal Method 1 on the dual, SDCA is PCDM there; both are one when |Ŝ| = 1."""

import numpy as np
import pytest

from covering import all_pairs
from dualnewton import losses, methods, samplings, theory
from dualnewton.solvers import SDCA, SDNA
from tables import LOSSES, make_problem, name_of, regularizers_for, uniform_samplings_for

N, D, ROUNDS = 5, 4, 6


def iterates(solver_class, problem, sampling, **kwargs):
    solver = solver_class(problem, sampling, **kwargs)
    path = [solver.alpha.copy()]
    for S in sampling.draw(np.random.default_rng(0), ROUNDS):
        solver.round(S)
        path.append(solver.alpha.copy())
    return np.array(path)


def test_sdna_is_proximal_method_1_on_the_dual():
    """A covering design of losses, all regularisers and samplings."""
    for loss, regularizer, sampling in all_pairs(LOSSES, regularizers_for(D), uniform_samplings_for(N)):
        problem = make_problem(loss, n=N, d=D, lam=0.3, regularizer=regularizer)
        path = methods.prox_method1(methods.dual_of(problem), sampling, np.zeros(N), ROUNDS, np.random.default_rng(0))
        np.testing.assert_allclose(iterates(SDNA, problem, sampling), path, atol=1e-7, err_msg=f"{loss} {regularizer}")


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_sdca_is_pcdm_on_the_dual(loss):
    problem = make_problem(loss, n=N, d=D, lam=0.3)
    F = methods.dual_of(problem)
    for sampling in uniform_samplings_for(N):
        v = theory.eso_from_data(problem.X, sampling)
        # The dual's M is A Aᵀ/(λn²), so its ESO vector is v/(λn²).
        path = methods.pcdm(F, sampling, np.zeros(N), ROUNDS, np.random.default_rng(0), v=v / (problem.lam * N**2))
        np.testing.assert_allclose(iterates(SDCA, problem, sampling, v=v), path, atol=1e-7)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("form", [{}, {"weights": True, "offset": True}, {"fit_intercept": True}], ids=str)
def test_sdna_and_sdca_coincide_one_example_at_a_time(loss, form):
    problem = make_problem(loss, n=N, d=D, lam=0.3, **form)
    for sampling in (samplings.Serial(N), samplings.Serial(N, [0.1, 0.2, 0.3, 0.2, 0.2]), samplings.Nice(N, 1)):
        np.testing.assert_allclose(iterates(SDNA, problem, sampling), iterates(SDCA, problem, sampling), atol=1e-9)


def test_they_do_not_coincide_with_the_misprinted_quadratic_term():
    problem = make_problem(losses.Squared(), n=N, d=D, lam=0.3)
    sampling = samplings.Serial(N)
    v = theory.eso_from_data(problem.X, sampling)
    misprinted = iterates(SDCA, problem, sampling, v=v * problem.lam * N)  # v_i in the place of v_i/(λn)
    assert np.abs(misprinted - iterates(SDNA, problem, sampling)).max() > 1e-2


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_sdna_with_all_examples_solves_the_dual_in_one_round(loss):
    problem = make_problem(loss, n=N, d=D, lam=0.3, weights=True, offset=True)
    solver = SDNA(problem, samplings.Nice(N, N))
    solver.round(np.arange(N))
    certificate = problem.certify(solver.w, alpha=solver.alpha)
    assert certificate.relative_gap <= 1e-12
    if loss.curvature is losses.Curvature.CONSTANT:  # one Newton step, and Newton's method is exact here
        hessian = (problem.X.T * problem.c) @ problem.X / N + problem.lam * np.eye(D)
        w = np.linalg.solve(hessian, problem.X.T @ (problem.c * (problem.y - problem.o)) / N)
        np.testing.assert_allclose(solver.w, w, atol=1e-10)
