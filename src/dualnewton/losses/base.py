"""What a loss declares, and what follows from it for a loss of one column of margins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses.root import zero_of
from dualnewton.validation import Array, vector

BLOCK = 1 << 13
"""Margins that the functions of a loss are asked for at once: larger temporaries would be paged in anew for each of them."""


class Curvature(Enum):
    """What φ″ can be as the margin changes."""

    CONSTANT = "one number everywhere"
    PIECEWISE = "one number or zero"
    VARYING = "anything"


class Kink(NamedTuple):
    """A place where φ′ jumps, for each label: the margin, and the slopes of φ on both sides of it."""

    position: np.ndarray
    left: np.ndarray
    right: np.ndarray


class Loss:
    """A loss written by the library or by you.

    Subclass it as a frozen dataclass and give it the scalar functions, the domain of the conjugate and ``gamma``;
    ``losses.check(YourLoss())`` then says in words what is wrong, if anything is. The other declarations have defaults that
    are safe for every smooth loss of one margin. See docs/extending.md.
    """

    label_domain: ClassVar[str] = "finite real numbers"

    gamma: float | None = None
    """The largest known γ for which φ is 1/γ-smooth on the whole line; None where there is no such bound. Without it the dual
    has no known strong concavity: the primal methods serve such a loss, the rates and the rounds of the paper do not."""

    curvature: Curvature = Curvature.VARYING
    """What φ″ can be. CONSTANT makes the sharper Theorem 7 apply, and Newton's method needs one step; with PIECEWISE it
    updates its Hessian by the rows whose φ″ has changed."""

    kinked: ClassVar[bool] = False
    """Whether φ′ jumps somewhere: see :class:`NonSmooth`."""

    columns: int = 1
    """K, the margins that each example has: z_i is a number for K = 1, and a vector of K numbers otherwise."""

    @property
    def has_dual_rounds(self) -> bool:
        """Whether dual methods can work on blocks of examples: one dual variable for each, and a strongly concave dual."""
        return self.columns == 1 and self.gamma is not None

    # The functions of one example --------------------------------------------------------------------------------------

    def value(self, z: Array, y: Array) -> Array:
        """φ(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no value(z, y)")

    def derivative(self, z: Array, y: Array) -> Array:
        """φ′(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivative(z, y)")

    def second_derivative(self, z: Array, y: Array) -> Array:
        """φ″(z; y), at a kink any element of the generalised derivative; of several columns, the diagonal of the Hessian."""
        raise NotImplementedError(f"{type(self).__name__} has no second_derivative(z, y)")

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ and φ′ of arrays; a loss whose two formulas share an expensive part computes it once."""
        return self.value(z, y), self.derivative(z, y)

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ′ and φ″ of arrays, likewise."""
        return self.derivative(z, y), self.second_derivative(z, y)

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

    def kinks(self, y: Array) -> tuple[Kink, ...]:  # noqa: ARG002
        """Return the kinks of φ(·; y) from left to right; none for a smooth loss.

        Where the slopes at the kinks fill the domain of φ* without a gap, φ is piecewise linear between and beyond them, and a
        fit with a quadratic penalty ends by a linear system.
        """
        return ()

    def smoothed(self, width: float) -> Loss:
        """Return the smooth loss with the conjugate φ*(u) + (width/2)u², which lies at most width·u²/2 below φ at slope u.

        Only a loss with kinks is asked.
        """
        raise NotImplementedError(f"{type(self).__name__} has no smoothed(width)")

    def curvature_times(self, z: Array, y: Array, t: Array) -> Array:
        """φ″(z; y) t; of several columns, the Hessian of φ in the margins times t, row by row."""
        return self.second_derivative(z, y) * t

    def couplings(self, z: Array, y: Array) -> np.ndarray:
        """Return q_kl ≥ 0 for each two columns k < l, a column each, where the Hessian of φ is Σ q_kl (e_k − e_l)(e_k − e_l)ᵀ."""
        raise NotImplementedError(f"{type(self).__name__} has no couplings(z, y)")

    # What a problem asks of all examples together ------------------------------------------------------------------------

    def labels(self, y: Any, n: int) -> np.ndarray:
        """Return n labels as the functions take them; refuse, by name, what the loss is not defined for."""
        y = vector("y", y, n)
        if not (valid := self.valid_labels(y)).all():
            at = int(np.argmin(valid))
            raise DualnewtonError(
                f"y must hold {self.label_domain} for {type(self).__name__}, got {y[at]:g} at index {at}"
            )
        return y

    def nearest_dual(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return a point near α with every −α_i in the domain of φ*."""
        low, high = self.domain(y)
        return -np.clip(-alpha, low, high)

    def balanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return a point near α with Σ c_i α_i = 0, by shrinking the heavier sign towards zero.

        −α_i stays in the domain of φ*, which is convex and holds 0 for every loss that is bounded below.
        """
        up, down = c @ np.maximum(alpha, 0.0), c @ np.maximum(-alpha, 0.0)
        keep = min(up, down)
        shrink_up = keep / up if up > 0.0 else 0.0
        shrink_down = keep / down if down > 0.0 else 0.0
        return np.where(alpha > 0.0, shrink_up, shrink_down) * alpha

    def best_intercept(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0) -> Any:
        """argmin_b Σ c_i φ(z_i + b): the zero of the nondecreasing slope Σ c_i φ′(z_i + b), searched for from a guess.

        Parameters
        ----------
        margins, y : arrays
            Of all examples.
        weights : array of shape (n,), optional
            c; ones by default.
        near : float
            Where the search begins.
        """

        def slope(b: float) -> tuple[float, float, float]:
            value = curvature = terms = 0.0
            for rows in blocks(len(y)):
                first, second = self.derivatives(margins[rows] + b, y[rows])
                if weights is not None:
                    first, second = weights[rows] * first, weights[rows] * second
                value, curvature, terms = value + first.sum(), curvature + second.sum(), terms + np.abs(first).sum()
            return float(value), float(curvature), float(terms)

        return zero_of(slope, near, reach=max(1.0, float(np.abs(margins).max())))

    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Σ c_i φ*(−α_i; y_i), where a row of weight zero does not take part, whatever its dual variable."""
        total = 0.0
        for rows in blocks(len(y), self.columns):
            conjugate = self.conjugate(-alpha[rows], y[rows])
            if weights is not None:
                conjugate = weights[rows] * np.where(weights[rows] > 0.0, conjugate, 0.0)
            total += float(conjugate.sum())
        return total

    def conjugates_along(
        self,
        alpha: np.ndarray,
        y: np.ndarray,
        weights: np.ndarray | None,
        *,
        at_one: float,  # noqa: ARG002
    ) -> Callable[[float], float]:
        """Return s ↦ Σ c_i φ*(−sα_i; y_i) for s ∈ (0, 1], given its value at s = 1."""
        return lambda s: self.conjugates(s * alpha, y, weights)


class NonSmooth(Loss):
    """A loss with a kink, such as the hinge: convex, but 1/γ-smooth for no γ > 0.

    ``derivative`` is any subgradient, ``second_derivative`` any number. Beside them such a loss gives its smooth neighbours,
    which :func:`dualnewton.run.loop` follows; the problem of the loss itself certifies what they lead to. A piecewise linear loss
    declares its :meth:`kinks` as well, by which a fit with a quadratic penalty ends exactly.
    """

    kinked: ClassVar[bool] = True


class Margin(Loss):
    """A classification loss: a function of the product m = yz with labels y ∈ {−1, +1}."""

    label_domain: ClassVar[str] = "-1 or +1"

    def valid_labels(self, y: Array) -> Array:
        """Say for each label whether it is −1 or +1."""
        return np.abs(y) == 1.0


def require_smooth(loss: Loss, purpose: str) -> float:
    """Return γ; refuse a loss that has none where something is made of it."""
    if loss.gamma is None:
        remedy = (
            "use a neighbour such as loss.smoothed(0.1), or dualnewton.run.loop, which follows such neighbours to the loss itself"
            if loss.kinked
            else 'use dualnewton.run.loop with method="newton", which needs no such bound'
        )
        raise DualnewtonError(f"loss must be smooth for {purpose}, got {loss!r}, which has no gamma: {remedy}")
    return float(loss.gamma)


def blocks(n: int, columns: int = 1, least: int = 1) -> Iterator[slice]:
    """Cut n rows of margins into blocks on which the functions of a loss are fast, of at least so many rows each."""
    step = max(least, BLOCK // columns)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
