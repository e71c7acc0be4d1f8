"""What every solver keeps true round by round."""

from dataclasses import replace

import numpy as np
import pytest

from covering import all_pairs
from dualnewton import losses, samplings
from dualnewton.objective.problem import Problem
from dualnewton.solvers import SDCA, SDNA, IterativeHessianSketch
from dualnewton.solvers.dual import reference
from tables import LOSSES, make_problem, name_of, regularizers_for, samplings_for

N, D = 6, 4
FORMS = [{}, {"weights": True, "offset": True}, {"sparse": True}, {"dtype": np.float32}]


def rounds(solver, count=6, seed=0):
    for S in solver.sampling.draw(np.random.default_rng(seed), count):
        solver.round(S)
        yield S


CASES = all_pairs(LOSSES, FORMS, regularizers_for(D), samplings_for(N))


@pytest.mark.parametrize("seed", [0, 1])
def test_sdna_never_loses_dual_value_whatever_the_regulariser_and_sampling(seed):
    """A covering design of losses, forms, regularisers and samplings, on two samples of data."""
    for loss, form, regularizer, sampling in CASES:
        problem = make_problem(loss, n=N, d=D, lam=0.1, seed=seed, regularizer=regularizer, **form)
        solver = SDNA(problem, sampling)
        value = problem.dual(solver.alpha)
        for _ in rounds(solver):
            before, value = value, problem.dual(solver.alpha)
            assert value >= before - 1e-12 * max(1.0, abs(before)), (loss, form, regularizer, sampling)
            np.testing.assert_allclose(solver.alpha_bar, problem.alpha_bar(solver.alpha), atol=1e-10)


def test_the_primal_form_takes_the_same_steps():
    """A covering design of losses, forms and samplings."""
    for loss, form, sampling in all_pairs(LOSSES, [*FORMS, {"fit_intercept": True, "weights": True}], samplings_for(N)):
        problem = make_problem(loss, n=N, d=D, lam=0.1, **form)
        dual, primal = SDNA(problem, sampling), IterativeHessianSketch(problem, sampling)
        for _ in zip(rounds(dual), rounds(primal), strict=True):
            told = f"{loss} {form} {sampling}"
            np.testing.assert_allclose(primal.alpha, dual.alpha, atol=1e-8, err_msg=told)
            np.testing.assert_allclose(primal.w, dual.w, atol=1e-8, err_msg=told)
            np.testing.assert_allclose(primal.intercept, dual.intercept, atol=1e-8, err_msg=told)


def test_the_primal_form_asks_for_l2():
    problem = make_problem(LOSSES[0], regularizer=regularizers_for(D)[1])
    with pytest.raises(ValueError, match=r"ihs.*needs regularizer L2\(\), got ElasticNet"):
        IterativeHessianSketch(problem, samplings_for(N)[2])


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_weights_are_repetitions(loss):
    """A weight of two is a row twice: the same steps, when both copies are drawn together."""
    weighted = make_problem(loss, n=4, d=3, lam=0.2, sample_weight=np.full(4, 2.0))
    twice = Problem(np.repeat(weighted.X, 2, axis=0), np.repeat(weighted.y, 2), loss, lam=0.1)
    one, two = SDNA(weighted, samplings.Nice(4, 2)), SDNA(twice, samplings.Nice(8, 4))
    for S in one.sampling.draw(np.random.default_rng(1), 10):
        one.round(S)
        two.round(np.sort(np.r_[2 * S, 2 * S + 1]))
        np.testing.assert_allclose(two.alpha, np.repeat(one.alpha, 2), atol=1e-9)
        np.testing.assert_allclose(two.w, one.w, atol=1e-9)


def test_sdca_gains_dual_value_in_expectation():
    """A covering design of losses, forms and samplings."""
    for loss, form, sampling in all_pairs(LOSSES, FORMS, samplings_for(N)):
        problem = make_problem(loss, n=N, d=D, lam=0.1, **form)
        start = 0.3 * problem.alpha_of(np.ones(D))
        solver, before, gain = SDCA(problem, sampling), problem.dual(start), 0.0
        for S, probability in sampling.support():
            solver.alpha = start.copy()
            solver.refresh()
            solver.round(S)
            gain += probability * (problem.dual(solver.alpha) - before)
        assert gain > 0.0, (loss, form, sampling)


def test_models_with_equal_weights_share_an_eso_vector(monkeypatch):
    rng, calls = np.random.default_rng(0), []
    X, y = rng.standard_normal((12, 3)), np.sign(rng.standard_normal(12))
    first = Problem(X, y, losses.Logistic(), lam=0.1)
    problems = [first, replace(first, lam=0.01), replace(first, sample_weight=rng.random(12)), replace(first, lam=1.0)]
    sampling = samplings.Nice(12, 4)
    alone = [SDCA(problem, sampling).v for problem in problems]
    own = reference.eso_from_data
    monkeypatch.setattr(reference, "eso_from_data", lambda *given: calls.append(None) or own(*given))
    together = SDCA.for_each(problems, sampling)
    assert len(calls) == 2
    np.testing.assert_array_equal([solver.v for solver in together], alone)


def test_an_intercept_costs_rounds_on_orthogonal_rows_few_epochs():
    """Each epoch leaves about n^(−1/3) of the error; with a constant feature as long as the rows it would leave a half."""
    n = 512
    y = np.random.default_rng(0).standard_normal(n)
    problem = Problem(np.eye(n), y, losses.Squared(), lam=0.1 / n, fit_intercept=True)
    solver, rng, gaps = SDCA(problem, samplings.Shuffled(n, 1)), np.random.default_rng(0), []
    for _ in range(6):
        solver.run(solver.sampling.draw(rng, n))
        solver.end_epoch()
        gaps.append(problem.certify(solver.w, solver.intercept, solver.alpha).gap)
    assert gaps[-1] <= 0.1**5 * gaps[0]
