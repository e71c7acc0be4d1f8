"""The identities tested by ``losses.check``: one small function each, which yields a sentence if the identity fails."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from dualnewton._identities import ROUNDING, STEP, UnusableError, broken, call, failures, report
from dualnewton.errors import DualnewtonError
from dualnewton.losses.base import Curvature, Loss

_LABELS = np.array([-1.0, 1.0, 0.0, 0.5, -2.5, 3.0, 40.0])
"""Test labels; those that the loss declares valid are used."""

_WIDTHS = (0.01, 1.0, 7.0)
"""Widths at which the smoothed versions of a loss with kinks are tested."""

_OFFSETS = np.concatenate([np.outer([-2.7, -1.0, 1.0, 2.7], 10.0 ** np.arange(-8, 9)).ravel(), np.linspace(-4, 4, 81)])
"""Test margins, used relative to zero and relative to the label: all scales, and a fine grid where kinks are likely."""

_BOUNDED = 30.0
"""Largest |z| tested for a smooth loss without γ: such a loss may grow exponentially and overflow at larger margins."""

_BESIDE = 1e-6
"""Distance from a declared kink at which φ′ is compared with the declared slopes, as a fraction of 1 + |z|."""


def check_loss(loss: Loss) -> None:
    """Raise a ``DualnewtonError`` that names each identity which ``loss`` breaks; see :func:`dualnewton.losses.check`."""
    if not isinstance(loss, Loss):
        raise DualnewtonError(f"loss must be an instance such as losses.Logistic(), got {loss!r}")
    if loss.columns > 1:
        from dualnewton.losses.checks_columns import check_columns

        check_columns(loss)
        return
    # The identities need finite function values, and these need valid labels: test labels, then methods, then identities.
    report(loss, failures(_labels, loss))
    report(loss, (words for usable in (_gamma, _loss_methods) for words in failures(usable, loss)))
    tried = _LossPoints(loss)
    with_gamma = () if loss.gamma is None else _GAMMA_IDENTITIES
    identities = _KINKED_IDENTITIES if loss.kinked else (*_SMOOTH_IDENTITIES, *with_gamma)
    report(loss, (words for identity in (*_IDENTITIES, *identities) for words in failures(identity, tried)))
    if loss.kinked:
        report(loss, failures(_can_be_smoothed, loss))
        for width in _WIDTHS:
            check_loss(loss.smoothed(width))
            report(loss, _smoothed(tried, loss.smoothed(width), width))
    else:
        _hint_at_larger_gamma(tried)


# Labels, γ and the shape of results ----------------------------------------------------------------------------------


def _gamma(loss: Loss) -> Iterator[str]:
    gamma = loss.gamma
    if gamma is not None and not (isinstance(gamma, int | float | np.integer | np.floating) and 0.0 < gamma < np.inf):
        yield f"has gamma={gamma!r}: give the largest finite gamma > 0 known for which the loss is 1/gamma-smooth, or None"


def _labels(loss: Loss) -> Iterator[str]:
    not_finite = np.array([np.nan, np.inf, -np.inf])
    mask = np.asarray(call(loss, "valid_labels", np.concatenate([_LABELS, not_finite])))
    if mask.shape != (_LABELS.size + 3,) or mask.dtype != np.bool_:
        raise UnusableError(f"gives no mask of its labels: valid_labels must return one bool per label, got {mask!r}")
    if not mask[:-3].any():
        raise UnusableError(f"allows no label: valid_labels refuses each of {_LABELS.tolist()}")
    if mask[-3:].any():
        yield f"allows the label {not_finite[mask[-3:]][0]}: valid_labels must refuse what is not finite"


def _can_be_smoothed(loss: Loss) -> Iterator[str]:
    for width in _WIDTHS:
        if not isinstance(found := call(loss, "smoothed", width), Loss):
            yield f"cannot be smoothed: smoothed({width:g}) must return a loss, got {found!r}"


def _loss_methods(loss: Loss) -> Iterator[str]:
    """Each method maps arrays to finite arrays of the same shape, and gives the same numbers for scalars."""
    mask = np.asarray(call(loss, "valid_labels", _LABELS))
    y, z = (x.ravel() for x in np.broadcast_arrays(_LABELS[mask][:, None], _offsets(loss)))
    for method in ("value", "derivative", "second_derivative"):
        yield from failures(lambda name: _elementwise(loss, name, z, y), method)
    low, high = _domain(loss, y)
    for method in ("conjugate_inside", "conjugate"):
        yield from failures(lambda name: _elementwise(loss, name, np.clip(z, low, high), y), method)


def _offsets(loss: Loss) -> np.ndarray:
    """Return the margins at which the loss is tested."""
    return _OFFSETS[np.abs(_OFFSETS) <= _BOUNDED] if loss.gamma is None and not loss.kinked else _OFFSETS


def _domain(loss: Loss, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = call(loss, "domain", y)
    try:
        low, high = (np.broadcast_to(end, y.shape) for end in ends)
    except (TypeError, ValueError):
        raise UnusableError(f"has no domain: domain(y) must return the pair (low, high), got {ends!r}") from None
    for k in broken(~(low < high) * 1.0, 0.0, y):
        raise UnusableError(f"has no domain: it must be low < high, got {low[k]:g} and {high[k]:g} at y={y[k]:g}")
    return low, high


def _elementwise(loss: Loss, method: str, x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    found = call(loss, method, x, y)
    result = np.asarray(found)
    if not isinstance(found, np.ndarray) and result.shape:
        raise UnusableError(f"is not elementwise: {method} of an array gave a {type(found).__name__}")
    if result.shape != x.shape or not np.issubdtype(result.dtype, np.floating):
        seen = f"{result.dtype} of shape {result.shape}"
        raise UnusableError(f"is not elementwise: {method} of floats of shape {x.shape} gave {seen}")
    for k in broken(~np.isfinite(result) * 1.0, 0.0, x):
        raise UnusableError(f"is not finite: {method} at {x[k]:g}, y={y[k]:g} is {result[k]}")
    few = np.linspace(0, x.size - 1, 40).astype(int)
    alone = np.array([np.asarray(call(loss, method, float(x[k]), float(y[k]))).item() for k in few])
    for (k,) in broken(np.abs(alone - result[few]), ROUNDING * np.abs(result[few]), x[few]):
        seen = f"{alone[k]:.8g} alone and {result[few[k]]:.8g} in an array"
        yield f"treats scalars and arrays differently: {method} at {x[few[k]]:g}, y={y[few[k]]:g} is {seen}"


# The identities ------------------------------------------------------------------------------------------------------


class _LossPoints:
    """The margins and labels at which a loss is tested, one row per label, and the function values there."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.gamma = 0.0 if loss.gamma is None else float(loss.gamma)
        labels = _LABELS[call(loss, "valid_labels", _LABELS)]
        self.label = labels[:, None]
        offsets = _offsets(loss)
        self.z = np.sort(np.concatenate([0.0 * self.label + offsets, self.label + offsets], axis=1), axis=1)
        self.y = np.broadcast_to(self.label, self.z.shape)
        self.value = self.of("value", self.z)
        self.slope = self.of("derivative", self.z)
        self.curvature = self.of("second_derivative", self.z)
        self.low, self.high = (end[:, None] for end in _domain(loss, labels))
        self.u = np.clip(self.slope, self.low, self.high)
        self.conjugate = self.of("conjugate", self.u)

    def of(self, method: str, x: np.ndarray) -> np.ndarray:
        """Apply a method of the loss to one row of arguments per label."""
        y = np.broadcast_to(self.label, x.shape)
        return np.asarray(call(self.loss, method, x.ravel(), y.ravel())).reshape(x.shape)

    def ends(self) -> np.ndarray:
        """Return the two ends of each domain; an infinite end is replaced by a point of the domain."""
        return np.concatenate([np.where(np.isfinite(end), end, self.u[:, :1]) for end in (self.low, self.high)], axis=1)

    def rounding_of_value(self, value: np.ndarray) -> np.ndarray:
        """Bound the rounding error of φ(z) that comes from z, y and φ itself."""
        return ROUNDING * (1.0 + np.abs(value) + np.abs(self.slope) * (np.abs(self.z) + np.abs(self.y)))

    def rounding_of_slope(self, z: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Bound the rounding error of φ′(z) that comes from z, y and φ′ itself."""
        steepest = 1.0 / self.gamma if self.gamma else self.curvature
        return ROUNDING * (1.0 + np.abs(slope) + (np.abs(z) + np.abs(self.label)) * steepest)


def _pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair the points of each row with the next larger ones, which detects kinks, and with random ones, for the global shape."""
    x = np.sort(x, axis=1)
    other = x[:, np.random.default_rng(0).permutation(x.shape[1])]
    return np.concatenate([x[:, :-1], x], axis=1), np.concatenate([x[:, 1:], other], axis=1)


def _value_is_convex(tried: _LossPoints) -> Iterator[str]:
    """φ((z + t)/2) ≤ (φ(z) + φ(t))/2."""
    return _halfway(tried, "value", tried.z, 0.0, "convex")


def _conjugate_is_strongly_convex(tried: _LossPoints) -> Iterator[str]:
    """φ*((u + t)/2) ≤ (φ*(u) + φ*(t))/2 − γ(u − t)²/8, with γ = 0 for a loss without γ."""
    words = f"gamma-strongly convex with gamma={tried.gamma:g}" if tried.gamma else "convex"
    return _halfway(tried, "conjugate", np.concatenate([tried.u, tried.ends()], axis=1), tried.gamma, words)


def _halfway(tried: _LossPoints, method: str, points: np.ndarray, modulus: float, words: str) -> Iterator[str]:
    a, b = _pairs(points)
    middle = 0.5 * (a + b)
    at_a, at_b, halfway = (tried.of(method, x) for x in (a, b, middle))
    bound = 0.5 * (at_a + at_b) - 0.125 * modulus * (a - b) ** 2
    terms = np.abs(at_a) + np.abs(at_b) + (np.abs(a) + np.abs(b)) * np.abs(tried.label)
    # At the end of its domain φ* may have infinite slope: the change by one ulp of the argument is allowed.
    ulp = np.maximum(*(np.abs(tried.of(method, np.nextafter(middle, end)) - halfway) for end in (a, b)))
    for k in broken(halfway - bound, ROUNDING * (1.0 + terms) + ulp, a):
        seen = f"y={tried.label[k[0], 0]:g}, it is {halfway[k]:.8g} but may be at most {bound[k]:.8g}"
        yield f"has a {method} that is not {words}: halfway between {a[k]:.8g} and {b[k]:.8g}, {seen}"


def _derivative_is_slope_of_value(tried: _LossPoints) -> Iterator[str]:
    """(φ(b) − φ(a))/(b − a) lies between φ′(a) and φ′(b)."""
    step = STEP * (1.0 + np.abs(tried.z))
    a, b = tried.z - step, tried.z + step
    at_a, at_b = tried.of("value", a), tried.of("value", b)
    secant = (at_b - at_a) / (b - a)
    slopes = np.sort([tried.of("derivative", a), tried.slope, tried.of("derivative", b)], axis=0)
    outside = np.maximum(slopes[0] - secant, secant - slopes[-1])
    for k in broken(outside, tried.rounding_of_value(np.abs(at_a) + np.abs(at_b)) / step, tried.z):
        seen = f"value climbs by {secant[k]:.8g} per unit but derivative is {tried.slope[k]:.8g}"
        yield f"has a derivative that is not the slope of value: around z={tried.z[k]:.8g}, y={tried.y[k]:g} {seen}"


def _second_derivative_is_slope_of_derivative(tried: _LossPoints) -> Iterator[str]:
    """φ″ agrees with the left and right difference quotients of φ′; where these differ φ′ has a kink, which is skipped."""
    excess, climbs = [], []
    for shortening in (1.0, 1e-4):  # long steps suppress rounding, short ones resolve narrow losses: one must agree
        step = shortening * STEP * (1.0 + np.abs(tried.z))
        a, b = tried.z - step, tried.z + step
        left = (tried.slope - tried.of("derivative", a)) / (tried.z - a)
        right = (tried.of("derivative", b) - tried.slope) / (b - tried.z)
        rounding = tried.rounding_of_slope(tried.z, tried.slope) / step
        kink = np.abs(right - left) > 1e-2 * np.abs(right + left) + rounding
        climbs.append(0.5 * (left + right))
        allowed = np.abs(right - left) + 1e-4 * np.abs(climbs[-1]) + rounding
        excess.append(np.where(kink, 0.0, np.abs(tried.curvature - climbs[-1]) / allowed))
    for k in broken(np.minimum(*excess), 1.0, tried.z):
        place = f"around z={tried.z[k]:.8g}, y={tried.y[k]:g}"
        seen = f"derivative climbs by {climbs[0][k]:.8g} per unit but second_derivative is {tried.curvature[k]:.8g}"
        yield f"has a second_derivative that is not the slope of derivative: {place} {seen}"


def _second_derivative_in_range(tried: _LossPoints) -> Iterator[str]:
    """0 ≤ φ″ ≤ 1/γ."""
    steepest = 1.0 / tried.gamma if tried.gamma else np.inf
    allowed = 1e-9 * min(steepest, float(np.abs(tried.curvature).max()))
    for k in broken(np.maximum(-tried.curvature, tried.curvature - steepest), allowed, tried.z):
        seen = f"at z={tried.z[k]:.8g}, y={tried.y[k]:g} it is {tried.curvature[k]:.8g}"
        yield f"has a second_derivative outside [0, 1/gamma] = [0, {steepest:.8g}]: {seen}"


def _derivative_is_lipschitz(tried: _LossPoints) -> Iterator[str]:
    """|φ′(z) − φ′(t)| ≤ |z − t|/γ."""
    a, b = _pairs(tried.z)
    at_a, at_b = tried.of("derivative", a), tried.of("derivative", b)
    change, bound = np.abs(at_b - at_a), np.abs(b - a) / tried.gamma
    rounding = tried.rounding_of_slope(np.abs(a) + np.abs(b), np.abs(at_a) + np.abs(at_b))
    for k in broken(change - bound, 1e-9 * bound + rounding, a):
        place = f"from z={a[k]:.8g} to t={b[k]:.8g}, y={tried.label[k[0], 0]:g},"
        seen = f"derivative changes by {change[k]:.8g}, more than |z-t|/gamma = {bound[k]:.8g}"
        yield f"is not 1/gamma-smooth with gamma={tried.gamma:g}: {place} {seen}"


def _derivative_lies_in_domain(tried: _LossPoints) -> Iterator[str]:
    """−α = φ′(z) lies in the domain of φ* exactly: one ulp outside, the dual value would be −∞."""
    for k in broken(np.maximum(tried.low - tried.slope, tried.slope - tried.high), 0.0, tried.z):
        seen = f"phi'(z)={tried.slope[k]:.17g} lies outside [{tried.low[k[0], 0]:.17g}, {tried.high[k[0], 0]:.17g}]"
        yield f"has a domain too narrow: at z={tried.z[k]:.8g}, y={tried.y[k]:g} the slope {seen}"


def _domain_is_reached(tried: _LossPoints) -> Iterator[str]:
    """The domain is the closure of the range of φ′: at large |z|, φ′ is near a finite end, or still grows towards infinity."""
    ends = np.array([tried.low, tried.high])
    largest = np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0)
    scale = np.where(largest > 0.0, largest, 1.0 / tried.gamma)
    # φ′ is 1/γ-Lipschitz: it cannot reach an end u before |z| is about γ|u|.
    far = 1e8 * np.maximum(np.maximum(1.0, np.abs(tried.label)), tried.gamma * largest)
    for side, end in ((-1.0, tried.low), (1.0, tried.high)):
        slope, before = tried.of("derivative", side * far), tried.of("derivative", 1e-4 * side * far)
        short_of = side * (end - slope) > 1e-3 * scale
        stalled = np.abs(slope - before) <= 1e-2 * np.abs(slope)
        for k in broken(np.where(np.isfinite(end), short_of, stalled) * 1.0, 0.0, tried.label):
            seen = (
                f"but the slope phi'(z) is {slope[k]:.8g} even at z={side * far[k]:g}; beyond it the conjugate is +inf"
            )
            yield f"has a domain too wide: at y={tried.label[k]:g} it reaches to {end[k]:g}, {seen}"


def _fenchel_young_equality(tried: _LossPoints) -> Iterator[str]:
    """φ(z) + φ*(u) = zu at u = φ′(z)."""
    total, product = tried.value + tried.conjugate, tried.z * tried.u
    # Slopes outside the domain are skipped: _derivative_lies_in_domain reports them.
    defect = np.where(tried.u == tried.slope, np.abs(total - product), 0.0)
    for k in broken(defect, tried.rounding_of_value(np.abs(tried.value) + np.abs(tried.conjugate)), tried.z):
        seen = f"the sum value+conjugate is {total[k]:.8g} but z*u is {product[k]:.8g}; is conjugate_inside right?"
        yield f"breaks Fenchel–Young: at z={tried.z[k]:.8g}, y={tried.y[k]:g}, u=phi'(z)={tried.slope[k]:.8g} {seen}"


def _fenchel_young_inequality(tried: _LossPoints) -> Iterator[str]:
    """φ(z) + φ*(u) ≥ zu for every z and every u in the domain."""
    z, value = tried.z[:, :, None], tried.value[:, :, None]
    u, conjugate = tried.u[:, None, :], tried.conjugate[:, None, :]
    total, product = value + conjugate, z * u
    terms = np.abs(value) + np.abs(conjugate) + np.abs(u) * (np.abs(z) + np.abs(tried.label[:, :, None]))
    for k in broken(product - total, ROUNDING * (1.0 + terms), z):
        place = f"z={tried.z[k[:2]]:.8g}, y={tried.y[k[:2]]:g}, u={tried.u[k[::2]]:.8g}"
        seen = f"the sum value+conjugate is {total[k]:.8g}, below z*u = {product[k]:.8g}"
        yield f"breaks the Fenchel–Young inequality: at {place} {seen}"


def _conjugate_at_the_ends(tried: _LossPoints) -> Iterator[str]:
    """φ* is finite at a finite end of its domain and +∞ past it."""
    ends = tried.ends()
    past = np.concatenate([np.nextafter(tried.low, -np.inf), np.nextafter(tried.high, np.inf)], axis=1)
    at_end, beyond = tried.of("conjugate", ends), tried.of("conjugate", past)
    for k in broken(~np.isfinite(at_end) * 1.0, 0.0, tried.label):
        yield f"has a conjugate that is {at_end[k]} at the end u={ends[k]:g} of its domain, y={tried.label[k[0], 0]:g}"
    for k in broken(np.isfinite(past) * (beyond != np.inf) * 1.0, 0.0, tried.label):
        place = f"just past the end u={ends[k]:g} of its domain, y={tried.label[k[0], 0]:g}"
        yield f"has a conjugate that is {beyond[k]:.8g} {place}; there it must be +inf"


def _declared_sign(tried: _LossPoints) -> Iterator[str]:
    """A loss that declares to be nonnegative has simpler bounds on rounding errors, which would be too small otherwise."""
    if tried.loss.nonnegative:
        for k in broken(-tried.value, tried.rounding_of_value(tried.value), tried.z):
            seen = f"at z={tried.z[k]:.8g}, y={tried.y[k]:g} it is {tried.value[k]:.8g}"
            yield f"declares to be nonnegative, but has a value below zero: {seen}"


def _declared_curvature(tried: _LossPoints) -> Iterator[str]:
    """CONSTANT declares that φ″ is one number everywhere (Theorem 7), PIECEWISE that it is one number or zero."""
    low, high = tried.curvature.min(), tried.curvature.max()
    near = 1e-9 * high
    if tried.loss.curvature is Curvature.CONSTANT and high - low > near:
        yield f"declares CONSTANT curvature, but second_derivative is not constant: it runs from {low:.8g} to {high:.8g}"
    between = np.minimum(np.abs(tried.curvature), np.abs(tried.curvature - high))
    if tried.loss.curvature is Curvature.PIECEWISE:
        for k in broken(between, near, tried.z):
            seen = f"at z={tried.z[k]:.8g}, y={tried.y[k]:g} it is {tried.curvature[k]:.8g}"
            yield f"declares PIECEWISE curvature, but second_derivative is neither 0 nor {high:.8g}: {seen}"


def _declared_self_concordance(tried: _LossPoints) -> Iterator[str]:
    """|φ‴| ≤ Mφ″, so that |log φ″(z) − log φ″(t)| ≤ M|z − t|; it replaces γ if φ″ has no bound."""
    if (M := tried.loss.self_concordance) is None:
        return
    a, b = _pairs(tried.z)
    at_a, at_b = (np.maximum(tried.of("second_derivative", x), np.finfo(float).tiny) for x in (a, b))
    change, bound = np.abs(np.log(at_a) - np.log(at_b)), M * np.abs(b - a)
    for k in broken(change, bound + 1e-9 * (1.0 + bound + np.abs(a) + np.abs(b)), a):
        place = f"from z={a[k]:.8g} to t={b[k]:.8g}, y={tried.label[k[0], 0]:g},"
        seen = f"log second_derivative changes by {change[k]:.8g}, more than M|z-t| = {bound[k]:.8g}"
        yield f"is not self-concordant with M={M:g}: {place} {seen}"


def _no_kinks(tried: _LossPoints) -> Iterator[str]:
    """A smooth loss declares no kinks."""
    if tried.loss.kinks(tried.label[:, 0]):
        yield "declares kinks, but is not a NonSmooth loss"


def _declared_kinks(tried: _LossPoints) -> Iterator[str]:
    """φ′ is the left slope just left of a kink, and the right slope just right of it."""
    y = tried.label[:, 0]
    for number, kink in enumerate(call(tried.loss, "kinks", y)):
        step = _BESIDE * (1.0 + np.abs(kink.position))
        for side, slope in ((-1.0, kink.left), (1.0, kink.right)):
            z = kink.position + side * step
            seen = np.asarray(call(tried.loss, "derivative", z, y))
            for k in broken(np.abs(seen - slope), 1e-4 * (1.0 + np.abs(slope)), z):
                place = f"just {'left' if side < 0.0 else 'right'} of kink {number}, at z={z[k]:.8g}, y={y[k]:g},"
                yield f"declares a kink that does not exist: {place} derivative is {seen[k]:.8g} but the kink says {slope[k]:.8g}"


def _smoothed(tried: _LossPoints, smoothed: Loss, width: float) -> Iterator[str]:
    """φ_μ*(u) = φ*(u) + μu²/2 on the same domain, which also makes φ_μ 1/μ-smooth."""
    if smoothed.gamma != width:
        yield f"has a loss smoothed({width:g}) with gamma={smoothed.gamma}: gamma must equal the width"
    near = _LossPoints(smoothed)
    if not (np.array_equal(near.low, tried.low) and np.array_equal(near.high, tried.high)):
        yield f"has a loss smoothed({width:g}) whose conjugate has a different domain"
        return
    u = np.concatenate([near.u, tried.ends()], axis=1)
    defect = np.abs(near.of("conjugate", u) - tried.of("conjugate", u) - 0.5 * width * np.square(u))
    allowed = ROUNDING * (1.0 + np.abs(u) * np.abs(tried.label) + width * np.square(u))
    for k in broken(defect, allowed, u):
        yield (
            f"has a loss smoothed({width:g}) whose conjugate at u={u[k]:.8g}, y={tried.label[k[0], 0]:g} is wrong by "
            f"{defect[k]:.3g}: it must be the conjugate of the loss plus width*u**2/2"
        )


_IDENTITIES = (
    _value_is_convex,
    _derivative_is_slope_of_value,
    _derivative_lies_in_domain,
    _fenchel_young_equality,
    _fenchel_young_inequality,
    _conjugate_at_the_ends,
    _declared_sign,
)
"""Identities of every loss."""

_KINKED_IDENTITIES = (_declared_kinks,)

_SMOOTH_IDENTITIES = (
    _second_derivative_is_slope_of_derivative,
    _second_derivative_in_range,
    _declared_curvature,
    _declared_self_concordance,
    _conjugate_is_strongly_convex,
    _no_kinks,
)

_GAMMA_IDENTITIES = (_derivative_is_lipschitz, _domain_is_reached)
"""Identities of smooth losses that declare γ."""


def _hint_at_larger_gamma(tried: _LossPoints) -> None:
    """Warn of a γ far smaller than necessary: the results stay correct, but the rates and bounds that use γ are weaker."""
    if tried.gamma and 0.0 < (steepest := float(tried.curvature.max())) < 0.5 / tried.gamma:
        seen = f"{type(tried.loss).__name__} has gamma={tried.gamma:g}, but no curvature above {steepest:.4g} was seen"
        hint = f"if the loss is 1/gamma-smooth with gamma={1.0 / steepest:.4g}, declare it, and every bound improves"
        warnings.warn(f"{seen}: {hint}", stacklevel=4)  # at the caller of losses.check
