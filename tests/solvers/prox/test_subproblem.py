"""Quadratic models with separable penalties: the minimum is one, however it is found, and the kernels do what NumPy says."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from dualnewton.kernels import columns
from dualnewton.kernels import quadratic as kernels
from dualnewton.kernels.blas import addresses
from dualnewton.kernels.models import Kernel, LazyKernel
from dualnewton.kernels.rows import Rows
from dualnewton.solvers.direct import active_set
from dualnewton.solvers.prox import column_descent as by_columns
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox.subproblem import Penalty, minimise

PENALTIES = {
    "lasso": (0.0, 1.0, -np.inf, np.inf),
    "elastic net": (0.1, 1.0, -np.inf, np.inf),
    "lasso, positive": (0.0, 1.0, 0.0, np.inf),
    "nonnegative": (0.1, 0.0, 0.0, np.inf),
    "box": (0.1, 0.0, -0.05, 0.2),
    "box away from zero": (0.1, 0.3, 0.1, 0.2),
}

NEWTON_STEP = Kernel(kernels._newton_step)
COLUMN_SWEEP = LazyKernel(columns._column_sweep)


def penalty_of(kind, m, strength=1.0):
    ridge, threshold, lower, upper = PENALTIES[kind]
    return Penalty(*(np.full(m, value) for value in (strength * ridge, strength * threshold, lower, upper)))


def model_of(n, m, common=0.3):
    """H = AAᵀ and slopes −Ay of a least-squares problem with a common part of all features, and A."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.5) + common * rng.standard_normal(n)
    y = rng.standard_normal(n) + A[0]
    return A @ A.T, -A @ y, A


def value(H, slopes, penalty, v):
    return slopes @ v + 0.5 * v @ H @ v + penalty.value(v)


@pytest.mark.parametrize("kind", list(PENALTIES))
@pytest.mark.parametrize(("n", "m"), [(40, 8), (40, 40), (15, 60)], ids=["tall", "square", "wide"])
@pytest.mark.parametrize("strength", [10.0, 1e-1, 1e-3])
def test_the_minimum_satisfies_its_conditions_and_lies_below_its_neighbours(kind, n, m, strength):
    H, slopes, _ = model_of(n, m)
    penalty = penalty_of(kind, m, strength)
    start = penalty.nearest(np.zeros(m))
    v = minimise(H, slopes, start, penalty)
    assert ((penalty.lower <= v) & (v <= penalty.upper)).all()
    here, scale = slopes + H @ (v - start), np.abs(slopes).max()
    assert penalty.violations(v, here).max() <= 1e-12 * scale
    rng, lowest = np.random.default_rng(1), value(H, slopes - H @ start, penalty, v)
    for size in (1e-4, 1e-2, 1.0):
        other = penalty.nearest(v + size * rng.standard_normal(m))
        assert value(H, slopes - H @ start, penalty, other) >= lowest - 1e-13 * scale


@given(st.sampled_from(list(PENALTIES)), st.sampled_from([-2.0, -0.05, 0.0, 0.05, 0.1, 0.2, 2.0]), st.floats(-3.0, 3.0))
def test_a_violation_is_the_slope_that_leads_down(kind, w, slope):
    """The one-sided derivatives of slope·v + penalty at w: none leads down where there is no violation."""
    penalty = penalty_of(kind, 1)
    w = float(penalty.nearest(np.array([w]))[0])
    violation = penalty.violations(np.array([w]), np.array([slope]))[0]
    steps = [t for t in (1e-7, -1e-7) if penalty.lower[0] <= w + t <= penalty.upper[0]]
    steepest = max(
        (-(slope * t + penalty.value(np.array([w + t])) - penalty.value(np.array([w]))) / abs(t) for t in steps),
        default=0.0,
    )
    assert violation == pytest.approx(max(steepest, 0.0), abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(PENALTIES))
def test_the_kernel_does_what_numpy_says(kind):
    H, slopes, _ = model_of(30, 20)
    penalty = penalty_of(kind, 20, 0.5)
    start = penalty.nearest(np.linspace(-0.1, 0.1, 20))
    found = []
    for sweep in (quadratic.sweeps, kernels.sweeps):
        v, at = start.copy(), slopes + H @ start
        arguments = (H, at, v, penalty.ridge, penalty.threshold, penalty.lower, penalty.upper, 3, 0.0)
        if sweep is kernels.sweeps:
            sweep.prepare(*arguments)
        sweep(*arguments)
        np.testing.assert_allclose(at, slopes + H @ v, atol=1e-12 * np.abs(slopes).max())
        found.append(v)
    np.testing.assert_allclose(*found, rtol=1e-11, atol=1e-14)
    assert not np.array_equal(found[0], start)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(PENALTIES))
@pytest.mark.parametrize("strength", [3.0, 1e-2], ids=["cut short", "whole"])
def test_newton_steps_of_the_kernel_do_what_numpy_says(kind, strength):
    H, slopes, _ = model_of(40, 12)
    penalty, rng = penalty_of(kind, 12, strength), np.random.default_rng(2)
    start = penalty.nearest(0.1 * rng.standard_normal(12) * (rng.random(12) < 0.7))
    here = slopes + H @ start
    point = quadratic._Point(H, here, start, penalty, quadratic.sweeps, quadratic.NEVER)
    ended, v, moved = point._step(), start.copy(), here.copy()
    parts = (penalty.ridge, penalty.threshold, penalty.lower, penalty.upper)
    arguments = (H, moved, v, *parts, addresses("dpotrf"), np.zeros(12, dtype=np.intp))
    NEWTON_STEP.prepare(*arguments)
    assert (NEWTON_STEP(*arguments) == 1) == ended
    np.testing.assert_allclose(v, point.v, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved, point.slopes, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(v == 0.0, point.v == 0.0)


@pytest.mark.parametrize("kind", list(PENALTIES))
@pytest.mark.parametrize("with_constant", [False, True])
def test_sweeps_by_columns_do_what_numpy_says_and_what_the_matrix_would(kind, with_constant):
    _, slopes, A = model_of(60, 20, common=0.0)
    A = sp.csr_array(A)
    q = A @ np.full(60, 60**-0.5) if with_constant else np.zeros(20)
    H = (A @ A.T).toarray() - np.outer(q, q)
    penalty = penalty_of(kind, 20, 0.5)
    start, found = penalty.nearest(np.zeros(20)), []
    diagonal, visited = H.diagonal().copy(), np.flatnonzero(np.arange(20) % 7)
    inverse = 1.0 / (diagonal + penalty.ridge)
    for rows, sweep in (((A,), by_columns.column_sweep), (tuple(Rows.of(A)), COLUMN_SWEEP)):
        v, moved, along_q = start.copy(), np.zeros(60), np.zeros(1)
        limits = (penalty.threshold, penalty.lower, penalty.upper)
        for _ in range(4):
            largest = sweep(*rows, q, diagonal, inverse, slopes, v, moved, *limits, along_q, visited, visited.size - 1)
        assert largest > 0.0
        np.testing.assert_allclose(moved, A.T @ (v - start), atol=1e-12)
        np.testing.assert_allclose(along_q, q @ (v - start), atol=1e-12)
        assert v[0] == start[0]
        assert v[visited[-1]] == start[visited[-1]]
        found.append(v)
    np.testing.assert_allclose(*found, rtol=1e-11, atol=1e-13)
    v, reached = by_columns.minimise(A, q, slopes, start, penalty, 1e-6)
    exact = minimise(H, slopes, start, penalty)
    assert reached
    np.testing.assert_allclose(v, exact, atol=1e-5)


@pytest.mark.parametrize("kind", list(PENALTIES))
@pytest.mark.parametrize("gap_goal", [-np.inf, 1e-4])
@pytest.mark.parametrize("most_free", [0, 20])
@pytest.mark.parametrize("storage", [sp.csr_array, np.asarray])
def test_rounds_by_columns_do_what_numpy_says(kind, gap_goal, most_free, storage):
    _, slopes, A = model_of(30, 20)
    A, rng = storage(A), np.random.default_rng(1)
    q, penalty = A @ np.full(30, 30**-0.5), penalty_of(kind, 20, 0.05)
    parts = (penalty.ridge, penalty.threshold, penalty.lower, penalty.upper)
    start, found = penalty.nearest(0.1 * rng.standard_normal(20) * (rng.random(20) < 0.3)), []
    for rows, rounds in (((A,), by_columns.column_rounds), (tuple(Rows.of(A)), columns.column_rounds)):
        model = by_columns.ColumnModel(A, q, slopes, penalty.nearest(np.zeros(20)), 50.0)
        state = (model.q, model.diagonal, model.slopes, model.v, model.moved, *parts, model.along_q)
        model.progress[3] = np.inf
        arguments = (*rows, *state, start, model.constant, 1e-6, gap_goal, 60, model.sweeps, model.progress, most_free)
        if rounds is columns.column_rounds:
            arguments = (*arguments, model.known, model.known_at, columns.routines())
            rounds.prepare(*arguments)
        found.append((rounds(*arguments), int(model.sweeps[0]), model.v))
    assert found[0][:2] == found[1][:2]
    assert (
        most_free or kind == "box away from zero" or found[0][1] > by_columns.MEMORY
    )  # so that a point was extrapolated
    np.testing.assert_allclose(found[0][2], found[1][2], rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("storage", [sp.csr_array, np.asarray])
def test_newton_steps_end_slow_sweeps(storage):
    """All features are alike but for a hundredth, so that thousands of sweeps do not suffice."""
    rng = np.random.default_rng(0)
    A = 0.1 * rng.standard_normal((30, 60)) + rng.standard_normal(60)
    targets = A[3] - 0.5 * A[5] + rng.standard_normal(60)
    threshold = np.full(30, 1e-2 * np.abs(A @ targets).max())
    penalty = Penalty(np.zeros(30), threshold, np.full(30, -np.inf), np.full(30, np.inf))
    for most_free, reaches in ((0, False), (30, True)):
        model = by_columns.ColumnModel(storage(A), np.zeros(30), np.zeros(30), np.zeros(30), 0.0, -targets)
        reached = model.descend(model.v, penalty, 1e-9 * threshold[0], -np.inf, 3000, most_free=most_free)
        assert reached == reaches
    assert model.sweeps[0] < 200
    assert penalty.violations(model.v, model.here).max() <= 1e-9 * threshold[0]


@pytest.mark.parametrize("storage", [sp.csr_array, np.asarray])
def test_slopes_that_cannot_matter_are_not_computed(storage):
    """A slope is bounded by a known one, scaled with the residuals, and the distance of the points: NaN there has no effect."""
    rng = np.random.default_rng(0)
    A, targets = rng.standard_normal((300, 400)), rng.standard_normal(400)
    A[:20] += targets
    steps, far, found = (0.9, 0.89, 0.88), None, []
    for spoiled in (False, True):
        model = by_columns.ColumnModel(storage(A), np.zeros(300), np.zeros(300), np.zeros(300), 0.0, -targets)
        threshold = np.abs(A @ targets).max()
        for k, step in enumerate(steps):
            penalty = Penalty(
                np.zeros(300), np.full(300, step * threshold), np.full(300, -np.inf), np.full(300, np.inf)
            )
            assert model.descend(model.v.copy(), penalty, 1e-8 * threshold, -np.inf, 1000, most_free=300)
            if k == 0 and spoiled:
                model.A[far] = np.nan
                model.rows = None
        far = np.flatnonzero(np.abs(model.known) < 0.3 * threshold)
        assert far.size > 200
        found.append(model.v)
    np.testing.assert_array_equal(*found)
    assert np.count_nonzero(found[0]) > 3


def test_extrapolation_saves_sweeps(monkeypatch):
    """1.6 entries in a feature, many of which are alike: without extrapolation it takes five times as many sweeps."""
    rng = np.random.default_rng(0)
    A = sp.random_array((600, 150), density=0.01, rng=rng, format="csr")
    A.data[:] = 1.0
    slopes = -(A @ rng.standard_normal(150))
    threshold = np.full(600, 0.01 * np.abs(slopes).max())
    penalty, sweeps = Penalty(np.zeros(600), threshold, np.full(600, -np.inf), np.full(600, np.inf)), []
    model = by_columns.ColumnModel(A, np.zeros(600), slopes, np.zeros(600), 0.0)
    assert model.descend(model.v, penalty, 1e-4 * threshold[0], -np.inf, 5000)
    plain, every = by_columns.ColumnModel(A, np.zeros(600), slopes, np.zeros(600), 0.0), np.arange(600)
    inverse = np.where(plain.diagonal > 0.0, 1.0 / np.maximum(plain.diagonal, 1e-300), 0.0)
    limits, rows = (threshold, penalty.lower, penalty.upper), Rows.of(A)
    way = (*rows, plain.q, plain.diagonal, inverse, slopes, plain.v, plain.moved, *limits, plain.along_q, every, 600)
    while penalty.violations(plain.v, plain.here).max() > 1e-4 * threshold[0] and len(sweeps) < 5000:
        sweeps.append(COLUMN_SWEEP(*way))
    assert model.sweeps[0] < 0.4 * len(sweeps)
    np.testing.assert_allclose(penalty.value(model.v), penalty.value(plain.v), rtol=1e-2)


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_features_with_common_factors_need_few_linear_systems(ridge, monkeypatch):
    """Rounds of sweeps and Newton steps took 230 factors here, and thousands of moves of a coordinate in NumPy before each."""
    rng, n, m = np.random.default_rng(0), 30, 90
    A = 0.3 * rng.standard_normal((m, n)) + rng.standard_normal((m, 3)) @ rng.standard_normal((3, n))
    H, slopes = A @ A.T, -A @ rng.standard_normal(n)
    threshold = 1e-3 * np.abs(slopes).max()
    penalty = Penalty(*(np.full(m, part) for part in (ridge * threshold, threshold, -np.inf, np.inf)))
    solution, systems = active_set.solution, []
    monkeypatch.setattr(active_set, "solution", lambda *both: systems.append(1) or solution(*both))
    monkeypatch.setattr(quadratic, "alternate", None)  # no round
    v = minimise(H, slopes, np.zeros(m), penalty, 1e-2 * threshold, rank=n)
    assert penalty.violations(v, slopes + H @ v).max() <= 1e-2 * threshold
    assert 0 < len(systems) <= 120


def test_features_that_are_alike_share_the_weight_without_harm():
    H, slopes, _ = model_of(30, 6)
    twice = np.block([[H, H], [H, H]])
    penalty = penalty_of("lasso", 6)
    once = minimise(H, slopes, np.zeros(6), penalty)
    v = minimise(twice, np.tile(slopes, 2), np.zeros(12), penalty_of("lasso", 12))
    np.testing.assert_allclose(v[:6] + v[6:], once, atol=1e-12)


@pytest.mark.slow
def test_a_feature_without_entries_goes_to_zero():
    H, slopes, _ = model_of(30, 6)
    H[2] = H[:, 2] = slopes[2] = 0.0
    for sweep in (quadratic.sweeps, kernels.sweeps):
        v = minimise(H, slopes, np.full(6, 0.1), penalty_of("lasso", 6), sweep=sweep)
        assert v[2] == 0.0
