"""Rounds of SDNA that read a copy of dense rows in float32: when they do, how far they differ, and what ends it."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.objective.certificates import certify_duals
from dualnewton.planning.dual import narrows
from dualnewton.samplings import Shuffled
from dualnewton.solvers.dual.compiled import CompiledEngine
from tuned import tuned
from verified import assert_certificate_is_true

N, D = 600, 400
ALWAYS = tuned(cache_bytes=0.0, narrow_share=1e300)


def make(loss=losses.Logistic(), *, constant=0.0, lam=1.0 / N, dtype=np.float64, **more):  # noqa: B008 (frozen)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, D)) / np.sqrt(D)
    y = np.where(X[:, 0] + 0.05 * rng.standard_normal(N) > 0.0, 1.0, -1.0)
    if constant:
        X[:, 1] = constant * (1.0 + 1e-3 * X[:, 1])
    return dn.Problem(X.astype(dtype), y, loss, lam=lam, **more)


def narrows_by(problem, tol=1e-6, **changes):
    tuning = tuned(**{"cache_bytes": 0.0, **changes})
    plan = dn.plan(problem, method="sdna", tau=8, tuning=tuning)
    return narrows(problem, plan, tol, tuning)


def engine(problem, *, narrow):
    return CompiledEngine([problem], Shuffled(N, 8), [np.zeros(N)], separable_rounds=False, narrow=narrow)


def test_long_dense_rows_that_exceed_the_cache_are_narrowed():
    assert narrows_by(make())
    assert not narrows_by(make(), cache_bytes=8.0 * N * D)
    assert not narrows_by(make(), narrow_entries=N * D - 1)
    assert not narrows_by(make(dtype=np.float32))
    assert not narrows_by(make(losses.Hinge()))
    assert not narrows_by(make(regularizer=regularizers.L2(np.linspace(1.0, 2.0, D))))
    assert not narrows(make(), dn.plan(make(), method="sdna", tau=1), 1e-6, ALWAYS)


def test_rows_are_not_narrowed_where_their_rounding_would_leave_a_gap():
    assert not narrows_by(make(), tol=1e-13)
    assert not narrows_by(make(constant=1e3))
    assert not narrows_by(make(lam=1e-9))
    assert not narrows_by(make(sample_weight=np.full(N, 1e6)))


def test_rows_out_of_the_range_of_float32_are_not_narrowed():
    problem = make()
    assert not narrows_by(dn.Problem(1e-20 * problem.X, problem.y, problem.loss, lam=1e-40))
    assert not narrows_by(dn.Problem(1e20 * problem.X, problem.y, problem.loss, lam=1e40))


def test_narrow_rounds_differ_by_the_rounding_of_the_rows():
    problem = make(fit_intercept=True)
    one, other = (engine(problem, narrow=narrow) for narrow in (False, True))
    assert one.rows.data.dtype == np.float64
    assert other.rows.data.dtype == np.float32
    for each in (one, other):
        rng = np.random.default_rng(1)
        for _ in range(3):
            each.run(Shuffled(N, 8).draw(rng, N // 8))
            each.end_epoch()
            each.adapt(0, 1e-12, 0.0)
    assert 0.0 < np.abs(one.alpha(0) - other.alpha(0)).max() <= 1e-6


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(1.0)])
def test_a_narrow_fit_has_a_true_certificate_after_as_many_epochs(loss):
    problem = make(loss)
    found = [
        dn.solve(problem, method="sdna", tau=8, tol=1e-8, random_state=0, tuning=tuning)
        for tuning in (ALWAYS, replace(ALWAYS, narrow_entries=0))
    ]
    assert not np.array_equal(found[0].alpha, found[1].alpha)  # one is narrow
    assert found[0].n_epochs == pytest.approx(found[1].n_epochs, rel=0.05)
    for result in found:
        assert result.converged
        assert_certificate_is_true(problem, result)


def test_certificates_correct_the_model_of_narrow_rounds():
    """The constant is so large that the rounding errors of the rows exceed the wanted gap by far, but in the changes of w."""
    problem = make(constant=1e3)
    rounds, rng, gaps = engine(problem, narrow=True), np.random.default_rng(0), []
    for _ in range(2):
        for _ in range(30):
            rounds.run(Shuffled(N, 8).draw(rng, N // 8))
            rounds.adapt(0, 0.0, 0.0)
        (pair,) = certify_duals([problem], [rounds.alpha(0)])
        rounds.correct(0, pair.w)
        gaps.append(pair.certificate.relative_gap)
    assert gaps[0] > 1e-7
    assert gaps[1] <= 1e-10
