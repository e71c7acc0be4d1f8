"""Gathered features have one storage at a time: runs on sparse data whose columns differ in density find what dense data give.

In "sparse first" the first working sets have columns with few nonzero entries, and later ones have columns with up to 40 %: the
gathered features change from CSR to dense. In "dense first" they change from dense to CSR.
"""

import itertools
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.estimators._base import CertifiedModel
from dualnewton.matrix import MemoryData
from dualnewton.planning.working_sets import SetSizes
from dualnewton.solvers.deadline import NEVER
from dualnewton.solvers.prox.curvature import RowWeights
from dualnewton.solvers.prox.working_set import Gathered, Growing
from tuned import tuned

ORDERS = {
    "sparse first": ((0.05, 0.07), (0.15, 0.4), ["csr", "dense"]),
    "dense first": ((0.5, 0.6), (0.01, 0.03), ["dense", "csr"]),
}
"""The range of the densities of the first columns, that of the others, and the storages that the gathered features have."""

N, D = 240, 120


@lru_cache
def data(order):
    """Return X, with columns of about one size and rounded to float32, and margins to which the first columns matter most."""
    rng, (first, others, _) = np.random.default_rng(0), ORDERS[order]
    strong = 16 if order == "sparse first" else 4
    density = np.r_[rng.uniform(*first, strong), rng.uniform(*others, D - strong)]
    X = (rng.standard_normal((N, D)) / np.sqrt(density) * (rng.random((N, D)) < density)).astype(np.float32)
    w = np.r_[np.full(strong, 2.0), np.full(60, 0.2), np.zeros(D - strong - 60)]
    X = X.astype(float)
    return X, X @ w


def with_index(X, kind, dtype):
    A = sp.csr_array(X)
    A.indices, A.indptr = A.indices.astype(kind), A.indptr.astype(kind)
    return A.astype(dtype)


def mapped(X, folder, dtype):
    np.save(folder / "X.npy", X.astype(dtype))
    return np.load(folder / "X.npy", mmap_mode="r")


STORAGES = {
    "dense, by rows": lambda X, dtype, _: X.astype(dtype),
    "dense, by columns": lambda X, dtype, _: np.asfortranarray(X, dtype=dtype),
    "memory-mapped": lambda X, dtype, folder: mapped(X, folder, dtype),
    "csr, int32": lambda X, dtype, _: with_index(X, np.int32, dtype),
    "csr, int64": lambda X, dtype, _: with_index(X, np.int64, dtype),
    "csc": lambda X, dtype, _: sp.csc_array(X.astype(dtype)),
}

PENALTIES = {
    "lasso": regularizers.L1(),
    "elastic net": regularizers.ElasticNet(0.5),
    "nonnegative": regularizers.NonNegative(),
    "box": regularizers.Box(-0.3, 0.5),
}


def problem_of(kind, penalty, X, margins):
    """A problem with these margins (1: least squares), whose optimum has some 50 coefficients."""
    rng, g = np.random.default_rng(1), PENALTIES[penalty]
    if kind == "squared":
        y = margins + rng.standard_normal(N)
        return dn.Problem(X, y, losses.Squared(), regularizer=g, lam=0.1, fit_intercept=True)
    y = margins + rng.logistic(size=N)
    if kind == "logistic":
        return dn.Problem(X, np.sign(y), losses.Logistic(), regularizer=g, lam=0.004, fit_intercept=True)
    classes = np.searchsorted(np.quantile(y, [1 / 3, 2 / 3]), y)
    return dn.MultinomialProblem(X, classes, lam=0.004, n_classes=3, regularizer=g, fit_intercept=True)


@lru_cache
def reference(kind, penalty, order):
    """The dense problem in float64 and its optimum, with all features in each step."""
    X, margins = data(order)
    problem = problem_of(kind, penalty, X, margins)
    result = dn.solve(problem, method="newton", tol=1e-11, tuning=tuned(least_set=3 * D))
    assert "all features" in result.plan.reason
    assert result.converged
    return problem, result


SMALL_SETS = tuned(least_set=4, thin_share=0.1, multiply=1.0, sparse_pair=1.0, most_together=4, walk_share=2.0)


@pytest.fixture
def small_sets(monkeypatch):
    """Begin with working sets of 4 features; return the storages and sizes that the gathered features have had."""
    monkeypatch.setattr(CertifiedModel, "_tuning", SMALL_SETS)
    seen, places = [], Gathered.places

    def watched(self, features):
        found = places(self, features)
        assert type(self.rows) in (np.ndarray, sp.csr_array)
        assert self.rows.shape == (self.features.size, self.data.n)
        seen.append(("csr" if sp.issparse(self.rows) else "dense", self.features.size))
        return found

    monkeypatch.setattr(Gathered, "places", watched)
    return seen


def changes(values):
    return [value for k, value in enumerate(values) if k == 0 or value != values[k - 1]]


MODELS = list(itertools.product(["squared", "logistic", "softmax"], PENALTIES))


@pytest.mark.parametrize(
    ("model", "order", "storage", "dtype"), all_pairs(MODELS, ORDERS, STORAGES, ["float32", "float64"]), ids=str
)
def test_any_storage_gives_what_dense_data_give(model, order, storage, dtype, small_sets, tmp_path):
    """Every model meets every storage, order and dtype, and each of these every other; not all of them at once."""
    kind, penalty = model
    wide, best = reference(kind, penalty, order)
    X, margins = data(order)
    problem = problem_of(kind, penalty, STORAGES[storage](X, dtype, tmp_path), margins)
    result = dn.solve(problem, method="newton", tol=1e-9, max_epochs=300, tuning=SMALL_SETS)
    assert result.converged
    assert wide.certify(result.w, result.intercept).relative_gap <= 2e-9
    assert result.certificate.primal == pytest.approx(best.certificate.primal, rel=2e-9)
    assert len(changes([count for _, count in small_sets])) > 1  # it grew
    assert changes([kind for kind, _ in small_sets])[-2:] == (
        ORDERS[order][2] if storage.startswith("cs") else ["dense"]
    )


ESTIMATORS = {
    "lasso": (dn.Lasso(solver="newton", tol=1e-9), "squared", [0.03, 0.3, 1.0]),
    "elastic net": (dn.ElasticNet(l1_ratio=0.6, solver="newton", tol=1e-9), "squared", [0.03, 0.3]),
    "nonnegative ridge": (dn.Ridge(positive=True, solver="newton", tol=1e-9), "squared", [1.0, 30.0]),
    "l1 logistic": (dn.LogisticRegression(l1_ratio=1.0, solver="newton", tol=1e-9), "logistic", [1.0, 0.1]),
    "l1 softmax": (dn.LogisticRegression(l1_ratio=1.0, solver="newton", tol=1e-9), "softmax", [1.0, 0.1]),
    "elastic-net softmax": (dn.LogisticRegression(l1_ratio=0.5, solver="newton", tol=1e-9), "softmax", [1.0]),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "kernels"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_single_fits_and_paths_agree_for_any_storage(name, order, compiled, small_sets, monkeypatch):
    small = replace(SMALL_SETS, small_entries=0 if compiled else N * D * 3)
    monkeypatch.setattr(CertifiedModel, "_tuning", small)
    model, kind, values = ESTIMATORS[name]
    X, margins = data(order)
    y = problem_of(kind, "lasso", X, margins).y
    strength = "C" if "C" in model.get_params() else "alpha"
    expected = model.path(X, y, values)
    small_sets.clear()
    for storage in (sp.csr_array(X), sp.csc_array(X.astype(np.float32))):
        path = model.path(storage, y, values)
        np.testing.assert_allclose(path.coef, expected.coef, atol=1e-3)
        for certificate, own in zip(np.ravel(path.certificates), np.ravel(expected.certificates), strict=True):
            assert certificate.primal == pytest.approx(own.primal, rel=3e-9)
        single = clone(model).set_params(**{strength: values[0]}).fit(storage, y)
        assert np.ravel(single.certificate_)[0].primal == pytest.approx(
            np.ravel(expected.certificates)[0].primal, rel=3e-9
        )
    assert {kind for kind, _ in small_sets} == {"csr", "dense"}


@pytest.mark.parametrize("order", ORDERS)
def test_folds_agree_for_any_storage(order, small_sets):
    X, margins = data(order)
    for model, kind in (
        (dn.ElasticNetCV(l1_ratio=1.0, solver="newton", alphas=[0.3, 0.1], cv=3, tol=1e-9), "squared"),
        (dn.LogisticRegressionCV(l1_ratios=[1.0], Cs=[0.1, 1.0], cv=3, solver="newton", tol=1e-9), "logistic"),
    ):
        y = problem_of(kind, "lasso", X, margins).y
        dense = clone(model).fit(X, y)
        small_sets.clear()
        sparse = clone(model).fit(sp.csr_array(X), y)
        assert {kind for kind, _ in small_sets} == {"csr", "dense"}
        np.testing.assert_allclose(sparse.coef_, dense.coef_, atol=1e-3)


def test_sets_that_shrink_and_grow_again_share_one_storage(small_sets):
    """Models of one run whose working sets differ: from the one with most features to the one with fewest, and back."""
    X, margins = data("dense first")
    problem = problem_of("squared", "lasso", sp.csr_array(X), margins)
    ways = [0.02, 1.0, 0.1, 0.5, 0.02]
    problems = [
        dn.Problem(problem.X, problem.y, losses.Squared(), regularizer=regularizers.L1(), lam=lam, fit_intercept=True)
        for lam in ways
    ]
    results = dn.solve_many(problems, method="newton", tol=1e-10, tuning=SMALL_SETS)
    assert {kind for kind, _ in small_sets} == {"csr", "dense"}
    for lam, result in zip(ways, results, strict=True):
        wide = dn.Problem(X, problem.y, losses.Squared(), regularizer=regularizers.L1(), lam=lam, fit_intercept=True)
        assert wide.certify(result.w, result.intercept).relative_gap <= 2e-10
    near = dn.solve_many(problems[1:2], method="newton", tol=1e-10, warm_start=results[:1], tuning=SMALL_SETS)[
        0
    ]  # from many features to few
    assert near.certificate.primal == pytest.approx(results[1].certificate.primal, rel=2e-10)


def test_no_matrix_of_more_features_than_a_step_may_have_is_kept():
    X, _ = data("dense first")
    rows = MemoryData(sp.csr_array(X))
    sizes = SetSizes.of(rows, tuned(largest_matrix=6), once=True, compiled=False)
    growing = Growing(Gathered(rows, sizes), np.ones(N))
    for inside in (np.arange(5), np.arange(4, 10), np.arange(20, 25)):
        found = growing.curvature(inside, RowWeights(np.ones(N)), NEVER)
        np.testing.assert_allclose(found.H, X[:, inside].T @ X[:, inside], atol=1e-11)
        assert growing.known.H.shape == (5, 5)
