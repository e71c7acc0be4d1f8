"""Nonnegative least squares from normal equations: the optimality conditions hold, and dependent features are left to others."""

import numpy as np
import pytest
from scipy.optimize import nnls

from dualnewton.solvers.direct import nonnegative as module
from dualnewton.solvers.direct.nonnegative import nonnegative

KINDS = ["plain", "positive", "correlated", "scales"]


def system(kind, seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 200)), int(rng.integers(1, 50))
    A = rng.standard_normal((n, d))
    if kind == "positive":
        A = np.abs(A)
    if kind == "correlated":
        A = 0.1 * A + rng.standard_normal((n, 3)) @ rng.standard_normal((3, d))
    if kind == "scales":
        A = A * 10.0 ** rng.uniform(-6.0, 6.0, d)
    return A, A @ (rng.standard_normal(d) / np.linalg.norm(A, axis=0)) + rng.standard_normal(n)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("patience", [0, module.PATIENCE])
def test_the_optimality_conditions_hold(kind, seed, patience, monkeypatch):
    """Also if coefficients change sides one by one, which cannot cycle."""
    monkeypatch.setattr(module, "PATIENCE", patience)
    monkeypatch.setattr(module, "MOST", 1000)
    A, b = system(kind, seed)
    w = nonnegative(A.T @ A, A.T @ b)
    slopes = A.T @ (A @ w - b) / np.linalg.norm(A, axis=0)
    assert (w >= 0.0).all()
    assert np.abs(slopes[w > 0.0]).max(initial=0.0) <= 1e-9 * np.linalg.norm(b)
    assert slopes[w == 0.0].min(initial=0.0) >= -1e-9 * np.linalg.norm(b)
    assert np.linalg.norm(A @ w - b) <= (1.0 + 1e-12) * np.linalg.norm(A @ nnls(A, b)[0] - b)


def test_dependent_features_in_use_are_left_to_other_methods():
    A, _ = system("positive", 0)
    A = np.c_[A, A[:, 0]]
    assert nonnegative(A.T @ A, A.T @ (A @ np.ones(A.shape[1]))) is None
    assert not nonnegative(A.T @ A, -np.ones(A.shape[1])).any()


def test_too_many_exchanges_end_without_a_result(monkeypatch):
    monkeypatch.setattr(module, "MOST", 0)
    monkeypatch.setattr(module, "PATIENCE", 0)
    A, b = system("plain", 1)
    assert nonnegative(A.T @ A, A.T @ b) is None
