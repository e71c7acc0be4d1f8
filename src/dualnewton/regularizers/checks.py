"""The identities tested by ``regularizers.check``: one function each, which yields a sentence if the identity fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dualnewton._identities import ROUNDING, STEP, UnusableError, broken, call, failures, report
from dualnewton.errors import DualnewtonError
from dualnewton.regularizers.base import Regularizer
from dualnewton.validation import Array


def check_regularizer(regularizer: Regularizer, size: int) -> None:
    """Raise a ``DualnewtonError`` that names each identity that fails; see :func:`dualnewton.regularizers.check`."""
    if not isinstance(regularizer, Regularizer):
        raise DualnewtonError(f"regularizer must be an instance such as regularizers.L2(), got {regularizer!r}")
    if regularizer.size not in (None, size):
        raise DualnewtonError(f"size must be {regularizer.size}, for which the regularizer is made, got {size}")
    points = _vectors(size)
    if not regularizer.strongly_convex:
        points = np.array([call(regularizer, "reach", s) * s for s in points])
    report(regularizer, failures(lambda r: _regularizer_methods(r, points), regularizer))
    tried = _RegularizerPoints(regularizer, points)
    more = _STRONGLY_CONVEX_IDENTITIES if regularizer.strongly_convex else ()
    report(regularizer, (words for identity in (*_IDENTITIES, *more) for words in failures(identity, tried)))


def _vectors(size: int) -> np.ndarray:
    """Return random vectors of all scales, with and without zeros, one per row."""
    rng = np.random.default_rng(0)
    scales = np.concatenate([10.0 ** np.arange(-8, 9), np.tile([0.1, 0.5, 1.0, 2.0], 6)])
    full = scales[:, None] * rng.standard_normal((scales.size, size))
    return np.concatenate([np.zeros((1, size)), full, full * (rng.random(full.shape) < 0.5)])


def _regularizer_methods(regularizer: Regularizer, points: np.ndarray) -> Iterator[str]:
    """Every method is defined; ∇g*(s) is a finite vector at which g is finite, and g* is finite at every test point."""
    methods = ("value", "conjugate", "grad_conjugate")
    if missing := [name for name in methods if getattr(type(regularizer), name) is getattr(Regularizer, name)]:
        raise UnusableError(f"is not complete: it has no {', no '.join(missing)}")
    for s in points:
        w = np.asarray(call(regularizer, "grad_conjugate", s))
        if w.shape != s.shape or not np.isfinite(w).all():
            raise UnusableError(f"has a grad_conjugate that is not a finite vector: at s={_short(s)} it is {_short(w)}")
        for method, x, place in (("conjugate", s, "s"), ("value", w, "w=grad_conjugate(s)")):
            number = call(regularizer, method, x)
            if np.ndim(number) != 0 or not np.isfinite(np.asarray(number, dtype=float)):
                yield f"has a {method} that is not a finite number: at {place}={_short(x)} it is {number}"
                return


_norms: Callable[[Array], Any] = partial(np.linalg.norm, axis=-1)
_short: Callable[[Array], str] = partial(np.array2string, precision=6, threshold=8, separator=", ", max_line_width=1000)


class _RegularizerPoints:
    """The vectors at which a regulariser is tested, one per row, and the function values there."""

    def __init__(self, regularizer: Regularizer, points: np.ndarray) -> None:
        self.regularizer = regularizer
        self.s = points
        self.w = self.gradients(points)
        # Feasible points, and as many possibly infeasible ones, which reveal a constraint that is missing in g.
        self.anywhere = np.concatenate([self.w, points])
        self.value = self.of("value", self.anywhere)
        self.conjugate = self.of("conjugate", points)
        self.size = _norms(points) / np.sqrt(points.shape[1])

    def of(self, method: str, x: np.ndarray) -> np.ndarray:
        """Apply g or g* to each row."""
        return np.array([float(call(self.regularizer, method, row)) for row in x])

    def gradients(self, x: np.ndarray) -> np.ndarray:
        """Apply ∇g* to each row."""
        return np.array([np.asarray(call(self.regularizer, "grad_conjugate", row)) for row in x])


def _gradient_attains_the_conjugate(tried: _RegularizerPoints) -> Iterator[str]:
    """g(w) + g*(s) = ⟨w, s⟩ at w = ∇g*(s)."""
    value = tried.value[: len(tried.w)]
    total, product = value + tried.conjugate, (tried.w * tried.s).sum(axis=1)
    terms = np.abs(value) + np.abs(tried.conjugate) + _norms(tried.w) * _norms(tried.s)
    for k in broken(np.abs(total - product), ROUNDING * (1.0 + terms), tried.size):
        seen = f"the sum value+conjugate is {total[k]:.8g} but <w, s> is {product[k]:.8g}"
        yield f"breaks Fenchel–Young: at s={_short(tried.s[k])}, w=grad_conjugate(s)={_short(tried.w[k])} {seen}"


def _fenchel_young_inequality(tried: _RegularizerPoints) -> Iterator[str]:
    """g(w) + g*(s) ≥ ⟨w, s⟩ for every pair."""
    total, product = tried.value[:, None] + tried.conjugate, tried.anywhere @ tried.s.T
    terms = np.abs(tried.value)[:, None] + np.abs(tried.conjugate) + _norms(tried.anywhere)[:, None] * _norms(tried.s)
    for k in broken(product - total, ROUNDING * (1.0 + terms), tried.size):
        seen = f"s={_short(tried.s[k[1]])} the sum value+conjugate is {total[k]:.8g}, below <w, s> = {product[k]:.8g}"
        yield f"breaks the Fenchel–Young inequality: at w={_short(tried.anywhere[k[0]])}, {seen}"


def _gradient_is_slope_of_conjugate(tried: _RegularizerPoints) -> Iterator[str]:
    """Along a line, (g*(b) − g*(a))/‖b − a‖ lies between the directional derivatives of g* at a and b."""
    direction = np.random.default_rng(1).standard_normal(tried.s.shape)
    direction /= _norms(direction)[:, None]
    length = STEP * (1.0 + _norms(tried.s))
    a, b = tried.s - length[:, None] * direction, tried.s + length[:, None] * direction
    at_a, at_b = tried.of("conjugate", a), tried.of("conjugate", b)
    secant = (at_b - at_a) / (2.0 * length)
    slopes = np.sort([(x * direction).sum(axis=1) for x in (tried.gradients(a), tried.w, tried.gradients(b))], axis=0)
    terms = 1.0 + np.abs(at_a) + np.abs(at_b) + _norms(tried.w) * _norms(tried.s)
    for k in broken(np.maximum(slopes[0] - secant, secant - slopes[-1]), ROUNDING * terms / length, tried.size):
        place = f"around s={_short(tried.s[k])}, along {_short(direction[k])},"
        seen = f"conjugate climbs by {secant[k]:.8g} but grad_conjugate by {slopes[1][k]:.8g}"
        yield f"has a grad_conjugate that is not the gradient of conjugate: {place} {seen}"


def _gradient_is_nonexpansive(tried: _RegularizerPoints) -> Iterator[str]:
    """‖∇g*(s) − ∇g*(t)‖ ≤ ‖s − t‖."""
    rng = np.random.default_rng(2)
    nearby = tried.s + STEP * (1.0 + tried.size[:, None]) * rng.standard_normal(tried.s.shape)
    s, t = np.tile(tried.s, (2, 1)), np.concatenate([rng.permutation(tried.s), nearby])
    moved, apart = _norms(np.tile(tried.w, (2, 1)) - tried.gradients(t)), _norms(s - t)
    for k in broken(moved - apart, 1e-9 * apart + ROUNDING * (1.0 + _norms(s) + _norms(t)), np.tile(tried.size, 2)):
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
    for k in broken(halfway - bound, ROUNDING * (1.0 + terms), _norms(w)):
        seen = f"it is {halfway[k]:.8g} but may be at most {bound[k]:.8g}"
        yield f"has a value that is not 1-strongly convex: halfway between w={_short(w[k])} and x={_short(x[k])} {seen}"


def _declared_form(tried: _RegularizerPoints) -> Iterator[str]:
    """∇g* and g agree with the formulas of the declared form."""
    form = tried.regularizer.form
    if form.is_general:
        return
    threshold, factor, lower, upper = form.limits(tried.s.shape[1])
    if tried.regularizer.strongly_convex:
        w = np.clip(factor * (tried.s - np.clip(tried.s, -threshold, threshold)), lower, upper)
        for k in broken(_norms(w - tried.w), ROUNDING * (1.0 + _norms(tried.s)), tried.size):
            seen = f"at s={_short(tried.s[k])} it is {_short(tried.w[k])}, by the form {_short(w[k])}"
            yield f"declares a form of kind {form.kind.name} that is not its grad_conjugate: {seen}"
    x = tried.anywhere
    value = (0.5 * np.square(x) / factor + threshold * np.abs(x)).sum(axis=1)
    value[((x < lower) | (x > upper)).any(axis=1)] = np.inf
    with np.errstate(invalid="ignore"):  # inf − inf where both are infinite
        defect = np.where(value == tried.value, 0.0, np.abs(value - tried.value))
    for k in broken(defect, ROUNDING * (1.0 + np.where(np.isfinite(value), value, 0.0)), _norms(x)):
        seen = f"at w={_short(x[k])} it is {tried.value[k]:.8g}, by the form {value[k]:.8g}"
        yield f"declares a form of kind {form.kind.name} that is not its value: {seen}"


_IDENTITIES = (_gradient_attains_the_conjugate, _fenchel_young_inequality, _declared_form)
"""Identities of every regulariser, tested where g* is finite."""

_STRONGLY_CONVEX_IDENTITIES = (_gradient_is_slope_of_conjugate, _gradient_is_nonexpansive, _value_is_strongly_convex)
