"""Errors that teach: each refusal names the argument, what was seen and what is allowed; what is right is not copied."""

import datetime
import decimal

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton import validation as _validate

# Numbers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [1, 0.5, np.float32(2.0), np.int64(3), 1e300, 5e-324, np.array(2.0)])
def test_positive_numbers_become_floats(good):
    for number in (_validate.positive("lam", good), _validate.finite("lam", good)):
        assert type(number) is float
        assert number == good


@pytest.mark.parametrize("bad", [0, 0.0, -1, -1e-300, np.nan, np.inf, -np.inf, None, "x", "1", b"1", [1.0], 1j, {}])
def test_positive_refuses(bad):
    with pytest.raises(ValueError, match=r"lam must be a finite number > 0, got") as caught:
        _validate.positive("lam", bad)
    assert repr(bad) in str(caught.value)


def test_zero_is_positive_only_where_allowed():
    assert _validate.positive("epsilon", 0.0, or_zero=True) == 0.0
    with pytest.raises(ValueError, match=r"epsilon must be a finite number >= 0, got -1e-12"):
        _validate.positive("epsilon", -1e-12, or_zero=True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, None, "x", "1", [1.0]])
def test_finite_refuses(bad):
    with pytest.raises(ValueError, match=r"intercept must be a finite number, got") as caught:
        _validate.finite("intercept", bad)
    assert repr(bad) in str(caught.value)


def test_finite_takes_any_sign():
    assert [_validate.finite("b", b) for b in (-2, 0, 3.5)] == [-2.0, 0.0, 3.5]


@pytest.mark.parametrize("good", [1, 7, np.int64(3), np.uint8(2)])
def test_integers(good):
    number = _validate.integer("tau", good, 1, 7)
    assert type(number) is int
    assert number == good


@pytest.mark.parametrize("bad", [0, 8, -1, 2.0, 1.5, True, "3", None, np.float64(2.0), [1]])
def test_integer_refuses(bad):
    with pytest.raises(ValueError, match=r"tau must be an integer in \[1, 7\], got") as caught:
        _validate.integer("tau", bad, 1, 7)
    assert repr(bad) in str(caught.value)


def test_integer_without_an_upper_end():
    assert _validate.integer("n", 10**12, 1) == 10**12
    with pytest.raises(ValueError, match="n must be an integer >= 1, got 0"):
        _validate.integer("n", 0, 1)


# Vectors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("good", [[1, 2, 3], (1.0, 2.0, 3.0), np.float32([1, 2, 3]), np.array([True, False, True])])
def test_vectors_become_read_only_float64(good):
    vector = _validate.vector("y", good, 3)
    assert vector.dtype == np.float64
    np.testing.assert_array_equal(vector, np.asarray(good, float))
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 5.0


def test_a_right_vector_is_not_copied_and_stays_writeable_for_its_owner():
    mine = np.array([1.0, 2.0])
    assert np.shares_memory(_validate.vector("y", mine, 2), mine)
    mine[0] = 7.0
    assert mine.flags.writeable


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([1.0, 2.0], r"y must have shape \(3,\), got \(2,\)"),
        ([[1.0, 2.0, 3.0]], r"y must have shape \(3,\), got \(1, 3\)"),
        (3.0, r"y must have shape \(3,\), got \(\)"),
        ([1.0, np.nan, 3.0], r"y must be finite, got .*nan.* at index 1"),
        ([1.0, 2.0, -np.inf], r"y must be finite, got .*-inf.* at index 2"),
        ([np.inf, -np.inf, 0.0], r"y must be finite, got .*inf.* at index 0"),
        (["a", "b", "c"], r"y must hold real numbers"),
        (["1", "2", "3"], r"y must hold real numbers"),
        (np.array([b"1", b"2", b"3"]), r"y must hold real numbers"),
        ([1.0, None, 3.0], r"y must hold real numbers|y must be finite"),
        ([1.0, 2j, 3.0], r"y must hold real numbers"),
        (np.array([1, "a", 3], dtype=object), r"y must hold real numbers"),
        ([[1.0], [2.0, 3.0], []], r"y must hold real numbers"),
        (np.array([datetime.date(2020, 1, 1)] * 3, dtype="datetime64[D]"), r"y must hold real numbers"),
        ({"a": 1}, r"y must hold real numbers"),
    ],
    ids=str,
)
def test_vector_refuses(bad, words):
    with pytest.raises(ValueError, match=words):
        _validate.vector("y", bad, 3)


def test_a_vector_below_its_bound_is_refused_by_place():
    with pytest.raises(ValueError, match=r"sample_weight must be >= 0 everywhere, got .*-0\.5.* at index 2"):
        _validate.vector("sample_weight", [1.0, 0.0, -0.5], 3, low=0.0)


def test_huge_numbers_are_finite_though_their_sum_is_not():
    assert _validate.vector("y", [1.5e308, 1.5e308], 2).tolist() == [1.5e308, 1.5e308]
    assert _validate.data_matrix("X", np.full((2, 2), 3e38, np.float32)).dtype == np.float32


def test_probabilities_are_normalised_exactly():
    q = _validate.probabilities("q", [0.1] * 10, 10)
    assert abs(q.sum() - 1.0) < 1e-15
    assert _validate.probabilities("q", [0.5, 0.5 + 5e-10], 2).sum() == pytest.approx(1.0, abs=1e-15)
    assert not q.flags.writeable


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([0.5, 0.6], r"q must sum to 1, got a sum of 1\.1"),
        ([0.5, 0.5 + 1e-8], r"q must sum to 1, got a sum of 1\.00000001"),
        ([0.0, 0.0], r"q must sum to 1, got a sum of 0\.0"),
        ([1.5, -0.5], r"q must be >= 0 everywhere"),
        ([np.nan, 1.0], r"q must be finite"),
        ([1.0], r"q must have shape \(2,\), got \(1,\)"),
    ],
    ids=str,
)
def test_probabilities_refuse(bad, words):
    with pytest.raises(ValueError, match=words):
        _validate.probabilities("q", bad, 2)


# Matrices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_data_in_c_order_is_not_copied(dtype):
    X = np.arange(6, dtype=dtype).reshape(2, 3)
    checked = _validate.data_matrix("X", X)
    assert checked.dtype == dtype
    assert np.shares_memory(checked, X)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [sp.csr_array, sp.csr_matrix])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_csr_data_is_not_copied(dtype, container, index):
    X = container(np.eye(3, 4, dtype=dtype))
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    checked = _validate.data_matrix("X", X)
    assert isinstance(checked, sp.csr_array)
    assert checked.dtype == dtype
    assert np.shares_memory(checked.data, X.data)
    np.testing.assert_array_equal(checked.toarray(), np.eye(3, 4))


@pytest.mark.parametrize(
    "X",
    [
        [[1, 2], [3, 4]],
        np.array([[1, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]], dtype=np.float16),
        np.array([[1, 2], [3, 4]], dtype=">f8"),
        np.array([[1, 2], [3, 4]], dtype=np.longdouble),
        np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]),
        np.array([[1.0, 0.0, 2.0, 0.0], [3.0, 0.0, 4.0, 0.0]])[:, ::2],
        sp.csc_array([[1.0, 2.0], [3.0, 4.0]]),
        sp.coo_array([[1, 2], [3, 4]]),
        sp.lil_array([[1.0, 2.0], [3.0, 4.0]]),
        sp.dok_array([[1.0, 2.0], [3.0, 4.0]]),
    ],
    ids=lambda X: f"{type(X).__name__} {getattr(X, 'dtype', '')}",
)
def test_other_data_are_converted_to_what_the_kernels_read(X):
    checked = _validate.data_matrix("X", X)
    assert checked.dtype == np.float64
    assert checked.dtype.isnative
    if sp.issparse(checked):
        assert isinstance(checked, sp.csr_array)
        checked = checked.toarray()
    assert checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, [[1.0, 2.0], [3.0, 4.0]])


NOT_DATA = {
    "one dimension": (np.ones(3), r"X must be a matrix with one row per example, got 1 dimension"),
    "three dimensions": (np.ones((2, 2, 2)), r"X must be a matrix with one row per example, got 3 dimension"),
    "a number": (1.0, r"X must be a matrix with one row per example"),
    "sparse of one dimension": (sp.coo_array(np.ones(3)), r"X must be a matrix with one row per example, got 1"),
    "no rows": (np.ones((0, 3)), r"X must have at least one row and one column, got shape \(0, 3\)"),
    "no columns": (np.ones((3, 0)), r"X must have at least one row and one column, got shape \(3, 0\)"),
    "sparse without rows": (sp.csr_array((0, 3)), r"X must have at least one row and one column, got shape \(0, 3\)"),
    "NaN": (np.array([[1.0, 2.0], [np.nan, 1.0]]), r"X must be finite, got .*nan.* at index \(1, 0\)"),
    "infinity, single": (np.array([[1.0, np.inf]], np.float32), r"X must be finite, got .*inf.* at index \(0, 1\)"),
    "sparse NaN": (sp.csr_array([[0.0, np.nan]]), r"X must be finite, got .*nan"),
    "words": ([["a", "b"]], r"X must hold real numbers"),
    "digits as text": (np.array([["1", "2"]]), r"X must hold real numbers"),
    "objects": (np.array([[object()]]), r"X must hold real numbers"),
    "numbers as objects": (np.array([[decimal.Decimal(1), 2]], dtype=object), r"X must hold real numbers"),
    "complex": (np.array([[1.0 + 2.0j]]), r"X must hold real numbers"),
    "sparse complex": (sp.csr_array([[1.0 + 2.0j]]), r"X must hold real numbers"),
    "ragged": ([[1.0, 2.0], [3.0]], r"X must hold real numbers"),
    "none": (None, r"X must "),
}


@pytest.mark.parametrize(("bad", "words"), NOT_DATA.values(), ids=NOT_DATA)
def test_what_is_no_data_matrix_is_refused(bad, words):
    with pytest.raises(ValueError, match=words):
        _validate.data_matrix("X", bad)


def test_frozen_views_leave_the_original_alone():
    mine = np.zeros(2)
    view = _validate.frozen(mine)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1.0
    mine[0] = 1.0
    assert view[0] == 1.0
