"""The inner loops of proximal methods stop at the deadline, with a point of use; looking at the clock changes no bit."""

import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.kernels import columns
from dualnewton.matrix import MemoryData, factors, grams
from dualnewton.planning.working_sets import SetSizes
from dualnewton.run.result import Status
from dualnewton.samplings import Nice
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.direct import active_set
from dualnewton.solvers.dual.reference import SDNA
from dualnewton.solvers.primal import curvature, shared_curvature
from dualnewton.solvers.prox import column_descent as by_columns
from dualnewton.solvers.prox import curvature as row_curvature
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox import working_set
from dualnewton.solvers.prox.subproblem import Penalty
from tuned import GENERAL, tuned
from verified import assert_certificate_is_true


class Clock:
    """A clock that goes on by a step at each call of the functions that it is put before."""

    def __init__(self, monkeypatch, step):
        self.now, self.step, self.patch = 0.0, step, monkeypatch
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)

    def ticking(self, function):
        def called(*args, **kwargs):
            self.now += self.step
            return function(*args, **kwargs)

        return called

    def before(self, module, name):
        self.patch.setattr(module, name, self.ticking(getattr(module, name)))


def test_a_deadline_raises_after_its_moment_only(monkeypatch):
    clock = Clock(monkeypatch, 1.0)
    clock.now = 2.0
    NEVER.check()
    Deadline(2.0).check()
    with pytest.raises(OutOfTime):
        Deadline(1.9).check()


def wide(n=30, d=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X[:, :20] @ rng.standard_normal(20) + 0.1 * rng.standard_normal(n)


@pytest.mark.parametrize("lam", [1e-5, 1e-10])
@pytest.mark.parametrize(
    "loss", [losses.SquaredHinge(), losses.Squared(), losses.SquaredEpsilonInsensitive(0.1)], ids=repr
)
def test_newton_steps_of_the_model_stop_in_time(loss, lam, monkeypatch):
    """A turn may take thousands of Newton steps here; of those, at most one is made after the deadline."""
    X, y = wide()
    y = np.sign(y) if isinstance(loss, losses.Margin) else y
    problem = dn.Problem(X, y, loss, regularizer=regularizers.L1(), lam=lam, fit_intercept=True)
    clock = Clock(monkeypatch, 0.01)
    clock.before(active_set, "solution")
    result = dn.solve(problem, method="newton", tol=1e-12, time_limit=0.095)
    assert result.status is Status.TIME_LIMIT
    assert clock.now == pytest.approx(0.1)
    assert_certificate_is_true(problem, result)


def test_a_step_that_was_cut_short_is_used(monkeypatch):
    X, y = wide()
    problem = dn.Problem(X, np.sign(y), losses.SquaredHinge(), regularizer=regularizers.L1(), lam=1e-8)
    clock = Clock(monkeypatch, 0.01)
    clock.before(active_set, "solution")
    result = dn.solve(problem, method="newton", tol=1e-12, time_limit=0.035)
    assert result.n_epochs > 0.0
    assert result.certificate.primal < 0.1 * problem.primal(np.zeros(300))


def test_each_of_several_models_keeps_its_certificate(monkeypatch):
    """The time ends while the second of three models is at work: it and the third stay where they are."""
    X, y = wide()
    problems = [dn.Problem(X, y, losses.Squared(), regularizer=regularizers.L1(), lam=lam) for lam in (0.3, 1e-9, 0.2)]
    clock = Clock(monkeypatch, 0.01)
    clock.before(active_set, "solution")
    results = dn.solve_many(problems, method="newton", tol=1e-12, time_limit=0.05)
    assert clock.now <= 0.07
    assert any(result.status is Status.TIME_LIMIT for result in results)
    for problem, result in zip(problems, results, strict=True):
        assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("m", [1, 9, 10, 11, 35])
def test_a_factor_made_block_by_block_is_the_factor(m, monkeypatch):
    monkeypatch.setattr(factors, "TILE", 5)
    monkeypatch.setattr(factors, "LARGE", 10)
    monkeypatch.setattr(factors, "BETWEEN", 1)  # a check after each column of tiles
    rng = np.random.default_rng(0)
    A = rng.standard_normal((m, 2 * m))
    g, made = rng.standard_normal(m), []
    whole = curvature.Cholesky(A @ A.T, np.ones(m)).solve(g)
    by_blocks = curvature.Cholesky(A @ A.T, np.ones(m), check=lambda: made.append(1)).solve(g)
    np.testing.assert_allclose(by_blocks, whole, rtol=1e-10)
    assert len(made) == (-(-m // 5) if m > 10 else 0)
    flat = np.ones((m, m))  # of rank one: it is lifted until it is positive definite
    np.testing.assert_allclose(
        curvature.Cholesky(flat, np.zeros(m), check=lambda: None).solve(np.ones(m)).sum(), 1.0, rtol=1e-6
    )


# Products --------------------------------------------------------------------------------------------------------------


def classes(n, d, K, density=1.0):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    return X, np.argmax(X[:, :5] @ rng.standard_normal((5, K)) + rng.gumbel(size=(n, K)), axis=1)


def pieces_of(monkeypatch, size):
    """Cut products into pieces of so many numbers."""
    for name in ("DENSE_PIECE", "PRODUCTS", "SPARSE_PRODUCTS", "FEWEST"):
        monkeypatch.setattr(grams, name, size)


def test_the_curvature_of_softmax_stops_in_time(monkeypatch):
    X, y = classes(400, 60, 3)
    problem = dn.MultinomialProblem(X, y, lam=1e-4, n_classes=3, regularizer=regularizers.L1(), fit_intercept=True)
    pieces_of(monkeypatch, 10)
    clock = Clock(monkeypatch, 0.01)
    clock.before(row_curvature, "_scaled")
    settings = {"tol": 1e-10, "time_limit": 0.055, "tuning": tuned(most_together=4)}  # 40 pieces would take 0.4 s
    result = dn.solve(problem, method="newton", **settings)
    assert result.status is Status.TIME_LIMIT
    assert clock.now == pytest.approx(0.06)
    assert_certificate_is_true(problem, result)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weights", ["even", "uneven"])
def test_pieces_of_products_add_up(storage, weights, monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((7, 50)) * (rng.random((7, 50)) < 0.5)
    c = np.full(50, 2.0) if weights == "even" else rng.uniform(0.0, 2.0, 50)
    for size in (3, 1 << 20):
        pieces_of(monkeypatch, size)
        data, sparse = MemoryData(storage(A.T)), tuned(thin_share=1.0)
        gathered = working_set.Gathered(data, SetSizes.of(data, sparse, once=True, compiled=False))
        growing = working_set.Growing(gathered, c)
        for inside in ([1, 4], [0, 1, 5, 6], [2], [3, 6]):
            for source in (gathered, growing):
                found = source.curvature(np.array(inside), row_curvature.RowWeights(c), NEVER)
                np.testing.assert_allclose(found.H, (A[inside] * c) @ A[inside].T, atol=1e-13)
                np.testing.assert_allclose(found.border[:, 0], A[inside] @ c, atol=1e-13)
                if source is gathered:
                    assert np.array_equal(found.H, found.H.T)
    with pytest.raises(OutOfTime):
        grams.sum_of_grams([storage(A)], 7, Deadline(-1.0).check)
    with pytest.raises(OutOfTime):
        grams.add_products(np.zeros((7, 7)), storage(A), storage(A), Deadline(-1.0).check)


# Sweeps ----------------------------------------------------------------------------------------------------------------


def model_of(n=40, m=60, upper=1e6):
    """A model with an upper bound that no coordinate meets: rounds of sweeps and steps take it, not the active set method."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.3)
    penalty = Penalty(*(np.full(m, value) for value in (0.0, 1e-3, -np.inf, upper)))
    return A, A @ A.T, -A @ rng.standard_normal(n), penalty


def value(H, slopes, penalty, v):
    return slopes @ v + 0.5 * v @ H @ v + penalty.value(v)


@pytest.mark.parametrize("compiled", [False, True], ids=["NumPy", "kernel"])
def test_sweeps_have_the_same_bits_however_many_are_made_at_once(compiled, monkeypatch):
    _, H, slopes, penalty = model_of()
    found = []
    for at_once in (1, 5 * 60 * 60, 1 << 40):
        monkeypatch.setattr(quadratic, "AT_ONCE", at_once)
        found.append(quadratic.minimise(H, slopes, np.zeros(60), penalty, sweep=quadratic.sweep_of(compiled=compiled)))
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("ticks", [1, 2, 5, 11, 40])
def test_a_model_that_was_cut_short_has_fallen(ticks, monkeypatch):
    _, H, slopes, penalty = model_of()
    monkeypatch.setattr(quadratic, "AT_ONCE", 1)
    clock = Clock(monkeypatch, 1.0)
    v = quadratic.minimise(
        H, slopes, np.zeros(60), penalty, 0.0, clock.ticking(quadratic.sweeps), Deadline(ticks - 0.5)
    )
    assert clock.now == ticks
    assert value(H, slopes, penalty, v) < 0.0


@pytest.mark.parametrize("ticks", [1, 2, 5, 11])
def test_active_sets_that_were_cut_short_have_fallen(ticks, monkeypatch):
    _, H, slopes, penalty = model_of(upper=np.inf)
    clock = Clock(monkeypatch, 1.0)
    clock.before(active_set, "solution")
    v = quadratic.minimise(H, slopes, np.zeros(60), penalty, deadline=Deadline(ticks - 0.5))
    assert clock.now == ticks
    assert value(H, slopes, penalty, v) < 0.0


def test_sweeps_by_columns_stop_in_time(monkeypatch):
    A, H, slopes, penalty = model_of()
    clock, kernel = Clock(monkeypatch, 1.0), columns.column_rounds

    class Ticking:
        prepare = staticmethod(kernel.prepare)
        __call__ = staticmethod(clock.ticking(kernel))

    monkeypatch.setattr(columns, "column_rounds", Ticking())
    monkeypatch.setattr(by_columns, "AT_ONCE", 1)
    way = (sp.csr_array(A), np.zeros(60), slopes, np.zeros(60), penalty, 0.0)
    v, reached = by_columns.minimise(*way, Deadline(1.5))
    assert clock.now == 2.0
    assert not reached
    assert value(H, slopes, penalty, v) < 0.0


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_looking_at_the_clock_changes_no_bit(outputs, storage):
    X, y = classes(200, 150, 3, density=0.2)
    X = storage(X)
    problem = (
        dn.Problem(
            X,
            np.where(y == 0, 1.0, -1.0),
            losses.Logistic(),
            regularizer=regularizers.L1(),
            lam=1e-3,
            fit_intercept=True,
        )
        if outputs == 1
        else dn.MultinomialProblem(X, y, lam=1e-3, n_classes=3, regularizer=regularizers.L1(), fit_intercept=True)
    )
    free, limited = (dn.solve(problem, method="newton", tol=1e-9, time_limit=limit) for limit in (None, 600.0))
    assert free.converged
    assert np.array_equal(free.w, limited.w)
    assert np.array_equal(free.alpha, limited.alpha)


def test_numpy_rounds_of_large_blocks_look_at_the_clock_after_each(monkeypatch):
    X, y = wide(n=60, d=20)
    clock = Clock(monkeypatch, 1.0)
    clock.before(SDNA, "round")
    result = dn.solve(
        dn.Problem(X, y, losses.Squared()), method="sdna", tau=20, tol=0.0, random_state=0, time_limit=0.5
    )
    assert result.status is Status.TIME_LIMIT
    assert clock.now == 1.0


@pytest.mark.parametrize("loss", [losses.SmoothQuantile(0.3, 1e-3), losses.Quantile(0.3)], ids=repr)
def test_a_block_is_left_unfinished_at_the_deadline_and_no_worse(loss):
    X, y = wide(n=60, d=20)
    problem = dn.Problem(X, y, loss, lam=1e-4)
    values = []
    for deadline in (-np.inf, np.inf):
        solver = SDNA(problem, Nice(60, 60))
        solver.run([np.arange(60)], deadline)
        values.append(problem.dual(solver.alpha))
    assert problem.dual(np.zeros(60)) <= values[0] < values[1]


def test_newton_steps_look_at_the_clock_between_the_matrices_of_several_models(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 5)), rng.choice([-1.0, 1.0], 40)
    first = dn.Problem(X, y, losses.Logistic(), lam=0.1)
    problems = [first, replace(first, lam=0.01), replace(first, lam=1.0)]
    clock = Clock(monkeypatch, 1.0)
    clock.before(shared_curvature, "_compute")
    results = dn.solve_many(problems, method="newton", tol=1e-12, time_limit=1.5, tuning=GENERAL)
    assert clock.now == 2.0  # the third matrix is not computed
    for problem, result in zip(problems, results, strict=True):
        assert result.status is Status.TIME_LIMIT
        assert_certificate_is_true(problem, result)
