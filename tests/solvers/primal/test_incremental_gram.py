"""The Hessian of all rows, kept from step to step: the same matrix, by fewer rows."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.losses import Curvature
from dualnewton.matrix import MemoryData
from dualnewton.solvers.crossovers import USUAL
from dualnewton.solvers.primal.incremental_gram import IncrementalGram

N, D = 300, 7
STORAGES = pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])


class Counted(MemoryData):
    """Data that remember how many rows each sketch has had."""

    def __init__(self, X):
        super().__init__(X)
        self.sketched = []

    def weighted_gram(self, weights, indices=None, **options):
        self.sketched.append(indices.size)
        return super().weighted_gram(weights, indices, **options)


def rows_and_weights(scale=1.0, steps=6, changing=0.1):
    """Rows, and weights in pieces of which a part changes sides at each step."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((N, D)) * (rng.random((N, D)) < 0.6)
    on = rng.random(N) < 0.8
    weights = [on * scale]
    for _ in range(steps):
        on = on ^ (rng.random(N) < changing)
        weights.append(on * scale)
    return X, weights


def with_one(X, intercept):
    return np.column_stack([X, np.ones(len(X))]) if intercept else X


@STORAGES
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("scale", [1.0, 0.3, np.linspace(0.5, 2.0, N)], ids=["one", "less", "weighted"])
def test_the_kept_sum_is_the_sum(storage, intercept, scale):
    X, steps = rows_and_weights(scale)
    data = Counted(storage(X))
    kept = IncrementalGram(data, intercept=intercept, ridge=np.zeros(D + intercept), updated_share=USUAL.updated_share)
    rows = with_one(X, intercept)
    for weights in steps:
        found, read = kept.at(weights)
        assert read == data.sketched[-1]
        np.testing.assert_allclose(found, (rows.T * weights) @ rows, rtol=1e-12, atol=1e-12)
        found[:] = np.nan  # what was given away is the caller's
    changes = [np.count_nonzero(one != other) for one, other in itertools.pairwise(steps)]
    assert data.sketched == [np.count_nonzero(steps[0]), *changes]


def test_nothing_is_touched_where_nothing_has_changed():
    X, steps = rows_and_weights()
    data = Counted(X)
    kept = IncrementalGram(data, intercept=False, ridge=np.zeros(D), updated_share=USUAL.updated_share)
    (first, _), (again, read) = kept.at(steps[0]), kept.at(steps[0].copy())
    assert np.array_equal(first, again)
    assert read == 0
    assert len(data.sketched) == 1


def test_all_rows_are_added_anew_where_many_have_changed():
    X, (weights, *_) = rows_and_weights()
    data = Counted(X)
    kept = IncrementalGram(data, intercept=False, ridge=np.zeros(D), updated_share=USUAL.updated_share)
    kept.at(weights)
    other = weights.copy()
    other[: int(2 * USUAL.updated_share * N)] *= 0.5
    np.testing.assert_allclose(kept.at(other)[0], (X.T * other) @ X, rtol=1e-12, atol=1e-12)
    assert data.sketched == [np.count_nonzero(weights)] * 2


def test_what_is_left_of_a_large_sum_is_not_its_rounding():
    X, (weights, *_) = rows_and_weights()
    X[3] *= 1e9
    weights[3] = 1.0
    without = weights.copy()
    without[3] = 0.0
    kept = IncrementalGram(MemoryData(X), intercept=False, ridge=np.zeros(D), updated_share=USUAL.updated_share)
    kept.at(weights)
    np.testing.assert_allclose(kept.at(without)[0], (X.T * without) @ X, rtol=1e-12, atol=1e-12)


def test_a_feature_that_no_row_has_any_more_is_subtracted_where_the_ridge_exceeds_its_rounding():
    X, (weights, *_) = rows_and_weights()
    X[:, 2] = 0.0
    X[3, 2] = 0.7
    weights[3] = 1.0
    without = weights.copy()
    without[3] = 0.0
    for ridge, read in ((0.0, 1 + np.count_nonzero(without)), (0.1, 1)):
        kept = IncrementalGram(
            MemoryData(X), intercept=False, ridge=np.full(D, ridge), updated_share=USUAL.updated_share
        )
        kept.at(weights)
        H, rows = kept.at(without)
        assert rows == read
        np.testing.assert_allclose(H, (X.T * without) @ X, rtol=1e-12, atol=1e-12)


def test_no_row_may_have_a_weight():
    X, (weights, *_) = rows_and_weights()
    kept = IncrementalGram(MemoryData(X), intercept=True, ridge=np.zeros(D + 1), updated_share=USUAL.updated_share)
    kept.at(weights)
    assert not kept.at(np.zeros(N))[0].any()
    assert MemoryData(X).active(np.zeros(N)).tolist() == [0]


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (losses.SquaredHinge(), Curvature.PIECEWISE),
        (losses.SmoothHinge(0.5), Curvature.PIECEWISE),
        (losses.SmoothEpsilonInsensitive(0.5), Curvature.PIECEWISE),
        (losses.Squared(), Curvature.CONSTANT),
        (losses.Huber(0.3), Curvature.PIECEWISE),
        (losses.SquaredEpsilonInsensitive(), Curvature.PIECEWISE),
        (losses.Logistic(), Curvature.VARYING),
        (losses.Softmax(3), Curvature.VARYING),
    ],
    ids=repr,
)
def test_a_loss_declares_whether_its_curvature_comes_in_pieces(loss, expected):
    assert loss.curvature is expected


@STORAGES
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [losses.SquaredHinge(), losses.Huber(0.5), losses.SmoothHinge(0.2)], ids=repr)
def test_newton_takes_the_same_way_with_and_without_a_memory(storage, intercept, weighted, loss, monkeypatch):
    rng = np.random.default_rng(2)
    X = rng.standard_normal((400, 6))
    y = np.sign(X @ rng.standard_normal(6) + rng.standard_normal(400))
    weight = rng.uniform(0.2, 3.0, 400) if weighted else None
    problem = dn.Problem(storage(X), y, loss, lam=1e-3, fit_intercept=intercept, sample_weight=weight)
    kept = dn.solve(problem, method="newton", tol=1e-10, random_state=0)
    monkeypatch.setattr(type(loss), "curvature", Curvature.VARYING)
    anew = dn.solve(problem, method="newton", tol=1e-10, random_state=0)
    assert kept.status is anew.status is dn.Status.CONVERGED
    assert kept.n_epochs < anew.n_epochs  # fewer rows are read
    np.testing.assert_allclose(kept.w, anew.w, rtol=1e-8, atol=1e-10)
