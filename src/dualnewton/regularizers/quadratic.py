"""Quadratic regularisers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.regularizers.base import Form, Regularizer
from dualnewton.validation import Array, vector

PLAIN = Form.quadratic()
"""The form of ½‖w‖²."""


@dataclass(frozen=True, eq=False)
class L2(Regularizer):
    """½‖w‖², or ½ Σ v_j w_j² with a weight v_j ≥ 1 for each feature.

    Parameters
    ----------
    weights : array of shape (d,), optional
        v; ones by default. Penalties p_j > 0 are λv_j with λ = min_j p_j.

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import regularizers
    >>> regularizers.L2().value(np.array([3.0, -4.0])), regularizers.L2(weights=[1.0, 2.0]).value(np.array([3.0, -4.0]))
    (12.5, 20.5)
    """

    weights: Any = None

    def __post_init__(self) -> None:
        if self.weights is None:
            return
        weights = vector("weights", self.weights, np.size(self.weights))
        if weights.size and (least := float(weights.min())) < 1.0:
            raise DualnewtonError(
                f"weights must be >= 1 everywhere, got {least!r} at index {int(weights.argmin())}: g must be 1-strongly "
                "convex, so divide the weights by their minimum (it must be positive) and multiply lam by it"
            )
        object.__setattr__(self, "weights", weights)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash((type(self), None if self.weights is None else self.weights.tobytes()))

    @cached_property
    def form(self) -> Form:  # type: ignore[override]
        return PLAIN if self.weights is None else Form.quadratic(self.weights)

    @property
    def size(self) -> int | None:  # type: ignore[override]
        """The number of weights; None if no weights are given."""
        return None if self.weights is None else int(self.weights.size)

    def value(self, w: Array) -> float:
        return 0.5 * float(w @ (w if self.weights is None else self.weights * w))

    def conjugate(self, s: Array) -> float:
        return 0.5 * float(s @ (s if self.weights is None else s / self.weights))

    def grad_conjugate(self, s: Array) -> Array:
        return s if self.weights is None else s / self.weights
