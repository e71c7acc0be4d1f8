"""Cholesky factors by tiles: those of LAPACK, with the same bits for any number of threads."""

import numpy as np
import pytest
from scipy.linalg import cholesky

from dualnewton.matrix import factors
from dualnewton.matrix.workers import threads


@pytest.fixture(autouse=True)
def _small_tiles(monkeypatch):
    for name, size in (("TILE", 16), ("LARGE", 8), ("BETWEEN", 1), ("SOLVED", 1)):
        monkeypatch.setattr(factors, name, size)


def matrix(size, rank):
    A = np.random.default_rng(0).standard_normal((rank, size))
    return A.T @ A


@pytest.mark.parametrize("size", [9, 16, 17, 75])
def test_a_factor_by_tiles_is_that_of_lapack_for_any_number_of_threads(size):
    H, diagonal, checks = matrix(size, 2 * size), np.linspace(1.0, 2.0, size), []
    g = np.random.default_rng(1).standard_normal(size)
    found = {}
    for count in (1, 2, 3, 8, 16):
        with threads(count):
            factor = factors.factorised(H.copy(), diagonal, lambda: checks.append(None))
            found[count] = np.tril(factor), factors.solved(factor, g), factors.solved(factor, np.stack([g, -g], axis=1))
        for one, other in zip(found[count], found[1], strict=True):
            assert np.array_equal(one, other), count
    exact = H + np.diag(diagonal)
    L, x, several = found[1]
    expected = cholesky(exact, lower=True)
    np.testing.assert_allclose(L, expected, rtol=1e-10, atol=1e-12 * np.abs(L).max())
    np.testing.assert_allclose(exact @ x, g, atol=1e-10)
    np.testing.assert_allclose(several, np.stack([x, -x], axis=1), rtol=1e-8, atol=1e-12)
    assert len(checks) == 5 * -(-size // 16)


@pytest.mark.parametrize("count", [1, 8])
def test_an_indefinite_matrix_is_lifted_in_whichever_tile_it_fails(count):
    """A matrix of rank 30 fails in the second column of tiles of 16 columns; threads that wait for a tile end."""
    H = matrix(50, 30)
    with threads(count):
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
    for size in (5, 40):  # by LAPACK, by tiles
        H = np.eye(size)
        H[2, 2] = bad
        assert np.array_equal(factors.factorised(H, np.zeros(size)), np.eye(size))
