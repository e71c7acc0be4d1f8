"""Newton's method for Huber's regression with a joint scale, on small data: its steps, its limits, and scikit-learn's optimum."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dualnewton as dn
from dualnewton.objective.huber_scale import HuberScaleProblem
from dualnewton.planning.small import small_plan
from dualnewton.solvers.direct import huber
from dualnewton.solvers.direct.block import Block, Limits


def drawn(n=80, d=6, seed=0, outliers=7):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * np.geomspace(0.1, 10.0, d)
    y = X @ rng.standard_normal(d) + rng.standard_normal(n) + 2.0
    y[::outliers] += 20.0 * rng.standard_normal(len(y[::outliers]))
    return X, y, rng.uniform(0.0, 2.0, n) * (rng.random(n) < 0.9)


def found(problem, tol):
    """Return the certificate of what the direct solver finds, and its steps."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = huber.solve(problem, Block(problem.data), None, Limits(tol))
    return problem.certified_pair(result.w, result.intercept, result.scale).certificate, result.steps


@pytest.mark.parametrize("epsilon", [1.2, 1.35, 3.0])
@pytest.mark.parametrize("lam", [0.0, 1e-6, 1e-2, 10.0])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_joint_gap_is_closed_to_rounding(epsilon, lam, fit_intercept):
    X, y, weights = drawn()
    for storage, c in itertools.product((np.asarray, np.float32, sp.csr_array), (None, weights)):
        problem = HuberScaleProblem(storage(X), y, epsilon, lam, c, fit_intercept)
        result = dn.solve(problem, tol=1e-11)
        assert result.plan.family == "huber", "the direct solution was not good enough"
        assert result.certificate.relative_gap <= 1e-11
        # Optimality, from the definition: no direction in (w, b, σ) decreases P.
        lowest = problem.primal(result.w, result.intercept, result.scale)
        rng = np.random.default_rng(1)
        for size in (1e-1, 1e-3):
            w = result.w + size * rng.standard_normal(len(result.w)) * np.abs(result.w)
            b = result.intercept + fit_intercept * size * rng.standard_normal()
            moved = problem.primal(w, b, result.scale * (1.0 + size * rng.standard_normal()))
            assert moved >= lowest * (1.0 - 1e-13)


@pytest.mark.parametrize(("n", "d"), [(300, 10), (2000, 20), (60, 20)])
def test_steps_are_few_and_end_at_the_tolerance(n, d):
    X, y, _ = drawn(n, d)
    problem = HuberScaleProblem(X, y, 1.35, 1e-4 / n, fit_intercept=True)
    steps = []
    for tol in (1e-1, 1e-5, 1e-12):
        certificate, taken = found(problem, tol)
        assert certificate.relative_gap <= tol
        steps.append(taken)
    assert steps == sorted(steps)
    assert steps[0] < steps[2]
    assert steps[1] <= 15


@given(st.integers(0, 10**6), st.integers(1, 40), st.floats(1.01, 4.0), st.floats(-6.0, 6.0), st.booleans())
def test_the_best_scale_solves_its_equation(seed, n, epsilon, near, weighted):
    rng = np.random.default_rng(seed)
    r = rng.standard_cauchy(n) * (rng.random(n) < 0.8)
    c = rng.uniform(0.1, 2.0, n) if weighted else None
    objective = huber.Objective(HuberScaleProblem(np.ones((n, 1)), np.ones(n), epsilon, 1.0, c), np.ones((n, 1)))
    scale = objective.best_scale(r, 10.0**near)
    if scale > 0.0:
        assert float(objective.c @ np.minimum((r / scale) ** 2, epsilon**2)) == pytest.approx(objective.total, rel=1e-9)
    else:  # even ψ = ±ε for every residual is not enough
        assert epsilon**2 * float(objective.c @ (r != 0.0)) <= objective.total * (1.0 + 1e-9)


DEGENERATE = {
    "repeated columns": lambda X: np.hstack([X, X]),
    "constant columns": lambda X: np.hstack([X, np.full((len(X), 2), 3.0)]),
    "no features": lambda X: 0.0 * X,
    "large": lambda X: 1e6 * X,
    "tiny": lambda X: 1e-6 * X,
    "scales": lambda X: X * np.geomspace(1e-6, 1e6, X.shape[1]),
}


@pytest.mark.parametrize("kind", DEGENERATE)
@pytest.mark.parametrize("factor", [1e-4, 1.0, 1e4])
def test_degenerate_data(kind, factor):
    X, y, _ = drawn()
    for fit_intercept in (False, True):
        problem = HuberScaleProblem(DEGENERATE[kind](X), factor * y, 1.35, 1e-4, fit_intercept=fit_intercept)
        assert found(problem, 1e-5)[0].relative_gap <= 1e-5


@pytest.mark.parametrize(
    "y", [np.full(20, 3.0), np.r_[np.full(18, 3.0), 100.0, -50.0]], ids=["perfect", "two outliers"]
)
def test_a_scale_of_zero_is_left_to_the_search_of_scales(y):
    X = np.random.default_rng(0).standard_normal((20, 3))
    certificate, _ = found(HuberScaleProblem(X, y, lam=10.0, fit_intercept=True), 1e-9)
    assert np.isfinite(certificate.primal)


@given(
    n=st.integers(2, 30),
    d=st.integers(1, 8),
    lam=st.sampled_from([0.0, 1e-4, 1.0]),
    epsilon=st.sampled_from([1.1, 1.35, 2.0]),
    seed=st.integers(0, 2**16),
)
def test_what_it_finds_is_never_worse_than_the_least_squares_fit(n, d, lam, epsilon, seed):
    """Each step decreases P, whatever the data."""
    X, y, c = drawn(n, d, seed, outliers=3)
    c[0] = 1.0
    problem = HuberScaleProblem(X, np.round(y), epsilon, lam, c, fit_intercept=True)
    values = []
    for most in (1, 3, 50):
        result = huber.solve(problem, Block(problem.data), None, Limits(1e-6, most))
        values.append(problem.primal(result.w, result.intercept, result.scale))
    assert values[0] >= values[1] * (1.0 - 1e-12)
    assert values[1] >= values[2] * (1.0 - 1e-12)


def test_a_callback_changes_no_bit():
    X, y, _ = drawn()
    problem = HuberScaleProblem(X, y, fit_intercept=True)
    straight, watched = dn.solve(problem, tol=1e-6), dn.solve(problem, tol=1e-6, callback=lambda _: False)
    assert np.array_equal(straight.w, watched.w)
    assert (straight.intercept, straight.scale) == (watched.intercept, watched.scale)
    assert straight.certificate == watched.certificate


def test_what_it_takes():
    X, y, _ = drawn()
    assert small_plan(HuberScaleProblem(X, y, 1.35), "auto", "auto").family == "huber"
    assert small_plan(HuberScaleProblem(X, y, 1.0), "auto", "auto") is None  # the scale is zero
    assert small_plan(HuberScaleProblem(np.ones((30, 400)), np.ones(30)), "auto", "auto") is None
