"""What predictions follow from: conditioning, overlap of rows, spread and use of features; and few calls for all of it."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.protocol import Profile
from dualnewton.planning.costs import Costs
from dualnewton.planning.facts import Facts
from dualnewton.planning.planner import predicted_costs
from tuned import GENERAL, tuned

STORAGES = pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])


def facts_of(X, lam=1e-3, **more):
    y = np.where(np.arange(X.shape[0]) % 2 == 0, 1.0, -1.0)
    return Facts.of(dn.Problem(X, y, losses.Logistic(), lam=lam, **more))


@STORAGES
def test_rows_without_overlap_are_as_easy_as_can_be(storage):
    facts = facts_of(storage(np.eye(30, 40)))
    assert facts.row_overlap == pytest.approx(0.0, abs=1e-12)
    assert facts.difficulty == pytest.approx(1.0)
    assert facts.conditioning > 1.0


@STORAGES
def test_equal_rows_are_as_hard_as_the_conditioning_says(storage):
    facts = facts_of(storage(np.ones((30, 40))))
    assert facts.row_overlap == pytest.approx(30.0)
    assert facts.difficulty == facts.conditioning


def test_rows_in_random_directions_have_the_overlap_of_their_number_over_that_of_features():
    rng = np.random.default_rng(0)
    facts = facts_of(rng.standard_normal((100, 1000)), lam=1e-6)
    assert facts.row_overlap == pytest.approx(0.1, rel=0.2)
    assert facts.difficulty < 10.0 < facts.conditioning
    assert (
        facts_of(rng.standard_normal((100, 50))).row_overlap == np.inf
    )  # more rows than features depend on each other


def test_rows_of_zeros_overlap_with_none():
    X = np.eye(30, 40)
    X[3:20] = 0.0
    assert facts_of(X).row_overlap == pytest.approx(0.0, abs=1e-12)
    assert facts_of(np.zeros((5, 9))).row_overlap == np.inf


@STORAGES
def test_features_of_one_scale_have_no_spread(storage):
    signs = np.where(np.random.default_rng(0).random((64, 6)) < 0.5, 1.0, -1.0)
    assert facts_of(storage(signs)).feature_spread == pytest.approx(0.0, abs=1e-12)
    scales = np.exp(np.arange(6.0))
    spread = facts_of(storage(signs * scales), lam=1e-9).feature_spread
    assert spread == pytest.approx(np.std(2.0 * np.arange(6.0)), rel=1e-6)


def test_a_weak_threshold_leaves_all_features_in_use_and_a_strong_one_few():
    X = np.random.default_rng(0).standard_normal((200, 100))
    weak, strong = (facts_of(X, regularizer=regularizers.ElasticNet(l1)) for l1 in (1e-3, 1e3))
    assert weak.used_features == 100.0
    assert strong.used_features == weak.tuning.used_share * 100
    assert predicted_costs(weak)["newton"] >= predicted_costs(strong)["newton"]
    assert facts_of(X, regularizer=regularizers.NonNegative()).used_features == strong.used_features


@pytest.mark.parametrize("scale", [0.0, 1e-320, 1e-170, 1e170])
@pytest.mark.parametrize("lam", [1e-300, 1.0])
@pytest.mark.parametrize("penalty", [regularizers.L2(), regularizers.L1(), regularizers.ElasticNet(0.1)], ids=str)
def test_predictions_are_numbers_whatever_the_scale(penalty, lam, scale):
    rng = np.random.default_rng(0)
    with np.errstate(under="ignore"):
        X = scale * rng.standard_normal((20, 50))
    y = rng.integers(0, 3, 20)
    with np.errstate(over="ignore", under="ignore"):
        one = Facts.of(dn.Problem(X, np.where(y > 0, 1.0, -1.0), losses.Logistic(), lam=lam, regularizer=penalty))
        several = Facts.of(dn.MultinomialProblem(X, y, lam=lam, n_classes=3, regularizer=penalty))
        for facts in (one, several):
            assert not any(map(np.isnan, predicted_costs(facts).values()))


PACKAGE = str(Path(dn.__file__).parent)

WRONG = tuned(epochs_fixed=-1e9, small_entries=0, direct_entries=0)
"""SDNA seems to cost less than nothing, and no data are small."""


def test_a_tuning_is_used_by_the_run_that_is_given_it():
    X = np.random.default_rng(0).standard_normal((400, 10))
    problem = dn.Problem(X, np.where(X[:, 0] > 0.0, 1.0, -1.0), losses.Logistic(), lam=1e-2)
    usual, other = dn.plan(problem), dn.plan(problem, tuning=WRONG)
    assert (usual.method, other.method) == ("newton", "sdna")
    assert other.compiled
    result = dn.solve(problem, tuning=WRONG, random_state=0)
    assert (result.plan.before or result.plan).method == "sdna"


def test_planning_a_small_problem_takes_few_calls():
    X = np.random.default_rng(0).standard_normal((400, 10))
    problem = dn.Problem(X, np.where(X[:, 0] > 0.0, 1.0, -1.0), losses.Logistic(), lam=1e-2, fit_intercept=True)
    dn.plan(problem, tuning=GENERAL)
    calls = []

    def count(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append(frame.f_code.co_name)

    sys.setprofile(count)
    try:
        dn.plan(problem, tuning=GENERAL)
        general = len(calls)
        dn.plan(problem)
    finally:
        sys.setprofile(None)
    assert general <= 103
    assert calls.count("of") == 2  # Facts.of and Costs.of, once each
    assert len(calls) - general <= 16  # a direct solver needs neither


def test_rows_that_are_gathered_from_a_gpu_are_multiplied_by_the_processor():
    here = Profile(n=2_000_000, d=200_000, stored=100_000_000, pairs=2.5e9, sparse=True, itemsize=4)
    there = replace(here, on_gpu=True)
    assert Costs.of(there).gram(1000) == Costs.of(here).gram(1000)
    assert Costs.of(there).applied(1000) == Costs.of(here).applied(1000)
    assert Costs.of(there).data_pass < 0.1 * Costs.of(here).data_pass
    # A pass is cheap on the GPU, so that fewer rows cost as much as one.
    assert Costs.of(there).first_sketch < Costs.of(here).first_sketch


def test_a_pass_over_float32_rows_in_the_cache_counts_their_conversion():
    """They are half as long as float64 rows, which do not fit into the cache, but not four times as fast."""
    single, double = (Costs.of(Profile(2500, 1100, 2_750_000, 1.5e9, False, size)) for size in (4, 8))
    rates = single.tuning.rates
    assert 4 * single.n * single.d <= rates.cache_bytes < 8 * single.n * single.d
    assert single.data_pass >= single.n * single.d * rates.widened_entry
    assert single.sketch(2500) / single.data_pass < 2.5 * double.sketch(2500) / double.data_pass
