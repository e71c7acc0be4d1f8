"""Newton's method and its sketch: they find what the dual methods find, on any data, with certificates that hold."""

from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from covering import all_pairs
from dualnewton import losses, regularizers
from dualnewton.run.result import Status
from tables import LOSSES, labels_for, name_of
from tuned import tuned

PRIMAL = ("newton", "ihs")


def data(n=120, d=7, seed=0, storage="dense", dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6) * np.logspace(0, 1, d)
    return sp.csr_array(X.astype(dtype)) if storage == "csr" else X.astype(dtype)


def problem_of(loss, X, *, lam=0.01, seed=1, **extras):
    rng = np.random.default_rng(seed)
    n = X.shape[0]
    return dn.Problem(X, labels_for(loss, n, rng), loss, lam=lam, **extras)


def extras_for(kind, n, d, rng):
    return {
        "plain": {},
        "intercept": {"fit_intercept": True},
        "weights": {"sample_weight": rng.integers(0, 3, n).astype(float) + (np.arange(n) == 0)},
        "offset": {"offset": rng.standard_normal(n), "fit_intercept": True},
        "features": {"regularizer": regularizers.L2(rng.uniform(1.0, 9.0, d))},
    }[kind]


KINDS = ["plain", "intercept", "weights", "offset", "features"]
SHAPES = [(120, 7, "dense"), (120, 7, "csr"), (15, 40, "dense"), (15, 40, "csr")]


@pytest.mark.parametrize(("loss", "kind", "shape"), all_pairs(LOSSES, KINDS, SHAPES), ids=name_of)
def test_all_methods_agree_to_the_accuracy_of_the_certificate(loss, kind, shape):
    """Every loss meets every kind of problem and every shape, and these meet each other."""
    n, d, storage = shape
    X = data(n, d, storage=storage)
    problem = problem_of(loss, X, **extras_for(kind, n, d, np.random.default_rng(2)))
    reference = dn.solve(problem, method="sdna", tol=1e-11, max_epochs=20_000, random_state=0)
    assert reference.converged
    for method in PRIMAL:
        result = dn.solve(
            problem, method=method, tau="auto" if method == "newton" else min(n, 30), tol=1e-11, random_state=0
        )
        assert result.converged, (method, result.status)
        assert result.plan.method == method
        # P is λ-strongly convex: ‖w − w*‖² ≤ 2 gap/λ, for both of them.
        distance = sum(np.sqrt(2.0 * r.certificate.gap / problem.lam) for r in (result, reference))
        assert np.linalg.norm(result.w - reference.w) <= distance + 1e-7
        assert problem.certify(result.w, result.intercept, result.alpha).relative_gap <= 1e-10


@pytest.mark.parametrize(("method", "storage"), list(product(PRIMAL, ["dense", "csr"])))
def test_float32_data_are_read_as_they_are(method, storage):
    problem = problem_of(losses.Logistic(), data(3000, 40, storage=storage, dtype=np.float32))
    result = dn.solve(problem, method=method, tol=1e-9, random_state=0)
    assert result.converged
    wide = dn.Problem(problem.X.astype(np.float64), problem.y, problem.loss, lam=problem.lam)
    assert wide.certify(result.w).relative_gap <= 1e-8


@pytest.mark.parametrize(("method", "storage"), list(product(PRIMAL, ["dense", "csr"])))
def test_any_number_of_threads_gives_the_same_bits(method, storage):
    settings = {"random_state": 0}
    problem = problem_of(losses.SquaredHinge(), data(30_000, 30, storage=storage))
    one, three = (dn.solve(problem, method=method, n_threads=threads, **settings) for threads in (1, 3))
    assert np.array_equal(one.w, three.w)
    assert one.n_epochs == three.n_epochs


@pytest.mark.parametrize("method", PRIMAL)
def test_models_share_passes_and_each_finds_its_own(method):
    X = data(200, 6)
    problems = [problem_of(losses.Logistic(), X, lam=lam, seed=seed) for seed, lam in enumerate((0.1, 0.01, 0.001))]
    together = dn.solve_many(problems, method=method, tol=1e-10, random_state=0)
    for problem, result in zip(problems, together, strict=True):
        assert result.converged
        alone = dn.solve(problem, method=method, tol=1e-10, random_state=0)
        np.testing.assert_allclose(result.w, alone.w, atol=1e-5)


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Squared()], ids=name_of)
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_conjugate_gradients_serve_where_no_matrix_may_be_factorised(loss, fit_intercept):
    no_matrix = tuned(largest_matrix=5, always_square=0)
    problem = problem_of(loss, data(300, 60, storage="csr"), fit_intercept=fit_intercept)
    result = dn.solve(problem, method="newton", tol=1e-10, random_state=0, tuning=no_matrix)
    assert result.converged
    assert "conjugate gradients" in result.plan.reason
    exact = dn.solve(problem, method="sdna", tol=1e-11, max_epochs=5000, random_state=0)
    np.testing.assert_allclose(result.w, exact.w, atol=1e-4)


def test_a_quadratic_problem_takes_one_step_of_newton():
    problem = problem_of(losses.Squared(), data(500, 8), fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-12, random_state=0)
    assert result.converged
    assert result.n_epochs == 1.0  # one step with the curvature of all rows; only the certificate evaluates the optimum


def test_a_leap_that_rounding_has_spoilt_is_followed_by_steps():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) @ np.diag(np.logspace(0, 7, 20)) @ rng.standard_normal((20, 20))
    problem = dn.Problem(X, X @ rng.standard_normal(20) + rng.standard_normal(300), losses.Squared(), lam=1e-8)
    result = dn.solve(problem, method="newton", tol=1e-9, random_state=0)
    assert result.n_epochs > 1.0
    assert result.certificate.relative_gap <= 1e-9 or not result.converged


def test_rare_features_do_not_mislead_a_sketch():
    # A feature that nearly every sketch misses, with a curvature far above the penalty: its step would be a thousand times
    # too long.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 5))
    X = np.column_stack([X, np.zeros((4000, 20))])
    for j in range(20):
        X[rng.integers(0, 4000, 4), 5 + j] = 30.0
    problem = dn.Problem(sp.csr_array(X), np.sign(rng.standard_normal(4000)), losses.Logistic(), lam=1e-2 / 4000)
    result = dn.solve(problem, method="ihs", tau=200, tol=1e-8, random_state=0)
    assert result.converged
    assert result.n_epochs < 60


def hard_cases():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((150, 12))
    separable = np.sign(X[:, 0])
    noisy = np.sign(X[:, 0] + rng.standard_normal(150))
    return {
        "separable, tiny lambda": (X, separable, 1e-8),
        "collinear": (np.hstack([X, X, X[:, :1]]), noisy, 1e-6),
        "constant columns": (np.hstack([X, np.ones((150, 2)), np.zeros((150, 1))]), noisy, 1e-4),
        "wide": (rng.standard_normal((30, 300)), noisy[:30], 1e-4),
        "scales from 1e-8 to 1e8": (X * np.logspace(-8, 8, 12), noisy, 1e-3),
        "one class": (X, np.ones(150), 1e-3),
        "rows of zeros": (np.vstack([X, np.zeros((50, 12))]), np.append(noisy, np.ones(50)), 1e-3),
        "lambda 1e-12": (X, noisy, 1e-12),
        "lambda 1e6": (X, noisy, 1e6),
    }


@pytest.mark.parametrize("name", list(hard_cases()))
@pytest.mark.parametrize(
    "loss", [losses.Logistic(), losses.SquaredHinge(), losses.Squared(), losses.Huber(0.5)], ids=name_of
)
@pytest.mark.parametrize("method", [*PRIMAL, "auto"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_hard_problems_end_with_a_true_certificate(name, loss, method, fit_intercept):
    X, y, lam = hard_cases()[name]
    problem = dn.Problem(X, y, loss, lam=lam, fit_intercept=fit_intercept)
    result = dn.solve(problem, method=method, max_epochs=300, random_state=0)
    assert result.status in (Status.CONVERGED, Status.NO_PROGRESS, Status.EPOCH_LIMIT)
    assert np.isfinite(result.w).all()
    again = problem.certify(result.w, result.intercept, result.alpha)
    assert again.relative_gap <= 1.01 * result.certificate.relative_gap + 1e-12


def test_a_model_that_rounding_stops_says_so():
    problem = problem_of(losses.Logistic(), data(200, 5))
    result = dn.solve(problem, method="newton", tol=0.0, random_state=0)
    assert result.status is Status.NO_PROGRESS or result.certificate.gap == 0.0
    assert result.certificate.relative_gap <= 1e-12


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic()])
@pytest.mark.parametrize("lam_n", [1.0, 1e-4])
def test_wide_data_with_an_intercept_take_few_steps(loss, lam_n):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 500)), np.where(rng.random(50) < 0.7, 1.0, -1.0)
    problem = dn.Problem(X, y, loss, lam=lam_n / 50, fit_intercept=True)
    result = dn.solve(problem, method="newton", tol=1e-10)
    assert result.converged
    assert result.n_epochs <= 50


def test_sketches_follow_a_curvature_of_fewer_rows_than_features():
    """With a weak penalty few rows of the squared hinge have curvature, others at every step: old sketches are of little use."""
    rng = np.random.default_rng(0)
    rotation = np.linalg.qr(rng.standard_normal((150, 150)))[0]
    X = rng.standard_normal((1000, 150)) @ (np.geomspace(1.0, 0.03, 150)[:, None] * rotation)
    y = np.where(X @ rng.standard_normal(150) + 0.3 * rng.standard_normal(1000) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.SquaredHinge(), lam=1e-6)
    result = dn.solve(problem, method="ihs", tol=1e-6, random_state=0, max_epochs=200)
    assert result.converged, str(result)
