"""Losses of generalised linear models with the logarithm as link: the mean of y is m = e^z.

Each is half the unit deviance of a Tweedie distribution with power p (variance m^p), without the terms that depend on y alone:

    φ(z; y) = e^{(2−p)z}/(2 − p) + y e^{−(p−1)z}/(p − 1),        φ′ = e^{(2−p)z} − y e^{−(p−1)z} = m^{1−p}(m − y)

with the limits p = 1 (Poisson, e^z − yz) and p = 2 (gamma, z + y e^{−z}). These are convex, but 1/γ-smooth for no γ, since φ″
grows exponentially. |φ‴| ≤ φ″, which replaces a bound on φ″ (``Loss.self_concordance``).

For p > 2 the first term is −e^{−(p−2)z}/(p − 2), and φ″ = (p − 1) y e^{−(p−1)z} − (p − 2) e^{−(p−2)z} is negative for
e^z > y(p − 1)/(p − 2). The inverse Gaussian deviance (p = 3) is therefore not convex in z, and weak duality would prove nothing
about it; this loss is therefore not offered.

An exponential with an exponent above ``LARGEST`` is replaced by its tangent there, so that no function overflows: the factor
min(max(x, LARGEST), FARTHEST) − BEFORE is 1 up to there. The losses at these margins are finite, but smaller than the true ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dualnewton.losses.base import Loss, RoughFit
from dualnewton.losses.rounding import Sizes
from dualnewton.row_arrays import RowArray, blocks
from dualnewton.validation import Array, between

LARGEST, BEFORE, FARTHEST = 700.0, 699.0, 710.0
"""The largest exponent (e^700 is about 1e304), the zero of the tangent there, and the end of the tangent (about 1e305)."""

UNDERFLOW = 746.0
"""exp(−UNDERFLOW) is zero in float64."""

TINY = float(np.finfo(np.float64).tiny)
"""Lower limit for arguments of logarithms."""

ROOT_STEPS = 0.9
"""The Newton steps by which the conjugate of :class:`Tweedie` inverts φ′ are 3 − ROOT_STEPS log min(p − 1, 2 − p), rounded down:
this many reach the precision of 80-bit numbers, three at p = 1.4 and nine at p = 1.001. At p = 1.5 the start is the solution."""


def _is_usual(exponents: Any) -> bool:
    """Whether a NumPy array holds no exponent above ``LARGEST``: the factors of the tangents are one then, and left out."""
    return (
        type(exponents) is np.ndarray
        and exponents.size > 0
        and bool(np.maximum.reduce(exponents, axis=None) <= LARGEST)
    )


class LogLink(Loss):
    """Base of the losses with the log link: the labels, and the best intercept in closed form."""

    label_domain: ClassVar[str] = "finite numbers >= 0"
    self_concordance: ClassVar[float | None] = 1.0

    power: float
    """p."""

    label_share: ClassVar[float] = 0.5
    """Share of the label, the rest being the mean of all labels, in the mean from which :meth:`rough_fit` begins."""

    def exponentials(self, sizes: Sizes) -> float:
        """Bound Σ c_i (e^{(2−p)z_i} + y_i e^{−(p−1)z_i}), the exponentials in φ and in its derivatives, for one sum Σ c_i φ_i."""
        raise NotImplementedError(f"{type(self).__name__} has no exponentials(sizes)")

    def shortfall(self, y: Array, c: Array | None) -> float:
        if self.nonnegative:
            return 0.0
        at_zero = self.conjugate_inside(0.0 * y, y)  # 0 lies in the domain of φ* for all labels
        return float(at_zero.sum() if c is None else c @ at_zero)

    def value_terms(self, sizes: Sizes) -> float:
        return 2.0 * (self.exponentials(sizes) + sizes.margins * max(sizes.labels, math.sqrt(sizes.weight)))

    def value_change(self, sizes: Sizes, y: Array) -> float:
        """Bound the change of Σ c_i φ(z_i) by errors e_i of the margins, which change an exponential by a factor e^{e_i}."""
        worst = sizes.largest_change
        if worst > 1.0:
            return math.inf
        linear = sizes.change * max(sizes.labels, math.sqrt(sizes.weight))  # yz of Poisson, z of Gamma
        return math.e * worst * self.exponentials(sizes) + linear

    def valid_labels(self, y: Array) -> Array:
        """Return for each label whether it is nonnegative."""
        return np.isfinite(y) & (y >= 0.0)

    def best_intercept(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0) -> Any:
        """argmin_b Σ c_i φ(z_i + b) = log Σ c_i y_i e^{−(p−1)z_i} − log Σ c_i e^{(2−p)z_i}, the zero of Σ c_i φ′(z_i + b).

        Where all labels of positive weight are zero the infimum is at −∞; the largest b at which every e^{(2−p)(z_i + b)}
        underflows to zero is returned. Margins beyond the range of float64 have no best intercept: NaN is returned.
        """
        up, down = 2.0 - self.power, 1.0 - self.power
        counted = _log_sum(down * margins, y if weights is None else weights * y)
        if counted == -np.inf:  # all labels are zero, or all margins are infinite
            largest = float(margins.max())
            return -UNDERFLOW / up - largest if math.isfinite(largest) else math.nan
        return counted - _log_sum(up * margins, weights)

    def best_constant(self, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Return the logarithm of the mean label; where that is no number, what :meth:`best_intercept` returns."""
        mean = _mean(y, weights)
        return math.log(mean) if 0.0 < mean < math.inf else super().best_constant(y, weights)

    def rough_fit(self, y: np.ndarray, weights: np.ndarray | None) -> RoughFit | None:
        """Return the models at means m_i between ȳ and y_i, where iteratively reweighted least squares usually begin.

        φ″ = m^{1−p}((2 − p)m + (p − 1)y). For the gamma loss it is nearly zero where y is small, and the mean of φ″ over labels
        of mean m, which is one, takes its place.
        """
        mean, p = _mean(y, weights), self.power
        if not 0.0 < mean < math.inf:
            return None
        m = mean + self.label_share * (y - mean)
        z = np.log(m)
        factor = 1.0 if p == 1.0 else np.exp((1.0 - p) * z)
        curvature = m if p == 1.0 else np.ones(z.shape) if p == 2.0 else factor * ((2.0 - p) * m + (p - 1.0) * y)
        at_mean = float(self.value(np.array([math.log(mean)]), np.array([mean]))[0])  # φ is an affine function of y
        return RoughFit(z, factor * (m - y), curvature, at_mean * (len(y) if weights is None else float(weights.sum())))


def _mean(y: RowArray, weights: RowArray | None) -> float:
    return float(y.mean() if weights is None else weights @ y / weights.sum())


def _log_sum(exponents: RowArray, factors: RowArray | None) -> float:
    """log Σ factors_i exp(exponents_i), factors ≥ 0; −∞ if all factors are zero."""
    highest = float((exponents if factors is None else np.where(factors > 0.0, exponents, -np.inf)).max())
    if highest == -np.inf:
        return highest
    total = 0.0
    for rows in blocks(exponents):
        terms = np.exp(np.minimum(exponents[rows] - highest, 0.0))
        total += float(terms.sum() if factors is None else factors[rows] @ terms)
    return highest + float(np.log(total))


@dataclass(frozen=True)
class Poisson(LogLink):
    """e^z − yz; the loss of Poisson regression for counts y ≥ 0 with the mean e^z.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Poisson().value(np.array([0.0, 1.0]), np.array([0.0, 2.0])).round(4)
    array([1.    , 0.7183])
    """

    power = 1.0
    equal_at_zero = True
    dual_curvature = 8.0 / 3.0  # φ*″(u) = 1/(u + y), where u + y ≥ (3/8)m

    def value(self, z: Array, y: Array) -> Array:
        return np.exp(np.minimum(z, LARGEST)) * (np.minimum(np.maximum(z, LARGEST), FARTHEST) - BEFORE) - y * z

    def derivative(self, z: Array, y: Array) -> Array:
        return np.exp(np.minimum(z, LARGEST)) - y

    def second_derivative(self, z: Array, y: Array) -> Array:
        return np.exp(np.minimum(z, LARGEST)) + 0.0 * y

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        if type(z) is np.ndarray and z.size > 0 and np.maximum.reduce(z, axis=None) <= LARGEST:  # as in _is_usual
            mean = np.exp(z)
            return mean - y * z, mean - y
        mean = np.exp(np.minimum(z, LARGEST))  # the most expensive term, shared by φ and φ′
        return mean * (np.minimum(np.maximum(z, LARGEST), FARTHEST) - BEFORE) - y * z, mean - y

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        mean = np.exp(z if _is_usual(z) else np.minimum(z, LARGEST))
        return mean - y, mean

    def curvature_of_slope(self, alpha: Array, z: Array, y: Array) -> Array | None:
        return y - alpha if type(self) is Poisson else None  # e^z, the distance of −α from the end −y of the domain

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        # v log v − v with 0 log 0 = 0; v = u + y is the mean of which u is the slope.
        v = u + y
        return v * np.log(v + (v == 0.0) * 1.0) - v

    def domain(self, y: Array) -> tuple[Array, Array]:
        return -y, 0.0 * y + np.inf

    def exponentials(self, sizes: Sizes) -> float:
        return abs(sizes.value) + sizes.labels * sizes.margins  # e^z = φ + yz

    def conjugate_terms(self, sizes: Sizes) -> float:
        return sizes.conjugate + 2.0 * math.sqrt(sizes.weight) * (sizes.dual + sizes.labels)


@dataclass(frozen=True)
class Gamma(LogLink):
    """z + y e^{−z}; the loss of gamma regression for y > 0 with the mean e^z.

    It is written in t = log y − z, in which y e^{−z} = e^t cannot overflow by the factor y alone.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Gamma().value(np.array([0.0, 1.0]), np.array([1.0, 2.0])).round(4)
    array([1.    , 1.7358])
    """

    label_domain: ClassVar[str] = "finite numbers > 0"
    power = 2.0
    label_share = 0.25  # single labels may be far from their mean, the more the larger p is

    def valid_labels(self, y: Array) -> Array:
        return np.isfinite(y) & (y > 0.0)

    def value(self, z: Array, y: Array) -> Array:
        t = np.log(y) - z
        return z + np.exp(np.minimum(t, LARGEST)) * (np.minimum(np.maximum(t, LARGEST), FARTHEST) - BEFORE)

    def derivative(self, z: Array, y: Array) -> Array:
        return 1.0 - np.exp(np.minimum(np.log(y) - z, LARGEST))

    def second_derivative(self, z: Array, y: Array) -> Array:
        return np.exp(np.minimum(np.log(y) - z, LARGEST))

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        t = np.log(y) - z
        if _is_usual(t):
            ratio = np.exp(t)
            return z + ratio, 1.0 - ratio
        ratio = np.exp(np.minimum(t, LARGEST))
        return z + ratio * (np.minimum(np.maximum(t, LARGEST), FARTHEST) - BEFORE), 1.0 - ratio

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        t = np.log(y) - z
        ratio = np.exp(t if _is_usual(t) else np.minimum(t, LARGEST))
        return 1.0 - ratio, ratio

    def curvature_of_slope(self, alpha: Array, z: Array, y: Array) -> Array | None:
        return 1.0 + alpha if type(self) is Gamma else None  # y e^{−z}, the distance of −α from the end 1 of the domain

    def value_at_zero(self, y: Array, zeros: Array) -> Array:
        return y if type(self) is Gamma else super().value_at_zero(y, zeros)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        # s log(s/y) − s with 0 log 0 = 0; s = 1 − u is the ratio of y to the mean of which u is the slope.
        s = 1.0 - u
        return s * (np.log(s + (s == 0.0) * 1.0) - np.log(y)) - s

    def domain(self, y: Array) -> tuple[Array, Array]:
        return 0.0 * y - np.inf, 0.0 * y + 1.0

    def label_sizes(self, y: Array) -> Array:
        return np.log(y)

    def exponentials(self, sizes: Sizes) -> float:
        return abs(sizes.value) + math.sqrt(sizes.weight) * sizes.margins  # y e^{−z} = φ − z

    def conjugate_terms(self, sizes: Sizes) -> float:
        # s log s and s log y with s = 1 + α ≥ 0.
        root = math.sqrt(sizes.weight)
        return sizes.conjugate + 2.0 * (root + sizes.dual) * (root + sizes.labels)


@dataclass(frozen=True)
class Tweedie(LogLink):
    """e^{(2−p)z}/(2−p) + y e^{−(p−1)z}/(p−1), 1 < p < 2: sums of a Poisson number of gamma variables, y = 0 included.

    The loss of total costs, many of which are zero. The conjugate has no closed form: with a = 2 − p and b = p − 1, the equation
    e^{az} − y e^{−bz} = u is solved by Newton's method, for the difference of the logarithms of its sides, written with positive
    terms only. The start is the solution for a = b = ½, where the equation is quadratic in e^{z/2},

        e^{az} = au + (a²u² + y^{2a})^½  for u ≥ 0,        y e^{−bz} = −bu + (b²u² + y^{2a})^½  for u < 0,

    which is right to first order for small u, and up to a factor of 2a or 2b for large |u|, for every p.

    Parameters
    ----------
    power : float
        p, strictly between 1 and 2. Poisson is the limit 1, Gamma the limit 2.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> losses.Tweedie(1.5).value(np.zeros(2), np.array([0.0, 2.0]))
    array([2., 6.])
    """

    power: float = 1.5
    nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "power", between("power", self.power, 1.0, 2.0))

    def value(self, z: Array, y: Array) -> Array:
        a, b = 2.0 - self.power, self.power - 1.0
        s, t = a * z, np.log(y + (y == 0.0) * 1.0) - b * z
        up = np.exp(np.minimum(s, LARGEST)) * (np.minimum(np.maximum(s, LARGEST), FARTHEST) - BEFORE)
        down = np.exp(np.minimum(t, LARGEST)) * (np.minimum(np.maximum(t, LARGEST), FARTHEST) - BEFORE)
        return up / a + (y > 0.0) * down / b

    def derivative(self, z: Array, y: Array) -> Array:
        a, b = 2.0 - self.power, self.power - 1.0
        down = np.exp(np.minimum(np.log(y + (y == 0.0) * 1.0) - b * z, LARGEST))
        return np.exp(np.minimum(a * z, LARGEST)) - (y > 0.0) * down

    def second_derivative(self, z: Array, y: Array) -> Array:
        a, b = 2.0 - self.power, self.power - 1.0
        down = np.exp(np.minimum(np.log(y + (y == 0.0) * 1.0) - b * z, LARGEST))
        return a * np.exp(np.minimum(a * z, LARGEST)) + b * (y > 0.0) * down

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        a, b = 2.0 - self.power, self.power - 1.0
        s, t = a * z, np.log(y + (y == 0.0) * 1.0) - b * z
        if _is_usual(s) and _is_usual(t):
            up, down = np.exp(s), (y > 0.0) * np.exp(t)
            return up / a + down / b, up - down
        up, down = np.exp(np.minimum(s, LARGEST)), (y > 0.0) * np.exp(np.minimum(t, LARGEST))
        value = (
            up * (np.minimum(np.maximum(s, LARGEST), FARTHEST) - BEFORE) / a
            + down * (np.minimum(np.maximum(t, LARGEST), FARTHEST) - BEFORE) / b
        )
        return value, up - down

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        a, b = 2.0 - self.power, self.power - 1.0
        s, t = a * z, np.log(y + (y == 0.0) * 1.0) - b * z
        if not (_is_usual(s) and _is_usual(t)):
            s, t = np.minimum(s, LARGEST), np.minimum(t, LARGEST)
        up, down = np.exp(s), (y > 0.0) * np.exp(t)
        return up - down, a * up + b * down

    def curvature_of_slope(self, alpha: Array, z: Array, y: Array) -> Array | None:
        # With the two terms s and t of −α = φ′ = s − t, φ″ = as + bt = s + bα: for y = 0, a times the distance from the end 0.
        a, b = 2.0 - self.power, self.power - 1.0
        return np.exp(np.minimum(a * z, LARGEST)) + b * alpha if type(self) is Tweedie else None

    def value_at_zero(self, y: Array, zeros: Array) -> Array:
        if type(self) is not Tweedie:
            return super().value_at_zero(y, zeros)
        return 1.0 / (2.0 - self.power) + y / (self.power - 1.0)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        a, b = 2.0 - self.power, self.power - 1.0
        log_y = np.log(y + (y == 0.0) * 1.0)
        size, of_label = np.maximum(a * u, -b * u), (y > 0.0) * np.exp(a * log_y)
        # size + (size² + y^{2a})^½; the squares, which might overflow, are of shares of the sum.
        total = np.maximum(size + of_label, TINY)
        share = size / total
        root = np.maximum(size + total * np.sqrt(1.0 - 2.0 * share * (1.0 - share)), TINY)
        log_root = np.log(root)
        z = (u >= 0.0) * log_root / a + (u < 0.0) * (log_y - log_root) / b
        if a == b:  # the root is one of the two terms e^{az} and y e^{−bz}, whose product is y
            return u * z - (root + y / root) / a
        high, low = np.maximum(u, 0.0), np.maximum(-u, 0.0)
        for _ in range(3 + int(-ROOT_STEPS * np.log(min(a, b)))):
            up = np.exp(np.minimum(a * z, LARGEST))
            down = (y > 0.0) * np.exp(np.minimum(log_y - b * z, LARGEST))
            left, right = np.maximum(up + low, TINY), np.maximum(down + high, TINY)
            z = z - np.log(left / right) / (a * up / left + b * down / right)
        up = np.exp(np.minimum(a * z, LARGEST))
        down = (y > 0.0) * np.exp(np.minimum(log_y - b * z, LARGEST))
        return u * z - up / a - down / b

    def domain(self, y: Array) -> tuple[Array, Array]:
        # The half-line u ≥ 0 for y = 0, the whole line for y > 0.
        return np.minimum(np.copysign(np.inf, TINY - y), 0.0), 0.0 * y + np.inf

    def label_sizes(self, y: Array) -> Array:
        return np.log(y + (y == 0.0) * 1.0)

    def exponentials(self, sizes: Sizes) -> float:
        return abs(sizes.value)  # both terms of φ are positive, and divided by numbers below one

    def conjugate_terms(self, sizes: Sizes) -> float:
        # φ* = uz − φ(z), where the smaller exponential of φ(z) is at most y^{2−p} ≤ 1 + y, the two differ by |u|, and y ≤ φ(0).
        a, b = 2.0 - self.power, self.power - 1.0
        exponentials = math.sqrt(sizes.weight) * sizes.dual + sizes.weight + sizes.at_zero
        return 2.0 * (sizes.conjugate + exponentials * (1.0 / a + 1.0 / b))
