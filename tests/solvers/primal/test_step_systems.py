"""The linear systems of interior-point steps: every kind of data gives the same step, however badly it is conditioned."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualnewton.matrix import ChunkedData, MemoryData
from dualnewton.solvers.primal import interior_steps
from dualnewton.solvers.primal.curvature import gram_of
from dualnewton.solvers.primal.interior_steps import Directions, State, Terms
from dualnewton.solvers.primal.step_systems import Passes, Rows, WidePasses


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("storage", [np.asarray, sp.csr_array])
def test_every_kind_of_data_takes_the_same_step(storage, fit_intercept):
    """One dense block, passes over memory or pieces, and the n×n form."""
    rng = np.random.default_rng(4)
    A, c, D = storage(rng.standard_normal((30, 7))), rng.uniform(0.5, 2.0, 30), 10.0 ** rng.uniform(-3, 3, (2, 30))
    pieces = ChunkedData([A[:11], A[11:]])
    ridge = np.append(np.linspace(0.1, 0.3, 7), 0.0) if fit_intercept else np.linspace(0.1, 0.3, 7)
    r, g = rng.standard_normal(ridge.size), rng.standard_normal((2, 30))
    dense, v = np.asarray(A.todense()) if sp.issparse(A) else A, np.linspace(1.0, 3.0, 7)
    full = np.column_stack([dense, np.ones(30)]) if fit_intercept else dense
    systems = [
        Rows.of(full, 7, ridge),
        Passes(MemoryData(A), ridge),
        Passes(pieces, ridge),
        WidePasses(MemoryData(A), ridge, gram=gram_of(A, v), penalty=v, most_small=7),
    ]
    found = []
    for system in systems:
        directions = directions_of(system, c, D, r)
        x, z, p, _ = directions.refined(*solution_of(directions, g), g, 1e-24)
        found.append(x)
        np.testing.assert_allclose(ridge * x + system.sums(c * p.sum(axis=0)), -r, atol=1e-10)
        np.testing.assert_allclose(z, system.margins(x), atol=1e-9)
        np.testing.assert_allclose(p / D, z + g, atol=1e-9)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-8, atol=1e-10)


def directions_of(system, c, D, imbalance):
    """The directions of a state with this D and this imbalance: p = q = 1, and s = t = 1/2D."""
    boxes = np.stack([np.ones_like(D), np.ones_like(D), 0.5 / D, 0.5 / D])
    terms = Terms(system, 0.0 * D, 2.0 + 0.0 * D, 0.0 * c, c)
    return Directions(terms, State(np.zeros_like(imbalance), 0.0 * D, boxes, imbalance, 1.0, 1.0, 1.0))


def solution_of(directions, g):
    """Δx, ÃΔx and Δp by the factor alone."""
    terms, D = directions.terms, directions.D
    x, z = terms.system.direction(directions.state.imbalance, terms.mass(D * g))
    return x, z, D * (z + g)


def test_refinement_restores_what_the_factor_loses():
    """Weights up to 1e8 and a ridge of 1e-3: the factor alone leaves an imbalance that refinement takes away."""
    rng = np.random.default_rng(1)
    A, c, ridge = rng.standard_normal((60, 20)), np.ones(60), np.full(20, 1e-3)
    D = np.where(np.arange(60) < 12, 1e8, 1e-6) * rng.uniform(0.5, 2.0, (1, 60))
    r, g = rng.standard_normal(20), 1e-7 * rng.standard_normal((1, 60))
    left = {}
    for most in (0, interior_steps.MOST_REFINEMENTS):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interior_steps, "MOST_REFINEMENTS", most)
            directions = directions_of(Passes(MemoryData(A), ridge), c, D, r)
            left[most] = np.abs(directions.refined(*solution_of(directions, g), g, 0.0)[3]).max()
    assert left[interior_steps.MOST_REFINEMENTS] <= 1e-3 * left[0]


@pytest.mark.parametrize("storage", ["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_with_more_features_than_examples_no_ridge_is_too_small(fit_intercept, storage):
    """Entries of the ridge from 1e-9 to 1e9: in extended precision the residual is that of a solution in float64."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((12, 90)) * (rng.random((12, 90)) < 0.5)
    A[:, 1] = A[:, 0]  # a repeated feature
    ridge, weights = 10.0 ** rng.uniform(-9.0, 9.0, 90 + fit_intercept), 10.0 ** rng.uniform(-4.0, 4.0, 12)
    ridge[90:], weights[3] = 0.0, 0.0
    data = MemoryData(sp.csr_array(A) if storage == "sparse" else A)
    system = WidePasses(data, ridge, gram=None, penalty=None, most_small=data.d)
    full = np.column_stack([A, np.ones((12, int(fit_intercept)))]).astype(np.longdouble)
    H = np.diag(ridge) + full.T @ (weights[:, None] * full)
    right = np.asarray(H @ rng.standard_normal(len(ridge)), dtype=float)
    system.factorise(weights)
    x = system.solved(right)
    scales = np.sqrt(np.diagonal(H)).astype(float)
    reference = np.linalg.solve((H / np.outer(scales, scales)).astype(float), right / scales)
    error = np.asarray(H @ x - right, dtype=float) / scales
    others = np.asarray(H @ (reference / scales) - right, dtype=float) / scales
    assert np.abs(error).max() <= 100.0 * np.abs(others).max()
