"""Systems by conjugate gradients: their matrix is that of centred features, and their solutions are the shortest."""

import time

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.matrix import as_data
from dualnewton.matrix.chunked import ChunkedData
from dualnewton.objective.conjugate_gradients import MOST_PRODUCTS, Effort, solve_together
from dualnewton.objective.newton_systems import CentredSystems
from fake_device import on_device

STORAGES = {
    "dense": as_data,
    "sparse": lambda X: as_data(sp.csr_array(X)),
    "pieces": lambda X: ChunkedData([X[: len(X) // 2], X[len(X) // 2 :]]),
    "device": on_device,
}


def rows(kind, n=150, seed=0):
    """Rows of which some entries are zero, with features of different kinds."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 8)) * (rng.random((n, 8)) < 0.7)
    if kind == "scales":
        X *= 10.0 ** np.linspace(-3.0, 3.0, 8)
    if kind in ("multiples", "many multiples"):  # the shortest solution is not the shortest one in other scales
        X = np.hstack([X] + [X[:, :3] * scale for scale in (0.01, 30.0, 7.0)[: 1 if kind == "multiples" else 3]])
    if kind == "levels":
        X[:, :5] = np.eye(5)[rng.choice(5, n, p=[0.6, 0.2, 0.1, 0.07, 0.03])]
    if kind == "counts":  # rows of equal sums
        X = rng.multinomial(30, [0.6, 0.2, 0.1, 0.05, 0.03, 0.01, 0.006, 0.004], n).astype(float)
    if kind == "empty":
        X[:, [1, 4]], X[:, 6] = 0.0, 3.0
    return X[:5] if kind == "wide" else X


@pytest.mark.parametrize(
    "kind", ["plain", "scales", "multiples", "many multiples", "levels", "counts", "empty", "wide"]
)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("storage", STORAGES)
def test_solutions_are_the_shortest(kind, intercept, weighted, storage):
    X = rows(kind)
    n, d = X.shape
    data, rng = STORAGES[storage](X), np.random.default_rng(1)
    m = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    systems = CentredSystems.of(data, data.placed(m) if weighted else None, intercept=intercept)
    centred = X - intercept * (m @ X) / m.sum()
    H = centred.T @ (m[:, None] * centred)
    V = rng.standard_normal((2, d))
    np.testing.assert_allclose(systems.product(V), V @ H, atol=1e-12 * np.abs(V @ H).max())
    Y = rng.standard_normal((2, n))
    G = (Y * m) @ np.column_stack([X, np.ones(n)] if intercept else [X])
    theta = systems.solved(G, 1e-14 * np.abs(G[:, :d]) + 1e-14, Effort())
    w, roots = theta[:, :d], np.sqrt(m)[:, None]
    shortest = np.linalg.lstsq(roots * centred, (roots[:, 0] * (Y - (Y @ m / m.sum())[:, None] * intercept)).T)[0].T
    sizes = np.linalg.norm(centred, axis=0) + np.linalg.norm(centred)  # in the scales of the features
    np.testing.assert_allclose(w * sizes, shortest * sizes, rtol=1e-6, atol=1e-9 * np.abs(shortest * sizes).max())
    if intercept:
        np.testing.assert_allclose(theta[:, d], (Y - w @ X.T) @ m / m.sum(), atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "dimensions"), [("scales", 0), ("levels", 1), ("counts", 1), ("multiples", 3), ("many multiples", None)]
)
def test_a_null_space_of_few_dimensions_is_found(kind, dimensions):
    X = rows(kind)
    systems = CentredSystems.of(as_data(X), None, intercept=True)
    basis = systems.null_space()
    if dimensions is None:  # nine
        assert basis is None
        return
    assert basis.shape == (dimensions, X.shape[1])
    np.testing.assert_allclose(basis @ basis.T, np.eye(dimensions), atol=1e-12)
    assert np.abs(basis @ (X - X.mean(axis=0)).T).max(initial=0.0) <= 1e-9 * np.abs(X).max()


def test_features_of_different_scales_take_as_many_products_as_others():
    made = []
    for kind in ("plain", "scales"):
        data, effort = as_data(rows(kind)), Effort()
        right = data.transposed_times(np.random.default_rng(2).standard_normal(data.n))[None]
        CentredSystems.of(data, None, intercept=True).centred(right, 1e-10 * np.abs(right), effort)
        made.append(effort.made)
    assert made[1] <= made[0] + 2


def test_limits_end_the_products():
    data = as_data(rows("plain"))
    systems, right = CentredSystems.of(data, None, intercept=False), np.ones((1, 8))
    for effort, most in ((Effort(3), 3), (Effort(deadline=time.perf_counter()), 0), (Effort(fraction=0.5), 3)):
        solve_together(systems.product, right, np.ones(8), np.zeros((1, 8)), effort)
        assert effort.made <= most


def test_a_singular_direction_ends_a_system():
    """What rounding leaves of a right-hand side outside the range of H would be divided by rounding errors."""
    H = np.diag([2.0, 1.0, 0.0])
    x = solve_together(lambda V: V @ H, np.ones((1, 3)), np.ones(3), np.full((1, 3), 1e-14), Effort())
    assert np.abs(x).max() < MOST_PRODUCTS


@pytest.mark.parametrize("kind", ["scales", "counts"])
def test_the_search_for_a_null_space_shares_the_passes_of_a_system(kind, monkeypatch):
    """One system of a random vector tells that there is no null space, or none beside rows of equal sums."""
    data, effort, own, passes = as_data(rows(kind)), Effort(), CentredSystems.product, []

    def product(self, V):
        passes.append(len(V))
        return own(self, V)

    monkeypatch.setattr(CentredSystems, "product", product)
    values, systems = np.random.default_rng(2).standard_normal(data.n), CentredSystems.of(data, None, intercept=True)
    right = data.transposed_times(values - values.mean())[None]
    systems.centred(right, 1e-10 * np.abs(right), effort)
    assert len(passes) == effort.made + 2  # the products of the two vectors with the matrix
    first = len(passes)
    systems.centred(right, 1e-10 * np.abs(right), Effort())
    assert set(passes[first:]) == {1}


def test_solved_systems_take_no_part_in_further_passes():
    H, sizes = np.diag(np.arange(1.0, 9.0)), []

    def product(V):
        sizes.append(len(V))
        return V @ H

    right = np.array([np.eye(8)[0], np.ones(8)])  # the first is an eigenvector: one product
    x = solve_together(product, right, np.ones(8), np.full((2, 8), 1e-12), Effort())
    np.testing.assert_allclose(x, right / np.diag(H), atol=1e-10)
    assert sizes[0] == 2
    assert set(sizes[1:]) == {1}


def test_a_deadline_ends_the_search_for_a_null_space():
    systems = CentredSystems.of(as_data(rows("levels")), None, intercept=True)
    systems.null_space(time.perf_counter())
    assert systems.null_space().shape == (1, 8)  # what was found in time is not kept
