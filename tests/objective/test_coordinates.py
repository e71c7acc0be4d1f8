"""Problems with more features than examples in the coordinates of their rows: equal P and D, equal minimisers."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.matrix import as_data
from dualnewton.objective.coordinates import Factor, Reflections, products_suffice
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import L2
from tables import LOSSES, NON_SMOOTH, SEVERAL_COLUMNS, labels_for

N, D = 12, 40
RNG = np.random.default_rng(7)
X = RNG.standard_normal((N, D)) * (RNG.random((N, D)) < 0.6)
WEIGHTS = np.linspace(1.0, 50.0, D)
STORAGES = {"dense": np.asarray, "float32": np.float32, "csr": sp.csr_array}
ROWS = {
    "full rank": X,
    "repeated rows": np.vstack([X[:5], X[:5], X[:2]]),
    "rank 3": RNG.standard_normal((N, 3)) @ RNG.standard_normal((3, D)),
    "rows of zeros": X * (np.arange(N) % 3 > 0)[:, None],
    "scales of rows": X * np.geomspace(1e-8, 1e8, N)[:, None],
    "one row": X[:1],
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("storage", STORAGES.values(), ids=STORAGES)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_margins_and_penalty_are_those_of_the_lifted_point(rows, storage, weights):
    A = storage(rows)
    dense = A.toarray() if sp.issparse(A) else A.astype(float)
    factor = Factor.of(as_data(A), weights)
    rank = factor.rows.shape[1]
    assert factor.rows.shape == (len(rows), rank)
    sizes = np.linalg.norm(dense, axis=1, keepdims=True)
    assert rank == np.linalg.matrix_rank(dense / np.where(sizes > 0.0, sizes, 1.0), tol=1e-5)
    u = RNG.standard_normal(rank)
    w, v = factor.lifted(u), np.ones(D) if weights is None else weights
    np.testing.assert_allclose(dense @ w, factor.rows @ u, rtol=1e-6, atol=1e-8 * np.abs(dense).max())
    np.testing.assert_allclose(v @ w**2, u @ u, rtol=1e-6)
    np.testing.assert_allclose(factor.coordinates(w), u, rtol=1e-5, atol=1e-6)
    # A part that is orthogonal to all rows has no coordinates; several models are mapped at once.
    outside = np.ones(D) - factor.lifted(factor.coordinates(np.ones(D)))
    np.testing.assert_allclose(dense @ outside, 0.0, atol=1e-8 * np.abs(dense).max() * D)
    np.testing.assert_allclose(factor.lifted(np.stack([u, 2.0 * u])), np.stack([w, 2.0 * w]), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(factor.coordinates(np.stack([w, -w])), np.stack([u, -u]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
def test_reflections_give_the_same_coordinates(rows, weights):
    """Margins, penalty and products of rows are those of the lifted point, relative to the size of each row."""
    found = Reflections.of(as_data(sp.csr_array(rows)), weights)
    v = np.ones(D) if weights is None else weights
    u = np.random.default_rng(1).standard_normal(len(rows))
    w, sizes = found.lifted(u), np.linalg.norm(rows, axis=1)
    assert np.allclose(rows @ w, found.rows @ u, rtol=0.0, atol=1e-12 * (1.0 + sizes.max()))
    assert np.vdot(v * w, w) == pytest.approx(np.vdot(u, u))
    scale = 1.0 / np.where(sizes > 0.0, sizes, 1.0)
    products = (rows / v) @ rows.T
    assert np.allclose(
        scale[:, None] * products * scale, scale[:, None] * (found.rows @ found.rows.T) * scale, atol=1e-12
    )


def test_products_are_known_to_lose_features_of_small_scale():
    rng = np.random.default_rng(0)
    even = rng.standard_normal((N, D))
    scales = {"apart": np.geomspace(1.0, 1e16, D), "few large": np.where(np.arange(D) < 5, 1e8, 1.0)}
    assert products_suffice(even @ even.T, 1e-4)
    zeros = even * (np.arange(N) % 3 > 0)[:, None]
    assert products_suffice(zeros @ zeros.T, 1e-4)
    for scale in scales.values():
        lost = even * scale
        assert not products_suffice(lost @ lost.T, 1e-4)


@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH, *SEVERAL_COLUMNS[:2]], ids=repr)
def test_both_objectives_agree_at_equal_points(loss):
    y, K = labels_for(loss, N, RNG), loss.columns
    offset = 0.3 * RNG.standard_normal(N if K == 1 else (N, K))
    variants = itertools.product((None, WEIGHTS), (None, RNG.uniform(0.0, 2.0, N)), (None, offset), (False, True))
    for weights, c, o, intercept in variants:
        given = {"lam": 0.1, "sample_weight": c, "offset": o, "fit_intercept": intercept}
        problem = Problem(X, y, loss, regularizer=L2(weights), **given)
        factor = Factor.of(problem.data, weights)
        small = factor.problem(problem)
        assert (small.n, small.d) == (N, factor.rows.shape[1])
        u = RNG.standard_normal(small.d if K == 1 else (K, small.d))
        b = (0.7 if K == 1 else np.linspace(-1.0, 1.0, K)) if intercept else None
        np.testing.assert_allclose(small.primal(u, b), problem.primal(factor.lifted(u), b), rtol=1e-12)
        alpha = problem.alpha_of(factor.lifted(u), b)
        np.testing.assert_allclose(small.dual(alpha), problem.dual(alpha), rtol=1e-11)
        np.testing.assert_allclose(factor.lifted(small.w_of(alpha)), problem.w_of(alpha), rtol=1e-9, atol=1e-11)
