"""Regularisers of groups of features: whole groups of coefficients become zero together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.regularizers.base import Regularizer
from dualnewton.validation import Array, frozen
from dualnewton.validation import positive as positive_number


@dataclass(frozen=True, eq=False)
class GroupElasticNet(Regularizer):
    """½‖w‖² + strength Σ_k √|k| ‖w_k‖₂ over disjoint groups k of features.

    Parameters
    ----------
    groups : sequence of integers
        The group of each feature, in any numbering.
    strength : float
        The weight of the group norms relative to ½‖w‖².

    Examples
    --------
    >>> import numpy as np
    >>> from dualnewton import regularizers
    >>> g = regularizers.GroupElasticNet(groups=[0, 0, 1], strength=1.0)  # the group of each feature
    >>> g.grad_conjugate(np.array([0.3, 0.4, 3.0]))
    array([0., 0., 2.])
    """

    groups: Any = ()
    strength: float = 1.0
    thresholds: Any = field(init=False, repr=False)  # strength √|k|

    def __post_init__(self) -> None:
        object.__setattr__(self, "strength", positive_number("strength", self.strength, or_zero=True))
        groups = np.asarray(self.groups)
        if groups.ndim != 1 or groups.size == 0:
            raise DualnewtonError(
                f"groups must name the group of each feature, such as [0, 0, 1], got shape {groups.shape}"
            )
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
        # Kernels compile this method with the fields of self only, so that it must not call other methods.
        norms = np.sqrt(np.bincount(self.groups, weights=s * s))
        # For a group of norm zero the divisor is one, which avoids 0/0.
        shrink = np.maximum(norms - self.thresholds, 0.0) / (norms + (norms == 0.0))
        return s * shrink[self.groups]
