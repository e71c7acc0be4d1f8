"""What scikit-learn's own tests of the classes that ours replace ask for, beyond the text of a solver's messages."""

import warnings

import numpy as np
import pytest
import sklearn
from sklearn import linear_model, svm
from sklearn.datasets import make_regression
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.fixes import parse_version

import dualnewton as dn

IS_OLD = parse_version(sklearn.__version__) < parse_version("1.6")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 5))
Y = X @ RNG.normal(size=5) + 0.1 * RNG.normal(size=30)
SIGNS, THREE = (Y > 0.0).astype(int), np.digitize(Y, [-1.0, 1.0])


def theirs(name):
    return getattr(svm if hasattr(svm, name) else linear_model, name)


def silently(model, *data):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(*data)


# No iterations at all -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "y"), [
    ("Ridge", Y), ("RidgeClassifier", SIGNS), ("ElasticNet", Y), ("Lasso", Y), ("ElasticNetCV", Y),
])  # fmt: skip
def test_max_iter_of_zero_is_refused_where_scikit_learn_does(name, y):
    for kind in (theirs(name), getattr(dn, name)):
        with pytest.raises(InvalidParameterError, match=r"'max_iter' parameter .* in the range \[1, inf\)"):
            kind(max_iter=0).fit(X, y)


@pytest.mark.parametrize(("name", "y"), [
    ("HuberRegressor", Y), ("LogisticRegression", SIGNS), ("LinearSVC", SIGNS), ("LinearSVR", Y),
])  # fmt: skip
def test_max_iter_of_zero_is_no_iteration_and_a_warning(name, y):
    for kind in (theirs(name), getattr(dn, name)):
        with pytest.warns(ConvergenceWarning):
            model = kind(max_iter=0).fit(X, y)
        assert np.max(model.n_iter_) == 0


# Attributes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("solver", ["auto", "svd", "cholesky", "sparse_cg", "lsqr", "sag", "saga"])
def test_ridge_counts_iterations_where_scikit_learn_does(solver, outputs):
    y = np.stack([Y] * outputs, axis=1) if outputs > 1 else Y
    reference, ours = silently(linear_model.Ridge(solver=solver), X, y), dn.Ridge(solver=solver).fit(X, y)
    assert (ours.n_iter_ is None) == (reference.n_iter_ is None)
    if ours.n_iter_ is not None:
        assert ours.n_iter_.shape == reference.n_iter_.shape == (outputs,)
        assert ours.n_iter_.dtype == np.int32


def test_a_method_of_our_own_is_counted():
    assert dn.Ridge(solver="sdna").fit(X, Y).n_iter_.shape == (1,)
    assert dn.RidgeClassifier().fit(X, SIGNS).n_iter_ is None


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("columns", [0, 1, 2])
@pytest.mark.parametrize("name", ["Ridge", "RidgeCV", "ElasticNet", "Lasso"])
def test_shapes_for_targets_in_columns(name, columns, fit_intercept):
    y = np.stack([Y] * columns, axis=1) if columns else Y
    if columns == 1 and "Ridge" in name and IS_OLD:
        pytest.skip("before version 1.6, Ridge of scikit-learn kept the column of a target")
    reference = silently(theirs(name)(fit_intercept=fit_intercept), X, y)
    ours = getattr(dn, name)(fit_intercept=fit_intercept).fit(X, y)
    for attribute in ("coef_", "intercept_"):
        assert np.shape(getattr(ours, attribute)) == np.shape(getattr(reference, attribute))
    assert ours.predict(X).shape == reference.predict(X).shape
    certificates = ours.certificate_ if columns > 1 else [ours.certificate_]
    whole = dn.certify(ours, X, y)
    assert whole.gap <= 1.01 * sum(certificate.gap for certificate in certificates) + 1e-12 * whole.primal


@pytest.mark.parametrize(("name", "y"), [
    ("ElasticNetCV", Y), ("HuberRegressor", Y), ("LinearSVR", Y), ("LinearSVC", THREE), ("RidgeClassifier", THREE),
    ("QuantileRegressor", Y),
])  # fmt: skip
def test_no_intercept_is_the_number_zero(name, y):
    for kind in (theirs(name), getattr(dn, name)):
        model = silently(kind(fit_intercept=False), X, y)
        assert model.intercept_ == 0.0
        assert np.ndim(model.intercept_) == 0
    assert dn.certify(model, X, y).relative_gap <= model.tol


def test_a_column_is_taken_for_a_vector_with_a_warning():
    for kind in (linear_model.ElasticNetCV, dn.ElasticNetCV):
        with pytest.warns(DataConversionWarning):
            model = kind().fit(X, Y[:, None])
        assert model.coef_.shape == (5,)
        assert np.shape(model.intercept_) == ()


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings", "message"), [
    ("Ridge", {"alpha": [1.0, 2.0]}, "Number of targets and number of penalties do not correspond: 2 != 1"),
    ("ElasticNetCV", {"alphas": [1.0, -1.0]}, r"alphas\[1\] == -1.0, must be >= 0.0"),
    ("ElasticNetCV", {"l1_ratio": 0.0}, "Automatic alpha grid generation is not supported for l1_ratio=0. Please supply a "
     "grid by providing your estimator with the appropriate `alphas=` argument."),
])  # fmt: skip
def test_errors_name_what_scikit_learn_names(name, settings, message):
    kinds = [getattr(dn, name)]
    if not IS_OLD:  # its messages differ
        kinds.append(theirs(name))
    for kind in kinds:
        with pytest.raises(ValueError, match=message):
            kind(**settings).fit(X, Y)


def test_an_alpha_that_is_no_number_is_a_type_error():
    for kind in (linear_model.ElasticNetCV, dn.ElasticNetCV):
        with pytest.raises(TypeError, match=r"alphas\[0\] must be an instance of float, not str"):
            kind(alphas=["one"]).fit(X, Y)


@pytest.mark.parametrize(("label", "printed"), [(np.int8(0), "0"), (np.str_("a"), "'a'"), (np.float32(2.0), "2.0")])
def test_a_single_class_is_printed_as_it_is_written(label, printed):
    with pytest.raises(ValueError, match=rf"only one class: {printed}$"):
        dn.LogisticRegression().fit(X, np.full(30, label))


@pytest.mark.parametrize("name", ["ElasticNet", "LogisticRegression", "HuberRegressor", "LinearSVC", "RidgeCV"])
def test_features_whose_squares_overflow_are_refused_by_name(name):
    y = SIGNS if name in ("LogisticRegression", "LinearSVC") else Y
    with pytest.raises(ValueError, match=r"X must have entries of magnitude at most 1e\+150"):
        getattr(dn, name)().fit(1e300 * X, y)


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 1e-16])
def test_ridge_with_next_to_no_penalty_interpolates_wide_data(alpha, fit_intercept):
    wide, y = make_regression(n_samples=50, n_features=100, noise=0, bias=10, random_state=42)
    model = silently(dn.Ridge(alpha=alpha, fit_intercept=fit_intercept, tol=1e-12), wide, y)
    # Not compared with LinearRegression, which before scikit-learn 1.6 is not the shortest solution with an intercept.
    # Centred, the rows have a rank of 49.
    shortest = np.linalg.pinv(wide - wide.mean(axis=0) * fit_intercept, 1e-10) @ (y - y.mean() * fit_intercept)
    np.testing.assert_allclose(model.coef_, shortest, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(model.predict(wide), y, rtol=1e-8)
