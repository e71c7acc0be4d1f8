"""The same fit and the same certificate, whether the rows lie in one matrix or in pieces."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import disk_cases
import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import ChunkedData
from tuned import GENERAL

N, D, K = 600, 12, 3
RNG = np.random.default_rng(8)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.6) * np.geomspace(0.1, 3.0, D)
SCORES = X @ RNG.standard_normal((D, K)) + 0.3
SIGNS = np.where(SCORES[:, 0] + RNG.standard_normal(N) > 0.2, 1.0, -1.0)
TARGETS = SCORES[:, 0] + RNG.standard_normal(N)
WEIGHTS = RNG.uniform(0.2, 2.0, N)

STORAGES = {"dense": np.asarray, "csr": sp.csr_array}
CUTS = [0, 1, 130, 400, N]
FITS = {
    "newton": (SIGNS, losses.Logistic(), regularizers.L2(), "newton"),
    "newton with weights of features": (SIGNS, losses.Logistic(), regularizers.L2(np.linspace(1, 3, D)), "newton"),
    "newton of pieces": (SIGNS, losses.SquaredHinge(), regularizers.L2(), "newton"),
    "least squares": (TARGETS, losses.Squared(), regularizers.L2(), "newton"),
    "ihs": (SIGNS, losses.Logistic(), regularizers.L2(), "ihs"),
    "huber ihs": (TARGETS, losses.Huber(0.7), regularizers.L2(), "ihs"),
    "elastic net": (TARGETS, losses.Squared(), regularizers.ElasticNet(0.5), "newton"),
    "lasso": (TARGETS, losses.Squared(), regularizers.L1(), "newton"),
    "l1 logistic": (SIGNS, losses.Logistic(), regularizers.L1(), "newton"),
    "nonnegative": (SIGNS, losses.Logistic(), regularizers.NonNegative(), "newton"),
    "hinge": (SIGNS, losses.Hinge(), regularizers.L2(), "newton"),
    "hinge by interior points": (SIGNS, losses.Hinge(), regularizers.L2(), "interior"),
    "quantile by interior points": (TARGETS, losses.Quantile(0.3), regularizers.L2(), "interior"),
}


def pieces_of(matrix):
    return ChunkedData([matrix[low:high] for low, high in itertools.pairwise(CUTS)])


def agree(whole, chunked):
    assert whole.converged
    assert chunked.converged
    assert chunked.plan.method == whole.plan.method
    np.testing.assert_allclose(chunked.w, whole.w, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(chunked.intercept, whole.intercept, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(chunked.certificate.primal, whole.certificate.primal, rtol=1e-11)
    assert chunked.n_epochs == pytest.approx(whole.n_epochs, abs=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("name", FITS)
def test_primal_methods_take_the_same_steps_on_pieces(name, fit_intercept, storage):
    y, loss, regularizer, method = FITS[name]
    matrix = STORAGES[storage](X)
    options = {"loss": loss, "regularizer": regularizer, "lam": 0.02, "fit_intercept": fit_intercept}
    problems = [
        dn.Problem(data, y, sample_weight=WEIGHTS, offset=0.1 * TARGETS, **options)
        for data in (matrix, pieces_of(matrix))
    ]
    agree(*(dn.solve(problem, method=method, tol=1e-12, random_state=0, tuning=GENERAL) for problem in problems))


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("method", ["newton", "ihs"])
@pytest.mark.parametrize("regularizer", [regularizers.L2(), regularizers.ElasticNet(0.3)], ids=["l2", "elastic net"])
def test_softmax_takes_the_same_steps_on_pieces(storage, method, regularizer):
    if method == "ihs" and not regularizer.form.is_quadratic:
        method = "auto"
    matrix, y = STORAGES[storage](X), SCORES.argmax(axis=1)
    options = {"lam": 0.02, "fit_intercept": True, "regularizer": regularizer}
    problems = [dn.MultinomialProblem(data, y, **options) for data in (matrix, pieces_of(matrix))]
    agree(*(dn.solve(problem, method=method, tol=1e-9, random_state=0, tuning=GENERAL) for problem in problems))


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_certificate_of_any_point_is_the_same(fit_intercept):
    w = RNG.standard_normal(D)
    one, other = (
        dn.Problem(data, SIGNS, loss=losses.Logistic(), lam=0.02, fit_intercept=fit_intercept).certify(w)
        for data in (X, pieces_of(X))
    )
    assert other.primal == pytest.approx(one.primal, rel=1e-13)
    assert other.dual == pytest.approx(one.dual, rel=1e-12)


def test_dual_methods_are_left_out_by_capability_with_the_reason():
    wide = sp.random_array((400, 5000), density=0.1, rng=np.random.default_rng(0), format="csr")
    y = np.where(np.arange(400) % 2, 1.0, -1.0)
    assert dn.plan(dn.Problem(wide, y, loss=losses.Logistic(), lam=1.0), tuning=GENERAL).method == "sdna"
    problem = dn.Problem(ChunkedData([wide[:100], wide[100:]]), y, loss=losses.Logistic(), lam=1.0)
    plan = dn.plan(problem)
    assert plan.method in ("newton", "ihs")
    assert "stored in pieces" in plan.reason
    for method in ("sdna", "sdca"):
        with pytest.raises(ValueError, match=f"{method}.*random order.*stored in pieces"):
            dn.solve(problem, method=method)


def test_fewer_rows_than_features_do_not_gather_all_rows():
    wide = RNG.standard_normal((40, 90))
    y = np.where(wide[:, 0] > 0.0, 1.0, -1.0)
    cuts = ChunkedData([wide[:15], wide[15:]])
    problems = [dn.Problem(data, y, loss=losses.Logistic(), lam=0.1) for data in (wide, cuts)]
    whole, chunked = (dn.solve(problem, method="newton", tol=1e-12) for problem in problems)
    assert chunked.converged
    np.testing.assert_allclose(chunked.w, whole.w, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("tau", [5, 19])
def test_the_rows_from_which_a_diagonal_is_estimated_lie_in_any_piece(tau):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 300)) * rng.permutation(np.geomspace(0.1, 10.0, 30))[:, None]
    y = np.sign(rng.standard_normal(30))
    fits = [
        dn.solve(dn.Problem(rows, y, losses.Logistic(), lam=0.01), method="ihs", tau=tau, tol=1e-9, random_state=0)
        for rows in (X, ChunkedData(np.array_split(X, 3)))
    ]
    assert all(fit.converged for fit in fits)
    np.testing.assert_allclose(fits[0].w, fits[1].w, atol=1e-9)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_a_checkpoint_of_files_that_are_opened_again_resumes_with_equal_bits(kind, tmp_path, monkeypatch):
    disk_cases.small_pieces(monkeypatch)
    disk_cases.written(tmp_path / "rows", kind)

    def fit(**more):
        opened = dn.data.open(tmp_path / "rows", memory="1G")
        problem = dn.Problem(opened.X, opened.y, losses.Logistic(), lam=1e-3, fit_intercept=True)
        return dn.solve(problem, method="ihs", tau=60, tol=1e-9, random_state=0, **more)

    straight, place = fit(), dn.Checkpoint(tmp_path / "run", seconds=0.0, spacing=0.0)
    stopped = fit(max_epochs=int(straight.n_epochs) // 2, checkpoint=place)
    resumed = fit(checkpoint=place)
    assert stopped.n_epochs < resumed.n_epochs == straight.n_epochs
    assert (resumed.w.tobytes(), resumed.certificate) == (straight.w.tobytes(), straight.certificate)


def test_a_checkpoint_of_chunked_data_resumes_with_equal_bits(tmp_path):
    problem = dn.Problem(pieces_of(X), SIGNS, loss=losses.Logistic(), lam=1e-4, fit_intercept=True)
    settings = {"method": "ihs", "tau": 60, "tol": 1e-11, "random_state": 0}
    straight = dn.solve(problem, **settings)
    path = tmp_path / "run"
    dn.solve(problem, **settings, max_epochs=3, checkpoint=path)
    resumed = dn.solve(problem, **settings, checkpoint=path)
    assert np.array_equal(resumed.w, straight.w)
    assert resumed.n_epochs == straight.n_epochs
