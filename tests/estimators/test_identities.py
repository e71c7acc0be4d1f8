"""What must hold whatever the data: weights are repetitions, and copies of rows or columns change the strength only."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import dualnewton as dn
from estimators.cases import CASES, IDS, as_csr, outputs, relative

FINE = {"tol": 1e-12, "max_iter": 1000}

every = pytest.mark.parametrize("case", CASES, ids=IDS)


def fitted(case, X, y, weights=None, **changes):
    return clone(case.model).set_params(**FINE, **changes).fit(X, y, weights)


@every
def test_weights_equal_repeated_and_removed_rows(case):
    X, y = case.data(n=80)
    weights = np.random.default_rng(4).integers(0, 4, len(y))
    weights[:3] = 1  # every class keeps an example
    weighted, repeated = fitted(case, X, y, weights), fitted(case, X.repeat(weights, axis=0), y.repeat(weights))
    assert relative(outputs(weighted, X), outputs(repeated, X)) < 1e-6


@every
def test_rows_of_weight_zero_equal_absent_rows(case):
    X, y = case.data(n=80)
    absent = np.arange(len(y)) % 4 == 3
    spoiled = np.where(absent[:, None], 1e3, X)
    weighted, removed = fitted(case, spoiled, y, 1.0 - absent), fitted(case, X[~absent], y[~absent])
    assert relative(outputs(weighted, X), outputs(removed, X)) < 1e-6


@every
def test_rows_twice_are_half_the_penalty(case):
    X, y = case.data()
    strength = case.model._strength
    value = getattr(case.model, strength)
    # The losses are summed for C and alpha, and averaged for lam and for quantiles.
    averaged = isinstance(case.model, dn.QuantileRegressor)
    factor = 1.0 if averaged else {"C": 0.5, "alpha": 2.0, "lam": 1.0}[strength]
    once = fitted(case, X, y)
    twice = fitted(case, np.vstack([X, X]), np.concatenate([y, y]), **{strength: value * factor})
    assert relative(outputs(twice, X), outputs(once, X)) < 1e-6


@pytest.mark.parametrize("n_classes", [2, 3])
def test_columns_twice_are_twice_the_C_with_half_of_each_coefficient(n_classes):
    X, y = next(case for case in CASES if case.n_classes == n_classes).data()
    once = dn.LogisticRegression(C=1.4, **FINE).fit(X, y)
    twice = dn.LogisticRegression(C=0.7, **FINE).fit(np.hstack([X, X]), y)
    assert relative(twice.coef_, 0.5 * np.hstack([once.coef_, once.coef_])) < 1e-6


def test_columns_twice_are_half_the_alpha_with_half_of_each_coefficient():
    X, y = CASES[IDS.index("ridge")].data()
    once, twice = dn.Ridge(0.7, **FINE).fit(X, y), dn.Ridge(1.4, **FINE).fit(np.hstack([X, X]), y)
    assert relative(twice.coef_, 0.5 * np.hstack([once.coef_, once.coef_])) < 1e-6


@every
def test_sparse_and_dense_rows_give_the_same_model(case):
    X, y = case.data()
    X = np.where(np.abs(X) < 0.5, 0.0, X)
    assert relative(outputs(fitted(case, as_csr(X), y), X), outputs(fitted(case, X, y), X)) < 1e-6


@given(seed=st.integers(0, 10**6), n=st.integers(3, 25), d=st.integers(1, 30), strength=st.floats(-4.0, 4.0))
@settings(max_examples=25)
def test_the_gap_bounds_the_distance_of_any_ridge_fit_from_the_optimum(seed, n, d, strength):
    rng = np.random.default_rng(seed)
    X, y, alpha = rng.standard_normal((n, d)), rng.standard_normal(n), 10.0**strength
    model = dn.Ridge(alpha, tol=1e-3).fit(X, y)
    centred, target = X - X.mean(axis=0), y - y.mean()
    best = np.linalg.solve(centred.T @ centred + alpha * np.eye(d), centred.T @ target)
    optimum = (np.sum((centred @ best - target) ** 2) + alpha * best @ best) / (2 * n)
    assert model.certificate_.dual <= optimum * (1.0 + 1e-9) + 1e-12
    assert model.certificate_.primal >= optimum * (1.0 - 1e-9) - 1e-12
    assert model.certificate_.relative_gap <= 1e-3
