"""The regulariser of a coefficient matrix: the sum of a regulariser of vectors over its rows, one row per class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualnewton.regularizers.base import OfSeveral, Regularizer


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
