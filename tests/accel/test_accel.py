"""scikit-learn's classes under accel: the objective and the attributes are scikit-learn's, the fit is ours."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn.linear_model
import sklearn.svm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_linnerud
from sklearn.model_selection import GridSearchCV

from dualnewton import accel

PLAIN = {
    name: getattr(home, name)
    for home in (sklearn.linear_model, sklearn.svm)
    for name in dir(home)
    if isinstance(getattr(home, name), type)
}
CANCER, DIABETES, IRIS, SEVERAL = (
    ((data[0] - data[0].mean(0)) / data[0].std(0), data[1])
    for data in (load(return_X_y=True) for load in (load_breast_cancer, load_diabetes, load_iris, load_linnerud))
)
COUNTS = DIABETES[0], 1.0 + np.floor(DIABETES[1] / 50.0)
CASES = {
    "LogisticRegression": [
        (CANCER, {"tol": 1e-10}),
        (IRIS, {"tol": 1e-10}),
        (CANCER, {"solver": "liblinear", "tol": 1e-10}),
    ],
    "LogisticRegressionCV": [
        (
            CANCER,
            {
                "Cs": 3,
                "cv": 3,
                "tol": 1e-10,
                "l1_ratios": (0.0,),
                "use_legacy_attributes": False,
                "scoring": "accuracy",
            },
        )
    ],
    "LinearSVC": [
        (CANCER, {"C": 0.1, "tol": 1e-10, "max_iter": 100000}),
        (IRIS, {"C": 0.1, "tol": 1e-10, "max_iter": 100000}),
    ],
    "LinearSVR": [(DIABETES, {"loss": "squared_epsilon_insensitive", "tol": 1e-10, "max_iter": 100000})],
    "LinearRegression": [(DIABETES, {})],
    "Ridge": [(DIABETES, {"tol": 1e-12}), (SEVERAL, {"tol": 1e-12})],
    "RidgeCV": [(DIABETES, {})],
    "RidgeClassifier": [(CANCER, {"tol": 1e-12}), (IRIS, {"tol": 1e-12})],
    "RidgeClassifierCV": [(CANCER, {})],
    "Lasso": [(DIABETES, {"tol": 1e-12})],
    "LassoCV": [(DIABETES, {"tol": 1e-10, "cv": 3, "alphas": 10})],
    "ElasticNet": [(DIABETES, {"tol": 1e-12})],
    "ElasticNetCV": [(DIABETES, {"tol": 1e-10, "cv": 3, "alphas": 10})],
    "HuberRegressor": [(DIABETES, {"tol": 1e-10, "max_iter": 1000})],
    "PoissonRegressor": [(COUNTS, {"tol": 1e-10, "solver": "newton-cholesky"})],
    "GammaRegressor": [(COUNTS, {"tol": 1e-10, "solver": "newton-cholesky"})],
    "TweedieRegressor": [(COUNTS, {"tol": 1e-10, "power": 1.5, "solver": "newton-cholesky"})],
    "QuantileRegressor": [(DIABETES, {"quantile": 0.3})],
    "MultiTaskLasso": [(SEVERAL, {"tol": 1e-12})],
    "MultiTaskElasticNet": [(SEVERAL, {"tol": 1e-12})],
    "MultiTaskLassoCV": [(SEVERAL, {"tol": 1e-10, "cv": 3, "alphas": 5})],
    "MultiTaskElasticNetCV": [(SEVERAL, {"tol": 1e-10, "cv": 3, "alphas": 5})],
}
EVERY = [pytest.param(name, *case, id=f"{name}-{k}") for name, cases in CASES.items() for k, case in enumerate(cases)]
OTHER_MODELS = {"QuantileRegressor"}
"""A linear program may have several optimal models."""


@pytest.fixture(autouse=True)
def _installed():
    accel.install()
    yield
    accel.uninstall()


def made(name, settings):
    home = sklearn.svm if hasattr(sklearn.svm, name) else sklearn.linear_model
    return getattr(home, name)(**settings)


def test_every_class_of_both_libraries_has_a_case():
    replaced = {name for name, theirs in PLAIN.items() if theirs in accel._replaced}
    assert replaced == set(CASES)


@pytest.mark.parametrize(("name", "data", "settings"), EVERY)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_model_is_the_one_that_scikit_learn_fits(name, data, settings):
    model, theirs = made(name, settings).fit(*data), PLAIN[name](**settings).fit(*data)
    assert model.certificate_ is not None
    assert type(model) is not PLAIN[name]
    assert isinstance(model, PLAIN[name])
    missing = {each for each in vars(theirs) if each.endswith("_")} - set(vars(model))
    assert missing <= {"n_iter_", "solver_", "rank_", "singular_", "multi_class_"}
    if name not in OTHER_MODELS:
        wanted = theirs.coef_  # at the largest alpha of a path, zeros up to rounding
        np.testing.assert_allclose(model.coef_, wanted, rtol=2e-3, atol=max(2e-4 * np.abs(wanted).max(), 1e-12))
    assert np.shape(model.coef_) == np.shape(theirs.coef_)
    assert np.shape(model.intercept_) == np.shape(theirs.intercept_)
    assert np.mean(model.predict(data[0]) == theirs.predict(data[0])) > 0.99 or np.allclose(
        model.predict(data[0]), theirs.predict(data[0]), rtol=1e-2, atol=1e-1
    )


def test_a_penalised_intercept_is_that_of_liblinear_on_sparse_data():
    X, y = CANCER
    settings = {"C": 0.1, "tol": 1e-10, "max_iter": 100000, "intercept_scaling": 3.0, "loss": "hinge"}
    model = made("LinearSVC", settings).fit(sp.csr_matrix(X), y)
    theirs = PLAIN["LinearSVC"](**settings).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(model.intercept_, theirs.intercept_, rtol=1e-2)
    assert model.n_features_in_ == X.shape[1]


def test_what_differs_is_fitted_by_scikit_learn_and_named():
    before = sum(accel.fallbacks().values())
    model = made("Lasso", {"warm_start": True}).fit(*DIABETES)
    assert not hasattr(model, "certificate_")
    assert sum(accel.fallbacks().values()) == before + 1
    assert any("warm_start" in reason for name, reason in accel.fallbacks() if name == "Lasso")


@pytest.mark.skipif(
    not hasattr(PLAIN["LogisticRegression"], "set_callbacks"), reason="this version of scikit-learn has no callbacks"
)
def test_the_callbacks_of_a_model_are_called_by_scikit_learn():
    seen = []

    class Callback:
        def setup(self, *_, **__):
            seen.append("setup")

        def teardown(self, *_, **__):
            seen.append("teardown")

        def on_fit_task_begin(self, *_, **__):
            seen.append("begin")

        def on_fit_task_end(self, *_, **__):
            seen.append("end")

    made("LogisticRegression", {}).set_callbacks(Callback()).fit(*CANCER)
    assert {"setup", "begin", "end", "teardown"} == set(seen)


def test_an_error_is_that_of_scikit_learn():
    with pytest.raises(ValueError, match="alpha"):
        made("Ridge", {"alpha": -1.0}).fit(*DIABETES)


def test_models_are_pickled_under_the_name_of_scikit_learn():
    model = made("Ridge", {}).fit(*DIABETES)
    data = pickle.dumps(model)
    assert b"dualnewton" not in data.replace(b"dualnewton.objective", b"").replace(b"dualnewton.planning", b"").replace(
        b"dualnewton.run", b""
    )
    accel.uninstall()
    loaded = pickle.loads(data)
    assert type(loaded) is PLAIN["Ridge"]
    np.testing.assert_array_equal(loaded.predict(DIABETES[0]), model.predict(DIABETES[0]))


def test_clones_searches_and_a_second_fit():
    search = GridSearchCV(made("LogisticRegression", {}), {"C": [0.1, 1.0]}, cv=3).fit(*CANCER)
    assert search.best_estimator_.certificate_.relative_gap <= 1e-4
    model = clone(search.best_estimator_).fit(*CANCER)
    model.set_params(warm_start=True).fit(*CANCER)
    assert model.n_features_in_ == CANCER[0].shape[1]


def test_scikit_learn_is_as_before_after_uninstalling():
    accel.uninstall()
    assert sklearn.linear_model.Ridge is PLAIN["Ridge"]
    assert not accel.installed()
    assert not hasattr(sklearn.linear_model.Ridge().fit(*DIABETES), "certificate_")


def test_a_script_runs_under_it(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        "import sys\nfrom sklearn.linear_model import Lasso, Ridge\n"
        "X, y = [[0.0], [1.0], [2.0]], [0.0, 1.0, 2.5]\n"
        "print(sys.argv[1], Ridge().fit(X, y).certificate_ is not None)\nLasso(warm_start=True).fit(X, y)\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "dualnewton.accel", "--verbose", str(script), "given"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == "given True\n"
    assert "1 fit of Lasso by scikit-learn: warm_start" in run.stderr
