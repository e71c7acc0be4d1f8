"""The quadratic model with thresholds on dependent features, where single coordinates are exchanged."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton.solvers.direct import active_set
from dualnewton.solvers.direct.active_set import Columns, Kinks, Matrix, Model


def dummies(rng, n, levels):
    """All levels of categorical variables, less their means as with an intercept: one relation for each variable."""
    hot = [rng.integers(0, k, n)[:, None] == np.arange(k) for k in levels]
    X = np.hstack(hot) * 1.0
    return X - X.mean(axis=0)


def model_of(rng, levels, threshold, *, positive=False, ridge=0.0):
    """A model of a target that depends on the levels, at a random start."""
    X = dummies(rng, 200, levels)
    y = X @ rng.standard_normal(X.shape[1]) + 0.1 * rng.standard_normal(len(X))
    high = np.full(X.shape[1], threshold * np.abs(X.T @ y).max())
    low = np.full(X.shape[1], -np.inf) if positive else -high
    kinks = Kinks(np.full(X.shape[1], ridge), low, high)
    start = kinks.nearest(rng.standard_normal(X.shape[1]) * (rng.random(X.shape[1]) < 0.3))
    H = X.T @ X
    return Model(Matrix(H, X.shape[1]), H @ start - X.T @ y, start, kinks)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("threshold", [0.5, 0.05, 1e-3, 1e-6])
@pytest.mark.parametrize("levels", [(3,), (2, 3, 4), (12, 2, 5, 7)], ids=str)
def test_exchanges_reach_the_minimum_of_dependent_features(levels, threshold, positive):
    """It has the value that proximal point steps find, and meets the optimality conditions up to rounding."""
    for seed in range(5):
        found, other = (model_of(np.random.default_rng(seed), levels, threshold, positive=positive) for _ in range(2))
        before = found._value(found.v, found.slopes)
        assert found._exchange(np.zeros_like(found.v))
        value = found._value(found.v, found.slopes)
        rounding = 1e-9 * np.abs(found.q).max()
        assert found._violation() <= rounding
        np.testing.assert_allclose(found.slopes, found.gram.times(found.v) - found.q, atol=rounding)
        for part in 10.0 ** -np.arange(2.0, 10.0):
            other._proximal(part * other.gram.diagonal, lambda: False)
        assert value <= min(before, other._value(other.v, other.slopes)) + rounding


def test_exchanges_from_zero_begin_with_all_coordinates_that_do_not_depend_on_each_other(monkeypatch):
    """One by one, each of the coordinates that become nonzero would take a system."""
    model, systems, solve = model_of(np.random.default_rng(0), (12, 9, 5, 7), 1e-3), [], active_set._posv()
    monkeypatch.setattr(active_set, "_posv", lambda: lambda *given: systems.append(1) or solve(*given))
    assert model._exchange(np.zeros_like(model.v))
    assert len(systems) <= np.count_nonzero(model.v) / 2


def test_exchanges_leave_a_start_with_dependent_coordinates():
    model = model_of(np.random.default_rng(0), (3, 4), 0.01)
    start = model.v.copy()
    assert not model._exchange(np.ones_like(start))
    np.testing.assert_array_equal(model.v, start)


def test_dummies_of_all_levels_need_no_proximal_steps(monkeypatch):
    """Cross-validated Lasso models of dependent features: active sets cycle on most of them."""
    taken = []
    monkeypatch.setattr(Model, "_proximal", lambda *_: taken.append(1))
    rng = np.random.default_rng(0)
    X = np.hstack([rng.integers(0, k, 400)[:, None] == np.arange(k) for k in (2, 3, 4)]) * 1.0
    y = X @ rng.standard_normal(9) + 0.1 * rng.standard_normal(400)
    model = dn.LassoCV().fit(X, y)
    assert not taken
    assert model.certificate_.relative_gap <= 1e-4


@pytest.mark.parametrize("seed", [0, 1])
def test_proximal_steps_whose_newton_steps_do_not_end_are_not_followed_by_harder_ones(seed, monkeypatch):
    rng, steps = np.random.default_rng(seed), []
    base = rng.standard_normal((80, 150))
    X = np.hstack([base, base + 1e-3 * rng.standard_normal(base.shape)])  # near-duplicates, a weak penalty
    y = np.where(X @ rng.standard_normal(300) / np.sqrt(300) + 0.5 * rng.standard_normal(80) > 0, 1.0, -1.0)

    for kind in (Matrix, Columns):

        def counted(self, *parts, own=kind.correction):
            steps.append(1)
            return own(self, *parts)

        monkeypatch.setattr(kind, "correction", counted)
    problem = dn.Problem(
        X, y, dn.losses.Logistic(), regularizer=dn.regularizers.L1(), lam=1e-4 / len(y), fit_intercept=True
    )
    assert dn.solve(problem, tol=1e-4).converged
    assert len(steps) < 1300  # more than 2000 if κ falls after a proximal step that did not end
