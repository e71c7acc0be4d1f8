"""The producer's gathered rows and Gram blocks, and the consumer's thin products, against NumPy on the same sets.

What is tested is the machine code that rounds of SDNA call through its address.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from dualnewton.kernels import gram, sets
from dualnewton.kernels._jit import kernel_function
from dualnewton.kernels.gradients import NONE
from dualnewton.kernels.gram import buffer_for_rows
from dualnewton.kernels.newton import padded
from dualnewton.kernels.rows import Rows

RAGGED = (1, 2, 3, 4, 5, 7, 8, 11, 12, 13, 16, 0, 17, 33, 64)
WIDE = gram._TILE // 16  # columns of one tile of a set of sixteen rows
COLUMNS = (1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 131)
AT_TILE_BOUNDARIES = (WIDE - 1, WIDE, WIDE + 1, WIDE + 4, 2 * WIDE, 2 * WIDE + 9)
EPS, NARROW_EPS = np.finfo(np.float64).eps, np.finfo(np.float32).eps


@kernel_function
def _grams(functions, stored, first, last, horizon, indices, starts, out, limit):
    sets.grams(functions.grams, stored, 0, first, last, horizon, indices, starts, out, limit)


@kernel_function
def _margins(functions, stored, S, W, U):
    sets.margins(functions.margins, stored, 0, 0, S, W, U)


@kernel_function
def _update(functions, stored, S, H, W, limits, gradient):
    sets.update(functions.update, stored, 0, 0, S, H, W, W, limits, gradient)


def reached(A, gathered, models=1):
    """The functions for dense rows, and what they need to know of these and of the room for some of them."""
    rows = Rows.of(A)
    return sets.functions_for(rows, gathered, models), sets.described(rows, A.shape[1], gathered)


def gather_and_gram(A, indices, starts, first, last, rows, grams, horizon, limit):
    _grams(*reached(A, rows[None]), first, last, horizon, indices, starts, grams, limit)


def block_margins(rows, t, W, U):
    _margins(*reached(np.zeros((1, W.shape[1]), rows.dtype), rows[None, None], len(W)), np.arange(t), W, U)


def block_update(rows, t, H, W):
    stored = reached(np.zeros((1, W.shape[1]), rows.dtype), rows[None, None], len(W))
    _update(*stored, np.arange(t), H, W, np.zeros((4, 0)), NONE)


def draw(sizes, d, dtype=np.float64, seed=0):
    rng = np.random.default_rng([seed, d])
    A = rng.standard_normal((90, d)).astype(dtype)
    A.setflags(write=False)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return A, rng.integers(0, len(A), size=starts[-1]), starts


def produce(A, indices, starts, cuts=(), horizon=0, limit=0.0, make_rows=buffer_for_rows):
    """Produce all sets, cut into ranges; what the kernel must leave alone stays NaN."""
    number, size = len(starts) - 1, int(np.diff(starts).max())
    rows, width = make_rows(number, size, A.shape[1], A.dtype), padded(size)
    grams = np.full((number, width, width), np.nan)
    rows[:] = np.nan
    bounds = [0, *cuts, number]
    for first, last in itertools.pairwise(bounds):
        gather_and_gram(A, indices, starts, first, last, rows[first:last], grams[first:last], horizon, limit)
    return rows, grams


def assert_is_gram(A, indices, starts, rows, grams, eps=EPS):
    d = A.shape[1]
    for s in range(len(starts) - 1):
        block = A[indices[starts[s] : starts[s + 1]]].astype(np.float64)
        t = len(block)
        np.testing.assert_array_equal(rows[s, :t, :d], block)
        np.testing.assert_array_equal(grams[s, :t, :t], grams[s, :t, :t].T)
        # |computed − exact| ≤ d ε |A_S||A_S|ᵀ for any order of summation, and NumPy's own sum errs as much
        error = np.abs(grams[s, :t, :t] - block @ block.T)
        assert np.all(error <= 2 * d * eps * (np.abs(block) @ np.abs(block).T))
        assert np.all(np.isnan(rows[s, t:]))
        assert np.all(np.isnan(rows[s, :t, d:]))
        assert np.all(np.isnan(grams[s, padded(t) :]))
        assert np.all(np.isnan(grams[s, :, padded(t) :]))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", COLUMNS)
def test_ragged_sets_agree_with_numpy(d, dtype):
    A, indices, starts = draw(RAGGED, d, dtype)
    assert_is_gram(A, indices, starts, *produce(A, indices, starts))


@pytest.mark.parametrize("d", [*COLUMNS, 12, 20, 100, *AT_TILE_BOUNDARIES])
def test_float32_rows_may_be_summed_in_float32(d):
    A, indices, starts = draw(RAGGED, d, np.float32)
    rows, grams = produce(A, indices, starts, limit=np.inf)
    assert rows.dtype == np.float32
    assert_is_gram(A, indices, starts, rows, grams, NARROW_EPS)
    if d >= 31:  # whole vectors of eight: it is float32 that was tested
        with pytest.raises(AssertionError):
            assert_is_gram(A, indices, starts, rows, grams)


@pytest.mark.parametrize("size", [1e-25, 1e-12, 3e-3, 30.0, 1e15, 1e25])
def test_sets_too_long_or_too_short_for_float32_are_summed_in_float64(size):
    """Beyond the limit its errors would show, and squares of its largest and smallest numbers it cannot hold."""
    A, indices, starts = draw((8, 5, 1), 64, np.float32)
    A, limit = (size * A).astype(np.float32), 1000.0 * 64
    rows, grams = produce(A, indices, starts, limit=limit)
    exact = size not in (3e-3,)
    assert_is_gram(A, indices, starts, rows, grams, EPS if exact else NARROW_EPS)
    if not exact:
        assert not np.array_equal(grams[0], produce(A, indices, starts)[1][0])


def test_the_limit_is_of_each_set():
    A, indices, starts = draw((4, 4), 64, np.float32)
    A = A.copy()
    A[indices[5]] *= 1e4
    exact, mixed = (produce(A, indices, starts, limit=limit)[1] for limit in (0.0, 1e4))
    assert not np.array_equal(mixed[0], exact[0])
    np.testing.assert_array_equal(mixed[1], exact[1])


@pytest.mark.parametrize("d", AT_TILE_BOUNDARIES)
def test_columns_at_the_edges_of_tiles_agree_with_numpy(d):
    A, indices, starts = draw((16, 15, 17, 1, 16), d)
    assert_is_gram(A, indices, starts, *produce(A, indices, starts))


def test_a_set_with_many_rows_agrees_with_numpy():
    A, indices, starts = draw((300, 1024), 77)
    assert_is_gram(A, indices, starts, *produce(A, indices, starts))


def test_the_check_sees_one_wrong_product_and_one_wrong_row():
    A, indices, starts = draw(RAGGED, 131)
    rows, grams = produce(A, indices, starts)
    rows[-1, 5, 130] += EPS * 4
    with pytest.raises(AssertionError):
        assert_is_gram(A, indices, starts, rows, grams)
    rows, grams = produce(A, indices, starts)
    grams[-1, 63, 2] = grams[-1, 2, 63] = grams[-1, 63, 2] + 1e-9  # a column of products forgotten would weigh far more
    with pytest.raises(AssertionError):
        assert_is_gram(A, indices, starts, rows, grams)


@pytest.mark.parametrize("limit", [0.0, 1e4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [5, 131, WIDE + 9])
def test_no_bit_depends_on_the_cuts_the_horizon_or_the_layout(d, dtype, limit):
    A, indices, starts = draw(RAGGED, d, dtype)
    number = len(RAGGED)
    rows, grams = produce(A, indices, starts, limit=limit)
    variants = (
        {"cuts": tuple(range(1, number))},
        {"cuts": (3, 4, 11)},
        {"cuts": (7,), "horizon": number},
        {"make_rows": lambda *shape: np.empty(shape[:3], shape[3])},
    )
    for variant in variants:
        other_rows, other_grams = produce(A, indices, starts, limit=limit, **variant)
        np.testing.assert_array_equal(other_rows[:, :, :d], rows[:, :, :d])
        np.testing.assert_array_equal(other_grams, grams)


@pytest.mark.parametrize("where", [0, 6, 129, 130])
def test_not_a_number_reaches_exactly_its_row_and_column(where):
    A, indices, starts = draw((9,), 131)
    A = A.copy()
    indices = np.arange(9)
    A[5, where] = np.nan
    A.setflags(write=False)
    _, grams = produce(A, indices, starts)
    expected = np.zeros((9, 9), dtype=bool)
    expected[5] = expected[:, 5] = True
    np.testing.assert_array_equal(np.isnan(grams[0, :9, :9]), expected)


def test_a_memory_mapped_matrix_is_read_where_it_lies(tmp_path):
    A, indices, starts = draw(RAGGED, 31)
    np.save(tmp_path / "A.npy", A)
    mapped = np.load(tmp_path / "A.npy", mmap_mode="r")
    assert_is_gram(A, indices, starts, *produce(mapped, indices, starts))


def test_buffer_for_rows_is_laid_out_for_the_cache():
    for d, dtype in itertools.product((1, 8, 50, 500, 512, 4096), (np.float64, np.float32)):
        rows = buffer_for_rows(3, 5, d, dtype)
        assert rows.shape[:2] == (3, 5)
        assert rows.dtype == dtype
        assert d <= rows.shape[2] < d + 128 // rows.itemsize
        assert rows.ctypes.data % 64 == 0
        assert rows.strides[1] % 128 == 64
        assert not rows.any()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("K", [1, 2, 3, 4, 5, 10])
@pytest.mark.parametrize("d", [1, 3, 50, 131, 512, 1029])
def test_thin_products_agree_with_numpy(d, K, dtype):
    """To the rounding of float64, whatever the rows: α and w must stay true to each other."""
    rng = np.random.default_rng([d, K])
    size = 64
    rows = buffer_for_rows(1, size, d, dtype)[0]
    rows[:, :d] = rng.standard_normal((size, d))
    W, H = rng.standard_normal((K, d)), rng.standard_normal((size, K))
    for t in (1, 2, 3, 4, 5, 8, 13, 64):
        block = rows[:t, :d].astype(np.float64)
        U = np.full((size, K), np.nan)
        block_margins(rows, t, W, U)
        assert np.all(np.abs(U[:t] - block @ W.T) <= 2 * d * EPS * (np.abs(block) @ np.abs(W).T))
        assert np.all(np.isnan(U[t:]))
        moved = W.copy()
        block_update(rows, t, H, moved)
        bound = 2 * (t + 1) * EPS * (np.abs(W) + np.abs(H[:t]).T @ np.abs(block))
        assert np.all(np.abs(moved - W - H[:t].T @ block) <= 2 * bound)
        # one row fewer is not within rounding: the bounds above would see a row left out
        assert np.any(np.abs(moved - W - H[: t - 1].T @ block[:-1]) > 2 * bound)
