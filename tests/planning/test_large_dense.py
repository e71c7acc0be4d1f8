"""Plans for large dense data: what samples of the rows cost, and which method begins on a loss with kinks."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.planning.facts import Facts
from tuned import tuned

RNG = np.random.default_rng(0)


def test_samples_whose_copy_costs_more_are_smaller():
    X = RNG.standard_normal((100000, 10))
    problem = dn.Problem(X, np.where(RNG.random(len(X)) < 0.5, 1.0, -1.0), losses.Logistic(), fit_intercept=True)
    free, dear = (Facts.of(problem, tuned(sample_copy=copy)).samples for copy in (0.0, 1e3))
    assert sum(dear) < sum(free)


@pytest.mark.parametrize("loss", [losses.Hinge(), losses.EpsilonInsensitive(0.1)])
def test_rounds_are_not_tried_where_interior_point_steps_are_cheap(loss):
    """The trial took longer than the steps that followed it."""
    X = RNG.standard_normal((80000, 100))
    y = np.where(RNG.random(len(X)) < 0.5, 1.0, -1.0)
    posed = dn.Problem(X, y, loss, lam=1.0 / len(X), fit_intercept=True)
    assert dn.plan(posed).method == "interior"
    assert dn.plan(posed, tuning=tuned(kinked_trial_share=0.25)).reason.startswith("trial of")
