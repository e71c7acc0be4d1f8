"""L-BFGS for several classes finds the optimum that the general method finds, from Hessians that are what they are said to be."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.planning.small import small_plan
from dualnewton.planning.tuning import DEFAULT
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.direct import classes, risk
from dualnewton.solvers.direct.block import Block, Limits
from tuned import DIRECT, GENERAL, tuned

N, D, K = 120, 6, 4
RNG = np.random.default_rng(4)
X = RNG.standard_normal((N, D)) * np.geomspace(0.1, 4.0, D) + 0.5
Y = np.argmax(X @ RNG.standard_normal((D, K)) + RNG.gumbel(size=(N, K)), axis=1)
WEIGHTS = RNG.uniform(0.2, 2.0, N)
OFFSET = 0.3 * RNG.standard_normal((N, K))


def problem(X=X, y=Y, lam=1e-2, **rest):
    return dn.Problem(X, y, losses.Softmax(K), lam=lam, **rest)


def solved(own, tol=1e-10, most=50, sizes=USUAL, **rest):
    options = {"passes": 10, "whole": False, **rest}
    return classes.solve(own, Block(own.data, sizes), None, Limits(tol, most), **options)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("whole", [False, True], ids=["a Hessian of each class", "one of all classes"])
@pytest.mark.parametrize("lam", [1.0, 1e-4])
def test_it_finds_what_the_general_method_finds(fit_intercept, whole, lam):
    for weights, offset in itertools.product((None, WEIGHTS), (None, OFFSET)):
        own = problem(lam=lam, sample_weight=weights, offset=offset, fit_intercept=fit_intercept)
        found = solved(own, passes=2, whole=whole)
        general = dn.solve(own, method="newton", tol=1e-11, tuning=GENERAL)
        assert own.certify(found.w, found.intercept).relative_gap <= 1e-10
        np.testing.assert_allclose(found.w, general.w, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("storage", [np.asarray, np.float32, sp.csr_array], ids=["dense", "float32", "csr"])
def test_a_fit_takes_it_and_its_certificate_meets_the_tolerance(storage, monkeypatch):
    seen, solve = [], classes.solve
    monkeypatch.setattr(classes, "solve", lambda *args, **rest: seen.append(rest) or solve(*args, **rest))
    own = problem(storage(X), fit_intercept=True)
    assert small_plan(own, "auto", "auto").family == "classes"
    for tol in (1e-2, 1e-4, 1e-9):
        assert dn.solve(own, tol=tol).certificate.relative_gap <= tol
    assert len(seen) == 3, "every fit is one call"


@pytest.mark.parametrize("d", [1, 2])
def test_one_or_two_features_are_planned_and_solved(d):
    own = problem(X[:, :d], fit_intercept=True)
    assert small_plan(own, "auto", "auto").passes > 0
    assert dn.solve(own, tol=1e-6).certificate.relative_gap <= 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_a_tolerance_of_zero_ends_at_rounding(seed):
    rng = np.random.default_rng(seed)
    rows, labels = rng.standard_normal((20, 5)), rng.integers(0, 3, 20)
    own = dn.Problem(rows, labels, losses.Softmax(3), lam=1e-3 / 20, fit_intercept=True)
    assert dn.solve(own, tol=0.0, max_epochs=1000).certificate.relative_gap <= 1e-13


def test_the_first_hessian_is_exact_where_all_rows_are_alike():
    """At w = 0, S ⊗ G is the Hessian of the losses; its inverse differs by the ridge only."""
    for weights in (None, WEIGHTS):
        own = risk.Risk.of(problem(lam=1e-9, sample_weight=weights, fit_intercept=True), Block(problem().data))
        margins = own.constant(np.array([0.3, -0.5, 0.0, 0.2]))
        factor = np.tril(own.factor(margins))
        hessian = factor @ factor.T
        q = RNG.standard_normal((K, own.size))
        q -= q.mean(axis=0)
        for alike in (True, False):
            step = classes.shared_inverse(own, margins, alike=alike)(q.ravel())
            np.testing.assert_allclose(hessian @ step, q.ravel(), atol=1e-3 * np.abs(q).max())


def test_the_hessians_of_classes_are_the_diagonal_blocks():
    own = risk.Risk.of(problem(fit_intercept=False), Block(problem().data))
    margins = own.margins(0.2 * RNG.standard_normal(own.ridge.size))
    factor = np.tril(own.factor(margins))
    blocks = (factor @ factor.T).reshape(K, D, K, D)
    q = RNG.standard_normal((K, D))
    steps = np.array([np.linalg.solve(blocks[k, :, k], q[k]) for k in range(K)])
    found = classes.inverse_of_each_class(own, margins)(q.ravel()).reshape(K, D)
    np.testing.assert_allclose(found, steps - steps.mean(axis=0), rtol=1e-4, atol=1e-6 * np.abs(steps).max())


@pytest.mark.parametrize(("scale", "tol", "kinds"), [(1.0, 1e-4, [4]), (1.0, 1e-12, [8]), (1e4, 1e-4, [8])])
def test_float32_is_used_where_its_errors_are_small_against_the_wanted_gap(scale, tol, kinds, monkeypatch):
    seen, steps = [], classes.quasi_newton
    monkeypatch.setattr(
        classes, "quasi_newton", lambda own, *args: seen.append(own.rows.dtype.itemsize) or steps(own, *args)
    )
    own = problem(scale * X, lam=1.0 / N, fit_intercept=True)
    found = solved(own, tol=tol, whole=True, sizes=Crossovers(narrowed_entries=0))
    assert sorted(set(seen)) == kinds
    assert own.certify(found.w, found.intercept).relative_gap <= tol


def test_the_gap_that_is_expected_is_about_the_certified_one():
    own = problem(X + 5.0, lam=1.0 / N, fit_intercept=True)
    made = risk.Risk.of(own, Block(own.data))
    for tol in (1e-2, 1e-3, 1e-5):
        found = solved(own, tol=tol)
        x = made.vector(found.w, found.intercept)
        at = made.at(x, made.margins(x))
        certified = own.certify(found.w, found.intercept).gap * N
        assert 0.05 * made.gap(at) <= certified + 1e-12 <= 3.0 * made.gap(at)


def test_a_class_without_weight_and_a_limit_of_steps():
    weights = np.where(Y == 2, 0.0, 1.0)
    own = problem(lam=1.0 / N, sample_weight=weights, fit_intercept=True)
    found = solved(own, tol=1e-6)
    assert own.certify(found.w, found.intercept).relative_gap <= 1e-6
    assert solved(own, most=1).steps == 1
    deadline = classes.solve(own, Block(own.data), None, Limits(1e-9, deadline=0.0), passes=1, whole=False)
    assert deadline.steps < 50


def test_separable_classes_and_a_tiny_penalty_are_left_to_the_general_methods_early():
    y = np.argmax(X[:, :K], axis=1)
    own = problem(1e2 * X, y, lam=1e-9, fit_intercept=True)
    assert solved(own, tol=1e-6).steps < 50
    assert dn.solve(own, tol=1e-4, max_epochs=1000).converged


def test_limits_of_the_plan():
    wide, own = problem(np.tile(X, 60)), problem()
    assert small_plan(own, "auto", "auto", tuning=tuned(class_blocks=1, direct_entries=N)) is None
    assert small_plan(own, "auto", "auto", tuning=tuned(**DIRECT, class_features=D - 1)) is None
    assert small_plan(wide, "auto", "auto").family == "wide"
    assert small_plan(problem(np.tile(X, 30)), "auto", "auto").family == "classes"
    dear = small_plan(own, "auto", "auto", tuning=tuned(**DIRECT, joint_hessian=0.1))
    assert dear.passes > small_plan(own, "auto", "auto").passes >= DEFAULT.joint_passes
    single, dear = (
        small_plan(own, "auto", "auto", tuning=tuned(**DIRECT, one_block_features=1, class_hessian=h))
        for h in (8.0, 0.1)
    )
    assert dear.passes > single.passes >= DEFAULT.class_passes


def test_few_features_get_a_joint_hessian_after_few_steps():
    """It costs less than two passes there; when it was weighed after eight steps only, the fit took 16 steps."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((600, 12))
    scores = rows[:, :5] @ rng.standard_normal((5, K))
    found = dn.LogisticRegression().fit(
        rows, (scores + 0.5 * scores.std() * rng.standard_normal(scores.shape)).argmax(axis=1)
    )
    assert found.plan_.family == "classes"
    assert found.n_iter_[0] <= 10


def test_many_rows_for_each_unknown_and_sparse_rows_are_left_to_the_general_methods():
    rows, tuning = np.ones((5000, 1)) * RNG.standard_normal((5000, 1)), tuned(**DIRECT, small_entries=0)
    y = np.arange(5000) % K
    assert small_plan(problem(rows, y), "auto", "auto", tuning=tuning) is None
    assert small_plan(problem(rows[:1000], y[:1000]), "auto", "auto", tuning=tuning).family == "classes"
    some = sp.csr_array(np.where(X.max() > X, X, 0.0))  # rows that store all entries are treated as dense
    assert small_plan(problem(some), "auto", "auto", tuning=tuning) is None


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weights", [None, WEIGHTS[:60]], ids=["plain", "weighted"])
def test_fewer_examples_than_features_are_solved_on_the_span_of_the_rows(fit_intercept, weights):
    wide = np.random.default_rng(8).standard_normal((60, 200))
    own = problem(wide, Y[:60], lam=1e-2, sample_weight=weights, fit_intercept=fit_intercept)
    plan = dn.plan(own)
    assert (plan.family, plan.inner) == ("wide", "classes")
    found, general = dn.solve(own, tol=1e-9), dn.solve(own, tol=1e-11, tuning=GENERAL)
    assert found.certificate.relative_gap <= 1e-9
    np.testing.assert_allclose(found.w, general.w, atol=1e-4)


def test_a_hessian_that_float32_makes_indefinite_is_summed_in_float64():
    """Features whose means are large against their spread: the smallest curvatures are below the rounding of the sums."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((400, 200)) + rng.choice([300.0, 2000.0], 200)
    own = dn.Problem(A, np.resize([1.0, -1.0], 400), losses.Logistic(), lam=1e-3, fit_intercept=True)
    objective, z = risk.Risk.of(own, Block(own.data, USUAL)), np.zeros(400)
    assert np.linalg.eigvalsh(objective.hessian(z, np.float32)).min() < 0.0
    L = np.tril(objective.factor(z, single=True))
    np.testing.assert_allclose(L @ L.T, objective.hessian(z) + np.diag(objective.ridge), rtol=1e-9)


def test_separable_classes_of_a_weak_penalty_are_solved_with_new_hessians():
    """Σ g_j²/(2λn) exceeds P by orders of magnitude until P is near its minimum; steps from the Hessian at w = 0 do not end."""
    rng = np.random.default_rng(0)
    Z = np.exp(rng.standard_normal((150, 100))) * 10.0 ** rng.integers(-2, 5, 100)
    own = problem(Z, rng.integers(0, K, 150), 1e-4, fit_intercept=True)
    found = solved(own, tol=1e-4, passes=12)
    assert own.certify(found.w, found.intercept).relative_gap <= 1e-4
    left = solved(own, tol=1e-4, passes=12, sizes=Crossovers(joint_classes=0))
    assert own.certify(left.w, left.intercept).relative_gap > 1e-2, "the Hessians of single classes do not suffice"


def test_several_models_are_solved_one_by_one_on_one_block():
    """Beyond the size at which several models of one column would share passes."""
    n, d = 4000, 150
    own = dn.Problem(np.ones((n, d)), np.arange(n) % K, losses.Softmax(K), lam=0.1)
    assert n * d > 2 * DEFAULT.direct_entries // 5
    assert small_plan(own, "auto", "auto", 5).family == "classes"
