"""LinearRegression finds what scikit-learn's finds, and RidgeClassifierCV what its own does, each with a proof."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model
from sklearn.base import is_classifier, is_regressor
from sklearn.model_selection import LeaveOneOut, cross_val_predict
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton.estimators.least_squares import BY_ROWS, DECOMPOSED, MULTIPLIED, SUMMED
from dualnewton.losses import Squared
from dualnewton.matrix.chunked import ChunkedData
from dualnewton.matrix.memory import MemoryData
from dualnewton.matrix.protocol import Profile
from dualnewton.objective import relations
from dualnewton.objective.unpenalised import Unpenalised, View
from dualnewton.planning.direct import begins_by_products
from estimators.cases import certificates, relative

SHAPES = {"tall": (50, 5), "wide": (20, 30), "deficient": (40, 8)}


def data(shape, outputs=0, *, weighted=False):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) + 1.0
    if shape == "deficient":
        X[:, 5:] = X[:, :3] @ rng.standard_normal((3, 3))
    Y = X @ rng.standard_normal((d, max(outputs, 1))) + rng.standard_normal((n, max(outputs, 1))) + 2.0
    return X, Y if outputs else Y[:, 0], rng.uniform(0.5, 2.0, n) if weighted else None


# Least squares -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("outputs", [0, 1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("positive", [False, True])
def test_a_fit_is_scikit_learns(shape, outputs, weighted, fit_intercept, positive):
    X, y, weights = data(shape, outputs, weighted=weighted)
    settings = {"fit_intercept": fit_intercept, "positive": positive}
    ours, theirs = (
        kind(**settings).fit(X, y, weights) for kind in (dn.LinearRegression, linear_model.LinearRegression)
    )
    assert ours.coef_.shape == theirs.coef_.shape
    assert np.shape(ours.intercept_) == np.shape(theirs.intercept_)
    unique = not (positive and shape != "tall")
    if unique:  # with w ≥ 0 several models may attain the minimum
        assert relative(ours.coef_, theirs.coef_) < 1e-9
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-7, atol=1e-7 * np.abs(y).max())
    assert max(certificate.relative_gap for certificate in certificates(ours)) <= 1e-9
    assert (ours.coef_ >= 0.0).all() or not positive
    assert dn.certify(ours, X, y, sample_weight=weights).relative_gap < 1e-9
    assert dn.certify(theirs, X, y, sample_weight=weights).relative_gap < 1e-7
    if not positive:
        assert ours.rank_ == theirs.rank_
        np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-9 * theirs.singular_.max())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "noise"), [(30, 1e-8), (2000, 1e-8), (2000, 1e-11), (2000, 1e-12), (2000, 1e-15)])
def test_a_feature_that_nearly_repeats_another_is_certified(n, noise, weighted):
    """The dual point stays orthogonal to the intercept, although subtracting means leaves rounding errors of 1e-16/noise."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((n, 5)) + 1.0
    X[:, 1] = X[:, 0] + noise * rng.standard_normal(n)
    y, weights = X.sum(axis=1) + rng.standard_normal(n), rng.uniform(0.5, 2.0, n) if weighted else None
    model = dn.LinearRegression().fit(X, y, weights)
    assert model.rank_ == (4 if noise == 1e-15 else 5)
    assert model.certificate_.relative_gap <= model.tol


def test_features_of_any_scale_are_solved_by_normal_equations():
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((14_000, 10)) + 1.0) * np.geomspace(1e-3, 1e3, 10)
    y = X @ (1.0 / np.geomspace(1e-3, 1e3, 10)) + rng.standard_normal(len(X))
    model = dn.LinearRegression().fit(X, y)
    coef, _, _, singular = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean())
    assert "normal equations" in model.plan_.reason
    np.testing.assert_allclose(model.coef_, coef, rtol=1e-9)
    np.testing.assert_allclose(model.singular_, singular, rtol=1e-9)
    assert model.certificate_.relative_gap <= 1e-10


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_dummies_of_all_levels_are_solved_by_normal_equations(monkeypatch, sparse, fit_intercept):
    rng = np.random.default_rng(4)
    levels = rng.choice(8, size=(3, 9000), p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.015, 0.004, 0.001])
    X = np.hstack([*np.eye(8)[levels], rng.integers(0, 9, (9000, 1))])
    y = X @ rng.standard_normal(25) + rng.standard_normal(9000)
    monkeypatch.delattr("dualnewton.estimators._linear_systems.Decomposition.of")
    model = dn.LinearRegression(fit_intercept=fit_intercept).fit(sp.csr_array(X) if sparse else X, y)
    shift = fit_intercept * X.mean(axis=0)
    coef, _, rank, singular = np.linalg.lstsq(X - shift, y - fit_intercept * y.mean())
    assert rank == 25 - 2 - fit_intercept
    np.testing.assert_allclose(model.coef_, coef, atol=1e-9)  # the shortest
    assert model.certificate_.relative_gap <= 1e-10
    assert model.certificate_.reach == np.inf
    if not sparse:
        assert model.rank_ == rank
        np.testing.assert_allclose(model.singular_, singular, atol=1e-9 * singular[0])


def test_dummies_beside_features_far_from_zero_are_certified():
    """Residuals of 1e-3 beside means of 1e5 are not orthogonal to a constant feature before they are projected."""
    rng = np.random.default_rng(6)
    X = np.hstack(
        [np.eye(4)[rng.integers(0, 4, 20_000)], np.full((20_000, 1), 1e5), 1e4 * rng.standard_normal((20_000, 4))]
    )
    y = X @ rng.standard_normal(9) + 1e-3 * rng.standard_normal(20_000)
    for given in (X, sp.csr_array(X)):
        model = dn.LinearRegression().fit(given, y)
        assert model.certificate_.relative_gap <= model.tol
        assert model.coef_[4] == pytest.approx(0.0, abs=1e-12)


def test_relations_that_hold_up_to_rounding_are_evaluated_once(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.standard_normal((9000, 20))
    X[:, 7] = X[:, :5] @ rng.standard_normal(5)
    y, calls = X[:, 0] + rng.standard_normal(9000), []
    own = relations._evaluated
    monkeypatch.setattr(relations, "_evaluated", lambda *args, **more: calls.append(1) or own(*args, **more))
    model = dn.LinearRegression().fit(X, y)
    assert len(calls) == 1
    assert model.rank_ == 19
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.reach < np.inf


@pytest.mark.parametrize("expanded", [0, 1 << 24], ids=["moments", "decomposition"])
@pytest.mark.parametrize("outputs", [0, 3])
def test_sparse_data_have_the_same_model(monkeypatch, expanded, outputs):
    monkeypatch.setattr("dualnewton.estimators.least_squares.EXPANDED", expanded)
    X, y, weights = data("tall", outputs, weighted=True)
    ours, dense = (dn.LinearRegression().fit(given, y, weights) for given in (sp.csc_array(X), X))
    assert relative(ours.coef_, dense.coef_) < 1e-9
    assert max(certificate.relative_gap for certificate in certificates(ours)) <= 1e-9
    assert not hasattr(ours, "rank_")


def test_a_model_that_is_not_optimal_is_not_certified():
    X, y, _ = data("tall")
    for positive in (False, True):
        model = dn.LinearRegression(positive=positive).fit(X, y)
        best = model.certificate_.primal
        model.coef_ = model.coef_ + 0.1
        certificate = dn.certify(model, X, y)
        assert certificate.dual <= best * (1 + 1e-12)
        assert certificate.gap >= 0.999 * (certificate.primal - best)
        model.coef_ = model.coef_ - 10.0
        assert dn.certify(model, X, y).primal == np.inf or not positive


def test_a_model_without_errors_is_certified_without_the_hessian(monkeypatch):
    """With more features than examples the d×d matrix would take minutes, and the dual point zero proves the model."""
    monkeypatch.setattr(View, "hessian", lambda *_: pytest.fail("the Hessian of all features"))
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((20, 50)), rng.standard_normal(20)
    assert dn.certify(linear_model.LinearRegression().fit(X, y), X, y).gap == 0.0


def test_what_is_refused():
    X, y, _ = data("tall")
    with pytest.raises(TypeError, match=r"Sparse data was passed for X, but dense data is required\b"):
        dn.LinearRegression(positive=True).fit(sp.csr_array(X), y)
    with pytest.raises(ValueError, match="path needs a penalty"):
        dn.LinearRegression().path(X, y, [1.0])


# Ridge classification ------------------------------------------------------------------------------------------------------

ALPHAS = [0.1, 1.0, 10.0, 100.0]


def labels(n_classes, n=90):
    rng = np.random.default_rng(n_classes)
    X = rng.standard_normal((n, 6))
    y = np.argmax(X[:, :n_classes] + rng.standard_normal((n, n_classes)), axis=1)
    return X, np.array(["a", "b", "c"])[y], rng.uniform(0.2, 2.0, n)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("cv", [None, 3])
@pytest.mark.parametrize("scoring", [None, "accuracy", "f1_macro"])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 2.0, "b": 1.0, "c": 0.5}], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_search_is_scikit_learns(n_classes, cv, scoring, class_weight, weighted):
    if cv is None and scoring is not None and n_classes == 2:
        pytest.skip("scikit-learn gives every model the score 1 here")
    X, y, weights = labels(n_classes)
    weights = weights if weighted else None
    if class_weight is not None and not isinstance(class_weight, str):
        class_weight = {label: weight for label, weight in class_weight.items() if label in y}
    settings = {"cv": cv, "scoring": scoring, "class_weight": class_weight, "store_cv_results": cv is None}
    ours, theirs = (
        kind(ALPHAS, **settings).fit(X, y, weights) for kind in (dn.RidgeClassifierCV, linear_model.RidgeClassifierCV)
    )
    assert ours.alpha_ == theirs.alpha_
    assert ours.best_score_ == pytest.approx(theirs.best_score_)
    np.testing.assert_allclose(ours.coef_, np.atleast_2d(theirs.coef_), atol=1e-7)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-7)
    assert (ours.predict(X) == theirs.predict(X)).all()
    if cv is None:
        np.testing.assert_allclose(ours.cv_results_, theirs.cv_results_, atol=1e-7)
    assert ours.certificates_.shape == (4, 1 if cv is None else cv, 1 if n_classes == 2 else 3)
    assert max(certificate.relative_gap for certificate in ours.certificates_.ravel()) <= 1e-9
    assert dn.certify(ours, X, y, sample_weight=weights).relative_gap < 1e-9


def test_two_classes_are_scored_by_the_models_without_each_row():
    X, y, _ = labels(2)
    ours = dn.RidgeClassifierCV(ALPHAS, scoring="accuracy").fit(X, y)
    accuracies = [
        np.mean(cross_val_predict(linear_model.RidgeClassifier(alpha), X, y, cv=LeaveOneOut()) == y) for alpha in ALPHAS
    ]
    assert ours.best_score_ == pytest.approx(max(accuracies))
    assert ours.alpha_ == ALPHAS[int(np.argmax(accuracies))]


@pytest.mark.parametrize("cv", [None, 3])
def test_several_labels_per_row(cv):
    X, _, _ = labels(3)
    Y = (X[:, :3] + 0.5 * np.random.default_rng(0).standard_normal((90, 3)) > 0.0).astype(int)
    ours, theirs = (kind(ALPHAS, cv=cv).fit(X, Y) for kind in (dn.RidgeClassifierCV, linear_model.RidgeClassifierCV))
    assert ours.alpha_ == theirs.alpha_
    assert (ours.predict(X) == theirs.predict(X)).all()


def test_it_is_a_classifier():
    assert is_classifier(dn.RidgeClassifierCV())
    assert not is_regressor(dn.RidgeClassifierCV())
    X, y, _ = labels(3)
    path = dn.RidgeClassifierCV().path(X, y, [1.0, 10.0])
    assert path.models[0].score(X, y) > 0.5


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.filterwarnings("error")
def test_features_of_different_scales_that_fit_all_targets_leave_no_residuals(fit_intercept):
    """Prices and standardised columns, more of them than rows: rounding errors of one solution exceed those of the margins."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 250))
    X[:, ::3] = np.round(np.exp(1.2 * X[:, ::3] + 8.0))
    y = X[:, 1] + rng.standard_normal(150)
    model = dn.LinearRegression(fit_intercept=fit_intercept).fit(X, y)
    assert model.certificate_.primal == 0.0


@pytest.mark.parametrize("shift", [0.0, 1e2, 1e8])
def test_nonnegative_coefficients_of_features_far_from_zero(shift):
    """Normal equations of centred features lose the digits of the larger shifts; a factor of X is then used."""
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 6))
    y = X @ np.array([1.0, -1.0, 2.0, 0.0, 0.5, -0.3]) + 0.1 * rng.standard_normal(80)
    plain = dn.LinearRegression(positive=True).fit(X, y)
    model = dn.LinearRegression(positive=True).fit(X + shift, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-6, atol=1e-7)
    assert model.certificate_.relative_gap <= model.tol


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_nonnegative_fits_of_features_of_different_scales_are_certified(fit_intercept):
    rng = np.random.default_rng(0)
    for _ in range(10):
        rows = rng.standard_normal((80, 12)) * 10.0 ** rng.uniform(-3.0, 3.0, 12)
        y = rng.standard_normal(80) + rows @ (rng.random(12) < 0.5) / np.abs(rows).max()
        model = dn.LinearRegression(positive=True, tol=1e-10, fit_intercept=fit_intercept).fit(rows, y)
        assert model.certificate_.relative_gap <= 1e-10


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nonnegative_fits_of_more_features_than_rows_of_different_scales_end(seed):
    """The active set method of scipy exchanges features for ever where their norms differ by many orders of magnitude."""
    rng = np.random.default_rng(seed)
    X, weights = (
        rng.standard_normal((60, 100)) * 10.0 ** rng.uniform(-5.0, 5.0, 100),
        10.0 ** rng.uniform(-6.0, 6.0, 60),
    )
    y = X @ rng.standard_normal(100) + rng.standard_normal(60)
    model = dn.LinearRegression(positive=True).fit(X, y, sample_weight=weights)
    assert model.certificate_.relative_gap <= model.tol
    assert (model.coef_ >= 0.0).all()


@pytest.mark.parametrize("seed", [3, 10, 22])
def test_dummies_beside_amounts_of_any_scale_are_certified(seed):
    """Residuals of a decomposition are orthogonal to small dummies up to the rounding errors of large amounts: projected."""
    rng = np.random.default_rng(seed)
    n, part = 150, 12
    dummies = np.hstack([rng.integers(0, 3, n)[:, None] == np.arange(3) for _ in range(part // 3)]) * 1.0
    amounts = np.exp(rng.standard_normal((n, part))) * 10.0 ** rng.integers(-2, 5, part)
    X = np.hstack([dummies, amounts, rng.standard_normal((n, part))])
    y = X @ rng.standard_normal(X.shape[1]) / np.abs(X).max() + rng.standard_normal(n)
    model = dn.LinearRegression().fit(X, y)
    assert model.certificate_.relative_gap <= model.tol


# Dense data by the smaller Gram matrix -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "reason"), [((200, 60), SUMMED), ((60, 200), BY_ROWS)], ids=["tall", "wide"])
@pytest.mark.parametrize("outputs", [0, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("scales", [0.0, 1.0])
def test_well_conditioned_rows_are_not_decomposed(monkeypatch, shape, reason, outputs, weighted, fit_intercept, scales):
    rng = np.random.default_rng(7)
    X = (rng.standard_normal(shape) + 3.0) * 10.0 ** rng.uniform(-scales, scales, shape[1])
    y = rng.standard_normal((shape[0], outputs) if outputs else shape[0]) + 5.0
    c = rng.uniform(0.5, 2.0, shape[0]) if weighted else None
    theirs = linear_model.LinearRegression(fit_intercept=fit_intercept).fit(X, y, c)
    with monkeypatch.context() as patched:
        if scales == 0.0:  # the singular values of features of other scales are those of a factor
            patched.setattr(np.linalg, "svd", lambda *_, **__: pytest.fail("a decomposition"))
        ours = dn.LinearRegression(fit_intercept=fit_intercept).fit(X, y, c)
    assert ours.plan_.reason == reason or scales
    assert relative(ours.coef_, theirs.coef_) < 1e-9
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-8)
    np.testing.assert_allclose(ours.singular_, theirs.singular_, atol=1e-9 * theirs.singular_.max())
    assert ours.rank_ == theirs.rank_
    assert all(certificate.meets(1e-6) for certificate in certificates(ours))


@pytest.mark.parametrize("shape", [(200, 60), (60, 200)], ids=["tall", "wide"])
@pytest.mark.parametrize("kind", ["repeated rows", "weight zero", "far from zero"])
def test_rows_that_depend_on_each_other_are_decomposed(shape, kind):
    rng = np.random.default_rng(8)
    X, y, c = rng.standard_normal(shape), rng.standard_normal(shape[0]), np.ones(shape[0])
    if kind == "repeated rows":
        X[5:20] = X[20:35]
    elif kind == "weight zero":
        c[3] = 0.0
    else:
        X += 1e3
    ours, theirs = (make().fit(X, y, c) for make in (dn.LinearRegression, linear_model.LinearRegression))
    assert relative(ours.coef_, theirs.coef_) < 1e-6
    assert ours.rank_ == theirs.rank_
    assert ours.certificate_.meets(1e-6)
    assert (ours.plan_.reason == DECOMPOSED) or shape[0] > shape[1] or kind == "far from zero"


# Sparse data by products ------------------------------------------------------------------------------------------------


def sparse_rows(n, d, stored, seed=0):
    """Rows with so many entries each; some features are empty, constant or multiples of others."""
    rng = np.random.default_rng(seed)
    places = rng.integers(10, d - 1, n * stored), np.arange(n + 1) * stored
    X = sp.csr_array((rng.standard_normal(n * stored), *places), shape=(n, d))
    first = rng.standard_normal((n, 10))
    first[:, [3, 5]], first[:, 9] = [0.0, 2.0], 0.125 * first[:, 8]
    return sp.csr_array(sp.hstack([first, X[:, 10:]])), rng


def shortest(X, Y, c, *, fit_intercept):
    """The shortest least-squares solution, by a decomposition of the dense rows."""
    X, c = X.toarray(), np.ones(X.shape[0]) if c is None else c
    mean, target = (fit_intercept * (c @ each) / c.sum() for each in (X, Y))
    roots = np.sqrt(c)[:, None]
    return np.linalg.lstsq(roots * (X - mean), roots * (Y - target))[0].T


@pytest.mark.parametrize("shape", [(400, 60, 6), (80, 60, 12), (40, 90, 8)], ids=["tall", "square", "wide"])
@pytest.mark.parametrize("outputs", [1, 10])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_data_are_solved_by_products(monkeypatch, shape, outputs, weighted, fit_intercept, dtype):
    monkeypatch.setattr("dualnewton.estimators.least_squares.begins_by_products", lambda *_, **__: 1000)
    for name in ("NormalEquations", "Decomposition"):
        monkeypatch.delattr(f"dualnewton.estimators.least_squares.{name}.of")
    X, rng = sparse_rows(*shape)
    Y = X @ rng.standard_normal((shape[1], outputs)) + rng.standard_normal((shape[0], outputs)) + 3.0
    X, c = X.astype(dtype), rng.uniform(0.5, 2.0, shape[0]) if weighted else None
    ours = dn.LinearRegression(fit_intercept=fit_intercept).fit(X, Y, c)
    expected = shortest(X.astype(np.float64), Y, c, fit_intercept=fit_intercept)
    np.testing.assert_allclose(
        ours.coef_, expected, atol=(1e-5 if dtype == np.float32 else 1e-8) * np.abs(expected).max()
    )
    assert ours.plan_.reason == MULTIPLIED
    assert all(certificate.meets(1e-6) for certificate in certificates(ours))
    if dtype == np.float64:  # coefficients in float32 fit no target exactly
        assert dn.certify(ours, X, Y, sample_weight=c).meets(1e-6)


@pytest.mark.parametrize("shape", [(9000, 2500, 8), (600, 30_000, 12)], ids=["tall", "wide"])
def test_many_features_need_no_matrix_of_them(monkeypatch, shape):
    """scikit-learn's LSQR needs none either; a matrix of 30 000 features would take 7 GiB."""
    for name in ("weighted_gram", "row_gram", "moments"):
        monkeypatch.setattr(MemoryData, name, lambda *_, **__: pytest.fail("a matrix of the features"))
    X, rng = sparse_rows(*shape)
    y = X @ rng.standard_normal(shape[1]) + rng.standard_normal(shape[0])
    ours, theirs = dn.LinearRegression().fit(X, y), linear_model.LinearRegression(tol=1e-14).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-7 * np.abs(theirs.coef_).max())
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-6)
    assert ours.certificate_.meets(1e-6)
    # Independence is not proved for so many features: the bound is one among models of moderate size.
    assert ours.certificate_.reach < np.inf or ours.certificate_.primal == 0.0
    assert dn.certify(theirs, X, y).relative_gap < 1e-6


@pytest.mark.parametrize(("shape", "reason"), [((3000, 60, 6), SUMMED), ((300, 500, 6), DECOMPOSED)])
def test_products_that_do_not_suffice_are_followed_by_other_methods(monkeypatch, shape, reason):
    monkeypatch.setattr("dualnewton.estimators.least_squares.begins_by_products", lambda *_, **__: 3)
    X, rng = sparse_rows(*shape)
    y = rng.standard_normal(shape[0])
    model = dn.LinearRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_, shortest(X, y[:, None], None, fit_intercept=True)[0], atol=1e-9)
    assert model.plan_.reason == reason
    assert model.certificate_.meets(1e-6)


def test_products_are_planned_where_matrices_cost_more():
    for shape, expected in (((100_000, 50, 10), False), ((100_000, 2000, 30), True), ((300, 1000, 20), True)):
        n, d, stored = shape
        profile = Profile(n, d, n * stored, 0.5 * n * stored**2, sparse=True, itemsize=8)
        assert bool(begins_by_products(profile, expands=True, last=False)) == expected
        assert begins_by_products(replace(profile, sparse=False), expands=True, last=False) == 0
        assert begins_by_products(replace(profile, sparse=False), expands=False, last=True) == 1000


def test_dense_rows_of_many_features_that_are_not_in_memory_are_solved_by_products():
    rng = np.random.default_rng(4)
    X, y = rng.standard_normal((300, 2100)), rng.standard_normal(300)
    found = dn.solve(Unpenalised(ChunkedData([X[:90], X[90:]]), y, Squared(), fit_intercept=True))
    assert found.converged
    expected = np.linalg.pinv(X - X.mean(axis=0)) @ (y - y.mean())
    np.testing.assert_allclose(found.w, expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("n", [3, 10, 137])
@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_constant_features_have_no_coefficient_beside_an_intercept(n, others, positive, weighted):
    rng = np.random.default_rng(n)
    y, more, weights = (
        3.0 + rng.standard_normal(n),
        rng.standard_normal((n, others)),
        rng.random(n) if weighted else None,
    )
    for value in (1.0, 0.1, 0.3, 1e4, 1e6 + 0.1):  # the mean of n equal numbers is not always that number
        X = np.column_stack([np.full((n, 3), value) * [1.0, 2.0, 3.0], more])
        model = dn.LinearRegression(positive=positive).fit(X, y, weights)
        alone = dn.LinearRegression(positive=positive).fit(np.column_stack([np.zeros(n), more]), y, weights)
        assert model.certificate_.relative_gap <= model.tol
        assert np.abs(value * model.coef_[:3]).max() < 1e-9
        np.testing.assert_allclose(model.predict(X), alone.intercept_ + more @ alone.coef_[1:], atol=1e-7)


@pytest.mark.parametrize("name", ["LinearRegression", "MultiTaskLasso", "LogisticRegression", "RidgeCV"])
def test_the_threads_of_blas_change_no_bit_of_a_fit_and_its_certificate(name):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 150))
    Y = X[:, :2] + rng.standard_normal((3000, 2))
    y = {"MultiTaskLasso": Y, "LogisticRegression": Y[:, 0] > 0.0}.get(name, Y[:, 0])
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            model = getattr(dn, name)().fit(X, y)
            found.append((model.coef_.tobytes(), model.certificate_, dn.certify(model, X, y)))
    assert found[0] == found[1]
