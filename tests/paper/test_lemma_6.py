"""Lemma 6: w* = (1/λn) A α* connects ridge regression with its dual quadratic."""

import numpy as np
import pytest

from dualnewton import losses
from dualnewton.objective.problem import Problem


@pytest.mark.parametrize(("n", "d"), [(7, 3), (3, 7), (5, 5)])
def test_lemma_6_least_squares_duality(n, d):
    rng = np.random.default_rng(n)
    X, b, lam = rng.standard_normal((n, d)), rng.standard_normal(n), 0.3
    problem = Problem(X, b, losses.Squared(), lam=lam)
    alpha = np.linalg.solve(np.eye(n) / n + X @ X.T / (lam * n**2), b / n)  # minimises the quadratic of the lemma
    w = np.linalg.solve(X.T @ X / n + lam * np.eye(d), X.T @ b / n)  # minimises the ridge objective
    np.testing.assert_allclose(problem.w_of(alpha), w, rtol=1e-10)
    np.testing.assert_allclose(problem.alpha_of(w), alpha, rtol=1e-9, atol=1e-12)
    quadratic = alpha @ alpha / (2 * n) - b @ alpha / n + np.sum((X.T @ alpha) ** 2) / (2 * lam * n**2)
    assert problem.dual(alpha) == pytest.approx(-quadratic, rel=1e-12)
    assert problem.certify(w).gap <= 1e-14
    assert np.abs(problem.w_of(alpha) * n - w).max() > 1e-2  # the factor 1/(λn) matters
