"""Regularisers that join the columns of a model: the coefficients of a feature in all columns become zero together.

For W of shape (K, d), with one row for each column of margins, ‖W_j‖ is the Euclidean norm of the K coefficients of feature j. A
vector w is a matrix with one row, for which ‖w_j‖ = |w_j|: for these the penalties are the ordinary l1 penalties.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.regularizers.base import Form, Regularizer, largest
from dualnewton.validation import Array
from dualnewton.validation import positive as positive_number

_FEASIBLE = 1e-12
"""Tolerance of ‖S_j‖ ≤ 1 + tolerance: it covers the rounding error of a dual point that was scaled to max_j ‖S_j‖ = 1."""


def feature_norms(W: Array) -> np.ndarray:
    """‖W_j‖ of each feature; the norm of one number is its absolute value, without rounding."""
    if W.ndim == 1 or len(W) == 1:
        return np.abs(W.reshape(-1))
    return np.sqrt(_ones(len(W)).dot(W * W))  # half of the time of einsum for few features


@cache
def _ones(count: int) -> np.ndarray:
    return np.ones(count)


@dataclass(frozen=True)
class JointL1(Regularizer):
    """Σ_j ‖W_j‖, the penalty of the multi-task Lasso, which is not strongly convex.

    g*(S) is 0 if all ‖S_j‖ ≤ 1, and +∞ otherwise: the dual point is scaled until it is finite (:meth:`reach`).

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import regularizers
    >>> W = np.array([[3.0, 0.0], [4.0, 0.0]])  # two outputs, two features
    >>> regularizers.JointL1().value(W)
    5.0
    """

    strongly_convex = False
    form = Form.separable(threshold=1.0, factor=np.inf, joint=True)

    def reach(self, s: Array) -> float:
        return 1.0 / max(largest(feature_norms(s)), 1.0)

    def value(self, w: Array) -> float:
        norms = feature_norms(w)
        return float(_ones(len(norms)).dot(norms))

    def conjugate(self, s: Array) -> float:
        return 0.0 if largest(feature_norms(s)) <= 1.0 + _FEASIBLE else np.inf

    def grad_conjugate(self, s: Array) -> Array:
        """Return 0, which attains g*(S) = 0 wherever g*(S) is finite; it is the only such point unless some ‖S_j‖ = 1."""
        return np.zeros_like(s)


@dataclass(frozen=True)
class JointElasticNet(Regularizer):
    """½‖W‖² + l1 Σ_j ‖W_j‖, with the conjugate ½ Σ_j max(‖S_j‖ − l1, 0)².

    A penalty a(r Σ_j ‖W_j‖ + ½(1 − r)‖W‖²) is λg with λ = a(1 − r) and l1 = r/(1 − r): see :func:`mixed`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import regularizers
    >>> W = np.array([[3.0, 0.0], [4.0, 0.0]])  # two outputs, two features
    >>> regularizers.JointElasticNet(l1=1.0).value(W)
    17.5
    """

    l1: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "l1", positive_number("l1", self.l1, or_zero=True))

    @cached_property
    def form(self) -> Form:  # type: ignore[override]
        return Form.separable(threshold=self.l1, joint=True)

    def value(self, w: Array) -> float:
        norms = feature_norms(w)
        return 0.5 * float(norms.dot(norms)) + self.l1 * float(_ones(len(norms)).dot(norms))

    def conjugate(self, s: Array) -> float:
        beyond = np.maximum(feature_norms(s) - self.l1, 0.0)
        return 0.5 * float(beyond.dot(beyond))

    def grad_conjugate(self, s: Array) -> Any:
        """Shorten each S_j by l1, or to zero if ‖S_j‖ ≤ l1."""
        norms = feature_norms(s)
        # For a feature of norm zero the divisor is one, which avoids 0/0.
        return s * (np.maximum(norms - self.l1, 0.0) / (norms + (norms == 0.0)))
