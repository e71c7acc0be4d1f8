"""A small fit is mostly arithmetic: the number of Python calls that the library itself makes is bounded."""

import sys

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model._base
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

import dualnewton as dn
from dualnewton.estimators import _validation

MOST_CALLS = {"LogisticRegression": 450, "Lasso": 248, "RidgeClassifier": 262}
"""The first made 1,978 calls before small data had a method of their own. The bound of rounding errors takes about 30, and one
more where its cache has the loss of another fit. Each evaluation calls ``Loss.sum_and_derivative``, one call more than the values
and their sum: losses whose sum is a product of vectors save an array there."""

MOST_SPARSE_CALLS = {
    dn.Ridge(): 463,
    dn.LogisticRegression(): 458,
    dn.LinearSVC(): 535,
    dn.LinearSVC(loss="hinge"): 531,
    dn.PoissonRegressor(): 406,
}
"""Calls of fits of 300 sparse rows with 900 features; 441, 721, 789, 1,775 and 482 before such data had methods of their own."""

MOST_PER_OUTPUT = 36
"""Calls for each further output of Ridge; 185 when every output had its own certificate and bound of rounding errors, and 78 when
labels and models were checked one by one."""

MOST_JOINT_CALLS = {"MultiTaskLasso": 256, "MultiTaskElasticNet": 308}
"""Calls of fits of three outputs, which have one certificate; the second made 408 by Newton steps in all coefficients."""


def calls_of(run):
    """Count the calls of functions that the library defines."""
    count = 0

    def seen(frame, event, _):
        nonlocal count
        count += event == "call" and "dualnewton" in frame.f_globals.get("__name__", "")

    sys.setprofile(seen)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", MOST_CALLS)
def test_a_small_fit_makes_few_calls(name):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = getattr(dn, name)().fit(X, y)  # modules are loaded, and what is computed once is computed
    count = calls_of(lambda: model.fit(X, y))
    assert model.certificate_.relative_gap <= model.tol
    assert 100 < count <= MOST_CALLS[name]


@pytest.mark.parametrize("model", MOST_SPARSE_CALLS, ids=repr)
def test_a_fit_of_a_few_sparse_rows_makes_few_calls(model):
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 900), density=0.03, rng=rng, format="csr")
    y = (X @ rng.standard_normal(900) > 0.0) * 1
    most, model = MOST_SPARSE_CALLS[model], clone(model).fit(X, y)
    count = calls_of(lambda: model.fit(X, y))
    assert model.certificate_.relative_gap <= model.tol
    assert 100 < count <= most


def test_classes_of_a_support_vector_machine_share_their_bound_of_rounding_errors():
    """With a bound for each class a fit made 887 calls."""
    X, y = load_wine(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = dn.LinearSVC(loss="hinge").fit(X, y)
    count = calls_of(lambda: model.fit(X, y))
    assert model.certificate_[0].relative_gap <= model.tol
    assert 100 < count <= 751


@pytest.mark.parametrize("name", MOST_JOINT_CALLS)
def test_a_small_fit_of_joint_outputs_makes_few_calls(name):
    X, y = load_breast_cancer(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    Y = y[:, None] + X[:, :3]
    model = getattr(dn, name)().fit(X, Y)
    count = calls_of(lambda: model.fit(X, Y))
    assert model.certificate_.relative_gap <= model.tol
    assert 100 < count <= MOST_JOINT_CALLS[name]


def test_further_outputs_make_few_calls():
    X, y = load_breast_cancer(return_X_y=True)
    X, model, counts = StandardScaler().fit_transform(X), dn.Ridge(), []
    for outputs in (2, 12):
        Y = y[:, None] + X[:, :outputs]
        model.fit(X, Y)
        counts.append(calls_of(lambda Y=Y: model.fit(X, Y)))
    assert counts[1] - counts[0] <= 10 * MOST_PER_OUTPUT


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_proba", "predict_log_proba"])
@pytest.mark.parametrize(
    "model",
    [
        dn.LogisticRegression(),
        dn.LogisticRegression(multi_class="ovr"),
        dn.ERMClassifier(),
        dn.LinearSVC(),
        dn.RidgeClassifier(),
        dn.RidgeClassifierCV(),
        dn.Ridge(),
    ],
    ids=repr,
)
@pytest.mark.parametrize("classes", [2, 3])
def test_a_prediction_checks_its_rows_once(model, method, classes, monkeypatch):
    """Scikit-learn's checks of one row take most of its prediction; a plain array does not need them."""
    if not hasattr(model, method):
        pytest.skip(f"{model!r} has no {method}")
    X, y = load_wine(return_X_y=True)
    X, y = X[y < classes], y[y < classes]
    fitted, count = clone(model).fit(X, y), 0
    expected = getattr(fitted, method)(X[:1])

    def counted(check):
        def run(*given, **more):
            nonlocal count
            count += 1
            return check(*given, **more)

        return run

    for module in (_validation, sklearn.linear_model._base):
        monkeypatch.setattr(module, "validate_data", counted(module.validate_data))
    for rows, checks in ((X[:1], 0), (X[:1].tolist(), 1), (sp.csr_array(X[:1]), 1)):
        count = 0
        np.testing.assert_allclose(getattr(fitted, method)(rows), expected, rtol=1e-12)
        assert count == checks
    with pytest.raises(ValueError, match="features"):
        getattr(fitted, method)(X[:1, :2])
    with pytest.raises(ValueError, match="NaN"):
        getattr(fitted, method)(np.full((1, X.shape[1]), np.nan))


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_scikit_learns(classes):
    X, y = load_wine(return_X_y=True)
    X, y = StandardScaler().fit_transform(X)[y < classes], y[y < classes]
    model = dn.LogisticRegression(multi_class="ovr").fit(X, y)
    far = 1e4 * X  # margins beyond the range of the exponential function
    for rows in (X, far):
        np.testing.assert_allclose(model.predict_proba(rows), model._predict_proba_lr(rows), rtol=1e-12, atol=0.0)
        np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    "model", [dn.Ridge(), dn.MultiTaskLasso(), dn.LinearRegression(), dn.RidgeClassifier()], ids=repr
)
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_plain_targets_of_several_outputs_are_not_checked_again(model, kind, monkeypatch):
    """An array that scikit-learn's validation returns as it is gives the same model without that validation."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((30, 4)), (rng.standard_normal((30, 2)) > 0.0).astype(kind)
    expected = clone(model).fit(X, np.asfortranarray(Y)).coef_
    monkeypatch.setattr(_validation, "validate_data", None)
    np.testing.assert_allclose(clone(model).fit(X, Y).coef_, expected, rtol=1e-12, atol=1e-15)


def test_a_target_of_several_columns_is_refused_where_there_is_one_output():
    with pytest.raises(ValueError, match="y should be a 1d array"):
        dn.LinearSVR().fit(np.eye(4), np.eye(4)[:, :2].copy())


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_plain_sparse_rows_are_not_checked_again(kind, dtype, monkeypatch):
    """CSR rows that scikit-learn's validation returns as they are give the same bits without it; repeated entries are added."""
    rng = np.random.default_rng(0)
    X = sp.random_array((40, 15), density=0.3, rng=rng, format="csr", dtype=dtype)
    halves = np.repeat(X.data, 2) / 2, np.repeat(X.indices, 2), 2 * X.indptr
    y = rng.standard_normal(40)
    expected = dn.Ridge().fit(X.tocsc(), y)
    monkeypatch.setattr(_validation, "validate_data", None)
    for rows in (kind(X), kind(halves, shape=X.shape)):
        model = dn.Ridge().fit(rows, y)
        np.testing.assert_array_equal(model.coef_, expected.coef_)
        assert model.n_features_in_ == 15
        assert rows.nnz in (X.nnz, 2 * X.nnz)  # the user's matrix is unchanged


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_sparse_rows_with_entries_that_are_not_usable_are_refused(value):
    X = sp.csr_array(np.eye(6))
    X.data[3] = value
    with pytest.raises(ValueError, match="X"):
        dn.Ridge().fit(X, np.arange(6.0))


def test_sparse_rows_and_targets_of_different_numbers_are_refused():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        dn.Ridge().fit(sp.csr_array(np.eye(6)), np.arange(5.0))
