"""certify() refuses by name what it cannot prove, and says what can be done instead."""

import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import linear_model as lm
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

import dualnewton as dn
from dualnewton.interop.certify import certify

N, D = 30, 3
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D))
REAL = X @ RNG.standard_normal(D) + 0.3 * RNG.standard_normal(N)
TWO = np.where(REAL > 0.0, 1, -1)
THREE = np.digitize(REAL, [-0.5, 0.5])
OUTPUTS = np.column_stack([REAL, -REAL])


def fitted(model, y):
    return clone(model).fit(X, y)


def refusal(model, y, data=X, **kwargs):
    """The message of the refusal, which must be a ValueError."""
    with pytest.raises(ValueError) as refused:
        certify(model, data, y, **kwargs)
    return str(refused.value)


# Models --------------------------------------------------------------------------------------------------------------

MODELS = [
    (lm.SGDClassifier(random_state=0), TWO, "stops by a schedule", "dualnewton.Problem"),
    (lm.SGDRegressor(random_state=0), REAL, "stops by a schedule", "dualnewton.Problem"),
    (lm.Perceptron(random_state=0), TWO, "stops by a schedule", "dualnewton.Problem"),
    (NuSVC(kernel="linear"), TWO, "kernel machine", "SVC(kernel='linear')"),
    (NuSVR(kernel="linear"), REAL, "kernel machine", "SVR(kernel='linear')"),
    (make_pipeline(StandardScaler(), lm.Ridge()), REAL, "transform X first", "certify(pipeline[-1]"),
    (GridSearchCV(lm.Ridge(), {"alpha": [0.1, 1.0]}, cv=3), REAL, "search over models", "best_estimator_"),
]


@pytest.mark.parametrize(("model", "y", "why", "instead"), MODELS, ids=[type(row[0]).__name__ for row in MODELS])
def test_a_model_without_a_certificate_is_refused_by_name(model, y, why, instead):
    message = refusal(fitted(model, y), y)
    assert message.startswith(f"model cannot be certified: {type(model).__name__} ")
    assert why in message
    assert instead in message


def test_the_way_out_of_the_pipeline_works():
    pipeline = fitted(make_pipeline(StandardScaler(), lm.Ridge()), REAL)
    assert certify(pipeline[-1], pipeline[:-1].transform(X), REAL).relative_gap < 1e-12


def test_the_way_out_of_the_search_works():
    search = fitted(GridSearchCV(lm.Ridge(), {"alpha": [0.1, 1.0]}, cv=3), REAL)
    assert certify(search.best_estimator_, X, REAL).relative_gap < 1e-12


@pytest.mark.parametrize(
    ("model", "got"),
    [
        (fitted(lm.TheilSenRegressor(), REAL), "TheilSenRegressor"),
        (fitted(DummyClassifier(), TWO), "DummyClassifier"),
        (None, "NoneType"),
        (np.zeros(3), "ndarray"),
        (lm.Ridge, "the class Ridge itself"),
        (dn.LinearSVC, "the class LinearSVC itself"),
        (type("Ridge", (), {"coef_": np.zeros(D)})(), "Ridge"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_anything_else_is_refused_with_the_names_of_what_is_known(model, got):
    message = refusal(model, TWO)
    assert message.startswith(
        "model must be a fitted estimator of dualnewton or a model of another library, one of Ridge, RidgeCV, "
    )
    assert f"got {got}." in message
    assert "dualnewton.Problem" in message


@pytest.mark.parametrize(
    "model",
    [lm.Ridge(), lm.LogisticRegression(), LinearSVC(), OneVsRestClassifier(LinearSVC()), dn.Ridge(), dn.LinearSVC()],
    ids=str,
)
def test_an_unfitted_model_is_refused(model):
    with pytest.raises(NotFittedError, match=f"{type(model).__name__} instance is not fitted"):
        certify(model, X, TWO)
    assert issubclass(NotFittedError, ValueError)


# Settings ------------------------------------------------------------------------------------------------------------

UNPENALISED = "without a penalty the dual proves nothing: use a weak l2 penalty"
ONE_BY_ONE = r"fit OneVsRestClassifier\(LogisticRegression\(...\)\)"

# A model, its targets, the settings it is refused with (set after the fit: a refusal must not depend on how the fit
# went, and scikit-learn warns about some of them), and what is said.
SETTINGS = [
    (LinearSVC(), THREE, {"multi_class": "crammer_singer"}, "couples the classes: use multi_class='ovr'"),
    (SVC(), TWO, {}, "kernel='rbf': .* use kernel='linear'"),
    (SVR(), REAL, {}, "kernel='rbf': .* use kernel='linear'"),
    (SVC(kernel="linear"), THREE, {}, r"3 classes: .* fit OneVsRestClassifier\(SVC"),
    (lm.LogisticRegression(), THREE, {"solver": "liblinear"}, "3 classes and .*solver='liblinear': " + ONE_BY_ONE),
    (lm.LogisticRegression(), TWO, {"C": np.inf}, "C=inf: " + UNPENALISED),
    (lm.LogisticRegression(), THREE, {"C": np.inf}, "C=inf: " + UNPENALISED),
    (lm.LogisticRegression(), TWO, {"penalty": None}, "penalty=None: " + UNPENALISED),
    (lm.Ridge(), REAL, {"alpha": 0.0}, "alpha=0: " + UNPENALISED),
    (lm.Ridge(), OUTPUTS, {"alpha": [1.0, 0.0]}, "alpha=0: " + UNPENALISED),
    (lm.RidgeClassifier(), TWO, {"alpha": 0.0}, "alpha=0: " + UNPENALISED),
    (lm.ElasticNet(alpha=0.01), REAL, {"alpha": 0.0}, "alpha=0: " + UNPENALISED),
    (lm.Lasso(alpha=0.01), REAL, {"alpha": 0.0}, "alpha=0: " + UNPENALISED),
]


@pytest.mark.parametrize(
    ("model", "y", "settings", "message"), SETTINGS, ids=[f"{type(row[0]).__name__}-{row[2]}" for row in SETTINGS]
)
def test_a_setting_without_a_certificate_is_refused_by_name(model, y, settings, message):
    model = fitted(model, y).set_params(**settings)
    said = refusal(model, y)
    assert said.startswith(f"model cannot be certified: {type(model).__name__} with ")
    assert re.search(message, said)


@pytest.mark.parametrize(("y", "multi_class"), [(TWO, "multinomial"), (THREE, "ovr")], ids=["two", "three"])
def test_what_older_versions_could_do_with_classes_is_refused(y, multi_class):
    model = fitted(lm.LogisticRegression(), y)
    model.multi_class = "auto"
    assert certify(model, X, y).relative_gap < 1e-3
    model.multi_class = multi_class
    assert re.search(f"classes and multi_class='{multi_class}'.*{ONE_BY_ONE}", refusal(model, y))


def test_a_cross_validation_that_minimises_nothing_is_refused():
    # The attributes that its fit sets are put there by hand: its signature changes with each version.
    model = lm.LogisticRegressionCV(refit=False)
    model.classes_, model.C_, model.l1_ratio_ = np.array([-1, 1]), np.array([1.0]), np.array([0.0])
    model.coef_, model.intercept_ = np.zeros((1, D)), np.zeros(1)
    assert "refit=False: an average over folds minimises nothing: use refit=True" in refusal(model, TWO)
    model.set_params(refit=True, solver="liblinear", intercept_scaling=10.0)
    message = refusal(model, TWO)
    assert "solver='liblinear' and intercept_scaling=10.0: its last fit ignores intercept_scaling" in message
    assert certify(model.set_params(intercept_scaling=1.0), X, TWO).gap > 0.0


def test_a_class_that_one_vs_rest_could_not_fit_is_refused():
    labels = np.column_stack([TWO > 0, np.ones(N, dtype=bool)]).astype(int)
    with pytest.warns(UserWarning, match="present in all training examples"):
        model = OneVsRestClassifier(LinearSVC()).fit(X, labels)
    assert "y must hold one label per row, got shape (30, 2)" in refusal(model, labels)
    model.classes_ = np.array([0, 1, 2])
    model.estimators_ = [*model.estimators_, model.estimators_[0]]
    assert "_ConstantPredictor minimises nothing" in refusal(model, THREE)


# Data ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [X[:, :2], sp.csr_array(np.hstack([X, X]))], ids=["fewer", "more"])
@pytest.mark.parametrize(
    ("model", "y"),
    [
        (lm.Ridge(), REAL),
        (lm.LogisticRegression(), TWO),
        (LinearSVC(), THREE),
        (OneVsRestClassifier(LinearSVC()), THREE),
        (SVC(kernel="linear"), TWO),
        (lm.HuberRegressor(), REAL),
        (dn.Ridge(), REAL),
        (dn.LogisticRegression(), THREE),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_another_number_of_features_is_refused(model, y, data):
    message = refusal(fitted(model, y), y, data)
    assert message.startswith("X must have the 3 features that ")
    assert message.endswith(f"was fitted on, got {data.shape[1]}")


@pytest.mark.parametrize(
    "model", [lm.RidgeClassifier(), lm.LogisticRegression(), LinearSVC(), OneVsRestClassifier(LinearSVC())], ids=str
)
def test_a_label_that_was_not_seen_is_refused(model):
    y = TWO.copy()
    y[4] = 7
    name = type(model).__name__
    expected = f"y must hold labels that {name} was fitted on, [-1, 1], got 7 at index 4"
    assert refusal(fitted(model, TWO), y) == expected
    assert "got 'yes' at index 0" in refusal(fitted(model, TWO), np.full(N, "yes"))


def test_other_labels_than_those_of_our_fit_are_refused():
    message = "y must hold the labels that LogisticRegression was fitted on, [-1, 1], got [0, 1, 2]"
    assert refusal(fitted(dn.LogisticRegression(), TWO), THREE) == message


def test_targets_of_another_shape_are_refused():
    assert refusal(fitted(lm.Ridge(), REAL), REAL[:-1]) == "y must have 30 rows, as X has, got shape (29,)"
    assert refusal(fitted(LinearSVC(), TWO), TWO[:-1]) == "y must have 30 rows, as X has, got shape (29,)"
    assert refusal(fitted(lm.Ridge(), REAL), 3.0) == "y must have 30 rows, as X has, got shape ()"
    assert "Ridge was fitted on, with 1 output(s), got 2" in refusal(fitted(lm.Ridge(), REAL), OUTPUTS)
    assert "Ridge was fitted on, with 2 output(s), got 1" in refusal(fitted(lm.Ridge(), OUTPUTS), REAL)
    svr = LinearSVR(loss="squared_epsilon_insensitive")
    assert "LinearSVR was fitted on, with 1 output(s), got 2" in refusal(fitted(svr, REAL), OUTPUTS)
    assert "HuberRegressor was fitted on, with 1 output(s), got 2" in refusal(
        fitted(lm.HuberRegressor(), REAL), OUTPUTS
    )
    assert "Ridge was fitted on, with 1 output(s), got 2" in refusal(fitted(dn.Ridge(), REAL), OUTPUTS)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(N - 1), "sample_weight must have shape (30,), got (29,)"),
        (-1.0, "sample_weight must be >= 0 everywhere"),
        (np.r_[np.nan, np.ones(N - 1)], "sample_weight must be finite, got"),
        (np.zeros(N), "sample_weight must have a positive entry"),
    ],
    ids=["short", "negative", "nan", "zero"],
)
@pytest.mark.parametrize(
    ("model", "y"), [(lm.Ridge(), REAL), (lm.LogisticRegression(), TWO)], ids=["Ridge", "Logistic"]
)
def test_weights_that_are_not_weights_are_refused(model, y, weights, message):
    assert message in refusal(fitted(model, y), y, sample_weight=weights)


def test_data_that_is_not_finite_is_refused():
    broken = X.copy()
    broken[2, 1] = np.nan
    assert "X must be finite, got" in refusal(fitted(lm.Ridge(), REAL), REAL, broken)
    assert "y must be finite, got" in refusal(fitted(lm.Ridge(), REAL), np.r_[np.inf, REAL[1:]])
