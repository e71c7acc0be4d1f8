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

import numpy as np

from dualnewton.row_arrays import on_host
from dualnewton.solvers.primal.curvature import Curvature

CURVED = 1e-12
"""sᵀy counts as positive above this fraction of ‖s‖‖y‖."""


SHORT = 4096
"""Length of vectors up to which they are copied into one matrix for each product; vector by vector takes longer there."""


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
        bound = CURVED * math.sqrt(float(step.dot(step)) * float(difference.dot(difference)))
        if not float(step.dot(difference)) > bound:
            return self
        start = max(0, len(self) + 1 - most)
        S, Y, Z = (*self.S[start:], step), (*self.Y[start:], difference), (*self.Z[start:], image)
        across = _times(Z, difference)
        R = _bordered(self.R[start:, start:], _times(S, difference), 0.0)
        return Corrections(S, Y, Z, R, _bordered(self.YZ[start:, start:], across, across[:-1]))

    def rebased(self, curvature: Curvature) -> Corrections:
        """Return the same pairs as corrections of another matrix."""
        if not len(self):
            return self
        Z = tuple(curvature.solve(difference) for difference in self.Y)
        return replace(self, Z=Z, YZ=np.stack([_times(Z, difference) for difference in self.Y]))

    def solve(self, g: np.ndarray, z: np.ndarray, *, scaled_well: bool) -> np.ndarray:
        """Return B⁻¹g, given z = B₀⁻¹g; unless B₀ is scaled well, the last pair sets its scale."""
        if not len(self):
            return z
        from scipy.linalg.blas import dtrsv

        scale = 1.0 if scaled_well else self.R[-1, -1] / self.YZ[-1, -1]
        inner = dtrsv(self.R, _times(self.S, g))
        middle = self.R.diagonal() * inner + scale * (self.YZ @ inner - _times(self.Z, g))
        outer = dtrsv(self.R, middle, trans=1)
        return scale * z + _combined(outer, self.S) - scale * _combined(inner, self.Z)


def _times(rows: tuple[np.ndarray, ...], vector: np.ndarray) -> np.ndarray:
    """Return the products of each row with a vector."""
    if vector.size <= SHORT:
        return np.asarray(on_host(np.stack(rows) @ vector))
    return np.array([float(row.dot(vector)) for row in rows])  # ``@`` on vectors keeps the interpreter's lock


def _combined(factors: np.ndarray, rows: tuple[np.ndarray, ...]) -> np.ndarray:
    """Return the sum of the rows, each times its factor."""
    if rows[0].size <= SHORT:
        return np.asarray(factors, like=rows[0]) @ np.stack(rows)
    total = float(factors[0]) * rows[0]
    for factor, row in zip(factors[1:], rows[1:], strict=True):
        total += float(factor) * row
    return total


def _bordered(square: np.ndarray, column: np.ndarray, row: np.ndarray | float) -> np.ndarray:
    """Append a column, and a row before its last entry."""
    m = len(column)
    larger = np.empty((m, m), order="F")
    larger[:-1, :-1] = square
    larger[:, -1] = column
    larger[-1, :-1] = row
    return larger
