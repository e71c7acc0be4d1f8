"""What a loss declares about the rounding errors of its own functions (used by ``objective/rounding.py``).

The defaults hold for every convex loss of one margin that is 1/γ-smooth and whose formulas consist of a few elementary functions
of z − y or of yz, each accurate to a few units in the last place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dualnewton.validation import Array

ULPS = 32.0
"""Error of one loss value or conjugate in units of u, relative to the terms of its formula: it has a dozen operations, and
the exponentials and logarithms of NumPy and of the kernels are accurate to 4 units in the last place."""

DOUBLE = 2.0**-53
"""u of float64."""


@dataclass(frozen=True)
class Roundoff:
    """The arithmetic of a certificate."""

    # u: each operation has a relative error of at most u. (Results are stored in float64 in any case.)
    unit: float = DOUBLE
    feasible: float = 2e-12  # tolerance with which g* of a g that is not strongly convex counts as finite
    # Relative error of one loss, and of the argument at which it was evaluated: ``ULPS`` times u.
    terms: float = ULPS * DOUBLE
    # Whether sums over the rows are those of the passes over the data, which add the sums of parts (``Data.additions``).
    in_parts: bool = True

    def gamma(self, m: float) -> float:
        """γ_m = mu/(1 − mu), the relative error of a sum of m products; infinite where m is too large for a bound."""
        error = m * self.unit
        return error / (1.0 - error) if error < 1.0 else math.inf


class Sizes(NamedTuple):
    """Sums over all examples that bound the errors of Σ c_i φ(z_i) and Σ c_i φ*(−α_i)."""

    value: float  # Σ c_i φ(z_i) as computed
    conjugate: float  # bound on Σ c_i |φ*(−α_i)|
    below: float  # upper bound on −Σ c_i min φ_i
    at_zero: float  # upper bound on Σ c_i |φ_i(0)|
    weight: float  # Σ c_i
    # Bounds on (Σ c_i x_i²)^½ for the margins x = z, the labels, the dual variables, and the errors of the margins.
    margins: float
    labels: float
    dual: float
    change: float
    largest_change: float  # bound on the error of each margin
    away: float  # bound on the distance of each dual variable from the domain of φ*
    squared_weight: float  # Σ c_i²
    # Σ c_i α_ik and Σ c_i |α_ik| as computed, of shape (K,) for K > 1 columns; None without an intercept.
    sums: Any
    absolute: Any
    mass: float  # bound on (Σ_ik (c_i α_ik)²)^½


class RoundingErrors:
    """The functions of a loss that bound rounding errors, with default implementations."""

    nonnegative: bool = False
    """Whether φ ≥ 0 everywhere. Otherwise −min φ = φ*(0) is evaluated where a bound needs it."""

    equal_at_zero: bool = False
    """Whether φ(0; y) is the same for all labels, of which 1 is one."""

    slope_limit: float | None = None
    """The largest |φ′| for any label, of a loss without γ; None if it is not known without the labels, or does not exist."""

    dual_curvature: float | None = None
    """κ such that φ*″ ≤ κ/m at all points nearer than (3/8)m to a point whose distance from the boundary of the domain of φ* is
    at least (3/4)m; None if it is not known, or does not exist."""

    def label_sizes(self, y: Array) -> Array:
        """Return the numbers that formulas compute from labels alone: the labels themselves."""
        return y

    def sizes_at_zero(self, weight: float, labels: float) -> float | None:
        """Return Σ c_i |φ_i(0)| up to rounding, given Σ c_i and Σ c_i y_i², if these determine it; else None."""
        if not self.equal_at_zero:
            return None
        try:
            return weight * _at_zero(self)
        except TypeError:  # a loss with parameters that have no hash, such as arrays
            return weight * _at_zero.__wrapped__(self)

    def value_at_zero(self, y: Array, zeros: Array) -> Array:
        """Return φ(0; y), given zero margins; override it where a formula is shorter."""
        found: Array = self.value(zeros, y)  # type: ignore[attr-defined]
        return found

    def shortfall(self, y: Array, c: Array | None) -> float:
        """Return an upper bound on −Σ c_i min φ_i = Σ c_i φ*(0)."""
        if self.nonnegative:
            return 0.0
        at_zero = self.conjugate(0.0 * y, y)  # type: ignore[attr-defined]
        return float(at_zero.sum() if c is None else c @ np.where(c > 0.0, at_zero, 0.0))

    def value_terms(self, sizes: Sizes) -> float:
        """Bound the sum over the examples of the absolute values of the terms of c_i φ(z_i)."""
        return abs(sizes.value) + 2.0 * max(sizes.below, 0.0)

    def value_change(self, sizes: Sizes, y: Array) -> float | None:
        """Bound the change of Σ c_i φ(z_i) by errors of the margins; None if no bound is known: without γ and ``slope_limit``.

        A 1/γ-smooth loss has φ′² ≤ 2(φ − min φ)/γ, so that by Cauchy–Schwarz Σ c_i (|φ′_i e_i| + e_i²/2γ) is at most this.
        """
        gamma = self.gamma  # type: ignore[attr-defined]
        if gamma is None:
            return None if self.slope_limit is None else self.slope_limit * math.sqrt(sizes.weight) * sizes.change
        above = max(sizes.value + sizes.below, 0.0) + 1e-6 * abs(sizes.value)  # the computed sum has an error, too
        return math.sqrt(2.0 * above / gamma) * sizes.change + 0.5 * sizes.change * sizes.change / gamma

    def conjugate_terms(self, sizes: Sizes) -> float:
        """Bound the sum of the absolute values of the terms of c_i φ*(−α_i): products of α and y, and others of one sign."""
        return sizes.conjugate + sizes.dual * (2.0 * sizes.labels + math.sqrt(sizes.weight))

    def domain_distance(self, alpha: Array, y: Array, roundoff: Roundoff) -> float:
        """Return by how much −α must be moved at most to lie in the domain of φ*: by 0, if φ* is infinite outside."""
        return 0.0

    def room(self, alpha: Array, y: Array) -> Array:
        """Return the distance of each −α_i from the boundary of the domain of φ*; one if the domain has no boundary.

        For several columns it is measured in the space of the moves whose entries add up to zero.
        """
        low, high = self.domain(y)  # type: ignore[attr-defined]
        distance = np.minimum(-alpha - low, high + alpha)
        return np.where(np.isinf(distance), 1.0, np.maximum(distance, 0.0))

    def closed(self, alpha: Array, y: Array) -> Array:
        """Return α with −α in the domain of φ* up to the rounding of its own type, for a more precise type than float64.

        The ends of the domain, such as 1 − q, are rounded in float64, where α may lie on them.
        """
        low, high = self.domain(y)  # type: ignore[attr-defined]
        return -np.clip(-alpha, low, high)

    def rebalanced(self, alpha: Array, y: Array, c: Array) -> Array:
        """Return a feasible point near α, whose Σ c_i α_i is zero in float64, with a sum that is zero in the type of α.

        The entries of the sign with the larger sum are scaled down: the domain of φ* is convex and contains 0.
        """
        up, down = c @ np.maximum(alpha, 0.0), c @ np.maximum(-alpha, 0.0)
        smaller = min(up, down)
        return np.where(alpha > 0.0, smaller / (up or 1.0), smaller / (down or 1.0)) * alpha

    def balancing_cost(self, sizes: Sizes, y: Array, c: Array | None, *, error: float) -> tuple[float, float]:
        """Bound what :meth:`rebalanced` costs in exact arithmetic.

        With a factor 1 − τ for the entries of one sign, φ* grows by at most τ(φ*(0) − φ*(−α)) by convexity. The bounds
        returned are those of the growth of Σ c_i φ*(−α_i), and of the Euclidean norm of the move of cα, for a relative error
        of a sum over the rows.
        """
        total, excess = sizes.absolute, abs(sizes.sums)
        if total == 0.0:
            return 0.0, 0.0
        smaller = 0.5 * (total - excess) - 2.0 * error * total  # the sum of the entries of one sign
        share = (excess + 4.0 * error * total) / smaller if smaller > 0.0 else math.inf
        at_zero = 0.0 if self.nonnegative else abs(sizes.below) + 2.0 * sizes.at_zero  # Σ c_i φ*(0) of some examples
        return share * (sizes.conjugate + at_zero), min(share, 1.0) * sizes.mass


@lru_cache(typed=True)  # losses without parameters have one hash: they would be compared with each other
def _at_zero(loss: Any) -> float:
    """Return |φ(0)|, which is the same for all labels, once for each loss: NumPy's calls for one number take 10 µs."""
    return abs(float(loss.value(np.zeros(1), np.ones(1))[0]))
