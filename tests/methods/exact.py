"""What the tests of the methods share: functions to minimise, their minima, and exact expectations over one step."""

from dataclasses import dataclass

import numpy as np

import tables
from dualnewton import losses
from dualnewton.methods import (
    Absolute,
    Composite,
    ConjugateLoss,
    Interval,
    Quadratic,
    Separable,
    Smooth,
    Square,
    Zero,
    dual_of,
)
from dualnewton.samplings import IndexBlock, Sampling

EXAMPLE = np.array([[1.0, 0.99, 0.9999], [0.99, 1.0, 0.99], [0.9999, 0.99, 1.0]])
"""M of Example 2.3, of condition number 3e4."""


# Functions -----------------------------------------------------------------------------------------------------------


def quadratic(n, seed=0):
    """A quadratic with correlated coordinates of unequal scale."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((n, n + 1)) * rng.uniform(0.3, 2.0, (n, 1)) + 0.5
    return Quadratic(A @ A.T + 0.1 * np.eye(n), rng.standard_normal(n))


def softplus_sum(n, seed=0):
    """Σ_j log(1 + exp(b_jᵀx)) + ½xᵀHx: not quadratic, with G = H ≺ M = H + ¼BᵀB."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((2 * n, n))
    H = 0.3 * np.eye(n) + 0.2 * np.outer(np.ones(n), np.ones(n))

    def value(x):
        return float(np.logaddexp(0.0, B @ x).sum() + 0.5 * x @ H @ x)

    def gradient(x):
        return B.T @ (0.5 + 0.5 * np.tanh(0.5 * (B @ x))) + H @ x

    return Smooth(value, gradient, H + 0.25 * B.T @ B, H)


@dataclass(frozen=True)
class ElasticNet(Separable):
    """(γ/2)t² + |t|/4, given by value and prox alone, as a user would."""

    gamma: float = 0.5

    def value(self, x, index):  # noqa: ARG002
        return 0.5 * self.gamma * x**2 + 0.25 * np.abs(x)

    def prox(self, x, step, index):  # noqa: ARG002
        return np.sign(x) * np.maximum(np.abs(x) - 0.25 * step, 0.0) / (1.0 + self.gamma * step)


def separables(n):
    """Every ψ, for n coordinates; with γ = 0 and with γ > 0, smooth and not, finite and not."""
    rng = np.random.default_rng(1)
    return [
        Zero(),
        Absolute(0.7),
        Absolute(np.linspace(0.0, 2.0, n)),
        Interval(-0.3, 0.4),
        Interval(np.full(n, -np.inf), np.linspace(-0.2, 0.5, n)),
        Square(0.8),
        Square(np.linspace(0.0, 3.0, n)),
        ElasticNet(),
        *[
            ConjugateLoss(loss, tables.labels_for(loss, n, rng), n, weight=rng.uniform(0.5, 2.0, n))
            for loss in tables.LOSSES
        ],
    ]


def composites(n):
    """A choice of F = f + ψ that has every kind of f and of ψ in it, and a dual."""
    quadratics = [Composite(quadratic(n), psi) for psi in separables(n)[:-1:2]]
    smooth = [Composite(softplus_sum(n), psi) for psi in separables(n)[1:8:2]]
    problem = tables.make_problem(losses.Logistic(), n=n, d=3, regularizer=tables.regularizers_for(3)[1], lam=0.1)
    return [*quadratics, *smooth, dual_of(problem)]


def describe(F):
    """A readable test id of a composite function."""
    loss = f"-{type(F.psi.loss).__name__}" if isinstance(F.psi, ConjugateLoss) else ""
    return f"{type(F.f).__name__}+{type(F.psi).__name__}{loss}"


# Minima, found without any of the methods ----------------------------------------------------------------------------


def minimum(F):
    """F* = F(x*) by proximal gradient steps of length 1/λmax(M), until they stand still."""
    everyone = np.arange(len(F.f.M))
    step = np.full(len(F.f.M), 1.0 / np.linalg.eigvalsh(F.f.M)[-1])
    x = F.psi.prox(np.zeros(len(F.f.M)), step, everyone)
    for _ in range(20_000):
        previous, x = x, F.psi.prox(x - step * F.f.gradient(x), step, everyone)
        if np.abs(x - previous).max() <= 1e-15 * (1.0 + np.abs(x).max()):
            return F.value(x), x
    raise AssertionError(f"no minimum of {describe(F)} found")


def feasible_points(F, count, seed=2):
    """Random points of the domain of ψ, near and far from the minimum."""
    rng = np.random.default_rng(seed)
    n = len(F.f.M)
    scales = np.geomspace(0.1, 10.0, count)
    return [F.psi.prox(s * rng.standard_normal(n), np.full(n, 1e-3), np.arange(n)) for s in scales]


# Exact expectations --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Told(Sampling):
    """A sampling that claims the probabilities of ``law``, and whose draws are all the set it is told."""

    law: Sampling
    S: np.ndarray

    @property
    def n(self):
        return self.law.n

    def pair_structure(self):
        return self.law.pair_structure()

    def draw(self, rng, rounds):  # noqa: ARG002
        return IndexBlock.from_sizes(np.tile(self.S, rounds), np.full(rounds, self.S.size))


def expected_value(method, F, sampling, x, claimed=None):
    """E[F(x⁺)] after one step of the method from x, summed over the whole law of the sampling.

    With ``claimed`` the method is lied to: it plans its step for those probabilities, and the sets come from the sampling.
    """
    law = sampling if claimed is None else claimed
    return sum(probability * F.value(method(F, Told(law, S), x, 1, None)[-1]) for S, probability in sampling.support())


def assert_contracts(method, F, optimum, sampling, sigma, points, claimed=None):
    """E[F(x⁺)] − F* ≤ (1 − σ)(F(x) − F*) at every point, but for rounding."""
    for x in points:
        before, after = F.value(x) - optimum, expected_value(method, F, sampling, x, claimed) - optimum
        assert after <= (1.0 - sigma) * before + 1e-12 * (1.0 + abs(F.value(x)) + abs(optimum))
