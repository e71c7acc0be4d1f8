"""Products and combinations of long vectors: those of NumPy, with the same bits for any number of threads."""

import numpy as np
import pytest

from dualnewton.matrix import vectors
from dualnewton.matrix.workers import threads


@pytest.mark.parametrize("size", [1, 64, 1000])
def test_parts_of_vectors_give_the_results_of_numpy_in_any_number_of_threads(size, monkeypatch):
    for name, number in (("LONG", 1), ("PART", 64), ("SMALL_PART", 64), ("SHARE", 1)):
        monkeypatch.setattr(vectors, name, number)
    rng = np.random.default_rng(0)
    rows, factors = list(rng.standard_normal((5, size))), rng.standard_normal(5)
    found = []
    for count in (1, 2, 3, 8, 16):
        with threads(count):
            sums, differences = vectors.total(*rows[:2]), vectors.difference(*rows[:2])
            gradient, squares = vectors.penalised(*rows[:4])
            products, combination = (
                vectors.products([(row, rows[0]) for row in rows]),
                vectors.combination(factors, rows),
            )
            along, product = vectors.combination_along(factors, rows, rows[4])
            three, *others = vectors.pair(rows[:3], rows[2:], rows[:2], rows[4])
            found.append(
                (products, combination, sums, differences, gradient, np.array(squares), along, product, *three, *others)
            )
    for each in found:
        assert all(map(np.array_equal, each, found[0]))
    gradient = rows[0] + rows[2] * rows[1]
    s, z, y = apart = [u - v for u, v in zip(rows[:3], rows[2:], strict=True)]
    every = np.array([*rows[:2], s, z])
    wanted = (
        np.array(rows) @ rows[0],
        factors @ np.array(rows),
        rows[0] + rows[1],
        rows[0] - rows[1],
        gradient,
        [rows[2] @ rows[1] ** 2, gradient @ gradient, rows[3] @ gradient**2],
        factors @ np.array(rows),
        rows[4] @ (factors @ np.array(rows)),
        *apart,
        every @ y,
        every @ rows[4],
        [s @ s, y @ y],
    )
    for one, other in zip(found[0], wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


def test_short_vectors_need_no_kernel():
    rows = [np.array([1.0, 2.0]), np.array([3.0, -1.0])]
    assert vectors.products([(rows[0], rows[1])]).tolist() == [1.0]
    assert vectors.combination(np.array([2.0, 1.0]), rows).tolist() == [5.0, 3.0]
    assert vectors.total(*rows).tolist() == [4.0, 1.0]
    assert vectors.difference(*rows).tolist() == [-2.0, 3.0]
    total, product = vectors.combination_along(np.array([2.0, 1.0]), rows, rows[1])
    assert (total.tolist(), product) == ([5.0, 3.0], 12.0)
    (s, _, y), of_y, along, squares = vectors.pair([rows[0]] * 3, [rows[1]] * 3, [rows[0]], rows[1])
    assert s.tolist() == y.tolist() == [-2.0, 3.0]
    assert (of_y.tolist(), along.tolist(), squares.tolist()) == ([4.0, 13.0, 13.0], [1.0, -9.0, -9.0], [13.0, 13.0])
    gradient, sums = vectors.penalised(np.array([1.0, 1.0]), *rows, np.array([1.0, 2.0]))
    assert gradient.tolist() == [4.0, -1.0]
    assert sums == (-1.0, 17.0, 18.0)
