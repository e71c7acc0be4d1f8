"""The functions the methods minimise: quadratic bounds, separable terms and their proxes."""

import numpy as np
import pytest

from dualnewton import losses
from dualnewton.methods import Absolute, Composite, ConjugateLoss, Interval, Quadratic, Separable, Smooth, Square, Zero
from methods.exact import ElasticNet, quadratic, separables, softplus_sum
from tables import LOSSES, labels_for, name_of

N = 5
INDEX = np.arange(N)
SEPARABLES = pytest.mark.parametrize("psi", separables(N), ids=name_of)
EPS = np.finfo(float).eps


# Smooth functions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [quadratic(N), softplus_sum(N)], ids=["quadratic", "softplus"])
def test_a_smooth_function_lies_between_its_quadratic_bounds(f):
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1.0, 30.0):
        x, h = rng.standard_normal(N), scale * rng.standard_normal(N)
        rest = f.value(x + h) - f.value(x) - f.gradient(x) @ h
        rounding = 1e-12 * (1.0 + abs(f.value(x + h)))
        assert 0.5 * h @ f.G @ h - rounding <= rest <= 0.5 * h @ f.M @ h + rounding


def test_the_minimiser_of_a_quadratic():
    f = quadratic(N)
    assert np.abs(f.gradient(f.minimiser)).max() < 1e-12
    assert f.value(f.minimiser) == pytest.approx(-0.5 * f.b @ f.minimiser, rel=1e-12)
    assert np.array_equal(Quadratic(f.M).minimiser, np.zeros(N))
    np.testing.assert_array_equal(Quadratic(f.M, 2.0).b, np.full(N, 2.0))


def test_functions_do_not_share_memory_with_what_they_were_made_of():
    M = np.eye(2)
    f = Quadratic(M)
    M[0, 0] = 5.0
    assert f.M[0, 0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        f.M[0, 0] = 5.0


@pytest.mark.parametrize(
    ("M", "complaint"),
    [
        (np.ones((2, 3)), r"M must be a square matrix, got shape \(2, 3\)"),
        (3.0, r"M must be a square matrix, got shape \(\)"),
        ([[1.0, 0.5], [0.2, 1.0]], r"M must be symmetric, got entries .* differ by 3.00e-01"),
        ([[1.0, np.nan], [np.nan, 1.0]], "M must be finite"),
        ([[1.0, 2.0], [2.0, 1.0]], "M must be positive semidefinite, got a smallest eigenvalue of -1.00e"),
        ("matrix", "M must be a matrix of numbers, got str"),
    ],
)
def test_a_quadratic_refuses_what_is_no_hessian(M, complaint):
    with pytest.raises(ValueError, match=complaint):
        Quadratic(M)


def test_other_bad_input_to_smooth_functions():
    with pytest.raises(ValueError, match=r"b must have shape \(2,\), got \(3,\)"):
        Quadratic(np.eye(2), [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="M must be positive definite for the minimiser to be one point"):
        Quadratic(np.ones((2, 2))).minimiser  # noqa: B018 (computed when first asked for)
    with pytest.raises(ValueError, match="gradient must be a function of x, got 3"):
        Smooth(abs, 3, np.eye(2), np.eye(2))
    with pytest.raises(ValueError, match=r"M and G must have one shape, got \(2, 2\) and \(3, 3\)"):
        Smooth(abs, abs, np.eye(2), np.eye(3))
    with pytest.raises(ValueError, match=r"M - G must be positive semidefinite, got a smallest eigenvalue of -1.00"):
        Smooth(abs, abs, np.eye(2), 2.0 * np.eye(2))
    with pytest.raises(ValueError, match="G must be positive semidefinite"):
        Smooth(abs, abs, np.eye(2), -np.eye(2))


# Separable terms -----------------------------------------------------------------------------------------------------


def assert_is_prox(psi, x, step, gamma):
    """(x − t)/step is a subgradient at t = prox(x, step), with γ: ψ(s) ≥ ψ(t) + (x − t)(s − t)/step + ½γ(s − t)²."""
    t = psi.prox(x, step, INDEX)
    slope, at_t = (x - t) / step, psi.value(t, INDEX)
    assert np.isfinite(at_t).all()
    for s in np.concatenate([np.linspace(-6.0, 6.0, 41)[:, None] + 0.0 * t, t + np.geomspace(1e-4, 1.0, 9)[:, None]]):
        at_s = psi.value(s, INDEX)
        below = at_t + slope * (s - t) + 0.5 * gamma * (s - t) ** 2
        rounding = 1e-13 * (1.0 + np.abs(at_t) + np.abs(slope) * (np.abs(s) + np.abs(t)))
        assert (at_s >= below - rounding).all()


@SEPARABLES
@pytest.mark.parametrize("step", [1e-2, 1.0, 30.0])
def test_the_prox_and_the_strong_convexity_of_every_separable_term(psi, step):
    gamma = Composite(quadratic(N), psi).gamma
    rng = np.random.default_rng(4)
    steps = step * rng.uniform(0.5, 2.0, N)
    for scale in (0.1, 1.0, 5.0):
        assert_is_prox(psi, scale * rng.standard_normal(N), steps, gamma)


class WrongProx(Absolute):
    def prox(self, x, step, index):
        return super().prox(x, 1.01 * step, index)


def test_the_check_of_a_prox_would_notice_a_wrong_one_and_a_wrong_gamma():
    x, step = np.full(N, 3.0), np.ones(N)
    assert_is_prox(Absolute(), x, step, 0.0)
    with pytest.raises(AssertionError):
        assert_is_prox(WrongProx(), x, step, 0.0)
    with pytest.raises(AssertionError):
        assert_is_prox(Absolute(), x, step, 0.01)


@SEPARABLES
def test_the_slope_of_the_prox_is_its_derivative_away_from_kinks(psi):
    rng = np.random.default_rng(5)
    x, step = 2.0 * rng.standard_normal(N), rng.uniform(0.5, 2.0, N)
    rise = (psi.prox(x + 1e-6, step, INDEX) - psi.prox(x - 1e-6, step, INDEX)) / 2e-6
    np.testing.assert_allclose(psi.prox_slope(x, step, INDEX), rise, atol=1e-7)
    np.testing.assert_allclose(Separable.prox_slope(psi, x, step, INDEX), rise, atol=1e-6)


@SEPARABLES
def test_separable_terms_are_vectorised_over_any_coordinates(psi):
    rng = np.random.default_rng(6)
    x, step = rng.standard_normal(N), rng.uniform(0.5, 2.0, N)
    S = np.array([3, 0, 4])
    np.testing.assert_array_equal(psi.prox(x[S], step[S], S), psi.prox(x, step, INDEX)[S])
    np.testing.assert_array_equal(psi.value(x[S], S), psi.value(x, INDEX)[S])
    np.testing.assert_array_equal(psi.prox_slope(x[S], step[S], S), psi.prox_slope(x, step, INDEX)[S])


def test_bad_input_to_separable_terms():
    with pytest.raises(ValueError, match="strength must be a finite number >= 0, got -1"):
        Absolute(-1)
    with pytest.raises(ValueError, match=r"gamma must be >= 0 everywhere, got .*-2.0.* at index 1"):
        Square([1.0, -2.0])
    with pytest.raises(ValueError, match="lower must be <= upper"):
        Interval(1.0, 0.0)
    with pytest.raises(ValueError, match=r"y must hold -1 or \+1 for Logistic, got 2 at index 1"):
        ConjugateLoss(losses.Logistic(), [1.0, 2.0], 2)
    with pytest.raises(ValueError, match=r"weight must be > 0 everywhere, got .*0.0.* at index 1: .* leave it out"):
        ConjugateLoss(losses.Squared(), [1.0, 2.0], 2, weight=[1.0, 0.0])
    with pytest.raises(ValueError, match=r"weight must have shape \(2,\), got \(3,\)"):
        ConjugateLoss(losses.Squared(), [1.0, 2.0], 2, weight=np.ones(3))
    with pytest.raises(ValueError, match="n must be an integer >= 1, got 0"):
        ConjugateLoss(losses.Squared(), [1.0, 2.0], 0)
    with pytest.raises(NotImplementedError, match=r"Separable has no prox\(x, step, index\)"):
        Separable().prox(np.zeros(1), np.ones(1), np.arange(1))


def test_bad_input_to_composite_functions():
    with pytest.raises(ValueError, match="psi is made for 3 coordinates, f has 5"):
        Composite(quadratic(N), Square(np.ones(3)))
    with pytest.raises(ValueError, match=r"f must have value, gradient, M and G, as methods.Smooth does, got 3"):
        Composite(3, Zero())
    with pytest.raises(
        ValueError, match=r"psi must be an instance of methods.Separable, such as methods.Zero\(\), got 3"
    ):
        Composite(quadratic(N), 3)


def test_the_value_of_a_composite_function():
    f, x = quadratic(N), np.linspace(-1.0, 1.0, N)
    assert Composite(f, Zero()).value(x) == f.value(x)
    assert Composite(f, Absolute(2.0)).value(x) == pytest.approx(f.value(x) + 2.0 * np.abs(x).sum())
    assert Composite(f, Interval(-0.5, 0.5)).value(x) == np.inf
    np.testing.assert_array_equal(Composite(f, ElasticNet(0.3)).gamma, np.full(N, 0.3))


# The conjugate of a loss ---------------------------------------------------------------------------------------------


def reference_prox(loss, y, x, kappa):
    """The prox of κφ*(−·) with eleven bits more: bisection for φ′(z) + x + κz = 0, and the slope φ″/(φ″ + κ)."""
    y, x, kappa = (np.asarray(a, dtype=np.longdouble) for a in (y, x, kappa))
    end = -(loss.derivative(0.0 * x, y) + x) / kappa
    low, high = np.minimum(end, 0.0), np.maximum(end, 0.0)
    for _ in range(300):
        middle = 0.5 * (low + high)
        below = loss.derivative(middle, y) + x + kappa * middle < 0.0
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    curvature = loss.second_derivative(middle, y)
    beta = np.where(curvature > kappa, x + kappa * middle, -loss.derivative(middle, y))
    return beta, curvature / (curvature + kappa)


@pytest.mark.skipif(np.finfo(np.longdouble).eps >= EPS, reason="this machine has no longdouble wider than a double")
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_prox_of_a_conjugate_is_right_to_rounding_at_any_step(loss):
    x = np.r_[0.0, 10.0 ** np.arange(-12.0, 7.0, 1.5), 0.5, 0.999, 1.0 - 1e-12, 1.0 + 1e-12, 1.5]
    x, kappa, y = (a.ravel() for a in np.meshgrid(np.r_[-x, x], 10.0 ** np.arange(-12.0, 13.0), [-1.0, 1.0]))
    psi, everyone = ConjugateLoss(loss, y, 1), np.arange(x.size)
    beta = psi.prox(x, kappa, everyone)
    exact, slope = reference_prox(loss, y, x, kappa)
    # A rounding of x moves the prox by slope·|x|·eps, one of y ∈ {−1, 1} by at most eps: no double can do better.
    assert (np.abs(beta - exact) <= 2.0 * EPS * (np.abs(exact) + slope * np.abs(x) + 1.0)).all()
    assert np.isfinite(psi.value(beta, everyone)).all()


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_prox_of_a_conjugate_is_a_fixed_point_on_the_primal_side(loss):
    """β = −φ′(z) with z = (β − x)/κ, where κ is large enough for the division to be harmless."""
    rng = np.random.default_rng(7)
    n = 50
    y, x, step, weight = (
        labels_for(loss, n, rng),
        3.0 * rng.standard_normal(n),
        rng.uniform(20.0, 200.0, n),
        rng.uniform(0.5, 2, n),
    )
    beta = ConjugateLoss(loss, y, n, weight=weight).prox(x, step, np.arange(n))
    z = (beta - x) / (weight * step / n)
    np.testing.assert_allclose(beta, -loss.derivative(z, y), atol=1e-13)


def test_the_prox_of_a_conjugate_refuses_what_is_not_a_number():
    psi = ConjugateLoss(losses.Logistic(), [1.0], 1)
    with pytest.raises(RuntimeError, match="is NaN"):
        psi.prox(np.array([np.nan]), np.ones(1), np.arange(1))
