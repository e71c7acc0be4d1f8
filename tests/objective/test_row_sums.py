"""Functions of all rows: what is compiled agrees with NumPy, and has the same bits for any number of threads."""

import numpy as np
import pytest

from dualnewton import losses
from dualnewton.kernels import row_functions
from dualnewton.matrix import RowVectors, over_rows
from dualnewton.matrix.workers import threads
from dualnewton.objective import row_sums
from dualnewton.row_arrays import BLOCK, SUMMED, WIDE_BLOCK, additions, product, stacked, totals
from tables import LOSSES, NON_SMOOTH, SEVERAL_COLUMNS, labels_for, name_of

N = 300


def vectors(loss, form):
    rng = np.random.default_rng(4)
    shape = (N,) if loss.columns == 1 else (N, loss.columns)
    c, o = (rng.uniform(0.0, 2.0, N), rng.standard_normal(shape)) if form == "weighted" else (None, None)
    if c is not None:
        c[::7] = 0.0
    rows = RowVectors(loss.labels(labels_for(loss, N, rng), N), c, o)
    z, way = 3.0 * rng.standard_normal(shape), rng.standard_normal(shape)
    return rows, z, way, -0.9 * loss.derivative(z, rows.y)


def every_function(loss, rows, z, way, alpha):
    return [
        row_sums.values(loss, z, rows),
        row_sums.conjugates(loss, alpha, rows),
        row_sums.curvature(loss, z, rows),
        row_sums.dual_point(loss, z, rows),
        row_sums.slope_along(loss, z, way, 0.3, rows),
        row_sums.best_intercept(loss, z, rows, 0.0),
        *flat(row_sums.dual_terms(loss, alpha, rows, masses=True)),
        *row_sums.dual_sizes(loss, alpha, rows, masses=True),
        *([row_sums.couplings(loss, z, rows)] if couples(loss) else []),
    ]


def flat(terms):
    return [*terms.sizes, terms.linear, terms.conjugates]


def couples(loss):
    return loss.columns > 1 and loss.curvature is losses.Curvature.VARYING


@pytest.mark.parametrize("form", ["plain", "weighted"])
@pytest.mark.parametrize("loss", [*LOSSES, *NON_SMOOTH, *SEVERAL_COLUMNS], ids=name_of)
def test_compiled_functions_agree_with_numpy(loss, form, monkeypatch):
    arguments = vectors(loss, form)
    exact = every_function(loss, *arguments)
    monkeypatch.setattr(row_sums, "MANY", 1)
    monkeypatch.setattr(over_rows, "PART_ROWS", 20)
    found = every_function(loss, *arguments)
    for mine, theirs in zip(found, exact, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)
    for count in (2, 3, 8, 16):
        with threads(count):
            assert all(map(np.array_equal, every_function(loss, *arguments), found))
    rows, _, _, alpha = arguments
    for masses in (False, True):  # a run that is restored from a file computes them without the conjugates
        sizes = row_sums.dual_terms(loss, alpha, rows, masses=masses).sizes
        assert all(map(np.array_equal, sizes, row_sums.dual_sizes(loss, alpha, rows, masses=masses)))


@pytest.mark.parametrize("loss", [losses.Huber(0.7), losses.SmoothHinge(0.5), losses.SquaredEpsilonInsensitive()])
def test_a_slope_needs_no_values_and_values_with_slopes_clip_once(loss, monkeypatch):
    rows, z, way, _ = vectors(loss, "plain")
    expected = float(loss.derivative(z + 0.3 * way, rows.y) @ way)
    monkeypatch.setattr(row_sums, "MANY", N + 1)
    monkeypatch.setattr(type(loss), "value", lambda *_: pytest.fail("values were computed"))
    assert row_sums.slope_along(loss, z, way, 0.3, rows) == pytest.approx(expected, rel=1e-14)
    monkeypatch.setattr(type(loss), "derivative", lambda *_: pytest.fail("slopes were computed once more"))
    row_sums.value_and_slopes(loss, z, rows)


@pytest.mark.parametrize("n", [1, over_rows.PART_ROWS, over_rows.PART_ROWS + 1, 3 * over_rows.PART_ROWS + 1])
def test_parts_of_rows_are_about_equal(n):
    sizes = np.diff(over_rows.row_parts(n))
    assert sizes.sum() == n
    assert sizes.max() <= over_rows.PART_ROWS
    assert sizes.max() - sizes.min() <= 1  # functions of rows write three sums for each part


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


@pytest.mark.parametrize("scale", [1e-3, 30.0, 1e3, 1e6])
def test_softmax_by_columns_is_that_of_numpy_at_extreme_margins(scale, monkeypatch):
    """Also relatively, where 1 − p is tiny; with ties, and with more rows than fit into a block."""
    loss, rng, n = losses.Softmax(4), np.random.default_rng(3), 700
    z = scale * rng.standard_normal((n, 4))
    z[::5] = z[::5, :1]
    rows = RowVectors(rng.integers(0, 4, n))
    functions = row_sums.dual_point, row_sums.curvature, row_sums.couplings, row_sums.values
    exact = [function(loss, z, rows) for function in functions]
    bound = row_sums.conjugates(loss, exact[0], rows)
    monkeypatch.setattr(row_sums, "MANY", 1)
    for function, numbers in zip(functions, exact, strict=True):
        np.testing.assert_allclose(function(loss, z, rows), numbers, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(row_sums.conjugates(loss, exact[0], rows), bound, rtol=1e-12)


@pytest.mark.parametrize("bad", [1e-3, np.nan])
def test_a_dual_point_of_several_columns_outside_the_simplex_is_infinite_unless_its_weight_is_zero(bad, monkeypatch):
    monkeypatch.setattr(row_sums, "MANY", 1)
    loss, c, y = losses.Softmax(3), np.ones(N), np.arange(N) % 3
    alpha = -loss.derivative(np.random.default_rng(0).standard_normal((N, 3)), y)
    alpha[17, 1] += bad
    assert row_sums.conjugates(loss, alpha, RowVectors(y, c)) == np.inf
    c[17] = 0.0
    others = np.arange(N) != 17
    assert row_sums.conjugates(loss, alpha, RowVectors(y, c)) == pytest.approx(
        loss.conjugates(alpha[others], y[others], None), rel=1e-13
    )


@pytest.mark.parametrize("masses", [True, False])
@pytest.mark.parametrize("form", ["plain", "weighted"])
@pytest.mark.parametrize("loss", [losses.Squared(), losses.SquaredOutputs(3)], ids=name_of)
def test_sums_of_a_multiple_of_a_dual_point_are_multiples(loss, form, masses):
    rows, _, _, alpha = vectors(loss, form)
    sizes = row_sums.dual_sizes(loss, alpha, rows, masses=masses)
    again = row_sums.dual_sizes(loss, 0.7 * alpha, rows, masses=masses)
    assert [each is None for each in sizes] == [not masses and k > 1 for k in range(4)]
    for found, expected in zip(sizes.times(0.7), again, strict=True):
        if expected is None:
            assert found is None
        else:
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_product_of_all_entries_is_the_same_in_both_orders(order):
    u, v = (np.asarray(np.random.default_rng(seed).standard_normal((50, 3)), order=order) for seed in (0, 1))
    assert product(u, v) == pytest.approx((u * v).sum(), rel=1e-13)
    assert product(u, np.asarray(v, order="C")) == pytest.approx((u * v).sum(), rel=1e-13)


@pytest.mark.parametrize("n", [5, SUMMED, 2 * SUMMED - 1, 2 * SUMMED, 40 * SUMMED + 17])
@pytest.mark.parametrize("columns", [None, "rows", "columns"])
def test_totals_have_the_errors_of_as_many_additions_as_they_declare(n, columns):
    rng = np.random.default_rng(n)
    values = rng.standard_normal(n if columns is None else (n, 3)) * 10.0 ** rng.uniform(
        -8, 8, n if columns is None else (n, 3)
    )
    values = np.asfortranarray(values) if columns == "columns" else values
    exact = values.astype(np.longdouble).sum(axis=0)
    assert np.all(np.abs(totals(values) - exact) <= additions(values) * 2.0**-53 * np.abs(values).sum(axis=0))
    assert additions(values) <= n
    assert n < 4 * SUMMED or additions(values) < n / 8


def test_rows_of_one_array_are_stacked_without_a_copy():
    table = np.arange(3.0 * 2 * BLOCK).reshape(6, BLOCK)
    rows = list(table)
    for chosen in (rows, rows[1:4], rows[::2], [row[5:4000] for row in rows]):
        found = stacked(chosen)
        assert np.shares_memory(found, table)
        np.testing.assert_array_equal(found, np.array(chosen))
    for others in ([rows[0], rows[2], rows[3]], rows[::-1], [rows[0], rows[1].copy()], [row[:5] for row in rows]):
        found = stacked(others)
        assert not np.shares_memory(found, table)
        np.testing.assert_array_equal(found, np.array(others))


def test_labels_of_several_outputs_have_the_order_of_margins():
    """Operations on arrays in different orders, or along short rows, take several times as long."""
    rng = np.random.default_rng(0)
    few, many = losses.SquaredOutputs(3), losses.SquaredOutputs(2)
    y = few.labels(rng.standard_normal((N, 3)), N)
    assert y.T.flags.c_contiguous
    n = WIDE_BLOCK
    assert many.labels(rng.standard_normal((n, 2)), n).flags.c_contiguous  # compiled passes would copy them each time


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.SquaredHinge(), losses.Huber(0.5)], ids=repr)
def test_shorter_formulas_of_few_rows_leave_kernels_for_many(loss):
    rng = np.random.default_rng(3)
    y = np.sign(rng.standard_normal(5000))
    alpha, weights = 0.4 * y * rng.random(5000), rng.random(5000)
    assert row_functions.conjugates_of(loss) is not None
    expected = float(weights @ loss.conjugate(-alpha, y))
    assert loss.conjugates(alpha, y, weights) == pytest.approx(expected, rel=1e-13)
    terms = row_sums.dual_terms(loss, alpha, RowVectors(y, weights, None), masses=False)
    assert float(terms.conjugates) == pytest.approx(expected, rel=1e-13)
