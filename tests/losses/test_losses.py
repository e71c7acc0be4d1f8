"""The losses: their identities at random points, their symmetries and limits, and what their constructors refuse."""

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualnewton import DualnewtonError, losses
from tables import LOSSES, NON_SMOOTH, labels_for, name_of

by_loss = pytest.mark.parametrize("loss", LOSSES, ids=name_of)
margins = st.floats(-1e6, 1e6)
fractions = st.floats(0.0, 1.0)
labels = st.floats(-50.0, 50.0)


def label_of(loss, label):
    """Map a real number to a label of the loss."""
    return (1.0 if label > 0.0 else -1.0) if isinstance(loss, losses.Margin) else label


def point_of_domain(loss, fraction, y):
    """Map [0, 1] onto the domain of the conjugate, an infinite end cut at a thousand."""
    low, high = (min(max(end, -1e3), 1e3) for end in loss.domain(y))
    return min(max(low + fraction * (high - low), low), high)


def terms(loss, z, u, y):
    return abs(loss.value(z, y)) + abs(loss.conjugate(u, y)) + abs(u) * (abs(z) + abs(y)) + 1.0


# Duality -------------------------------------------------------------------------------------------------------------


def assert_fenchel_young(loss, z, u, y):
    """φ(z) + φ*(u) − zu ≥ (γ/2)(u − φ′(z))²: the inequality, and that it is strict away from u = φ′(z)."""
    defect = loss.value(z, y) + loss.conjugate(u, y) - z * u
    assert defect >= 0.5 * loss.gamma * (u - loss.derivative(z, y)) ** 2 - 1e-13 * terms(loss, z, u, y)


@by_loss
@given(z=margins, fraction=fractions, label=labels)
def test_fenchel_young_inequality(loss, z, fraction, label):
    y = label_of(loss, label)
    assert_fenchel_young(loss, z, point_of_domain(loss, fraction, y), y)


@by_loss
@given(z=margins, label=labels)
def test_fenchel_young_equality_at_the_slope(loss, z, label):
    y = label_of(loss, label)
    u = loss.derivative(z, y)
    assert abs(loss.value(z, y) + loss.conjugate(u, y) - z * u) <= 1e-13 * terms(loss, z, u, y)


def test_a_conjugate_too_small_breaks_the_inequality():
    class TooSmall(losses.Squared):
        def conjugate_inside(self, u, y):
            return u * (0.49 * u + y)

    assert_fenchel_young(losses.Squared(), 0.3, 1.0, 0.5)
    with pytest.raises(AssertionError):
        assert_fenchel_young(TooSmall(), 0.3, 1.0, 0.5)


@by_loss
@given(z=margins, other=margins, label=labels)
def test_slopes_are_monotone_lipschitz_and_in_the_domain(loss, z, other, label):
    y = label_of(loss, label)
    a, b = min(z, other), max(z, other)
    climb = loss.derivative(b, y) - loss.derivative(a, y)
    rounding = 1e-15 * (abs(a) + abs(b) + abs(y)) / loss.gamma
    assert -rounding <= climb <= (b - a) / loss.gamma + rounding
    low, high = loss.domain(y)
    assert low <= loss.derivative(z, y) <= high
    assert 0.0 <= loss.second_derivative(z, y) <= (1.0 + 1e-15) / loss.gamma


# Arrays and scalars --------------------------------------------------------------------------------------------------


@by_loss
@pytest.mark.parametrize("method", ["value", "derivative", "second_derivative", "conjugate"])
def test_arrays_are_scalars_side_by_side(loss, method):
    rng = np.random.default_rng(0)
    x, y = 2.0 * rng.standard_normal((4, 9)), labels_for(loss, 36, rng).reshape(4, 9)
    together = getattr(loss, method)(x, y)
    alone = [float(getattr(loss, method)(float(a), float(b))) for a, b in zip(x.flat, y.flat, strict=True)]
    assert together.shape == x.shape
    np.testing.assert_allclose(together.ravel(), alone, rtol=1e-14)


@by_loss
def test_domains_of_arrays_are_domains_of_scalars(loss):
    y = labels_for(loss, 10, np.random.default_rng(0))
    low, high = loss.domain(y)
    assert low.shape == high.shape == y.shape
    assert [loss.domain(float(label)) for label in y] == list(zip(low, high, strict=True))


@by_loss
def test_valid_labels(loss):
    y = np.array([1.0, -1.0, 0.5, 0.0, np.nan, np.inf, -np.inf])
    allowed = [True, True, False, False] if isinstance(loss, losses.Margin) else [True] * 4
    assert loss.valid_labels(y).tolist() == [*allowed, False, False, False]


# Symmetries and limits -----------------------------------------------------------------------------------------------


def functions_at(loss, z, y):
    u = loss.derivative(z, y)
    return np.array([loss.value(z, y), u, loss.second_derivative(z, y), loss.conjugate(u, y)])


@by_loss
def test_flipping_margin_and_label_flips_the_slope(loss):
    rng = np.random.default_rng(1)
    z, y = 3.0 * rng.standard_normal(50), labels_for(loss, 50, rng)
    mirrored = dataclasses.replace(loss, q=1.0 - loss.q) if hasattr(loss, "q") else loss
    signs = np.array([[1.0], [-1.0], [1.0], [1.0]])
    compare = np.testing.assert_array_equal if mirrored is loss else np.testing.assert_allclose
    compare(functions_at(mirrored, -z, -y), signs * functions_at(loss, z, y))


@pytest.mark.parametrize("width", [1.0, 0.1, 1e-3, 1e-6])
def test_smooth_hinge_tends_to_the_hinge(width):
    y = np.repeat([-1.0, 1.0], 401)
    z = y * np.tile(1.0 + np.linspace(-2.0, 2.0, 401), 2)
    below = np.maximum(1.0 - y * z, 0.0) - losses.SmoothHinge(width).value(z, y)
    assert below.min() >= -1e-15
    assert below.max() == pytest.approx(0.5 * width)  # reached on the whole linear part
    # The conjugates differ by the same parabola: the hinge's is yu on its domain.
    u = -y * np.linspace(0.0, 1.0, y.size)
    np.testing.assert_allclose(losses.SmoothHinge(width).conjugate(u, y) - y * u, 0.5 * width * u**2, atol=1e-15)


def test_squared_hinge_is_the_widest_smooth_hinge_times_its_width():
    y = np.repeat([-1.0, 1.0], 50)
    z = np.linspace(-90.0, 90.0, 100)
    wide = losses.SmoothHinge(width=100.0)
    np.testing.assert_allclose(100.0 * wide.value(z, y), losses.SquaredHinge().value(z, y), rtol=1e-14)
    np.testing.assert_allclose(100.0 * wide.derivative(z, y), losses.SquaredHinge().derivative(z, y), rtol=1e-14)


def test_huber_is_squared_within_delta_and_linear_beyond():
    rng = np.random.default_rng(2)
    z, y = rng.uniform(-3.0, 3.0, 100), rng.uniform(-3.0, 3.0, 100)
    np.testing.assert_allclose(functions_at(losses.Huber(1e3), z, y), functions_at(losses.Squared(), z, y), rtol=1e-13)
    slopes = losses.Huber(0.5).derivative(np.array([1.0, 10.0, -10.0]), np.zeros(3))
    assert slopes.tolist() == [0.5, 0.5, -0.5]


@pytest.mark.parametrize("method", ["value", "derivative", "second_derivative", "conjugate"])
def test_insensitive_to_nothing_is_squared(method):
    """With epsilon = 0, also at z = y, where φ is as smooth as anywhere."""
    z, y = np.meshgrid([-2.0, -1e-9, 0.0, 0.3, 5.0], [-1.0, 0.0, 0.3])
    insensitive = getattr(losses.SquaredEpsilonInsensitive(epsilon=0.0), method)(z, y)
    np.testing.assert_allclose(insensitive, getattr(losses.Squared(), method)(z, y), rtol=1e-15)


def test_squared_epsilon_insensitive_is_zero_in_its_tube():
    loss = losses.SquaredEpsilonInsensitive(epsilon=0.3)
    z = 1.0 + np.linspace(-0.29, 0.29, 7)
    y = np.ones(7)
    assert not loss.value(z, y).any()
    assert not loss.derivative(z, y).any()
    assert not loss.second_derivative(z, y).any()


def test_only_squared_is_quadratic():
    assert [type(loss).__name__ for loss in LOSSES if loss.curvature is losses.Curvature.CONSTANT] == ["Squared"]


# Values --------------------------------------------------------------------------------------------------------------


@by_loss
def test_losses_are_values(loss):
    twin = type(loss)(**dataclasses.asdict(loss))
    assert twin == loss
    assert twin is not loss
    assert hash(twin) == hash(loss)
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert eval(repr(loss), vars(losses)) == loss
    with pytest.raises(dataclasses.FrozenInstanceError):
        loss.width = 3.0
    assert all(loss != other for other in LOSSES if other is not loss)


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf, -np.inf, None, "wide", "2", [1.0, 2.0]])
@pytest.mark.parametrize(
    ("cls", "name", "allowed"),
    [
        (losses.SmoothHinge, "width", "> 0"),
        (losses.Huber, "delta", "> 0"),
        (losses.SquaredEpsilonInsensitive, "epsilon", ">= 0"),
        (losses.EpsilonInsensitive, "epsilon", ">= 0"),
        (losses.SmoothEpsilonInsensitive, "epsilon", ">= 0"),
        (losses.SmoothEpsilonInsensitive, "width", "> 0"),
        (losses.SmoothQuantile, "width", "> 0"),
    ],
)
def test_parameters_that_make_no_loss_are_refused(cls, name, allowed, bad):
    with pytest.raises(ValueError, match=f"{name} must be a finite number {allowed}, got"):
        cls(**{name: bad})


@pytest.mark.parametrize(("cls", "name"), [(losses.SmoothHinge, "width"), (losses.Huber, "delta")])
def test_zero_is_refused_where_the_loss_would_not_be_smooth_or_not_a_loss(cls, name):
    with pytest.raises(ValueError, match=f"{name} must be a finite number > 0, got 0"):
        cls(**{name: 0.0})


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.5, 2.0, np.nan, np.inf, None, "0.5", [0.1, 0.2]])
@pytest.mark.parametrize("cls", [losses.Quantile, losses.SmoothQuantile])
def test_a_quantile_lies_between_zero_and_one(cls, bad):
    with pytest.raises(ValueError, match=r"q \(the quantile\) must be a number > 0 and < 1, got"):
        cls(q=bad)


@pytest.mark.parametrize("q", [0.1, 0.5, 0.8])
def test_the_pinball_loss_has_the_quantile_as_its_minimiser(q):
    y = np.random.default_rng(3).standard_normal(41)
    candidates = [losses.Quantile(q).value(np.full(41, z), y).sum() for z in y]
    assert y[np.argmin(candidates)] == np.quantile(y, q, method="inverted_cdf")


@pytest.mark.parametrize("method", ["value", "derivative", "conjugate"])
def test_the_pinball_loss_of_the_median_is_half_the_absolute_error(method):
    z, y, u = np.linspace(-2.0, 3.0, 41), np.full(41, 0.7), np.linspace(-0.5, 0.5, 41)
    median, absolute = losses.Quantile(0.5), losses.EpsilonInsensitive(0.0)
    if method == "conjugate":  # (φ/2)*(u) = φ*(2u)/2
        np.testing.assert_allclose(median.conjugate(u, y), 0.5 * absolute.conjugate(2.0 * u, y), rtol=1e-15)
    else:
        np.testing.assert_allclose(getattr(median, method)(z, y), 0.5 * getattr(absolute, method)(z, y), atol=1e-15)


@pytest.mark.parametrize("loss", NON_SMOOTH, ids=name_of)
def test_the_limit_of_the_slopes_is_the_larger_end_of_the_domain(loss):
    low, high = loss.domain(labels_for(loss, 50, np.random.default_rng(0)))
    assert loss.slope_limit == pytest.approx(max(-low.min(), high.max()), rel=1e-15)


@pytest.mark.parametrize("loss", NON_SMOOTH, ids=name_of)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_best_intercept_of_a_kinked_loss_is_a_minimiser(loss, weighted):
    """The minimum over b is at a kink: no kink gives a smaller sum, however the slope jumps over zero."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        z, y = 10.0 ** rng.integers(-3, 4) * rng.standard_normal(31), labels_for(loss, 31, rng)
        c = rng.integers(0, 4, 31) * 1.0 if weighted else None

        def total(b, z=z, y=y, c=c):
            return float((np.ones(31) if c is None else c) @ loss.value(z + b, y))

        best = total(loss.best_intercept(z, y, c))
        kinks = np.concatenate([kink.position - z for kink in loss.kinks(y)])
        assert best <= min(map(total, kinks)) * (1.0 + 1e-13) + 1e-12


@pytest.mark.parametrize("c", [None, np.array([0.5, 2.0, 0.0, 1.5, 3.0])], ids=["plain", "weighted"])
def test_the_best_intercept_of_no_margins_is_the_log_odds(c):
    y, z = np.array([1.0, -1.0, 1.0, 1.0, 1.0]), np.zeros(5)
    loss = losses.Logistic()
    searched = losses.Loss.best_intercept(loss, z, y, c)
    assert loss.best_intercept(z, y, c) == pytest.approx(searched, rel=1e-12)


@pytest.mark.parametrize(("near", "expected"), [(0.0, 1.25), (1.6, 1.6), (9.0, 1.75)])
def test_of_an_interval_of_best_intercepts_the_one_next_to_the_last_is_taken(near, expected):
    """The median of 1 and 2, away from both: at a kink rounding would be a loss."""
    assert losses.Quantile(0.5).best_intercept(np.zeros(2), np.array([1.0, 2.0]), None, near=near) == expected


def test_all_labels_alike_leave_no_loss():
    assert losses.Hinge().value(losses.Hinge().best_intercept(np.array([0.3, 5.0]), np.ones(2), None) + 0.3, 1.0) == 0.0
    y = -np.ones(2)
    assert losses.Hinge().value(losses.Hinge().best_intercept(np.array([0.3, 5.0]), y, None) + 5.0, -1.0) == 0.0


def test_a_loss_not_finished_says_which_method_it_lacks():
    unfinished = losses.Loss()
    for method in ("value", "derivative", "second_derivative", "conjugate_inside"):
        with pytest.raises(NotImplementedError, match=f"Loss has no {method}"):
            getattr(unfinished, method)(0.0, 1.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", [*LOSSES, losses.SquaredOutputs(3), losses.Softmax(3)], ids=name_of)
def test_a_sum_computed_with_the_derivatives_is_the_sum_of_the_values(loss, weighted):
    rng = np.random.default_rng(1)
    z = np.asfortranarray(rng.standard_normal((50, loss.columns)))
    y = z + 1.0 if isinstance(loss, losses.SquaredOutputs) else labels_for(loss, 50, rng)
    z, c = z if loss.columns > 1 else z[:, 0], rng.uniform(0.0, 2.0, 50) if weighted else None
    total, slopes = loss.sum_and_derivative(z, y, c)
    np.testing.assert_allclose(total, np.dot(np.ones(50) if c is None else c, loss.value(z, y)), rtol=1e-13)
    np.testing.assert_allclose(slopes, loss.derivative(z, y), rtol=4e-16, atol=0.0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_the_sum_of_conjugates_is_that_of_each_and_infinite_outside_of_the_domain(loss, weighted):
    rng = np.random.default_rng(2)
    y, c = labels_for(loss, 50, rng), rng.uniform(0.5, 2.0, 50) if weighted else None
    alpha = -loss.derivative(rng.standard_normal(50), y)  # on the boundary, too: there are margins on linear pieces
    ones = np.ones(50) if c is None else c
    np.testing.assert_allclose(loss.conjugates(alpha, y, c), ones @ loss.conjugate(-alpha, y), rtol=1e-12)
    outside, inside = alpha.copy(), np.isfinite(loss.conjugate(np.full(2, 1e3), y[:2])).all()
    outside[7] = 1e3 * (-y[7] if isinstance(loss, losses.Margin) else 1.0)
    total = loss.conjugates(outside, y, c)
    assert np.isfinite(total) == (np.isfinite(loss.conjugate(-outside[7:8], y[7:8]))[0] and inside)
    if weighted and not np.isfinite(total):
        c[7] = 0.0  # a row without a weight proves nothing wrong
        assert np.isfinite(loss.conjugates(outside, y, c))


def test_the_losses_at_zero_of_hubers_loss_are_bounded():
    """The certificate's bound on rounding errors needs no more, and the sum of all would take a pass."""
    rng = np.random.default_rng(3)
    for y, delta in itertools.product(
        (rng.standard_normal(80), rng.standard_cauchy(80), np.full(80, 5.0)), (0.1, 1.0, 9.0)
    ):
        loss = losses.Huber(delta)
        at_zero, bound = loss.value(np.zeros(80), y).sum(), loss.sizes_at_zero(80.0, float(y @ y))
        assert at_zero <= bound * (1.0 + 1e-14)
        assert bound <= 0.5 * y @ y


def test_a_loss_derived_from_the_squared_one_has_sums_of_its_own_values():
    class Doubled(losses.Squared):
        def value(self, z, y):
            return (z - y) ** 2

        def derivative(self, z, y):
            return 2.0 * (z - y)

    total, slopes = Doubled().sum_and_derivative(np.array([3.0, 1.0]), np.zeros(2), None)
    assert total == 10.0
    np.testing.assert_array_equal(slopes, [6.0, 2.0])


@pytest.mark.parametrize("loss", LOSSES, ids=name_of)
def test_functions_computed_together_are_those_computed_alone(loss):
    z = np.concatenate([np.linspace(-40.0, 40.0, 401), [0.0, 1.0, -1.0, 1e4, -1e4]])
    for label in labels_for(loss, 5, np.random.default_rng(0)):
        y = np.full(z.size, label)
        value, slope = loss.value_and_derivative(z, y)
        np.testing.assert_allclose(value, loss.value(z, y), rtol=1e-15, atol=0.0)
        np.testing.assert_allclose(slope, loss.derivative(z, y), rtol=1e-15, atol=0.0)
        slope, curvature = loss.derivatives(z, y)
        np.testing.assert_allclose(slope, loss.derivative(z, y), rtol=4e-16, atol=0.0)
        np.testing.assert_allclose(curvature, loss.second_derivative(z, y), rtol=1e-15, atol=0.0)


@pytest.mark.parametrize("loss", [losses.Squared(), losses.Logistic(), losses.Huber()], ids=repr)
def test_a_dual_point_that_is_not_a_number_has_an_infinite_conjugate(loss):
    assert loss.conjugates(np.array([0.5, np.nan]), np.ones(2), None) == np.inf


@pytest.mark.parametrize("loss", [losses.Logistic(), losses.Poisson()], ids=lambda loss: type(loss).__name__)
def test_the_curvature_of_conjugates_near_the_boundary(loss):
    # With (3/4)m = the distance of u = φ′(z), φ*″ ≤ κ/m at all points nearer than half of that distance; φ*″(φ′(z)) = 1/φ″(z).
    z, y = np.linspace(-6.0, 6.0, 241), np.ones(241)
    u, curvature = loss.derivative(z, y), 1.0 / loss.second_derivative(z, y)
    room = loss.room(-u, y)
    near = np.abs(u[:, None] - u) <= 0.5 * room[:, None]
    worst = (np.where(near, curvature, 0.0).max(axis=1) * room / 0.75).max()
    assert 0.5 * loss.dual_curvature < worst <= loss.dual_curvature * (1.0 + 1e-9)


def test_a_loss_that_cannot_be_smoothed_is_reported():
    class NotSmoothed(losses.EpsilonInsensitive):
        def smoothed(self, width):
            raise NotImplementedError("NotSmoothed has no smoothed(width)")

    class SmoothedToNothing(losses.EpsilonInsensitive):
        def smoothed(self, width):  # noqa: ARG002
            return None

    with pytest.raises(DualnewtonError, match=r"NotSmoothed is not complete: NotSmoothed has no smoothed\(width\)"):
        losses.check(NotSmoothed())
    with pytest.raises(DualnewtonError, match=r"smoothed\(.*\) must return a loss, got None"):
        losses.check(SmoothedToNothing())
