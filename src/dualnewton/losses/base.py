"""The interface of a loss, with default implementations for a loss of one margin per example."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.losses.root import zero_of
from dualnewton.losses.rounding import RoundingErrors
from dualnewton.row_arrays import BLOCK, blocks, compiled_function, summed
from dualnewton.validation import Array, vector

Method = TypeVar("Method", bound=Callable[..., Any])

BALANCING = 1e-2
"""Largest multiple of the balancing direction by which a dual point is changed, in units of margins."""


class Curvature(Enum):
    """The values that φ″ takes as the margin changes.

    Examples
    --------
    >>> from dualnewton import losses
    >>> losses.Logistic().curvature, losses.Squared().curvature
    (<Curvature.VARYING: 'any nonnegative number'>, <Curvature.CONSTANT: 'one number everywhere'>)
    """

    CONSTANT = "one number everywhere"
    PIECEWISE = "one number or zero"
    VARYING = "any nonnegative number"


class LabelForm(Enum):
    """The kind of the label of an example."""

    NUMBER = "one real number"
    CLASS = "a class number, stored as an integer of 64 bits"
    VECTOR = "a real number for each column of margins"


class Kink(NamedTuple):
    """A jump of φ′, for each label: the margin at which it lies, and φ′ to its left and to its right.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> (kink,) = losses.Hinge().kinks(np.array([1.0, -1.0]))
    >>> kink.position, kink.left, kink.right
    (array([ 1., -1.]), array([-1.,  0.]), array([0., 1.]))
    """

    position: np.ndarray
    left: np.ndarray
    right: np.ndarray


JOINT = {"value_and_derivative": ("value", "derivative"), "derivatives": ("derivative", "second_derivative")}
"""Functions of a loss that return two of its functions at once."""

BY_COLUMNS = {
    "losses_by_columns": ("value", "derivative", "value_and_derivative"),
    "curvature_by_columns": ("second_derivative",),
    "couplings_by_columns": ("couplings",),
    "conjugates_by_columns": ("conjugate",),
}
"""Functions of a loss of several columns for compiled passes, and the NumPy functions to which they are equal."""


def _with_own(inherited: Callable[..., Any], own: tuple[str | None, ...]) -> Callable[..., Any]:
    """Return a joint function that computes the named parts by the methods, and the other parts as inherited."""

    def joint(self: Any, z: Array, y: Array) -> tuple[Array, ...]:
        rest = () if all(own) else inherited(self, z, y)
        return tuple(rest[k] if name is None else getattr(self, name)(z, y) for k, name in enumerate(own))

    return joint


def shorter(method: Method) -> Method:
    """Declare that a method computes what that of ``Loss`` does for the class, by fewer operations on arrays.

    Kernels may then be derived from the definitions on which the method of ``Loss`` depends.
    """
    method.is_shorter = True  # type: ignore[attr-defined]
    return method


class Loss(RoundingErrors):
    """Base class of the library's losses and of user-defined ones.

    Subclass it as a frozen dataclass and define the scalar functions, the domain of the conjugate and ``gamma``;
    ``losses.check(YourLoss())`` then reports each identity that fails. The other declarations have defaults that
    are valid for every smooth loss of one margin. See docs/extending.md.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> @dataclass(frozen=True)
    ... class Residual(losses.Loss):
    ...     gamma = 1.0
    ...     def value(self, z, y):
    ...         return 0.5 * (z - y) ** 2
    ...     def derivative(self, z, y):
    ...         return z - y
    ...     def second_derivative(self, z, y):
    ...         return 1.0 + 0.0 * z
    ...     def conjugate_inside(self, u, y):
    ...         return 0.5 * u * u + u * y
    >>> losses.check(Residual())  # returns None: every identity holds
    """

    label_domain: ClassVar[str] = "finite real numbers"
    label_remedy: ClassVar[str] = ""  # appended to the error about a label outside the domain

    gamma: float | None = None
    """The largest known γ for which φ is 1/γ-smooth on the whole real line; None if there is no such bound. Every method also
    applies without γ: the step of a dual round is Newton's method on the primal of the block. But the dual is not known to be
    strongly concave, so that the paper's rates do not apply, and "auto" prefers primal methods."""

    curvature: Curvature = Curvature.VARYING
    """The values that φ″ takes. With CONSTANT the sharper Theorem 7 applies and Newton's method needs one step; with PIECEWISE
    Newton's method updates its Hessian by the rows whose φ″ has changed."""

    self_concordance: ClassVar[float | None] = None
    """M with |φ‴| ≤ Mφ″ everywhere, 0 where φ″ is constant; None if there is no such bound. With it the distance of a model from
    the minimiser is bounded in the norm of the Hessian (``objective/distance.py``)."""

    wrong: ClassVar[float | None] = None
    """A lower bound on the loss of an example that is classified wrongly, for a loss whose infimum 0 is not attained. If all
    losses are smaller, they tend to 0 along multiples of the model, and without a penalty there is no minimum."""

    kinked: ClassVar[bool] = False
    """Whether φ′ has a jump: see :class:`NonSmooth`."""

    shifts: ClassVar[bool] = False
    """Whether φ(z; y) is a function of z − y: examples with equal slopes can be summed (``solvers/outer/aggregation.py``)."""

    columns: int = 1
    """K, the number of margins per example: z_i is a number for K = 1 and a vector of length K otherwise."""

    label_columns: int = 1
    """Numbers per label: 1, or K if each column of margins has its own target."""

    label_form: ClassVar[LabelForm] = LabelForm.NUMBER
    """The kind of a label."""

    @property
    def has_dual_rounds(self) -> bool:
        """Whether block dual methods apply: each example has one dual variable, and φ′ is continuous."""
        return self.columns == 1 and not self.kinked

    @property
    def balances_by_direction(self) -> bool:
        """Whether :meth:`balancing_direction` applies: the domain of φ* is a product of intervals, one for each column."""
        return self.columns == 1

    @property
    def balances_by_mean(self) -> bool:
        """Whether α less a constant is a dual point for every constant: φ is quadratic, and φ* finite everywhere."""
        constant = self.curvature is Curvature.CONSTANT
        return constant and self.columns == 1 and type(self).domain is Loss.domain

    # The functions of one example --------------------------------------------------------------------------------------

    def value(self, z: Array, y: Array) -> Array:
        """φ(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no value(z, y)")

    def derivative(self, z: Array, y: Array) -> Array:
        """φ′(z; y)."""
        raise NotImplementedError(f"{type(self).__name__} has no derivative(z, y)")

    def second_derivative(self, z: Array, y: Array) -> Array:
        """φ″(z; y), at a kink of φ′ any element of the generalised derivative; for K > 1 columns the Hessian's diagonal."""
        raise NotImplementedError(f"{type(self).__name__} has no second_derivative(z, y)")

    def __init_subclass__(cls, **rest: Any) -> None:
        """If a class overrides φ or a derivative, also replace the inherited functions that depend on it.

        Functions that return two of them call the new one. Functions for compiled passes are removed, so that passes use NumPy.
        A declaration that φ ≥ 0 is not inherited.
        """
        super().__init_subclass__(**rest)
        if "value" in vars(cls) and "nonnegative" not in vars(cls):
            cls.nonnegative = False  # the declaration of the parent is about another function
        for joint, names in JOINT.items():
            inherited = getattr(cls, joint)
            if joint not in vars(cls) and inherited is not getattr(Loss, joint):
                own = tuple(name if name in vars(cls) else None for name in names)
                if any(own):
                    setattr(cls, joint, _with_own(inherited, own))
        for by_columns, arrays in BY_COLUMNS.items():
            if by_columns not in vars(cls) and not vars(cls).keys().isdisjoint(arrays):
                setattr(cls, by_columns, getattr(Loss, by_columns))

    def value_and_derivative(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ and φ′ of arrays; override it if the two formulas share an expensive term."""
        return self.value(z, y), self.derivative(z, y)

    def sum_and_derivative(self, z: Array, y: Array, c: Array | None) -> tuple[float, Array]:
        """Return Σ c_i φ_i and φ′ of some examples; override it if the sum needs no array of values."""
        values, slopes = self.value_and_derivative(z, y)
        return float(values.sum(dtype=np.float64) if c is None else c @ values), slopes

    def derivatives(self, z: Array, y: Array) -> tuple[Array, Array]:
        """Return φ′ and φ″ of arrays; override it if the two formulas share an expensive term."""
        return self.derivative(z, y), self.second_derivative(z, y)

    def conjugate_inside(self, u: Array, y: Array) -> Array:
        """φ*(u; y) for u in the closed domain; it is never evaluated outside."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugate_inside(u, y)")

    def domain(self, y: Array) -> tuple[Array, Array]:
        """Return the closed interval on which φ*(·; y) is finite, as (low, high); the whole line unless overridden."""
        return 0.0 * y - np.inf, 0.0 * y + np.inf

    def conjugate(self, u: Array, y: Array) -> Array:
        """φ*(u; y) = sup_z zu − φ(z; y), which is +∞ outside the domain."""
        if type(self).domain is Loss.domain:
            return self.conjugate_inside(u, y)
        low, high = self.domain(y)
        inside = np.minimum(np.maximum(u, low), high)  # np.clip takes longer for few examples
        return np.where(inside == u, self.conjugate_inside(inside, y), np.inf)

    def valid_labels(self, y: Array) -> Array:
        """Return for each label whether the loss is defined for it."""
        return np.isfinite(y)

    def kinks(self, y: Array) -> tuple[Kink, ...]:
        """Return the kinks of φ(·; y) from left to right; none for a smooth loss.

        If the slopes at the kinks cover the whole domain of φ*, then φ is piecewise linear, and a fit with a quadratic penalty
        is completed by one linear system in the dual variables of the examples that lie on a kink.
        """
        return ()

    def pieces(self, y: Array) -> np.ndarray | None:
        """Return s_0, k_1, s_1, …, k_m, s_m for each label if φ is piecewise linear, with slope s_j between kinks k_j and k_j+1.

        The dual methods need only these numbers, one row per label: φ* has the domain [s_0, s_m] and the slope k_j
        between s_j−1 and s_j. None for a loss whose slopes at its kinks, from left to right, do not cover the domain.
        """
        kinks, (low, high) = self.kinks(y), self.domain(y)
        ends, starts = [low, *(kink.right for kink in kinks)], [*(kink.left for kink in kinks), high]
        if not kinks or any(np.any(end != start) for end, start in zip(ends, starts, strict=True)):
            return None
        between = [part for kink in kinks for part in (kink.position, kink.right)]
        return np.column_stack([low, *between])

    def smoothed(self, width: float) -> Loss:
        """Return the smooth loss with the conjugate φ*(u) + (width/2)u², which lies at most width·u²/2 below φ at slope u.

        It is called for losses with kinks only.
        """
        raise NotImplementedError(f"{type(self).__name__} has no smoothed(width)")

    def curvature_times(self, z: Array, y: Array, t: Array) -> Array:
        """φ″(z; y) t; for several columns, the Hessian of φ with respect to the margins times t, row by row."""
        return self.second_derivative(z, y) * t

    def curvature_at(self, z: Array, y: Array) -> Callable[[Array], Array]:
        """Return t ↦ φ″(z; y) t, for many t at the same margins."""
        return (
            partial(np.multiply, self.second_derivative(z, y))
            if self.columns == 1
            else partial(self.curvature_times, z, y)
        )

    def couplings(self, z: Array, y: Array) -> np.ndarray:
        """Return one column q_kl ≥ 0 for each pair k < l, such that the Hessian of φ is Σ q_kl (e_k − e_l)(e_k − e_l)ᵀ.

        It is called for losses of several columns with varying curvature only.
        """
        raise NotImplementedError(f"{type(self).__name__} has no couplings(z, y)")

    # The same for compiled passes over losses of several columns ----------------------------------------------------------
    #
    # A loss of several columns may define them as loops in the subset of Python that Numba compiles; they may call functions of
    # their module. Without them NumPy evaluates the passes. z and u have the shape (K, m) for a block of m examples, so that
    # loops over examples read consecutive numbers, which LLVM vectorises. y has m labels, or the shape (K, m) for vectors.

    def losses_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, slopes: np.ndarray) -> None:
        """Write φ(z; y) to ``values`` and φ′(z; y) to ``slopes``."""
        raise NotImplementedError(f"{type(self).__name__} has no losses_by_columns(z, y, values, slopes)")

    def curvature_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, diagonal: np.ndarray) -> None:
        """Write the diagonal of φ″(z; y) to ``diagonal``; ``values`` is scratch for m numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no curvature_by_columns(z, y, values, diagonal)")

    def couplings_by_columns(self, z: np.ndarray, y: np.ndarray, values: np.ndarray, pairs: np.ndarray) -> None:
        """Write the couplings of the pairs k < l, in the order of :meth:`couplings`; ``values`` is scratch for m numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no couplings_by_columns(z, y, values, pairs)")

    def conjugates_by_columns(self, u: np.ndarray, y: np.ndarray, values: np.ndarray, scratch: np.ndarray) -> None:
        """Write φ*(u; y) to ``values``; ``scratch`` is memory in the shape of u."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugates_by_columns(u, y, values, scratch)")

    # Operations on all examples of a problem -----------------------------------------------------------------------------

    def labels(self, y: Any, n: int) -> np.ndarray:
        """Return the n labels in the type that the functions take; raise an error that names the first invalid label."""
        y = vector("y", y, n)
        # By default any finite number is valid, for which a vector has been checked.
        if type(self).valid_labels is not Loss.valid_labels and not (valid := self.valid_labels(y)).all():
            at = int(np.argmin(valid))
            raise DualnewtonError(
                f"y must hold {self.label_domain} for {type(self).__name__}, got {y[at]:g} at index {at}{self.label_remedy}"
            )
        return y

    def nearest_dual(self, alpha: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return a point near α with every −α_i in the domain of φ*."""
        low, high = self.domain(y)
        return -np.minimum(np.maximum(-alpha, low), high)  # branch-free, unlike np.clip

    def balanced(self, alpha: np.ndarray, y: np.ndarray, c: np.ndarray) -> np.ndarray:
        """Return a point near α with Σ c_i α_i = 0, by scaling down the entries of the sign with the larger weighted sum.

        −α_i stays in the domain of φ*, which is convex and contains 0 for every loss that is bounded below. α may have a row for
        each of several problems.
        """
        if alpha.ndim == 2:
            ups, downs = np.maximum(alpha, 0.0) @ c, np.maximum(-alpha, 0.0) @ c
            kept = np.minimum(ups, downs)
            shrink_ups, shrink_downs = kept / np.where(ups > 0.0, ups, 1.0), kept / np.where(downs > 0.0, downs, 1.0)
            return np.where(alpha > 0.0, shrink_ups[:, None], shrink_downs[:, None]) * alpha
        up, down = map(float, summed(_signed_sums, alpha, c))
        keep = min(up, down)
        shrink_up = keep / up if up > 0.0 else 0.0
        shrink_down = keep / down if down > 0.0 else 0.0
        return np.where(alpha > 0.0, shrink_up, shrink_down) * alpha

    def balancing_direction(self, alpha: np.ndarray, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Return d ≥ 0, such that −(α − td) lies in the domain of φ* for |t| ≤ ``BALANCING``, at α = −φ′(z).

        It corrects a small imbalance Σ c_i α_i: d_i = φ″(z_i), the change of α_i with the intercept, except for examples near an
        end of the domain, where d_i is smaller.
        """
        if (known := self.curvature_of_slope(alpha, z, y)) is not None:
            return known
        curvature = self.second_derivative(z, y)
        if type(self).domain is Loss.domain:
            return curvature
        return balancing_direction(-alpha, *self.domain(y), curvature)

    def curvature_of_slope(self, alpha: Array, z: Array, y: Array) -> Array | None:
        """Return φ″(z), computed from α = −φ′(z), if it is the balancing direction next to the ends of the domain too; or None.

        That is so where φ″ is at most 1/``BALANCING`` times the distance of φ′ from the ends.
        """
        return None

    def best_intercept(self, margins: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, near: Any = 0.0) -> Any:
        """argmin_b Σ c_i φ(z_i + b), found as the zero of the nondecreasing slope Σ c_i φ′(z_i + b).

        The search starts at ``near``; c is ones by default.
        """

        def slope(b: float) -> tuple[float, float, float]:
            value, curvature, terms = summed(_intercept_sums, margins, y, weights, self, b)
            return float(value), float(curvature), float(terms)

        return zero_of(slope, near, reach=lambda: max(1.0, float(np.abs(margins).max())))

    def best_constant(self, y: np.ndarray, weights: np.ndarray | None) -> Any:
        """argmin_b Σ c_i φ(b; y_i); override it where it has a closed form."""
        shape = (y.shape[0],) if self.columns == 1 else (y.shape[0], self.columns)
        return self.best_intercept(np.zeros(shape), y, weights)

    def rough_fit(self, y: np.ndarray, weights: np.ndarray | None) -> RoughFit | None:
        """Return quadratic models of the losses, at whose minimum a fit without a start begins; None if it begins at w = 0."""
        return None

    def conjugates(self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> float:
        """Σ c_i φ*(−α_i; y_i); a row of weight zero contributes zero even where its φ* is infinite."""
        total = 0.0
        for rows in blocks(y, self.columns) if len(y) * self.columns > BLOCK else (slice(None),):
            conjugate = self.conjugate(-alpha[rows], y[rows])
            if weights is not None:
                conjugate = weights[rows] * np.where(weights[rows] > 0.0, conjugate, 0.0)
            total += float(conjugate.sum())
        return math.inf if math.isnan(total) else total  # NaN proves nothing

    def conjugates_along(
        self, alpha: np.ndarray, y: np.ndarray, weights: np.ndarray | None, *, at_one: float
    ) -> Callable[[float], float]:
        """Return s ↦ Σ c_i φ*(−sα_i; y_i) for s ∈ (0, 1], given its value at s = 1."""
        return lambda s: self.conjugates(s * alpha, y, weights)


def _signed_sums(alpha: np.ndarray, c: np.ndarray) -> tuple[Any, Any]:
    """Return Σ c_i max(α_i, 0) and Σ c_i max(−α_i, 0)."""
    if (function := compiled_function("signed_sums_of", None, alpha)) is not None:
        up, down = function(alpha, (None, c, None))
        return up, down
    return c @ np.maximum(alpha, 0.0), c @ np.maximum(-alpha, 0.0)


def _intercept_sums(z: np.ndarray, y: np.ndarray, c: np.ndarray | None, loss: Loss, b: float) -> tuple[Any, Any, Any]:
    """Σ c_i φ′(z_i + b), Σ c_i φ″(z_i + b) and Σ c_i |φ′(z_i + b)|."""
    if (function := compiled_function("intercept_slopes_of", loss, z)) is not None:
        slope, bend, size = function(z, (y, c, None), sign=b)
        return slope, bend, size
    value = curvature = terms = 0.0
    for rows in blocks(y):
        first, second = loss.derivatives(z[rows] + b, y[rows])
        if c is not None:
            first, second = c[rows] * first, c[rows] * second
        value, curvature, terms = value + first.sum(), curvature + second.sum(), terms + np.abs(first).sum()
    return value, curvature, terms


class RoughFit(NamedTuple):
    """Quadratic models of the losses of all examples, computed from their labels; their curvature is about that of a good fit."""

    # (n,) Margins, and φ′ and a curvature at them.
    margins: np.ndarray
    slopes: np.ndarray
    curvature: np.ndarray
    value: float  # Σ c_i φ_i at the best constant margin


class Margin(Loss):
    """A classification loss: a function of the product m = yz with labels y ∈ {−1, +1}.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import losses
    >>> isinstance(losses.Logistic(), losses.Margin), isinstance(losses.Squared(), losses.Margin)
    (True, False)
    """

    label_domain: ClassVar[str] = "-1 or +1"
    label_remedy: ClassVar[str] = "; 2 * y - 1 converts labels 0 and 1"
    equal_at_zero = True  # where yz = 0 for both labels

    def valid_labels(self, y: Array) -> Array:
        """Return for each label whether it is −1 or +1."""
        return np.abs(y) == 1.0


def require_smooth(loss: Loss, purpose: str) -> float:
    """Return γ; raise an error for a loss without γ, with the ``purpose`` that needs it."""
    if loss.gamma is None:
        remedy = (
            "use a smoothed loss such as loss.smoothed(0.1), or dualnewton.solve, which solves a sequence of smoothed losses"
            if loss.kinked
            else 'use dualnewton.solve with method="newton", which needs no gamma'
        )
        raise DualnewtonError(f"loss must be smooth for {purpose}, got {loss!r}, which has no gamma: {remedy}")
    return float(loss.gamma)


def balancing_direction(slope: Array, low: Array, high: Array, curvature: Array) -> Array:
    """Return φ″, or less where the slope φ′ is next to an end of the domain [low, high] (see ``Loss.balancing_direction``)."""
    distance = np.minimum(slope - low, high - slope) / BALANCING
    return np.maximum(np.minimum(curvature, distance), 0.0)
