"""A pass is the sums it says it is, for any storage, number of columns and of threads, and whoever implements it."""

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses
from dualnewton.solvers import costs
from dualnewton.solvers import passes as rooms
from dualnewton.solvers.costs import Costs
from dualnewton.solvers.descent import Descent
from dualnewton.solvers.passes import Evaluation, MemoryPasses, Passes

N, D = 700, 9


class Cubes:
    """A target whose losses are easy to write down: φ(z) = z³ + z, for each column."""

    def losses(self, rows, Z):
        assert Z.shape[0] == rows.stop - rows.start
        return (Z**3 + Z).sum(axis=0), 3.0 * Z**2 + 1.0


def matrix(storage, dtype=np.float64, n=N, d=D):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    return sp.csr_array(X) if storage == "csr" else X


def dense(X):
    return (X.toarray() if sp.issparse(X) else X).astype(np.float64)


STORAGES = pytest.mark.parametrize("storage", ["dense", "csr"])
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
COMPILED = pytest.mark.parametrize("compiled", [False, True])


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks and parts so small that there are many of each."""
    monkeypatch.setattr(rooms, "BLOCK_BYTES", 8 * D * 50)
    monkeypatch.setattr(rooms, "BLOCK_MARGINS", 50)
    monkeypatch.setattr(rooms, "PART_ENTRIES", D * 50)
    monkeypatch.setattr(rooms, "DENSE_PART_ENTRIES", D * 100)
    monkeypatch.setattr(rooms, "WORTH_THREADS", 0.0)


@STORAGES
@DTYPES
@COMPILED
@pytest.mark.parametrize("K", [1, 3])
def test_evaluate_is_what_it_says(storage, dtype, compiled, K):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    W, b = rng.standard_normal((K, D)), rng.standard_normal(K)
    found = MemoryPasses(X, compiled=compiled).evaluate(W, b, Cubes())
    Z = dense(X) @ W.T + b
    np.testing.assert_allclose(found.margins, Z, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found.values, (Z**3 + Z).sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(found.gradients, (3.0 * Z**2 + 1.0).T @ dense(X), rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(found.slopes, (3.0 * Z**2 + 1.0).sum(axis=0), rtol=1e-11)


@STORAGES
@DTYPES
@COMPILED
def test_products_with_the_curvature_are_what_they_say(storage, dtype, compiled):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    V, v, weights = rng.standard_normal((2, D)), rng.standard_normal(2), rng.random((N, 2))
    result, sums = MemoryPasses(X, compiled=compiled).weighted_products(V, v, weights)
    inside = weights * (dense(X) @ V.T + v)
    np.testing.assert_allclose(result, inside.T @ dense(X), rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(sums, inside.sum(axis=0), rtol=1e-11)


@STORAGES
@DTYPES
@COMPILED
@pytest.mark.parametrize("intercept", [False, True])
def test_sketch_and_diagonal_are_those_of_the_rows(storage, dtype, compiled, intercept):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    indices = np.sort(rng.choice(N, 333, replace=False))
    weights, all_weights = rng.random(333), rng.random(N)
    passes = MemoryPasses(X, compiled=compiled)
    rows = dense(X)[indices]
    rows = np.column_stack([rows, np.ones(333)]) if intercept else rows
    H = passes.sketch(indices, weights, intercept=intercept)
    np.testing.assert_allclose(H, (rows.T * weights) @ rows, rtol=1e-11, atol=1e-10)
    rough = passes.sketch(indices, weights, intercept=intercept, single=True)
    assert rough.dtype == np.float64
    np.testing.assert_allclose(rough, H, rtol=1e-5, atol=1e-5)
    signed = weights - 0.5
    H = passes.sketch(indices, signed, intercept=intercept)
    np.testing.assert_allclose(H, (rows.T * signed) @ rows, rtol=1e-11, atol=1e-10)
    features = np.array([1, 4, 8])
    expected = all_weights @ np.square(dense(X)[:, features])
    np.testing.assert_allclose(passes.diagonal(all_weights, features), expected, rtol=1e-11)
    scale = rng.random(D)
    np.testing.assert_allclose(passes.row_scores(scale), np.square(dense(X)) @ scale, rtol=1e-11)


@STORAGES
@DTYPES
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_do_not_change_a_bit(storage, dtype, threads):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    W, b = rng.standard_normal((2, D)), rng.standard_normal(2)
    alone, together = MemoryPasses(X), MemoryPasses(X, threads)
    assert len(alone.parts) > 2
    try:
        one, many = (passes.evaluate(W, b, Cubes()) for passes in (alone, together))
    finally:
        together.close()
    for name in ("values", "gradients", "slopes", "margins"):
        assert np.array_equal(getattr(one, name), getattr(many, name)), name


def test_an_error_in_a_thread_is_not_lost():
    class Broken:
        def losses(self, rows, Z):  # noqa: ARG002
            raise RuntimeError(f"rows {rows.start}")

    passes = MemoryPasses(matrix("dense"), 2)
    with pytest.raises(RuntimeError, match="rows"):
        passes.evaluate(np.zeros((1, D)), np.zeros(1), Broken())
    passes.close()


class Chunks(Passes):
    """The data in pieces, as on a disk or on other machines: no more than the interface asks for."""

    def __init__(self, pieces):
        self.pieces, self.n, self.d = pieces, sum(map(len, pieces)), pieces[0].shape[1]
        self.costs = Costs(self.n, self.d, self.n * self.d, 0.5 * self.n * self.d**2, False, 8)
        self.read = 0

    def _rows(self):
        start = 0
        for piece in self.pieces:
            self.read += 1
            yield slice(start, start + len(piece)), piece
            start += len(piece)

    def evaluate(self, W, b, target):
        values, gradients, slopes, margins = 0.0, np.zeros(W.shape), np.zeros(len(W)), np.empty((self.n, len(W)))
        for rows, piece in self._rows():
            margins[rows] = piece @ W.T + b
            sums, R = target.losses(rows, margins[rows])
            values, gradients, slopes = values + sums, gradients + R.T @ piece, slopes + R.sum(axis=0)
        return Evaluation(values, gradients, slopes, margins)

    def weighted_products(self, V, v, weights):  # noqa: ARG002
        raise AssertionError("not asked for here")

    def diagonal(self, weights, features):
        return sum(weights[rows] @ np.square(piece[:, features]) for rows, piece in self._rows())

    def row_scores(self, scale):
        return np.concatenate([np.square(piece) @ scale for _, piece in self._rows()])

    def take(self, indices):
        return np.concatenate(self.pieces)[indices]

    def sketch(self, indices, weights, *, intercept, single=False):  # noqa: ARG002 (double will do, too)
        assert not intercept
        rows = self.take(indices)
        return (rows.T * weights) @ rows


def test_whoever_implements_the_interface_serves_the_method():
    X = matrix("dense")
    problem = dn.Problem(X, np.sign(X[:, 0] + 0.1), losses.Logistic(), lam=0.01)
    chunks = Chunks(np.array_split(X, 7))
    descent = Descent([problem], chunks, [(np.zeros(D), 0.0)], tol=1e-9, sketch=100, newton=False)
    rng = np.random.default_rng(0)
    for _ in range(30):
        descent.turn(rng, np.inf, np.inf)
    assert chunks.read >= 7 * 31
    assert problem.certify(descent.candidate(0).w).relative_gap <= 1e-9


@pytest.mark.parametrize(("share", "spread"), [(0.2, False), (0.9, True)])
@pytest.mark.parametrize("cache", [0, 1 << 24])
def test_rows_that_are_nearly_full_are_spread_out_if_they_fit_in_the_cache(share, spread, cache, monkeypatch):
    monkeypatch.setattr(costs, "CACHE", cache)
    rng = np.random.default_rng(4)
    X = sp.csr_array(rng.standard_normal((N, D)) * (rng.random((N, D)) < share))
    passes, planned = MemoryPasses(X, compiled=False), Costs.of(X)
    dense_now = spread and cache > 0
    assert sp.issparse(passes.X) is not dense_now
    assert planned.by_entry is not dense_now
    assert passes.costs.data_pass == planned.data_pass  # the plan knows
    assert passes.costs.sketch(100) == planned.sketch(100)
    W = rng.standard_normal((1, D))
    np.testing.assert_allclose(passes.evaluate(W, np.zeros(1), Cubes()).margins[:, 0], X @ W[0], rtol=1e-12, atol=1e-12)
