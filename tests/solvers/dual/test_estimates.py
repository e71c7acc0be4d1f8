"""Estimates of the gap from some examples, by which the loop certifies dual rounds near the end of a run."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.objective.certificates import certify_duals
from dualnewton.samplings import Shuffled
from dualnewton.solvers.dual import sweeps
from dualnewton.solvers.dual.compiled import CompiledEngine
from dualnewton.solvers.dual.sweeps import Sweeps
from tuned import tuned
from verified import assert_certificate_is_true

N, D, TOL = 1200, 300, 1e-6
LOOP = tuned(round_entries=0, many_round_entries=0)


def make(loss=losses.Logistic(), **more):  # noqa: B008 (frozen)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) / np.sqrt(np.arange(1, D + 1))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X @ rng.standard_normal(D) + 0.3 * rng.standard_normal(N) > 0.0, 1.0, -1.0)
    return dn.Problem(X, y, loss, **{"lam": 1.0 / N, **more})


def method_for(problem, tol=TOL):
    law = Shuffled(N, 8)
    engine = CompiledEngine([problem], law, [np.zeros(N)], separable_rounds=False)
    return Sweeps(engine, law, 1, focus=True, tol=tol)


def solved(problem):
    return dn.solve(problem, method="sdna", tau=8, tol=TOL, random_state=0, tuning=LOOP)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge()])
@pytest.mark.parametrize(
    "more", [{}, {"offset": np.linspace(-1.0, 1.0, N), "sample_weight": np.linspace(0.5, 2.0, N)}], ids=str
)
def test_the_estimate_from_all_examples_is_the_gap(loss, more):
    problem = make(loss, **more)
    method, rng = method_for(problem), np.random.default_rng(1)
    for _ in range(3):
        method.step(rng, np.inf, np.inf)
    (pair,) = certify_duals([problem], [method.point(0).alpha])
    exact = problem.primal(problem.w_of(pair.alpha)) - problem.dual(pair.alpha)
    assert exact > 1e-9
    dual = problem.dual(pair.alpha)
    assert method.engine.estimated(0, N) == pytest.approx((exact, dual), rel=1e-6)
    gap, about = method.engine.estimated(0, N // 8)
    assert 0.3 * exact <= gap <= 3.0 * exact
    assert about == pytest.approx(dual, rel=0.3)
    assert method.engine.dual(0) == pytest.approx(dual, rel=1e-9)
    assert method.engine.dual(0) <= method.engine.largest_dual(0)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(1.0)])
@pytest.mark.parametrize("lam_n", [10.0, 1.0, 0.3])
def test_estimates_save_epochs_and_certificates_that_miss_the_tolerance(loss, lam_n, monkeypatch):
    problem = make(loss, lam=lam_n / N)
    looking = solved(problem)
    monkeypatch.setattr(sweeps, "MANY", N + 1)
    blind = solved(problem)
    assert_certificate_is_true(problem, looking)
    for result in (looking, blind):
        assert result.plan.method == "sdna"
        assert result.converged
    assert looking.n_epochs <= blind.n_epochs
    assert len(looking.trace.rows) <= len(blind.trace.rows)
    if looking.n_epochs < 10.0:  # later, a certificate follows ten steps without one
        assert len(looking.trace.rows) == 2


def test_an_estimate_that_a_certificate_refutes_is_the_last_one(monkeypatch):
    asked = []

    def nothing(self, k, examples):
        asked.append(examples)
        return 0.0, 1.0

    monkeypatch.setattr(CompiledEngine, "estimated", nothing)
    problem = make(losses.SquaredHinge(), lam=0.1 / N)
    result = solved(problem)
    assert result.converged
    assert_certificate_is_true(problem, result)
    assert len(result.trace.rows) > 2
    assert asked == [N // 8]


def test_the_state_has_what_was_estimated():
    problem = make()
    one, rng = method_for(problem), np.random.default_rng(1)
    while np.isnan(one.gap(0)):
        one.step(rng, np.inf, np.inf)
        one.adapt(0, 1e-6, one.residual(0))
    assert one.gap(0) > 0.0
    assert one.objective(0) == pytest.approx(one.engine.dual(0), rel=0.3)
    other, again = method_for(problem, tol=0.0), np.random.default_rng()
    other.restore(one.state())
    again.bit_generator.state = rng.bit_generator.state
    assert (other.gap(0), other.objective(0), other.tol) == (one.gap(0), one.objective(0), TOL)
    assert one.step(rng, np.inf, np.inf) == other.step(again, np.inf, np.inf)
    assert np.array_equal(one.point(0).alpha, other.point(0).alpha)
