"""One table of statuses: every kind of run ends in every way, by the same reasons and in the same order."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.objective.unpenalised import Unpenalised
from dualnewton.run.loop import Run
from dualnewton.run.result import Status
from tuned import tuned

RNG = np.random.default_rng(11)
X = RNG.standard_normal((90, 7))
Z = X @ RNG.standard_normal(7) + 2.0 * RNG.standard_normal(90)
SIGNS, FAR = np.where(Z > 0.0, 1.0, -1.0), np.where(np.arange(90) % 9 == 0, 30.0 * Z, Z)

KINDS = {
    "direct": dn.Problem(X, SIGNS, losses.Logistic(), lam=1e-4, fit_intercept=True),
    "smoothing": dn.Problem(X, SIGNS, losses.Hinge(), lam=1e-4, fit_intercept=True),
    "scale": HuberScaleProblem(X, FAR, lam=1e-4, fit_intercept=True),
    "no penalty": Unpenalised(X, SIGNS, losses.Logistic(), fit_intercept=True),
}
by_kind = pytest.mark.parametrize("kind", KINDS)

SAMPLED = tuned(direct_entries=0, aggregated=1.0)
"""Piecewise linear losses are solved on few rows, with the means of the others."""


def after_the_first(action):
    """A callback that acts when some work has been done."""
    return lambda progress: progress.epoch > 0.0 and action()


def press():
    raise KeyboardInterrupt


ENDS = {
    dn.Status.CONVERGED: {"tol": 1e-6},
    dn.Status.STOPPED_BY_CALLBACK: {"callback": after_the_first(lambda: True)},
    dn.Status.INTERRUPTED: {"callback": after_the_first(press)},
    dn.Status.TIME_LIMIT: {"time_limit": 0.0},
    dn.Status.NO_PROGRESS: {"max_epochs": 10**6},
    dn.Status.EPOCH_LIMIT: {"max_epochs": 1},
}


def values(problem, result):
    """P and D of what is returned, computed anew by the objective."""
    scale = () if result.scale is None else (result.scale,)
    if isinstance(problem, Unpenalised):
        primal = problem.unit.loss.value(problem.unit.margins(result.w, result.intercept), problem.y).mean()
    else:
        primal = problem.primal(result.w, result.intercept, *scale)
    return primal, problem.dual(result.alpha)


@by_kind
@pytest.mark.parametrize("status", ENDS, ids=lambda status: status.name)
def test_every_kind_of_run_ends_in_every_way(kind, status, monkeypatch):
    problem, exact = KINDS[kind], dn.Certificate.relative_gap.fget
    # Rounding may leave a gap of exactly zero, which would meet any tolerance.
    monkeypatch.setattr(dn.Certificate, "relative_gap", property(lambda certificate: max(exact(certificate), 1e-17)))
    result = dn.solve(problem, **{"tol": 0.0, "random_state": 0, "certify_every": 1, **ENDS[status]})
    assert result.status is status
    assert values(problem, result) == pytest.approx((result.certificate.primal, result.certificate.dual), rel=1e-13)
    rows = result.trace.rows
    # Near rounding the last certificate is computed again, in extended precision.
    assert abs(result.trace.gap[-1] - result.certificate.gap) <= (result.certificate.rounding or 0.0)
    for one, other in pairwise(rows):
        assert other.certificate.primal <= one.certificate.primal
        assert other.certificate.dual >= one.certificate.dual
        assert other.epoch >= one.epoch
        assert other.seconds >= one.seconds
        assert other.work_seconds >= one.work_seconds


@by_kind
def test_where_several_reasons_hold_the_first_in_the_order_of_the_statuses_is_given(kind):
    ways = {
        dn.Status.CONVERGED: {"tol": 1e9},
        dn.Status.STOPPED_BY_CALLBACK: {"callback": lambda _: True},
        dn.Status.TIME_LIMIT: {"time_limit": 0.0},
        dn.Status.EPOCH_LIMIT: {"max_epochs": 0},
    }
    names = list(ways)
    assert names == [status for status in dn.Status if status in ways]
    for first in range(len(names)):
        settings = {"tol": 0.0} | {name: value for later in names[first:] for name, value in ways[later].items()}
        assert dn.solve(KINDS[kind], **settings).status is names[first]


@by_kind
def test_an_interruption_before_anything_is_recorded_returns_the_start(kind):
    result = dn.solve(KINDS[kind], callback=lambda _: press())
    assert (result.status, len(result.trace), result.n_epochs) == (dn.Status.INTERRUPTED, 1, 0.0)


@by_kind
def test_equal_settings_and_any_number_of_threads_give_equal_bits(kind):
    one, other, threads = (
        dn.solve(KINDS[kind], tol=1e-7, random_state=0, n_threads=n_threads) for n_threads in (1, 1, 2)
    )
    for again in (other, threads):
        np.testing.assert_array_equal(one.w, again.w)
        np.testing.assert_array_equal(one.alpha, again.alpha)
        assert one.scale == again.scale


@by_kind
def test_a_result_is_a_start(kind):
    result = dn.solve(KINDS[kind], tol=1e-8, random_state=0)
    again = dn.solve(KINDS[kind], tol=2e-8, random_state=0, warm_start=result)
    assert again.converged
    assert again.n_epochs == 0.0


def test_a_joint_scale_is_fitted_for_one_problem_at_a_time():
    with pytest.raises(ValueError, match="one at a time, got 2"):
        dn.solve_many([KINDS["scale"]] * 2)


@by_kind
def test_a_key_pressed_between_a_certificate_and_its_record_loses_neither(kind, monkeypatch):
    original, certified = Run._certify, []

    def interrupted(self, points):
        original(self, points)
        certified.extend(points if KINDS[kind] in [track.problem for track in self.tracks] else ())
        if certified:
            raise KeyboardInterrupt

    monkeypatch.setattr(Run, "_certify", interrupted)
    result = dn.solve(KINDS[kind], tol=0.0, random_state=0, certify_every=1)
    assert result.status is dn.Status.INTERRUPTED
    assert len(result.trace) >= 2
    assert result.trace.rows[-1].certificate == result.certificate


@pytest.mark.parametrize(
    ("kind", "other", "words"),
    [
        ("scale", replace(KINDS["scale"], epsilon=1.5), "epsilon=1.35, this run has epsilon=1.5"),
        ("no penalty", KINDS["direct"], "problems=1 Unpenalised, .*this run has problems=1 Problem"),
        ("no penalty", replace(KINDS["no penalty"], fit_intercept=False), "fit_intercept=True, this run has fit_int"),
    ],
)
def test_a_checkpoint_of_another_objective_is_refused_by_what_differs(kind, other, words, tmp_path):
    dn.solve(KINDS[kind], tol=1e-6, random_state=0, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match=words):
        dn.solve(other, tol=1e-6, random_state=0, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("kind", ["scale", "no penalty"])
def test_a_dual_point_alone_is_no_start_for_objectives_with_more_than_a_model(kind):
    with pytest.raises(ValueError, match=r"warm_start must hold results for .*, got a dual point"):
        dn.solve(KINDS[kind], warm_start=np.zeros(90))


def aggregated(n=900):
    rng = np.random.default_rng(12)
    rows = rng.standard_normal((n, 3))
    return dn.Problem(rows, rows.sum(axis=1) + rng.standard_t(3, n), losses.Quantile(0.3), lam=0.01, fit_intercept=True)


@pytest.mark.parametrize("kind", ["smoothing", "scale", "no penalty", "aggregated"])
def test_a_step_of_an_outer_scheme_takes_at_most_one_step_of_its_inner_run(kind, monkeypatch):
    """So that limits, callbacks, checkpoints and Ctrl-C act between any two steps."""
    original, depth, taken = Run.step, [], []

    def counted(run, *limits):
        depth.append(run)
        taken.append(0) if len(depth) == 1 else None
        taken[-1] += len(depth) == 2
        try:
            return original(run, *limits)
        finally:
            depth.pop()

    monkeypatch.setattr(Run, "step", counted)
    problem = KINDS.get(kind) or aggregated()
    method = {"smoothing": "newton", "aggregated": "interior"}.get(kind, "auto")
    result = dn.solve(problem, method=method, tol=1e-7, random_state=0, tuning=SAMPLED, callback=lambda _: False)
    assert result.converged
    assert set(taken) <= {0, 1}
    assert sum(taken) >= 3


@pytest.mark.parametrize("way", [dn.Status.STOPPED_BY_CALLBACK, dn.Status.INTERRUPTED, dn.Status.EPOCH_LIMIT])
@pytest.mark.parametrize("share", [0.15, 0.7], ids=["on the sample", "on kept rows and means"])
def test_a_run_on_fewer_rows_ends_inside_a_smaller_problem_with_a_true_certificate(way, share):
    problem, count = aggregated(), iter(range(1000))
    settings = {"method": "interior", "tol": 1e-8, "random_state": 0, "tuning": SAMPLED, "certify_every": 1}
    whole = dn.solve(problem, **settings)
    asked = {dn.Status.STOPPED_BY_CALLBACK: lambda: True, dn.Status.INTERRUPTED: press}
    limit, steps = int(whole.n_epochs * share), share * len(whole.trace)
    ends = {"callback": lambda _: next(count) >= steps and asked[way]()} if way in asked else {"max_epochs": limit}
    result = dn.solve(problem, **settings, **ends)
    assert result.status is way
    assert 0.0 < result.n_epochs < whole.n_epochs
    assert values(problem, result) == pytest.approx((result.certificate.primal, result.certificate.dual), rel=1e-13)
    assert whole.certificate.dual <= result.certificate.primal < problem.primal(np.zeros(3), 0.0)
    assert result.certificate.relative_gap < 1.0


# The ladder ------------------------------------------------------------------------------------------------------------------

PROOFS = {
    "proved": (Certificate(1.0, 1.0 - 5e-7, rounding=1e-9), Status.CONVERGED, Status.CONVERGED),
    "gap and rounding errors together exceed tol": (Certificate(1.0, 1.0 - 8e-7, rounding=4e-7), None, Status.ROUNDING),
    "rounding errors exceed tol": (Certificate(1.0, 1.0, rounding=2e-6), Status.ROUNDING, Status.ROUNDING),
    "the gap exceeds tol": (Certificate(1.0, 0.9, rounding=0.0), None, Status.NO_PROGRESS),
}


@pytest.mark.parametrize(("found", "running", "final"), PROOFS.values(), ids=PROOFS)
def test_a_certificate_gives_the_status_of_a_run_and_of_a_model_without_one(found, running, final):
    """Steps go on as long as they may help; a model that was computed without steps has the same ladder, and ends."""
    assert Status.of(found, 1e-6, {}) is running
    assert Status.of_final(found, 1e-6) is final
    late = Status.of(found, 1e-6, {Status.TIME_LIMIT: True, Status.NO_PROGRESS: True})
    assert late is (running or Status.TIME_LIMIT)
