"""Small problems are solved by one call and one certificate, and end as the loop would end them."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective.certificates import certify_models
from dualnewton.planning.tuning import DEFAULT
from dualnewton.run import direct, loop, methods
from dualnewton.solvers import protocol
from dualnewton.solvers.direct import newton
from dualnewton.solvers.direct.block import Found
from dualnewton.solvers.direct.method import Direct

HUGE = np.finfo(float).max
RNG = np.random.default_rng(4)
X = RNG.standard_normal((80, 6))
SIGNS = np.where(X @ RNG.standard_normal(6) + RNG.standard_normal(80) > 0.0, 1.0, -1.0)
PROBLEM = dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-3, fit_intercept=True)


@pytest.fixture(autouse=True)
def _general_methods(monkeypatch):
    """These tests are of the direct solvers."""
    monkeypatch.setattr(loop, "DEFAULT", DEFAULT)


def test_one_certificate_is_computed(monkeypatch):
    seen = []

    def counted(*args, **more):
        seen.append(args)
        return certify_models(*args, **more)

    monkeypatch.setattr(protocol, "certify_models", counted)
    result = dn.solve(PROBLEM, tol=1e-6)
    assert len(seen) == len(result.trace) == 1
    assert result.converged
    assert result.certificate == PROBLEM.certify(result.w, result.intercept)


def test_an_interruption_returns_the_start_with_its_certificate(monkeypatch):
    def press(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(newton, "solve", press)
    result = dn.solve(PROBLEM)
    assert (result.status, result.n_epochs) == (dn.Status.INTERRUPTED, 0.0)
    assert result.certificate.primal == pytest.approx(PROBLEM.primal(result.w, result.intercept), rel=1e-14)


def test_a_callback_and_a_checkpoint_change_no_bit(tmp_path):
    problems = [PROBLEM, dn.Problem(X, -SIGNS, losses.Logistic(), lam=1e-2, fit_intercept=True)]
    straight = dn.solve_many(problems, tol=1e-6)
    for settings in ({"callback": lambda _: False}, {"checkpoint": tmp_path / "run"}):
        for one, result in zip(straight, dn.solve_many(problems, tol=1e-6, **settings), strict=True):
            assert np.array_equal(one.w, result.w)
            assert np.array_equal(one.alpha, result.alpha)
            assert one.certificate == result.certificate
            assert (one.plan, one.status) == (result.plan, result.status)


def test_a_limit_is_kept_by_the_loop():
    few = dn.solve(PROBLEM, tol=1e-12, max_epochs=4)
    assert (few.status, few.n_epochs) == (dn.Status.EPOCH_LIMIT, 4.0)
    assert dn.solve(PROBLEM, tol=1e-12, time_limit=0.0).status is dn.Status.TIME_LIMIT


def test_a_second_call_asks_for_a_smaller_gap_and_is_the_last():
    """The loop asks again if the gap meets tol, but not with its rounding errors: equal calls would end at the limit."""
    asked = []

    def solver(problems, block, starts, limits):
        asked.append(limits.tol)
        return [Found(np.zeros(2), 0.0, 1) for _ in problems]

    problem = dn.Problem(np.eye(2), np.ones(2), losses.Hinge(), lam=1.0)
    method = Direct(solver, [problem], None, tol=1e-4)
    stuck = [method.step(None, np.inf, 100.0) and method.is_stuck(0) for _ in range(2)]
    assert stuck == [False, True]
    assert asked[1] < asked[0] == 1e-4
    other = Direct(solver, [problem], None, tol=1e-4)
    other.restore(method.state())
    assert other.is_stuck(0)


@pytest.mark.parametrize("name", ["RidgeCV", "LassoCV", "ElasticNetCV", "Ridge", "Lasso"])
@pytest.mark.parametrize("target", [3.7, 1e6, -1e-6])
@pytest.mark.parametrize("shape", [(90, 6), (30, 40)], ids=["tall", "wide"])
def test_a_constant_target_is_fitted_by_the_intercept(name, target, shape):
    X = np.random.default_rng(0).standard_normal(shape) + 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = getattr(dn, name)().fit(X, np.full(len(X), target))
    assert not model.coef_.any()
    assert model.intercept_ == target
    assert model.certificate_.primal == model.certificate_.dual == 0.0


def test_one_other_target_is_not_constant():
    X = np.random.default_rng(0).standard_normal((90, 6))
    y = np.full(90, 3.7)
    y[40] = 3.8
    problem = dn.Problem(X, y, losses.Squared(), lam=0.1, fit_intercept=True)
    result = dn.solve(problem)
    assert result.w.any()
    constant = dn.solve(replace(problem, y=np.full(90, 3.7)), warm_start=result)  # whatever the start
    assert not constant.w.any()
    assert constant.converged
    without = dn.solve(dn.Problem(X, np.full(90, 3.7), losses.Squared(), lam=0.1))
    assert without.w.any()


def test_a_direct_solver_that_misses_the_tolerance_is_not_called_again(monkeypatch):
    """The loop continues from what it has found; it repeated the call before."""
    calls = []

    def at_zero(problems, block, starts, limits):
        calls.append(limits.tol)
        return [Found(np.zeros(problem.d), 0.0, 1) for problem in problems]

    for module in (direct, methods):
        monkeypatch.setattr(module, "direct_solver", lambda _: at_zero)
    result = dn.solve(PROBLEM, tol=1e-8)
    assert result.converged
    assert calls == [1e-8]
    assert "the direct solution missed tol" in result.plan.reason


# Where w = 0 is the solution ------------------------------------------------------------------------------------------------

ROWS = np.random.default_rng(8).standard_normal((1500, 800))  # too many entries for most direct solvers
STRONG = {
    "lasso": dn.Lasso(alpha=1.0),
    "positive": dn.Lasso(alpha=1.0, positive=True),
    "elastic net": dn.ElasticNet(alpha=2.0),
    "several outputs": dn.MultiTaskLasso(alpha=2.0),
    "logistic": dn.LogisticRegression(C=1e-5, l1_ratio=1.0),
}


def targets_of(name):
    if name == "several outputs":
        return ROWS[:, :2] + 3.0
    return (ROWS[:, 0] > 0.0) * 1 if name == "logistic" else 0.5 * ROWS[:, 0] + 3.0


@pytest.mark.parametrize("name", STRONG)
def test_a_model_without_features_takes_no_step_of_the_loop(name, monkeypatch):
    """The slopes at w = 0 show it before: these fits took a Gram matrix of all features, or several passes."""
    y, planned = targets_of(name), []
    monkeypatch.setattr(loop, "run_plan", lambda *_: planned.append(1))
    model = STRONG[name].fit(ROWS, y)
    assert not model.coef_.any()
    assert model.plan_.method == "none" or model.plan_.family == "thresholds"  # which looks at the same slopes first
    assert not planned
    assert model.certificate_.rounding is not None
    assert model.certificate_.relative_gap <= model.tol
    if name != "logistic":
        np.testing.assert_allclose(model.intercept_, y.mean(axis=0), rtol=1e-12)


def test_a_weaker_penalty_and_a_chosen_method_are_planned():
    y = targets_of("lasso")
    weaker = dn.Lasso(alpha=0.3).fit(ROWS, y)
    assert np.flatnonzero(weaker.coef_).tolist() == [0]
    assert weaker.plan_.method == "newton"
    chosen = dn.Lasso(alpha=1.0, solver="newton").fit(ROWS, y)
    assert not chosen.coef_.any()
    assert chosen.plan_.method == "newton"
    told = []
    seen = dn.Lasso(alpha=1.0, callback=told.append).fit(ROWS, y)
    assert not seen.coef_.any()
    assert told


def test_a_solver_that_fails_from_a_warm_start_is_called_once_more_without_it(monkeypatch, tmp_path):
    starts, solve = [], newton.solve

    def stays(problem, block, start, limits):
        starts.append(start)
        return solve(problem, block, start, limits) if start is None else Found(*start, steps=1)

    other = dn.solve(replace(PROBLEM, lam=1.0))
    cold = dn.solve(PROBLEM, tol=1e-9)
    monkeypatch.setattr(newton, "solve", stays)
    result = dn.solve(PROBLEM, tol=1e-9, warm_start=other)
    assert [start is None for start in starts] == [False, True]
    assert result.converged
    assert result.plan.family == cold.plan.family  # no iterative method follows
    assert np.array_equal(result.w, cold.w)
    # The state between the two calls is data: a run that is continued there calls the solver without the start.
    file = tmp_path / "run"
    for epochs in (1, 1000):
        again = dn.solve(PROBLEM, tol=1e-9, warm_start=other, checkpoint=file, max_epochs=epochs, random_state=0)
    assert np.array_equal(again.w, cold.w)


def test_no_generator_is_made_for_a_direct_solution(monkeypatch):
    problem = dn.Problem(np.eye(4), np.ones(4), losses.Squared(), lam=0.1)
    monkeypatch.setattr(np.random, "default_rng", lambda *_: pytest.fail("a generator was made"))
    assert dn.solve(problem, random_state=0).converged


@pytest.mark.parametrize(
    ("rows", "labels", "loss", "penalty"),
    [
        ([[-HUGE], [0.0], [0.0], [0.0], [0.0]], [1.0, -1.0, -1.0, -1.0, -1.0], losses.Hinge(), regularizers.L2()),
        (
            [[1.0, -HUGE], [HUGE, 2.0], [0.5, 1.0], [1.0, 0.0]],
            [1.0, -1.0, 1.0, -1.0],
            losses.Squared(),
            regularizers.L1(),
        ),
    ],
    ids=["interior points", "thresholds"],
)
def test_solvers_whose_arithmetic_overflows_leave_a_finite_model(rows, labels, loss, penalty):
    problem = dn.Problem(np.array(rows), np.array(labels), loss, regularizer=penalty, lam=0.1, fit_intercept=True)
    result = dn.solve(problem, tol=1e-6, random_state=0)
    assert np.isfinite(result.w).all()
    assert not result.converged
