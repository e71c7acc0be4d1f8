"""Huber's regression with a joint scale: the two objectives, the certificate between them, and the runs that close the gap."""

import re
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model._huber import _huber_loss_and_gradient

import dualnewton as dn
from dualnewton.objective import huber_scale
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.planning import small
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.outer.scale_search import FINER, FRACTION, Scales, ScaleSearch
from dualnewton.solvers.protocol import Request
from tuned import tuned


def make(n=60, d=5, *, seed=0, epsilon=1.35, lam=0.01, weights=False, fit_intercept=True, sparse=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = X @ rng.standard_normal(d) + 0.3 * rng.standard_normal(n) + 2.0
    y[::7] += 20.0 * rng.standard_normal(len(y[::7]))
    c = rng.uniform(0.0, 2.0, n) if weights else None
    return HuberScaleProblem(sp.csr_array(X) if sparse else X, y, epsilon, lam, c, fit_intercept)


def feasible_points(problem, rng, count):
    """Random dual points, cut and balanced and shortened into the ball by hand."""
    for size in 10.0 ** rng.uniform(-1.0, 1.0, count):
        alpha = problem.unit.balanced(np.clip(size * rng.standard_normal(problem.unit.n), -1.0, 1.0) * problem.epsilon)
        excess = (problem.unit.c @ alpha**2) / problem.unit.c.sum()
        yield alpha / max(1.0, np.sqrt(excess))


# The two objectives --------------------------------------------------------------------------------------------------


@given(st.integers(0, 10**6), st.floats(1.0, 4.0), st.booleans(), st.booleans())
def test_weak_duality(seed, epsilon, fit_intercept, weights):
    rng = np.random.default_rng(seed)
    problem = make(9, 3, seed=seed, epsilon=epsilon, lam=0.1, fit_intercept=fit_intercept, weights=weights)
    for alpha in feasible_points(problem, rng, 5):
        dual = problem.dual(alpha)
        assert np.isfinite(dual)
        for scale in (0.0, 1e-3, *rng.uniform(0.0, 10.0, 3)):
            b = float(rng.standard_normal()) if fit_intercept else 0.0
            assert problem.primal(rng.standard_normal(3), b, scale) >= dual - 1e-12 * abs(dual)


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_strong_duality_against_brute_force(fit_intercept):
    """P minimised and D maximised by a general solver meet, so neither is too small or too large by any constant."""
    problem = make(8, 2, lam=0.2, fit_intercept=fit_intercept, weights=True)
    unit = problem.unit

    def primal(x):
        return problem.primal(x[:2], x[2] * fit_intercept, np.exp(x[3]))

    options = {"xatol": 1e-9, "fatol": 1e-13, "maxiter": 8000}
    lowest = minimize(primal, np.zeros(4), method="Nelder-Mead", options=options).fun
    constraints = [{"type": "ineq", "fun": lambda a: unit.c.sum() - unit.c @ a**2}]
    if fit_intercept:
        constraints.append({"type": "eq", "fun": lambda a: unit.c @ a})

    def negative_dual(a):
        a_bar = unit.X.T @ (unit.c * a) / (problem.lam * unit.n)
        return -float(unit.c @ (a * unit.y)) / unit.n + 0.5 * problem.lam * float(a_bar @ a_bar)

    highest = -minimize(
        negative_dual,
        np.zeros(8),
        bounds=[(-problem.epsilon, problem.epsilon)] * 8,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    ).fun
    assert highest == pytest.approx(lowest, rel=1e-6)
    result = dn.solve(problem, tol=1e-12)
    assert (result.certificate.primal, result.certificate.dual) == pytest.approx((lowest, highest), rel=1e-6)


def test_it_is_the_objective_of_scikit_learn_divided_by_2n():
    problem = make(30, 4, weights=True)
    rng = np.random.default_rng(1)
    for scale in (0.1, 1.0, 20.0):
        w, b = rng.standard_normal(4), 0.7
        theirs, _ = _huber_loss_and_gradient(
            np.r_[w, b, scale], problem.X, problem.y, problem.epsilon, problem.lam * 30, problem.sample_weight
        )
        assert problem.primal(w, b, scale) == pytest.approx(theirs / 60, rel=1e-13)


def test_a_scale_of_zero_is_the_limit():
    problem = make(20, 3)
    w = np.ones(3)
    at_zero = problem.primal(w, 0.5, 0.0)
    residuals = problem.X @ w + 0.5 - problem.y
    assert at_zero == pytest.approx(1.35 * np.abs(residuals).mean() + 0.5 * problem.lam * 3.0, rel=1e-14)
    assert problem.primal(w, 0.5, 1e-9) == pytest.approx(at_zero, rel=1e-8)


def test_infeasible_dual_points_prove_nothing():
    problem = make(20, 3)
    signs = np.where(np.arange(20) % 2 == 0, 1.0, -1.0)
    assert np.isfinite(problem.dual(signs))
    assert problem.dual(1.01 * signs) == -np.inf  # beyond the ball
    assert problem.dual(np.r_[1.4, -1.4, np.zeros(18)]) == -np.inf  # beyond epsilon
    assert problem.dual(np.r_[1.0, np.zeros(19)]) == -np.inf  # not balanced
    assert make(20, 3, lam=0.0).dual(signs) == -np.inf  # not orthogonal to the features


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_dual_points_whose_squares_underflow_prove_as_much_as_their_multiples(lam):
    rng = np.random.default_rng(0)
    problem = HuberScaleProblem(rng.standard_normal((30, 3)), rng.standard_normal(30), 6.0, lam, None, True)
    alpha = dn.solve(problem, tol=1e-9).alpha
    found = [problem.certified_pair(np.zeros(3), 0.0, 1.0, alpha * factor) for factor in (1.0, 1e-160, 1e-300)]
    for pair in found[1:]:
        assert pair.certificate.dual == pytest.approx(found[0].certificate.dual, rel=1e-12)


def test_the_gap_of_any_model_is_a_squared_distance():
    """P − D = (λ/2)‖w − ᾱ‖² at the best scale without an intercept, where no dual point has to be balanced."""
    problem = make(40, 4, fit_intercept=False)
    w = np.linspace(-1.0, 1.0, 4)
    pair = problem.certified_pair(w)
    alpha = -np.clip((problem.X @ w - problem.y) / pair.scale, -1.35, 1.35)
    assert alpha @ alpha == pytest.approx(40.0, rel=1e-12)
    distance = w - problem.unit.alpha_bar(alpha)
    assert pair.certificate.primal - problem.dual(alpha * (1.0 - 1e-15)) == pytest.approx(
        0.5 * problem.lam * distance @ distance, rel=1e-9
    )


@pytest.mark.parametrize("epsilon", [0.99, 0.0, -1.0, np.nan])
def test_an_epsilon_below_one_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon must be"):
        make(epsilon=epsilon)


# Runs ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lam", [0.0, 1e-6, 0.01, 1.0])
@pytest.mark.parametrize("epsilon", [1.0, 1.35, 2.5])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_joint_gap_is_closed(lam, epsilon, fit_intercept):
    problem = make(lam=lam, epsilon=epsilon, fit_intercept=fit_intercept, weights=True)
    result = dn.solve(problem, tol=1e-10)
    assert result.status is dn.Status.CONVERGED
    primal = problem.primal(result.w, result.intercept, result.scale)
    assert primal - problem.dual(result.alpha) <= 1e-10 * primal
    assert primal == pytest.approx(result.certificate.primal, rel=1e-14)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("lam", [0.01, 1.0])
def test_many_features_do_without_the_joint_step(sparse, fit_intercept, lam):
    """One scale after the other gets to the same point."""
    problem = make(lam=lam, sparse=sparse, fit_intercept=fit_intercept)
    known = dn.solve(problem, tol=1e-12)
    result = dn.solve(problem, tol=1e-9, tuning=tuned(joint_scale_features=0, one_block_features=0))
    assert result.converged
    assert " 0 steps of Newton's method" in result.plan.reason
    assert result.scale == pytest.approx(known.scale, rel=1e-4)
    np.testing.assert_allclose(result.w, known.w, rtol=1e-4, atol=1e-5)


def test_wide_data_do_without_the_joint_step_sooner(monkeypatch):
    """With more features than examples the matrix is singular but for the penalty: a step takes seconds for 2000 of them."""
    monkeypatch.setattr(huber_scale.HuberScaleProblem, "stepped", lambda *_: pytest.fail("a step in all variables"))
    result = dn.solve(make(30, 501), tol=1e-6)
    assert result.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_intercept_and_scale_are_found_in_few_passes_over_the_residuals(seed, monkeypatch):
    """Once steps change P by rounding only, comparing P took 10 halvings, and the search began again from the spread."""
    problem = make(3000, 5, seed=seed)
    found = dn.solve(problem, tol=1e-10)
    calls, sums = [], HuberScaleProblem._sums
    monkeypatch.setattr(HuberScaleProblem, "_sums", lambda *given: calls.append(1) or sums(*given))
    again = problem.certified_pair(found.w, found.intercept * (1.0 + 1e-8), found.scale * (1.0 + 1e-8))
    assert len(calls) <= 4
    assert again.certificate.relative_gap <= 1e-10
    calls.clear()
    assert problem.starting_pair().scale > 0.0
    assert len(calls) <= 12


@pytest.mark.parametrize("method", ["sdna", "sdca"])
@pytest.mark.parametrize("sparse", [False, True])
def test_rounds_at_one_scale_end_where_newton_steps_can_follow(sparse, method):
    """With so weak a penalty the rounds alone took all 1000 epochs, at a relative gap of 0.66."""
    problem = make(300, 20, lam=1e-7, sparse=sparse)
    found = dn.solve(problem, tol=1e-8, method=method, tau=1, max_epochs=1000, random_state=0)
    assert found.status is dn.Status.CONVERGED
    assert found.n_epochs <= 3 * DEFAULT.scale_epochs


def test_a_scale_that_is_the_rounding_of_the_targets_is_zero():
    """Most targets are one number, and the intercept equals it but for rounding: the start has a scale of at most 2e-16."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((200, 5))
    y = np.where(X[:, 0] > 1.0, 1.0, -1.0)
    problem = HuberScaleProblem(X, (y - y.mean()) / y.std(), 1.35, 0.01, fit_intercept=True)
    assert problem.certified_pair(np.zeros(5), float(problem.unit.y.min())).scale < 1e-15
    result = dn.solve(problem, tol=1e-6)
    assert result.certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("lam", [1e-6, 1e-2])
def test_the_search_continues_after_a_direct_fit_at_one_scale(lam, monkeypatch):
    """A small fit at one scale is solved directly; that it misses the joint tolerance must not start the search anew."""
    monkeypatch.setattr(small, "_candidates", lambda *_: ())  # the scales are searched
    result = dn.solve(make(300, 5, lam=lam, fit_intercept=True), tol=1e-10, max_epochs=60)
    assert result.converged
    assert "by 1 fits" in result.plan.reason
    assert result.plan.family is None


def test_a_gap_at_the_rounding_of_the_residuals_ends_the_run():
    """Features of very different scales fit the targets exactly: P is a penalty of 1e-10, residuals have errors of 1e-15."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 300)) * 10.0 ** rng.uniform(-3.0, 3.0, 300)
    y = 3.0 + rng.standard_normal(40)
    result = dn.solve(HuberScaleProblem(X, y, lam=1e-4 / 40, fit_intercept=True), max_epochs=100)
    assert result.certificate.gap <= 1e-15 * np.abs(y).mean()
    assert result.status is dn.Status.NO_PROGRESS


def test_a_start_whose_best_scale_is_zero_needs_no_fit_at_that_scale():
    """Most targets are zero, the best scale of w = 0, but not that of the best model."""
    rng = np.random.default_rng(0)
    X = np.exp(rng.standard_normal((1000, 12)))
    y = (np.log(X).sum(axis=1) / 3.5 + 0.3 * rng.standard_normal(1000) > 0.5) * 1.0
    problem = HuberScaleProblem(X, y, lam=1e-7, fit_intercept=True)
    assert problem.starting_pair().scale == 0.0
    result = dn.solve(problem, tol=1e-9, max_epochs=60)
    assert result.converged
    assert result.scale > 0.1
    assert "EpsilonInsensitive" not in result.plan.reason


def test_a_best_scale_of_zero_is_found_where_newton_steps_are_slow():
    """A target that is the difference of two features, all rounded to cents: Newton steps alone shorten σ by per cents."""
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.standard_normal((200, 6)), axis=0) * [100.0, 300.0, 10.0, 50.0, 3.0, 1.0]
    rates = 5.0 + 0.5 * np.cumsum(rng.standard_normal(200)), 4.0 + 2.0 * rng.standard_normal(200)
    X = np.column_stack([walks + 1000.0, *np.round(rates, 2)])
    problem = HuberScaleProblem(X, np.round(rates[0] - rates[1], 2), lam=5e-7, fit_intercept=True)
    result = dn.solve(problem, tol=1e-5, max_epochs=100)
    assert result.converged
    assert result.scale <= 1e-6
    assert int(re.search(r"(\d+) steps of Newton", result.plan.reason)[1]) <= 15


def test_small_residuals_have_a_small_scale_and_no_fit_at_zero():
    """Noise of 1e-6: its scale is found by Newton steps, and the dual point is accurate although residuals are not."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 20)) * 10.0 ** rng.uniform(-2.0, 4.0, 20)
    y = (X / np.abs(X).max(axis=0)).sum(axis=1) + 1e-6 * rng.standard_normal(1000)
    result = dn.solve(HuberScaleProblem(X, y, lam=1e-8, fit_intercept=True), tol=1e-8, max_epochs=100)
    assert result.converged
    assert 5e-7 < result.scale < 1e-6
    assert "EpsilonInsensitive" not in result.plan.reason


@given(st.integers(0, 10**6), st.floats(-4.0, 4.0), st.booleans())
def test_the_best_scale_is_found_from_any_other(seed, start, fit_intercept):
    problem = make(25, 2, seed=seed, fit_intercept=fit_intercept)
    w = np.random.default_rng(seed).standard_normal(2)
    pair = problem.certified_pair(w, scale=10.0**start)
    for factor in (0.5, 0.999, 1.001, 2.0):
        assert pair.certificate.primal <= problem.primal(w, pair.intercept, factor * pair.scale) * (1.0 + 1e-13)


@pytest.mark.parametrize("stepped", [True, False], ids=["a Newton step", "a fit"])
def test_only_fits_that_bring_little_are_made_more_accurate(stepped):
    """Newton steps in vain had asked the next fit for a relative gap beyond the rounding of float32 rows."""
    problem = make()
    pair = problem.certified_pair(np.zeros(5), 0.0, 1.0)
    search = ScaleSearch([(problem, pair)], Request("auto", "auto", None, 1e-6, None, 1, None), None)
    moved = (pair.w, pair.intercept, pair.scale, None) if stepped else None
    search.known = replace(search.known, moved=moved)
    search.learn(0, pair, pair)
    assert search.known.fraction == (FRACTION if stepped else FINER * FRACTION)


def test_perfect_fits_have_the_scale_zero():
    X = np.random.default_rng(0).standard_normal((20, 3))
    result = dn.solve(HuberScaleProblem(X, np.full(20, 3.0), fit_intercept=True))
    assert result.converged
    assert (result.scale, result.intercept, result.certificate.primal) == (0.0, 3.0, 0.0)
    most = np.r_[np.full(18, 3.0), 100.0, -50.0]  # outliers only
    result = dn.solve(HuberScaleProblem(X, most, lam=10.0, fit_intercept=True), tol=1e-9)
    assert result.converged
    assert result.scale <= 1e-8


def test_limits_callbacks_and_starts():
    problem, seen = make(lam=1e-4), []
    result = dn.solve(problem, tol=1e-10, callback=seen.append)
    assert seen[-1].certificate == result.certificate
    assert (np.diff(result.trace.gap) <= 0.0).all()
    assert dn.solve(problem, max_epochs=0).status is dn.Status.EPOCH_LIMIT
    assert dn.solve(problem, time_limit=0.0).status is dn.Status.TIME_LIMIT
    assert dn.solve(problem, tol=0.0, callback=lambda _: True).status is dn.Status.STOPPED_BY_CALLBACK
    assert dn.solve(problem, tol=1e-9, warm_start=result).n_epochs == 0.0

    def press(progress):
        if progress.epoch > 0.0:
            raise KeyboardInterrupt

    assert dn.solve(problem, tol=0.0, callback=press).status is dn.Status.INTERRUPTED


def test_the_dual_point_zero_without_a_feasible_one():
    """More features than rows: no other dual point is orthogonal to them."""
    assert make(5, 20, lam=0.0).starting_pair().certificate.dual == 0.0


def test_an_intercept_that_the_problem_does_not_have():
    result, without = dn.solve(make()), make(fit_intercept=False)
    assert without.starting_pair(result).intercept == 0.0
    with pytest.raises(dn.DualnewtonError, match="intercept must be 0"):
        without.certified_pair(result.w, result.intercept, result.scale)


def test_a_singular_matrix_is_solved_in_the_least_squares_sense():
    H = np.diag([2.0, 0.0, 4.0])
    np.testing.assert_allclose(huber_scale._solved(H, np.array([2.0, 0.0, 8.0])), [1.0, 0.0, 2.0])


def test_a_best_scale_of_zero_after_zero_was_tried():
    """Residuals that vanish: the search returns to the scale zero, whose logarithm does not exist."""
    assert Scales(1.0, tiny=-1.0).after(0.0).scale == 0.0
    assert 0.0 < Scales(1e10, tiny=-1.0).after(1e-320).scale < 1e-300  # the quotient underflows


def test_the_interior_point_method_is_refused_by_name():
    problem = make()
    with pytest.raises(dn.DualnewtonError, match='"interior" needs a piecewise linear loss'):
        dn.solve(problem, method="interior")
