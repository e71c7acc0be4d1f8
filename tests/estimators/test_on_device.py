"""Estimators on rows that are on a device, by arrays that refuse silent conversion to NumPy as CuPy's do."""

import copy

import numpy as np
import pytest

import dualnewton as dn
from dualnewton.estimators import _devices
from dualnewton.matrix import cuda, cuda_copies, cuda_library, memory
from dualnewton.row_arrays import on_host
from fake_device import FakeArray, on_device, xp

rng = np.random.default_rng(7)
X = rng.standard_normal((400, 6))
z = X @ rng.standard_normal(6)
targets, classes = z + rng.standard_normal(400), np.digitize(z + rng.standard_normal(400), [-1.0, 1.0])

MODELS = {
    "logistic": (dn.LogisticRegression(tol=1e-8), (targets > 0.0) * 1),
    "softmax": (dn.LogisticRegression(tol=1e-8), classes),
    "svc": (dn.LinearSVC(tol=1e-8), classes),
    "ridge": (dn.Ridge(tol=1e-8), targets),
    "lasso": (dn.Lasso(alpha=0.01, tol=1e-8), targets),
    "huber": (dn.ERMRegressor("huber", lam=1e-3, tol=1e-8), targets),
    "huber with a scale": (dn.HuberRegressor(tol=1e-8), targets),
    "least squares": (dn.LinearRegression(), targets),
    "no penalty": (dn.LogisticRegression(C=np.inf, tol=1e-8), (targets > 0.0) * 1),
    "poisson": (dn.PoissonRegressor(tol=1e-8), np.abs(targets)),
}


@pytest.fixture
def as_library(monkeypatch):
    """Treat the arrays of the fake device as those of CuPy."""
    name = FakeArray.__module__.partition(".")[0]
    monkeypatch.setitem(memory.ELSEWHERE, name, "cuda")
    monkeypatch.setattr(_devices, "GPU_LIBRARIES", (name,))
    monkeypatch.setattr(cuda_library, "cupy", lambda: xp)
    for module, made in ((cuda, "as_cuda"), (cuda, "as_data"), (cuda_copies, "on_gpu")):
        monkeypatch.setattr(module, made, lambda given: on_device(on_host(given)))


@pytest.mark.parametrize("name", MODELS)
def test_what_a_fit_keeps_and_predicts_is_where_its_rows_are(name, as_library, tmp_path):
    model, y = MODELS[name]
    there, weights = FakeArray(X), np.linspace(0.5, 1.5, 400)
    here = copy.copy(model).fit(X, y, weights)
    found = copy.copy(model).fit(there, FakeArray(y), FakeArray(weights))
    for part in ("coef_", "dual_coef_"):
        assert isinstance(getattr(found, part), FakeArray)
    np.testing.assert_allclose(on_host(found.coef_), here.coef_, atol=2e-3 * np.abs(here.coef_).max())
    predicted = found.predict(there)
    assert isinstance(predicted, FakeArray)
    assert np.mean(np.abs(on_host(predicted) - here.predict(X)) > 1e-2) < 1e-2
    if hasattr(found, "predict_proba"):
        np.testing.assert_allclose(on_host(found.predict_proba(there)), here.predict_proba(X), atol=1e-3)
    assert abs(found.score(there, FakeArray(y)) - here.score(X, y)) < 1e-3
    proof = dn.certify(found, there, FakeArray(y), sample_weight=FakeArray(weights))
    assert proof.relative_gap <= 1e-7
    dn.save(found, tmp_path / "model.json")
    np.testing.assert_array_equal(dn.load(tmp_path / "model.json").coef_, on_host(found.coef_))


@pytest.mark.parametrize("name", ["sums_normal_equations", "begins_by_products"])
def test_targets_of_least_squares_are_placed_where_the_rows_are(name, as_library, monkeypatch):
    """Both methods subtract margins, which are on the device, from the targets."""
    monkeypatch.setattr(f"dualnewton.estimators.least_squares.{name}", lambda *_, **__: 100)
    weights = np.linspace(0.5, 1.5, 400)
    found = dn.LinearRegression().fit(FakeArray(X), FakeArray(targets), FakeArray(weights))
    monkeypatch.undo()
    np.testing.assert_allclose(on_host(found.coef_), dn.LinearRegression().fit(X, targets, weights).coef_, rtol=1e-9)
    assert found.certificate_.meets(1e-6)


SEARCHES = {
    "logistic": (dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-8), (targets > 0.0) * 1),
    "softmax": (dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-8, scoring="neg_log_loss"), classes),
    "sparse logistic": (dn.LogisticRegressionCV(Cs=3, cv=3, tol=1e-8, l1_ratios=[1.0]), (targets > 0.0) * 1),
    "ridge": (dn.RidgeCV(cv=3, tol=1e-8), targets),
    "ridge classifier": (dn.RidgeClassifierCV(cv=3, tol=1e-8), classes),
    "lasso": (dn.LassoCV(cv=3, tol=1e-8), targets),
    "elastic net": (dn.ElasticNetCV(cv=3, l1_ratio=[0.5, 0.9], tol=1e-8), targets),
    "poisson": (dn.PoissonRegressorCV(cv=3, tol=1e-8), np.abs(targets)),
    "multi-task lasso": (dn.MultiTaskLassoCV(cv=3, alphas=4, tol=1e-8), np.column_stack([targets, z])),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_a_search_on_a_device_chooses_what_it_chooses_in_memory(name, as_library):
    model, y = SEARCHES[name]
    weights = np.linspace(0.5, 1.5, 400)
    here = copy.copy(model).fit(X, y, weights)
    found = copy.copy(model).fit(FakeArray(X), FakeArray(y), FakeArray(weights))
    chosen = "C_" if hasattr(here, "C_") else "alpha_"
    np.testing.assert_allclose(getattr(found, chosen), getattr(here, chosen), rtol=1e-12)
    assert isinstance(found.coef_, FakeArray)
    np.testing.assert_allclose(on_host(found.coef_), here.coef_, atol=1e-3 * np.abs(here.coef_).max())
    assert all(each.relative_gap <= 1e-8 for each in np.ravel([found.certificate_]))


@pytest.mark.parametrize("model", [dn.RidgeCV(), dn.RidgeClassifierCV()], ids=lambda model: type(model).__name__)
def test_leaving_one_row_out_needs_rows_in_memory_and_says_so(model, as_library):
    with pytest.raises(
        dn.DualnewtonError, match=r"cv=None\) needs rows in the memory of this process, but the data are on a device"
    ):
        copy.copy(model).fit(FakeArray(X), FakeArray((targets > 0.0) * 1))


def test_a_device_without_a_gpu_is_refused():
    with pytest.raises(dn.DualnewtonError, match="GPU"):
        dn.Ridge(device="cuda").fit(X, targets)
