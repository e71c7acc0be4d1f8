"""The correction pairs of L-BFGS, in their compact form.

For a step s and the difference y of the gradients at its ends, B⁻¹y = s is required of the inverse. With the last pairs as the
rows of S and Y, R the upper triangle and D the diagonal of SYᵀ, and Z = Y B₀⁻¹ for the matrix B₀ that is corrected,

    B⁻¹g = B₀⁻¹g + Sᵀ(R⁻ᵀ(D + YZᵀ)R⁻¹ Sg − R⁻ᵀ Zg) − Zᵀ R⁻¹ Sg

(Byrd, Nocedal and Schnabel, 1994). The usual two loops over the pairs do the same, vector by vector, which for tens of short
pairs takes longer than a pass over data in the cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.row_arrays import is_elsewhere, on_host
from dualnewton.solvers.primal.curvature import Curvature

CURVED = 1e-12
"""sᵀy counts as positive above this fraction of ‖s‖‖y‖."""


SHORT = 4096
"""Length of vectors in memory up to which they are copied into one matrix for each product; vector by vector takes longer there.
Vectors elsewhere are always copied: each product of its own would wait for its result."""


@dataclass(frozen=True, eq=False)
class Corrections:
    """The last pairs: the rows of S, Y, Z as above, R (with zeros below the diagonal) and YZᵀ.

    The rows are separate vectors: copying all of them for each new pair would take longer than a pass in many threads.
    """

    S: tuple[np.ndarray, ...]
    Y: tuple[np.ndarray, ...]
    Z: tuple[np.ndarray, ...]
    R: np.ndarray
    YZ: np.ndarray

    @classmethod
    def none(cls) -> Corrections:
        """Return no pairs."""
        products = np.empty((0, 0))
        return cls((), (), (), products, products)

    def __len__(self) -> int:
        return len(self.S)

    def with_pair(self, step: np.ndarray, difference: np.ndarray, image: np.ndarray, most: int) -> Corrections:
        """Add s, y and B₀⁻¹y if the curvature sᵀy is positive, and drop the oldest pair if there are more than ``most``."""
        start = max(0, len(self) + 1 - most)
        S, Y, Z = (*self.S[start:], step), (*self.Y[start:], difference), (*self.Z[start:], image)
        m, products = len(S), _times(_gathered((*S, *Z, difference)), difference)
        of_steps, across = products[:m], products[m:-1]
        if not of_steps[-1] > CURVED * math.sqrt(float(step.dot(step)) * products[-1]):
            return self
        R = _bordered(self.R[start:, start:], of_steps, 0.0)
        return Corrections(S, Y, Z, R, _bordered(self.YZ[start:, start:], across, across[:-1]))

    def rebased(self, curvature: Curvature) -> Corrections:
        """Return the same pairs as corrections of another matrix."""
        if not len(self):
            return self
        Z = tuple(curvature.solve(difference) for difference in self.Y)
        rows = _gathered(Z)
        return replace(self, Z=Z, YZ=np.stack([_times(rows, difference) for difference in self.Y]))

    def solve(self, g: np.ndarray, z: np.ndarray, *, scaled_well: bool) -> np.ndarray:
        """Return B⁻¹g, given z = B₀⁻¹g; unless B₀ is scaled well, the last pair sets its scale."""
        if not len(self):
            return z
        from scipy.linalg.blas import dtrsv

        scale = 1.0 if scaled_well else self.R[-1, -1] / self.YZ[-1, -1]
        rows = _gathered((*self.S, *self.Z))
        of_steps, of_images = np.split(_times(rows, g), 2)
        inner = dtrsv(self.R, of_steps)
        middle = self.R.diagonal() * inner + scale * (self.YZ @ inner - of_images)
        outer = dtrsv(self.R, middle, trans=1)
        return scale * z + _combined(np.concatenate([outer, -scale * inner]), rows)


def _gathered(rows: tuple[np.ndarray, ...]) -> Any:
    """Return vectors as the rows of one matrix, or as they are where that takes longer (``SHORT``)."""
    return np.stack(rows) if rows[0].size <= SHORT or is_elsewhere(rows[0]) else rows


def _times(rows: Any, vector: np.ndarray) -> np.ndarray:
    """Return the products of each row with a vector, in memory."""
    if isinstance(rows, tuple):
        return np.array([row.dot(vector) for row in rows])  # ``@`` on vectors keeps the interpreter's lock
    return np.asarray(on_host(rows @ vector))


def _combined(factors: np.ndarray, rows: Any) -> np.ndarray:
    """Return the sum of the rows, each times its factor."""
    if not isinstance(rows, tuple):
        return np.asarray(factors, like=rows) @ rows
    from scipy.linalg.blas import daxpy

    total = np.zeros(rows[0].size)
    for factor, row in zip(factors.tolist(), rows, strict=True):
        total = daxpy(
            row, total, a=factor
        )  # in place, in a quarter of the time of NumPy, which writes each product first
    return total


def _bordered(square: np.ndarray, column: np.ndarray, row: np.ndarray | float) -> np.ndarray:
    """Append a column, and a row before its last entry."""
    m = len(column)
    larger = np.empty((m, m), order="F")
    larger[:-1, :-1] = square
    larger[:, -1] = column
    larger[-1, :-1] = row
    return larger
