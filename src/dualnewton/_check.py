"""The identities behind ``losses.check`` and ``regularizers.check``: one small function each, speaking plain words.

Every function looks at one set of tried points and yields a sentence, with the numbers seen, where its identity is
broken. The comparisons leave room for rounding only. In particular no slope is compared with a finite difference up to
a guessed truncation error: by convexity a secant's slope lies between the derivatives at its ends, kinks or not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dualnewton._validate import Array
from dualnewton.errors import DualnewtonError
from dualnewton.losses import Loss
from dualnewton.regularizers import Regularizer

_ROUNDING = 1e-12
"""What rounding may do, as a fraction of one and of the terms that were added: thousands of units in the last place."""

_STEP = 1e-5
"""Length of the secants that derivatives are compared with, as a fraction of 1 + |z|."""

_LABELS = np.array([-1.0, 1.0, 0.0, 0.5, -2.5, 3.0, 40.0])
"""Labels to try, those of them that the loss declares valid."""

_OFFSETS = np.concatenate([np.outer([-2.7, -1.0, 1.0, 2.7], 10.0 ** np.arange(-8, 9)).ravel(), np.linspace(-4, 4, 81)])
"""Margins to try, from zero and from the label: every scale, and a fine grid where kinks are likely."""


def check_loss(loss: Loss) -> None:
    """Raise a ``DualnewtonError`` that names each identity which ``loss`` breaks; see :func:`dualnewton.losses.check`."""
    if not isinstance(loss, Loss):
        raise DualnewtonError(f"loss must be an instance such as losses.Logistic(), got {loss!r}")
    # The identities compare numbers: first there must be some, and before them labels to ask for.
    _report(loss, _listen(_labels, loss))
    _report(loss, (words for usable in (_gamma, _loss_methods) for words in _listen(usable, loss)))
    tried = _LossPoints(loss)
    _report(loss, (words for identity in _LOSS_IDENTITIES for words in _listen(identity, tried)))
    _hint_at_larger_gamma(tried)


def check_regularizer(regularizer: Regularizer, size: int) -> None:
    """Raise a ``DualnewtonError`` that names each identity broken; see :func:`dualnewton.regularizers.check`."""
    if not isinstance(regularizer, Regularizer):
        raise DualnewtonError(f"regularizer must be an instance such as regularizers.L2(), got {regularizer!r}")
    if regularizer.size not in (None, size):
        raise DualnewtonError(f"size must be {regularizer.size}, for which the regularizer is made, got {size}")
    points = _vectors(size)
    _report(regularizer, _listen(lambda r: _regularizer_methods(r, points), regularizer))
    tried = _RegularizerPoints(regularizer, points)
    _report(regularizer, (words for identity in _REGULARIZER_IDENTITIES for words in _listen(identity, tried)))


# Asking and reporting ------------------------------------------------------------------------------------------------


class _UnusableError(Exception):
    """A method cannot be asked; the text says why."""


def _ask(owner: Any, method: str, *args: Any) -> Any:
    """Call a method; raise ``_UnusableError``, naming it, if it fails or writes into its arguments."""
    before = [np.array(arg) for arg in args]
    try:
        with np.errstate(all="ignore"):  # a result that is not finite is reported with its place, which says more
            result = getattr(owner, method)(*args)
    except NotImplementedError as error:
        raise _UnusableError(f"is not complete: {error}") from error
    except Exception as error:
        raise _UnusableError(f"cannot be used: {method} raised {type(error).__name__}: {error}") from error
    if not all(np.array_equal(old, new, equal_nan=True) for old, new in zip(before, args, strict=True)):
        raise _UnusableError(f"writes into the arguments of {method}; it must leave them as they are")
    return result


def _listen(identity: Callable[[Any], Iterator[str]], subject: Any) -> Iterator[str]:
    """Pass on what one identity says, or what keeps it from being tested."""
    try:
        yield from identity(subject)
    except _UnusableError as error:
        yield str(error)


def _report(subject: Any, complaints: Iterable[str]) -> None:
    if lines := [f"{type(subject).__name__} {words}" for words in dict.fromkeys(complaints)]:
        raise DualnewtonError("\n".join(lines))


def _broken(defect: Array, allowed: Array, size: Array) -> Iterator[tuple[Any, ...]]:
    """Yield the index of one defect beyond what is allowed, if there is any; NaN is beyond everything.

    Of the worst, within a factor of ten, it is the one whose arguments are nearest to one in size: the easiest to read.
    """
    defect, allowed, size = np.broadcast_arrays(defect, allowed, size)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = np.where(defect <= allowed, 0.0, np.nan_to_num(defect / allowed, nan=np.inf, posinf=np.inf))
        if excess.any():
            strangeness = np.where(excess >= 0.1 * excess.max(), np.abs(np.log(np.abs(size))), np.nan)
            yield np.unravel_index(np.nanargmin(strangeness), excess.shape)


# Losses: can it be asked? --------------------------------------------------------------------------------------------


def _gamma(loss: Loss) -> Iterator[str]:
    gamma = getattr(loss, "gamma", None)
    if not (isinstance(gamma, int | float | np.integer | np.floating) and 0.0 < gamma < np.inf):
        yield f"has gamma={gamma!r}: give the largest finite gamma > 0 known for which the loss is 1/gamma-smooth"


def _labels(loss: Loss) -> Iterator[str]:
    not_finite = np.array([np.nan, np.inf, -np.inf])
    mask = np.asarray(_ask(loss, "valid_labels", np.concatenate([_LABELS, not_finite])))
    if mask.shape != (_LABELS.size + 3,) or mask.dtype != np.bool_:
        raise _UnusableError(f"gives no mask of its labels: valid_labels must return one bool per label, got {mask!r}")
    if not mask[:-3].any():
        raise _UnusableError(f"allows no label: valid_labels refuses each of {_LABELS.tolist()}")
    if mask[-3:].any():
        yield f"allows the label {not_finite[mask[-3:]][0]}: valid_labels must refuse what is not finite"


def _loss_methods(loss: Loss) -> Iterator[str]:
    """Arrays in, finite arrays of the same shape out; and the same numbers for scalars."""
    mask = np.asarray(_ask(loss, "valid_labels", _LABELS))
    y, z = (x.ravel() for x in np.broadcast_arrays(_LABELS[mask][:, None], _OFFSETS))
    for method in ("value", "derivative", "second_derivative"):
        yield from _listen(lambda name: _elementwise(loss, name, z, y), method)
    low, high = _domain(loss, y)
    for method in ("conjugate_inside", "conjugate"):
        yield from _listen(lambda name: _elementwise(loss, name, np.clip(z, low, high), y), method)


def _domain(loss: Loss, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = _ask(loss, "domain", y)
    try:
        low, high = (np.broadcast_to(end, y.shape) for end in ends)
    except (TypeError, ValueError):
        raise _UnusableError(f"has no domain: domain(y) must return the pair (low, high), got {ends!r}") from None
    for k in _broken(~(low < high) * 1.0, 0.0, y):
        raise _UnusableError(f"has no domain: it must be low < high, got {low[k]:g} and {high[k]:g} at y={y[k]:g}")
    return low, high


def _elementwise(loss: Loss, method: str, x: np.ndarray, y: np.ndarray) -> Iterator[str]:
    result = np.asarray(_ask(loss, method, x, y))
    if result.shape != x.shape or not np.issubdtype(result.dtype, np.floating):
        seen = f"{result.dtype} of shape {result.shape}"
        raise _UnusableError(f"is not elementwise: {method} of floats of shape {x.shape} gave {seen}")
    for k in _broken(~np.isfinite(result) * 1.0, 0.0, x):
        raise _UnusableError(f"is not finite: {method} at {x[k]:g}, y={y[k]:g} is {result[k]}")
    few = np.linspace(0, x.size - 1, 40).astype(int)
    alone = np.array([np.asarray(_ask(loss, method, float(x[k]), float(y[k]))).item() for k in few])
    for (k,) in _broken(np.abs(alone - result[few]), _ROUNDING * np.abs(result[few]), x[few]):
        seen = f"{alone[k]:.8g} alone and {result[few[k]]:.8g} in an array"
        yield f"treats scalars and arrays differently: {method} at {x[few[k]]:g}, y={y[few[k]]:g} is {seen}"


# Losses: the identities ----------------------------------------------------------------------------------------------


class _LossPoints:
    """The margins and labels at which a loss is tried, one row per label, and what it says there."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.gamma = float(loss.gamma)
        labels = _LABELS[_ask(loss, "valid_labels", _LABELS)]
        self.label = labels[:, None]
        self.z = np.sort(np.concatenate([0.0 * self.label + _OFFSETS, self.label + _OFFSETS], axis=1), axis=1)
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
        return np.asarray(_ask(self.loss, method, x.ravel(), y.ravel())).reshape(x.shape)

    def ends(self) -> np.ndarray:
        """Return the two ends of each domain, some point of it in the place of an infinite one."""
        return np.concatenate([np.where(np.isfinite(end), end, self.u[:, :1]) for end in (self.low, self.high)], axis=1)

    def rounding_of_value(self, value: np.ndarray) -> np.ndarray:
        """Say what rounding of z, y and φ itself can do to φ(z)."""
        return _ROUNDING * (1.0 + np.abs(value) + np.abs(self.slope) * (np.abs(self.z) + np.abs(self.y)))

    def rounding_of_slope(self, z: np.ndarray, slope: np.ndarray) -> np.ndarray:
        """Say what rounding of z, y and φ′ itself can do to φ′(z)."""
        return _ROUNDING * (1.0 + np.abs(slope) + (np.abs(z) + np.abs(self.label)) / self.gamma)


def _pairs(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair the points of each row with their neighbours, to see kinks, and with random others, to see the whole."""
    x = np.sort(x, axis=1)
    other = x[:, np.random.default_rng(0).permutation(x.shape[1])]
    return np.concatenate([x[:, :-1], x], axis=1), np.concatenate([x[:, 1:], other], axis=1)


def _value_is_convex(tried: _LossPoints) -> Iterator[str]:
    """φ((z + t)/2) ≤ (φ(z) + φ(t))/2."""
    return _halfway(tried, "value", tried.z, 0.0, "convex")


def _conjugate_is_strongly_convex(tried: _LossPoints) -> Iterator[str]:
    """φ*((u + t)/2) ≤ (φ*(u) + φ*(t))/2 − γ(u − t)²/8."""
    words = f"gamma-strongly convex with gamma={tried.gamma:g}"
    return _halfway(tried, "conjugate", np.concatenate([tried.u, tried.ends()], axis=1), tried.gamma, words)


def _halfway(tried: _LossPoints, method: str, points: np.ndarray, modulus: float, words: str) -> Iterator[str]:
    a, b = _pairs(points)
    middle = 0.5 * (a + b)
    at_a, at_b, halfway = (tried.of(method, x) for x in (a, b, middle))
    bound = 0.5 * (at_a + at_b) - 0.125 * modulus * (a - b) ** 2
    terms = np.abs(at_a) + np.abs(at_b) + (np.abs(a) + np.abs(b)) * np.abs(tried.label)
    # At the end of a domain φ* may be vertical: what one ulp of the middle changes there is no fault.
    ulp = np.maximum(*(np.abs(tried.of(method, np.nextafter(middle, end)) - halfway) for end in (a, b)))
    for k in _broken(halfway - bound, _ROUNDING * (1.0 + terms) + ulp, a):
        seen = f"y={tried.label[k[0], 0]:g}, it is {halfway[k]:.8g} but may be at most {bound[k]:.8g}"
        yield f"has a {method} that is not {words}: halfway between {a[k]:.8g} and {b[k]:.8g}, {seen}"


def _derivative_is_slope_of_value(tried: _LossPoints) -> Iterator[str]:
    """(φ(b) − φ(a))/(b − a) lies between φ′(a) and φ′(b)."""
    step = _STEP * (1.0 + np.abs(tried.z))
    a, b = tried.z - step, tried.z + step
    at_a, at_b = tried.of("value", a), tried.of("value", b)
    secant = (at_b - at_a) / (b - a)
    slopes = np.sort([tried.of("derivative", a), tried.slope, tried.of("derivative", b)], axis=0)
    outside = np.maximum(slopes[0] - secant, secant - slopes[-1])
    for k in _broken(outside, tried.rounding_of_value(np.abs(at_a) + np.abs(at_b)) / step, tried.z):
        seen = f"value climbs by {secant[k]:.8g} per unit but derivative is {tried.slope[k]:.8g}"
        yield f"has a derivative that is not the slope of value: around z={tried.z[k]:.8g}, y={tried.y[k]:g} {seen}"


def _second_derivative_is_slope_of_derivative(tried: _LossPoints) -> Iterator[str]:
    """φ″ against differences of φ′ to the left and to the right; where these two disagree there is a kink between."""
    excess, climbs = [], []
    for shortening in (1.0, 1e-4):  # the short one resolves narrow losses, the long one drowns rounding: one must agree
        step = shortening * _STEP * (1.0 + np.abs(tried.z))
        a, b = tried.z - step, tried.z + step
        left = (tried.slope - tried.of("derivative", a)) / (tried.z - a)
        right = (tried.of("derivative", b) - tried.slope) / (b - tried.z)
        rounding = tried.rounding_of_slope(tried.z, tried.slope) / step
        kink = np.abs(right - left) > 1e-2 * np.abs(right + left) + rounding
        climbs.append(0.5 * (left + right))
        allowed = np.abs(right - left) + 1e-4 * np.abs(climbs[-1]) + rounding
        excess.append(np.where(kink, 0.0, np.abs(tried.curvature - climbs[-1]) / allowed))
    for k in _broken(np.minimum(*excess), 1.0, tried.z):
        place = f"around z={tried.z[k]:.8g}, y={tried.y[k]:g}"
        seen = f"derivative climbs by {climbs[0][k]:.8g} per unit but second_derivative is {tried.curvature[k]:.8g}"
        yield f"has a second_derivative that is not the slope of derivative: {place} {seen}"


def _second_derivative_in_range(tried: _LossPoints) -> Iterator[str]:
    """0 ≤ φ″ ≤ 1/γ."""
    steepest = 1.0 / tried.gamma
    for k in _broken(np.maximum(-tried.curvature, tried.curvature - steepest), 1e-9 * steepest, tried.z):
        seen = f"at z={tried.z[k]:.8g}, y={tried.y[k]:g} it is {tried.curvature[k]:.8g}"
        yield f"has a second_derivative outside [0, 1/gamma] = [0, {steepest:.8g}]: {seen}"


def _derivative_is_lipschitz(tried: _LossPoints) -> Iterator[str]:
    """|φ′(z) − φ′(t)| ≤ |z − t|/γ."""
    a, b = _pairs(tried.z)
    at_a, at_b = tried.of("derivative", a), tried.of("derivative", b)
    change, bound = np.abs(at_b - at_a), np.abs(b - a) / tried.gamma
    rounding = tried.rounding_of_slope(np.abs(a) + np.abs(b), np.abs(at_a) + np.abs(at_b))
    for k in _broken(change - bound, 1e-9 * bound + rounding, a):
        place = f"from z={a[k]:.8g} to t={b[k]:.8g}, y={tried.label[k[0], 0]:g},"
        seen = f"derivative changes by {change[k]:.8g}, more than |z-t|/gamma = {bound[k]:.8g}"
        yield f"is not 1/gamma-smooth with gamma={tried.gamma:g}: {place} {seen}"


def _derivative_lies_in_domain(tried: _LossPoints) -> Iterator[str]:
    """−α = φ′(z) is dual feasible, to the last bit: one ulp past the end the dual value would be −∞."""
    for k in _broken(np.maximum(tried.low - tried.slope, tried.slope - tried.high), 0.0, tried.z):
        seen = f"phi'(z)={tried.slope[k]:.17g} lies outside [{tried.low[k[0], 0]:.17g}, {tried.high[k[0], 0]:.17g}]"
        yield f"has a domain too narrow: at z={tried.z[k]:.8g}, y={tried.y[k]:g} the slope {seen}"


def _domain_is_reached(tried: _LossPoints) -> Iterator[str]:
    """The domain is the closure of the range of φ′: far out, φ′ is near a finite end or still grows to an infinite one."""
    ends = np.array([tried.low, tried.high])
    largest = np.where(np.isfinite(ends), np.abs(ends), 0.0).max(axis=0)
    scale = np.where(largest > 0.0, largest, 1.0 / tried.gamma)
    # φ′ is 1/γ-Lipschitz: it cannot reach an end u before |z| is about γ|u|.
    far = 1e8 * np.maximum(np.maximum(1.0, np.abs(tried.label)), tried.gamma * largest)
    for side, end in ((-1.0, tried.low), (1.0, tried.high)):
        slope, before = tried.of("derivative", side * far), tried.of("derivative", 1e-4 * side * far)
        short_of = side * (end - slope) > 1e-3 * scale
        stalled = np.abs(slope - before) <= 1e-2 * np.abs(slope)
        for k in _broken(np.where(np.isfinite(end), short_of, stalled) * 1.0, 0.0, tried.label):
            seen = (
                f"but the slope phi'(z) is {slope[k]:.8g} even at z={side * far[k]:g}; beyond it the conjugate is +inf"
            )
            yield f"has a domain too wide: at y={tried.label[k]:g} it reaches to {end[k]:g}, {seen}"


def _fenchel_young_equality(tried: _LossPoints) -> Iterator[str]:
    """φ(z) + φ*(u) = zu at u = φ′(z)."""
    total, product = tried.value + tried.conjugate, tried.z * tried.u
    # A slope outside the domain is a fault of the domain, told elsewhere.
    defect = np.where(tried.u == tried.slope, np.abs(total - product), 0.0)
    for k in _broken(defect, tried.rounding_of_value(np.abs(tried.value) + np.abs(tried.conjugate)), tried.z):
        seen = f"the sum value+conjugate is {total[k]:.8g} but z*u is {product[k]:.8g}; is conjugate_inside right?"
        yield f"breaks Fenchel–Young: at z={tried.z[k]:.8g}, y={tried.y[k]:g}, u=phi'(z)={tried.slope[k]:.8g} {seen}"


def _fenchel_young_inequality(tried: _LossPoints) -> Iterator[str]:
    """φ(z) + φ*(u) ≥ zu for every z and every u of the domain."""
    z, value = tried.z[:, :, None], tried.value[:, :, None]
    u, conjugate = tried.u[:, None, :], tried.conjugate[:, None, :]
    total, product = value + conjugate, z * u
    terms = np.abs(value) + np.abs(conjugate) + np.abs(u) * (np.abs(z) + np.abs(tried.label[:, :, None]))
    for k in _broken(product - total, _ROUNDING * (1.0 + terms), z):
        place = f"z={tried.z[k[:2]]:.8g}, y={tried.y[k[:2]]:g}, u={tried.u[k[::2]]:.8g}"
        seen = f"the sum value+conjugate is {total[k]:.8g}, below z*u = {product[k]:.8g}"
        yield f"breaks the Fenchel–Young inequality: at {place} {seen}"


def _conjugate_at_the_ends(tried: _LossPoints) -> Iterator[str]:
    """φ* is finite at a finite end of its domain and +∞ past it."""
    ends = tried.ends()
    past = np.concatenate([np.nextafter(tried.low, -np.inf), np.nextafter(tried.high, np.inf)], axis=1)
    at_end, beyond = tried.of("conjugate", ends), tried.of("conjugate", past)
    for k in _broken(~np.isfinite(at_end) * 1.0, 0.0, tried.label):
        yield f"has a conjugate that is {at_end[k]} at the end u={ends[k]:g} of its domain, y={tried.label[k[0], 0]:g}"
    for k in _broken(np.isfinite(past) * (beyond != np.inf) * 1.0, 0.0, tried.label):
        place = f"just past the end u={ends[k]:g} of its domain, y={tried.label[k[0], 0]:g}"
        yield f"has a conjugate that is {beyond[k]:.8g} {place}; there it must be +inf"


def _quadratic_flag(tried: _LossPoints) -> Iterator[str]:
    """The flag promises a constant φ″ (Theorem 7)."""
    low, high = tried.curvature.min(), tried.curvature.max()
    if tried.loss.quadratic and high - low > 1e-9 * high:
        yield f"is marked quadratic, but second_derivative is not constant: it runs from {low:.8g} to {high:.8g}"


_LOSS_IDENTITIES = (
    _value_is_convex,
    _derivative_is_slope_of_value,
    _second_derivative_is_slope_of_derivative,
    _second_derivative_in_range,
    _derivative_is_lipschitz,
    _derivative_lies_in_domain,
    _domain_is_reached,
    _fenchel_young_equality,
    _fenchel_young_inequality,
    _conjugate_at_the_ends,
    _conjugate_is_strongly_convex,
    _quadratic_flag,
)


def _hint_at_larger_gamma(tried: _LossPoints) -> None:
    """Warn of a γ far smaller than need be, which is no error: it only weakens the rates and bounds made from it."""
    if 0.0 < (steepest := float(tried.curvature.max())) < 0.5 / tried.gamma:
        seen = f"{type(tried.loss).__name__} has gamma={tried.gamma:g}, but no curvature above {steepest:.4g} was seen"
        hint = f"if the loss is 1/gamma-smooth with gamma={1.0 / steepest:.4g}, say so, and every bound improves"
        warnings.warn(f"{seen}: {hint}", stacklevel=4)  # at the caller of losses.check


# Regularisers --------------------------------------------------------------------------------------------------------


def _vectors(size: int) -> np.ndarray:
    """Vectors of every scale, with and without zeros, one per row."""
    rng = np.random.default_rng(0)
    scales = np.concatenate([10.0 ** np.arange(-8, 9), np.tile([0.1, 0.5, 1.0, 2.0], 6)])
    full = scales[:, None] * rng.standard_normal((scales.size, size))
    return np.concatenate([np.zeros((1, size)), full, full * (rng.random(full.shape) < 0.5)])


def _regularizer_methods(regularizer: Regularizer, points: np.ndarray) -> Iterator[str]:
    """Every method is there; ∇g* leads to finite vectors, where g is finite, and g* is finite everywhere."""
    methods = ("value", "conjugate", "grad_conjugate")
    if missing := [name for name in methods if getattr(type(regularizer), name) is getattr(Regularizer, name)]:
        raise _UnusableError(f"is not complete: it has no {', no '.join(missing)}")
    for s in points:
        w = np.asarray(_ask(regularizer, "grad_conjugate", s))
        if w.shape != s.shape or not np.isfinite(w).all():
            raise _UnusableError(f"has a grad_conjugate that is no finite vector: at s={_short(s)} it is {_short(w)}")
        for method, x, place in (("conjugate", s, "s"), ("value", w, "w=grad_conjugate(s)")):
            number = _ask(regularizer, method, x)
            if np.ndim(number) != 0 or not np.isfinite(np.asarray(number, dtype=float)):
                yield f"has a {method} that is not a finite number: at {place}={_short(x)} it is {number}"
                return


_norms: Callable[[Array], Any] = partial(np.linalg.norm, axis=-1)
_short: Callable[[Array], str] = partial(np.array2string, precision=6, threshold=8, separator=", ", max_line_width=1000)


class _RegularizerPoints:
    """The vectors at which a regulariser is tried, one per row, and what it says there."""

    def __init__(self, regularizer: Regularizer, points: np.ndarray) -> None:
        self.regularizer = regularizer
        self.s = points
        self.w = self.gradients(points)
        # Feasible points, and as many that may be infeasible: a constraint forgotten in g shows at those.
        self.anywhere = np.concatenate([self.w, points])
        self.value = self.of("value", self.anywhere)
        self.conjugate = self.of("conjugate", points)
        self.size = _norms(points) / np.sqrt(points.shape[1])

    def of(self, method: str, x: np.ndarray) -> np.ndarray:
        """Apply g or g* to each row."""
        return np.array([float(_ask(self.regularizer, method, row)) for row in x])

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Apply ∇g* to each row."""
        return np.array([np.asarray(_ask(self.regularizer, "grad_conjugate", row)) for row in x])


def _gradient_attains_the_conjugate(tried: _RegularizerPoints) -> Iterator[str]:
    """g(w) + g*(s) = ⟨w, s⟩ at w = ∇g*(s)."""
    value = tried.value[: len(tried.w)]
    total, product = value + tried.conjugate, (tried.w * tried.s).sum(axis=1)
    terms = np.abs(value) + np.abs(tried.conjugate) + _norms(tried.w) * _norms(tried.s)
    for k in _broken(np.abs(total - product), _ROUNDING * (1.0 + terms), tried.size):
        seen = f"the sum value+conjugate is {total[k]:.8g} but <w, s> is {product[k]:.8g}"
        yield f"breaks Fenchel–Young: at s={_short(tried.s[k])}, w=grad_conjugate(s)={_short(tried.w[k])} {seen}"


def _regularizer_fenchel_young_inequality(tried: _RegularizerPoints) -> Iterator[str]:
    """g(w) + g*(s) ≥ ⟨w, s⟩ for every pair."""
    total, product = tried.value[:, None] + tried.conjugate, tried.anywhere @ tried.s.T
    terms = np.abs(tried.value)[:, None] + np.abs(tried.conjugate) + _norms(tried.anywhere)[:, None] * _norms(tried.s)
    for k in _broken(product - total, _ROUNDING * (1.0 + terms), tried.size):
        seen = f"s={_short(tried.s[k[1]])} the sum value+conjugate is {total[k]:.8g}, below <w, s> = {product[k]:.8g}"
        yield f"breaks the Fenchel–Young inequality: at w={_short(tried.anywhere[k[0]])}, {seen}"


def _gradient_is_slope_of_conjugate(tried: _RegularizerPoints) -> Iterator[str]:
    """Along a line, (g*(b) − g*(a))/‖b − a‖ lies between the slopes of g* at a and b."""
    direction = np.random.default_rng(1).standard_normal(tried.s.shape)
    direction /= _norms(direction)[:, None]
    length = _STEP * (1.0 + _norms(tried.s))
    a, b = tried.s - length[:, None] * direction, tried.s + length[:, None] * direction
    at_a, at_b = tried.of("conjugate", a), tried.of("conjugate", b)
    secant = (at_b - at_a) / (2.0 * length)
    slopes = np.sort([(x * direction).sum(axis=1) for x in (tried.gradients(a), tried.w, tried.gradients(b))], axis=0)
    terms = 1.0 + np.abs(at_a) + np.abs(at_b) + _norms(tried.w) * _norms(tried.s)
    for k in _broken(np.maximum(slopes[0] - secant, secant - slopes[-1]), _ROUNDING * terms / length, tried.size):
        place = f"around s={_short(tried.s[k])}, along {_short(direction[k])},"
        seen = f"conjugate climbs by {secant[k]:.8g} but grad_conjugate by {slopes[1][k]:.8g}"
        yield f"has a grad_conjugate that is not the gradient of conjugate: {place} {seen}"


def _gradient_is_nonexpansive(tried: _RegularizerPoints) -> Iterator[str]:
    """‖∇g*(s) − ∇g*(t)‖ ≤ ‖s − t‖."""
    rng = np.random.default_rng(2)
    nearby = tried.s + _STEP * (1.0 + tried.size[:, None]) * rng.standard_normal(tried.s.shape)
    s, t = np.tile(tried.s, (2, 1)), np.concatenate([rng.permutation(tried.s), nearby])
    moved, apart = _norms(np.tile(tried.w, (2, 1)) - tried.gradients(t)), _norms(s - t)
    for k in _broken(moved - apart, 1e-9 * apart + _ROUNDING * (1.0 + _norms(s) + _norms(t)), np.tile(tried.size, 2)):
        seen = f"from s={_short(s[k])} to t={_short(t[k])}, more than ||s - t|| = {apart[k]:.8g}"
        yield f"is not 1-strongly convex: grad_conjugate moves by {moved[k]:.8g} {seen}"


def _value_is_strongly_convex(tried: _RegularizerPoints) -> Iterator[str]:
    """g((w + x)/2) ≤ (g(w) + g(x))/2 − ‖w − x‖²/8 for feasible w and x."""
    feasible = np.isfinite(tried.value)
    w, at_w = tried.anywhere[feasible], tried.value[feasible]
    other = np.random.default_rng(3).permutation(len(w))
    x, at_x = w[other], at_w[other]
    halfway = tried.of("value", 0.5 * (w + x))
    bound = 0.5 * (at_w + at_x) - 0.125 * _norms(w - x) ** 2
    terms = np.abs(at_w) + np.abs(at_x) + _norms(w - x) * (_norms(w) + _norms(x))
    for k in _broken(halfway - bound, _ROUNDING * (1.0 + terms), _norms(w)):
        seen = f"it is {halfway[k]:.8g} but may be at most {bound[k]:.8g}"
        yield f"has a value that is not 1-strongly convex: halfway between w={_short(w[k])} and x={_short(x[k])} {seen}"


def _regularizer_quadratic_flag(tried: _RegularizerPoints) -> Iterator[str]:
    """The flag promises g = ½‖w‖², whose ∇g* is the identity (Theorem 7)."""
    for k in _broken(tried.regularizer.quadratic * _norms(tried.w - tried.s), _ROUNDING * _norms(tried.s), tried.size):
        yield f"is marked quadratic, but grad_conjugate is no identity: {_short(tried.s[k])} goes to {_short(tried.w[k])}"


_REGULARIZER_IDENTITIES = (
    _gradient_attains_the_conjugate,
    _regularizer_fenchel_young_inequality,
    _gradient_is_slope_of_conjugate,
    _gradient_is_nonexpansive,
    _value_is_strongly_convex,
    _regularizer_quadratic_flag,
)
