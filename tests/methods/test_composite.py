"""Proximal Method 1 and PCDM: the block subproblem is solved to rounding, whatever the block and ψ."""

import itertools

import numpy as np
import pytest

from dualnewton import samplings
from dualnewton.methods import (
    Absolute,
    Composite,
    ConjugateLoss,
    Interval,
    Quadratic,
    Separable,
    Square,
    Zero,
    pcdm,
    prox_method1,
)
from dualnewton.methods.composite import minimise_block
from methods.exact import EXAMPLE, ElasticNet, composites, describe, feasible_points, minimum, quadratic, separables
from tables import LOSSES, labels_for, name_of


def blocks(size):
    """(u, Q, x) from easy to hard: well and ill conditioned, almost of rank one, coupled and not, small and large."""
    rng = np.random.default_rng(10)
    A = rng.standard_normal((size, size))
    for Q in (
        A @ A.T,
        A @ np.diag(np.geomspace(1.0, 1e-4, size)) @ A.T,
        0.9999 + 1e-4 * np.eye(size),
        np.diag(np.geomspace(1e-3, 1e3, size)),
        1e6 * A @ A.T,
    ):
        yield rng.standard_normal(size), Q, rng.standard_normal(size)
        yield 100.0 * rng.standard_normal(size), Q, np.zeros(size)


def assert_minimises(beta, u, Q, x, psi):
    """−g with g = u + Q(β − x) is a subgradient of ψ at β; in other words β = prox(β − sg, s), for any s > 0."""
    S = np.arange(len(x))
    gradient = u + Q @ (beta - x)
    terms = np.abs(u) + np.abs(Q) @ (np.abs(beta) + np.abs(x))
    for s in (0.1 / np.diag(Q), 1.0 / np.diag(Q)):
        residual = beta - psi.prox(beta - s * gradient, s, S)
        assert (np.abs(residual) <= 1e-13 * (np.abs(beta) + s * terms)).all()


@pytest.mark.slow
@pytest.mark.parametrize("psi", separables(6), ids=name_of)
def test_blocks_are_minimised_to_rounding(psi):
    for u, Q, x in blocks(6):
        beta = minimise_block(u, Q, x, psi, np.arange(6))
        assert_minimises(beta, u, Q, x, psi)
        assert np.isfinite(psi.value(beta, np.arange(6))).all()
        with pytest.raises(AssertionError):  # so the check would notice a relative error of 1e-6
            assert_minimises(beta + 1e-6 * (1.0 + np.abs(beta)), u, Q, x, psi)


@pytest.mark.parametrize("psi", [psi for psi in separables(6) if np.min(psi.gamma) > 0.0], ids=name_of)
@pytest.mark.parametrize("rank", [1, 3])
def test_singular_blocks_are_minimised_where_psi_is_strongly_convex(psi, rank):
    rng = np.random.default_rng(11)
    A = rng.standard_normal((6, rank))
    u, Q, x = rng.standard_normal(6), A @ A.T, rng.standard_normal(6)
    assert_minimises(minimise_block(u, Q, x, psi, np.arange(6)), u, Q, x, psi)


def best_of_all_faces(u, Q, x, lower, upper):
    """The minimiser over a box by trying every set of coordinates at a bound: exact, and exponential in their number."""
    best, found = np.inf, None
    for face in itertools.product((-1, 0, 1), repeat=len(x)):
        free = np.array(face) == 0
        beta = np.where(np.array(face) < 0, lower, upper).astype(float)
        fixed = u + Q @ np.where(free, -x, beta - x)
        beta[free] = np.linalg.solve(Q[np.ix_(free, free)], -fixed[free])
        value = (u + 0.5 * Q @ (beta - x)) @ (beta - x)
        if ((lower <= beta) & (beta <= upper)).all() and value < best:
            best, found = value, beta
    return found


def test_boxes_agree_with_trying_every_face():
    for u, Q, x in blocks(4):
        np.testing.assert_allclose(
            minimise_block(u, Q, x, Interval(-0.5, 0.8), np.arange(4)),
            best_of_all_faces(u, Q, x, -0.5, 0.8),
            rtol=1e-9,
            atol=1e-12,
        )


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_blocks_of_a_dual_are_minimised_on_the_primal_side_too(loss):
    """With ψ_i = φ*(−·)/n the minimiser is the fixed point β = −φ′(n(u + Q(β − x))) of Section 4."""
    n = 6
    rng = np.random.default_rng(12)
    for scale in (1e-2, 1.0, 1e2):
        A = rng.standard_normal((n, 4))
        u, Q, x, y = rng.standard_normal(n), scale * A @ A.T / n, rng.standard_normal(n), labels_for(loss, n, rng)
        beta = minimise_block(u, Q, x, ConjugateLoss(loss, y, n), np.arange(n))
        np.testing.assert_allclose(
            beta, -loss.derivative(n * (u + Q @ (beta - x)), y), atol=1e-12 * max(1.0, n * scale)
        )


class ByProxAlone(Separable):
    """A ψ stripped of all but its prox and γ."""

    def __init__(self, psi):
        self.psi, self.gamma = psi, psi.gamma

    def prox(self, x, step, index):
        return self.psi.prox(x, step, index)


@pytest.mark.slow
@pytest.mark.parametrize("psi", separables(6), ids=name_of)
def test_the_prox_alone_is_enough(psi):
    for u, Q, x in blocks(6):
        beta = minimise_block(u, Q, x, ByProxAlone(psi), np.arange(6))
        assert_minimises(beta, u, Q, x, psi)


@pytest.mark.slow
@pytest.mark.parametrize("method", [prox_method1, pcdm], ids=lambda method: method.__name__)
@pytest.mark.parametrize("F", composites(4), ids=describe)
def test_they_converge_within_the_domain(method, F):
    optimum, _ = minimum(F)
    x0 = feasible_points(F, 1)[0]
    trajectory = method(F, samplings.Nice(4, 3), x0, 150, 0)
    values = np.array([F.value(x) for x in trajectory])
    assert np.isfinite(values).all()
    assert values[-1] - optimum <= 1e-3 * (values[0] - optimum)


@pytest.mark.parametrize(
    "psi", [Zero(), Absolute(0.1), Interval(-1.0, 1.0), Square(1e-3), ElasticNet(1e-3)], ids=name_of
)
def test_on_example_2_3_whole_blocks_do_what_coordinates_cannot(psi):
    """With correlations of 0.9999, sixty steps of proximal Method 1 reach what PCDM does not come near to in as many."""
    F = Composite(Quadratic(EXAMPLE, [0.3, -0.2, 0.1]), psi)
    sampling, x0 = samplings.Nice(3, 2), np.array([1.0, -1.0, 0.5])
    optimum = F.value(prox_method1(F, samplings.Nice(3, 3), x0, 1, 0)[-1])
    one, three = (F.value(method(F, sampling, x0, 60, 0)[-1]) - optimum for method in (prox_method1, pcdm))
    assert one <= 1e-6 * three


def test_a_block_without_a_minimiser_is_reported():
    for Q in (np.ones((2, 2)), np.zeros((2, 2))):
        with pytest.raises(RuntimeError, match=r"on the coordinates \[0, 1\] was found, .*M_S singular where psi"):
            minimise_block(np.array([1.0, -1.0]), Q, np.zeros(2), Zero(), np.arange(2))


class NotAProx(Separable):
    def prox(self, x, step, index):  # noqa: ARG002
        return np.where(x < -0.12, 1.0, -1.0)  # it jumps down: no convex function has such a prox


def test_what_is_no_prox_is_reported():
    F = Composite(Quadratic(np.eye(3) + 0.2), NotAProx())
    with pytest.raises(RuntimeError, match=r"NotAProx\.prox is not the prox of a closed convex function"):
        prox_method1(F, samplings.Nice(3, 2), np.ones(3), 1, 0)


def test_smooth_functions_must_be_wrapped():
    for method in (prox_method1, pcdm):
        with pytest.raises(
            ValueError, match=r"F must be a methods.Composite, such as Composite\(f, Zero\(\)\), got Quadratic"
        ):
            method(quadratic(3), samplings.Serial(3), np.zeros(3), 1, 0)
