"""ElasticNetCV finds what scikit-learn's finds, whether by moments or in passes."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNetCV as Theirs
from sklearn.model_selection import KFold, ShuffleSplit

import dualnewton as dn
from dualnewton.estimators.model_selection import _session
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection._quadratic_paths import Fitted
from dualnewton.estimators.model_selection._session import certified
from dualnewton.estimators.model_selection.elastic_net import _Errors
from dualnewton.interop.parts import Examples
from dualnewton.matrix import MemoryData
from dualnewton.planning.tuning import DEFAULT
from estimators.cases import relative
from tuned import tuned

SHAPES = {"tall": (50, 5), "wide": (24, 30)}
SETTINGS = [
    {"l1_ratio": 0.5},
    {"l1_ratio": [0.3, 1.0]},
    {"l1_ratio": 0.0, "alphas": [0.1, 3.0, 1.0]},
    {"l1_ratio": 0.9, "positive": True, "cv": ShuffleSplit(3, random_state=0)},
]


def data(shape, kind="dense", weighted=False):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) + 1.0
    y = X @ (rng.standard_normal(d) * (np.arange(d) < 5)) + 0.3 * rng.standard_normal(n) + 2.0
    X = sp.csr_array(X * (X > 0.5)) if kind == "CSR" else X
    return X, y, rng.integers(1, 4, n).astype(float) if weighted else None


def assert_same(ours, theirs, tol=1e-6):
    assert ours.l1_ratio_ == theirs.l1_ratio_
    for name in ("alpha_", "alphas_", "mse_path_", "coef_", "intercept_"):
        mine, other = getattr(ours, name), getattr(theirs, name)
        assert np.shape(mine) == np.shape(other)
        assert np.allclose(mine, other, rtol=tol, atol=tol * np.abs(other).max())


@pytest.mark.parametrize("large", [0, 1500], ids=["in passes", "by moments"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("kind", "weighted", "fit_intercept"), [("dense", False, True), ("CSR", True, True), ("dense", True, False)]
)
@pytest.mark.parametrize("settings", SETTINGS, ids=["one share", "two", "none", "positive"])
def test_it_finds_what_scikit_learn_finds(monkeypatch, large, shape, kind, weighted, fit_intercept, settings):
    monkeypatch.setattr(dn.ElasticNetCV, "_tuning", tuned(fold_decomposition=large))
    X, y, weights = data(shape, kind, weighted)
    settings = {"alphas": 4, "eps": 1e-2, "cv": 3, "fit_intercept": fit_intercept, **settings}
    ours = dn.ElasticNetCV(tol=1e-12, **settings).fit(X, y, weights)
    theirs = Theirs(tol=1e-13, max_iter=200_000, **settings).fit(X, y, weights)
    assert_same(ours, theirs)
    assert max(certificate.relative_gap for certificate in ours.certificates_.ravel()) <= 1e-12
    assert ours.certificates_.shape == (np.size(ours.l1_ratio), *theirs.mse_path_.shape[-2:])
    assert ours.dual_gap_ == ours.certificate_.gap
    assert (ours.sparse_coef_.toarray()[0] == ours.coef_).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_errors_from_moments_are_those_on_the_rows(weighted):
    """Where models fit the held-out rows to rounding, sums of squares cancel, and the rows are read."""
    rng, n = np.random.default_rng(0), 200
    X, w = rng.standard_normal((n, 5)) + 100.0, np.arange(5.0)
    c = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    y = X @ w + 1.0
    given = Examples(X, y, sample_weight=c if weighted else None)
    folds = Folds.of(KFold(4).split(X), n)
    moments = FoldMoments(given.matrix, y[:, None], c, folds, DEFAULT, shift=True)
    W, b = np.tile(w, (3, 4, 1)), np.full((3, 4), 1.0)
    W[0] += rng.standard_normal((4, 5))
    W[1, 2] += 1e-9 * rng.standard_normal(5)
    found = Fitted(W, b, [[], [], []], lambda _: [])
    by_moments, on_rows = (_Errors(given, folds, known).scored(found).errors for known in (moments, None))
    np.testing.assert_allclose(by_moments, on_rows, rtol=1e-9)
    assert on_rows[2].max() < 1e-20
    residuals = _Errors(given, folds, moments).residuals[2]
    assert residuals is not None
    assert abs(residuals.mean_squares(W[:, 2, None], b[:, 2, None])[0][2]) != on_rows[2, 2]


@pytest.mark.parametrize("positive", [False, True])
def test_the_largest_alpha_of_a_grid_is_the_least_that_leaves_nothing(positive):
    X, y, weights = data("wide", weighted=True)
    model = dn.ElasticNetCV(l1_ratio=0.7, alphas=3, positive=positive).fit(X, y, weights)
    at = dn.ElasticNet(l1_ratio=0.7, positive=positive, tol=1e-12)
    assert not at.set_params(alpha=1.000001 * model.alphas_[0]).fit(X, y, weights).coef_.any()
    assert at.set_params(alpha=0.999 * model.alphas_[0]).fit(X, y, weights).coef_.any()


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_grid_needs_no_pass_where_the_moments_of_the_rows_are_known(monkeypatch, fit_intercept):
    X, y, weights = data("tall", weighted=True)
    centred = y - fit_intercept * np.average(y, weights=weights)
    largest = np.abs(X.T @ (weights * centred)).max() / weights.sum()
    passes = []
    original = MemoryData.transposed_times
    monkeypatch.setattr(MemoryData, "transposed_times", lambda own, v: passes.append(v) or original(own, v))
    model = dn.LassoCV(alphas=4, fit_intercept=fit_intercept).fit(X, y, weights)
    assert not passes
    assert model.alphas_[0] == pytest.approx(largest, rel=1e-12)


def test_targets_without_a_slope_have_a_grid_too():
    X, _, _ = data("tall")
    model = dn.ElasticNetCV(alphas=3).fit(X, np.ones(50))
    assert (model.alphas_ == 1e-15).all()
    assert not model.coef_.any()


@pytest.mark.parametrize("large", [0, 1500], ids=["in passes", "by moments"])
def test_alpha_may_be_zero(monkeypatch, large):
    monkeypatch.setattr(dn.ElasticNetCV, "_tuning", tuned(fold_decomposition=large))
    X, y, _ = data("tall")
    model = dn.ElasticNetCV(alphas=[0.0, 10.0], cv=3, tol=1e-10).fit(X, y)
    assert list(model.alphas_) == [10.0, 0.0]
    assert model.alpha_ == 0.0
    assert relative(model.coef_, np.linalg.lstsq(np.column_stack([X, np.ones(50)]), y)[0][:-1]) < 1e-8


@pytest.mark.parametrize(("settings", "message"), [
    ({"l1_ratio": 0.0}, "Automatic alpha grid generation is not supported for l1_ratio=0"),
    ({"l1_ratio": [0.5, 2.0]}, "l1_ratio must be a number between 0 and 1, or a list"),
    ({"alphas": [1.0, -1.0]}, r"alphas\[1\] == -1.0, must be >= 0.0"),
    ({"alphas": [np.inf, 1.0]}, r"alphas\[0\] == inf, must be >= 0.0 and finite"),
    ({"alphas": [0.0], "positive": True}, "alpha must be > 0 with positive=True"),
    ({"eps": 0.0}, "'eps' parameter"),
])  # fmt: skip
def test_what_cannot_be_tried_is_refused(settings, message):
    X, y, _ = data("tall")
    with pytest.raises(ValueError, match=message):
        dn.ElasticNetCV(**settings).fit(X, y)
    with pytest.raises(ValueError, match="1d array"):
        dn.ElasticNetCV().fit(X, np.stack([y, y], axis=1))


def test_sparse_rows_with_more_features_in_use_than_rows_have_the_models_of_dense_ones():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 160)) * (rng.random((40, 160)) < 0.3)
    y = X[:, :5].sum(axis=1) + rng.standard_normal(40)
    options = {"l1_ratio": 0.1, "cv": 3, "alphas": 15, "tol": 1e-8}
    dense, sparse = (dn.ElasticNetCV(**options).fit(A, y) for A in (X, sp.csr_array(X)))
    assert np.count_nonzero(sparse.coef_) > 40
    assert sparse.alpha_ == pytest.approx(dense.alpha_, rel=1e-12)
    np.testing.assert_allclose(sparse.mse_path_, dense.mse_path_, rtol=1e-4)
    assert max(certificate.relative_gap for certificate in sparse.certificates_.ravel()) <= 1e-8


@pytest.mark.parametrize("kind", [dn.LassoCV, dn.ElasticNetCV, dn.MultiTaskLassoCV, dn.MultiTaskElasticNetCV])
def test_after_the_time_limit_no_model_of_a_fold_is_certified_on_the_data(monkeypatch, kind):
    """300 certificates after the limit took 13 s on 20000×280 with three outputs; those from moments are already computed."""
    calls = []

    def counted(problems, *more):
        calls.extend(problems)
        return certified(problems, *more)

    monkeypatch.setattr(_session, "certified", counted)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 5))
    y = X.sum(axis=1) + rng.standard_normal(60)
    with pytest.warns(ConvergenceWarning, match="time_limit was reached"):
        model = kind(cv=3, time_limit=0.0).fit(X, np.column_stack([y, -y]) if "Task" in kind.__name__ else y)
    assert len(calls) <= 1
    assert np.vectorize(lambda proof: proof.dual <= proof.primal < np.inf)(model.certificates_).all()
