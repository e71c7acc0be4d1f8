"""Poisson, gamma and Tweedie losses: 50-digit values up to |z| = 700, conjugates, the best intercept, and what is refused."""

import mpmath as mp
import numpy as np
import pytest

from dualnewton import losses
from tables import name_of

LOSSES = [losses.Poisson(), losses.Gamma(), losses.Tweedie(1.02), losses.Tweedie(1.5), losses.Tweedie(1.97)]
MARGINS = np.array([-700.0, -300.0, -37.0, -1.0, -1e-3, 0.0, 1e-8, 0.7, 5.0, 36.0, 300.0, 700.0])
LABELS = np.array([0.0, 1e-6, 0.45, 1.0, 40.0, 1e4])


class Exact:
    """φ, φ′, φ″ as the module's docstring defines them, and the margin of a slope, in 50 digits."""

    def __init__(self, loss):
        self.a, self.b = 2 - mp.mpf(loss.power), mp.mpf(loss.power) - 1

    def value(self, z, y):
        first = mp.exp(self.a * z) / self.a if self.a else z
        return first + (y * mp.exp(-self.b * z) / self.b if self.b else -y * z)

    def derivative(self, z, y):
        return mp.exp(self.a * z) - y * mp.exp(-self.b * z)

    def second_derivative(self, z, y):
        return self.a * mp.exp(self.a * z) + self.b * y * mp.exp(-self.b * z)

    def terms(self, z, y):
        """The size of the terms of φ and φ′, in whose rounding their errors are measured."""
        growing, falling = mp.exp(self.a * z), y * mp.exp(-self.b * z)
        return growing / (self.a or 1) + falling / (self.b or 1) + abs(z) * (1 + y)

    def margin(self, u, y):
        """The z with φ′(z) = u, by bisection of the increasing φ′ and Newton's method."""
        low, high = mp.mpf(-4000), mp.mpf(4000)
        for _ in range(30):
            z = (low + high) / 2
            low, high = (z, high) if self.derivative(z, y) < u else (low, z)
        for _ in range(5):
            z -= (self.derivative(z, y) - u) / self.second_derivative(z, y)
        return z


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def grid(loss):
    labels = LABELS[loss.valid_labels(LABELS)]
    y, z = (each.ravel() for each in np.meshgrid(labels, MARGINS))
    exponents = np.log(np.maximum(y, 1.0)) - (loss.power - 1.0) * z  # of y e^{−(p−1)z}, replaced by a tangent above 700
    return z[exponents <= 700.0], y[exponents <= 700.0]


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("name", ["value", "derivative", "second_derivative"])
def test_functions_of_the_margin_are_exact_to_rounding(loss, name):
    z, y = grid(loss)
    exact, with_two = Exact(loss), {"value": ("value_and_derivative", 0), "derivative": ("value_and_derivative", 1)}
    joint, place = with_two.get(name, ("derivatives", 1))
    computed, again = getattr(loss, name)(z, y), getattr(loss, joint)(z, y)[place]
    np.testing.assert_array_equal(computed, again)
    for got, margin, label in zip(computed.tolist(), z.tolist(), y.tolist(), strict=True):
        # An exponent of size up to 700 is rounded by 700 ulps of one, which its exponential multiplies.
        allowed = 4e-16 * (10 + abs(margin)) * exact.terms(mp.mpf(margin), mp.mpf(label)) + mp.mpf("1e-300")
        assert abs(got - getattr(exact, name)(mp.mpf(margin), mp.mpf(label))) <= allowed


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_conjugate_is_the_exact_supremum_to_rounding(loss):
    exact = Exact(loss)
    for y in LABELS[loss.valid_labels(LABELS)].tolist():
        low, high = loss.domain(y)
        slopes = np.array([-1e6, -30.0, -0.9, -1e-6, 1e-9, 0.2, 1.0 - 1e-9, 3.0, 1e6])
        for u in slopes[(low < slopes) & (slopes < high)].tolist():
            z = exact.margin(mp.mpf(u), mp.mpf(y))
            want = z * u - exact.value(z, mp.mpf(y))
            size = abs(z * u) + exact.terms(z, mp.mpf(y))
            assert abs(loss.conjugate(u, y) - want) <= 2e-14 * (1 + abs(z)) * size


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_conjugate_is_closed_at_the_ends_of_its_domain_and_infinite_past_them(loss):
    for y in LABELS[loss.valid_labels(LABELS)].tolist():
        for end, out in zip(loss.domain(y), (-np.inf, np.inf), strict=True):
            if np.isfinite(end):
                assert loss.conjugate(end, y) == pytest.approx(
                    0.0, abs=1e-300
                )  # −inf φ of the term that vanishes there
                assert loss.conjugate(np.nextafter(end, out), y) == np.inf
            else:
                assert np.isfinite(loss.conjugate(np.copysign(1e300, out), y))
        assert loss.domain(y)[0] <= 0.0 <= loss.domain(y)[1]


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_nothing_overflows_and_slopes_stay_in_the_domain(loss):
    z = np.array([-1e300, -1e5, -701.0, 701.0, 1e5])
    for y in [*LABELS[loss.valid_labels(LABELS)], 1e300]:
        with np.errstate(all="raise", under="ignore"):
            slopes, values = loss.derivative(z, y), loss.value(z[1:], np.minimum(y, 1e4))
            assert np.isfinite(loss.second_derivative(z, y)).all()
        low, high = loss.domain(y)
        assert ((low <= slopes) & (slopes <= high)).all()
        assert np.isfinite(values).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_best_intercept_is_the_zero_of_the_slope(loss, weighted):
    rng = np.random.default_rng(0)
    z, y = 3.0 * rng.standard_normal(200), rng.gamma(1.0, 5.0, 200)
    c = rng.integers(0, 3, 200).astype(float) if weighted else np.ones(200)
    b = loss.best_intercept(z, y, c if weighted else None)
    slopes = c * loss.derivative(z + b, y)
    assert abs(slopes.sum()) <= 1e-13 * np.abs(slopes).sum()
    assert super(type(loss).__mro__[1], loss).best_intercept(z, y, c) == pytest.approx(b, rel=1e-12)


@pytest.mark.parametrize("loss", [losses.Poisson(), losses.Tweedie(1.3)], ids=name_of)
def test_without_a_count_the_best_intercept_makes_every_mean_zero(loss):
    z = np.array([-3.0, 0.0, 800.0])
    b = loss.best_intercept(z, np.zeros(3), None)
    assert np.isfinite(b)
    assert not loss.derivative(z + b, np.zeros(3)).any()


@pytest.mark.parametrize(
    ("loss", "bad"),
    [(losses.Poisson(), -1.0), (losses.Tweedie(1.5), -0.1), (losses.Gamma(), 0.0), (losses.Gamma(), np.inf)],
    ids=str,
)
def test_labels_outside_the_domain_are_refused(loss, bad):
    with pytest.raises(ValueError, match=r"y must"):
        loss.labels(np.array([1.0, bad]), 2)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0, np.nan])
def test_a_power_without_a_convex_loss_of_its_own_is_refused(power):
    with pytest.raises(ValueError, match="power"):
        losses.Tweedie(power)


def test_the_inverse_gaussian_deviance_is_not_convex_in_the_margin():
    """The reason why there is no such loss: φ″ = 2y e^{−2z} − e^{−z} < 0 for e^z > 2y."""
    z, h = np.log(2.5), 1e-3

    def value(z, y=1.0):
        return 0.5 * y * np.exp(-2.0 * z) - np.exp(-z)

    assert value(z + h) + value(z - h) < 2.0 * value(z)


def test_a_wrong_self_concordance_is_reported():
    class TooSmall(losses.Poisson):
        self_concordance = 0.9

    with pytest.raises(ValueError, match=r"is not self-concordant with M=0\.9"):
        losses.check(TooSmall())


@pytest.mark.parametrize("loss", [losses.Poisson(), losses.Gamma(), losses.Tweedie(1.5)], ids=str)
def test_margins_beyond_float64_have_no_best_intercept(loss):
    for margins in (np.full(2, np.inf), np.full(2, -np.inf)):
        with np.errstate(invalid="ignore"):
            assert np.isnan(loss.best_intercept(margins, np.array([0.5, 1.5]), None))


def test_the_newton_steps_of_the_tweedie_conjugate_reach_rounding_for_every_power():
    # Fenchel–Young at u = φ′(z): φ(z) + φ*(u) = uz. The powers include those where the number of steps changes.
    rng = np.random.default_rng(0)
    y, z = 10.0 ** rng.uniform(-3.0, 4.0, 2000), rng.uniform(-8.0, 8.0, 2000)
    for kind in (np.float64, np.longdouble):
        labels, margins = y.astype(kind), z.astype(kind)
        for power in (1.001, 1.05, 1.2, 1.2588, 1.2589, 1.2634, 1.4, 1.5, 1.7366, 1.9, 1.999):
            loss = losses.Tweedie(power)
            value, u = loss.value_and_derivative(margins, labels)
            error = np.abs(value + loss.conjugate(u, labels) - u * margins)
            assert (error / (value + np.abs(u * margins))).max() <= 16.0 * np.finfo(kind).eps


@pytest.mark.parametrize(
    "loss", [losses.Poisson(), losses.Gamma(), losses.Tweedie(1.3)], ids=lambda loss: type(loss).__name__
)
def test_the_best_constant_is_the_best_intercept_without_features(loss):
    rng = np.random.default_rng(4)
    y, weights = rng.gamma(2.0, 3.0, 30), rng.uniform(0.0, 2.0, 30)
    for labels in (y, 1e-300 * y, 1e300 * y, 0.0 * y if loss.valid_labels(np.zeros(1)).all() else y):
        for c in (None, weights):
            wanted = loss.best_intercept(np.zeros(30), labels, c)
            assert loss.best_constant(labels, c) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_a_rough_fit_has_the_slopes_and_curvatures_of_the_losses_at_its_margins(loss):
    """The value is that of the best constant. The gamma loss has the curvature of labels that equal their mean, which is one."""
    rng = np.random.default_rng(5)
    y, weights = rng.poisson(3.0, 40) + 0.5 * (loss.power == 2.0), rng.uniform(0.0, 2.0, 40)
    for c in (None, weights):
        z, slopes, curvature, value = loss.rough_fit(y, c)
        np.testing.assert_allclose(slopes, loss.derivative(z, y), rtol=1e-12, atol=1e-12)
        labels = np.exp(z) if loss.power == 2.0 else y
        np.testing.assert_allclose(curvature, loss.second_derivative(z, labels), rtol=1e-12)
        constant = loss.value(np.full(40, loss.best_constant(y, c)), y)
        assert value == pytest.approx(constant.sum() if c is None else c @ constant, rel=1e-12)
    assert loss.rough_fit(0.0 * y, None) is None


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_curvature_of_a_slope_is_that_of_the_margin(loss):
    y, z = (each.ravel() for each in np.meshgrid(LABELS[loss.valid_labels(LABELS)], np.linspace(-9.0, 9.0, 37)))
    alpha = -loss.derivative(z, y)
    found, scale = loss.curvature_of_slope(alpha, z, y), np.abs(alpha) + y + 1.0
    assert (np.abs(found - loss.second_derivative(z, y)) <= 1e-15 * scale).all()
    assert loss.balancing_direction(alpha, z, y).tolist() == found.tolist()


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_value_at_zero_is_that_of_zero_margins(loss):
    y = LABELS[loss.valid_labels(LABELS)]
    np.testing.assert_allclose(loss.value_at_zero(y, 0.0 * y), loss.value(0.0 * y, y), rtol=1e-15)


@pytest.mark.parametrize("kind", [losses.Poisson, losses.Gamma, losses.Tweedie], ids=lambda kind: kind.__name__)
def test_a_subclass_with_another_function_does_not_inherit_its_short_formulas(kind):
    class Doubled(kind):
        def value(self, z, y):
            return 2.0 * super().value(z, y)

    rng = np.random.default_rng(0)
    z, y, loss = rng.standard_normal(50), rng.gamma(2.0, 1.0, 50), Doubled()
    assert loss.curvature_of_slope(-loss.derivative(z, y), z, y) is None
    np.testing.assert_allclose(loss.value_at_zero(y, 0.0 * z), 2.0 * kind().value(0.0 * z, y), rtol=1e-15)
