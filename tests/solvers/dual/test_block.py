"""The block subproblem: h is optimal exactly when β = −φ′(z), and it is so on every block, however scaled."""

import numpy as np
import pytest

import dualnewton as dn
from dualnewton import losses
from dualnewton.solvers.dual import block as blocks
from dualnewton.solvers.dual.block import DiagonalCurvature, FullCurvature
from tables import LOSSES, labels_for, name_of


def solve_block(loss, y, u, curvature, alpha, c):
    """The step h = β − α."""
    return blocks.solve_block(loss, y, u, curvature, alpha, c) - alpha


def random_block(loss, tau, seed, scale=1.0):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((tau, 4)) * scale
    y = labels_for(loss, tau, rng)
    u = 2.0 * rng.standard_normal(tau)
    alpha = -loss.derivative(3.0 * rng.standard_normal(tau), y)
    c = rng.uniform(0.1, 3.0, tau)
    return y, u, FullCurvature(rows @ rows.T), alpha, c


def subproblem(loss, y, u, curvature, alpha, c, h):
    mass = c * h
    return c @ loss.conjugate(-alpha - h, y) + mass @ u + 0.5 * mass @ curvature.times(mass)


def optimality(loss, y, u, curvature, alpha, c, h):
    """The largest violation of β = −φ′(z), measured in φ′ or, where G is large, by the margin it takes to remove it."""
    z = u + curvature.times(c * h)
    return np.abs(alpha + h + loss.derivative(z, y)).max()


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("tau", [1, 2, 7, 40])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_the_step_is_optimal(loss, tau, scale):
    for seed in range(5):
        block = random_block(loss, tau, seed, scale)
        h = solve_block(loss, *block)
        assert optimality(loss, *block, h) <= 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_no_other_step_is_better(loss):
    block = random_block(loss, 5, seed=3)
    y, _, _, alpha, _ = block
    h = solve_block(loss, *block)
    best = subproblem(loss, *block, h)
    rng = np.random.default_rng(0)
    low, high = loss.domain(y)
    for radius in (1e-4, 1e-2, 1.0):
        for _ in range(50):
            other = -np.clip(-(alpha + h + radius * rng.standard_normal(5)), low, high) - alpha
            assert subproblem(loss, *block, other) >= best - 1e-12 * abs(best)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("scale", [1e-8, 1e3, 1e6, 1e10])
def test_badly_scaled_blocks_stay_finite_feasible_and_never_go_downhill(loss, scale):
    for seed in range(5):
        block = random_block(loss, 12, seed, scale)
        y, _, _, alpha, _ = block
        h = solve_block(loss, *block)
        assert np.isfinite(h).all()
        assert np.isfinite(loss.conjugate(-alpha - h, y)).all()
        before = subproblem(loss, *block, np.zeros(12))
        assert subproblem(loss, *block, h) <= before + 1e-12 * abs(before)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_a_diagonal_block_is_many_scalar_ones(loss):
    y, u, _, alpha, c = random_block(loss, 6, seed=1)
    diagonal = np.array([0.0, 1e-3, 0.5, 1.0, 20.0, 1e3])
    together = solve_block(loss, y, u, DiagonalCurvature(diagonal), alpha, c)
    as_matrix = solve_block(loss, y, u, FullCurvature(np.diag(diagonal)), alpha, c)
    alone = [
        solve_block(loss, y[[i]], u[[i]], DiagonalCurvature(diagonal[[i]]), alpha[[i]], c[[i]])[0] for i in range(6)
    ]
    np.testing.assert_allclose(together, alone, atol=1e-9)
    np.testing.assert_allclose(together, as_matrix, atol=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_a_row_of_weight_zero_follows_the_others_without_moving_them(loss):
    y, u, curvature, alpha, c = random_block(loss, 5, seed=2)
    c[3] = 0.0
    h = solve_block(loss, y, u, curvature, alpha, c)
    rest = np.array([0, 1, 2, 4])
    without = solve_block(
        loss, y[rest], u[rest], FullCurvature(curvature.gram[np.ix_(rest, rest)]), alpha[rest], c[rest]
    )
    np.testing.assert_allclose(h[rest], without, atol=1e-9)
    assert optimality(loss, y, u, curvature, alpha, c, h) <= 1e-9


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("intercept", [0.0, 0.7])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_the_d_by_d_form_takes_the_same_step(loss, intercept, scale):
    rng = np.random.default_rng(5)
    rows = scale * rng.standard_normal((9, 4))
    y, u, _, alpha, c = random_block(loss, 9, seed=4)
    low_rank = blocks.curvature_of(rows, 0.5, intercept)
    assert isinstance(low_rank, blocks.LowRankCurvature)
    full = FullCurvature(rows @ rows.T / 0.5 + intercept)
    h = solve_block(loss, y, u, low_rank, alpha, c)
    np.testing.assert_allclose(h, solve_block(loss, y, u, full, alpha, c), atol=1e-8)
    assert optimality(loss, y, u, full, alpha, c, h) <= 1e-8


def test_the_checks_catch_a_step_that_is_not_exact():
    loss = LOSSES[1]
    block = random_block(loss, 7, seed=0)
    y, u, curvature, alpha, c = block
    separable = DiagonalCurvature(np.diag(curvature.gram).copy())  # the curvature between examples left out
    assert optimality(loss, *block, solve_block(loss, y, u, separable, alpha, c)) > 1e-3


def test_each_trial_point_is_evaluated_once():
    class Counting(losses.Logistic):
        def value(self, z, y):
            calls.append("value")
            return super().value(z, y)

        def second_derivative(self, z, y):
            calls.append("step")
            return super().second_derivative(z, y)

    calls = []
    y, u, curvature, alpha, c = random_block(losses.Logistic(), 1, 0)
    blocks.solve_block(Counting(), y, u, curvature, alpha, c)
    assert calls.count("step") > 1
    assert calls.count("value") == 1 + calls.count("step")  # full steps: none had to be halved


@pytest.mark.parametrize(
    "curvature", [FullCurvature(np.full((2, 2), 1e10)), blocks.LowRankCurvature(np.full((2, 1), 1e5))]
)
def test_a_block_whose_newton_system_exceeds_float64_stays_where_it_is(curvature):
    """φ″(699) = e^699, and G e^699 is infinite."""
    loss, y, u, alpha = losses.Poisson(), np.zeros(2), np.full(2, 699.0), np.zeros(2)
    with np.errstate(over="ignore", invalid="ignore"):
        assert not solve_block(loss, y, u, curvature, alpha, np.ones(2)).any()


def test_one_round_over_all_rows_is_enough_on_features_of_different_scales_with_an_intercept():
    """Woodbury's formula, used before for more rows than features, left no correct digit of the step: no dual point was found."""
    rng = np.random.default_rng(1)
    n, d = 120, 90
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-2.0, 2.0, d)
    scores = X @ rng.standard_normal(d)
    y = np.where(scores / scores.std() + 0.5 * rng.standard_normal(n) > 0.0, 1.0, -1.0)
    problem = dn.Problem(X, y, losses.Logistic(), lam=0.02 / n, fit_intercept=True)
    result = dn.solve(problem, method="sdna", tau=n, tol=1e-4, max_epochs=3)
    assert result.converged
