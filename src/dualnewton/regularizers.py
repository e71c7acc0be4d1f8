"""Regularisers g: closed, 1-strongly convex, so that g* is 1-smooth and w = ∇g*(ᾱ) is the primal point of a dual one.

One is not: :class:`L1`, whose g* is finite on a bounded set only. The judge shortens dual points until they lie there.

The identities that bind the three functions (Section 4 of the paper; :func:`check` tests them):

* Fenchel–Young: g(w) + g*(s) ≥ ⟨w, s⟩, with equality exactly when w = ∇g*(s);
* ‖∇g*(s) − ∇g*(t)‖ ≤ ‖s − t‖, which is what makes the block model ½hᵀX_S h of SDNA an upper bound for every g here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualnewton._validate import Array, finite, frozen, vector
from dualnewton._validate import positive as positive_number
from dualnewton.errors import DualnewtonError

__all__ = ["L1", "L2", "Box", "ElasticNet", "GroupElasticNet", "NonNegative", "Regularizer", "check", "mixed"]

_FEASIBLE = 1e-12
"""‖s‖∞ counts as one up to this excess: what rounding leaves where a dual point was shortened until it is."""


class Regularizer:
    """A regulariser written by the library or by you: give it ``value``, ``conjugate`` and ``grad_conjugate``.

    ``regularizers.check(YourRegularizer())`` says in words what is wrong, if anything is. See docs/extending.md.
    """

    quadratic: bool = False
    """True only for g = ½‖w‖²: ∇g* is then the identity, and the sharper Theorem 7 applies."""

    size: int | None = None
    """The number of features it is made for; None if it fits any."""

    strongly_convex: bool = True
    """False only for :class:`L1`: there is no ∇g* then for a dual method to take its w from."""

    def limits(self, size: int) -> np.ndarray | None:  # noqa: ARG002
        """Return (threshold, factor, lower, upper) for each feature if g is separable and of the form below, else None.

            ∇g*(s) = clip(factor · (s − clip(s, ±threshold)), lower, upper),    0 ≤ factor ≤ 1
            g(w)   = Σ w_j²/(2 factor_j) + threshold_j |w_j|,    lower ≤ w ≤ upper

        Compiled code needs no more than that; of any other g it compiles ``grad_conjugate`` and calls it once a round.
        Where g has no quadratic part, the factor is infinite and only the second line has a meaning.
        """
        return None

    def reach(self, s: Array) -> float:  # noqa: ARG002
        """Return the largest r ≤ 1 for which g*(rs) is finite: 1 wherever g is strongly convex."""
        return 1.0

    def value(self, w: Array) -> float:
        """g(w), +∞ where w is not allowed."""
        raise NotImplementedError(f"{type(self).__name__} has no value(w)")

    def conjugate(self, s: Array) -> float:
        """g*(s) = sup_w ⟨w, s⟩ − g(w)."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugate(s)")

    def grad_conjugate(self, s: Array) -> Array:
        """∇g*(s), the point w that attains g*(s)."""
        raise NotImplementedError(f"{type(self).__name__} has no grad_conjugate(s)")


@dataclass(frozen=True, eq=False)
class L2(Regularizer):
    """½‖w‖², or ½ Σ v_j w_j² with a weight v_j ≥ 1 for each feature.

    Parameters
    ----------
    weights : array of shape (d,), optional
        v; ones by default. Penalties p_j > 0 are λv_j with λ = min_j p_j.
    """

    weights: Any = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        weights = vector("weights", self.weights, np.size(self.weights))
        if weights.size and (least := float(weights.min())) < 1.0:
            raise DualnewtonError(
                f"weights must be >= 1 everywhere, got {least!r} at index {int(weights.argmin())}: g has to be 1-strongly "
                "convex, so divide the weights by the least of them (it must be positive) and multiply lam by it"
            )
        object.__setattr__(self, "weights", weights)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((type(self), None if self.weights is None else self.weights.tobytes()))

    @property
    def quadratic(self) -> bool:  # type: ignore[override]
        """Whether ∇g* is the identity."""
        return self.weights is None

    @property
    def size(self) -> int | None:  # type: ignore[override]
        """The number of weights; None if there are none."""
        return None if self.weights is None else int(self.weights.size)

    def limits(self, size: int) -> np.ndarray | None:
        return None if self.weights is None else _limits(size, factor=1.0 / self.weights)

    def value(self, w: Array) -> float:
        return 0.5 * float(w @ (w if self.weights is None else self.weights * w))

    def conjugate(self, s: Array) -> float:
        return 0.5 * float(s @ (s if self.weights is None else s / self.weights))

    def grad_conjugate(self, s: Array) -> Array:
        return s if self.weights is None else s / self.weights


@dataclass(frozen=True)
class L1(Regularizer):
    """‖w‖₁, subject to w ≥ 0 if ``positive``: the penalty of the Lasso, which is not strongly convex.

    g*(s) is 0 if ‖s‖∞ ≤ 1 (if s ≤ 1 everywhere, where w ≥ 0), and +∞ otherwise.
    """

    positive: bool = False

    @property
    def strongly_convex(self) -> bool:  # type: ignore[override]
        """It is not."""
        return False

    def limits(self, size: int) -> np.ndarray:
        return _limits(size, threshold=1.0, factor=np.inf, lower=0.0 if self.positive else -np.inf)

    def reach(self, s: Array) -> float:
        return 1.0 / max(self._norm(s), 1.0)

    def value(self, w: Array) -> float:
        if self.positive and np.any(w < 0.0):
            return np.inf
        return float(np.abs(w).sum())

    def conjugate(self, s: Array) -> float:
        return 0.0 if self._norm(s) <= 1.0 + _FEASIBLE else np.inf

    def grad_conjugate(self, s: Array) -> Array:
        """Return 0, which attains g*(s) = 0 wherever that is finite; other points do so only where |s_j| = 1."""
        return np.zeros_like(s)

    def _norm(self, s: Array) -> float:
        return float(np.max(s if self.positive else np.abs(s), initial=0.0))


@dataclass(frozen=True)
class ElasticNet(Regularizer):
    """½‖w‖² + l1‖w‖₁, subject to w ≥ 0 if ``positive``.

    A penalty a(r‖w‖₁ + ½(1 − r)‖w‖²) is λg with λ = a(1 − r) and l1 = r/(1 − r): see :func:`mixed`.
    """

    l1: float = 1.0
    positive: bool = False

    def __post_init__(self) -> None:
        positive_number("l1", self.l1, or_zero=True)

    def limits(self, size: int) -> np.ndarray:
        return _limits(size, threshold=self.l1, lower=0.0 if self.positive else -np.inf)

    def value(self, w: Array) -> float:
        if self.positive and np.any(w < 0.0):
            return np.inf
        return 0.5 * float(w @ w) + self.l1 * float(np.abs(w).sum())

    def conjugate(self, s: Array) -> float:
        w = self.grad_conjugate(s)
        return 0.5 * float(w @ w)

    def grad_conjugate(self, s: Array) -> Array:
        return s - np.clip(s, -np.inf if self.positive else -self.l1, self.l1)


@dataclass(frozen=True)
class NonNegative(Regularizer):
    """½‖w‖² subject to w ≥ 0."""

    def limits(self, size: int) -> np.ndarray:
        return _limits(size, lower=0.0)

    def value(self, w: Array) -> float:
        return 0.5 * float(w @ w) if np.all(w >= 0.0) else np.inf

    def conjugate(self, s: Array) -> float:
        w = self.grad_conjugate(s)
        return 0.5 * float(w @ w)

    def grad_conjugate(self, s: Array) -> Array:
        return np.maximum(s, 0.0)


def _limits(
    size: int, threshold: Array = 0.0, factor: Array = 1.0, lower: Array = -np.inf, upper: Array = np.inf
) -> np.ndarray:
    return np.stack([np.broadcast_to(row, size) for row in (threshold, factor, lower, upper)])


def _bound(name: str, value: Any) -> np.ndarray:
    try:
        bound = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        bound = np.array(np.nan)
    if bound.ndim > 1 or np.isnan(bound).any():
        raise DualnewtonError(f"{name} must be a number or a vector of numbers, got {value!r}")
    return bound


@dataclass(frozen=True, eq=False)
class Box(Regularizer):
    """½‖w‖² subject to lower ≤ w ≤ upper, each a number or one number per feature; infinite bounds are allowed."""

    lower: Any = 0.0
    upper: Any = 1.0

    def __post_init__(self) -> None:
        lower, upper = _bound("lower", self.lower), _bound("upper", self.upper)
        if lower.ndim and upper.ndim and lower.shape != upper.shape:
            raise DualnewtonError(f"lower and upper must have one length, got {lower.size} and {upper.size}")
        if np.any(lower > upper) or np.any(lower == np.inf) or np.any(upper == -np.inf):
            raise DualnewtonError("lower must be <= upper everywhere, with a finite point between them")
        object.__setattr__(self, "lower", frozen(lower))
        object.__setattr__(self, "upper", frozen(upper))

    @property
    def size(self) -> int | None:  # type: ignore[override]
        """The length of the bounds; None if both are plain numbers."""
        return max(self.lower.size, self.upper.size) if self.lower.ndim or self.upper.ndim else None

    def limits(self, size: int) -> np.ndarray:
        return _limits(size, lower=self.lower, upper=self.upper)

    def value(self, w: Array) -> float:
        return 0.5 * float(w @ w) if np.all((self.lower <= w) & (w <= self.upper)) else np.inf

    def conjugate(self, s: Array) -> float:
        w = self.grad_conjugate(s)
        return float(s @ w) - 0.5 * float(w @ w)

    def grad_conjugate(self, s: Array) -> Array:
        return np.clip(s, self.lower, self.upper)


@dataclass(frozen=True, eq=False)
class GroupElasticNet(Regularizer):
    """½‖w‖² + strength Σ_k √|k| ‖w_k‖₂ over disjoint groups k of features: whole groups leave the model together.

    Parameters
    ----------
    groups : sequence of integers
        The group of each feature, in any numbering.
    strength : float
        The weight of the group norms against ½‖w‖².
    """

    groups: Any = ()
    strength: float = 1.0
    thresholds: Any = field(init=False, repr=False)  # strength √|k|

    def __post_init__(self) -> None:
        positive_number("strength", self.strength, or_zero=True)
        groups = np.asarray(self.groups)
        if groups.ndim != 1 or groups.size == 0:
            raise DualnewtonError(f"groups must name the group of each feature, got shape {groups.shape}")
        groups = np.unique(groups, return_inverse=True)[1]
        object.__setattr__(self, "groups", frozen(groups))
        object.__setattr__(self, "thresholds", frozen(self.strength * np.sqrt(np.bincount(groups))))

    @property
    def size(self) -> int | None:  # type: ignore[override]
        """The number of features that have a group."""
        return int(self.groups.size)

    def value(self, w: Array) -> float:
        norms = np.sqrt(np.bincount(self.groups, weights=w * w))
        return 0.5 * float(w @ w) + float(self.thresholds @ norms)

    def conjugate(self, s: Array) -> float:
        norms = np.sqrt(np.bincount(self.groups, weights=s * s))
        return 0.5 * float(np.sum(np.maximum(norms - self.thresholds, 0.0) ** 2))

    def grad_conjugate(self, s: Array) -> Array:
        # It runs compiled, too, where only fields are known of self: hence no call of another method.
        norms = np.sqrt(np.bincount(self.groups, weights=s * s))
        # A group of norm zero stays zero: any positive divisor will do.
        shrink = np.maximum(norms - self.thresholds, 0.0) / (norms + (norms == 0.0))
        return s * shrink[self.groups]


def mixed(strength: float, l1_ratio: float, *, positive: bool = False) -> tuple[float, Regularizer]:
    """Write strength · (r‖w‖₁ + ½(1 − r)‖w‖²), the penalty as scikit-learn has it, as λ g(w); return λ and g.

    Parameters
    ----------
    strength : float
        ``alpha`` of scikit-learn's regressions, 1/(C n) of its classifiers; positive.
    l1_ratio : float
        r ∈ [0, 1]: 0 is ridge, 1 the Lasso.
    positive : bool
        Whether w ≥ 0.
    """
    strength, r = positive_number("strength", strength), finite("l1_ratio", l1_ratio)
    if not 0.0 <= r <= 1.0:
        raise DualnewtonError(f"l1_ratio must be a number in [0, 1], got {l1_ratio!r}")
    if r == 1.0:
        return strength, L1(positive)
    lam = strength * (1.0 - r)
    if r == 0.0:
        return lam, NonNegative() if positive else L2()
    return lam, ElasticNet(r / (1.0 - r), positive)


def check(regularizer: Regularizer, size: int | None = None) -> None:
    """Test the identities that every part of the library relies on; raise a ``DualnewtonError`` that names each broken one.

    1-strong convexity of g, the Fenchel–Young inequality and its equality at w = ∇g*(s), ∇g* against differences of g*,
    and its 1-Lipschitz continuity, at random points of the given dimension (by default the regulariser's own, or 5).
    """
    from dualnewton._check import check_regularizer  # not needed to fit a model

    check_regularizer(regularizer, size or getattr(regularizer, "size", None) or 5)
