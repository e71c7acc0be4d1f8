"""Cholesky factors by blocks: those of LAPACK, with the same bits for any number of threads."""

import numpy as np
import pytest
from scipy.linalg import cholesky

from dualnewton.matrix import factors
from dualnewton.matrix.workers import threads


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    for name, size in (("BLOCK", 16), ("STRIPE", 10), ("LARGE", 8)):
        monkeypatch.setattr(factors, name, size)


def matrix(size, rank):
    A = np.random.default_rng(0).standard_normal((rank, size))
    return A.T @ A


@pytest.mark.parametrize("size", [9, 16, 17, 75])
def test_a_factor_by_blocks_is_that_of_lapack_for_any_number_of_threads(size):
    H, diagonal, checks = matrix(size, 2 * size), np.linspace(1.0, 2.0, size), []
    found = {}
    for count in (1, 2, 3, 8, 16):
        with threads(count):
            found[count] = np.tril(factors.factorised(H.copy(), diagonal, lambda: checks.append(None)))
        assert np.array_equal(found[count], found[1]), count
    exact = cholesky(H + np.diag(diagonal), lower=True)
    np.testing.assert_allclose(found[1], exact, rtol=1e-10, atol=1e-12 * np.abs(exact).max())
    assert len(checks) == 5 * -(-size // 16)


def test_an_indefinite_matrix_is_lifted_in_whichever_block_it_fails():
    """A matrix of rank 30 fails in the second block of 16 columns."""
    H = matrix(50, 30)
    L = np.tril(factors.factorised(H.copy(), np.full(50, -1e-13), lambda: None))
    np.testing.assert_allclose(L @ L.T, H, atol=1e-9 * np.abs(H).max())


def test_a_check_ends_the_work():
    def stop():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        factors.factorised(matrix(40, 80), np.ones(40), stop)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_matrix_with_entries_that_are_not_numbers_ends_the_search_for_a_multiple(bad, monkeypatch):
    """LAPACK's own factorisation fails on such a matrix; that of OpenBLAS returns entries that are not numbers."""
    monkeypatch.setattr("scipy.linalg.lapack.dpotrf", lambda A, **_: (A, int(not np.isfinite(A).all())))
    H = np.eye(5)
    H[2, 2] = bad
    assert np.array_equal(factors.factorised(H, np.zeros(5)), np.eye(5))
