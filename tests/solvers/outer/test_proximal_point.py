"""Losses with a kink: their identities, their smoothed losses, and runs that follow these to the loss itself."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.svm import SVC, SVR

import dualnewton as dn
from dualnewton import losses, regularizers, samplings, theory
from dualnewton.solvers import METHODS
from dualnewton.solvers.outer import proximal_point as smoothing
from kinked_cases import Quantile, problem_for
from tables import NON_SMOOTH, labels_for, make_problem, name_of

by_loss = pytest.mark.parametrize("loss", NON_SMOOTH, ids=name_of)
margins = st.floats(-1e3, 1e3)


# The losses ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*NON_SMOOTH, Quantile()], ids=name_of)
def test_their_identities_hold(loss):
    losses.check(loss)
    assert loss.gamma is None


@by_loss
@given(z=margins, fraction=st.floats(0.0, 1.0), label=st.floats(-50.0, 50.0))
def test_fenchel_and_young(loss, z, fraction, label):
    y = (1.0 if label > 0.0 else -1.0) if isinstance(loss, losses.Margin) else label
    low, high = loss.domain(y)
    u = min(max(low + fraction * (high - low), low), high)
    terms = 1.0 + abs(z) + abs(y)
    assert loss.value(z, y) + loss.conjugate(u, y) - z * u >= -1e-13 * terms
    slope = loss.derivative(z, y)
    assert abs(loss.value(z, y) + loss.conjugate(slope, y) - z * slope) <= 1e-13 * terms
    assert low <= slope <= high


@by_loss
@pytest.mark.parametrize("width", [1.0, 1e-2, 1e-6])
def test_smootheds_lie_below_by_no_more_than_half_their_width(loss, width):
    rng = np.random.default_rng(0)
    z, y = 3.0 * rng.standard_normal(500), labels_for(loss, 500, rng)
    below = loss.value(z, y) - loss.smoothed(width).value(z, y)
    assert below.min() >= -1e-15
    assert below.max() == pytest.approx(0.5 * width * np.abs(loss.domain(y)).max() ** 2)
    u = loss.smoothed(width).derivative(z, y)
    np.testing.assert_allclose(
        loss.smoothed(width).conjugate(u, y) - loss.conjugate(u, y), 0.5 * width * u**2, atol=1e-14
    )


def test_a_smoothed_of_another_loss_is_noticed():
    class Wrong(losses.EpsilonInsensitive):
        def smoothed(self, width):
            return losses.SmoothEpsilonInsensitive(self.epsilon + 0.1, width)

    class Wider(losses.Hinge):
        def smoothed(self, width):
            return losses.SmoothHinge(2.0 * width)

    with pytest.raises(ValueError, match=r"loss smoothed\(0.01\) whose conjugate at u="):
        losses.check(Wrong())
    with pytest.raises(ValueError, match="gamma must equal the width"):
        losses.check(Wider())


def test_what_is_made_of_gamma_refuses_them():
    problem = problem_for(losses.Hinge())
    with pytest.raises(ValueError, match="loss must be smooth for the rates of Section 4"):
        theory.theta(problem, samplings.Serial(problem.n))
    with pytest.raises(ValueError, match="loss must be smooth for the rates"):
        theory.rates(problem, samplings.Nice(problem.n, 2))
    with pytest.raises(ValueError, match="loss must be smooth for the rounds of"):
        METHODS["ihs"](problem, samplings.Nice(problem.n, 2))


# Their problems ------------------------------------------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("intercept", [False, True])
def test_weak_duality(loss, intercept):
    rng = np.random.default_rng(3)
    problem = make_problem(loss, n=12, weights=True, offset=True, lam=0.2, fit_intercept=intercept)
    low, high = loss.domain(problem.y)
    for _ in range(50):
        alpha = problem.balanced(-rng.uniform(low, high))
        assert np.isfinite(problem.dual(alpha))
        assert problem.primal(rng.standard_normal(problem.d), float(intercept)) >= problem.dual(alpha)


@by_loss
def test_a_smoothed_with_shifted_margins_is_a_proximal_step_on_the_dual(loss):
    """D(α) − (μ/2n) Σ c(α − α̂)² + (μ/2n) Σ cα̂² is its dual, for every α and every centre α̂."""
    rng = np.random.default_rng(4)
    problem = make_problem(loss, n=9, weights=True, offset=True, lam=0.3)
    low, high = loss.domain(problem.y)
    alpha, centre, width = -rng.uniform(low, high), -rng.uniform(low, high), 0.37
    step = replace(problem, loss=loss.smoothed(width), offset=problem.o - width * centre)
    pull = 0.5 * width * (problem.c @ (centre**2 - (alpha - centre) ** 2)) / problem.n
    assert step.dual(alpha) == pytest.approx(problem.dual(alpha) + pull, rel=1e-13)


@pytest.mark.parametrize("width", [1.0, 1e-3, 1e-9])
def test_the_best_intercept_of_a_smoothed_problem(width):
    """As the problem evaluates it, but without steps of the size of the width."""
    problem = problem_for(losses.EpsilonInsensitive(0.1), n=40, fit_intercept=True)
    pair = problem.certified_pair(np.zeros(problem.d))
    smoothed = smoothing._Model(problem, smoothing.Known(pair)).smoothed(width)
    w = np.random.default_rng(0).standard_normal(problem.d)
    b = smoothed.best_intercept(w)
    here = smoothed.primal(w, b)
    assert all(here <= smoothed.primal(w, b + by) + 1e-15 for by in np.outer([-1, 1], [1e-10, 1e-4, 1.0]).ravel())


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [*NON_SMOOTH, Quantile()], ids=name_of)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("C", [0.01, 1.0, 100.0])
def test_the_gap_of_the_loss_itself_is_closed(loss, intercept, C):
    problem = problem_for(loss, lam=1.0 / (80 * C), fit_intercept=intercept)
    result = dn.solve(problem, tol=1e-11, random_state=0, method="newton")
    assert result.status is dn.Status.CONVERGED
    assert problem.primal(result.w, result.intercept) - problem.dual(result.alpha) <= 1e-11 * result.certificate.primal


def test_the_certificate_by_hand():
    rng = np.random.default_rng(5)
    X, y, c = rng.standard_normal((30, 4)), np.sign(rng.standard_normal(30)), rng.uniform(0.0, 2.0, 30)
    result = dn.solve(dn.Problem(X, y, losses.Hinge(), lam=0.05, sample_weight=c), tol=1e-10, method="newton")
    primal = (c * np.maximum(0.0, 1.0 - y * (X @ result.w))).mean() + 0.025 * result.w @ result.w
    a_bar = X.T @ (c * result.alpha) / (0.05 * 30)
    dual = (c * y * result.alpha).mean() - 0.025 * a_bar @ a_bar
    assert ((y * result.alpha >= 0.0) & (y * result.alpha <= 1.0)).all()
    assert (primal, dual) == pytest.approx((result.certificate.primal, result.certificate.dual), rel=1e-13)
    assert primal - dual <= 1e-10 * primal


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [losses.Hinge(), losses.EpsilonInsensitive(0.3)], ids=name_of)
def test_it_is_the_model_of_libsvm(loss, sparse, weighted):
    """Whose intercept is unpenalised, too."""
    C, weights = 0.7, np.random.default_rng(0).uniform(0.1, 2.0, 80) if weighted else None
    problem = problem_for(loss, sparse=sparse, lam=1.0 / (80 * C), fit_intercept=True, sample_weight=weights)
    other = (
        SVC(kernel="linear", C=C, tol=1e-12)
        if loss == losses.Hinge()
        else SVR(kernel="linear", C=C, epsilon=0.3, tol=1e-12)
    )
    other.fit(sp.csr_matrix(problem.X) if sparse else problem.X, problem.y, sample_weight=weights)
    coef = np.asarray(other.coef_.todense() if sparse else other.coef_).ravel()
    result = dn.solve(problem, tol=1e-12, method="newton")
    assert np.abs(result.w - coef).max() <= 1e-6 * np.abs(coef).max()
    assert result.intercept == pytest.approx(float(other.intercept_[0]), abs=1e-5)


@pytest.mark.parametrize("method", ["newton", "ihs"])
@pytest.mark.parametrize("loss", [losses.Hinge(), losses.Quantile(0.3)], ids=name_of)
def test_any_primal_method_may_do_the_stages(loss, method):
    problem = problem_for(loss, lam=0.1)
    result = dn.solve(problem, method=method, tol=1e-5, max_epochs=5000, random_state=0)
    assert result.converged
    assert result.plan.method == method
    assert f"{type(loss).__name__} through smoothed losses" in result.plan.reason


def test_a_sampling_may_draw_the_sets():
    problem = problem_for(losses.Hinge(), lam=0.1)
    assert dn.solve(problem, method="sdna", sampling=samplings.Nice(80, 20), tol=1e-4, random_state=0).converged


@pytest.mark.parametrize("regularizer", [regularizers.ElasticNet(0.3), regularizers.NonNegative()], ids=name_of)
def test_other_regularizers(regularizer):
    problem = problem_for(losses.EpsilonInsensitive(0.2), lam=0.05, regularizer=regularizer, fit_intercept=True)
    assert dn.solve(problem, tol=1e-8, max_epochs=5000, method="newton").converged


def test_models_that_share_passes_are_those_that_do_not():
    first = problem_for(losses.Hinge(), lam=0.02, fit_intercept=True)
    weights = np.random.default_rng(1).uniform(0.2, 2.0, first.n)
    problems = [first, replace(first, lam=0.5), replace(first, y=-first.y, sample_weight=weights)]
    together = dn.solve_many(problems, tol=1e-11, method="newton")
    for problem, result in zip(problems, together, strict=True):
        assert result.converged
        np.testing.assert_allclose(result.w, dn.solve(problem, tol=1e-11, method="newton").w, rtol=1e-5, atol=1e-6)


def test_the_trace_holds_certificates_of_the_loss_itself_that_never_get_worse():
    problem = problem_for(losses.Hinge(), lam=0.01, fit_intercept=True)
    result = dn.solve(problem, tol=1e-9, method="newton")
    assert (np.diff(result.trace.primal) <= 0.0).all()
    assert (np.diff(result.trace.dual) >= 0.0).all()
    assert (np.diff(result.trace.epoch) >= 0.0).all()
    assert result.trace.primal[0] == problem.certified_pair(np.zeros(problem.d)).certificate.primal
    assert result.trace.gap[-1] == result.certificate.gap


def test_equal_seeds_give_equal_bits():
    problem = problem_for(losses.Hinge(), lam=0.05)
    one, other = (dn.solve(problem, method="sdna", tol=1e-4, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(one.w, other.w)


# Limits --------------------------------------------------------------------------------------------------------------


def test_limits_hold_across_the_stages():
    problem = problem_for(losses.Hinge(), lam=0.001)
    assert dn.solve(problem, max_epochs=0, method="newton").status is dn.Status.EPOCH_LIMIT
    assert len(dn.solve(problem, max_epochs=0, method="newton").trace) == 1
    few = dn.solve(problem, method="sdna", tau=1, tol=1e-10, max_epochs=12, random_state=0)
    assert few.status is dn.Status.EPOCH_LIMIT
    assert 12 <= few.n_epochs <= 14
    assert dn.solve(problem, tol=1e-12, time_limit=0.0, method="newton").status is dn.Status.TIME_LIMIT
    assert dn.solve(problem, tol=0.0, max_epochs=10**5).status in (dn.Status.NO_PROGRESS, dn.Status.ROUNDING)


def test_a_callback_is_told_certificates_of_the_loss_itself_and_may_stop():
    problem, seen = problem_for(losses.Hinge(), lam=0.001), []
    result = dn.solve(problem, tol=1e-10, callback=seen.append, method="newton")
    known = {(row.certificate.primal, row.certificate.dual) for row in result.trace.rows}
    assert {(row.certificate.primal, row.certificate.dual) for row in seen} == known
    assert len(seen) > len(result.trace)  # within the stages, too
    assert [row.epoch for row in seen] == sorted(row.epoch for row in seen)

    stopped = dn.solve(problem, tol=1e-10, callback=lambda progress: progress.epoch > 3, method="newton")
    assert stopped.status is dn.Status.STOPPED_BY_CALLBACK
    assert stopped.n_epochs < result.n_epochs


def test_an_interrupted_stage_ends_the_run_with_what_it_found():
    problem = problem_for(losses.Hinge(), lam=0.001)

    def press(progress):
        if progress.epoch > 3:
            raise KeyboardInterrupt

    result = dn.solve(problem, tol=1e-10, callback=press, method="newton")
    assert result.status is dn.Status.INTERRUPTED
    assert result.certificate.relative_gap < 1.0

    def at_once(_progress):
        raise KeyboardInterrupt

    for result in dn.solve_many([problem, replace(problem, lam=0.1)], callback=at_once, method="newton"):
        assert (result.status, len(result.trace)) == (dn.Status.INTERRUPTED, 1)


def test_a_result_is_a_start():
    problem = problem_for(losses.Hinge(), lam=0.01, fit_intercept=True)
    result = dn.solve(problem, tol=1e-8, method="newton")
    again = dn.solve(problem, tol=1e-8, warm_start=result, method="newton")
    assert again.converged
    assert again.n_epochs == 0.0
    near = dn.solve(replace(problem, lam=0.011), tol=1e-8, warm_start=result, method="newton")
    assert near.converged
    assert near.trace.gap[0] < 0.1 * dn.solve(problem, max_epochs=0, method="newton").certificate.gap


def test_data_without_any_loss():
    """P* = 0, reached by the intercept alone."""
    X = np.random.default_rng(0).standard_normal((10, 2))
    for loss, y in ((losses.Hinge(), np.ones(10)), (losses.EpsilonInsensitive(0.1), np.full(10, 3.0))):
        result = dn.solve(dn.Problem(X, y, loss, fit_intercept=True), method="newton")
        assert result.converged
        assert result.certificate.primal == pytest.approx(0.0, abs=1e-12)
