"""Products with a few sparse rows of many features, by rows and by features: those of NumPy, in any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.matrix import few_rows
from dualnewton.matrix.workers import threads
from dualnewton.solvers.primal.curvature import Woodbury


@pytest.mark.parametrize(("n", "d", "dtype"), [(1, 1, np.float64), (30, 200, np.float64), (40, 130, np.float32)])
def test_products_are_those_of_dense_rows_in_any_number_of_threads(n, d, dtype, monkeypatch):
    for name, number in (("ROWS", 4), ("FEATURES", 16)):
        monkeypatch.setattr(few_rows, name, number)
    rng = np.random.default_rng(0)
    dense = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.1)).astype(dtype)
    diagonal, roots, u, g = rng.uniform(1.0, 2.0, d), rng.random(n), rng.standard_normal(n), rng.standard_normal(d)
    shared, found = few_rows.SharedRows(sp.csr_array(dense), diagonal), []
    for count in (1, 2, 16):
        with threads(count):
            found.append((few_rows.inside(shared, roots, g, diagonal), few_rows.outside(shared, u, g, diagonal)))
    for each in found:
        assert all(map(np.array_equal, each, found[0]))
    np.testing.assert_allclose(found[0][0], roots * (dense @ (g / diagonal)), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[0][1], (g - dense.T @ u) / diagonal, rtol=1e-12, atol=1e-12)


def test_only_sparse_rows_of_many_features_are_shared(monkeypatch):
    rows = sp.csr_array(np.eye(3))
    assert few_rows.as_factor(rows, np.ones(3)) is rows
    monkeypatch.setattr(few_rows, "LONG", 3)
    assert type(few_rows.as_factor(rows, np.ones(3))) is few_rows.SharedRows
    assert few_rows.as_factor(np.eye(3), np.ones(3)).shape == (3, 3)


@pytest.mark.parametrize("intercept", [False, True])
def test_woodbury_solves_with_shared_rows(intercept, monkeypatch):
    from dualnewton.matrix import MemoryData

    rng = np.random.default_rng(1)
    X = sp.csr_array(rng.standard_normal((9, 50)) * (rng.random((9, 50)) < 0.3))
    diagonal, g = rng.uniform(1.0, 2.0, 50), rng.standard_normal(50 + intercept)
    plain = Woodbury(X, rng.random(9), diagonal, intercept=intercept)
    monkeypatch.setattr(few_rows, "LONG", 50)
    shared = plain.placed(MemoryData(X))
    again = shared.state().on(MemoryData(X))
    np.testing.assert_allclose(shared.solve(g), plain.solve(g), rtol=1e-10)
    np.testing.assert_array_equal(again.solve(g), shared.solve(g))
