"""The correction pairs of L-BFGS, in their compact form.

For a step s and the difference y of the gradients at its ends, the inverse must satisfy B⁻¹y = s. With the last pairs as the
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

from dualnewton.matrix.vectors import combination, products
from dualnewton.row_arrays import is_elsewhere, on_host
from dualnewton.solvers.primal.curvature import Curvature

CURVED = 1e-12
"""sᵀy counts as positive above this fraction of ‖s‖‖y‖."""


SHORT = 4096
"""Length up to which vectors in memory are the rows of one matrix, as those elsewhere are: a product then is one call. Longer
ones in memory are separate vectors: copying all of them for each new pair would take longer than a pass in many threads."""


@dataclass(frozen=True, eq=False)
class Corrections:
    """The last pairs: the rows of S, Y, Z as above (matrices, or tuples of long vectors), R with zeros below it, and YZᵀ."""

    S: Any
    Y: Any
    Z: Any
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
        S, Y, Z = (_appended(rows, start, own) for rows, own in ((self.S, step), (self.Y, difference), (self.Z, image)))
        m = len(S)
        found = _products((S, difference), (Z, difference), (_only(step), step), (_only(difference), difference))
        of_steps, across = found[:m], found[m : 2 * m]
        if not of_steps[-1] > CURVED * math.sqrt(found[-2] * found[-1]):
            return self
        R = _bordered(self.R[start:, start:], of_steps, 0.0)
        return Corrections(S, Y, Z, R, _bordered(self.YZ[start:, start:], across, across[:-1]))

    def rebased(self, curvature: Curvature) -> Corrections:
        """Return the same pairs as corrections of another matrix."""
        if not len(self):
            return self
        Z = _rows(tuple(curvature.solve(difference) for difference in self.Y))
        return replace(self, Z=Z, YZ=np.stack([_products((Z, difference)) for difference in self.Y]))

    def solve(self, g: np.ndarray, z: np.ndarray, *, scaled_well: bool) -> np.ndarray:
        """Return B⁻¹g, given z = B₀⁻¹g; unless B₀ is scaled well, the last pair sets its scale."""
        if not len(self):
            return z
        from scipy.linalg.blas import dtrsv

        scale = 1.0 if scaled_well else self.R[-1, -1] / self.YZ[-1, -1]
        of_steps, of_images = np.split(_products((self.S, g), (self.Z, g)), 2)
        inner = dtrsv(self.R, of_steps)
        middle = self.R.diagonal() * inner + scale * (self.YZ @ inner - of_images)
        outer = dtrsv(self.R, middle, trans=1)
        if isinstance(self.S, tuple):
            return combination(np.concatenate([[scale], outer, -scale * inner]), (z, *self.S, *self.Z))
        return scale * z + _combined(outer, self.S) + _combined(-scale * inner, self.Z)


def _is_apart(vector: np.ndarray) -> bool:
    """Whether vectors like this one are kept apart."""
    return vector.size > SHORT and not is_elsewhere(vector)


def _rows(vectors: tuple[np.ndarray, ...]) -> Any:
    """Return vectors as they are kept."""
    return vectors if _is_apart(vectors[0]) else np.stack(vectors)


def _only(vector: np.ndarray) -> Any:
    """Return one vector as it is kept."""
    return (vector,) if _is_apart(vector) else vector[None]


def _appended(rows: Any, start: int, vector: np.ndarray) -> Any:
    """Return the rows from ``start`` on, and one more."""
    if not len(rows):
        return _only(vector)
    return (*rows[start:], vector) if _is_apart(vector) else np.concatenate([rows[start:], vector[None]])


def _products(*pairs: tuple[Any, np.ndarray]) -> np.ndarray:
    """Return the products of the rows of each pair with its vector, one after the other, in memory."""
    if isinstance(pairs[0][0], tuple):
        return products([(row, vector) for rows, vector in pairs for row in rows])
    found = [rows @ vector for rows, vector in pairs]
    return np.asarray(on_host(found[0] if len(found) == 1 else np.concatenate(found)))


def _combined(factors: np.ndarray, rows: Any) -> np.ndarray:
    """Return the sum of the rows of a matrix, each times its factor."""
    return np.asarray(factors, like=rows) @ rows


def _bordered(square: np.ndarray, column: np.ndarray, row: np.ndarray | float) -> np.ndarray:
    """Append a column, and a row before its last entry."""
    m = len(column)
    larger = np.empty((m, m), order="F")
    larger[:-1, :-1] = square
    larger[:, -1] = column
    larger[-1, :-1] = row
    return larger
