"""What the last steps tell of the curvature: the corrections of L-BFGS, in their compact form.

Of a step s and the difference y of the gradients at its ends, B⁻¹y = s is asked of the inverse. With the last pairs as the
rows of S and Y, R the upper triangle and D the diagonal of SYᵀ, and Z = Y B₀⁻¹ for the matrix B₀ that is corrected,

    B⁻¹g = B₀⁻¹g + Sᵀ(R⁻ᵀ(D + YZᵀ)R⁻¹ Sg − R⁻ᵀ Zg) − Zᵀ R⁻¹ Sg

(Byrd, Nocedal and Schnabel, 1994). The usual two loops over the pairs do the same, vector by vector, which for tens of pairs
takes longer than a pass over data in the cache.
"""

from __future__ import annotations

import numpy as np

from dualnewton.solvers.primal.curvature import Curvature

CURVED = 1e-12
"""sᵀy counts as positive above this fraction of ‖s‖‖y‖."""


class Corrections:
    """The last pairs.

    Parameters
    ----------
    size : int
        The length of the vectors.
    most : int
        Pairs that are kept.
    """

    def __init__(self, size: int, most: int) -> None:
        self.size, self.most = size, most
        self.clear()

    def __len__(self) -> int:
        return len(self.S)

    def clear(self) -> None:
        """Forget all pairs."""
        self.S = self.Y = self.Z = np.empty((0, self.size))
        self.SY = self.YZ = np.empty((0, 0))

    def add(self, step: np.ndarray, difference: np.ndarray, image: np.ndarray) -> None:
        """Take in s, y and B₀⁻¹y, if the curvature along the step is positive, and drop the oldest if there are too many."""
        bound = CURVED * float(np.sqrt((step @ step) * (difference @ difference)))
        if not float(step @ difference) > bound:
            return
        start = max(0, len(self) + 1 - self.most)
        self.S = np.concatenate([self.S[start:], step[None]])
        self.Y = np.concatenate([self.Y[start:], difference[None]])
        self.Z = np.concatenate([self.Z[start:], image[None]])
        self.SY = _bordered(self.SY[start:, start:], self.S @ difference, self.Y @ step)
        across = self.Z @ difference
        self.YZ = _bordered(self.YZ[start:, start:], across, across)

    def rebase(self, curvature: Curvature) -> None:
        """Correct another matrix from now on."""
        if len(self):
            self.Z = np.stack([curvature.solve(difference) for difference in self.Y])
            self.YZ = self.Y @ self.Z.T

    def solve(self, g: np.ndarray, z: np.ndarray, *, scaled_well: bool) -> np.ndarray:
        """B⁻¹g, given z = B₀⁻¹g; where the scale of B₀ is not to be trusted, the last pair sets it."""
        if not len(self):
            return z
        from scipy.linalg.blas import dtrsv

        scale = 1.0 if scaled_well else self.SY[-1, -1] / self.YZ[-1, -1]
        inner = dtrsv(self.SY, self.S @ g)  # R⁻¹Sg: only the upper triangle is read
        middle = self.SY.diagonal() * inner + scale * (self.YZ @ inner - self.Z @ g)
        outer = dtrsv(self.SY, middle, trans=1)
        return np.asarray(scale * z + outer @ self.S - scale * (inner @ self.Z))


def _bordered(square: np.ndarray, column: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Append a column and a row, whose last entries are the same."""
    m = len(column)
    larger = np.empty((m, m), order="F")
    larger[:-1, :-1] = square
    larger[:, -1] = column
    larger[-1, :] = row
    return larger
