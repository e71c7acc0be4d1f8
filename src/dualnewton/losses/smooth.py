"""Smooth losses: φ has a derivative everywhere, and φ′ is 1/γ-Lipschitz."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.losses.base import Curvature, Loss, Margin, RoughFit, shorter
from dualnewton.row_arrays import BLOCK, product
from dualnewton.validation import Array, between, positive


def _half_square_less(alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
    """Return ½ Σ c_i α_i² − Σ c_i α_i y_i, which is Σ c_i φ*(−α_i) of losses that are parabolas between their linear pieces."""
    mass = alpha if weights is None else weights * alpha
    total = 0.5 * float(product(alpha, mass)) - float(product(mass, y))
    return math.inf if math.isnan(total) else total  # NaN proves nothing


@dataclass(frozen=True)
class Squared(Loss):
    """½(z − y)²; the loss of ridge regression.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Squared().value(np.array([1.0, 3.0]), np.array([0.0, 1.0]))
    array([0.5, 2. ])
    """

    gamma = 1.0
    curvature = Curvature.CONSTANT
    nonnegative = True
    self_concordance = 0.0

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * (z - y) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        return z - y

    def second_derivative(self, z: Array, y: Array) -> Array:
        return 1.0 + 0.0 * (z - y)

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        residual = z - y
        return 0.5 * residual**2, residual

    def sum_and_derivative(self, z: Array, y: Array, c: Array | None) -> tuple[float, Array]:
        """Return ½ Σ c_i (z_i − y_i)², a product, and the differences; a subclass may have another φ."""
        if type(self) is not Squared:
            return super().sum_and_derivative(z, y, c)
        residual = z - y
        return 0.5 * float(product(residual, residual if c is None else c * residual)), residual

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)

    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return ½ Σ c_i α_i² − Σ c_i α_i y_i, two products; a subclass may have another φ*."""
        if type(self) is not Squared or type(alpha) is not np.ndarray:
            return super().conjugates(alpha, y, weights)
        return _half_square_less(alpha, y, weights)

    def sizes_at_zero(self, weight: float, labels: float) -> float | None:
        """Return ½ Σ c_i y_i²; a subclass may have another value."""
        return 0.5 * labels if type(self) is Squared else None


@dataclass(frozen=True)
class Logistic(Margin):
    """log(1 + exp(−yz)); the loss of logistic regression, written so that no exponential overflows.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Logistic().value(np.array([0.0, 800.0, -800.0]), np.ones(3)).round(4)
    array([6.931e-01, 0.000e+00, 8.000e+02])
    """

    gamma = 4.0
    nonnegative = True
    self_concordance = 1.0  # φ‴/φ″ = 1 − 2p, p the probability
    dual_curvature = 4.0  # φ*″ = 1/(p(1 − p)), where p and 1 − p are at least (3/8)m ≤ 3/16
    wrong = math.log(2.0)

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
        e = np.exp(-size)  # the most expensive term, shared by φ and φ′
        return np.log1p(e) + 0.5 * (size - m), -y * np.where(m > 0.0, e, 1.0) / (1.0 + e)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        m = y * z
        e = np.exp(-np.abs(m))
        rest = 1.0 / (1.0 + e)
        return -y * np.where(m > 0.0, e, 1.0) * rest, e * rest * rest

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        # s log s + (1 − s) log(1 − s) with 0 log 0 = 0: at s = 0 and s = 1 the argument of the logarithm is replaced by one.
        s = -y * u
        return s * np.log(s + (s == 0.0) * 1.0) + (1.0 - s) * np.log1p((s == 1.0) * 1.0 - s)

    @shorter
    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return Σ c_i φ*(−α_i) without clipping, if all y_i α_i lie inside (0, 1); a subclass may have another φ*."""
        if type(self) is not Logistic or type(alpha) is not np.ndarray or alpha.size > BLOCK:
            return super().conjugates(alpha, y, weights)
        s = y * alpha
        if not (s.min() > 0.0 and s.max() < 1.0):
            return super().conjugates(alpha, y, weights)
        rest = 1.0 - s
        if weights is not None:
            return float((weights * s).dot(np.log(s)) + (weights * rest).dot(np.log1p(-s)))
        return float(s.dot(np.log(s)) + rest.dot(np.log1p(-s)))

    def domain(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)

    def best_intercept(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0) -> Any:
        """Return the log-odds of the classes where all margins are zero, as at the start of a fit; else search."""
        own = type(self) is Logistic and type(margins) is np.ndarray  # a subclass may have another derivative
        if own and not np.count_nonzero(margins):
            up = float(np.count_nonzero(y > 0.0) if weights is None else weights @ (y > 0.0))
            down = (float(len(y)) if weights is None else float(np.add.reduce(weights))) - up
            if up > 0.0 and down > 0.0:
                return math.log(up / down)
        return super().best_intercept(margins, y, weights, near=near)


@dataclass(frozen=True)
class SquaredHinge(Margin):
    """½ max(0, 1 − yz)²; the loss of the L2 support vector machine.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.SquaredHinge().value(np.array([-1.0, 0.5, 2.0]), np.ones(3))
    array([2.   , 0.125, 0.   ])
    """

    gamma = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * np.maximum(1.0 - y * z, 0.0) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        return -y * np.maximum(1.0 - y * z, 0.0)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (y * z < 1.0) * 1.0

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        short = np.maximum(1.0 - y * z, 0.0)
        return 0.5 * short**2, -y * short

    def sum_and_derivative(self, z: Array, y: Array, c: Array | None) -> tuple[float, Array]:
        """Return ½ Σ c_i max(0, 1 − y_i z_i)², a product, and the slopes; a subclass may have another φ."""
        if type(self) is not SquaredHinge:
            return super().sum_and_derivative(z, y, c)
        short = np.maximum(1.0 - y * z, 0.0)
        return 0.5 * float(product(short, short if c is None else c * short)), -y * short

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)

    @shorter
    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return ½ Σ c_i α_i² − Σ c_i α_i y_i, two products, inside the domain; a subclass may have another φ*."""
        own = type(self) is SquaredHinge and type(alpha) is np.ndarray
        if not (own and float((y * alpha).min()) >= 0.0):
            return super().conjugates(alpha, y, weights)
        return _half_square_less(alpha, y, weights)

    def domain(self, y: Array) -> tuple[Array, Array]:
        # The domain is the half-line −yu ≥ 0.
        end = -y * np.inf
        return np.minimum(end, 0.0), np.maximum(end, 0.0)


@dataclass(frozen=True)
class SmoothHinge(Margin):
    """The hinge max(0, 1 − yz) with its kink rounded by a parabola over the given width: smooth with γ = width.

    0 for yz ≥ 1, 1 − yz − width/2 for yz ≤ 1 − width, (1 − yz)²/(2 width) between.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> loss = losses.SmoothHinge(width=0.5)
    >>> loss.gamma, loss.value(np.array([2.0, 0.75, 0.0]), np.ones(3)).round(4)
    (0.5, array([-0.    ,  0.0625,  0.75  ]))
    """

    width: float = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", positive("width", self.width))

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

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        t = 1.0 - y * z
        c = np.minimum(np.maximum(t, 0.0), self.width)
        return c * (t - 0.5 * c) / self.width, -y * c / self.width

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * self.width * u + y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return np.minimum(-y, 0.0), np.maximum(-y, 0.0)


@dataclass(frozen=True)
class Huber(Loss):
    """½r² while |r| ≤ delta, then delta(|r| − delta/2), for r = z − y: least squares that is robust to outliers.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Huber(delta=1.0).value(np.array([0.5, 3.0]), np.zeros(2))
    array([0.125, 2.5  ])
    """

    delta: float = 1.0
    gamma = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", positive("delta", self.delta))

    def value(self, z: Array, y: Array) -> Array:
        r = z - y
        c = np.minimum(np.maximum(r, -self.delta), self.delta)
        return c * (r - 0.5 * c)

    def derivative(self, z: Array, y: Array) -> Array:
        return np.minimum(np.maximum(z - y, -self.delta), self.delta)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (np.abs(z - y) < self.delta) * 1.0

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        r = z - y
        c = np.minimum(np.maximum(r, -self.delta), self.delta)
        return c * (r - 0.5 * c), c

    def sum_and_derivative(self, z: Array, y: Array, c: Array | None) -> tuple[float, Array]:
        """Return Σ c_i φ_i, a product, and the slopes; a subclass may have another φ."""
        if type(self) is not Huber:
            return super().sum_and_derivative(z, y, c)
        rest = z - y
        slopes = np.clip(rest, -self.delta, self.delta)
        rest -= 0.5 * slopes
        return float(product(slopes if c is None else c * slopes, rest)), slopes

    def sizes_at_zero(self, weight: float, labels: float) -> float | None:
        """Return an upper bound on Σ c_i φ(0; y_i), by φ(0; y) ≤ ½y² and φ(0; y) ≤ delta |y|; a subclass may have another φ."""
        return min(0.5 * labels, self.delta * math.sqrt(weight * labels)) if type(self) is Huber else None

    def rough_fit(self, y: np.ndarray, weights: np.ndarray | None) -> RoughFit | None:
        """Return the models of least squares, those of residuals that are all small; a subclass may have another φ."""
        if type(self) is not Huber:
            return super().rough_fit(y, weights)
        nothing = np.zeros(y.shape)
        return RoughFit(y, nothing, nothing + 1.0, self.sum_and_derivative(nothing, y, weights)[0])

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y)

    @shorter
    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return ½ Σ c_i α_i² − Σ c_i α_i y_i, two products, inside the domain; a subclass may have another φ*."""
        own = type(self) is Huber and type(alpha) is np.ndarray
        if not (own and float(np.abs(alpha).max()) <= self.delta):
            return super().conjugates(alpha, y, weights)
        return _half_square_less(alpha, y, weights)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - self.delta, 0.0 * y + self.delta


@dataclass(frozen=True)
class SquaredEpsilonInsensitive(Loss):
    """½ max(0, |z − y| − epsilon)²; the loss of L2 support vector regression.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.SquaredEpsilonInsensitive(epsilon=0.5).value(np.array([0.4, 2.5]), np.zeros(2))
    array([0., 2.])
    """

    epsilon: float = 0.1
    gamma = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, or_zero=True))

    def value(self, z: Array, y: Array) -> Array:
        return 0.5 * np.maximum(np.abs(z - y) - self.epsilon, 0.0) ** 2

    def derivative(self, z: Array, y: Array) -> Array:
        r = z - y
        return r - np.minimum(np.maximum(r, -self.epsilon), self.epsilon)

    def second_derivative(self, z: Array, y: Array) -> Array:
        return (np.abs(z - y) >= self.epsilon) * 1.0

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        r = z - y
        r = r - np.minimum(np.maximum(r, -self.epsilon), self.epsilon)
        return 0.5 * r**2, r

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * u + y) + self.epsilon * np.abs(u)


@dataclass(frozen=True)
class SmoothEpsilonInsensitive(Loss):
    """max(0, |z − y| − epsilon) with its kinks rounded by parabolas over the given width: smooth with γ = width.

    With t = |z − y| − epsilon: 0 for t ≤ 0, t − width/2 for t ≥ width, t²/(2 width) between.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> loss = losses.SmoothEpsilonInsensitive(epsilon=0.1, width=0.5)
    >>> loss.gamma, loss.value(np.array([0.0, 0.35, 1.0]), np.zeros(3)).round(4)
    (0.5, array([0.    , 0.0625, 0.65  ]))
    """

    epsilon: float = 0.1
    width: float = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", positive("epsilon", self.epsilon, or_zero=True))
        object.__setattr__(self, "width", positive("width", self.width))

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


@dataclass(frozen=True)
class SmoothQuantile(Loss):
    """The pinball loss max(q(y − z), (q − 1)(y − z)) with its kink rounded by a parabola: smooth with γ = width.

    With r = z − y: r²/(2 width) while −q width ≤ r ≤ (1 − q) width, and linear with slope −q or 1 − q beyond.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> loss = losses.SmoothQuantile(q=0.5, width=0.1)
    >>> loss.gamma, loss.value(np.array([-1.0, 0.0, 1.0]), np.zeros(3)).round(4)
    (0.1, array([0.4875, 0.    , 0.4875]))
    """

    q: float = 0.5
    width: float = 1.0
    curvature = Curvature.PIECEWISE
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "q", between("q (the quantile)", self.q, 0.0, 1.0))
        object.__setattr__(self, "width", positive("width", self.width))

    @property
    def gamma(self) -> float:  # type: ignore[override]
        return self.width

    def value(self, z: Array, y: Array) -> Array:
        r = z - y
        c = np.minimum(np.maximum(r, -self.q * self.width), (1.0 - self.q) * self.width)
        return c * (r - 0.5 * c) / self.width

    def derivative(self, z: Array, y: Array) -> Array:
        return np.minimum(np.maximum((z - y) / self.width, -self.q), 1.0 - self.q)

    def second_derivative(self, z: Array, y: Array) -> Array:
        t = (z - y) / self.width
        return (t > -self.q) * (t < 1.0 - self.q) * 1.0 / self.width

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        return u * (0.5 * self.width * u + y)

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - self.q, 0.0 * y + (1.0 - self.q)
