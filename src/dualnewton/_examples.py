"""What every problem over weighted examples has: the matrix, its shape, the weights, λ and whether there is an intercept."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dualnewton._validate import frozen, positive, vector
from dualnewton.errors import DualnewtonError
from dualnewton.matrix import Data, as_data


class Examples:
    """The parts of a frozen problem that do not depend on its loss."""

    X: Any
    lam: float
    sample_weight: Any
    offset: Any
    fit_intercept: bool

    def _settle(self, n: int, **checked: Any) -> None:
        """Check λ, the weights and the flag, and put them and what is given in the place of what the user gave."""
        weights = None if self.sample_weight is None else vector("sample_weight", self.sample_weight, n, low=0.0)
        if weights is not None and not weights.any():
            raise DualnewtonError("sample_weight must have a positive entry, got zeros only")
        checked |= {
            "X": getattr(self.data, "X", self.data),  # the matrix itself where it lies in memory
            "lam": 1.0 / n if self.lam is None else positive("lam", self.lam),
            "sample_weight": weights,
            "fit_intercept": bool(self.fit_intercept),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def _described(self, parts: str) -> str:
        extras = [name for name in ("sample_weight", "offset") if getattr(self, name) is not None]
        return (
            f"{type(self).__name__}(n={self.n}, d={self.d}, {parts}, lam={self.lam:g}"
            f"{''.join(f', {name}=...' for name in extras)}{', fit_intercept=True' if self.fit_intercept else ''})"
        )

    @cached_property
    def data(self) -> Data:
        """X behind the protocol by which everything else asks for it."""
        return as_data(self.X)

    @cached_property
    def norms(self) -> np.ndarray:
        """‖a_i‖² of each row."""
        return frozen(self.data.row_scores(np.ones(self.d)))

    @property
    def n(self) -> int:
        """The number of examples."""
        return self.data.n

    @property
    def d(self) -> int:
        """The number of features."""
        return self.data.d

    @cached_property
    def c(self) -> np.ndarray:
        """The weights as a vector, ones by default."""
        return frozen(np.ones(self.n)) if self.sample_weight is None else self.sample_weight


def best_factor(value: Callable[[float], float]) -> float:
    """Return the s ∈ (0, 1] that about minimises a convex function; searched for in log s, since it may be tiny."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda t: value(float(np.exp(t))), bounds=(-50.0, 0.0), method="bounded", options={"xatol": 1e-3}
    )
    return float(np.exp(found.x))
