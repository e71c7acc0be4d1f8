"""Losses φ(z; y): convex, 1/γ-smooth in the margin z = aᵀw (or with a kink: γ = 0), each with its conjugate.

Every function of a loss is one branch-free expression in ``z`` (or ``u``), ``y`` and the loss's own fields. It runs on
NumPy arrays as it stands and is simple enough to be compiled for scalars, so that there is one truth per loss:
indicators are written ``(m < 1.0) * 1.0`` and clips as minimum-of-maximum, never ``np.where`` or ``if``.

The identities that bind the functions of a loss (Section 4 of the paper uses all of them; :func:`check` tests them):

* Fenchel–Young: φ(z) + φ*(u) ≥ z u, with equality exactly when u = φ′(z);
* φ′ is nondecreasing and 1/γ-Lipschitz, so 0 ≤ φ″ ≤ 1/γ and φ* is γ-strongly convex;
* the dual variable that belongs to a margin is α = −φ′(z), and −α lies in the domain of φ*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dualnewton._validate import Array, positive
from dualnewton.errors import DualnewtonError

__all__ = [
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Margin",
    "NonSmooth",
    "SmoothEpsilonInsensitive",
    "SmoothHinge",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "check",
]

_LOOKS = 33
"""Margins at which the curvature of a loss is looked at."""


class Loss:
    """A loss written by the library or by you.

    Subclass it as a frozen dataclass and give it the four scalar functions, the domain of the conjugate and ``gamma``;
    ``losses.check(YourLoss())`` then says in words what is wrong, if anything is. See docs/extending.md.
    """

    label_domain: ClassVar[str] = "finite real numbers"
    quadratic: ClassVar[bool] = False
    """True only where φ″ is constant: the sharper Theorem 7 applies."""

    gamma: float
    """The largest known γ for which φ is 1/γ-smooth."""

    def value(self, z: Array, y: Array) -> Array:
        """φ(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no value(z, y)")

    def derivative(self, z: Array, y: Array) -> Array:
        """φ′(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivative(z, y)")

    def second_derivative(self, z: Array, y: Array) -> Array:
        """φ″(z; y), at a kink any element of the generalised derivative."""
        raise NotImplementedError(f"{type(self).__name__} has no second_derivative(z, y)")

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ and φ′ of arrays; a loss that has more in common than calls may compute them faster together."""
        return self.value(z, y), self.derivative(z, y)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ′ and φ″ of arrays, likewise."""
        return self.derivative(z, y), self.second_derivative(z, y)

    def in_pieces(self, y: Array) -> bool:
        """Say whether φ″ is one number or zero, by a look at margins around some labels."""
        z = np.add.outer(y, np.linspace(-4.0, 4.0, _LOOKS)).ravel()
        seen = self.second_derivative(z, np.repeat(y, _LOOKS))
        return bool(np.all((seen == 0.0) | (seen == seen.max())))

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        """φ*(u; y) for u inside the domain, its ends included; never asked for elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugate_inside(u, y)")

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the closed interval on which φ*(·; y) is finite, as (low, high); the whole line unless overridden."""
        return 0.0 * y - np.inf, 0.0 * y + np.inf

    def conjugate(self, u: Array, y: Array) -> Array:
        """φ*(u; y) = sup_z zu − φ(z; y), which is +∞ outside the domain."""
        low, high = self.domain(y)
        inside = (low <= u) & (u <= high)
        return np.where(inside, self.conjugate_inside(np.clip(u, low, high), y), np.inf)

    def valid_labels(self, y: Array) -> Array:
        """Say for each label whether the loss is defined for it."""
        return np.isfinite(y)


class NonSmooth(Loss):
    """A loss with a kink, such as the hinge: convex, but 1/γ-smooth for no γ > 0.

    ``derivative`` is any subgradient, ``second_derivative`` any number; beside them such a loss knows its smooth neighbours.
    :func:`dualnewton.solve` works on these, and has the problem of the loss itself judge what it finds.
    """

    gamma = 0.0

    def smoothed(self, width: float) -> Loss:
        """Return the smooth loss with the conjugate φ*(u) + (width/2)u², which lies at most width·u²/2 below φ at slope u."""
        raise NotImplementedError(f"{type(self).__name__} has no smoothed(width)")


def require_smooth(loss: Loss, purpose: str) -> None:
    """Refuse a loss without curvature of its dual where that is what something is made of."""
    if not loss.gamma > 0.0:
        raise DualnewtonError(
            f"loss must be smooth for {purpose}, got {loss!r} with gamma={loss.gamma:g}: use a neighbour such as "
            f"loss.smoothed(0.1), or dualnewton.solve, which follows such neighbours to the loss itself"
        )


class Margin(Loss):
    """A classification loss: a function of the product m = yz with labels y ∈ {−1, +1}."""

    label_domain: ClassVar[str] = "-1 or +1"

    def valid_labels(self, y: Array) -> Array:
        """Say for each label whether it is −1 or +1."""
        return np.abs(y) == 1.0


@dataclass(frozen=True)
class Squared(Loss):
    """½(z − y)²; the loss of ridge regression."""

    gamma = 1.0
    quadratic: ClassVar[bool] = True

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * (z - y) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        return z - y

    def second_derivative(self, z: Array, y: Array) -> Array:
        return 1.0 + 0.0 * (z - y)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)


@dataclass(frozen=True)
class Logistic(Margin):
    """log(1 + exp(−yz)); the loss of logistic regression, written so that no exponential overflows."""

    gamma = 4.0

    def value(self, z: Array, y: Array) -> Array:
        m = y * z
        return np.log1p(np.exp(-np.abs(m))) + 0.5 * (np.abs(m) - m)

    def derivative(self, z: Array, y: Array) -> Array:
        m = y * z
        e = np.exp(-np.abs(m))
        return -y * ((m > 0.0) * e + (m <= 0.0) * 1.0) / (1.0 + e)

    def second_derivative(self, z: Array, y: Array) -> Array:
        e = np.exp(-np.abs(y * z))
        return e / ((1.0 + e) * (1.0 + e))

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        m = y * z
        size = np.abs(m)
        e = np.exp(-size)  # the dearest part of both
        return np.log1p(e) + 0.5 * (size - m), -y * np.where(m > 0.0, e, 1.0) / (1.0 + e)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        m = y * z
        e = np.exp(-np.abs(m))
        rest = 1.0 / (1.0 + e)
        return -y * np.where(m > 0.0, e, 1.0) * rest, e * rest * rest

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        # s log s + (1 − s) log(1 − s) with 0 log 0 = 0: at an end the logarithm is taken of one.
        s = -y * u
        return s * np.log(s + (s == 0.0) * 1.0) + (1.0 - s) * np.log1p((s == 1.0) * 1.0 - s)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


@dataclass(frozen=True)
class SquaredHinge(Margin):
    """½ max(0, 1 − yz)²; the loss of the L2 support vector machine."""

    gamma = 1.0

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * np.maximum(1.0 - y * z, 0.0) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * np.maximum(1.0 - y * z, 0.0)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (y * z < 1.0) * 1.0

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        # −yu ≥ 0: the half-line from 0 towards the sign of −y.
        return np.minimum(-y * np.inf, 0.0), np.maximum(-y * np.inf, 0.0)


@dataclass(frozen=True)
class SmoothHinge(Margin):
    """The hinge max(0, 1 − yz) with its kink rounded by a parabola over the given width: smooth with γ = width.

    0 for yz ≥ 1, 1 − yz − width/2 for yz ≤ 1 − width, (1 − yz)²/(2 width) between.
    """

    width: float = 1.0

    def __post_init__(self) -> None:
        positive("width", self.width)

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return self.width

    def value(self, z: Array, y: Array) -> Array:
        t = 1.0 - y * z
        c = np.minimum(np.maximum(t, 0.0), self.width)
        return c * (t - 0.5 * c) / self.width

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * np.minimum(np.maximum(1.0 - y * z, 0.0), self.width) / self.width

    def second_derivative(self, z: Array, y: Array) -> Array:
        t = 1.0 - y * z
        return (t > 0.0) * (t < self.width) * 1.0 / self.width

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * self.width * u + y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


@dataclass(frozen=True)
class Hinge(Margin, NonSmooth):
    """max(0, 1 − yz); the loss of the support vector machine."""

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

    def smoothed(self, width: float) -> SmoothHinge:
        return SmoothHinge(width)


@dataclass(frozen=True)
class Huber(Loss):
    """½r² while |r| ≤ delta, then delta(|r| − delta/2), for the residual r = z − y: least squares deaf to outliers."""

    delta: float = 1.0
    gamma = 1.0

    def __post_init__(self) -> None:
        positive("delta", self.delta)

    def value(self, z: Array, y: Array) -> Array:
        r = z - y
        c = np.minimum(np.maximum(r, -self.delta), self.delta)
        return c * (r - 0.5 * c)

    def derivative(self, z: Array, y: Array) -> Array:
        return np.minimum(np.maximum(z - y, -self.delta), self.delta)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (np.abs(z - y) < self.delta) * 1.0

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - self.delta, 0.0 * y + self.delta


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """½ max(0, |z − y| − epsilon)²; the loss of L2 support vector regression."""

    epsilon: float = 0.1
    gamma = 1.0

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, or_zero=True)

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * np.maximum(np.abs(z - y) - self.epsilon, 0.0) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        r = z - y
        return r - np.minimum(np.maximum(r, -self.epsilon), self.epsilon)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (np.abs(z - y) >= self.epsilon) * 1.0

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y) + self.epsilon * np.abs(u)


@dataclass(frozen=True)
class EpsilonInsensitive(NonSmooth):
    """max(0, |z − y| − epsilon); the loss of support vector regression, with epsilon = 0 the absolute error."""

    epsilon: float = 0.1

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, or_zero=True)

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

    def smoothed(self, width: float) -> SmoothEpsilonInsensitive:
        return SmoothEpsilonInsensitive(self.epsilon, width)


@dataclass(frozen=True)
class SmoothEpsilonInsensitive(Loss):
    """max(0, |z − y| − epsilon) with its kinks rounded by parabolas over the given width: smooth with γ = width.

    With t = |z − y| − epsilon: 0 for t ≤ 0, t − width/2 for t ≥ width, t²/(2 width) between.
    """

    epsilon: float = 0.1
    width: float = 1.0

    def __post_init__(self) -> None:
        positive("epsilon", self.epsilon, or_zero=True)
        positive("width", self.width)

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return self.width

    def value(self, z: Array, y: Array) -> Array:
        t = np.maximum(np.abs(z - y) - self.epsilon, 0.0)
        c = np.minimum(t, self.width)
        return c * (t - 0.5 * c) / self.width

    def derivative(self, z: Array, y: Array) -> Array:
        r = z - y
        t = r - np.minimum(np.maximum(r, -self.epsilon), self.epsilon)
        return np.minimum(np.maximum(t, -self.width), self.width) / self.width

    def second_derivative(self, z: Array, y: Array) -> Array:
        t = np.abs(z - y) - self.epsilon
        return (t >= 0.0) * (t < self.width) * 1.0 / self.width

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * self.width * u + y) + self.epsilon * np.abs(u)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - 1.0, 0.0 * y + 1.0


def check(loss: Loss) -> None:
    """Test the identities that every part of the library relies on; raise a ``DualnewtonError`` that names each broken one.

    Convexity and 1/γ-smoothness of φ, φ′ and φ″ against differences, the Fenchel–Young inequality and its equality
    at u = φ′(z), strong convexity of φ*, and its domain. Of a :class:`NonSmooth` loss those that do not need γ, and all
    of its smooth neighbours, whose conjugates must be φ* + (width/2)u².
    """
    # not needed to fit a model
    if isinstance(loss, NonSmooth):
        from dualnewton._check_nonsmooth import check_nonsmooth

        check_nonsmooth(loss)
    else:
        from dualnewton._check import check_loss

        check_loss(loss)
