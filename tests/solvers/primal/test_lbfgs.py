"""The compact form of L-BFGS against its two loops, and against conjugate gradients on a quadratic."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.matrix import MemoryData
from dualnewton.planning.sketching import Sketching
from dualnewton.solvers.primal import lbfgs
from dualnewton.solvers.primal.curvature import Cholesky, Diagonal
from dualnewton.solvers.primal.lbfgs import Corrections, End
from dualnewton.solvers.primal.newton import Descent

D = 12


def curvatures():
    H = np.cov(np.random.default_rng(1).standard_normal((D, 40)))
    return {"diagonal": Diagonal(np.linspace(0.5, 2.0, D)), "trusted": Cholesky(H, np.ones(D))}


def pairs(count, seed=0):
    """Steps and gradient differences of a random convex quadratic."""
    rng = np.random.default_rng(seed)
    H = np.cov(rng.standard_normal((D, 30))) + 0.1 * np.eye(D)
    return [(step, H @ step) for step in rng.standard_normal((count, D))]


def solved(corrections, g, curvature):
    step, slope = corrections.direction(g, curvature.solve(g), scaled_well=curvature.scaled_well)
    assert slope == pytest.approx(g @ step)
    return -step


def two_loops(g, pairs, curvature):
    """The recursion of the textbooks."""
    q, factors = g, []
    for step, difference in reversed(pairs):
        factors.append(step @ q / (step @ difference))
        q = q - factors[-1] * difference
    q = curvature.solve(q)
    if pairs and not curvature.scaled_well:
        step, difference = pairs[-1]
        q = q * (step @ difference) / (difference @ curvature.solve(difference))
    for (step, difference), factor in zip(pairs, reversed(factors), strict=True):
        q = q + (factor - difference @ q / (step @ difference)) * step
    return q


@pytest.mark.parametrize("kind", ["diagonal", "trusted"])
@pytest.mark.parametrize("count", [0, 1, 3, 9])
def test_compact_form_is_the_two_loops(kind, count):
    curvature, corrections = curvatures()[kind], Corrections.none()
    for step, difference in pairs(count):
        corrections = corrections.with_pair(step, difference, curvature.solve(difference), 5)
    g = np.random.default_rng(2).standard_normal(D)
    expected = two_loops(g, pairs(count)[-5:], curvature)
    assert len(corrections) == min(count, 5)
    np.testing.assert_allclose(solved(corrections, g, curvature), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["diagonal", "trusted"])
def test_the_last_pair_is_fulfilled(kind):
    curvature, corrections = curvatures()[kind], Corrections.none()
    for step, difference in pairs(6):
        corrections = corrections.with_pair(step, difference, curvature.solve(difference), 4)
        np.testing.assert_allclose(solved(corrections, difference, curvature), step, rtol=1e-8, atol=1e-10)


def test_rebase_corrects_another_matrix():
    first, second = curvatures().values()
    moved = fresh = Corrections.none()
    for step, difference in pairs(4):
        moved = moved.with_pair(step, difference, first.solve(difference), 4)
        fresh = fresh.with_pair(step, difference, second.solve(difference), 4)
    moved = moved.rebased(second)
    g = np.arange(D, dtype=float)
    np.testing.assert_allclose(solved(moved, g, second), solved(fresh, g, second), rtol=1e-10)


@pytest.mark.parametrize("difference", [np.zeros(D), -np.ones(D), np.full(D, np.nan)])
def test_a_pair_without_positive_curvature_is_left_out(difference):
    assert len(Corrections.none().with_pair(np.ones(D), difference, difference, 4)) == 0


def test_squared_loss_takes_the_steps_of_conjugate_gradients():
    """Distinct eigenvalues count: with three of them, three exact steps are enough, whatever the dimension."""
    rng = np.random.default_rng(0)
    n, d = 400, 90
    Q = np.linalg.qr(rng.standard_normal((n, d)))[0]
    W = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X = (Q * np.repeat([1.0, 7.0, 50.0], d // 3)) @ W.T
    problem = dn.Problem(X, rng.standard_normal(n), losses.Squared(), lam=1e-3 / n)
    settings = {"tol": 1e-12, "sketch": n, "newton": False, "decisions": Sketching.of(problem.data)}
    descent = Descent([problem], MemoryData(X), [(np.zeros(d), 0.0)], **settings)
    (model,) = descent.models
    model.policy.ask_for(0)  # the diagonal has to do
    model.hessians[0].at = lambda *_: Diagonal(np.ones(d))
    start = model.gap
    for _ in range(3):
        descent.step(rng, np.inf, np.inf)
    assert model.gap < 1e-14 * start


@pytest.mark.parametrize("short", [0, D])
def test_products_with_the_gradient_that_a_step_has_computed_are_those_of_the_direction(short, monkeypatch):
    monkeypatch.setattr(lbfgs, "SHORT", short)
    curvature, corrections = curvatures()["trusted"], Corrections.none()
    ends, g = [End(np.zeros(D), np.zeros(D), np.zeros(D))], np.zeros(D)
    for step, difference in pairs(6):
        g = g + difference
        ends.append(End(ends[-1].x + step, g, curvature.solve(g)))
        corrections, along = corrections.after_step(ends[-1], ends[-2], 4)
        image, options = ends[-1].image, {"scaled_well": True}
        expected, slope = corrections.direction(g, image, **options)
        found, same = corrections.direction(g, image, along=along, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert same == pytest.approx(slope)
        assert (along is None) == (short == D)
    assert len(corrections) == 4
