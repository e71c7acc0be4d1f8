"""RidgeCV finds what scikit-learn's finds, and its formula for one row at a time is what fits without that row would say."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV as Theirs
from sklearn.metrics import make_scorer, mean_absolute_error
from sklearn.model_selection import GridSearchCV, KFold, LeaveOneOut, ShuffleSplit

import dualnewton as dn
from dualnewton.estimators.model_selection import _least_squares
from dualnewton.estimators.model_selection._least_squares import leave_one_out
from dualnewton.planning.tuning import DEFAULT
from estimators.cases import relative
from tuned import tuned

ALPHAS = np.logspace(-2, 3, 6)
SHAPES = {"tall": (50, 5), "wide": (20, 30)}


def data(shape, outputs, kind="dense", weighted=False, seed=0):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) + 1.0
    Y = X @ rng.standard_normal((d, max(outputs, 1))) + 3.0 * rng.standard_normal((n, max(outputs, 1))) + 2.0
    X = sp.csr_array(X * (X > 0.5)) if kind == "CSR" else X
    return X, Y[:, 0] if outputs == 0 else Y, rng.integers(1, 4, n).astype(float) if weighted else None


def assert_same(ours, theirs, tol=1e-7):
    for name in ("alpha_", "best_score_", "coef_", "intercept_", "cv_results_"):
        if hasattr(theirs, name):
            mine, other = getattr(ours, name), getattr(theirs, name)
            # Without intercepts, theirs has one zero for all outputs.
            assert np.shape(mine) == np.shape(other) or not (ours.fit_intercept or name != "intercept_")
            assert np.allclose(mine, other, rtol=tol, atol=tol * np.abs(other).max())
    assert max(certificate.relative_gap for certificate in ours.certificates_.ravel()) <= 1e-9


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("kind", ["dense", "CSR"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("scoring", [None, "neg_mean_absolute_error"])
def test_one_row_at_a_time_is_scikit_learns(shape, outputs, kind, weighted, fit_intercept, scoring):
    X, y, weights = data(shape, outputs, kind, weighted)
    settings = {"scoring": scoring, "store_cv_results": True, "fit_intercept": fit_intercept}
    assert_same(dn.RidgeCV(ALPHAS, **settings).fit(X, y, weights), Theirs(ALPHAS, **settings).fit(X, y, weights))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scoring", [None, "r2"])
def test_each_output_may_have_its_own_alpha(shape, scoring):
    X, Y, _ = data(shape, 3)
    Y = Y + np.array([0.0, 30.0, 100.0]) * np.random.default_rng(1).standard_normal(Y.shape)
    settings = {"alpha_per_target": True, "scoring": scoring}
    ours, theirs = dn.RidgeCV(ALPHAS, **settings).fit(X, Y), Theirs(ALPHAS, **settings).fit(X, Y)
    assert_same(ours, theirs)
    assert len(set(ours.alpha_)) > 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_formula_says_what_fits_without_each_row_say(shape, fit_intercept):
    X, y, weights = data(shape, 0, weighted=True)
    weights[[2, 5]] = 0.0
    model = dn.RidgeCV([0.7], scoring="r2", store_cv_results=True, fit_intercept=fit_intercept).fit(X, y, weights)
    for i in range(len(y)):
        rest = np.delete(np.arange(len(y)), i)
        without = dn.Ridge(0.7, fit_intercept=fit_intercept, tol=1e-13).fit(X[rest], y[rest], weights[rest])
        assert without.predict(X[[i]])[0] == pytest.approx(model.cv_results_[i, 0], rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("large", [0, 1500], ids=["in passes", "by decompositions"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("outputs", "kind", "weighted"), [(0, "dense", True), (3, "CSR", False)])
@pytest.mark.parametrize(
    "settings",
    [{"cv": 4}, {"cv": ShuffleSplit(5, random_state=0), "scoring": "neg_mean_squared_error"}],
    ids=["R²", "squared error, overlapping folds"],
)
def test_folds_are_a_grid_search(monkeypatch, large, shape, outputs, kind, weighted, settings):
    monkeypatch.setattr(dn.RidgeCV, "_tuning", tuned(fold_decomposition=large))
    X, y, weights = data(shape, outputs, kind, weighted)
    ours = dn.RidgeCV(ALPHAS, tol=1e-11, **settings).fit(X, y, weights)
    search = GridSearchCV(dn.Ridge(tol=1e-12), {"alpha": ALPHAS}, **settings).fit(X, y, sample_weight=weights)
    assert ours.alpha_ == search.best_params_["alpha"]
    means = np.array([np.mean(each) for each in ours.scores_])
    if weights is None:  # whether the scores of a search are weighted depends on the version
        assert relative(means, search.cv_results_["mean_test_score"]) < 1e-6
        assert ours.best_score_ == pytest.approx(search.best_score_, rel=1e-6)
    assert relative(ours.coef_, search.best_estimator_.coef_) < 1e-6
    assert ours.certificates_.shape == (6, len(ours.scores_[0]), max(outputs, 1))


@pytest.mark.parametrize("shape", SHAPES)
def test_the_tuning_says_whether_each_alpha_has_its_own_factor(monkeypatch, shape):
    X, y, _ = data(shape, 0)
    models = []
    for most, reason in ((0, "eigendecomposition"), (len(ALPHAS), "factor")):
        monkeypatch.setattr(dn.RidgeCV, "_tuning", tuned(spectrum_factors=most))
        models.append(dn.RidgeCV(ALPHAS, cv=3).fit(X, y))
        assert reason in models[-1].plan_.reason
    assert relative(models[0].scores_, models[1].scores_) < 1e-9


def test_folds_of_one_row_agree_with_the_formula():
    X, y, _ = data("tall", 0)
    settings = {"scoring": "neg_mean_squared_error"}
    formula = dn.RidgeCV(ALPHAS, **settings).fit(X, y)
    folds = dn.RidgeCV(ALPHAS, cv=LeaveOneOut(), **settings).fit(X, y)
    assert folds.alpha_ == formula.alpha_
    assert folds.best_score_ == pytest.approx(formula.best_score_, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("rows", ["weighted", "ignored", "twice", "heavy"])
def test_an_inverse_for_each_alpha_agrees_with_the_eigenvalues(rows, fit_intercept):
    """Rows that occur twice make the matrix of a small alpha singular, a heavy row leaves little beside the intercept."""
    X, y, weights = data("wide", 2, weighted=True)
    if rows == "ignored":
        weights[::3] = 0.0
    if rows == "twice":
        X[10:], y[10:], weights[10:] = X[:10], y[:10] + 1.0, weights[:10]
    if rows == "heavy":
        weights[1] = 1e13 if fit_intercept else 1e5  # more than that costs the eigenvalues digits, but not the inverse
    alphas = np.array([1e-13, 10.0]) if rows == "twice" else np.array([0.1, 1.0, 10.0])
    matrix, settings = dn.Problem(X, y[:, 0], dn.losses.Squared(), lam=1.0).data, {"fit_intercept": fit_intercept}
    inverse, spectrum = (
        leave_one_out(matrix, y, weights, alphas, replace(DEFAULT, spectrum_factors=most), **settings)
        for most in (3 * len(alphas), 0)
    )
    assert spectrum.decomposed
    assert inverse.decomposed == (rows == "twice" or (rows == "heavy" and fit_intercept))
    for one, other in ((inverse.errors, spectrum.errors), (inverse.W, spectrum.W), (inverse.b, spectrum.b)):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * np.abs(other).max())


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_folds_keep_their_digits_where_features_are_far_from_zero(shift):
    X, y, _ = data("tall", 0)
    near, far = (dn.RidgeCV(ALPHAS, cv=KFold(5)).fit(X + move, y) for move in (0.0, shift))
    assert relative(far.coef_, near.coef_) < 1e-6
    assert relative(far.scores_, near.scores_) < 1e-6


def test_alpha_may_be_zero_where_there_are_folds():
    X, y, _ = data("tall", 0)
    y = X.sum(axis=1) + 0.1 * y
    ours = dn.RidgeCV([0.0, 1e6], cv=3).fit(X, y)
    assert ours.alpha_ == 0.0
    assert relative(ours.coef_, Theirs([0.0, 1e6], cv=3).fit(X, y).coef_) < 1e-8


def test_a_scorer_may_be_any_callable():
    X, y, weights = data("tall", 0, weighted=True)
    scorer = make_scorer(mean_absolute_error, greater_is_better=False)
    ours = dn.RidgeCV(ALPHAS, scoring=scorer).fit(X, y, weights)
    assert_same(ours, Theirs(ALPHAS, scoring=scorer).fit(X, y, weights))


@pytest.mark.parametrize(("settings", "error", "message"), [
    ({"alphas": [1.0, 0.0]}, ValueError, r"alphas\[1\] == 0.0, must be > 0.0 and finite, since cv=None leaves out one row"),
    ({"alphas": [1.0, -2.0], "cv": 3}, ValueError, r"alphas\[1\] == -2.0, must be >= 0.0"),
    ({"alphas": [1.0, "x"]}, TypeError, r"alphas\[1\] must be an instance of float, not str"),
    ({"alphas": []}, ValueError, "alphas must be a number or a list"),
    ({"cv": 3, "store_cv_results": True}, ValueError, "cv!=None and store_cv_results=True"),
    ({"cv": 3, "alpha_per_target": True}, ValueError, "cv!=None and alpha_per_target=True"),
])  # fmt: skip
def test_what_cannot_be_tried_is_refused(settings, error, message):
    X, y, _ = data("tall", 0)
    with pytest.raises(error, match=message):
        dn.RidgeCV(**settings).fit(X, y)


def test_the_choice_names_the_score_by_which_it_was_made():
    X, y = load_iris(return_X_y=True)
    assert dn.RidgeClassifierCV(ALPHAS, cv=3).fit(X, y).choice_certificate_.scoring == "accuracy"
    assert dn.RidgeCV(ALPHAS, cv=3).fit(X, y).choice_certificate_.scoring == "r2"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ["dense", "CSR"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_singular_values_agree_with_eigenvalues(shape, kind, fit_intercept, monkeypatch):
    X, Y, c = data(shape, 2, kind, weighted=True)
    c[[1, 7]] = 0.0
    given = dn.Problem(X, Y[:, 0], dn.losses.Squared(), lam=1.0).data, Y, c, ALPHAS, DEFAULT
    usual = leave_one_out(*given, fit_intercept=fit_intercept)
    monkeypatch.setattr(_least_squares, "LOST", -1.0)
    monkeypatch.setattr(_least_squares, "inverts_each", lambda *_: False)
    found = leave_one_out(*given, fit_intercept=fit_intercept)
    assert found.singular
    assert not usual.singular
    for name in ("errors", "W", "b"):
        np.testing.assert_allclose(getattr(found, name), getattr(usual, name), rtol=1e-8, atol=1e-9)


def without_row(X, y, row, alpha, fit_intercept):
    """The error at a row of the model fitted without it, by a QR factor, to which the scales of features do not matter."""
    there = np.arange(len(X)) != row
    columns, point = X[there], X[row]
    ridge = np.sqrt(alpha) * np.eye(X.shape[1])
    if fit_intercept:
        columns, point = np.column_stack([columns, np.ones(len(columns))]), np.append(point, 1.0)
        ridge = np.column_stack([ridge, np.zeros(len(ridge))])
    Q, R = np.linalg.qr(np.vstack([columns, ridge]))
    return y[row] - point @ np.linalg.solve(R, Q.T @ np.append(y[there], np.zeros(len(ridge))))


@pytest.mark.parametrize(("n", "d"), [(30, 6), (15, 20)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_features_of_very_different_scales_keep_their_errors(n, d, fit_intercept):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, d)) * 10.0 ** np.linspace(-8, 8, d)
    y = X @ (rng.standard_normal(d) / np.abs(X).max(axis=0)) + 0.3 * rng.standard_normal(n)
    alphas = [4e-3, 0.3, 100.0]
    model = dn.RidgeCV(alphas, fit_intercept=fit_intercept, store_cv_results=True).fit(X, y)
    for k, alpha in enumerate(alphas):
        errors = np.array([without_row(X, y, row, alpha, fit_intercept) for row in range(n)])
        np.testing.assert_allclose(model.cv_results_[:, k], errors**2, rtol=1e-5, atol=1e-5 * np.mean(errors**2))


def test_features_whose_errors_cannot_be_squared():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((40, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = dn.RidgeCV(cv=3).fit(1e100 * X, X[:, 0] + 0.5 * rng.standard_normal(40))
    assert np.isfinite(found.coef_).all()
