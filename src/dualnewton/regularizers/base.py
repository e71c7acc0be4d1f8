"""The interface of a regulariser: its functions, and the declared form by which the planner chooses methods for it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from enum import Enum
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.validation import Array


def largest(values: Array) -> float:
    """Return the largest entry of an array, at least 0; NaN if there is one.

    A reduction by NumPy takes six times as long for few entries as the search for the index.
    """
    return max(float(values.item(values.argmax())), 0.0) if values.size else 0.0


class Kind(Enum):
    """The structure of g that is declared.

    Examples
    --------
    >>> from dualnewton import regularizers
    >>> regularizers.L2().form.kind, regularizers.L1().form.kind
    (<Kind.QUADRATIC: '½ Σ v_j w_j²'>, <Kind.SEPARABLE: 'a sum over features, with kinks or bounds'>)
    """

    QUADRATIC = "½ Σ v_j w_j²"
    SEPARABLE = "a sum over features, with kinks or bounds"
    GENERAL = "g, g* and ∇g* only"


@dataclass(frozen=True, eq=False)
class Form:
    """Closed form of g in arrays, for code that cannot call Python functions feature by feature.

        ∇g*(s) = clip(factor · (s − clip(s, ±threshold)), lower, upper),    0 ≤ factor ≤ 1
        g(w)   = Σ w_j²/(2 factor_j) + threshold_j |w_j|,    lower ≤ w ≤ upper

    Construct it by :meth:`quadratic` or :meth:`separable`. If g has no quadratic part, the factor is infinite and only the
    second line applies.

    Attributes
    ----------
    kind : Kind
        QUADRATIC, SEPARABLE or GENERAL. For GENERAL, kernels compile ``grad_conjugate`` and call it once per round.
    weights : array of shape (d,), optional
        v of a quadratic g; None for ones.
    threshold, factor, lower, upper : floats or arrays of shape (d,)
        One number for all features, or one number per feature.
    joint : bool
        Whether |w_j| denotes the Euclidean norm of the coefficients of feature j in all columns of a model. With one column
        this makes no difference.

    Examples
    --------
    >>> from dualnewton import regularizers
    >>> regularizers.ElasticNet(l1=2.0).form.threshold
    2.0
    """

    kind: Kind
    _: KW_ONLY
    weights: np.ndarray | None = None
    threshold: Any = 0.0
    factor: Any = 1.0
    lower: Any = -np.inf
    upper: Any = np.inf
    joint: bool = False

    @classmethod
    def quadratic(cls, weights: np.ndarray | None = None) -> Form:
        """Return the form of ½ Σ v_j w_j²; v is ones by default."""
        return cls(Kind.QUADRATIC, weights=weights, factor=1.0 if weights is None else 1.0 / weights)

    @classmethod
    def separable(
        cls,
        *,
        threshold: Any = 0.0,
        factor: Any = 1.0,
        lower: Any = -np.inf,
        upper: Any = np.inf,
        joint: bool = False,
    ) -> Form:
        """Return the form of Σ w_j²/(2 factor_j) + threshold_j |w_j| with bounds."""
        return cls(Kind.SEPARABLE, threshold=threshold, factor=factor, lower=lower, upper=upper, joint=joint)

    @cached_property
    def is_quadratic(self) -> bool:
        """Whether g = ½ Σ v_j w_j², which has a Hessian and neither kinks nor bounds."""
        return self.kind is Kind.QUADRATIC

    @cached_property
    def is_plain(self) -> bool:
        """Whether g = ½‖w‖²: ∇g* is the identity, and the sharper Theorem 7 applies."""
        return self.kind is Kind.QUADRATIC and self.weights is None

    @cached_property
    def is_general(self) -> bool:
        """Whether g is given by its functions only."""
        return self.kind is Kind.GENERAL

    @cached_property
    def has_thresholds(self) -> bool:
        """Whether each feature has a threshold, and no bounds but zero for coefficients that must not be negative."""
        if self.kind is not Kind.SEPARABLE or not np.all(self.threshold > 0.0) or not np.all(self.upper == np.inf):
            return False
        return self.has_both_signs or bool(np.all(self.lower == 0.0))

    @cached_property
    def has_both_signs(self) -> bool:
        """Whether coefficients may be negative, since there are no lower bounds."""
        return bool(np.all(self.lower == -np.inf))

    def limits(self, size: int) -> np.ndarray:
        """Return (threshold, factor, lower, upper) as the rows of an array of shape (4, size), one column per feature."""
        rows = (self.threshold, self.factor, self.lower, self.upper)
        return np.stack([np.broadcast_to(row, size) for row in rows])


GENERAL = Form(Kind.GENERAL)
"""The form of a g that is given by its functions only."""


class OfSeveral:
    """The functions of g for several models at once, an entry of the first axis each; a g may have faster ones."""

    def values(self, W: Array) -> np.ndarray:
        """g(w) of each model."""
        return np.array([self.value(w) for w in W])  # type: ignore[attr-defined]

    def conjugates(self, S: Array) -> np.ndarray:
        """g*(s) of each model."""
        return np.array([self.conjugate(s) for s in S])  # type: ignore[attr-defined]

    def grad_conjugates(self, S: Array) -> np.ndarray:
        """∇g*(s) of each model."""
        return np.array([self.grad_conjugate(s) for s in S])  # type: ignore[attr-defined]

    def reaches(self, S: Array) -> np.ndarray:
        """The largest r ≤ 1 for which g*(rs) is finite, of each model."""
        return np.array([self.reach(s) for s in S])  # type: ignore[attr-defined]


class Regularizer(OfSeveral):
    """Base class of the library's regularisers and of user-defined ones: define ``value``, ``conjugate``, ``grad_conjugate``.

    ``regularizers.check(YourRegularizer())`` reports each identity that fails. A declared ``form`` lets kernels and
    primal methods work feature by feature. See docs/extending.md.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> from dualnewton import regularizers
    >>> @dataclass(frozen=True)
    ... class Ridge(regularizers.Regularizer):
    ...     def value(self, w):
    ...         return 0.5 * float(w @ w)
    ...     def conjugate(self, s):
    ...         return 0.5 * float(s @ s)
    ...     def grad_conjugate(self, s):
    ...         return s
    >>> regularizers.check(Ridge(), size=3)
    """

    form: Form = GENERAL
    """The closed form of g; GENERAL if there is none."""

    size: int | None = None
    """The required number of features; None if any number is allowed."""

    strongly_convex: bool = True
    """Whether g is 1-strongly convex. If not (:class:`L1`), g* has no gradient from which a dual method could compute w."""

    def reach(self, s: Array) -> float:
        """Return the largest r ≤ 1 for which g*(rs) is finite: 1 wherever g is strongly convex."""
        return 1.0

    def value(self, w: Array) -> float:
        """g(w), +∞ if w is infeasible."""
        raise NotImplementedError(f"{type(self).__name__} has no value(w)")

    def conjugate(self, s: Array) -> float:
        """g*(s) = sup_w ⟨w, s⟩ − g(w)."""
        raise NotImplementedError(f"{type(self).__name__} has no conjugate(s)")

    def grad_conjugate(self, s: Array) -> Array:
        """∇g*(s), the point w that attains g*(s)."""
        raise NotImplementedError(f"{type(self).__name__} has no grad_conjugate(s)")


@dataclass(frozen=True)
class OverRows(OfSeveral):
    """Σ_k g(w_k) over the rows of W; its conjugate is Σ_k g*(s_k) over the rows of S."""

    g: Regularizer

    def value(self, W: np.ndarray) -> float:
        """Σ_k g(w_k)."""
        # ½‖W‖² takes one NumPy call for any number of rows.
        return 0.5 * float(np.square(W).sum()) if self.g.form.is_plain else sum(map(self.g.value, W))

    def conjugate(self, S: np.ndarray) -> float:
        """Σ_k g*(s_k)."""
        return 0.5 * float(np.square(S).sum()) if self.g.form.is_plain else sum(map(self.g.conjugate, S))

    def grad_conjugate(self, S: np.ndarray) -> np.ndarray:
        """∇g*(s_k), row by row."""
        return S if self.g.form.is_plain else np.stack([self.g.grad_conjugate(s) for s in S])

    def reach(self, S: np.ndarray) -> float:
        """Return the largest r ≤ 1 for which the conjugate is finite at rS."""
        return min(map(self.g.reach, S))
