"""Dense blocks whose Hessians are not cheap: conjugate gradients, and L-BFGS from a Hessian where they are slow."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.direct import conjugate
from dualnewton.solvers.direct.block import Block
from dualnewton.solvers.direct.risk import Risk
from tuned import GENERAL

N, D = 900, 180
RNG = np.random.default_rng(3)
EVEN = RNG.standard_normal((N, D))
ILL = (EVEN * np.geomspace(1.0, 1e-4, D)) @ np.linalg.qr(RNG.standard_normal((D, D)))[0]
SCORE = EVEN @ RNG.standard_normal(D) / np.sqrt(D) + RNG.standard_normal(N)
SIGNS = np.where(SCORE > 0.3, 1.0, -1.0)
LOSSES = [
    (losses.Squared(), SCORE),
    (losses.Logistic(), SIGNS),
    (losses.SquaredHinge(), SIGNS),
    (losses.Huber(0.5), SCORE),
    (losses.Poisson(), np.round(np.exp(0.5 * SCORE))),
]
PRODUCTS = replace(DEFAULT, small_entries=1 << 10, one_block_features=64, fewest_products=1, quadratic_products=1)
"""By products, as if the data were larger."""


@pytest.mark.parametrize(("loss", "y"), LOSSES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("general", [False, True], ids=["plain", "weights, offsets, scales"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("X", [EVEN, ILL], ids=["even", "ill-conditioned"])
def test_products_find_what_the_general_method_finds(loss, y, general, fit_intercept, X):
    problem = dn.Problem(
        X,
        y,
        loss,
        regularizer=regularizers.L2(np.linspace(1.0, 4.0, D) if general else None),
        lam=1e-4,
        sample_weight=RNG.uniform(0.5, 2.0, N) if general else None,
        offset=0.1 * EVEN[:, 0] if general else None,
        fit_intercept=fit_intercept,
    )
    found = dn.solve(problem, tol=1e-9, tuning=PRODUCTS)
    first = (
        found.plan.before or found.plan
    )  # a piecewise quadratic loss is left to the general method where products are slow
    assert first.family == "conjugate"
    assert first.directions > 0
    assert found.certificate.relative_gap <= 1e-9
    other = dn.solve(problem, tol=1e-9, tuning=GENERAL)
    assert other.plan.family is None
    assert found.certificate.primal == pytest.approx(other.certificate.primal, rel=4e-9)


@pytest.mark.parametrize(("X", "expected"), [(EVEN, False), (ILL, True)], ids=["even", "ill-conditioned"])
def test_a_hessian_is_computed_where_conjugate_gradients_are_slow_and_only_there(X, expected, monkeypatch):
    computed, from_hessian = [], conjugate.from_hessian

    def counted(*arguments):
        computed.append(1)
        return from_hessian(*arguments)

    monkeypatch.setattr(conjugate, "from_hessian", counted)
    result = dn.solve(dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-5), tol=1e-6, tuning=PRODUCTS)
    assert result.plan.family == "conjugate"
    assert result.certificate.relative_gap <= 1e-6
    assert bool(computed) == expected


def test_a_plateau_of_the_gap_between_groups_of_eigenvalues_is_waited_out(monkeypatch):
    """Pairs of nearly equal features: the gap falls, hardly falls for some conjugate gradients, and falls again."""
    monkeypatch.setattr(conjugate, "from_hessian", lambda *_, **__: pytest.fail("a Hessian was computed"))
    rng = np.random.default_rng(0)
    n, d, pairs = 2000, 500, 125
    X = rng.standard_normal((n, d))
    X[:, :pairs] = X[:, pairs : 2 * pairs] + 0.1 * rng.standard_normal((n, pairs))
    X /= X.std(axis=0)
    y = np.sign(X @ rng.standard_normal(d) + 10.0 * rng.standard_normal(n))
    for strength in (10.0, 1.0):
        result = dn.solve(dn.Problem(X, y, losses.Squared(), lam=strength / n), tol=1e-6)
        assert result.plan.family == "conjugate"
        assert result.certificate.relative_gap <= 1e-6
        assert result.n_epochs < result.plan.directions


def test_systems_whose_products_are_in_single_precision_reach_gaps_far_below_it():
    """The residual of each further system is computed in float64."""
    result = dn.solve(dn.Problem(EVEN, SCORE, losses.Squared(), lam=1e-3), tol=1e-11, tuning=PRODUCTS)
    assert result.plan.family == "conjugate"
    assert result.certificate.relative_gap <= 1e-11


def test_gradients_are_summed_in_float32_only_where_the_gap_hardly_changes():
    problem = dn.Problem(EVEN, SCORE, losses.Squared(), lam=1e-3, fit_intercept=True)
    block = Block(problem.data)
    exact = Risk.of(problem, block, as_stored=True)
    x = RNG.standard_normal(D + 1)
    at = exact.at(x, exact.margins(x))
    value, slopes, pull = exact.losses(x, at.margins)
    single = exact.with_single_sums()
    found = single.point(x, at.margins, value, slopes, pull)
    assert found.gradient.dtype == np.float64
    assert (found.gradient != at.gradient).any()
    np.testing.assert_allclose(found.gradient, at.gradient, atol=1e-5 * np.abs(at.gradient).max())
    # The estimate of the gap of the difference is about right.
    gap, error = gap_of(found.gradient - at.gradient, exact), 1e-7 * np.linalg.norm(slopes)
    assert conjugate._is_unnoticed(exact, error, 2e3 * gap)
    assert not conjugate._is_unnoticed(exact, error, 2.0 * gap)


def test_margins_of_a_step_are_computed_in_float32_only_where_the_gap_hardly_changes():
    problem = dn.Problem(EVEN, SIGNS, losses.Logistic(), lam=1e-3)
    block = Block(problem.data)
    exact = Risk.of(problem, block, as_stored=True)
    at = exact.at(np.zeros(D), np.zeros(N))
    system, s = conjugate.System.of(exact.with_single_sums(), at, block, None), RNG.standard_normal(D)
    single = system.images(s, np.inf)
    np.testing.assert_allclose(single, EVEN @ s, atol=1e-5 * np.abs(EVEN @ s).max())
    gap = gap_of(EVEN.T @ (system.weights * (single - EVEN @ s)), exact)
    assert gap > 0.0
    np.testing.assert_array_equal(system.images(s, 2.0 * gap), EVEN @ s)
    np.testing.assert_array_equal(system.images(s, 1e5 * gap), single)


def gap_of(difference, risk):
    """The gap that a gradient of this length leaves."""
    return float(np.square(difference[:D]).sum()) * float(risk.halves.max())


@pytest.mark.parametrize("scale", [1e-30, 1e18, 1e30])
def test_rows_beyond_the_range_of_float32_are_left_to_other_methods(scale):
    problem = dn.Problem(scale * EVEN, SCORE, losses.Squared(), lam=1e-3 * scale**2)
    result = dn.solve(problem, tol=1e-6, tuning=PRODUCTS)
    assert result.plan.family is None
    assert result.certificate.relative_gap <= 1e-6


def test_the_rate_of_the_system_or_of_the_fit_must_suffice():
    pace = conjugate.Pace(most=50, first=1.0, products=10)

    def slow(products, first, gap, pace=pace):
        return pace.is_slow(np.geomspace(first, gap, products + 1), 1e-6)

    assert not slow(conjugate.OBSERVED - 1, 1.0, 2.0)  # too early to tell
    assert not slow(20, 1e-2, 1e-5)
    assert not slow(20, 1e-6, 1e-5)  # it rose in this system only
    assert slow(20, 1.0, 0.5)
    assert slow(41, 1.0, 1e-5)
    assert not slow(41, 1.0, 1e-7)
    assert not slow(1000, 1.0, 0.9, conjugate.ANY)
    assert slow(conjugate.OBSERVED_SPARSE, 1.0, 0.5, pace._replace(observed=conjugate.OBSERVED_SPARSE))
    assert not slow(conjugate.OBSERVED_SPARSE, 1.0, 0.5)


def test_scales_that_a_hessian_in_float32_would_lose_are_left_to_the_general_methods(monkeypatch):
    monkeypatch.setattr(conjugate, "from_hessian", lambda *_, **__: pytest.fail("a Hessian was summed in float32"))
    scales = 10.0 ** np.random.default_rng(5).integers(-2, 6, D)
    problem = dn.Problem(scales * np.exp(EVEN), SCORE, losses.Squared(), lam=1.0 / N, fit_intercept=True)
    assert dn.plan(problem, tuning=PRODUCTS).family is None
    result = dn.solve(problem, tol=1e-6, tuning=PRODUCTS)
    assert result.certificate.relative_gap <= 1e-6
