"""The pieces that the compiled rounds are made of: row access, loss pointers, the scalar and the block solve."""

import gc
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton import losses
from dualnewton.kernels import newton, separable
from dualnewton.kernels import rows as row
from dualnewton.kernels._compiler import address_of, compiled_for
from dualnewton.kernels._jit import jit, kernel_function, lean
from dualnewton.kernels._memory import address, borrowed, give_back, view
from dualnewton.kernels.gradients import NONE, compiled_gradient
from dualnewton.kernels.losses import VALUES, compiled, inlined, slopes_at, values_at
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.rows import Rows
from dualnewton.solvers.dual import block as blocks
from tables import LOSSES, labels_for, name_of, regularizers_for


@dataclass(frozen=True)
class PseudoHuber(losses.Loss):
    """delta²(√(1 + (r/delta)²) − 1) for r = z − y: a loss such as a user would write."""

    delta: float = 1.0
    gamma = 1.0

    def value(self, z, y):
        r = (z - y) / self.delta
        return self.delta**2 * r * r / (1.0 + np.sqrt(1.0 + r * r))

    def derivative(self, z, y):
        r = (z - y) / self.delta
        return self.delta * r / np.sqrt(1.0 + r * r)

    def second_derivative(self, z, y):
        r = (z - y) / self.delta
        return 1.0 / np.sqrt(1.0 + r * r) ** 3

    def conjugate_inside(self, u, y):
        return u * y + self.delta**2 * (1.0 - np.sqrt(1.0 - np.minimum((u / self.delta) ** 2, 1.0)))

    def domain(self, y):
        return 0.0 * y - self.delta, 0.0 * y + self.delta


ALL_LOSSES = [*LOSSES, PseudoHuber(delta=0.4)]

# Loss pointers ---------------------------------------------------------------------------------------------------------

EXTREMES = [0.0, 1.0, -1.0, 0.5, 1.0 - 1e-16, 1e-300, 36.0, -36.0, 700.0, 1e3, -1e3, 1e8, -1e8]


@jit
def _along(loss, z, y, values, slopes):
    for i in range(z.size):
        values[i, 0], values[i, 1], values[i, 2] = values_at(loss, z[i], y[i])
        slopes[i, 0], slopes[i, 1] = slopes_at(loss, z[i], y[i])


along = Kernel(_along)


def assert_pointers_agree(loss, like):
    rng = np.random.default_rng(0)
    z = np.r_[EXTREMES, 3.0 * rng.standard_normal(40)]
    y = labels_for(loss, z.size, rng)
    found, slopes = np.empty((z.size, 3)), np.empty((z.size, 2))
    made = compiled(loss)
    along.prepare(made.argument, z, y, found, slopes)
    along(made.argument, z, y, found, slopes)
    for function, column in zip((like.value, like.derivative, like.second_derivative), found.T, strict=True):
        np.testing.assert_allclose(column, function(z, y), rtol=4e-15, atol=1e-300)
    np.testing.assert_array_equal(slopes, found[:, 1:])


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_loss_pointers_are_the_functions_of_the_loss(loss):
    assert_pointers_agree(loss, loss)


def test_the_comparison_sees_a_parameter_that_is_not_passed_on():
    losses.check(PseudoHuber(delta=0.4))
    with pytest.raises(AssertionError):
        assert_pointers_agree(PseudoHuber(delta=0.4), PseudoHuber(delta=0.41))


def test_equal_losses_share_one_compilation():
    assert compiled(losses.Huber(delta=0.7)) is compiled(losses.Huber(delta=0.7))
    assert compiled(losses.Huber(delta=0.7)) is not compiled(losses.Huber(delta=0.8))


# A kernel inside a kernel ----------------------------------------------------------------------------------------------


@jit
def _inner(x):
    return x.sum()


@jit
def _outer(x):
    return 2.0 * _inner(x)


def test_a_kernel_that_was_prepared_for_some_types_still_serves_others_inside_another():
    inner, outer = Kernel(_inner), Kernel(_outer)
    vector, matrix = np.ones(3), np.ones((2, 2))
    inner.prepare(vector)
    assert inner(vector) == 3.0
    outer.prepare(matrix)  # needs _inner for a matrix
    assert outer(matrix) == 8.0
    inner.prepare(matrix)
    outer.prepare(vector)
    assert (inner(vector), outer(vector), inner(matrix), outer(matrix)) == (3.0, 6.0, 4.0, 8.0)


def test_a_part_of_kernels_cannot_be_called_from_python():
    Kernel(_outer).prepare(np.ones(3))
    with pytest.raises(TypeError, match="_inner is a part of kernels"):
        _inner(np.ones(3))


@jit
def _slope_at_one(loss):
    return slopes_at(loss, 1.0, 1.0)[0]


@lean
def _second_row_twice(A, places, found):
    m, n = A.shape
    copy, indices = borrowed((m, n), A), borrowed(n, 0)
    for i in range(m):
        for j in range(n):
            copy[i, j] = A[i, j]
    row = view(copy, n, n)  # the row after the first n entries
    for j in range(n):
        row[j] *= 2.0
        indices[j] = j
    for j in range(n):
        found[indices[j]] = copy[1, j]
    places[0], places[1] = address(view(copy, n, n)) - address(copy), address(A)
    give_back(copy)
    give_back(indices)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_borrowed_arrays_have_the_type_asked_for_and_views_share_their_memory(dtype):
    kernel, A = Kernel(_second_row_twice), np.arange(12, dtype=dtype).reshape(3, 4)
    places, found = np.zeros(2, dtype=np.intp), np.zeros(4)
    kernel.prepare(A, places, found)
    kernel(A, places, found)
    np.testing.assert_array_equal(found, 2.0 * A[1])
    assert places.tolist() == [4 * A.itemsize, A.ctypes.data]


@lean
def _indexed(A, unsigned, limits, out):
    sizes = A.shape
    out[0] = A[-1, 2] + A[limits[0], unsigned[1]]  # limits[0] is negative
    out[1] = sizes[1] + 10 * A.shape[0] + 100 * A.size
    forward = backward = uneven = empty = 0.0
    for i in range(limits[1]):
        forward = 10.0 * forward + i
    for i in range(limits[1], -1, -2):
        backward = 10.0 * backward + i
    for i in range(1, limits[1], 3):
        uneven = 10.0 * uneven + i
    for _ in range(limits[1], 0):
        empty += 1.0
    out[2], out[3], out[4], out[5] = forward, backward, uneven, empty
    A[limits[0], 0] = 7.0


def test_lean_functions_index_and_count_as_python_does():
    kernel, A, out = Kernel(_indexed), np.arange(12.0).reshape(3, 4), np.zeros(6)
    arguments = A, np.array([0, 3], dtype=np.uint32), np.array([-2, 5]), out
    expected, twin = np.zeros(6), A.copy()
    _indexed.py_func(twin, *arguments[1:3], expected)
    kernel.prepare(*arguments)
    kernel(*arguments)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(A, twin)
    assert out[2:].tolist() == [1234.0, 531.0, 14.0, 0.0]


@pytest.mark.parametrize("enabled", [True, False])
def test_compilation_leaves_garbage_collection_as_it_was(enabled):
    was = gc.isenabled()
    (gc.enable if enabled else gc.disable)()
    try:
        Kernel(_second_row_twice).prepare(np.zeros((3, 4)), np.zeros(2, dtype=np.intp), np.zeros(4))
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()


def test_a_call_compiles_nothing_while_another_thread_prepares(monkeypatch):
    kernel, loss = Kernel(_slope_at_one), compiled(losses.Squared())
    kernel.prepare(loss.argument)
    original, seen = kernel.prepared.compile, []

    def compile_while_another_calls(kinds):
        seen.append(kernel(loss.argument))
        return original(kinds)

    monkeypatch.setattr(kernel.prepared, "compile", compile_while_another_calls)
    kernel.prepare(inlined(losses.Squared()).argument)
    assert seen == [0.0]
    assert len(kernel.prepared.overloads) == 2


# Rows ------------------------------------------------------------------------------------------------------------------


@kernel_function
def _all_of_rows(data, columns, starts, w, limits, gradient, dots, sums, followed, spreads):
    every = np.arange(dots.size)
    for i in range(dots.size):
        dots[i] = row.dot(data, columns, starts, i, w)
        row.add(data, columns, starts, i, 0.5 - i, sums[i])
        row.follow(data, columns, starts, every, i, i + 1, w, followed[i], limits, gradient)
        row.spread(data, columns, starts, i, 2.0, spreads[i])
        row.fetch(data, columns, starts, i)
        row.fetch_place(data, columns, starts, i)


def storages(X):
    matrix = sp.csr_array(X)
    for dtype in (np.float64, np.float32):
        yield X.astype(dtype)
        for index in (np.int32, np.int64):
            parts = (matrix.data.astype(dtype), matrix.indices.astype(index), matrix.indptr.astype(index))
            yield sp.csr_array(parts, shape=X.shape)


def test_rows_are_read_and_written_as_numpy_does():
    rng = np.random.default_rng(0)
    n, d = 9, 37
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.4)
    X[[2, n - 1]] = 0.0  # empty rows, the last one among them
    X = X.astype(np.float32).astype(np.float64)  # so that both precisions hold the same numbers
    w = rng.standard_normal(d)
    for regularizer in regularizers_for(d):
        form = regularizer.form
        whole = form.is_general
        limits = np.zeros((4, 0)) if form.is_general or form.is_plain else form.limits(d)
        gradient = compiled_gradient(regularizer).address if whole else NONE
        for stored in storages(X):
            rows = Rows.of(stored)
            assert not any(part.flags.writeable for part in rows)
            sums, followed, spreads = np.tile(w, (n, 1)), np.full((n, d), np.nan), np.zeros((n, d))
            dots = np.empty(n)
            _all_of_rows(*rows, w, limits, gradient, dots, sums, followed, spreads)
            np.testing.assert_allclose(dots, X @ w, rtol=1e-14, atol=1e-14)
            np.testing.assert_allclose(sums, w + (0.5 - np.arange(n))[:, None] * X, rtol=1e-14, atol=1e-14)
            np.testing.assert_array_equal(spreads, 2.0 * X)
            # Only the features that a row has may have changed if g is separable; a dense row has them all.
            touched = X != 0.0 if sp.issparse(stored) and not whole else np.ones((n, d), dtype=bool)
            expected = np.where(touched & (not form.is_plain), regularizer.grad_conjugate(w), np.nan)
            np.testing.assert_allclose(followed, expected, rtol=1e-14)
    assert dots[2] == dots[-1] == 0.0


# The scalar solve ------------------------------------------------------------------------------------------------------


@jit
def _solve_scalars(u, curvature, alpha, y, slopes, tolerance, beta, residual):
    for i in range(u.size):
        found = separable.solve_scalar(u[i], curvature[i], alpha[i], y[i], slopes, tolerance)
        beta[i], residual[i] = found[0], found[-1]


solve_scalars = Kernel(_solve_scalars)
MARGINS = [0.0, 0.3, -1.0, 1.0, -30.0, 30.0, 1e3, -1e8, 1e8]
CURVATURES = [0.0, 1e-12, 1e-3, 1.0, 40.0, 1e3, 1e7, 1e12]


def scalar_cases(loss, curvatures=CURVATURES):
    """All margins × curvatures × labels × dual variables: inside the domain of φ*(−α) and at its ends."""
    labels = [-1.0, 1.0] if isinstance(loss, losses.Margin) else [-2.0, 0.0, 0.7]
    cases = []
    for y in labels:
        low, high = (float(end) for end in loss.domain(np.array(y)))
        inside = [u for u in (0.0, 0.2 * y, -0.2 * y, -5.0 * y, low, high) if np.isfinite(u) and low <= u <= high]
        cases += [(u, g, -s, y) for u in MARGINS for g in curvatures for s in inside]
    return np.array(cases).T


def solved(loss, u, curvature, alpha, y, tolerance=0.0):
    beta, residual, made = np.empty(u.size), np.empty(u.size), compiled(loss)
    args = (*map(np.ascontiguousarray, (u, curvature, alpha, y)), made.argument, tolerance, beta, residual)
    solve_scalars.prepare(*args)
    solve_scalars(*args)
    return beta, residual


def exact_root(loss, u, curvature, alpha, y):
    """Bisect F(z) = z − u + curvature(α + φ′(z)), whose slope is at least one, in extended precision."""
    u, curvature, alpha, y = (np.asarray(x, dtype=np.longdouble) for x in (u, curvature, alpha, y))

    def F(z):
        return z - u + curvature * (alpha + loss.derivative(z, y))

    ends = np.stack([u, u - F(u)])
    low, high = ends.min(axis=0), ends.max(axis=0)
    for _ in range(160):
        middle = (low + high) / 2
        above = F(middle) > 0
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return (low + high) / 2


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_the_scalar_solve_finds_the_root_to_rounding_and_stays_in_the_domain(loss):
    u, curvature, alpha, y = scalar_cases(loss)
    beta, residual = solved(loss, u, curvature, alpha, y)
    z = exact_root(loss, u, curvature, alpha, y)
    best = -loss.derivative(z, y.astype(np.longdouble))
    # A margin is known to a few units of its last place, or of those of u, which 1 + curvature φ″ damps; φ′ passes it on by 1/γ.
    spread = (8.0 * np.finfo(float).eps * (np.abs(z) + np.abs(u) + 1.0)) / loss.gamma
    assert np.all(np.abs(beta - best) <= spread + 1e-15 * np.abs(best))
    assert np.isfinite(loss.conjugate(-beta, y)).all()
    np.testing.assert_allclose(residual, (alpha + loss.derivative(u, y)) ** 2, rtol=1e-12, atol=1e-20)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_a_loose_tolerance_is_kept_in_the_margins(loss):
    cases = scalar_cases(loss, [1e-3, 1.0, 40.0])
    u, curvature, alpha, y = cases[:, np.abs(cases[0]) <= 1e3]
    beta, _ = solved(loss, u, curvature, alpha, y, tolerance=1e-3)
    z = exact_root(loss, u, curvature, alpha, y)
    # |F| ≤ tolerance and a slope of at least one put z within the tolerance of the root.
    assert np.all(np.abs(beta + loss.derivative(z, y)) <= 1e-3 / loss.gamma + 1e-12)
    assert np.isfinite(loss.conjugate(-beta, y)).all()


def scalar_dual(loss, u, curvature, alpha, y, beta):
    h = beta - alpha
    return -(u * h + 0.5 * curvature * h * h + loss.conjugate(-beta, y))


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_a_scalar_step_never_loses_dual_value_however_large_the_curvature(loss):
    u, curvature, alpha, y = scalar_cases(loss, [1e12, 1e18, 1e25, 1e40])
    beta, _ = solved(loss, u, curvature, alpha, y, tolerance=1e-13)
    before, after = (scalar_dual(loss, u, curvature, alpha, y, point) for point in (alpha, beta))
    # What rounding β to a float may cost: curvature·(ε|β|)², and the rounding of the values themselves.
    eps = 4.0 * np.finfo(float).eps
    noise = curvature * (eps * np.abs(alpha)) ** 2 + eps * (np.abs(before) + np.abs(u * (beta - alpha)) + 1.0)
    assert np.isfinite(beta).all()
    assert np.all(after >= before - noise)


def test_the_root_check_sees_half_a_step():
    loss = losses.Logistic()
    u, curvature, alpha, y = scalar_cases(loss, [1.0])
    beta, _ = solved(loss, u, curvature, alpha, y)
    best = -loss.derivative(exact_root(loss, u, curvature, alpha, y), y)
    assert np.abs(alpha + 0.5 * (beta - alpha) - best).max() > 1e-2
    # and the dual value check sees the overshooting step β = −φ′(u) that forgets the curvature
    u, curvature, alpha, y = scalar_cases(loss, [1e12])
    overshoot = -loss.derivative(u, y)
    assert np.any(
        scalar_dual(loss, u, curvature, alpha, y, overshoot) < scalar_dual(loss, u, curvature, alpha, y, alpha) - 1.0
    )


# The block solve -------------------------------------------------------------------------------------------------------


@lean
def _solve_one_block(G, u, alpha, y, c, beta, t, tolerance, loss, work, B):
    return newton.solve_block(G, u, alpha, y, c, beta, t, tolerance, loss, work, B)


solve_one_block = Kernel(_solve_one_block)


def with_argument(argument, y, u, G, alpha, c, tolerance=1e-12):
    """Return the new dual variables of a block, and the residual, for a loss as kernels take it."""
    beta, width = np.full(u.size, np.nan), newton.padded(u.size)
    room, work = np.full((width, width), np.nan), np.zeros((newton.VECTORS, width))  # the padding must not matter
    room[: u.size, : u.size] = G
    args = (room, u, alpha, y, c, beta, u.size, tolerance, argument, work, np.zeros((width, width)))
    solve_one_block.prepare(*args)
    return beta, solve_one_block(*args)


def block_solved(loss, y, u, G, alpha, c, tolerance=1e-12):
    made = compiled(loss)
    beta, residual = with_argument(made.argument, y, u, G, alpha, c, tolerance)
    expected = c @ (alpha + loss.derivative(u, y)) ** 2
    np.testing.assert_allclose(residual, expected, rtol=1e-12, atol=1e-300)
    return beta


def random_block(loss, tau, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((tau, 4)) * scale
    y = labels_for(loss, tau, rng)
    u = 2.0 * rng.standard_normal(tau)
    alpha = -loss.derivative(3.0 * rng.standard_normal(tau), y)
    return y, u, rows @ rows.T, alpha, rng.uniform(0.1, 3.0, tau)


def optimality(loss, y, u, G, alpha, c, beta):
    """The largest violation of β = −φ′(z) with z = u + G(c∘(β − α))."""
    return np.abs(beta + loss.derivative(u + G @ (c * (beta - alpha)), y)).max()


def block_dual(loss, y, u, G, alpha, c, beta):
    mass = c * (beta - alpha)
    return -(c @ np.where(c > 0.0, loss.conjugate(-beta, y), 0.0) + mass @ u + 0.5 * mass @ G @ mass)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
@pytest.mark.parametrize("tau", [1, 2, 7, 40])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 10.0])
def test_the_block_solve_is_optimal(loss, tau, scale):
    for seed in range(5):
        block = random_block(loss, tau, seed, scale)
        y, u, G, alpha, c = block
        beta = block_solved(loss, *block)
        reference = blocks.solve_block(loss, y, u, blocks.FullCurvature(G), alpha, c)
        np.testing.assert_allclose(beta, reference, rtol=1e-9, atol=1e-9)
        if scale <= 1.0:  # a larger G makes the condition itself blind: it multiplies the rounding of β
            assert optimality(loss, *block, beta) <= 1e-9


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_rows_of_weight_zero_follow_the_others_without_moving_them(loss):
    y, u, G, alpha, c = random_block(loss, 6, seed=2)
    c[[0, 3]] = 0.0
    beta = block_solved(loss, y, u, G, alpha, c)
    assert optimality(loss, y, u, G, alpha, c, beta) <= 1e-9
    rest = np.array([1, 2, 4, 5])
    without = block_solved(loss, y[rest], u[rest], np.ascontiguousarray(G[np.ix_(rest, rest)]), alpha[rest], c[rest])
    np.testing.assert_allclose(beta[rest], without, atol=1e-9)
    nobody = block_solved(loss, y, u, G, alpha, np.zeros(6))
    np.testing.assert_allclose(nobody, -loss.derivative(u, y), rtol=1e-14)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
@pytest.mark.parametrize("tolerance", [1e-13, 1e-2])
@pytest.mark.parametrize("scale", [1e-4, 1e2, 1e4, 1e6, 1e8, 1e10])  # G from 1e-8 to 1e20
def test_badly_scaled_blocks_stay_finite_feasible_and_never_go_downhill(loss, tolerance, scale):
    for seed in range(3):
        block = random_block(loss, 12, seed, scale)
        y, _, _, alpha, _ = block
        beta = block_solved(loss, *block, tolerance=tolerance)
        assert np.isfinite(beta).all()
        assert np.isfinite(loss.conjugate(-beta, y)).all()
        before, after = block_dual(loss, *block, alpha), block_dual(loss, *block, beta)
        assert after >= before - 1e-9 * abs(before)


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=name_of)
def test_an_indefinite_matrix_is_survived(loss):
    """Rounding may make G indefinite, never its diagonal negative: the Cholesky factor is missing, the answer is not."""
    block = (*random_block(loss, 3, seed=4)[:2], G := np.full((3, 3), 5e4), *random_block(loss, 3, seed=4)[3:])
    G[np.diag_indices(3)] = 1e3
    y, _, _, alpha, _ = block
    beta = block_solved(loss, *block)
    assert np.isfinite(loss.conjugate(-beta, y)).all()
    assert block_dual(loss, *block, beta) >= block_dual(loss, *block, alpha) - 1e-9


def test_the_optimality_check_sees_the_curvature_between_examples_left_out():
    loss = losses.Logistic()
    block = random_block(loss, 7, seed=0)
    y, u, G, alpha, c = block
    assert optimality(loss, *block, block_solved(loss, y, u, np.diag(np.diag(G)), alpha, c)) > 1e-3


@kernel_function
def _no_values(parameter, z, y):
    return np.nan, np.nan, np.nan


def test_values_of_the_loss_are_asked_for_only_where_whole_steps_do_not_pay():
    loss = losses.Logistic()
    without = np.uintp(address_of(compiled_for(_no_values, VALUES.args)))

    def solved_without_values(*block):
        return with_argument(compiled(loss).argument._replace(values=without), *block)[0]

    easy, hard = random_block(loss, 8, seed=0, scale=0.3), random_block(loss, 8, seed=0, scale=30.0)
    np.testing.assert_array_equal(solved_without_values(*easy), block_solved(loss, *easy))
    assert not np.array_equal(solved_without_values(*hard), block_solved(loss, *hard))
