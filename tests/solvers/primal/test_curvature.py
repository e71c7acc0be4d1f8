"""Curvatures solve with the matrix they stand for, and sketches of rows stand for all of them on average."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import MemoryData
from dualnewton.matrix.protocol import Work
from dualnewton.planning.sketching import Sketching
from dualnewton.solvers.deadline import Until
from dualnewton.solvers.primal.curvature import Cholesky, ConjugateGradients, Together, Woodbury
from dualnewton.solvers.primal.sketching import FromGram, MatrixFree, Sketches, leverages
from tuned import GENERAL

RNG = np.random.default_rng(5)
ROWS = RNG.standard_normal((40, 12)) * (RNG.random((40, 12)) < 0.7)
WEIGHTS = RNG.random(40)
RIDGE = RNG.uniform(0.1, 2.0, 12)
G = RNG.standard_normal(12)
HESSIAN = (ROWS.T * WEIGHTS) @ ROWS + np.diag(RIDGE)


def test_cholesky_and_woodbury_and_conjugate_gradients_are_the_same_matrix():
    expected = np.linalg.solve(HESSIAN, G)
    cholesky = Cholesky((ROWS.T * WEIGHTS) @ ROWS, RIDGE)
    free = ConjugateGradients(lambda v: HESSIAN @ v, Cholesky(np.zeros((12, 12)), RIDGE), 1e-13, 100)
    for curvature in (cholesky, Woodbury(ROWS, WEIGHTS, RIDGE), Woodbury(sp.csr_array(ROWS), WEIGHTS, RIDGE), free):
        np.testing.assert_allclose(curvature.solve(G), expected, rtol=1e-9)
    np.testing.assert_allclose(cholesky.times(3.0).times(0.5).solve(G), expected / 1.5, rtol=1e-9)
    both = Together((cholesky, Woodbury(ROWS, WEIGHTS, RIDGE)))
    np.testing.assert_allclose(both.solve(np.tile(G, 2)), np.tile(expected, 2), rtol=1e-9)


def test_a_singular_matrix_is_lifted_by_no_more_than_rounding():
    direction = np.ones(3)
    curvature = Cholesky(1e6 * np.outer(direction, direction), np.zeros(3))
    np.testing.assert_allclose(curvature.solve(1e6 * direction) @ direction, 1.0, rtol=1e-3)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("kind", ["square", "gram", "free"])
def test_all_rows_give_the_hessian(storage, intercept, kind):
    data = MemoryData(storage(ROWS))
    ridge = np.append(RIDGE, 0.0) if intercept else RIDGE
    make = {"square": Sketches, "gram": lambda p, r, _: FromGram(p, r), "free": partial(MatrixFree, fraction=0.05)}[
        kind
    ]
    curvature = make(data, ridge, Sketching.of(data)).at(WEIGHTS, 40, np.random.default_rng(0))
    if kind == "free":
        curvature.fraction = 1e-12
    rows = np.column_stack([ROWS, np.ones(40)]) if intercept else ROWS
    hessian = (rows.T * WEIGHTS) @ rows + np.diag(ridge)
    g = np.append(G, 0.3) if intercept else G
    np.testing.assert_allclose(curvature.solve(g), np.linalg.solve(hessian, g), rtol=1e-7)


@given(st.lists(st.sampled_from([0.0, 1e-3, 0.5, 1.0, 100.0]), min_size=1, max_size=40), st.integers(1, 30))
def test_drawn_rows_keep_the_total_weight(weights, size):
    weights = np.array(weights)
    indices, scaled = MemoryData(np.ones((len(weights), 1))).draw(np.random.default_rng(0), weights, size)
    assert np.isclose(scaled.sum(), weights.sum())
    assert np.all(np.diff(indices) > 0)
    assert indices.size <= max(size, 1)
    assert np.all(weights[indices] > 0.0) or not weights.any()
    assert np.all(scaled >= 0.0)


def test_drawn_rows_are_right_on_average():
    rng, total, data = np.random.default_rng(0), np.zeros(40), MemoryData(np.ones((40, 1)))
    for _ in range(4000):
        indices, scaled = data.draw(rng, WEIGHTS, 15)
        total[indices] += scaled
    # Of a row of weight w in strata of size s, at most s at a time: a standard error of √(s w/4000).
    stratum = WEIGHTS.sum() / 15
    assert np.all(np.abs(total / 4000 - WEIGHTS) <= 5.0 * np.sqrt(stratum * WEIGHTS / 4000))


@pytest.mark.slow
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("compiled", [False, True])
def test_a_feature_that_the_sketch_misses_takes_its_curvature_from_all_rows(storage, compiled):
    X = RNG.standard_normal((2000, 4))
    X[:, 3] = 0.0
    X[::500, 3] = 10.0
    weights, ridge = np.full(2000, 0.25), np.full(4, 1e-3)
    data = MemoryData(storage(X), Work(compiled=compiled))
    curvature = Sketches(data, ridge, Sketching.of(data)).at(weights, 50, np.random.default_rng(1))
    step = curvature.solve(np.array([0.0, 0.0, 0.0, 1.0]))[3]
    exact = 1.0 / (0.25 * 4 * 100.0)
    assert 0.2 * exact <= step <= 1.5 * exact


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_rows_with_rare_features_are_drawn_for_certain(storage):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 4))
    X[:, 3] = 0.0
    rare = np.array([17, 404, 2222])
    X[rare, 3] = 5.0
    weights = np.full(3000, 0.25)
    data = MemoryData(storage(X))
    scores = leverages(data, weights)
    assert scores is not None
    for seed in range(5):
        indices, _ = data.draw(np.random.default_rng(seed), weights, 200, scores)
        assert np.isin(rare, indices).all()


@pytest.mark.parametrize("rare", [200, 2000], ids=["some features are rare", "most are"])
def test_the_diagonal_of_rare_features_is_that_of_all_rows(rare):
    rng = np.random.default_rng(0)
    common = rng.standard_normal((3000, 20))
    X = sp.hstack([common, sp.random_array((3000, rare), density=4e-3, rng=rng)], format="csr")
    data, weights, ridge = MemoryData(sp.csr_array(X)), rng.random(3000), np.full(20 + rare, 0.1)
    found = Sketches(data, ridge, Sketching.of(data)).at(weights, 0, np.random.default_rng(0)).diagonal
    expected = ridge + weights @ np.square(X.toarray())
    np.testing.assert_allclose(found[20:], expected[20:], rtol=1e-12)
    np.testing.assert_allclose(found[:20], expected[:20], rtol=0.5)


def test_rows_that_matter_alike_need_no_scores():
    X = np.random.default_rng(0).standard_normal((3000, 20))
    assert leverages(MemoryData(X), np.ones(3000)) is None


@pytest.mark.parametrize(("correlated", "low", "high"), [(False, 0.9, 1.0), (True, 0.0, 0.15)])
def test_a_sketch_of_few_rows_leaves_uncorrelated_features_to_the_diagonal(correlated, low, high):
    # Of uncorrelated features nothing but the diagonal can be learned from few rows; of strongly correlated ones most.
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 60))
    X = (
        X @ rng.standard_normal((60, 60)) @ np.diag(np.logspace(0, -3, 60)) @ rng.standard_normal((60, 60))
        if correlated
        else X
    )
    data = MemoryData(X)
    sketches = Sketches(data, np.full(60, 1e-3), Sketching.of(data))
    indices, scaled = data.draw(rng, np.ones(4000), 80)
    diagonal = np.full(60, 1e-3)
    left = sketches._shrunk(indices, scaled, diagonal)
    rho = 1.0 - left.sum() / scaled.sum()
    assert low <= rho <= high
    on_diagonal = scaled @ np.square(X[indices])
    np.testing.assert_allclose(diagonal, 1e-3 + rho * on_diagonal)


def test_a_deadline_ends_a_solve_by_products_with_the_solution_so_far():
    """A solve on 62,000 features went on for a hundred passes after the time limit."""
    near, made = Cholesky(np.zeros((12, 12)), RIDGE), []
    ends = Until(ended=lambda: len(made) >= 2)
    late = ConjugateGradients(lambda v: made.append(1) or HESSIAN @ v, near, 1e-13, 100, deadline=ends)
    x = late.solve(G)
    assert late.products == len(made) == 2
    assert 0.5 * x @ HESSIAN @ x - G @ x < 0.0  # it decreases the quadratic model
    made[:] = [1, 1]
    np.testing.assert_array_equal(late.solve(G), near.solve(G))


def test_steps_hand_their_deadline_to_the_products(monkeypatch):
    deadlines, own = [], ConjugateGradients.solve
    monkeypatch.setattr(ConjugateGradients, "solve", lambda self, g: deadlines.append(self.deadline.at) or own(self, g))
    y = np.where(ROWS[:, 0] > 0.1, 1.0, -1.0)
    problem = dn.Problem(ROWS, y, losses.Logistic(), lam=1e-3)
    dn.solve(problem, method="newton", time_limit=1e6, tuning=replace(GENERAL, largest_matrix=4))
    assert deadlines
    assert max(deadlines) < math.inf
