"""Piecewise linear losses: φ′ jumps at kinks, and φ is 1/γ-smooth for no γ > 0."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualnewton.losses.base import Curvature, Kink, Margin
from dualnewton.losses.nonsmooth import NonSmooth
from dualnewton.losses.rounding import RoundingErrors
from dualnewton.losses.smooth import SmoothEpsilonInsensitive, SmoothHinge, SmoothQuantile
from dualnewton.validation import Array, between, positive


class Limited(NonSmooth):
    """A loss with kinks whose slopes have the same limit for all labels (``slope_limit``)."""

    value_change = RoundingErrors.value_change


@dataclass(frozen=True)
class Hinge(Margin, Limited):
    """max(0, 1 − yz); the loss of the support vector machine.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Hinge().value(np.array([-1.0, 0.5, 2.0]), np.ones(3))
    array([2. , 0.5, 0. ])
    """

    curvature = Curvature.PIECEWISE  # φ″ = 0 away from the kink
    nonnegative = True
    slope_limit = 1.0

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(1.0 - y * z, 0.0)

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * (y * z < 1.0)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return 0.0 * (y * z)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * y

    def domain(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def kinks(self, y: Array) -> tuple[Kink, ...]:
        return (Kink(y, *self.domain(y)),)

    def smoothed(self, width: float) -> SmoothHinge:
        return SmoothHinge(width)


@dataclass(frozen=True)
class EpsilonInsensitive(Limited):
    """max(0, |z − y| − epsilon); the loss of support vector regression, with epsilon = 0 the absolute error.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.EpsilonInsensitive(epsilon=0.5).value(np.array([0.0, 0.4, 2.0]), np.zeros(3))
    array([0. , 0. , 1.5])
    """

    epsilon: float = 0.1
    shifts = True
    curvature = Curvature.PIECEWISE  # φ″ = 0 away from the kinks
    nonnegative = True
    slope_limit = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, or_zero=True))

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(np.abs(z - y) - self.epsilon, 0.0)

    def derivative(self, z: Array, y: Array) -> Array:
        r = z - y
        return (r > self.epsilon) * 1.0 - (r < -self.epsilon) * 1.0

    def second_derivative(self, z: Array, y: Array) -> Array:
        return 0.0 * (z - y)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * y + self.epsilon * np.abs(u)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - 1.0, 0.0 * y + 1.0

    def kinks(self, y: Array) -> tuple[Kink, ...]:
        zero = 0.0 * y
        if self.epsilon == 0.0:
            return (Kink(y, zero - 1.0, zero + 1.0),)
        return Kink(y - self.epsilon, zero - 1.0, zero), Kink(y + self.epsilon, zero, zero + 1.0)

    def smoothed(self, width: float) -> SmoothEpsilonInsensitive:
        return SmoothEpsilonInsensitive(self.epsilon, width)


@dataclass(frozen=True)
class Quantile(Limited):
    """max(q(y − z), (q − 1)(y − z)), the pinball loss: its minimiser over constants z is the q-quantile of y, for 0 < q < 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Quantile(q=0.9).value(np.array([-1.0, 1.0]), np.zeros(2)).round(4)
    array([0.9, 0.1])
    """

    q: float = 0.5
    shifts = True
    curvature = Curvature.PIECEWISE  # φ″ = 0 away from the kink
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", between("q (the quantile)", self.q, 0.0, 1.0))

    @property
    def slope_limit(self) -> float:  # type: ignore[override]
        """The larger of q and 1 − q."""
        return max(self.q, 1.0 - self.q)

    def value(self, z: Array, y: Array) -> Array:
        return np.maximum(self.q * (y - z), (self.q - 1.0) * (y - z))

    def derivative(self, z: Array, y: Array) -> Array:
        return (z > y) * 1.0 - self.q

    def second_derivative(self, z: Array, y: Array) -> Array:
        return 0.0 * (z - y)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * y

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - self.q, 0.0 * y + (1.0 - self.q)

    def kinks(self, y: Array) -> tuple[Kink, ...]:
        return (Kink(y, *self.domain(y)),)

    def smoothed(self, width: float) -> SmoothQuantile:
        return SmoothQuantile(self.q, width)
