"""Newton's method for kinks and bounds: it finds what SDNA and scikit-learn find, on any data, with certificates that hold."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import ElasticNet, LogisticRegression

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.planning.tuning import DEFAULT
from dualnewton.planning.working_sets import SetSizes
from dualnewton.solvers.prox import column_descent as by_columns
from dualnewton.solvers.prox import model
from dualnewton.solvers.prox.newton import Proximal
from tables import LOSSES, WITH_KINKS, labels_for, name_of
from tuned import GENERAL, tuned
from verified import assert_certificate_is_true

SHAPES = [(120, 7, "dense"), (20, 40, "csr")]


def data(n=120, d=7, storage="dense", dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6) * np.logspace(0, 1, d)
    return sp.csr_array(X.astype(dtype)) if storage == "csr" else X.astype(dtype)


def problem_of(loss, regularizer, X, lam=0.02, form=(), **extras):
    rng, n = np.random.default_rng(1), X.shape[0]
    if "weights" in form:
        extras["sample_weight"] = rng.integers(0, 3, n).astype(float) + (np.arange(n) == 0)
    if "offset" in form:
        extras["offset"] = 0.3 * rng.standard_normal(n)
    return dn.Problem(
        X, labels_for(loss, n, rng), loss, regularizer=regularizer, lam=lam, fit_intercept="intercept" in form, **extras
    )


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("regularizer", WITH_KINKS, ids=name_of)
@pytest.mark.parametrize("form", [(), ("intercept", "weights", "offset")], ids=["plain", "all"])
def test_every_loss_with_every_penalty_is_solved_to_the_end(loss, regularizer, form):
    for n, d, storage in SHAPES:
        problem = problem_of(loss, regularizer, data(n, d, storage), form=form)
        result = dn.solve(problem, method="newton", tol=1e-10, max_epochs=300)
        assert result.converged, (n, d, storage, str(result))
        assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()], ids=name_of)
@pytest.mark.parametrize("regularizer", [g for g in WITH_KINKS if g.strongly_convex], ids=name_of)
def test_it_finds_what_sdna_finds(loss, regularizer):
    for form in ((), ("intercept", "weights")):
        problem = problem_of(loss, regularizer, data(60, 4), lam=1.0, form=form)
        newton = dn.solve(problem, method="newton", tol=1e-12)
        sdna = dn.solve(problem, method="sdna", tol=1e-9, max_epochs=20_000, random_state=0)
        # P is λ-strongly convex: ‖w − w*‖² ≤ 2 gap/λ, for both of them.
        distance = sum(np.sqrt(2.0 * r.certificate.gap / problem.lam) for r in (newton, sdna))
        assert np.linalg.norm(newton.w - sdna.w) <= distance + 1e-9


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize(("n", "d"), [(120, 7), (300, 200), (80, 500)], ids=str)
def test_least_squares_as_scikit_learn_solves_it(storage, l1_ratio, fit_intercept, n, d):
    X = data(n, d, storage)
    y = np.random.default_rng(2).standard_normal(n) + X[:, [0]].sum(axis=1)
    alpha = 0.02 * np.abs(X.T @ y).max() / n
    reference = ElasticNet(alpha=alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept, tol=1e-14, max_iter=10**6)
    reference.fit(X, y)
    lam, regularizer = regularizers.mixed(alpha, l1_ratio)
    problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizer, lam=lam, fit_intercept=fit_intercept)
    result = dn.solve(problem, method="newton", tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.w, reference.coef_, atol=1e-6 * np.abs(reference.coef_).max())
    assert result.intercept == pytest.approx(float(reference.intercept_), rel=1e-6, abs=1e-9)
    assert (result.w == 0.0).sum() == (reference.coef_ == 0.0).sum()


@pytest.mark.parametrize(("l1_ratio", "solver"), [(1.0, "liblinear"), (1.0, "saga"), (0.5, "saga")])
def test_logistic_regression_as_scikit_learn_solves_it(l1_ratio, solver):
    X = data(100, 8) / 5.0
    problem = problem_of(losses.Logistic(), regularizers.L2(), X)
    reference = LogisticRegression(
        C=2.0, l1_ratio=l1_ratio, solver=solver, tol=1e-12, max_iter=200_000, fit_intercept=solver == "saga"
    ).fit(X, problem.y)
    lam, regularizer = regularizers.mixed(1.0 / (2.0 * 100), l1_ratio)
    own = dn.Problem(X, problem.y, losses.Logistic(), regularizer=regularizer, lam=lam, fit_intercept=solver == "saga")
    result = dn.solve(own, method="newton", tol=1e-12)
    assert result.converged
    np.testing.assert_allclose(result.w, reference.coef_[0], atol=1e-6 * np.abs(reference.coef_).max())
    assert result.intercept == pytest.approx(float(np.ravel(reference.intercept_)[0]), abs=1e-6)


@pytest.mark.parametrize("regularizer", [regularizers.L1(), regularizers.ElasticNet(0.5)], ids=name_of)
def test_weights_are_repetitions(regularizer):
    X = data(60, 30)
    times = np.random.default_rng(3).integers(0, 4, 60)
    y = labels_for(losses.Logistic(), 60, np.random.default_rng(4))
    weighted = dn.Problem(
        X, y, losses.Logistic(), regularizer=regularizer, lam=0.05, sample_weight=times, fit_intercept=True
    )
    rows = np.repeat(np.arange(60), times)
    repeated = dn.Problem(
        X[rows], y[rows], losses.Logistic(), regularizer=regularizer, lam=0.05 * 60 / times.sum(), fit_intercept=True
    )
    one, other = (dn.solve(problem, method="newton", tol=1e-13) for problem in (weighted, repeated))
    np.testing.assert_allclose(one.w, other.w, atol=1e-8)
    assert one.intercept == pytest.approx(other.intercept, abs=1e-8)


def test_a_strong_penalty_leaves_nothing_and_costs_nothing():
    problem = problem_of(losses.Squared(), regularizers.L1(), data(), lam=1e6, form=("intercept",))
    result = dn.solve(problem, method="newton", tol=1e-12)
    assert result.converged
    assert not result.w.any()
    assert result.intercept == pytest.approx(problem.y.mean())


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_where_no_feature_is_in_use_the_intercept_moves_alone(storage):
    y = np.where(np.arange(90) % 3 == 0, 1.0, -1.0)
    problem = dn.Problem(
        data(90, 900, storage), y, losses.Logistic(), regularizer=regularizers.L1(), lam=100.0, fit_intercept=True
    )
    result = dn.solve(problem, method="newton", tol=1e-12, warm_start=np.zeros(90))
    assert result.converged
    assert not result.w.any()
    assert result.intercept == pytest.approx(-np.log(2.0))


# Working sets ------------------------------------------------------------------------------------------------------------


def sparse_truth(n, d, storage, seed=0, density=1.0):
    """Targets of a few features among many."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    y = X[:, :10] @ rng.standard_normal(10) + 0.3 * rng.standard_normal(n) + 1.0
    return (sp.csr_array(X) if storage == "csr" else X), y


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("loss", [losses.Squared(), losses.Huber(0.5)], ids=name_of)
def test_working_sets_find_what_all_features_find(loss, storage, monkeypatch):
    X, y = sparse_truth(150, 600, storage, density=0.3)
    problem = dn.Problem(X, y, loss, regularizer=regularizers.L1(), lam=0.02, fit_intercept=True)
    small = tuned(
        least_set=8, multiply=1.0, sparse_pair=1.0, repeated_matrix=0
    )  # a matrix is so dear that the first sets are small
    sizes = []
    chosen = model.chosen_features
    monkeypatch.setattr(model, "chosen_features", lambda *args: sizes.append(len(found := chosen(*args))) or found)
    result = dn.solve(problem, method="newton", tol=1e-12, tuning=small)
    assert result.converged
    assert "working sets" in result.plan.reason
    assert sizes[0] == 8
    assert max(sizes) < 600
    whole = dn.solve(problem, method="newton", tol=1e-12, tuning=tuned(least_set=600))
    assert "all features" in whole.plan.reason
    np.testing.assert_allclose(result.w, whole.w, atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_many_sparse_features_are_moved_by_their_entries(fit_intercept, weights, monkeypatch):
    X, y = sparse_truth(2000, 3000, "csr", density=0.01)
    c = np.random.default_rng(1).uniform(0.0, 2.0, 2000) if weights else None
    problem = dn.Problem(
        X, y, losses.Squared(), regularizer=regularizers.L1(), lam=0.0008, sample_weight=c, fit_intercept=fit_intercept
    )
    used = []
    minimise = by_columns.minimise
    monkeypatch.setattr(by_columns, "minimise", lambda *args: used.append(1) or minimise(*args))
    result = dn.solve(problem, method="newton", tol=1e-9, tuning=tuned(entry_fit=0))
    assert used
    assert result.converged
    used.clear()
    by_matrix = dn.solve(problem, method="newton", tol=1e-9, tuning=tuned(matrix_entries=np.inf))
    assert not used
    assert by_matrix.certificate.primal == pytest.approx(result.certificate.primal, rel=1e-8)


def test_sweeps_that_crawl_are_left_for_a_matrix(monkeypatch):
    X, y = sparse_truth(2000, 3000, "csr", density=0.01)
    monkeypatch.setattr(by_columns, "MOST_SWEEPS", 2)
    result = dn.solve(
        dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=0.01),
        method="newton",
        tol=1e-10,
        tuning=tuned(entry_fit=0),
    )
    assert result.converged


def test_more_features_in_use_than_a_step_may_take():
    X, y = sparse_truth(300, 100, "dense")
    few = tuned(largest_matrix=20, most_together=20, repeated_matrix=0)
    problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.ElasticNet(0.01), lam=0.01)
    result = dn.solve(problem, method="newton", tol=1e-8, max_epochs=2000, tuning=few)
    assert result.converged
    assert np.count_nonzero(result.w) > 20


# How it is run -----------------------------------------------------------------------------------------------------------


def test_models_share_passes_and_each_finds_its_own():
    X, y = sparse_truth(100, 400, "dense")
    ways = [(y, 0.3, None), (y, 0.03, None), (-y, 0.1, np.linspace(0.0, 2.0, 100)), (np.abs(y), 0.01, None)]
    problems = [
        dn.Problem(X, t, losses.Squared(), regularizer=regularizers.L1(), lam=lam, sample_weight=c, fit_intercept=True)
        for t, lam, c in ways
    ]
    for problem, result in zip(problems, dn.solve_many(problems, method="newton", tol=1e-12), strict=True):
        assert result.converged
        assert_certificate_is_true(problem, result)
        np.testing.assert_allclose(result.w, dn.solve(problem, method="newton", tol=1e-12).w, atol=1e-9)


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_any_number_of_threads_gives_the_same_bits(storage):
    settings = {"method": "newton"}
    problem = problem_of(losses.SquaredHinge(), regularizers.L1(), data(20_000, 30, storage))
    one, three = (dn.solve(problem, n_threads=threads, **settings) for threads in (1, 3))
    assert np.array_equal(one.w, three.w)


@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_float32_data_are_read_as_they_are(storage):
    problem = problem_of(losses.Logistic(), regularizers.L1(), data(2000, 60, storage, np.float32))
    result = dn.solve(problem, method="newton", tol=1e-9)
    assert result.converged
    wide = dn.Problem(
        problem.X.astype(np.float64), problem.y, problem.loss, regularizer=problem.regularizer, lam=problem.lam
    )
    assert wide.certify(result.w).relative_gap <= 1e-8


def test_it_starts_where_it_is_told_to():
    X, y = sparse_truth(300, 200, "dense")
    strong, weak = (
        dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=lam, fit_intercept=True)
        for lam in (0.1, 0.05)
    )
    first = dn.solve(strong, tol=1e-10)
    again = dn.solve(strong, tol=1e-9, warm_start=first)
    assert again.n_epochs == 0.0
    assert dn.solve(weak, tol=1e-10, warm_start=first).converged
    assert dn.solve(weak, tol=1e-10, warm_start=first.alpha).converged


@pytest.mark.parametrize("name", ["no curvature", "constant columns", "twins", "scales", "one class", "interpolation"])
@pytest.mark.parametrize("regularizer", [regularizers.L1(), regularizers.NonNegative()], ids=name_of)
def test_hard_problems_end_with_a_true_certificate(name, regularizer):
    rng = np.random.default_rng(0)
    X, sign = rng.standard_normal((60, 12)), np.where(rng.random(60) < 0.5, 1.0, -1.0)
    loss, X, y, lam = {
        "no curvature": (losses.Huber(1e-3), X, 100.0 * sign, 1e-3),
        "constant columns": (losses.Logistic(), np.hstack([X, np.ones((60, 2)), np.zeros((60, 1))]), sign, 1e-3),
        "twins": (losses.Squared(), np.hstack([X, X, X[:, :1]]), sign, 1e-4),
        "scales": (losses.Squared(), X * np.logspace(-4, 4, 12), sign, 1e-3),
        "one class": (losses.Logistic(), X, np.ones(60), 1e-3),
        "interpolation": (losses.SquaredHinge(), rng.standard_normal((60, 150)), sign, 1e-5),
    }[name]
    problem = dn.Problem(X, y, loss, regularizer=regularizer, lam=lam, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-8, max_epochs=500)
    assert result.converged or name == "one class"
    assert_certificate_is_true(problem, result)


def test_a_model_that_rounding_stops_says_so():
    result = dn.solve(
        problem_of(losses.Logistic(), regularizers.L1(), data()), method="newton", tol=0.0, max_epochs=500
    )
    assert result.status is dn.Status.NO_PROGRESS or result.certificate.gap == 0.0
    assert result.certificate.relative_gap <= 1e-11


def test_a_line_search_ends_where_steps_are_units_in_the_last_place():
    # Halves of such a step are rounded to the step itself: only the fraction of the whole step shows that nothing is left.
    rng = np.random.default_rng(100)
    X, y = sp.csr_array(np.round(2.0 * rng.standard_normal((3, 3)))), rng.standard_normal(3)
    problem = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=1e-12)
    result = dn.solve(problem, tol=1e-12, max_epochs=1000, tuning=DEFAULT)
    assert result.status in (dn.Status.NO_PROGRESS, dn.Status.CONVERGED)
    assert result.n_epochs < 200


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_a_start_beyond_the_range_of_float64_is_where_the_run_ends(storage):
    # The bounds keep w at 1 at least, where the sum of the losses y e^−z overflows.
    X, y = -np.full((12, 2), 1e8), np.full(12, 1e10)
    bounded = regularizers.Box(np.ones(2), np.full(2, 2.0))
    problem = dn.Problem(storage(X), y, losses.Gamma(), regularizer=bounded, lam=1.0)
    result = dn.solve(problem, method="newton", tuning=GENERAL)
    assert result.status is dn.Status.NO_PROGRESS
    assert result.certificate.relative_gap >= 1.0


@pytest.mark.parametrize("kind", ["logistic", "huber", "softmax"])
@pytest.mark.parametrize("storage", ["dense", "csr"])
def test_a_last_step_uses_the_matrix_of_the_one_before(kind, storage, monkeypatch):
    formed, made, minimum = [], [], model.Model._model_minimum

    def counted(self, inside, *args):
        formed.append(self.known is None)
        made.append(1)
        return minimum(self, inside, *args)

    monkeypatch.setattr(model.Model, "_model_minimum", counted)
    X = data(300, 6, storage)
    if kind == "softmax":
        y = np.random.default_rng(0).integers(0, 3, 300)
        problem = dn.MultinomialProblem(X, y, regularizer=regularizers.L1(), lam=0.02, fit_intercept=True)
    else:
        loss = losses.Logistic() if kind == "logistic" else losses.Huber(0.5)
        problem = problem_of(loss, regularizers.L1(), X, lam=0.01, form=("intercept",))
    for tol in (1e-3, 1e-5, 1e-7, 1e-9):
        result = dn.solve(problem, method="newton", tol=tol, tuning=GENERAL)
        assert result.converged
        assert_certificate_is_true(problem, result)
    assert sum(formed) < len(made)


def test_a_matrix_is_used_again_only_if_it_suffices():
    problem = problem_of(losses.Logistic(), regularizers.L1(), data(300, 6), lam=0.01)
    sizes = SetSizes.of(problem.data, GENERAL, once=False, compiled=False)
    method = Proximal([problem], problem.data, [(np.zeros(6), 0.0)], tol=1e-8, compiled=False, sizes=sizes)
    own = method.models[0]
    for _ in range(4):
        method.step(np.random.default_rng(0), np.inf, np.inf)
    assert own.known is not None
    violations = own.task.penalty.violations(own.place.w, own.place.gradient)
    own.progress = replace(own.progress, factor=0.0)
    assert own._suffices(own.known, violations)
    few = model.Known(np.arange(3), own.known.curvature.only(np.arange(3)))
    assert not own._suffices(few, np.where(np.arange(6) == 5, 1.0, 0.0))  # a coordinate without curvature has to move
    assert own._suffices(few, np.where(np.arange(6) == 2, 1.0, 0.0))
    own.progress = replace(own.progress, factor=1.0)
    assert not own._suffices(own.known, violations) or own.gap <= 0.5e-8 * abs(own.value)


def test_matrices_that_are_kept_have_no_more_entries_than_the_data():
    X, few = data(60, 90), tuned(one_block_features=0, least_set=4)
    problem = problem_of(losses.Logistic(), regularizers.L1(), X, lam=0.01)
    for models, most in ((1, 73), (9, 24)):
        sizes = SetSizes.of(problem.data, few, once=False, compiled=False, models=models)
        assert sizes.kept == most
        method = Proximal([problem], problem.data, [(np.zeros(90), 0.0)], tol=0.0, compiled=False, sizes=sizes)
        for _ in range(3):
            method.step(np.random.default_rng(0), np.inf, np.inf)
        known = method.models[0].known
        assert known is None or known.inside.size <= most
