"""Dual rounds on piecewise linear losses in the planner: the plan says so, and its cost grows as the epochs do."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.costs import Costs
from dualnewton.planning.kinked_dual import expected_rounds, rounds_cost, solves_system, takes_rounds
from dualnewton.planning.tuning import DEFAULT
from tuned import tuned


def problem_of(n=2000, d=40, lam=None, loss=None, **more):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.where(X[:, 0] + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    return dn.Problem(X, y, loss or losses.Hinge(), lam=lam or 1.0 / n, **more)


@pytest.mark.parametrize("method", ["sdna", "sdca"])
def test_the_plan_says_that_the_loss_is_taken_as_it_is(method):
    plan = dn.plan(problem_of(), method=method, tau=1, tuning=tuned(small_entries=0))
    assert plan.method == method
    assert plan.reason == "dual rounds on Hinge without smoothing (box constraints); tau given by the user"
    assert plan.cost == rounds_cost(problem_of(), tuned(small_entries=0))
    assert not plan.smoothed
    assert dn.plan(problem_of(), method="newton").smoothed


def test_which_problems_have_such_rounds():
    assert takes_rounds(problem_of(), "sdna")
    assert not takes_rounds(problem_of(), "auto")
    assert not takes_rounds(problem_of(), "newton")
    assert not takes_rounds(problem_of(loss=losses.Logistic()), "sdna")
    assert not takes_rounds(problem_of(regularizer=regularizers.L1()), "sdna")


def test_epochs_grow_with_the_root_of_the_conditioning():
    fixed = DEFAULT.kinked_rounds_fixed
    one, hundred = (expected_rounds(problem_of(lam=lam / 2000)) - fixed for lam in (1.0, 0.01))
    assert hundred == pytest.approx(10.0 * one)
    norms = problem_of().norms
    assert one == pytest.approx(DEFAULT.kinked_rounds_per_root * np.sqrt(norms.mean()), rel=0.05)  # from a sample
    doubled = expected_rounds(problem_of(sample_weight=np.full(2000, 2.0))) - fixed
    assert doubled == pytest.approx(np.sqrt(2.0) * one)


def test_an_epoch_costs_what_it_costs_other_losses():
    problem = problem_of()
    costs = Costs.of(problem.data.profile)
    certificates = DEFAULT.certificate_passes * costs.data_pass
    assert rounds_cost(problem) == pytest.approx(expected_rounds(problem) * costs.epoch + certificates)


def test_predicted_epochs_are_those_of_a_run_but_for_a_factor():
    for lam_n in (100.0, 10.0, 1.0):
        problem = problem_of(lam=lam_n / 2000)
        result = dn.solve(problem, method="sdna", tau=1, tol=1e-4, random_state=0, tuning=tuned(small_entries=0))
        assert result.converged
        assert 0.1 <= result.n_epochs / expected_rounds(problem) <= 4.0


def test_the_linear_system_costs_no_more_than_the_rounds_before_it():
    problem = problem_of()
    costs = Costs.of(problem.data.profile)
    enough = costs.gram(500) / (DEFAULT.late_kink_factor * costs.epoch)
    assert solves_system(costs, 500, 1.01 * enough)
    assert not solves_system(costs, 500, 0.99 * enough)
    few = replace(DEFAULT, repeated_matrix=499)
    assert not solves_system(replace(costs, tuning=few), 500, 1e9)
