"""Losses with a log link begin near their labels, with many rows by some of them and products in float32."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.solvers.direct import newton, risk
from dualnewton.solvers.direct.block import Block, Limits


@pytest.mark.parametrize("period", [1, 8, 12])
def test_a_log_link_starts_from_the_hessian_of_some_rows(period, monkeypatch):
    """Also where the order of the rows is periodic: the rows chosen have all features."""
    rows, part = [], risk.Risk.part
    monkeypatch.setattr(newton, "_solve_sample", lambda *_: pytest.fail("a sample was solved"))
    monkeypatch.setattr(risk.Risk, "part", lambda self, chosen: rows.append(chosen) or part(self, chosen))
    rng = np.random.default_rng(6)
    A = rng.standard_normal((4200, 6))
    A[np.arange(4200) % period > 0, 3:] = 0.0
    y = rng.poisson(np.exp(0.3 * A @ rng.standard_normal(6)))
    for loss in (losses.Poisson(), losses.Gamma(), losses.Tweedie(1.5)):
        rows.clear()
        problem = dn.Problem(A, y + 1.0, loss, lam=1e-2, fit_intercept=True)
        assert dn.solve(problem, method="newton", tol=1e-9).certificate.relative_gap <= 1e-9
        assert newton.CURVED_ROWS * 7 <= len(rows[0]) < 600
        assert A[rows[0]].any(axis=0).all()


def counts(n, d, scales=1.0, seed=6):
    """A Poisson regression on many rows."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, d))
    y = rng.poisson(np.exp(0.3 * A @ rng.standard_normal(d)))
    return A * scales, y.astype(float)


def test_rows_of_unequal_weights_are_sampled_by_their_effective_number(monkeypatch):
    sampled, part = [], risk.Risk.part
    monkeypatch.setattr(risk.Risk, "part", lambda self, chosen: sampled.append(len(chosen)) or part(self, chosen))
    A, y = counts(8000, 6)
    heavy = np.random.default_rng(0).pareto(1.5, 8000) + 0.1
    for weights in (None, heavy):
        problem = dn.Problem(A, y, losses.Poisson(), lam=1e-2, fit_intercept=True, sample_weight=weights)
        assert dn.solve(problem, method="newton", tol=1e-6).certificate.relative_gap <= 1e-6
    assert 4 * sampled[0] < sampled[1] < 8000
    assert newton._effective(np.full(50, 0.3)) == pytest.approx(50.0)
    assert newton._effective(np.array([0.0, 1e300, 0.0])) == 1.0
    for unusable in (np.zeros(3), np.full(3, 1e308), np.array([1.0, np.nan])):
        with np.errstate(over="ignore"):
            assert newton._effective(unusable) == 0.0


@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 3.0, 5000)])
@pytest.mark.parametrize(("d", "border"), [(5, False), (40, True)])
def test_products_in_float32_change_the_gap_by_about_what_is_predicted(d, border, weights):
    A, y = counts(5000, d, np.geomspace(1e-2, 1e2, d))
    problem = dn.Problem(A, y, losses.Poisson(), lam=1e-3, fit_intercept=True, sample_weight=weights)
    wide = risk.Risk.of(problem, Block(problem.data))
    narrow, x = wide.with_narrow_rows(), np.append(0.01 * np.random.default_rng(1).standard_normal(d), 0.2)
    x[:d] /= np.geomspace(1e-2, 1e2, d)
    assert narrow.border == border
    assert narrow.rows.dtype == np.float32
    margins = narrow.margins(x)
    assert np.abs(margins - wide.margins(x)).max() <= 1e-5
    at, there = narrow.at(x, margins), wide.at(x, margins)
    assert {each.dtype for each in (at.margins, at.gradient)} == {np.dtype(np.float64)}
    _, slopes, _ = wide.losses(x, margins)
    noise = float(np.square(at.gradient - there.gradient) @ wide.halves)
    assert 0.0 < noise <= wide.narrow_noise(slopes)
    assert narrow.gap(at) == pytest.approx(wide.gap(there), rel=1e-4)
    for factor in (0.0, 1e-20, 1e20):
        assert wide.narrow_noise(factor * slopes) == np.inf


def test_products_are_in_float32_only_where_that_is_accurate_enough(monkeypatch):
    called, own = [], risk.Risk.with_narrow_rows
    monkeypatch.setattr(risk.Risk, "with_narrow_rows", lambda self: called.append(1) or own(self))
    for scale, narrow in ((1.0, 1), (1e5, 0)):
        A, y = counts(5000, 10, np.append(np.ones(9), scale))
        problem = dn.Problem(A, y, losses.Poisson(), lam=1e-3, fit_intercept=True)
        called.clear()
        assert dn.solve(problem, tol=1e-5).certificate.relative_gap <= 1e-5
        assert len(called) == narrow


@pytest.mark.parametrize("offset", [None, 0.5 * np.sin(np.arange(400.0))])
@pytest.mark.parametrize("weights", [None, np.linspace(0.1, 2.0, 400)])
def test_a_log_link_starts_near_the_labels(weights, offset, monkeypatch):
    """From w = 0 each of these fits evaluates a point more, or several, and takes as many Hessians or more."""
    called = []
    for name in ("losses", "_gram"):
        own = getattr(risk.Risk, name)
        monkeypatch.setattr(risk.Risk, name, lambda *given, n=name, own=own: called.append(n) or own(*given))
    rng = np.random.default_rng(9)
    A = rng.standard_normal((400, 8))
    mean = np.exp(2.0 + A @ rng.uniform(0.2, 0.6, 8) + (0.0 if offset is None else offset))
    for loss, y in ((losses.Poisson(), rng.poisson(mean)), (losses.Tweedie(1.5), mean * rng.uniform(0.5, 1.5, 400))):
        problem = dn.Problem(
            A, y.astype(float), loss, lam=1e-2, fit_intercept=True, sample_weight=weights, offset=offset
        )
        counts = {}
        for rough in (True, False):
            with monkeypatch.context() as patch:
                if not rough:
                    patch.setattr(type(loss), "rough_fit", lambda *_: None)
                called.clear()
                found = newton.solve(problem, Block(problem.data), None, Limits(1e-4))
                counts[rough] = called.count("losses"), called.count("_gram")
            (pair,) = found.point().certified([problem], [found.point()])  # the dual point may be better than −φ′
            assert pair.certificate.relative_gap <= 1e-4
        assert counts[True][0] < counts[False][0]
        assert counts[True][1] <= counts[False][1]


def test_a_log_link_starts_at_a_constant_where_that_fits_better_than_the_models_of_the_labels():
    """One label of a million: the quadratic models are far from the losses of the other rows."""
    rng = np.random.default_rng(10)
    A = rng.standard_normal((300, 6))
    y = np.zeros(300)
    y[0] = 1e6
    for loss in (losses.Poisson(), losses.Gamma(), losses.Tweedie(1.5)):
        problem = dn.Problem(A, y + 1e-3, loss, lam=1e-2, fit_intercept=True)
        assert dn.solve(problem, tol=1e-8).certificate.relative_gap <= 1e-8
