"""Least squares with thresholds on sparse data: every storage gives the same models, and the work stays small."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.run.path import solve_path
from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.direct import active_set
from dualnewton.solvers.prox import entry_paths, subproblem
from dualnewton.solvers.prox.paths import FromColumns
from estimators.cases import relative
from tuned import tuned

STORAGES = {
    "dense": lambda X: X.toarray(),
    "csr": lambda X: X,
    "csc": lambda X: X.tocsc(),
    "csr float32": lambda X: X.astype(np.float32),
    "dense float32": lambda X: X.toarray().astype(np.float32),
}
"""The entries are zeros and ones, which float32 represents exactly."""


def presences(n, d, each, seed=0, outputs=1):
    """Zeros and ones with ``each`` ones in a row on average, and targets of a tenth of the features."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=each / d, rng=rng, format="csr")
    X.data[:] = 1.0
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    w = rng.standard_normal((d, outputs)) * (rng.random((d, 1)) < 0.1)
    Y = X @ w + 0.5 * rng.standard_normal((n, outputs))
    return X, Y[:, 0] if outputs == 1 else Y


PATHS = {
    "lasso_path": lambda X, y, c: dn.lasso_path(X, y, alphas=12, eps=0.05, tol=1e-9, sample_weight=c)[1],
    "enet_path": lambda X, y, c: dn.enet_path(X, y, alphas=12, eps=0.02, tol=1e-10, sample_weight=c)[1],
    "enet_path, positive": lambda X, y, c: dn.enet_path(
        X, y, alphas=12, eps=0.02, tol=1e-10, positive=True, sample_weight=c
    )[1],
}
MODELS = {
    "Lasso": (dn.Lasso(alpha=0.02, tol=1e-10), 1),
    "Lasso, positive": (dn.Lasso(alpha=0.02, tol=1e-10, positive=True), 1),
    "Lasso, no intercept": (dn.Lasso(alpha=0.02, tol=1e-10, fit_intercept=False), 1),
    "ElasticNet": (dn.ElasticNet(alpha=0.02, tol=1e-11), 1),
    "LassoCV": (dn.LassoCV(alphas=8, eps=0.05, cv=3, tol=1e-9), 1),
    "ElasticNetCV": (dn.ElasticNetCV(l1_ratio=[0.5, 0.9], alphas=8, eps=0.05, cv=3, tol=1e-10), 1),
    "MultiTaskLasso": (dn.MultiTaskLasso(alpha=0.05, tol=1e-10), 3),
    "MultiTaskElasticNet": (dn.MultiTaskElasticNet(alpha=0.05, tol=1e-10), 3),
    "MultiTaskLassoCV": (dn.MultiTaskLassoCV(alphas=6, eps=0.1, cv=3, tol=1e-9), 3),
    "MultiTaskElasticNetCV": (dn.MultiTaskElasticNetCV(alphas=6, eps=0.1, cv=3, tol=1e-10), 3),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_paths_of_all_storages_agree(path, weighted):
    X, y = presences(90, 400, 8)
    c = np.random.default_rng(1).integers(0, 3, 90) if weighted else None
    dense, seen = PATHS[path](X.toarray(), y, c), X if c is None else X[c > 0.0]
    assert np.count_nonzero(dense[:, -1]) > 20
    for storage, stored in STORAGES.items():
        # Features that are alike leave coefficients open, but not what they predict.
        assert relative(seen @ PATHS[path](stored(X), y, c), seen @ dense) < 1e-4, storage


@pytest.mark.parametrize("name", MODELS)
def test_models_of_all_storages_agree(name):
    model, outputs = MODELS[name]
    X, y = presences(300, 500, 10, outputs=outputs)
    found = {storage: model.fit(stored(X), y).coef_.copy() for storage, stored in STORAGES.items()}
    assert np.count_nonzero(found["dense"]) > 10
    for storage, coef in found.items():
        assert relative(coef, found["dense"]) < 1e-4, storage
    assert model.fit(X, y).certificate_.relative_gap <= model.tol
    if "CV" in name:
        assert model.fit(X, y).alpha_ == pytest.approx(model.fit(X.toarray(), y).alpha_)


def test_one_sparse_model_is_fitted_in_one_call():
    X, y = presences(300, 500, 10)
    for model in (dn.Lasso(alpha=0.02), dn.ElasticNet(alpha=0.02)):
        assert model.fit(X, y).plan_.family == "entries"
    few, many = presences(60, 400, 8), presences(400, 300, 40)
    assert dn.Lasso(alpha=0.02).fit(*few).plan_.family == "thresholds"  # nothing is compiled
    assert dn.Lasso(alpha=0.02).fit(*many).plan_.family == "thresholds"  # small, too, with fewer features than examples


def test_a_path_of_thin_features_takes_sweeps_and_no_linear_systems(monkeypatch):
    """Most of these features have one or two entries, and many are alike: each strength took dozens of singular systems."""
    X, y = presences(180, 800, 7)
    systems, models = [], []
    for module, name in ((subproblem, "rounds_of"), (active_set, "solution"), (subproblem, "minimise")):
        inner = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *args, inner=inner, **more: systems.append(1) or inner(*args, **more))
    begin = entry_paths.EntryModel.begin
    monkeypatch.setattr(entry_paths.EntryModel, "begin", lambda self, w: models.append(self) or begin(self, w))
    _, coefs, _, certificates = dn.lasso_path(X, y, return_certificates=True)
    assert np.count_nonzero(coefs[:, -1]) > 150
    assert max(certificate.relative_gap for certificate in certificates) <= 1e-4
    assert not systems
    assert models[0].sweeps < 8000  # 80 for each strength


@pytest.mark.parametrize(("storage", "ridge"), [("dense", 0.0), ("csr", 0.0), ("csr", 0.5)])
def test_features_that_are_nearly_combinations_of_others_get_a_matrix(storage, ridge, monkeypatch):
    """Where sweeps do not suffice for a strength, paths with matrices go on from the strength before."""
    X, y = presences(90, 400, 8)
    g = regularizers.ElasticNet(1.0 - ridge) if ridge else regularizers.L1()
    problem = dn.Problem(STORAGES[storage](X), y, losses.Squared(), regularizer=g, lam=1.0)
    lams, starts, begin = np.geomspace(0.2, 0.01, 12), [], FromColumns.begin
    monkeypatch.setattr(FromColumns, "begin", lambda self, W=None, *more: starts.append(W) or begin(self, W, *more))
    wanted = solve_path(problem, lams, tol=1e-9)
    assert not starts
    few = tuned(path_sweeps=10)
    found = solve_path(problem, lams, tol=1e-9, tuning=few)
    assert len(starts) == 1
    assert starts[0].any()
    for own, other in zip(found, wanted, strict=True):
        assert own.certificate.relative_gap <= 1e-9
        assert own.certificate.primal == pytest.approx(other.certificate.primal, rel=1e-8)


def test_a_path_of_more_dense_features_than_rows_forms_no_matrix(monkeypatch):
    """With about 60 features in use, of 60 rows, most Newton steps would exchange one feature for another."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 500))
    y = X[:, :5] @ np.ones(5) + rng.standard_normal(60)
    monkeypatch.setattr(FromColumns, "gather", lambda *_: pytest.fail("features were gathered"))
    models, begin = [], entry_paths.EntryModel.begin
    monkeypatch.setattr(entry_paths.EntryModel, "begin", lambda self, w: models.append(self) or begin(self, w))
    _, coefs, _, certificates = dn.lasso_path(X, y, return_certificates=True)
    assert np.count_nonzero(coefs[:, -1]) > 55
    assert max(certificate.relative_gap for certificate in certificates) <= 1e-4
    assert models[0].sweeps < 5000


def test_paths_without_thresholds_agree_with_single_models():
    """l1_ratio = 0 uses all features: paths by entries leave it to those with matrices."""
    X, y = presences(90, 400, 8)
    model = dn.ElasticNetCV(l1_ratio=0.0, alphas=[0.1, 0.05], cv=3, tol=1e-9).fit(X, y)
    single = dn.ElasticNet(l1_ratio=0.0, alpha=model.alpha_, tol=1e-9).fit(X, y)
    assert relative(X @ model.coef_, X @ single.coef_) < 1e-4


def refuse():
    """Paths with matrices that are not needed."""
    raise AssertionError("sweeps did not suffice")


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_a_walk_by_entries_ends_where_single_models_do(fit_intercept):
    X, y = presences(90, 400, 8)
    data = dn.matrix.as_data(X)
    c = np.random.default_rng(1).uniform(0.0, 2.0, (2, 90)) * (np.arange(90) % 3 != np.arange(2)[:, None])
    c *= 90 / c.sum(axis=1, keepdims=True)
    paths = entry_paths.FromEntries(data, y, c, refuse, Crossovers(), fit_intercept=fit_intercept)
    base = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=1.0)
    strengths = [0.2, 0.1, 0.07, 0.05, 0.03]
    penalties = [subproblem.Penalty.of(base).times(strength) for strength in strengths]
    (found,) = paths.along(penalties, [1e-9 * float(each.threshold.max()) for each in penalties])
    for f, weights in enumerate(c):
        for k, lam in enumerate(strengths):
            problem = dn.Problem(
                X, y, losses.Squared(), regularizer=regularizers.L1(), lam=lam, sample_weight=weights,
                fit_intercept=fit_intercept,
            )  # fmt: skip
            single = dn.solve(problem, tol=1e-11, tuning=tuned(entry_fit=0))
            value = problem.primal(found.W[k, f], found.b[k, f])
            assert value == pytest.approx(single.certificate.primal, rel=1e-8)
    np.testing.assert_allclose(paths.V, found.W[-1][:, paths.inside])
    losses_there = [0.5 * float(own @ np.square(X @ found.W[-1, f] + found.b[-1, f] - y)) for f, own in enumerate(c)]
    np.testing.assert_allclose(paths.losses, losses_there, rtol=1e-9)


def test_a_walk_that_is_over_stays_where_it_is():
    X, y = presences(90, 400, 8)
    data, c = dn.matrix.as_data(X), np.ones((1, 90))
    paths = entry_paths.FromEntries(data, y, c, refuse, Crossovers(), fit_intercept=True)
    base = dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=1.0)
    penalties = [subproblem.Penalty.of(base).times(strength) for strength in (0.2, 0.1, 0.05)]
    (found,) = paths.along(penalties, [1e-9] * 3, lambda: True)
    assert not found.W.any()


THIN = {
    "Ridge": (dn.Ridge(), "targets"),
    "RidgeCV": (dn.RidgeCV(), "targets"),
    "ElasticNet": (dn.ElasticNet(alpha=0.01), "targets"),
    "LassoCV": (dn.LassoCV(alphas=10, cv=3), "targets"),
    "LogisticRegression": (dn.LogisticRegression(), "labels"),
    "LogisticRegression, l1": (dn.LogisticRegression(l1_ratio=1, solver="liblinear"), "labels"),
    "LinearSVC": (dn.LinearSVC(), "labels"),
    "PoissonRegressor": (dn.PoissonRegressor(), "labels"),
}


@pytest.mark.parametrize("model", THIN)
def test_dense_rows_with_few_nonzero_entries_are_fitted_as_sparse_ones(model):
    """A dense array that is nearly all zeros has the bits of its CSR array: the fit reads the nonzero entries of both."""
    estimator, wanted = THIN[model]
    X, y = presences(300, 600, 8)
    y = y if wanted == "targets" else (y > np.median(y)).astype(int)
    sparse, dense = (clone(estimator).fit(each, y) for each in (X, X.toarray()))
    assert dense.plan_ == sparse.plan_
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    np.testing.assert_array_equal(dense.intercept_, sparse.intercept_)


def test_other_dense_rows_stay_dense():
    """Neither few features nor many nonzero entries nor a class with attributes of dense rows make a fit sparse."""
    for X, model in (
        (presences(1500, 100, 2)[0], dn.Ridge()),
        (presences(300, 600, 60)[0], dn.Ridge()),
        (presences(300, 600, 8)[0], dn.LinearRegression()),
    ):
        assert isinstance(model._checked(X.toarray(), X @ np.ones(X.shape[1]), None).X, np.ndarray)


@pytest.mark.parametrize("kind", [sp.coo_array, sp.coo_matrix, sp.csc_array, sp.lil_array, sp.dok_array])
def test_the_prediction_of_one_row_is_a_vector(kind):
    """SciPy's product of a coordinate array of one row and a vector is a number."""
    X, y = presences(30, 4, 2)
    assert dn.Ridge().fit(X, y).predict(kind(X[:1])).shape == (1,)
