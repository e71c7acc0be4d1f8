"""Functions of all rows: what is compiled agrees with NumPy, and has the same bits for any number of threads."""

import numpy as np
import pytest

from dualnewton import losses
from dualnewton.matrix import RowVectors, compiled
from dualnewton.matrix.workers import threads
from dualnewton.objective import row_sums
from tables import LOSSES, NON_SMOOTH, labels_for, name_of

N = 300


def vectors(loss, form):
    rng = np.random.default_rng(4)
    c, o = (rng.uniform(0.0, 2.0, N), rng.standard_normal(N)) if form == "weighted" else (None, None)
    if c is not None:
        c[::7] = 0.0
    rows = RowVectors(loss.labels(labels_for(loss, N, rng), N), c, o)
    z, way = 3.0 * rng.standard_normal(N), rng.standard_normal(N)
    return rows, z, way, -0.9 * loss.derivative(z, rows.y)


def every_function(loss, rows, z, way, alpha):
    return [
        row_sums.values(loss, z, rows),
        row_sums.conjugates(loss, alpha, rows),
        row_sums.curvature(loss, z, rows),
        row_sums.slope_along(loss, z, way, 0.3, rows),
        row_sums.best_intercept(loss, z, rows, 0.0),
    ]


@pytest.mark.parametrize("form", ["plain", "weighted"])
@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH], ids=name_of)
def test_compiled_functions_agree_with_numpy(loss, form, monkeypatch):
    arguments = vectors(loss, form)
    exact = every_function(loss, *arguments)
    monkeypatch.setattr(row_sums, "MANY", 1)
    monkeypatch.setattr(compiled, "PART_ROWS", 20)
    found = every_function(loss, *arguments)
    for mine, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
    for count in (2, 3, 8, 16):
        with threads(count):
            assert all(map(np.array_equal, every_function(loss, *arguments), found))


def test_a_dual_point_outside_the_domain_is_infinite_unless_its_weight_is_zero(monkeypatch):
    monkeypatch.setattr(row_sums, "MANY", 1)
    loss, y = losses.Logistic(), np.ones(N)
    alpha, c = np.full(N, 0.5), np.ones(N)
    for bad in (1.1, -0.1, np.nan):
        alpha[17] = bad
        c[17] = 1.0
        assert row_sums.conjugates(loss, alpha, RowVectors(y, c)) == np.inf
        c[17] = 0.0
        assert row_sums.conjugates(loss, alpha, RowVectors(y, c)) == pytest.approx((N - 1) * np.log(0.5), rel=1e-13)
