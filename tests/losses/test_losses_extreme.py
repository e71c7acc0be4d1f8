"""Every loss against 50-digit arithmetic, from the tiniest margins to the largest, and at the ends of its domain."""

import mpmath as mp
import numpy as np
import pytest

from dualnewton import losses
from tables import LOSSES, name_of

SIZES = [0.0, 1e-8, 1e-3, 1.0, 37.0, 1e3, 1e8]
MARGINS = np.unique([sign * size for size in SIZES for sign in (-1.0, 1.0)])
TIGHT = 1e-14


class Exact:
    """A loss in 50 digits: φ, φ′, φ″ as the docstrings define them, and where the supremum in φ* is attained."""

    def __init__(self, value, derivative, second_derivative, attained_at):
        self.value = value
        self.derivative = derivative
        self.second_derivative = second_derivative
        self.attained_at = attained_at

    def conjugate(self, u, y):
        """Sup_z zu − φ(z), with the sizes of its two terms."""
        z = self.attained_at(u, y)
        return z * u - self.value(z, y), abs(z * u) + abs(self.value(z, y))


def exact_squared(_loss):
    return Exact(lambda z, y: (z - y) ** 2 / 2, lambda z, y: z - y, lambda _z, _y: mp.mpf(1), lambda u, y: u + y)


def exact_logistic(_loss):
    def attained_at(u, y):
        s = -y * u
        # At an end of the domain the supremum is a limit: 10^30 is far enough for 50 digits.
        return y * mp.log((1 - s) / s) if 0 < s < 1 else y * (1 - 2 * s) * mp.mpf(10) ** 30

    return Exact(
        lambda z, y: mp.log1p(mp.exp(-y * z)),
        lambda z, y: -y / (1 + mp.exp(y * z)),
        lambda z, _y: 1 / ((1 + mp.exp(z)) * (1 + mp.exp(-z))),
        attained_at,
    )


def exact_squared_hinge(_loss):
    return Exact(
        lambda z, y: max(0, 1 - y * z) ** 2 / 2,
        lambda z, y: -y * max(0, 1 - y * z),
        lambda z, y: mp.mpf(y * z < 1),
        lambda u, y: y + u,
    )


def exact_smooth_hinge(loss):
    width = mp.mpf(loss.width)

    def value(z, y):
        m = y * z
        if m >= 1:
            return mp.mpf(0)
        return (1 - m) ** 2 / (2 * width) if m > 1 - width else 1 - m - width / 2

    def derivative(z, y):
        m = y * z
        if m >= 1:
            return mp.mpf(0)
        return -y * (1 - m) / width if m > 1 - width else -y

    def second_derivative(z, y):
        return 1 / width if 1 - width < y * z < 1 else mp.mpf(0)

    return Exact(value, derivative, second_derivative, lambda u, y: y + width * u)


def exact_huber(loss):
    delta = mp.mpf(loss.delta)

    def value(z, y):
        r = abs(z - y)
        return r**2 / 2 if r <= delta else delta * (r - delta / 2)

    return Exact(
        value,
        lambda z, y: max(-delta, min(delta, z - y)),
        lambda z, y: mp.mpf(abs(z - y) < delta),
        lambda u, y: u + y,
    )


def exact_squared_epsilon_insensitive(loss):
    epsilon = mp.mpf(loss.epsilon)
    return Exact(
        lambda z, y: max(0, abs(z - y) - epsilon) ** 2 / 2,
        lambda z, y: mp.sign(z - y) * max(0, abs(z - y) - epsilon),
        lambda z, y: mp.mpf(abs(z - y) > epsilon),
        lambda u, y: y + u + mp.sign(u) * epsilon,
    )


def exact_smooth_epsilon_insensitive(loss):
    epsilon, width = mp.mpf(loss.epsilon), mp.mpf(loss.width)

    def value(z, y):
        t = max(0, abs(z - y) - epsilon)
        return t**2 / (2 * width) if t < width else t - width / 2

    return Exact(
        value,
        lambda z, y: mp.sign(z - y) * min(1, max(0, abs(z - y) - epsilon) / width),
        lambda z, y: 1 / width if epsilon < abs(z - y) < epsilon + width else mp.mpf(0),
        lambda u, y: y + width * u + mp.sign(u) * epsilon,
    )


def exact_smooth_quantile(loss):
    q, width = mp.mpf(loss.q), mp.mpf(loss.width)

    def slope(z, y):
        return max(-q, min(1 - q, (z - y) / width))

    return Exact(
        lambda z, y: slope(z, y) * (z - y - width * slope(z, y) / 2),
        slope,
        lambda z, y: 1 / width if -q < (z - y) / width < 1 - q else mp.mpf(0),
        lambda u, y: y + width * u,
    )


EXACT = {
    losses.Squared: exact_squared,
    losses.Logistic: exact_logistic,
    losses.SquaredHinge: exact_squared_hinge,
    losses.SmoothHinge: exact_smooth_hinge,
    losses.Huber: exact_huber,
    losses.SquaredEpsilonInsensitive: exact_squared_epsilon_insensitive,
    losses.SmoothEpsilonInsensitive: exact_smooth_epsilon_insensitive,
    losses.SmoothQuantile: exact_smooth_quantile,
}


@pytest.fixture(autouse=True)
def fifty_digits():
    with mp.workdps(50):
        yield


def labels_of(loss):
    """Labels from which no margin lies within rounding of a kink, where relative errors mean nothing."""
    return [-1.0, 1.0] if isinstance(loss, losses.Margin) else [0.0, -1.0, 0.45, 2.5, 1e3]


def grid(loss):
    y, z = np.meshgrid(labels_of(loss), MARGINS)
    return z.ravel(), y.ravel()


def slopes_and_more(loss):
    """Points of the domain: the slopes at all margins, a grid within, the ends, and one ulp inside the ends."""
    z, y = grid(loss)
    u = [loss.derivative(z, y)]
    labels = [y]
    for label in labels_of(loss):
        low, high = loss.domain(label)
        finite = [end for end in (low, high) if np.isfinite(end)]
        inside = [np.nextafter(end, 0.5 * (low + high)) for end in finite]
        fractions = np.array([1e-12, 1e-3, 0.25, 0.5, 0.9, 1.0 - 1e-12])
        within = low + fractions * (high - low) if len(finite) == 2 else np.clip([-3.7, -1e-9, 1e-9, 5.1], low, high)
        u.append(np.r_[finite, inside, within])
        labels.append(np.full(u[-1].size, label))
    return np.concatenate(u), np.concatenate(labels)


def assert_close(computed, exact, size, tolerance=TIGHT):
    """Compare with 50-digit numbers up to a fraction of ``size``; what underflows a float may be zero."""
    for got, want, scale in zip(computed, exact, size, strict=True):
        assert abs(mp.mpf(float(got)) - want) <= tolerance * abs(scale) + mp.mpf("1e-307"), (got, want)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
@pytest.mark.parametrize("method", ["value", "derivative", "second_derivative"])
def test_functions_of_the_margin_are_exact_to_rounding(loss, method):
    z, y = grid(loss)
    function = getattr(EXACT[type(loss)](loss), method)
    exact = [function(mp.mpf(a), mp.mpf(b)) for a, b in zip(z.tolist(), y.tolist(), strict=True)]
    assert_close(getattr(loss, method)(z, y), exact, exact)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_conjugate_is_the_exact_supremum_to_rounding(loss):
    u, y = slopes_and_more(loss)
    exact = EXACT[type(loss)](loss)
    values, sizes = zip(
        *(exact.conjugate(mp.mpf(a), mp.mpf(b)) for a, b in zip(u.tolist(), y.tolist(), strict=True)), strict=True
    )
    # A limit at the end of the domain stands as 10^30 minus 10^30 in 50 digits: measure it by one.
    sizes = [
        min(size, max(abs(value), 1)) if size > mp.mpf(10) ** 29 else size
        for value, size in zip(values, sizes, strict=True)
    ]
    assert_close(loss.conjugate(u, y), values, sizes)


def test_the_comparison_catches_a_formula_that_cancels():
    class Cancels(losses.Logistic):
        def value(self, z, y):
            return np.log(1.0 + np.exp(-np.abs(y * z))) + np.maximum(-y * z, 0.0)

    z, y = np.array([37.0]), np.array([1.0])
    exact = [exact_logistic(None).value(mp.mpf(37), mp.mpf(1))]
    assert_close(losses.Logistic().value(z, y), exact, exact)
    with pytest.raises(AssertionError):
        assert_close(Cancels().value(z, y), exact, exact)


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_slopes_of_huge_margins_stay_in_the_domain(loss):
    for label in labels_of(loss):
        z = np.array([-1e300, -1e16, -710.0, -36.8, 36.8, 710.0, 1e16, 1e300])
        slopes = loss.derivative(z, np.full(z.size, label))
        low, high = loss.domain(label)
        assert np.isfinite(slopes).all()
        assert ((low <= slopes) & (slopes <= high)).all()
        assert np.isfinite(loss.conjugate(slopes[np.abs(slopes) < 1e100], label)).all()


BOUNDED = [
    (loss, y, side) for loss in LOSSES for y in labels_of(loss) for side in (0, 1) if np.isfinite(loss.domain(y)[side])
]


@pytest.mark.parametrize(("loss", "y", "side"), BOUNDED, ids=str)
def test_conjugate_is_finite_up_to_the_end_of_its_domain_and_infinite_past_it(loss, y, side):
    end = loss.domain(y)[side]
    inwards, outwards = (np.inf, -np.inf) if side == 0 else (-np.inf, np.inf)
    at_end, inside = loss.conjugate(end, y), loss.conjugate(np.nextafter(end, inwards), y)
    assert np.isfinite(at_end)
    assert np.isfinite(inside)
    assert inside == pytest.approx(at_end, abs=1e-13 * (1.0 + abs(y)))  # φ* is closed: no jump at the end
    assert loss.conjugate(np.nextafter(end, outwards), y) == np.inf
    assert loss.conjugate(outwards, y) == np.inf


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_conjugate_is_infinite_where_the_slopes_cannot_reach(loss):
    """Past the end, zu − φ(z) has no bound: the domain is not wider than it should be, nor narrower."""
    for y in labels_of(loss):
        for side, end in zip((-1.0, 1.0), loss.domain(y), strict=True):
            z = side * 1e12
            if np.isfinite(end):
                past = end + side * 1e-3
                assert z * past - loss.value(z, y) > 1e8
                assert z * end - loss.value(z, y) <= loss.conjugate(end, y) + 1e-3
            else:
                assert side * loss.derivative(z, y) > 1e8
