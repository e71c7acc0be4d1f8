"""The products with the data: one answer for dense and CSR, float32 and float64, in one piece or in chunks."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.matrix import grams, linear, whole

N, D = 23, 7


def dense_data():
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((N, D)) * 10.0 ** rng.uniform(-3, 3, (N, 1))) * (rng.random((N, D)) < 0.5)
    X[4] = 0.0
    # Numbers that float32 holds exactly, so that every storage holds the same matrix.
    return X.astype(np.float32).astype(np.float64)


def with_repeats(X):
    """A CSR array that names entries twice and out of order, as users' arrays may."""
    coo = sp.coo_array(X)
    rows, cols = np.r_[coo.row, coo.row], np.r_[coo.col, coo.col]
    order = np.lexsort((-np.arange(rows.size), rows))
    halves = np.r_[0.5 * coo.data, 0.5 * coo.data]
    indptr = np.r_[0, np.cumsum(np.bincount(rows, minlength=X.shape[0]))]
    return sp.csr_array((halves[order], cols[order], indptr), shape=X.shape)


def with_int64(X):
    csr = sp.csr_array(X)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


STORAGES = {
    "dense float64": lambda X: X,
    "dense float32": lambda X: X.astype(np.float32),
    "CSR float64": sp.csr_array,
    "CSR float32": lambda X: sp.csr_array(X.astype(np.float32)),
    "CSR int64 indices": with_int64,
    "CSR float32, int64 indices": lambda X: with_int64(X.astype(np.float32)),
    "CSR with repeats": with_repeats,
}


@pytest.fixture(params=STORAGES.values(), ids=STORAGES)
def stored(request):
    return request.param(dense_data())


@pytest.fixture(params=[1 << 20, 3 * D, 1], ids=["one piece", "three rows at a time", "row by row"])
def _chunk(request, monkeypatch):
    monkeypatch.setattr(whole, "CHUNK", request.param)


def assert_same(computed, exact):
    """Equal up to float64 rounding of sums of a few terms."""
    assert isinstance(computed, np.ndarray)
    assert computed.dtype == np.float64
    np.testing.assert_allclose(computed, exact, rtol=1e-13, atol=1e-13 * np.abs(exact).max())


@pytest.mark.usefixtures("_chunk")
def test_times(stored):
    w = np.random.default_rng(1).standard_normal(D)
    assert_same(whole.times(stored, w), dense_data() @ w)


@pytest.mark.usefixtures("_chunk")
def test_transposed_times(stored):
    a = np.random.default_rng(2).standard_normal(N)
    assert_same(whole.transposed_times(stored, a), dense_data().T @ a)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sums_of_sparse_rows_leave_out_those_whose_factor_is_zero(share):
    X, rng = dense_data(), np.random.default_rng(1)
    X[rng.random(N) >= share] *= np.nan  # rows that are not read
    factors = np.where(np.isnan(X).any(axis=1), 0.0, rng.standard_normal(N))
    kept = np.nan_to_num(X)
    for rows in (sp.csr_array(X), with_repeats(X), with_int64(sp.csr_array(X))):
        np.testing.assert_allclose(linear.sums_of_rows(rows)(factors), kept.T @ factors, rtol=1e-13, atol=1e-12)


def test_rows_are_sorted_by_their_lengths_where_these_vary():
    X = with_int64(dense_data())
    order, lengths = linear.order_by_length(X, np.inf), np.diff(X.indptr)
    np.testing.assert_array_equal(order, np.argsort(lengths, kind="stable"))
    changes = np.count_nonzero(np.diff(lengths))
    assert linear.order_by_length(X, X.nnz / changes) is not None
    assert linear.order_by_length(X, 0.99 * X.nnz / changes) is None
    assert linear.order_by_length(X[order], X.nnz / changes) is None


def test_rows_of_one_length_are_not_sorted():
    assert linear.order_by_length(sp.csr_array(np.ones((N, D))), np.inf) is None


@pytest.mark.parametrize("compared", [0, 1 << 20])
@pytest.mark.parametrize("wide", [np.int32, np.int64])
def test_column_indices_increase_exactly_where_scipy_says_so(wide, compared, monkeypatch):
    monkeypatch.setattr(linear, "COMPARED", compared)
    rng, answers = np.random.default_rng(7), []
    for lengths in [(0, 0), (0, 2, 0, 3, 0), (1, 1), (3,), (2, 3, 1), *rng.integers(0, 4, (40, 5))]:
        columns = [np.sort(rng.choice(6, size, replace=rng.random() < 0.3)) for size in lengths]
        if rng.random() < 0.3:
            columns = [each[::-1] for each in columns]
        indices, indptr = np.concatenate(columns).astype(wide), np.r_[0, np.cumsum(lengths)].astype(wide)
        X = sp.csr_array((np.ones(indices.size), indices, indptr), shape=(len(lengths), 6))
        answers.append(X.has_canonical_format)
        assert linear.in_order(X) is bool(answers[-1])
    assert 10 < sum(answers) < 35
    falling = linear.sparse_view(sp.csr_array, (np.ones(3), np.arange(3), np.array([0, 2, 1, 3])), (3, 6))
    assert not linear.in_order(falling)


@pytest.mark.usefixtures("_chunk")
def test_squared_norms(stored):
    assert_same(linear.squared_norms(stored), (dense_data() ** 2).sum(axis=1))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_row_scores(form):
    scale = np.linspace(0.5, 2.0, dense_data().shape[1])
    for dtype in (np.float64, np.float32):
        X = dense_data().astype(dtype)
        assert_same(linear.row_scores(form(X), scale), X.astype(float) ** 2 @ scale)
        assert_same(
            linear.row_scores(form(X), np.broadcast_to(0.3, X.shape[1])), 0.3 * (X.astype(float) ** 2).sum(axis=1)
        )


@pytest.mark.parametrize("indices", [[3], [5, 0, 22], [4], [], [2, 2]], ids=str)
def test_take_rows(stored, indices):
    indices = np.array(indices, dtype=np.int64)
    rows = whole.take_rows(stored, indices)
    assert sp.issparse(rows) == sp.issparse(stored)
    assert rows.dtype == np.float64
    np.testing.assert_array_equal(linear.to_dense(rows), dense_data()[indices])


def test_gram(stored):
    rows = whole.take_rows(stored, np.arange(6))
    assert_same(linear.gram(rows), dense_data()[:6] @ dense_data()[:6].T)


def test_to_dense(stored):
    dense = linear.to_dense(stored)
    assert isinstance(dense, np.ndarray)
    np.testing.assert_array_equal(dense, dense_data())


def test_scale_rows(stored):
    factors = np.random.default_rng(3).standard_normal(N)
    scaled = linear.scale_rows(stored, factors)
    assert sp.issparse(scaled) == sp.issparse(stored)
    assert_same(linear.to_dense(scaled), factors[:, None] * dense_data())


def test_with_constant(stored):
    widened = linear.with_constant(stored, 2.5)
    assert sp.issparse(widened) == sp.issparse(stored)
    assert widened.shape == (N, D + 1)
    np.testing.assert_array_equal(linear.to_dense(widened), np.c_[dense_data(), np.full(N, 2.5)])


def test_inputs_are_left_alone(stored):
    kind, w, a = type(stored), np.ones(D), np.ones(N)
    whole.times(stored, w)
    whole.transposed_times(stored, a)
    linear.squared_norms(stored)
    linear.scale_rows(stored, a)
    linear.with_constant(stored, 1.0)
    assert type(stored) is kind
    np.testing.assert_array_equal(linear.to_dense(stored), dense_data())
    assert w.tolist() == [1.0] * D
    assert a.tolist() == [1.0] * N


def test_a_product_summed_in_float32_would_be_noticed():
    X, w = dense_data(), np.random.default_rng(1).standard_normal(D)
    with pytest.raises(AssertionError):
        assert_same((X.astype(np.float32) @ w.astype(np.float32)).astype(np.float64), X @ w)


def test_dense_float32_is_widened_piece_by_piece(monkeypatch):
    """No second copy of the data: each piece holds at most the chunk, and together they are the rows in order."""
    monkeypatch.setattr(whole, "CHUNK", 4 * D)
    X = dense_data().astype(np.float32)
    pieces = [(part, rows.copy()) for part, rows in whole.widened(X)]
    assert all(rows.size <= 4 * D for _, rows in pieces)
    np.testing.assert_array_equal(np.concatenate([rows for _, rows in pieces]), dense_data())
    assert [X[part].shape for part, _ in pieces] == [rows.shape for _, rows in pieces]


def test_sparse_rows_are_widened_by_what_they_store_not_by_their_width():
    """Text data are a million columns wide: counted by width, every piece would be a single row."""
    X = sp.csr_array((np.ones(500, np.float32), np.arange(500), np.arange(501)), shape=(500, 2_000_000))
    assert len(list(whole.widened(X))) == 1


@pytest.mark.parametrize("weights", [np.full(D, 2.0), np.linspace(0.0, 3.0, D)], ids=["equal", "others"])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "CSR"])
@pytest.mark.parametrize("first", [0, 5])
def test_last_products_are_rows_of_the_weighted_gram_matrix(storage, weights, first):
    A = np.random.default_rng(1).standard_normal((9, D))
    np.testing.assert_allclose(
        grams.last_products(storage(A), first, weights), ((A * weights) @ A.T)[first:], atol=1e-12
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sparse_views_share_arrays_and_behave_as_scipys_matrices(dtype):
    X = sp.random_array((30, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=dtype)
    turned, wide = linear.transposed(X), linear.as_float64(X)
    assert turned.data is X.data
    assert turned.indices is wide.indices is X.indices
    assert wide.dtype == np.float64
    assert (wide is X) == (dtype == np.float64)
    np.testing.assert_array_equal(turned.toarray(), X.T.toarray())
    np.testing.assert_array_equal(linear.squared(X).toarray(), np.square(X.toarray(), dtype=np.float64))
    part = linear.csr_rows(X, 5, 12)
    np.testing.assert_allclose((part @ wide.T).toarray(), X.toarray()[5:12] @ X.toarray().T, rtol=1e-5)
    assert part.has_canonical_format
    assert repr(part) == repr(X[5:12])
    np.testing.assert_array_equal(part.copy()[2:, ::2].tocsc().toarray(), X.toarray()[7:12, ::2])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nonzero_entries_are_those_of_the_csr_array(dtype, monkeypatch):
    monkeypatch.setattr(linear, "EXAMINED", 100)  # several pieces of rows
    rng = np.random.default_rng(0)
    X = np.where(rng.random((50, 30)) < 0.05, rng.standard_normal((50, 30)), 0.0).astype(dtype)
    X[7] = 0.0
    wanted = sp.csr_array(X)
    found = linear.with_few_entries(X, wanted.nnz)
    assert found.dtype == dtype
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(found, name), getattr(wanted, name))
    assert linear.with_few_entries(X, wanted.nnz - 1) is X
    full = np.ones((50, 30))
    assert linear.with_few_entries(full, 100) is full
    assert linear.with_few_entries(wanted, wanted.nnz) is wanted


@pytest.mark.parametrize("size", [1, 5, 128, 129, 300])
def test_a_mirrored_matrix_is_symmetric_and_keeps_its_lower_triangle(size):
    H = np.random.default_rng(size).standard_normal((size, size))
    lower = np.tril(H)
    found = grams.mirrored(H)
    assert (found == lower + np.tril(lower, -1).T).all()
    assert found is H
