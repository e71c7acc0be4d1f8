"""Means of the last points of a descent: of all means, the one with the smallest gradient, and never a worse certificate."""

from types import SimpleNamespace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton.solvers.primal import means
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.means import Mean, mean_within, shortest


def test_the_mean_has_the_shortest_gradient_of_a_quadratic_function_among_all_means():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 12))
    H, c, weights = A.T @ A, rng.standard_normal(12), np.append(rng.uniform(0.5, 2.0, 11), 0.0)
    points = rng.standard_normal((5, 12))
    gradients = points @ H - c
    mean = shortest(points[-1], gradients[-1], np.diff(points, axis=0), np.diff(gradients, axis=0), weights)
    found = H @ mean.x - c
    every = np.where(weights > 0.0, weights, weights.max())  # the last feature has no penalty
    assert mean.gap == pytest.approx(every @ found**2, rel=1e-9)
    np.testing.assert_allclose(
        np.diff(gradients, axis=0) @ (every * found), 0.0, atol=1e-8 * np.abs(gradients).max() ** 2
    )


def test_a_mean_is_computed_near_the_wanted_gap_alone_and_not_again_after_a_failure():
    rng = np.random.default_rng(0)
    corrections = Corrections.none()
    for step in np.eye(6)[:3]:
        corrections = corrections.with_pair(step, 2.0 * step, 2.0 * step, 10)
    pair = (np.eye(6)[3], 2.0 * np.eye(6)[3])
    place = SimpleNamespace(x=rng.standard_normal(6), gap=10.0, gradient=np.array([1.0, 1.0, 1.0, 1.0, 0.0, 0.0]))
    mean = mean_within(Mean(), 1.0, place, corrections, pair, np.ones(6))
    assert mean.gap < 1e-12
    np.testing.assert_allclose(mean.x, place.x - 0.5 * place.gradient)
    for wanted in (20.0, 1e-3):
        assert mean_within(Mean(), wanted, place, corrections, pair, np.ones(6)).x is None
    assert mean_within(Mean(failed=True), 1.0, place, corrections, pair, np.ones(6)).x is None
    place.gradient[5] = 2.2
    later = mean_within(Mean(), 1.0, place, corrections, pair, np.ones(6))
    assert (later.x, later.wait) == (None, 3)
    assert mean_within(later, 1.0, place, corrections, pair, np.ones(6)).wait == 2


def test_runs_that_end_at_a_mean_are_certified_and_take_no_more_passes(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 1200)) / np.sqrt(np.arange(1, 1201))
    problem = dn.Problem(X, np.sign(X[:, 0] + 0.1 * rng.standard_normal(400)), dn.losses.Logistic(), lam=1e-6)
    runs = []
    for within in (0.0, means.WITHIN):
        monkeypatch.setattr(means, "WITHIN", within)
        runs.append(dn.solve(problem, method="ihs", tau=64, tol=1e-4, random_state=0))
    without, found = runs
    assert found.certificate.relative_gap <= 1e-4
    assert found.n_epochs < without.n_epochs
