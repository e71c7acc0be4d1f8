"""Runs that start at their solution on samples of the rows (``solvers/primal/samples.py``)."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.memory import MemoryData
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.planning.costs import Costs
from dualnewton.planning.facts import Facts
from dualnewton.planning.sketching import SketchPolicy
from dualnewton.row_arrays import on_host
from dualnewton.solvers.primal import samples
from fake_device import on_device
from tuned import tuned

SAMPLED = tuned(one_block_features=0, sample_rows=16)
"""Samples pay for problems of a thousand rows."""

UNSAMPLED = tuned(one_block_features=0, sample_share=0.0)

N, D = 4000, 5


def features(n=N, d=D, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def labels(X, classes=2, seed=1):
    rng = np.random.default_rng(seed)
    scores = X @ rng.standard_normal((X.shape[1], classes)) + rng.gumbel(size=(X.shape[0], classes))
    return scores.argmax(axis=1)


def problem(kind, X=None, **more):
    X = features() if X is None else X
    y = labels(X, 4 if kind == "softmax" else 2)
    if kind == "softmax":
        return dn.MultinomialProblem(X, y, fit_intercept=True, **more)
    return dn.Problem(X, 2.0 * y - 1.0, losses.Logistic(), fit_intercept=True, **more)


def same_bits(one, other):
    return one.w.tobytes() == other.w.tobytes() and one.alpha.tobytes() == other.alpha.tobytes()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_the_solution_is_that_of_newtons_method_in_a_few_passes(kind, weighted, passes):
    rng = np.random.default_rng(2)
    extra = {"sample_weight": rng.uniform(0.5, 2.0, N)} if weighted else {}
    posed = problem(kind, **extra)
    result = dn.solve(posed, method="ihs", tol=1e-6, tuning=SAMPLED, random_state=0)
    assert result.converged
    assert "solved first on" in result.plan.reason
    assert passes.count(N) <= 7  # certificates included
    known = dn.solve(posed, method="newton", tol=1e-12, tuning=UNSAMPLED)
    np.testing.assert_allclose(result.w, known.w, atol=1e-3)
    assert result.certificate.primal - known.certificate.dual <= 1e-6 * known.certificate.primal


def test_a_looser_tolerance_takes_fewer_passes(passes):
    posed = problem("logistic")
    counts = []
    for tol in (1e-10, 1e-2):
        passes.clear()
        assert dn.solve(posed, method="ihs", tol=tol, tuning=SAMPLED).certificate.relative_gap <= tol
        counts.append(passes.count(N))
    assert counts[1] < counts[0]


def test_the_last_step_is_mostly_certified_without_being_evaluated(passes):
    """A step that should meet the tolerance, and mostly does, saves its evaluation."""
    posed, counts = problem("logistic"), []
    for share in (0.0, 0.6):
        passes.clear()
        tuning = tuned(**vars_of(SAMPLED), skipped_gap=share)
        for tol in 10.0 ** -np.arange(2, 8):
            assert dn.solve(posed, method="ihs", tol=tol, tuning=tuning, random_state=0).converged
        counts.append(passes.count(N))
    assert counts[1] <= counts[0] - 3


def test_the_last_step_on_a_sample_is_not_evaluated(passes, monkeypatch):
    """A step is taken after each evaluation of a sample, as long as Newton's method gets faster from step to step."""
    grams, weighted_gram = [], MemoryData.weighted_gram

    def counted(self, *args, **more):
        grams.append(self.n)
        return weighted_gram(self, *args, **more)

    monkeypatch.setattr(MemoryData, "weighted_gram", counted)
    tuning = replace(SAMPLED, sample_rows=64)
    assert dn.solve(problem("logistic"), method="ihs", tol=1e-6, tuning=tuning, random_state=0).converged
    sampled = [n for n in passes if n < N]
    assert len(sampled) >= 2
    assert sampled == [n for n in grams if n < N]


@pytest.mark.parametrize(
    ("decrements", "settled", "ends"),
    [
        ((1.0, 0.1), True, True),
        ((1.0, 0.1), False, False),  # one step is not enough away from the solution on a sample
        ((1.0, 0.1, 0.01), False, True),
        ((1.0, 0.9, 0.01), False, False),  # the slower of two counts
        ((1.0, 1e-300, 1e300), False, False),
        ((1e300, 0.0), True, True),
    ],
)
def test_a_step_is_certified_unevaluated_if_those_before_were_fast_enough(decrements, settled, ends):
    costs = Costs(n=16_000, d=60_000, stored=1_300_000, pairs=1e8, sparse=True, itemsize=8)
    policy = SketchPolicy(costs, 1e-6, 0, newton=False)
    policy.state = replace(policy.state, decrements=decrements, settled=settled)
    assert policy.ends(5e-6, 1.0) is ends


def vars_of(tuning):
    return {"one_block_features": tuning.one_block_features, "sample_rows": tuning.sample_rows}


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_equal_settings_give_equal_bits_for_any_number_of_threads(kind):
    tuning = SAMPLED
    posed = problem(kind, features(60_000, 30))
    runs = [dn.solve(posed, method="ihs", n_threads=k, tuning=tuning, random_state=1) for k in (1, 1, 2)]
    assert same_bits(runs[0], runs[1])
    assert same_bits(runs[0], runs[2])


@pytest.mark.parametrize("sparse", [False, True])
def test_rare_features_make_the_run_start_without_samples(sparse, monkeypatch, passes):
    """A feature that 20 of 4000 rows have is in too few rows of a sample; without it there, its coefficient would be unknown."""
    X = features()
    X[:, 0] *= np.arange(N) % 200 == 0
    settled = []
    monkeypatch.setattr(samples, "_settle", lambda *_: settled.append(1))
    posed = problem("logistic", sp.csr_array(X) if sparse else X)
    assert Facts.of(posed, SAMPLED).samples
    result = dn.solve(posed, method="ihs", tol=1e-8, tuning=SAMPLED)
    assert result.converged
    assert not settled


def test_a_rare_class_makes_the_run_start_without_samples(monkeypatch):
    X = features()
    y = np.where(np.arange(N) % 300 == 0, 1.0, -1.0)
    settled = []
    monkeypatch.setattr(samples, "_settle", lambda *_: settled.append(1))
    posed = dn.Problem(X, y, losses.Logistic(), fit_intercept=True)
    assert dn.solve(posed, method="ihs", tol=1e-8, tuning=SAMPLED).converged
    assert not settled


def test_weights_of_few_rows_make_the_run_start_without_samples():
    weights = np.where(np.arange(N) % 50 == 0, 1.0, 1e-6)
    posed = problem("logistic", sample_weight=weights)
    rows = np.arange(0, N, 10)
    sampled = dn.Problem(posed.X[rows], posed.y[rows], posed.loss, sample_weight=weights[rows])
    assert not samples.represents(sampled.data, [sampled])


def test_a_given_tau_or_an_earlier_model_leaves_samples_out(passes):
    posed = problem("logistic")
    start = dn.solve(posed, method="ihs", tol=1e-2, tuning=SAMPLED)
    passes.clear()
    assert dn.solve(posed, method="ihs", tau=500, tuning=SAMPLED).converged
    assert dn.solve(posed, method="ihs", warm_start=start, tuning=SAMPLED).converged
    assert set(passes) == {N}


@pytest.mark.parametrize("kind", [MemoryData, on_device])
def test_a_sample_has_one_random_row_of_each_stratum(kind):
    data = kind(np.ones((10_030, 1)))
    rows, again, others = (on_host(data.strata(np.random.default_rng(seed), 1000)) for seed in (0, 0, 1))
    ends = np.arange(1001) * 10_030 // 1000
    assert ((ends[:-1] <= rows) & (rows < ends[1:])).all()
    assert np.array_equal(rows, again)
    assert abs(np.corrcoef(rows - ends[:-1], others - ends[:-1])[0, 1]) < 0.15
    assert np.bincount(rows - ends[:-1], minlength=10)[:10].min() > 60


def test_auto_starts_on_samples_where_rows_are_many():
    """500000×50: the plan is made from sizes and a few rows."""
    tall = np.broadcast_to(features(1, 50), (500_000, 50))
    facts = Facts.of(dn.Problem(tall, np.ones(500_000), losses.Logistic()))
    assert facts.samples
    assert facts.samples[-1] <= 500_000 / 8


def test_hubers_regression_starts_on_a_sample(passes):
    X = features()
    rng = np.random.default_rng(3)
    y = X @ rng.standard_normal(D) + rng.standard_t(2, N)
    posed = HuberScaleProblem(X, y, lam=1e-3, fit_intercept=True)
    result = dn.solve(posed, tol=1e-8, tuning=SAMPLED, random_state=0)
    assert result.converged
    assert "a sample of" in result.plan.reason
    assert passes.count(N) == 0  # no fit at a fixed scale
    known = dn.solve(posed, tol=1e-12, tuning=UNSAMPLED)
    np.testing.assert_allclose(result.w, known.w, atol=1e-4)
    assert result.scale == pytest.approx(known.scale, rel=1e-4)
