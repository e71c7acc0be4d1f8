"""With fewer rows than features the curvature is that of the dominant rows, and conjugate gradients near it are quick."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton import losses
from dualnewton.matrix import MemoryData
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.planning.facts import Facts
from dualnewton.planning.planner import plan, predicted_costs
from dualnewton.planning.sketching import Sketching, SketchPolicy
from dualnewton.solvers.primal import curvature, dominant_rows
from dualnewton.solvers.primal.curvature import ConjugateGradients, Diagonal, gram_of
from dualnewton.solvers.primal.sketching import MatrixFree, Sketches
from tuned import tuned

RNG = np.random.default_rng(3)
N, D = 600, 900
LENGTHS = RNG.lognormal(0.0, 1.5, N)
SPARSE = sp.csr_array(sp.random(N, D, 0.02, random_state=1, data_rvs=RNG.standard_normal).multiply(LENGTHS[:, None]))
WEIGHTS = RNG.uniform(0.1, 1.0, N)
RIDGE = np.full(D, 0.3)
G = RNG.standard_normal(D)


def sketches_of(X, ridge):
    data = MemoryData(X)
    return Sketches(data, ridge, Sketching.of(data))


def hessian(rows, weights, ridge):
    return (rows.T * weights) @ rows + np.diag(ridge)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_matrix_is_that_of_the_heaviest_rows_on_a_multiple_of_the_ridge(storage, intercept):
    dense, size = SPARSE.toarray(), 50
    ridge = np.append(RIDGE, 0.0) if intercept else RIDGE
    found = sketches_of(storage(dense), ridge).at(WEIGHTS, size, np.random.default_rng(0))
    heaviest = np.sort(np.argsort(-WEIGHTS * np.square(dense).sum(axis=1))[:size])
    lift = found.diagonal / RIDGE
    assert np.ptp(lift) == 0.0
    assert lift[0] >= 1.0
    assert not found.exact
    rows = np.column_stack([dense, np.ones(N)]) if intercept else dense
    expected = hessian(rows[heaviest], WEIGHTS[heaviest], lift[0] * ridge)
    g = np.append(G, 0.7) if intercept else G
    np.testing.assert_allclose(found.solve(g), np.linalg.solve(expected, g), rtol=1e-8)


def test_rows_that_span_all_the_others_leave_the_ridge_as_it_is():
    few = RNG.standard_normal((5, D))
    rows = np.concatenate([10.0 * few, RNG.standard_normal((N, 5)) @ few / 5.0])
    found = sketches_of(rows, RIDGE).at(np.ones(N + 5), 5, np.random.default_rng(0))
    np.testing.assert_allclose(found.diagonal, RIDGE, rtol=1e-3)


def test_rows_of_no_weight_take_no_part():
    weights = np.where(np.arange(N) < 30, WEIGHTS, 0.0)
    found = sketches_of(SPARSE, RIDGE).at(weights, 50, np.random.default_rng(0))
    assert found.exact
    expected = hessian(SPARSE.toarray(), weights, RIDGE)
    np.testing.assert_allclose(found.solve(G), np.linalg.solve(expected, G), rtol=1e-9)
    nothing = sketches_of(SPARSE, RIDGE).at(np.zeros(N), 50, np.random.default_rng(0))
    np.testing.assert_allclose(nothing.solve(G), G / RIDGE, rtol=1e-12)


MATRIX = hessian(SPARSE.toarray(), WEIGHTS, RIDGE)


def products(near):
    solved = ConjugateGradients(lambda v: MATRIX @ v, near, 1e-6, 1000)
    solved.solve(G)
    return solved.products


def test_the_more_of_the_heaviest_rows_the_fewer_products():
    sketches = sketches_of(SPARSE, RIDGE)
    counts = [products(sketches.at(WEIGHTS, size, np.random.default_rng(0))) for size in (20, 80, 320)]
    assert products(Diagonal(RIDGE)) > counts[0] > counts[1] > counts[2]
    assert products(Diagonal(MATRIX.diagonal().copy())) > counts[0]
    assert counts[2] < 0.3 * products(Diagonal(RIDGE))


def test_a_preconditioner_is_kept_while_the_weights_are_and_grows_where_products_are_many():
    data = MemoryData(SPARSE)
    # On data this small no sketch costs less than the call for it.
    free = MatrixFree(data, RIDGE, Sketching.of(data, tuned(dearest_sketch=1e6)), fraction=1e-6)
    free.sketch = 8
    first = free.at(WEIGHTS, N, np.random.default_rng(0))
    first.products = 1
    assert free.at(WEIGHTS, N, np.random.default_rng(0)).near is first.near
    free.last.products = 100_000
    assert len(free.at(WEIGHTS, N, np.random.default_rng(0)).near.roots) > 8
    another = free.at(WEIGHTS[::-1].copy(), N, np.random.default_rng(0))
    assert another.near is not first.near
    np.testing.assert_allclose(
        another.solve(G), np.linalg.solve(hessian(SPARSE.toarray(), WEIGHTS[::-1], RIDGE), G), rtol=1e-3, atol=1e-4
    )


def test_where_no_matrix_is_formed_auto_takes_conjugate_gradients_and_not_steps_on_few_rows():
    X = sp.random_array((6000, 9000), density=0.002, format="csr", rng=np.random.default_rng(2))
    problem = Problem(X, np.where(RNG.random(6000) < 0.5, 1.0, -1.0), losses.Squared(), lam=1e-7)
    facts = Facts.of(problem)
    assert facts.matrix_free
    costs = predicted_costs(facts)
    assert costs["ihs"] == np.inf
    assert 0.0 < costs["newton"] < np.inf
    assert "conjugate gradients" in plan(problem, method="newton").reason


def policy_of():
    """The policy of a model with 300 of the dominant rows, on which each step divides what it promises by 1.01."""
    costs = Costs(n=16_000, d=60_000, stored=1_300_000, pairs=1e8, sparse=True, itemsize=8)
    policy = SketchPolicy(costs, 1e-6, 300, newton=False)
    policy.ask_for(300)
    policy.begin(1.0, costs.n)
    for k in range(1, 20):
        policy.watch(1.01**-k, 1.0, 1.0)
    return policy


def test_steps_that_diverge_beyond_the_range_of_a_quotient_are_slow():
    policy = policy_of()
    policy.begin(1e-300, policy.costs.n)
    for k in range(1, 20):
        policy.watch(10.0 ** (-300 + 31 * k), 1.0, 1.0)
    assert policy.wants_another(1.0, 1.0, 1.0)


def test_slow_steps_on_few_rows_buy_more_of_them():
    policy = policy_of()
    assert policy.wants_another(1.0, 1.0, 1.0)
    assert policy.next_rows > 300


def test_steps_that_are_nearly_there_buy_nothing():
    assert not policy_of().wants_another(1.01e-6, 1.0, 1.0)


@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("intercept", [False, True])
def test_products_of_rows_are_kept_once_they_are_as_many_as_all_rows_have(storage, intercept, monkeypatch):
    computed = []

    def counted(rows, diagonal):
        computed.append(rows.shape[0])
        return gram_of(rows, diagonal)

    for module in (curvature, dominant_rows):
        monkeypatch.setattr(module, "gram_of", counted)
    ridge = np.append(RIDGE, 0.0) if intercept else RIDGE
    sketches, rng = sketches_of(storage(SPARSE.toarray()), ridge), np.random.default_rng(5)
    rows = np.column_stack([SPARSE.toarray(), np.ones(N)]) if intercept else SPARSE.toarray()
    g, share = np.append(G, 0.7) if intercept else G, 4
    for k in range(3 * share**2):
        weights = np.zeros(N)
        weights[rng.permutation(N)[: N // share]] = 0.5
        found = sketches.at(weights, N, rng)
        assert found.exact
        if k in (0, 3 * share**2 - 1):
            expected = np.linalg.solve(hessian(rows, weights, ridge), g)
            np.testing.assert_allclose(found.solve(g), expected, rtol=1e-8, atol=1e-9)
    assert computed == [N // share] * share**2 + [N]
    again = sketches_of(storage(SPARSE.toarray()), ridge)
    again.restore(sketches.state())
    np.testing.assert_array_equal(again.at(weights, N, rng).solve(g), found.solve(g))
