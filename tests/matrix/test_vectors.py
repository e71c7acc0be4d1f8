"""Products and combinations of long vectors: those of NumPy, with the same bits for any number of threads."""

import numpy as np
import pytest

from dualnewton.matrix import vectors
from dualnewton.matrix.workers import threads


@pytest.mark.parametrize("size", [1, 64, 1000])
def test_parts_of_vectors_give_the_results_of_numpy_in_any_number_of_threads(size, monkeypatch):
    for name, number in (("LONG", 1), ("PART", 64), ("SHARE", 1)):
        monkeypatch.setattr(vectors, name, number)
    rng = np.random.default_rng(0)
    rows, factors = list(rng.standard_normal((5, size))), rng.standard_normal(5)
    found = []
    for count in (1, 2, 3, 8, 16):
        with threads(count):
            found.append((vectors.products([(row, rows[0]) for row in rows]), vectors.combination(factors, rows)))
    for products, combination in found:
        assert np.array_equal(products, found[0][0])
        assert np.array_equal(combination, found[0][1])
    np.testing.assert_allclose(found[0][0], np.array(rows) @ rows[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[0][1], factors @ np.array(rows), rtol=1e-12, atol=1e-12)


def test_short_vectors_need_no_kernel():
    rows = [np.array([1.0, 2.0]), np.array([3.0, -1.0])]
    assert vectors.products([(rows[0], rows[1])]).tolist() == [1.0]
    assert vectors.combination(np.array([2.0, 1.0]), rows).tolist() == [5.0, 3.0]
