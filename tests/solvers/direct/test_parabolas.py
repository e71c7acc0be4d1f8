"""Newton's method on dense rows for losses whose curvature is one number or zero: updated Hessians, and Huber's start."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct import risk
from dualnewton.solvers.direct.block import Block

N, D = 90, 7
RNG = np.random.default_rng(2)
X = RNG.standard_normal((N, D)) * np.geomspace(0.05, 5.0, D)
SCORE = X @ RNG.standard_normal(D) + RNG.standard_normal(N)
WEIGHTS = RNG.uniform(0.0, 2.0, N) * (RNG.random(N) < 0.9)


@pytest.mark.parametrize("bordered", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_the_hessian_of_parabolas_follows_from_the_last_one(bordered, weights, kind, monkeypatch):
    """Margins of a path of models: few rows leave or enter the parabola from one to the next, and then many at once."""
    monkeypatch.setattr(risk, "COPIED", 0 if bordered else 1 << 16)
    problem = dn.Problem(X, SCORE, losses.Huber(0.5), lam=1e-2, sample_weight=weights, fit_intercept=True)
    own, direct = (
        risk.Risk.of(problem, Block(problem.data, Crossovers(updated_products=most))) for most in (0, 1 << 30)
    )
    assert own.is_updated
    assert not direct.is_updated
    best = dn.solve(problem, tol=1e-12)
    x = np.append(best.w, best.intercept)
    for step in (1.0, 0.99, 0.98, 1.01, 0.2, 0.0, 1.0):
        H = own.hessian(own.margins(step * x), kind)
        expected = direct.hessian(direct.margins(step * x))
        np.testing.assert_allclose(H, expected, rtol=0.0, atol=(1e-5 if kind is np.float32 else 1e-12) * expected.max())


def test_the_precision_of_an_updated_hessian_is_the_one_asked_for():
    problem = dn.Problem(X, SCORE, losses.Huber(0.5), lam=1e-2)
    own = risk.Risk.of(problem, Block(problem.data, Crossovers(updated_products=0)))
    z = np.zeros(N)
    assert own.hessian(z, np.float32).dtype == np.float64
    curved = X[np.abs(SCORE) < 0.5]
    np.testing.assert_allclose(own.hessian(z), curved.T @ curved, rtol=1e-12, atol=1e-12)


def huber_problem(n, gross=0.0, lam=1e-3):
    rng = np.random.default_rng(4)
    A = rng.standard_normal((n, 12))
    y = (
        A @ np.linspace(-1.0, 1.0, 12)
        + rng.standard_normal(n)
        + gross * (rng.random(n) < 0.02) * rng.standard_normal(n)
    )
    return dn.Problem(A, y, losses.Huber(1.0), lam=lam)


def test_hubers_regression_begins_at_least_squares(monkeypatch):
    """Most residuals are small there; a sample, which would be solved first, takes more calls than a few steps on all rows."""
    evaluated, at = [], risk.Risk.losses
    monkeypatch.setattr(risk.Risk, "losses", lambda own, *args: evaluated.append(own.n) or at(own, *args))
    result = dn.solve(huber_problem(8192), tol=1e-6)
    assert result.plan.family == "newton"
    assert result.certificate.relative_gap <= 1e-6
    assert set(evaluated) == {8192}
    assert len(evaluated) <= 5


def test_hubers_regression_begins_elsewhere_where_least_squares_fit_worse_than_zero(monkeypatch):
    """Gross errors in a few targets move the least squares solution far away; many rows begin with a sample."""
    evaluated, at = [], risk.Risk.losses
    monkeypatch.setattr(risk.Risk, "losses", lambda own, *args: evaluated.append(own.n) or at(own, *args))
    for gross, sampled in ((1e5, True), (0.0, False)):
        evaluated.clear()
        result = dn.solve(huber_problem(8192, gross), tol=1e-6)
        assert result.certificate.relative_gap <= 1e-6
        assert (1024 in evaluated) is sampled
    evaluated.clear()
    result = dn.solve(huber_problem(8192), tol=1e-6, tuning=replace(DEFAULT, parabola_entries=0))
    assert result.certificate.relative_gap <= 1e-6
    assert 1024 in evaluated
