"""Separable terms ψ(x) = Σ ψ_i(x_i) of composite functions (Section 3), each with its value and its prox."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses import Loss
from dualnewton.regularizers import Box
from dualnewton.validation import Array, integer, positive, vector

_EPS = float(np.finfo(float).eps)


class Separable:
    """ψ(x) = Σ ψ_i(x_i), each ψ_i closed and γ_i-strongly convex (Assumption 4); custom terms are subclasses.

    All functions are vectorised over coordinates: ``x[k]`` and ``step[k]`` belong to coordinate ``index[k]``, so a method
    that works on a set S passes ``x[S]`` and S. A subclass must implement ``value`` and ``prox``, which obey the identity:
    t = prox(x, step) if and only if (x − t)/step is a subgradient of ψ_i at t.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods
    >>> methods.Absolute().prox(np.array([0.5, 3.0]), np.ones(2), np.arange(2))  # one of the subclasses
    array([0., 2.])
    """

    gamma: Any = 0.0
    """γ, one number for all coordinates or an array with one for each."""

    size: int | None = None
    """The number of coordinates of ψ; None if ψ is defined for any number."""

    def value(self, x: Array, index: np.ndarray) -> Array:
        """ψ_i(x_i), +∞ outside the domain of ψ_i."""
        raise NotImplementedError(f"{type(self).__name__} has no value(x, index)")

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        """argmin_t ψ_i(t) + (t − x_i)²/(2 step_i)."""
        raise NotImplementedError(f"{type(self).__name__} has no prox(x, step, index)")

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        """Return the derivative of the prox in x, a number in [0, 1]; at a kink, any value between the one-sided derivatives.

        It affects the speed of Newton's method and not its solution, so central differences suffice as the default. They are
        clipped at the bound 1/(1 + γ_i step_i) of strong convexity, because their rounding error can hide a small curvature.
        """
        reach = np.sqrt(_EPS) * np.where(x == 0.0, np.abs(x).max() or 1.0, np.abs(x))
        rise = self.prox(x + reach, step, index) - self.prox(x - reach, step, index)
        return np.clip(rise / (2.0 * reach), 0.0, 1.0 / (1.0 + _at(np.asarray(self.gamma), index) * step))


@dataclass(frozen=True)
class Zero(Separable):
    """ψ = 0, for which the proximal methods are those of Section 2.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods
    >>> methods.Zero().value(np.ones(2), np.arange(2))
    array([0., 0.])
    """

    def value(self, x: Array, index: np.ndarray) -> Array:
        return np.zeros_like(x)

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return x

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return np.ones_like(x)


@dataclass(frozen=True, eq=False)
class Absolute(Separable):
    """ψ_i(t) = strength_i |t|; the term of the lasso.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods
    >>> methods.Absolute(strength=2.0).value(np.array([1.0, -3.0]), np.arange(2))
    array([2., 6.])
    """

    strength: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", _parameter("strength", self.strength))

    @property
    def size(self) -> int | None:  # type: ignore[override]
        return _length(self.strength)

    def value(self, x: Array, index: np.ndarray) -> Array:
        return _at(self.strength, index) * np.abs(x)

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        threshold = _at(self.strength, index) * step
        return np.sign(x) * np.maximum(np.abs(x) - threshold, 0.0)

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return (np.abs(x) > _at(self.strength, index) * step) * 1.0


@dataclass(frozen=True, eq=False)
class Interval(Separable):
    """ψ_i(t) = 0 for lower_i ≤ t ≤ upper_i and +∞ elsewhere; bounds may be infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods
    >>> methods.Interval(0.0, 1.0).value(np.array([0.5, 1.5]), np.arange(2))
    array([ 0., inf])
    """

    lower: Any = 0.0
    upper: Any = 1.0

    def __post_init__(self) -> None:
        box = Box(self.lower, self.upper)  # validates the bounds
        object.__setattr__(self, "lower", box.lower)
        object.__setattr__(self, "upper", box.upper)
        object.__setattr__(self, "size", box.size)

    def value(self, x: Array, index: np.ndarray) -> Array:
        return np.where((_at(self.lower, index) <= x) & (x <= _at(self.upper, index)), 0.0, np.inf)

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return np.clip(x, _at(self.lower, index), _at(self.upper, index))

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return ((_at(self.lower, index) < x) & (x < _at(self.upper, index))) * 1.0


@dataclass(frozen=True, eq=False)
class Square(Separable):
    """ψ_i(t) = (γ_i/2) t².

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import methods
    >>> methods.Square(gamma=2.0).value(np.array([1.0, 2.0]), np.arange(2))
    array([1., 4.])
    """

    gamma: Any = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "gamma", _parameter("gamma", self.gamma))

    @property
    def size(self) -> int | None:  # type: ignore[override]
        return _length(self.gamma)

    def value(self, x: Array, index: np.ndarray) -> Array:
        return 0.5 * _at(self.gamma, index) * x * x

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return x / (1.0 + _at(self.gamma, index) * step)

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        return 1.0 / (1.0 + _at(self.gamma, index) * step) + 0.0 * x


@dataclass(frozen=True, eq=False)
class ConjugateLoss(Separable):
    """ψ_i(t) = (c_i/n) φ*(−t; y_i), the separable term of the dual of empirical risk minimisation (Section 4).

    Its prox β at x is computed from φ, whose domain is the whole line: with κ_i = c_i step_i/n, β solves the prox problem
    if and only if β = −φ′(z) for the unique margin z with φ′(z) + x + κz = 0, and then β = x + κz as well.

    Parameters
    ----------
    loss : Loss
        φ; 1/γ-smooth, which makes ψ_i strongly convex with γ_i = c_i γ/n.
    y : array
        The label of each coordinate.
    n : int
        The number of examples n by which the sum of losses is divided.
    weight : float or array
        The weights c > 0; 1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses, methods
    >>> methods.ConjugateLoss(losses.Squared(), np.array([1.0, 2.0]), n=2).value(np.ones(2), np.arange(2))
    array([-0.25, -0.75])
    """

    loss: Loss
    y: Any
    n: int
    _: KW_ONLY
    weight: Any = 1.0

    def __post_init__(self) -> None:
        y = self.loss.labels(self.y, np.size(self.y))
        weight = vector("weight", np.full(y.size, self.weight) if np.ndim(self.weight) == 0 else self.weight, y.size)
        if weight.min() <= 0.0:
            raise DualnewtonError(
                f"weight must be > 0 everywhere, got {weight.min()!r} at index {int(np.argmin(weight))}: "
                "a row of weight zero has no term, leave it out"
            )
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "n", integer("n", self.n, 1))
        object.__setattr__(self, "weight", weight)

    @property
    def gamma(self) -> np.ndarray:
        return (self.loss.gamma or 0.0) * self.weight / self.n

    @property
    def size(self) -> int | None:  # type: ignore[override]
        return int(self.y.size)

    def value(self, x: Array, index: np.ndarray) -> Array:
        return self.weight[index] * self.loss.conjugate(-x, self.y[index]) / self.n

    def prox(self, x: Array, step: Array, index: np.ndarray) -> Array:
        y, kappa = self.y[index], self.weight[index] * step / self.n
        z = _root(self.loss, y, x, kappa)
        low, high = self.loss.domain(y)
        # Both formulas give β. An error of z is multiplied by κ in the first and by φ″ in the second: use the smaller factor.
        from_x = -np.clip(-(x + kappa * z), low, high)
        from_loss = -self.loss.derivative(z, y)
        return np.where(self.loss.second_derivative(z, y) > kappa, from_x, from_loss)

    def prox_slope(self, x: Array, step: Array, index: np.ndarray) -> Array:
        y, kappa = self.y[index], self.weight[index] * step / self.n
        curvature = self.loss.second_derivative(_root(self.loss, y, x, kappa), y)
        return curvature / (curvature + kappa)


def _root(loss: Loss, y: np.ndarray, x: np.ndarray, kappa: np.ndarray) -> np.ndarray:
    """Find the zero z of the increasing function φ′(z) + x + κz for all coordinates, by Newton's method inside a bracket.

    The slope is at least κ, so 0 and −(φ′(0) + x)/κ enclose the zero. A Newton step is taken if it stays inside the bracket
    and the last step halved the value, otherwise a bisection; so every iteration halves the value or the bracket.
    """
    z = np.zeros_like(x)
    end = -(loss.derivative(z, y) + x) / kappa
    low, high = np.minimum(end, 0.0), np.maximum(end, 0.0)
    previous = np.full_like(x, np.inf)
    for _ in range(4096):  # only a NaN reaches this bound: float64 allows about 2100 halvings of each
        derivative, slope = loss.derivative(z, y), loss.second_derivative(z, y) + kappa
        value = derivative + x + kappa * z
        low, high = np.where(value < 0.0, z, low), np.where(value > 0.0, z, high)
        # Rounding errors of the terms and of z change the value by at most this much, so such a value counts as zero.
        rounding = 2.0 * _EPS * (np.abs(derivative) + np.abs(x) + slope * np.abs(z))
        done = (np.abs(value) <= rounding) | (np.nextafter(low, high) >= high)
        if done.all():
            return z
        newton = z - value / slope
        trusted = (low < newton) & (newton < high) & (np.abs(value) <= 0.5 * previous)
        z = np.where(done, z, np.where(trusted, newton, 0.5 * low + 0.5 * high))
        previous = np.abs(value)
    raise RuntimeError(f"the prox of the conjugate of {loss!r} was not found: x or the derivative of the loss is NaN")


# Composite functions -------------------------------------------------------------------------------------------------


def _parameter(name: str, value: Any) -> np.ndarray:
    """Return one number ≥ 0 for all coordinates, or one for each, as an array of zero or one dimension."""
    if np.ndim(value) == 0:
        return np.array(positive(name, value, or_zero=True))
    return vector(name, value, np.size(value), low=0.0)


def _length(parameter: np.ndarray) -> int | None:
    return int(parameter.size) if parameter.ndim else None


def _at(parameter: np.ndarray, index: np.ndarray) -> np.ndarray:
    return parameter[index] if parameter.ndim else parameter
