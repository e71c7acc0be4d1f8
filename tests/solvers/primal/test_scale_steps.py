"""Interior points of Huber's regression with a joint scale: their limits, and few steps where the best scale is nearly zero."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import HuberRegressor

import dualnewton as dn
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.solvers.primal.scale_steps import Directions, ScaleTerms
from dualnewton.solvers.primal.step_systems import Passes

MOST = 30
"""Epochs that a fit may take, one for each step; fits at single scales took 56 to 256 on these data."""


def drawn(n, d, seed=0, degrees=2):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ rng.standard_normal(d) / np.sqrt(d) + rng.standard_t(degrees, n)


def terms_of(problem):
    unit = problem.unit
    ridge = np.append(np.full(unit.d, problem.lam * unit.n), np.zeros(1 if unit.fit_intercept else 0))
    return ScaleTerms(Passes(unit.data, ridge), unit.y, unit.c, problem.epsilon)


@pytest.mark.parametrize(("n", "d"), [(60, 60), (150, 140), (300, 300), (290, 300), (120, 80), (400, 280)])
@pytest.mark.parametrize("lamn", [1e-4, 1.0])
def test_few_steps_suffice_for_about_as_many_features_as_examples(n, d, lamn):
    X, y = drawn(n, d)
    result = dn.solve(HuberScaleProblem(X, y, lam=lamn / n, fit_intercept=True), tol=1e-8)
    assert result.converged
    assert result.n_epochs <= MOST
    assert "interior-point steps" in result.plan.reason


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("storage", [np.asarray, np.float32, sp.csr_array])
@pytest.mark.parametrize(("n", "d", "epsilon", "lamn"), [(90, 80, 1.35, 0.1), (90, 80, 2.0, 1e-3), (60, 30, 1.05, 1.0)])
def test_steps_lead_to_the_optimum(n, d, epsilon, lamn, storage, fit_intercept, weighted):
    X, y = drawn(n, d)
    rng = np.random.default_rng(1)
    c = rng.uniform(0.5, 2.0, n) * (rng.random(n) < 0.9) if weighted else None
    problem = HuberScaleProblem(storage(X), y, epsilon, lamn / n, c, fit_intercept)
    terms = terms_of(problem)
    at, gaps = terms.started(), []
    while len(gaps) < MOST and (not gaps or gaps[-1] > 1e-9):
        at = terms.step(at)
        assert (at.boxes[:2] > 0.0).all()
        assert at.scale > 0.0
        certificate = problem.certified_pair(*terms.model(at)).certificate
        gaps.append(certificate.relative_gap)
        # The certificate has the best intercept and scale for w, and the best multiple of α.
        assert n * certificate.gap <= terms.gap(at) * (1.0 + 1e-6) + 1e-9
    assert gaps[-1] <= 1e-9


def test_directions_solve_their_equations():
    X, y = drawn(70, 50)
    terms = terms_of(HuberScaleProblem(X, y, lam=0.1 / 70, fit_intercept=True))
    at = terms.started()
    for _ in range(3):
        at = terms.step(at)
    made, rng = Directions(terms, at), np.random.default_rng(3)
    change, to_kappa, off = rng.standard_normal((2, 70)), 0.7, rng.standard_normal(70)
    x, scale, way, kappa, accurate = made.towards(change, to_kappa, off, refinements=4)
    psi, dp = made.psi, way[0]
    assert accurate
    assert terms.system.imbalance(x, dp) == pytest.approx(-made.imbalance, abs=1e-9)
    residuals = terms.system.margins(x) - at.scale * dp - psi * scale - way[3] + way[2]
    assert residuals == pytest.approx(-off, abs=1e-9)
    assert made.kappa / at.scale * scale - psi @ dp == pytest.approx(to_kappa, abs=1e-9)
    assert kappa == pytest.approx(-psi @ dp)
    assert way[2:] + at.boxes[2:] / at.boxes[:2] * way[:2] == pytest.approx(change, abs=1e-9)
    # After the longest step no factor is negative, and one is zero.
    far = made.towards(100.0 * change, to_kappa, off, refinements=4)
    length = made.length(far)
    moved = at.boxes + length * far.way
    left = min(moved.min(), at.scale + length * far.scale, terms.ball_slack(psi + length * far.way[0]))
    assert 0.0 < length < 1.0
    assert left == pytest.approx(0.0, abs=1e-9)


def test_scikit_learn_finds_the_same_objective():
    X, y = drawn(100, 90, degrees=3)
    own = dn.HuberRegressor(alpha=0.1, tol=1e-10).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it stops early here, which its objective shows
        other = HuberRegressor(alpha=0.1, tol=1e-12, max_iter=100_000).fit(X, y)
    problem = HuberScaleProblem(X, y, lam=0.1 / len(y), fit_intercept=True)
    values = [problem.primal(model.coef_, model.intercept_, model.scale_) for model in (own, other)]
    assert values[0] <= values[1] * (1.0 + 1e-9)
    assert values[0] == pytest.approx(own.certificate_.primal)


def test_newton_continues_where_rounding_stops_the_steps():
    X, y = drawn(120, 70)
    result = dn.solve(HuberScaleProblem(X, y, lam=30.0 / 120, fit_intercept=True), tol=1e-14, tuning=None)
    assert result.certificate.relative_gap <= 1e-13
