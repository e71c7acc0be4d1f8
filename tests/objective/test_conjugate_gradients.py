"""Conjugate gradients: the solution of a system, the rules by which they end, and the flat directions that they refuse."""

import numpy as np
import pytest

from dualnewton.objective.conjugate_gradients import conjugate_gradients

RNG = np.random.default_rng(3)
ROOT = RNG.standard_normal((12, 12))
M, T = ROOT @ ROOT.T, RNG.standard_normal(12)
SCALE = (1.0 / M.diagonal()).__mul__


def test_as_many_products_as_unknowns_solve_the_system():
    x, products = conjugate_gradients(M.__matmul__, T, SCALE, fraction=1e-13, most=40)
    assert products <= 40
    np.testing.assert_allclose(x, np.linalg.solve(M, T), rtol=1e-6)


def test_several_columns_are_one_system():
    right = RNG.standard_normal((3, 12))
    x, _ = conjugate_gradients(lambda V: V @ M, right, SCALE, fraction=1e-13, most=80)
    np.testing.assert_allclose(x, np.linalg.solve(M, right.T).T, rtol=1e-5)


@pytest.mark.parametrize("rule", [{"most": 3}, {"most": 40, "is_enough": lambda r: float(r @ r) <= 0.9 * float(T @ T)}])
def test_each_rule_ends_them(rule):
    x, products = conjugate_gradients(M.__matmul__, T, SCALE, **{"fraction": 0.0, **rule})
    assert 0 < products < 12
    assert 0.5 * x @ M @ x - T @ x < 0.0


def test_a_flat_direction_ends_them():
    """Repeated examples: the second direction has no curvature, up to rounding, and would be followed by an arbitrary length."""
    flat = np.ones((2, 2)) + 1e-13 * np.eye(2)
    x, products = conjugate_gradients(flat.__matmul__, np.array([1.0, 0.5]), np.copy, fraction=0.0, most=9, flat=1e-10)
    assert products == 2
    assert np.abs(x).max() < 1.0


def test_a_check_may_stop_them():
    def check():
        raise TimeoutError

    with pytest.raises(TimeoutError):
        conjugate_gradients(M.__matmul__, T, SCALE, fraction=0.0, most=9, check=check)
