"""Data on a device with so many features that methods keep their vectors over features there, too."""

from dataclasses import replace

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix.device import DeviceData
from dualnewton.objective.huber_scale import HuberScaleProblem
from fake_device import NAMESPACE, FakeArray
from tuned import tuned

TOL = 1e-8
RNG = np.random.default_rng(5)


class Wide(DeviceData):
    """Data on a device whose vectors over features are there, however few the features."""

    many = 1


def rows_of(n, d):
    X = RNG.standard_normal((n, d)) * np.geomspace(1.0, 0.1, d)
    z = X @ RNG.standard_normal(d) + RNG.logistic(size=n)
    classes = np.argmax(np.stack([z, -z, RNG.gumbel(size=n)], axis=1), axis=1)
    return X, {"signs": np.where(z > 0.3, 1.0, -1.0), "targets": z, "classes": classes}


SHAPES = {"more features than rows": rows_of(60, 150), "more rows than features": rows_of(400, 12)}
LOSSES = {
    "logistic": (losses.Logistic(), "signs"),
    "squared hinge": (losses.SquaredHinge(), "signs"),
    "squared": (losses.Squared(), "targets"),
    "softmax": (losses.Softmax(3), "classes"),
}


def posed(shape, loss, kind, *, intercept):
    (X, labels), (made, y) = SHAPES[shape], LOSSES[loss]
    data = kind(FakeArray(X.copy()), NAMESPACE) if kind is not np.asarray else X
    return dn.Problem(data, labels[y], made, lam=0.01, fit_intercept=intercept)


CURVATURES = {
    "square": tuned(),
    "rows": tuned(always_square=0),
    "products": tuned(largest_matrix=5, always_square=0),
}


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("method", ["newton", "ihs"])
@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_where_vectors_are_does_not_change_the_result(shape, loss, curvature, method, intercept):
    if loss == "softmax" and curvature == "products" and method == "newton":
        pytest.skip("Newton's method for softmax takes a square matrix only")
    how = {"method": method, "tol": TOL, "random_state": 0, "tuning": CURVATURES[curvature]}
    there, near = (posed(shape, loss, kind, intercept=intercept) for kind in (Wide, DeviceData))
    found, other = (dn.solve(each, **how) for each in (there, near))
    assert found.converged, found
    assert type(found.w) is np.ndarray
    assert found.n_epochs == other.n_epochs
    np.testing.assert_allclose(found.w, other.w, rtol=0, atol=1e-9 * np.abs(other.w).max())
    here = posed(shape, loss, np.asarray, intercept=intercept)
    assert here.certify(found.w, found.intercept, found.alpha.get()).relative_gap <= 2.0 * TOL


@pytest.mark.parametrize("shape", SHAPES)
def test_a_run_continues_from_its_checkpoint_with_equal_bits(shape, tmp_path):
    problem = posed(shape, "logistic", Wide, intercept=True)
    whole = dn.solve(problem, method="ihs", tol=TOL, random_state=0)
    file = tmp_path / "run.npz"
    dn.solve(problem, method="ihs", tol=TOL, random_state=0, max_epochs=2, checkpoint=file)
    again = dn.solve(problem, method="ihs", tol=TOL, random_state=0, checkpoint=file)
    assert np.array_equal(whole.w, again.w)
    assert whole.n_epochs == again.n_epochs


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_where_the_model_is(shape):
    X, _ = SHAPES[shape]
    data = Wide(FakeArray(X.copy()), NAMESPACE)
    V = RNG.standard_normal((2, X.shape[1]))
    weights = RNG.uniform(size=(len(X), 2))
    near, sums = data.weighted_products(V, np.zeros(2), data.placed(weights))
    there, same = data.weighted_products(data.feature_array(V), np.zeros(2), data.placed(weights))
    assert type(near) is np.ndarray
    assert type(there) is FakeArray
    np.testing.assert_array_equal(near, there.get())
    np.testing.assert_array_equal(sums, same)
    some = np.array([1, 4, 5])
    factor, v = data.as_factor(None, some, np.ones(data.d)), V[0]
    np.testing.assert_allclose(factor @ data.feature_array(v), X[some] @ v)
    np.testing.assert_allclose((factor.T @ v[:3]).get(), X[some].T @ v[:3])


@pytest.mark.parametrize("shape", SHAPES)
def test_models_that_share_passes_and_warm_starts_have_vectors_on_the_device(shape):
    first = posed(shape, "logistic", Wide, intercept=True)
    problems = [first, replace(first, lam=0.1)]
    cold = dn.solve_many(problems, method="ihs", tol=TOL, random_state=0)
    assert all(each.converged and type(each.w) is np.ndarray for each in cold)
    for problem, found in zip(problems, cold, strict=True):
        again = dn.solve(problem, method="ihs", tol=TOL, warm_start=found, random_state=0)
        assert again.converged
        assert again.n_epochs <= 1.0
        from_device = replace(found, w=problem.data.feature_array(found.w))
        assert dn.solve(problem, method="ihs", tol=TOL, warm_start=from_device, random_state=0).converged
        assert problem.certify(problem.data.feature_array(found.w), found.intercept).relative_gap <= 2.0 * TOL


SCHEMES = {
    "hinge": lambda data, y: dn.Problem(data, y["signs"], losses.Hinge(), lam=0.01, fit_intercept=True),
    "quantile": lambda data, y: dn.Problem(data, y["targets"], losses.Quantile(0.3), lam=0.01, fit_intercept=True),
    "scale": lambda data, y: HuberScaleProblem(data, y["targets"], lam=0.1, fit_intercept=True),
}


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("shape", SHAPES)
def test_schemes_that_work_in_memory_fit_models_on_the_device(shape, scheme):
    X, y = SHAPES[shape]
    found = dn.solve(SCHEMES[scheme](Wide(FakeArray(X.copy()), NAMESPACE), y), tol=1e-5, random_state=0)
    other = dn.solve(SCHEMES[scheme](X, y), tol=1e-5, random_state=0)
    assert found.converged, found
    assert type(found.w) is np.ndarray
    assert abs(found.certificate.primal - other.certificate.primal) <= 2e-5 * other.certificate.primal


def test_vectors_of_equal_numbers_are_made_on_the_device(monkeypatch):
    data = Wide(FakeArray(RNG.standard_normal((4, 3))), NAMESPACE)
    monkeypatch.setattr(data, "_small", None)  # which copies
    np.testing.assert_array_equal(data.feature_array(np.broadcast_to(2.5, 3)).get(), np.full(3, 2.5))
    assert data.feature_array(np.broadcast_to(0.0, 3)) is data.feature_array(np.broadcast_to(0.0, 3))
