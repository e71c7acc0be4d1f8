"""Lemma 5: a round gains E[D(α⁺) − D(α)] ≥ θ(Ŝ)(P(w) − D(α)), for any proper sampling, with w = ∇g*(ᾱ)."""

import pytest

from covering import all_pairs
from dualnewton import losses, samplings, theory
from dualnewton.solvers import SDCA, SDNA
from erm import dual_points, equal_rows_problem, expected_dual_after_a_round
from tables import LOSSES, make_problem, name_of, regularizers_for, samplings_for

N = 5


def worst_margin(solver_class, problem, sampling, theta, known=None):
    """min over several α of E[D(α⁺) − D(α)] − θ (P − D); the lemma says it is not negative."""
    margins = []
    for alpha in dual_points(problem):
        gain = expected_dual_after_a_round(solver_class, problem, sampling, alpha, known) - problem.dual(alpha)
        gap = problem.primal(problem.w_of(alpha)) - problem.dual(alpha)
        margins.append(gain - theta * gap)
    return min(margins)


@pytest.mark.parametrize(
    ("loss", "solver_class", "form"), all_pairs(LOSSES, [SDNA, SDCA], [{}, {"weights": True, "offset": True}])
)
def test_lemma_5_expected_dual_gain(loss, solver_class, form):
    """A covering design of loss, method and form, each cell with all samplings."""
    problem = make_problem(loss, n=N, lam=0.2, **form)
    known = {} if solver_class is SDNA else None
    for sampling in samplings_for(N):
        assert worst_margin(solver_class, problem, sampling, theory.theta(problem, sampling), known) >= -1e-12


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()], ids=name_of)
def test_lemma_5_for_every_regulariser(loss):
    for regularizer in regularizers_for(4):
        problem, known = make_problem(loss, n=N, lam=0.2, regularizer=regularizer), {}
        for sampling in samplings_for(N):
            assert worst_margin(SDNA, problem, sampling, theory.theta(problem, sampling), known) >= -1e-12


def test_lemma_5_is_an_equality_for_unit_rows_so_a_larger_theta_is_noticed():
    problem = equal_rows_problem(losses.Squared(), n=N)
    sampling = samplings.Serial(N)
    theta = theory.theta(problem, sampling)
    assert worst_margin(SDNA, problem, sampling, theta) == pytest.approx(0.0, abs=1e-12)
    too_small = 0.9 * theory.eso_from_data(problem.X, sampling)
    assert worst_margin(SDNA, problem, sampling, theory.theta(problem, sampling, too_small)) < -1e-4
