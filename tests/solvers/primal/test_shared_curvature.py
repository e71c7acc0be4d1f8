"""Models that are close together share their curvature, others do not, and all of them converge."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.solvers.primal import sketching as hessians

N, D = 600, 12


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D))
    return rng, X, np.where(X @ rng.standard_normal(D) + 0.5 * rng.standard_normal(N) > 0.0, 1.0, -1.0)


def folds(X, y, loss, count=5):
    for k in range(count):
        yield dn.Problem(X, y, loss, lam=1.0 / N, sample_weight=np.where(np.arange(N) % count == k, 0.0, 1.0))


@pytest.fixture
def bought(monkeypatch):
    """The weights of every curvature that was made."""
    made, at = [], hessians.Sketches.at
    monkeypatch.setattr(hessians.Sketches, "at", lambda self, w, *more: (made.append(w), at(self, w, *more))[1])
    return made


def agree_with_their_own_fits(problems, results, atol=1e-5):
    for problem, result in zip(problems, results, strict=True):
        assert result.converged
        np.testing.assert_allclose(result.w, dn.solve(problem, tol=1e-13).w, atol=atol)


def test_outputs_of_least_squares_have_one_hessian(bought):
    rng, X, _ = data()
    problems = [dn.Problem(X, rng.standard_normal(N), losses.Squared(), lam=1.0 / N) for _ in range(6)]
    results = dn.solve_many(problems, method="newton", tol=1e-12)
    assert len(bought) == 1
    agree_with_their_own_fits(problems, results)


def test_other_penalties_have_their_own(bought):
    rng, X, _ = data()
    y = rng.standard_normal(N)
    problems = [dn.Problem(X, y, losses.Squared(), lam=lam / N) for lam in (0.1, 1.0, 1.0, 10.0)]
    results = dn.solve_many(problems, method="newton", tol=1e-12)
    assert len(bought) == 3
    agree_with_their_own_fits(problems, results)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge()])
def test_folds_share_sketches(loss, bought):
    _, X, y = data()
    problems = list(folds(X, y, loss))
    results = dn.solve_many(problems, method="ihs", tau=N, tol=1e-11)
    together = len(bought)
    agree_with_their_own_fits(problems, results)
    bought.clear()
    for problem in problems:
        dn.solve(problem, method="ihs", tau=N, tol=1e-11)
    assert together < 0.8 * len(bought)


def test_newton_does_not_mix_folds(bought):
    _, X, y = data()
    problems = list(folds(X, y, losses.Logistic()))
    dn.solve_many(problems, method="newton", tol=1e-9)
    assert all(np.count_nonzero(weights) == N - N // 5 for weights in bought)


def test_classes_part_as_their_curvatures_do(bought):
    rng, X, _ = data()
    kinds = np.argmax(X[:, :3] * [3.0, 1.0, 0.3] + rng.standard_normal((N, 3)), axis=1)
    problems = [dn.Problem(X, np.where(kinds == k, 1.0, -1.0), losses.Logistic(), lam=0.01 / N) for k in range(3)]
    results = dn.solve_many(problems, method="newton", tol=1e-11)
    agree_with_their_own_fits(problems, results)
    # At w = 0 all have the same curvature, and later each its own.
    assert np.ptp(bought[0]) == 0.0
    assert len(bought) >= 1 + 3
