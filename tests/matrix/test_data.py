"""Every kind of data answers with the sums that the protocol states, for any storage, number of columns and of threads."""

import tempfile
import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.io.segments import DenseSegment, SparseSegment
from dualnewton.io.stored import StoredArray, StoredFile
from dualnewton.matrix import BlockLosses, ChunkedData, MemoryData, RowVectors, blocks, linear, memory
from dualnewton.matrix import compiled as compiled_passes
from dualnewton.matrix.protocol import Work
from dualnewton.matrix.workers import threads as using_threads
from dualnewton.planning.costs import Costs, prepared
from tuned import tuned

N, D = 700, 9
CUTS = [150, 151, 420]
PROTOCOL = (
    "times transposed_times evaluate weighted_products weighted_gram moments row_gram column_norms absolute_sums row_scores "
    "nonzeros rows columns"
)


class Cubes:
    """A target whose losses are easy to write down: φ(z) = z³ + z, for each column."""

    forms = ()

    def losses(self, rows, Z):
        (own,) = rows
        Z = own.shifted(Z)
        return BlockLosses(own.c @ (Z**3 + Z), own.weighted(3.0 * Z**2 + 1.0), np.column_stack([Z, own.y]))


def row_vectors(K):
    rng = np.random.default_rng(8)
    return RowVectors(np.arange(float(N)), rng.uniform(0.5, 2.0, N), rng.standard_normal((N, K)))


def matrix(storage, dtype=np.float64, n=N, d=D):
    rng = np.random.default_rng(3)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    return sp.csr_array(X) if storage == "csr" else X


def dense(X):
    return (X.toarray() if sp.issparse(X) else X).astype(np.float64)


def chunked(X):
    return ChunkedData([X[low:high] for low, high in zip([0, *CUTS], [*CUTS, N], strict=True)])


def on_disk(X):
    """The rows in pieces of about 100, read from a file into buffers that each piece overwrites."""
    folder = tempfile.TemporaryDirectory()
    parts = {"data": X.data, "indices": X.indices, "starts": X.indptr} if sp.issparse(X) else {"X": X}
    arrays = []
    for name, array in parts.items():
        path = Path(folder.name) / name
        array.tofile(path)
        arrays.append(StoredArray(StoredFile(path), 0, array.shape, array.dtype))
    size = 100 * D * X.dtype.itemsize
    segment = SparseSegment(tuple(arrays), X.shape[1], size) if sp.issparse(X) else DenseSegment(*arrays, size)
    data = ChunkedData.of([segment])
    data.folder = weakref.finalize(data.source, folder.cleanup)
    return data


KINDS = {"memory": MemoryData, "chunked": chunked, "disk": on_disk}
BY_PAIRS = {"products": None, "pairs": lambda *_: True}

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
STORAGES = pytest.mark.parametrize("storage", ["dense", "csr"])
DTYPES = pytest.mark.parametrize("dtype", [np.float64, np.float32])
COMPILED = pytest.mark.parametrize("compiled", [False, True], indirect=True)


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Blocks and parts so small that there are many of each."""
    monkeypatch.setattr(memory, "BLOCK_BYTES", 8 * D * 50)
    monkeypatch.setattr(memory, "BLOCK_MARGINS", 50)
    monkeypatch.setattr(memory, "COMPILED_FROM", 1)
    monkeypatch.setattr(memory, "PART_ENTRIES", D * 50)
    monkeypatch.setattr(memory, "DENSE_PART_ENTRIES", D * 100)
    monkeypatch.setattr(compiled_passes, "LARGE_GRAM", 1)
    monkeypatch.setattr(memory, "PIECE", 200)


@pytest.fixture
def compiled(request, monkeypatch):
    """Whether passes are compiled, whatever the size of the data."""
    monkeypatch.setattr(memory, "COMPILED_FROM", 1 if request.param else 1 << 60)
    return request.param


def test_the_protocol_is_what_is_tested_here():
    from dualnewton.matrix.protocol import Data

    abstract = Data.__abstractmethods__ - {"fingerprint", "same_as", "using", "with_constant"}
    assert abstract == set(PROTOCOL.split())


@EVERY_KIND
@STORAGES
@DTYPES
@COMPILED
@pytest.mark.parametrize("K", [1, 3])
def test_evaluate_returns_margins_values_and_gradients(kind, storage, dtype, compiled, K):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    W, b, rows = rng.standard_normal((K, D)), rng.standard_normal(K), row_vectors(K)
    found = KINDS[kind](X).using(Work(compiled=compiled)).evaluate(W, b, Cubes(), [rows])
    np.testing.assert_allclose(found.margins, dense(X) @ W.T + b, rtol=1e-12, atol=1e-12)
    assert found.margins.T.flags.c_contiguous  # operations along short rows take several times as long
    Z = dense(X) @ W.T + b + rows.o
    np.testing.assert_allclose(found.kept, np.column_stack([Z, rows.y]), rtol=1e-12, atol=1e-12)
    c = rows.c[:, None]
    np.testing.assert_allclose(found.values, (c * (Z**3 + Z)).sum(axis=0), rtol=1e-11)
    np.testing.assert_allclose(found.gradients, (c * (3.0 * Z**2 + 1.0)).T @ dense(X), rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(found.slopes, (c * (3.0 * Z**2 + 1.0)).sum(axis=0), rtol=1e-11)


@EVERY_KIND
@STORAGES
@DTYPES
@COMPILED
def test_products(kind, storage, dtype, compiled):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    data, A = KINDS[kind](X).using(Work(compiled=compiled)), dense(X)
    for w, v in ((rng.standard_normal(D), rng.standard_normal(N)), (rng.random((D, 2)), rng.random((N, 2)))):
        np.testing.assert_allclose(data.times(w), A @ w, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(data.transposed_times(v), A.T @ v, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(data.absolute_sums(np.abs(v)), np.abs(A).T @ np.abs(v), rtol=1e-11)
    V, v, weights = rng.standard_normal((2, D)), rng.standard_normal(2), rng.random((N, 2))
    result, sums = data.weighted_products(V, v, weights)
    inside = weights * (A @ V.T + v)
    np.testing.assert_allclose(result, inside.T @ A, rtol=1e-11, atol=1e-9)
    np.testing.assert_allclose(sums, inside.sum(axis=0), rtol=1e-11)


@EVERY_KIND
@STORAGES
@DTYPES
@COMPILED
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("by_pairs", BY_PAIRS)
def test_weighted_gram_matrices_and_norms(kind, storage, dtype, compiled, intercept, by_pairs):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    indices = np.sort(rng.choice(N, 333, replace=False))
    weights, all_weights = rng.random(333), rng.random(N)
    data, A = KINDS[kind](X).using(Work(compiled=compiled, by_pairs=BY_PAIRS[by_pairs])), dense(X)
    bordered = np.column_stack([A, np.ones(N)]) if intercept else A
    for own, rows in ((weights, indices), (weights - 0.5, indices), (np.ones(333), indices), (all_weights, None)):
        some = bordered if rows is None else bordered[rows]
        H = data.weighted_gram(own, rows, intercept=intercept)
        np.testing.assert_allclose(H, (some.T * own) @ some, rtol=1e-11, atol=1e-10)
        rough = data.weighted_gram(own, rows, intercept=intercept, single=True)
        assert rough.dtype == np.float64
        np.testing.assert_allclose(rough, H, rtol=1e-5, atol=1e-4)
    features, scale = np.array([1, 4, 8]), rng.random(D)
    np.testing.assert_allclose(
        data.column_norms(all_weights, features), all_weights @ np.square(A[:, features]), rtol=1e-11
    )
    np.testing.assert_allclose(data.column_norms(all_weights), all_weights @ np.square(A), rtol=1e-11)
    assert np.array_equal(data.nonzeros(), np.count_nonzero(A, axis=0))
    np.testing.assert_allclose(data.row_scores(scale), np.square(A) @ scale, rtol=1e-11)


@EVERY_KIND
@STORAGES
@DTYPES
def test_draws_of_rows_are_separate_data_with_their_entries(kind, storage, dtype):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    data, y = KINDS[kind](X), rng.random(N)
    draws = [np.sort(rng.choice(N, size, replace=False)) for size in (7, 300)] + [np.arange(N)]
    before = data.source.bytes_read if kind == "disk" else 0
    for rows, (found, (entries,)) in zip(draws, data.subsets(draws, [y]), strict=True):
        np.testing.assert_array_equal(dense(found.rows(slice(None))), dense(X)[rows])
        np.testing.assert_array_equal(entries, y[rows])
    if kind == "disk":  # one reading serves all draws
        whole = data.source.bytes_read - before
        data.times(np.ones(D))
        assert whole == data.source.bytes_read - before - whole


@EVERY_KIND
@STORAGES
@DTYPES
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_moments_about_an_origin_keep_the_digits_of_rows_far_from_zero(kind, storage, dtype, shift):
    """Σ w ã ãᵀ and Σ w ã tᵀ with ã = (a − o, 1), for all rows, some, a consecutive range and none, and without targets."""
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    X = X + np.asarray(shift, dtype) if shift and storage == "dense" else X
    data, origin = KINDS[kind](X), np.full(D, shift if storage == "dense" else 0.01 * shift)
    bordered = np.column_stack([dense(X) - origin, np.ones(N)])
    some_rows = np.sort(rng.choice(N, 333, replace=False))
    for rows, outputs in (
        (None, 2),
        (some_rows, 2),
        (np.arange(100, 300), 2),
        (np.arange(0), 2),
        (None, 0),
        (some_rows, 0),
    ):
        some = bordered if rows is None else bordered[rows]
        weights, targets = rng.random(len(some)), rng.standard_normal((len(some), outputs))
        H, cross = data.moments(weights, targets, origin, rows)
        for found, exact in ((H, (some.T * weights) @ some), (cross, (some.T * weights) @ targets)):
            np.testing.assert_allclose(found, exact, rtol=1e-11, atol=1e-13 * np.abs(exact).max(initial=0.0))


@EVERY_KIND
@STORAGES
def test_a_constant_column_is_one_more_feature(kind, storage):
    X = matrix(storage)
    data, A = KINDS[kind](X).with_constant(2.5), np.column_stack([dense(X), np.full(N, 2.5)])
    assert (type(data), data.n, data.d) == (type(KINDS[kind](X)), N, D + 1)
    assert np.array_equal(linear.to_dense(data.rows(slice(None))), A)
    np.testing.assert_allclose(data.transposed_times(np.ones(N)), A.sum(axis=0), rtol=1e-12)


@EVERY_KIND
@STORAGES
@DTYPES
def test_products_of_rows_with_each_other(kind, storage, dtype, monkeypatch):
    monkeypatch.setattr(memory, "WIDTH", 4)
    X = matrix(storage, dtype)
    for rows in (slice(None), slice(140, 430), np.array([0, 3, 149, 150, 699])):
        A = dense(X)[rows]
        np.testing.assert_allclose(KINDS[kind](X).row_gram(rows), A @ A.T, rtol=1e-12, atol=1e-12)
        scale = np.linspace(0.1, 3.0, D)
        np.testing.assert_allclose(KINDS[kind](X).row_gram(rows, scale), (A * scale) @ A.T, rtol=1e-12, atol=1e-12)


@EVERY_KIND
@STORAGES
@DTYPES
def test_rows_and_columns_are_gathered_as_float64_in_the_storage_of_the_data(kind, storage, dtype):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    data, A = KINDS[kind](X), dense(X)
    for rows in (np.sort(rng.choice(N, 50, replace=False)), slice(140, 430), slice(None), slice(None, None, 7)):
        found = data.rows(rows)
        assert sp.issparse(found) == (storage == "csr")
        assert found.dtype == np.float64
        assert np.array_equal(linear.to_dense(found), A[rows])
    found = data.columns(np.array([2, 5, 3]))
    assert isinstance(found, sp.csr_array if storage == "csr" else np.ndarray)
    assert np.array_equal(linear.to_dense(found), A[:, [2, 5, 3]].T)


@EVERY_KIND
@STORAGES
@DTYPES
@pytest.mark.parametrize("threads", [2, 3, 8])
def test_threads_do_not_change_a_bit(kind, storage, dtype, threads):
    X, rng = matrix(storage, dtype), np.random.default_rng(0)
    W, b, weights = rng.standard_normal((2, D)), rng.standard_normal(2), rng.random(N)
    data, found = KINDS[kind](X), []
    for count in (1, threads):
        with using_threads(count):
            found.append((data.evaluate(W, b, Cubes(), [row_vectors(2)]), data.weighted_gram(weights, intercept=True)))
    (one, gram), (many, same_gram) = found
    assert np.array_equal(gram, same_gram)
    for name in ("values", "gradients", "slopes", "margins", "kept"):
        assert np.array_equal(getattr(one, name), getattr(many, name)), name


def test_an_error_in_a_thread_is_raised_by_the_caller():
    class Broken:
        forms = ()

        def losses(self, rows, Z):  # noqa: ARG002
            raise RuntimeError("no such rows")

    with using_threads(2), pytest.raises(RuntimeError, match="rows"):
        MemoryData(matrix("dense")).evaluate(np.zeros((1, D)), np.zeros(1), Broken(), [])


@EVERY_KIND
@STORAGES
def test_fingerprints_tell_content_and_identity_tells_memory(kind, storage):
    X = matrix(storage)
    one, copy, other = KINDS[kind](X), KINDS[kind](X.copy()), X.copy()
    if storage == "csr":
        other.data[5] += 1e-9
    else:
        other[3, 3] += 1e-9
    assert one.fingerprint() == copy.fingerprint() != KINDS[kind](other).fingerprint()
    assert one.fingerprint() != KINDS[kind](X.astype(np.float32)).fingerprint()
    assert one.same_as(one)
    assert not one.same_as(copy)
    view = sp.csr_array((X.data, X.indices, X.indptr), shape=X.shape) if storage == "csr" else X[:]
    assert MemoryData(X).same_as(MemoryData(view))


@pytest.mark.parametrize("entries", [N * D - 1, N * D + 1])
def test_kernels_serve_pieces_if_all_of_them_together_are_large(entries, monkeypatch):
    monkeypatch.setattr(memory, "COMPILED_FROM", entries)
    data = chunked(np.ones((N, D)))
    for each in (data, data.using(Work())):
        with each._shares() as shares:
            assert [piece.is_large for _, _, piece in shares] == [entries < N * D] * (len(CUTS) + 1)


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_passes_over_small_data_use_no_kernel_in_a_run_that_has_others(storage, dtype, monkeypatch):
    monkeypatch.setattr(memory, "COMPILED_FROM", 13)
    X = np.arange(12.0, dtype=dtype).reshape(4, 3)
    X = sp.csr_array(X) if storage == "csr" else X
    data = memory.MemoryData(X).using(Work(compiled=True))
    dense, weights, w = np.arange(12.0).reshape(4, 3), np.arange(4.0), np.arange(3.0)
    np.testing.assert_allclose(data.times(w), dense @ w)
    np.testing.assert_allclose(data.transposed_times(weights), dense.T @ weights)
    np.testing.assert_allclose(data.column_norms(weights), weights @ dense**2)
    np.testing.assert_allclose(data.column_norms(weights, np.array([2, 0])), (weights @ dense**2)[[2, 0]])
    np.testing.assert_allclose(data.row_scores(w), dense**2 @ w)
    assert "compiled" not in vars(data)
    assert data.wide.dtype == np.float64  # converted once, not in each pass
    assert memory.MemoryData(X).wide is X  # without such a run there is no copy


def test_pieces_that_do_not_fit_together_are_refused():
    X = matrix("dense")
    for pieces, words in (
        ([], "at least one"),
        ([X, X[:, 1:]], r"pieces\[0\] has 9, pieces\[1\] has 8"),
        ([X, sp.csr_array(X)], "all be sparse or all be dense"),
        ([X, np.where(X > 1, np.nan, X)], r"pieces\[1\] must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            ChunkedData(pieces)


@pytest.mark.parametrize(("share", "expanded"), [(0.2, False), (0.9, True)])
@pytest.mark.parametrize("cache", [0, 1 << 24])
def test_nearly_full_sparse_rows_are_expanded_if_they_fit_in_the_cache(share, expanded, cache):
    tuning = tuned(cache_bytes=cache)
    rng = np.random.default_rng(4)
    X = sp.csr_array(rng.standard_normal((N, D)) * (rng.random((N, D)) < share))
    data = prepared(MemoryData(X), compiled=False, tuning=tuning)
    planned, made = Costs.of(MemoryData(X).profile, tuning), Costs.of(data.profile, tuning)
    dense_now = expanded and cache > 0
    assert data.profile.sparse is not dense_now
    assert planned.by_entry is not dense_now
    assert made.data_pass == planned.data_pass  # the plan predicts the passes that are made
    assert made.sketch(100) == planned.sketch(100)
    W = rng.standard_normal((1, D))
    found = data.evaluate(W, np.zeros(1), Cubes(), [row_vectors(1)])
    np.testing.assert_allclose(found.margins[:, 0], X @ W[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sparse_rows_that_store_all_entries_are_an_array(dtype):
    """Readers of sparse formats return dense data in this form; unsorted or repeated indices are put in order first."""
    X = np.random.default_rng(5).standard_normal((6, 4)).astype(dtype)
    full = sp.csr_array(X)
    data = memory.as_data(full)
    assert not data.profile.sparse
    assert np.shares_memory(data.X, full.data)
    places = full.indices.reshape(6, 4)[:, ::-1].ravel().copy()
    turned = sp.csr_array((X[:, ::-1].ravel().copy(), places, full.indptr), shape=X.shape)
    halves = sp.csr_array((np.repeat(full.data, 2) / 2, np.repeat(full.indices, 2), 2 * full.indptr), shape=X.shape)
    for rows in (full, turned, halves):
        np.testing.assert_array_equal(memory.as_data(rows).X, X)
    few = sp.csr_array(
        (np.repeat(X.ravel()[:12], 2), np.repeat(np.arange(12) % 4, 2), [0, 8, 16, 24, 24, 24, 24]), shape=(6, 4)
    )
    found = memory.as_data(few)  # as many entries as an array has, but each of them twice
    assert found.profile.sparse
    np.testing.assert_array_equal(found.X.toarray()[:3], 2 * X[:3])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_gram_matrix_of_few_rows_may_have_weights_of_both_signs(dtype):
    rng = np.random.default_rng(6)
    X, weights, rows = rng.standard_normal((3000, 9)).astype(dtype), rng.standard_normal(40), np.arange(0, 2800, 70)
    A = np.column_stack([X[rows].astype(np.float64), np.ones(40)])
    found = MemoryData(X).weighted_gram(weights, rows, intercept=True, single=True)
    np.testing.assert_allclose(found, A.T @ (weights[:, None] * A), rtol=1e-10, atol=1e-12)


def test_blocks_are_views_of_the_data():
    for storage in ("dense", "csr"):
        X = matrix(storage)
        block = blocks.LibraryBlock(X, slice(100, 200))
        mine, whole = (block.A.data, X.data) if storage == "csr" else (block.A, X)
        assert np.shares_memory(mine, whole)


@pytest.mark.parametrize("shape", [(300, 600), (600, 300), (257, 1), (1, 513)])
def test_all_dense_features_are_copied_by_tiles(shape):
    X = np.arange(float(np.prod(shape))).reshape(shape)
    for rows in (X, np.asfortranarray(X), X.astype(np.float32)):
        found = MemoryData(rows).columns(np.arange(shape[1]))
        np.testing.assert_array_equal(found, rows.T)
        assert found.dtype == np.float64
        assert found.flags.c_contiguous
