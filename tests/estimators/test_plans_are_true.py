"""``plan_`` names the methods that have stepped, in their order, and "direct" where none has."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

import dualnewton as dn
from dualnewton.run import loop
from dualnewton.solvers.protocol import OuterMethod

SHAPES = {"tall": (90, 8), "wide": (20, 60), "large": (2700, 50)}
STORAGES = {"dense": np.ascontiguousarray, "CSR": sp.csr_array}
BINARY, CLASSES, NUMBERS = "binary", "classes", "numbers"
ESTIMATORS = {
    "logistic": (dn.LogisticRegression(), BINARY),
    "logistic, strong penalty": (dn.LogisticRegression(C=1e-3), BINARY),
    "logistic, l1": (dn.LogisticRegression(C=0.1, l1_ratio=1.0), BINARY),
    "logistic, no penalty": (dn.LogisticRegression(C=np.inf, max_iter=30), BINARY),
    "softmax": (dn.LogisticRegression(), CLASSES),
    "softmax, l1": (dn.LogisticRegression(C=0.1, l1_ratio=1.0), CLASSES),
    "squared hinge": (dn.LinearSVC(), BINARY),
    "hinge": (dn.LinearSVC(loss="hinge", C=0.1), BINARY),
    "ridge": (dn.Ridge(), NUMBERS),
    "ridge, sdna": (dn.Ridge(solver="sdna"), NUMBERS),
    "ridge, no penalty": (dn.Ridge(alpha=0.0), NUMBERS),
    "ridge, positive": (dn.Ridge(positive=True), NUMBERS),
    "ridge classifier": (dn.RidgeClassifier(), CLASSES),
    "elastic net": (dn.ElasticNet(alpha=0.1), NUMBERS),
    "lasso": (dn.Lasso(alpha=0.1), NUMBERS),
    "huber": (dn.HuberRegressor(), NUMBERS),
    "quantile": (dn.QuantileRegressor(alpha=0.1), NUMBERS),
    "epsilon-insensitive": (dn.LinearSVR(epsilon=0.1), NUMBERS),
    "logistic, folds": (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3), BINARY),
    "ridge, leave one out": (dn.RidgeCV([0.1, 10.0]), NUMBERS),
    "ridge, folds": (dn.RidgeCV([0.1, 10.0], cv=3), NUMBERS),
    "elastic net, folds": (dn.ElasticNetCV(alphas=4, cv=3), NUMBERS),
}


@pytest.fixture
def runs(monkeypatch):
    """The methods that step, one list for each run: a run that changes its method adds to its list."""
    seen, make = [], loop.make_method

    def watched(plan, starts, *args):
        method = make(plan, starts, *args)
        if isinstance(method, OuterMethod):
            return method  # the steps of an outer scheme are those of its inner runs
        step = method.step
        if plan.before is None:
            seen.append([])

        def stepping(*args):
            seen[-1].append(plan.method)
            return step(*args)

        method.step = stepping
        return method

    monkeypatch.setattr(loop, "make_method", watched)
    return seen


def chain(plan):
    return [] if plan is None else [*chain(plan.before), plan.method]


def data(shape, storage, target):
    n, d = SHAPES[shape]
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    z = X @ rng.standard_normal(d) + 0.5 * rng.standard_normal(n)
    y = {BINARY: z > 0.0, CLASSES: np.searchsorted(np.quantile(z, [0.3, 0.6]), z), NUMBERS: z}[target]
    return STORAGES[storage](X), y


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_plan_names_the_methods_that_have_stepped(name, shape, storage, runs):
    model, target = ESTIMATORS[name]
    X, y = data(shape, storage, target)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    stepped = [[method for method, _ in itertools.groupby(run)] for run in runs if run]
    told = [method for method in chain(model.plan_) if method != "direct"]
    if model.plan_.family is not None:
        assert stepped == [] or "CV" in type(model).__name__  # a direct solver, without the loop
    elif told and not stepped:
        assert np.max(model.n_iter_) == 0  # w = 0 is optimal: the method of the plan had nothing to do
        assert not model.coef_.any()
    elif told:
        assert told in stepped
    else:
        assert chain(model.plan_) == ["direct"]
        assert stepped == [] or "CV" in type(model).__name__


@pytest.mark.parametrize(
    ("model", "shape", "reason"),
    [
        (dn.RidgeCV(), (60, 20), "eigendecomposition"),
        (dn.ElasticNetCV(alphas=3, cv=3), (60, 20), "moments"),
    ],
    ids=["ridge, leave one out", "elastic net, folds"],
)
def test_a_direct_solution_says_so(model, shape, reason):
    rng = np.random.default_rng(0)
    model.fit(rng.standard_normal(shape), rng.standard_normal(shape[0]))
    assert model.plan_.method == "direct"
    assert not model.plan_.is_primal
    assert reason in model.plan_.reason
    assert model.certificate_.relative_gap <= model.tol
