"""Softmax with kinks and bounds by Newton's method: what scikit-learn finds, on any data, with certificates that hold."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

import dualnewton as dn
from dualnewton import regularizers
from dualnewton.matrix import MemoryData, grams
from dualnewton.planning.tuning import DEFAULT
from dualnewton.planning.working_sets import SetSizes
from dualnewton.solvers.deadline import NEVER
from dualnewton.solvers.prox import model
from dualnewton.solvers.prox.curvature import Probabilities, pseudo_inverse
from dualnewton.solvers.prox.working_set import Everything, Gathered
from tables import WITH_KINKS, name_of
from tuned import tuned
from verified import assert_certificate_is_true

STORAGES = {"dense": np.asarray, "csr": sp.csr_array}


def classes(n=120, d=6, K=3, seed=0, density=1.0):
    """Rows, and classes that a few features tell."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    y = np.argmax(2.0 * X[:, :6] @ rng.standard_normal((min(d, 6), K)) + rng.gumbel(size=(n, K)), axis=1)
    y[:K] = np.arange(K)
    return X, y


def problem_of(regularizer, X, y, lam=0.02, form=(), **more):
    rng, (n, K) = np.random.default_rng(1), (len(y), int(y.max()) + 1)
    if "weights" in form:
        more["sample_weight"] = rng.integers(0, 3, n).astype(float) + (np.arange(n) < K)
    if "offset" in form:
        more["offset"] = 0.3 * rng.standard_normal((n, K))
    return dn.MultinomialProblem(X, y, lam=lam, regularizer=regularizer, fit_intercept="intercept" in form, **more)


@pytest.mark.parametrize("regularizer", WITH_KINKS, ids=name_of)
@pytest.mark.parametrize("form", [(), ("intercept", "weights", "offset")], ids=["plain", "all"])
@pytest.mark.parametrize(
    ("n", "d", "K", "storage"), [(120, 6, 3, "dense"), (40, 60, 4, "dense"), (40, 60, 3, "csr")], ids=str
)
def test_every_penalty_is_solved_to_the_end(regularizer, form, n, d, K, storage):
    X, y = classes(n, d, K, density=0.5)
    problem = problem_of(regularizer, STORAGES[storage](X), y, form=form)
    result = dn.solve(problem, tol=1e-11, max_epochs=300)
    assert result.converged, str(result)
    assert result.plan.method == "newton"
    assert_certificate_is_true(problem, result)


# What others find ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_it_finds_what_scikit_learn_finds(storage, l1_ratio, fit_intercept, weights):
    X, y = classes(100, 8, density=0.6)
    c = np.random.default_rng(2).uniform(0.2, 2.0, 100) if weights else None
    settings = {"C": 0.5, "l1_ratio": l1_ratio, "fit_intercept": fit_intercept}
    theirs = LogisticRegression(**settings, solver="saga", tol=1e-11, max_iter=100_000, random_state=0).fit(X, y, c)
    lam, regularizer = regularizers.mixed(1.0 / (0.5 * 100), l1_ratio)
    more = {"sample_weight": c, "fit_intercept": fit_intercept, "regularizer": regularizer}
    problem = dn.MultinomialProblem(STORAGES[storage](X), y, lam=lam, **more)
    result = dn.solve(problem, tol=1e-13)
    assert result.converged
    np.testing.assert_allclose(result.w, theirs.coef_, atol=1e-6)
    assert np.array_equal(result.w == 0.0, theirs.coef_ == 0.0)
    np.testing.assert_allclose(result.intercept - result.intercept.mean(), theirs.intercept_, atol=1e-6)
    assert problem.primal(theirs.coef_, theirs.intercept_) == pytest.approx(result.certificate.primal, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("near", [regularizers.ElasticNet(1e-9), regularizers.Box(-1e9, 1e9)], ids=name_of)
def test_where_the_kinks_vanish_it_finds_what_the_sketch_finds(near, fit_intercept):
    X, y = classes(K=4)
    one, other = (
        dn.solve(
            dn.MultinomialProblem(X, y, lam=0.01, fit_intercept=fit_intercept, regularizer=g), method=method, tol=1e-13
        )
        for g, method in ((near, "newton"), (None, "ihs"))
    )
    assert (one.plan.method, other.plan.method) == ("newton", "ihs")
    np.testing.assert_allclose(one.w, other.w, atol=1e-6)
    np.testing.assert_allclose(
        one.intercept - one.intercept.mean(), other.intercept - other.intercept.mean(), atol=1e-6
    )


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("l1", "of_one"), [(0.3, 0.6), (0.0, 0.0)], ids=str)
def test_two_classes_are_logistic_regression_with_half_the_ridge(l1, of_one, fit_intercept):
    """½w₀² + ½w₁² + l1(|w₀| + |w₁|) at w₁ = −w₀ = u/2, the best for w₁ − w₀ = u, is ½(½u² + 2 l1|u|)."""
    X, y = classes(K=2)
    two = dn.MultinomialProblem(X, y, lam=0.02, regularizer=regularizers.ElasticNet(l1), fit_intercept=fit_intercept)
    one = dn.Problem(
        X,
        2.0 * y - 1.0,
        dn.losses.Logistic(),
        regularizer=regularizers.ElasticNet(of_one),
        lam=0.01,
        fit_intercept=fit_intercept,
    )
    ours, theirs = dn.solve(two, tol=1e-13), dn.solve(one, method="newton", tol=1e-13)
    np.testing.assert_allclose(ours.w[1] - ours.w[0], theirs.w, atol=1e-7)
    np.testing.assert_allclose(ours.w[0], -ours.w[1], atol=1e-7)
    assert ours.certificate.primal == pytest.approx(theirs.certificate.primal, rel=1e-12)


def test_a_penalty_for_each_feature():
    X, y = classes()
    v = np.array([1.0, 2.0, 4.0, 1.0, 2.0, 4.0])
    weighted = dn.solve(dn.MultinomialProblem(X, y, lam=0.01, regularizer=regularizers.L2(v)), tol=1e-13)
    scaled = dn.solve(dn.MultinomialProblem(X / np.sqrt(v), y, lam=0.01), tol=1e-13)
    assert weighted.converged
    np.testing.assert_allclose(weighted.w * np.sqrt(v), scaled.w, atol=1e-6)


def test_the_names_of_classes_do_not_matter_and_weights_are_repetitions():
    X, y = classes()
    g, times = regularizers.ElasticNet(0.5), np.random.default_rng(3).integers(1, 4, 120)
    more = {"fit_intercept": True, "regularizer": g}
    first = dn.solve(dn.MultinomialProblem(X, y, lam=0.02, sample_weight=times, **more), tol=1e-13)
    turned = dn.solve(dn.MultinomialProblem(X, (y + 1) % 3, lam=0.02, sample_weight=times, **more), tol=1e-13)
    np.testing.assert_allclose(np.roll(first.w, 1, axis=0), turned.w, atol=1e-8)
    rows = np.repeat(np.arange(120), times)
    repeated = dn.solve(dn.MultinomialProblem(X[rows], y[rows], lam=0.02 * 120 / len(rows), **more), tol=1e-13)
    np.testing.assert_allclose(first.w, repeated.w, atol=1e-8)


# The curvature ---------------------------------------------------------------------------------------------------------


def hessian(X, p, c):
    """Σ c_i (diag(p_i) − p_i p_iᵀ) ⊗ ã_i ã_iᵀ, written out, and the places of the features and of the intercepts."""
    A, K = np.column_stack([X, np.ones(len(X))]), p.shape[1]
    Q = np.einsum("ik,kl->ikl", p, np.eye(K)) - np.einsum("ik,il->ikl", p, p)
    H = np.einsum("i,ikl,ia,ib->kalb", c, Q, A, A).reshape(K * A.shape[1], -1)
    features = np.arange(K * A.shape[1]).reshape(K, -1)[:, :-1].ravel()
    return H, features, np.setdiff1d(np.arange(len(H)), features)


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("damping", [0.0, 0.01, 1.0])
def test_the_curvature_is_that_of_the_losses(storage, damping, monkeypatch):
    monkeypatch.setattr(grams, "FEWEST", 7)
    monkeypatch.setattr(grams, "DENSE_PIECE", 50)
    X, _ = classes(40, 5, density=0.5)
    rng = np.random.default_rng(4)
    Z, c, data = 3.0 * rng.standard_normal((40, 3)), rng.uniform(0.0, 2.0, 40), MemoryData(STORAGES[storage](X))
    at, p = Probabilities.at(Z, c, damping), softmax(Z, axis=1)
    mixed = (1.0 - damping) * p + damping / 3.0
    H, features, intercepts = hessian(X, mixed, (1.0 + 0.5 * damping) * c)
    some = np.array([0, 3, 4, 6, 7, 12, 14])
    sizes = SetSizes.of(data, tuned(thin_share=1.0), columns=3, once=False, compiled=False)  # what is sparse stays so
    for source, inside in ((Everything(data), np.arange(15)), (Gathered(data, sizes), some)):
        joint = source.curvature(inside, at, NEVER)
        own = features[inside]
        np.testing.assert_allclose(joint.H, H[np.ix_(own, own)], atol=1e-12)
        np.testing.assert_allclose(joint.border, H[np.ix_(own, intercepts)], atol=1e-12)
        np.testing.assert_allclose(joint.corner, H[np.ix_(intercepts, intercepts)], atol=1e-12)


def test_full_damping_is_more_than_any_curvature():
    rng = np.random.default_rng(5)
    X, Z = rng.standard_normal((30, 2)), rng.choice([0.1, 1.0, 9.0], (30, 1)) * rng.standard_normal((30, 4))
    at, p = Probabilities.at(Z, np.ones(30), 1.0), softmax(Z, axis=1)
    most = hessian(X, at.p, at.c)[0]
    excess = np.linalg.eigvalsh(most - hessian(X, p, np.ones(30))[0])
    assert excess[0] >= -1e-12 * excess[-1]


def test_intercepts_follow_but_for_what_is_flat():
    rng = np.random.default_rng(6)
    Z = rng.standard_normal((50, 4))
    Z[:, 2] = -900.0  # a class that no row expects
    X, at = rng.standard_normal((50, 2)), Probabilities.at(Z, 10.0 ** rng.uniform(-3, 3, 50), 0.0)
    joint = Everything(MemoryData(X)).curvature(np.arange(8), at, NEVER)
    inverse, slope = pseudo_inverse(joint.corner), np.array([0.5, -0.2, 0.0, -0.3])
    assert np.isfinite(inverse).all()
    np.testing.assert_allclose(joint.corner @ (inverse @ slope), slope, atol=1e-9)
    left = joint.reduced(inverse)
    assert np.linalg.eigvalsh(left)[0] >= -1e-12 * np.linalg.norm(left)


# Working sets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGES)
def test_working_sets_find_what_all_coordinates_find(storage, monkeypatch):
    X, y = classes(80, 100, density=0.3)
    problem = problem_of(regularizers.L1(), STORAGES[storage](X), y, form=("intercept",))
    small = tuned(least_set=8, multiply=1.0, sparse_pair=1.0)  # a matrix is so dear that the first sets are small
    sizes, chosen = [], model.chosen_features
    monkeypatch.setattr(model, "chosen_features", lambda *args: sizes.append(len(found := chosen(*args))) or found)
    result = dn.solve(problem, tol=1e-12, tuning=small)
    assert result.converged
    assert "working sets" in result.plan.reason
    assert sizes[0] == 8
    assert max(sizes) < 300
    whole = dn.solve(problem, tol=1e-12, tuning=tuned(least_set=300))
    assert "all features" in whole.plan.reason
    np.testing.assert_allclose(result.w, whole.w, atol=1e-8)


def test_more_coordinates_in_use_than_a_step_may_take():
    X, y = classes(150, 20, 4)
    problem = problem_of(regularizers.ElasticNet(0.1), X, y, 0.003, ("intercept",))
    result = dn.solve(problem, tol=1e-8, max_epochs=2000, tuning=tuned(largest_matrix=20, most_together=20))
    assert result.converged
    assert np.count_nonzero(result.w) > 20


# How it is run -----------------------------------------------------------------------------------------------------------


def test_models_share_passes_and_each_finds_its_own():
    X, y = classes(90, 40)
    ways = [(y, 0.1, None), (y, 0.01, None), ((y + 1) % 3, 0.03, np.linspace(0.0, 2.0, 90))]
    problems = [
        dn.MultinomialProblem(
            X, t, lam=lam, n_classes=3, sample_weight=c, fit_intercept=True, regularizer=regularizers.L1()
        )
        for t, lam, c in ways
    ]
    for problem, result in zip(problems, dn.solve_many(problems, tol=1e-12), strict=True):
        assert result.converged
        assert_certificate_is_true(problem, result)
        np.testing.assert_allclose(result.w, dn.solve(problem, tol=1e-12).w, atol=1e-8)


@pytest.mark.parametrize("storage", STORAGES)
def test_any_number_of_threads_gives_the_same_bits(storage):
    X, y = classes(20_000, 30)
    problem = problem_of(regularizers.L1(), STORAGES[storage](X), y)
    one, three = (dn.solve(problem, n_threads=threads) for threads in (1, 3))
    assert one.converged
    assert np.array_equal(one.w, three.w)


@pytest.mark.parametrize("storage", STORAGES)
def test_float32_data_are_read_as_they_are(storage):
    X, y = classes(2000, 60, density=0.5)
    X = X.astype(np.float32)
    result = dn.solve(problem_of(regularizers.L1(), STORAGES[storage](X), y, form=("intercept",)), tol=1e-9)
    assert result.converged
    wide = problem_of(regularizers.L1(), X.astype(np.float64), y, form=("intercept",))
    assert wide.certify(result.w, result.intercept).relative_gap <= 1e-8


def test_it_starts_where_it_is_told_to():
    X, y = classes(d=30)
    strong, weak = (problem_of(regularizers.L1(), X, y, lam, ("intercept",)) for lam in (0.05, 0.02))
    first = dn.solve(strong, tol=1e-10)
    assert dn.solve(strong, tol=1e-9, warm_start=first).n_epochs == 0.0
    cold = dn.solve(weak, tol=1e-10)
    warm = dn.solve(weak, tol=1e-10, warm_start=first)
    assert warm.trace.gap[0] < cold.trace.gap[0]
    assert dn.solve(weak, tol=1e-10, warm_start=first.alpha).converged
    # From a model in which every coefficient is used: one of each feature's three has to become zero.
    everything = dn.solve(dn.MultinomialProblem(X, y, lam=0.02, fit_intercept=True), tol=1e-6)
    result = dn.solve(weak, tol=1e-10, warm_start=everything)
    assert result.converged
    assert np.count_nonzero(everything.w) == 90
    np.testing.assert_allclose(result.w, cold.w, atol=1e-6)


def hard_data(name):
    rng = np.random.default_rng(0)
    X, y = classes(60, 12)
    return {
        "separable": (X, np.argmax(X[:, :3], axis=1), 1e-6),
        "constant columns": (np.hstack([X, np.ones((60, 2)), np.zeros((60, 1))]), y, 1e-3),
        "twins": (np.hstack([X, X, X[:, :1]]), y, 1e-4),
        "scales": (X * np.logspace(-4, 4, 12), y, 1e-3),
        "an even number of classes": (X, np.arange(60) % 4, 1e-4),
        "a rare class": (X, np.where(np.arange(60) == 7, 2, y % 2), 1e-3),
        "an absent class": (X, np.where(y == 1, 3, y), 1e-3),
        "one class": (X, np.full(60, 2), 1e-3),
        "far from zero": (X + 1e4, y, 1e-3),
        "interpolation": (rng.standard_normal((60, 150)), y, 1e-5),
    }[name]


@pytest.mark.parametrize(
    "name",
    [
        "separable",
        "constant columns",
        "twins",
        "scales",
        "an even number of classes",
        "a rare class",
        "an absent class",
        "one class",
        "far from zero",
        "interpolation",
    ],
)
@pytest.mark.parametrize("regularizer", [regularizers.L1(), regularizers.ElasticNet(0.1)], ids=name_of)
def test_hard_problems_end_with_a_true_certificate(name, regularizer):
    X, y, lam = hard_data(name)
    problem = dn.MultinomialProblem(X, y, lam=lam, n_classes=4, fit_intercept=True, regularizer=regularizer)
    result = dn.solve(problem, tol=1e-8, max_epochs=500)
    assert result.converged, str(result)
    assert_certificate_is_true(problem, result)


def test_a_model_that_rounding_stops_says_so():
    X, y = classes()
    result = dn.solve(problem_of(regularizers.L1(), X, y, form=("intercept",)), tol=0.0, max_epochs=500)
    assert result.status is dn.Status.NO_PROGRESS or result.certificate.gap == 0.0
    assert result.certificate.relative_gap <= 1e-11


# What is planned -------------------------------------------------------------------------------------------------------


def test_the_plan_says_what_will_be_done_and_what_cannot():
    X, y = classes()
    problem = problem_of(regularizers.L1(), X, y)
    chosen = dn.plan(problem)
    assert (chosen.method, chosen.tau, chosen.compiled) == ("newton", 120, False)
    assert (
        chosen
        == dn.plan(problem, method="newton")
        == dn.plan(problem, method="newton", tau=120)
        == dn.solve(problem).plan
    )
    with pytest.raises(ValueError, match=r'method must be "auto" or "newton" for Softmax\(n_classes=\d\) with L1\('):
        dn.plan(problem, method="ihs")
    with pytest.raises(
        ValueError, match=r'method must be "auto", "newton" or "ihs" for Softmax\(n_classes=\d\) with L2\('
    ):
        dn.plan(dn.MultinomialProblem(X, y), method="sdna")
    with pytest.raises(ValueError, match=r'tau must be "auto" or n = 120 with method "newton", got 7$'):
        dn.plan(problem, tau=7)


def test_more_classes_are_more_coordinates_and_cost_more():
    X, _ = classes(500, 60)
    predicted = []
    for K in (2, 4, 8, 16):
        problem = dn.MultinomialProblem(X, np.arange(500) % K, regularizer=regularizers.L1())
        plan = dn.plan(problem)
        predicted.append(plan.cost)
        assert plan.compiled == (DEFAULT.small_entries < 500 * 60 * K)
    assert predicted == sorted(predicted)
