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
BINARY, CLASSES, NUMBERS, POSITIVE, OUTPUTS = "binary", "classes", "numbers", "positive numbers", "outputs"
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
    "least squares": (dn.LinearRegression(), NUMBERS),
    "smooth hinge": (dn.ERMClassifier("smooth_hinge"), BINARY),
    "any regression": (dn.ERMRegressor("huber"), NUMBERS),
    "poisson": (dn.PoissonRegressor(alpha=0.1), POSITIVE),
    "gamma": (dn.GammaRegressor(alpha=0.1), POSITIVE),
    "tweedie": (dn.TweedieRegressor(power=1.5, alpha=0.1), POSITIVE),
    "several outputs, elastic net": (dn.MultiTaskElasticNet(alpha=0.1), OUTPUTS),
    "several outputs, lasso": (dn.MultiTaskLasso(alpha=0.1), OUTPUTS),
    "logistic, folds": (dn.LogisticRegressionCV(Cs=[0.1, 1.0], cv=3), BINARY),
    "ridge, leave one out": (dn.RidgeCV([0.1, 10.0]), NUMBERS),
    "ridge, folds": (dn.RidgeCV([0.1, 10.0], cv=3), NUMBERS),
    "ridge classifier, folds": (dn.RidgeClassifierCV([0.1, 10.0], cv=3), CLASSES),
    "elastic net, folds": (dn.ElasticNetCV(alphas=4, cv=3), NUMBERS),
    "lasso, folds": (dn.LassoCV(alphas=4, cv=3), NUMBERS),
    "several outputs, elastic net, folds": (dn.MultiTaskElasticNetCV(alphas=4, cv=3), OUTPUTS),
    "several outputs, lasso, folds": (dn.MultiTaskLassoCV(alphas=4, cv=3), OUTPUTS),
    "poisson, folds": (dn.PoissonRegressorCV(alphas=3, cv=3), POSITIVE),
    "gamma, folds": (dn.GammaRegressorCV(alphas=3, cv=3), POSITIVE),
    "tweedie, folds": (dn.TweedieRegressorCV(power=1.5, alphas=3, cv=3), POSITIVE),
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
    targets = {
        BINARY: z > 0.0,
        CLASSES: np.searchsorted(np.quantile(z, [0.3, 0.6]), z),
        NUMBERS: z,
        POSITIVE: np.exp(0.3 * z),
        OUTPUTS: np.column_stack([z, z[::-1]]),
    }
    return STORAGES[storage](X), targets[target]


def test_every_estimator_is_here():
    classes = {name for name in dn.estimators.__all__ if isinstance(getattr(dn, name), type)}
    assert {type(model).__name__ for model, _ in ESTIMATORS.values()} == classes


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
    # A direct solver that gives up is followed by the loop, which may go on by the same method.
    told = [method for method, _ in itertools.groupby(each for each in chain(model.plan_) if each != "direct")]
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
