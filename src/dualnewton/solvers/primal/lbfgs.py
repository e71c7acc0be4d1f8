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

from dualnewton.matrix.vectors import combination_along, pair, products
from dualnewton.row_arrays import compiled_function, inner_products, is_elsewhere, on_host
from dualnewton.solvers.primal.curvature import Curvature

CURVED = 1e-12
"""sᵀy counts as positive above this fraction of ‖s‖‖y‖."""


SHORT = 4096
"""Length up to which vectors in memory are the rows of one matrix, as those elsewhere are: a product then is one call. Longer
ones in memory are separate vectors: copying all of them for each new pair would take longer than a pass in many threads."""


@dataclass(frozen=True, eq=False)
class End:
    """An end of a step: x, the gradient g there, and B₀⁻¹g."""

    x: np.ndarray
    gradient: np.ndarray
    image: np.ndarray


@dataclass(frozen=True, eq=False)
class Corrections:
    """The last pairs: the rows of S and Z interleaved (a matrix, or a tuple of long vectors), Y, the upper triangle R, and YZᵀ.

    Interleaved rows are appended at the end: on a device, adding a pair copies one matrix, and all products are one call.
    """

    both: Any
    Y: tuple[np.ndarray, ...]
    R: np.ndarray
    YZ: np.ndarray

    @classmethod
    def none(cls) -> Corrections:
        """Return no pairs."""
        products = np.empty((0, 0))
        return cls((), (), products, products)

    def __len__(self) -> int:
        return len(self.Y)

    def with_pair(self, step: np.ndarray, difference: np.ndarray, image: np.ndarray, most: int) -> Corrections:
        """Add s, y and B₀⁻¹y if the curvature sᵀy is positive, and drop the oldest pair if there are more than ``most``."""
        start = max(0, len(self) + 1 - most)
        both = _rows((*self.both[2 * start :], step, image)) if _is_apart(step) else self._grown(start, step, image)
        found, squares = _products(both, difference, (step, step), (difference, difference))
        return self._joined(start, both, difference, found, squares) or self

    def after_step(self, now: End, before: End, most: int) -> tuple[Corrections, np.ndarray | None]:
        """Do the same for the step between two ends; return the products of S and Z with the last gradient, if they are known.

        For long vectors, and on a device, one kernel computes the differences and all products.
        """
        start = max(0, len(self) + 1 - most)
        if (function := compiled_function("pair_of", None, now.x)) is not None:
            both, y, (found, along), squares = function(self.both[2 * start :] if len(self) else None, now, before)
        elif _is_apart(now.x):
            at, at_start = ((end.x, end.image, end.gradient) for end in (now, before))
            (step, image, y), found, along, squares = pair(at, at_start, self.both[2 * start :], now.gradient)
            both = (*self.both[2 * start :], step, image)
        else:
            step, image = now.x - before.x, now.image - before.image
            return self.with_pair(step, now.gradient - before.gradient, image, most), None
        joined = self._joined(start, both, y, found, squares)
        return (self, None) if joined is None else (joined, along)

    def _joined(
        self, start: int, both: Any, difference: np.ndarray, found: np.ndarray, squares: Any
    ) -> Corrections | None:
        """Return the pairs from ``start`` on with a further one, the last rows of ``both``, if its curvature is positive.

        ``found`` are the products of the rows with y, and ``squares`` sᵀs and yᵀy.
        """
        of_steps, across = _split(found)
        if not of_steps[-1] > CURVED * math.sqrt(math.prod(squares)):
            return None
        R = _bordered(self.R[start:, start:], of_steps, 0.0)
        YZ = _bordered(self.YZ[start:, start:], across, across[:-1])
        return Corrections(both, (*self.Y[start:], difference), R, YZ)

    def _grown(self, start: int, *vectors: np.ndarray) -> np.ndarray:
        """Return the matrix of the rows from a pair on, with these vectors as its last rows."""
        new = [each[None] for each in vectors]
        return np.concatenate([self.both[2 * start :], *new] if len(self) else new)

    def rebased(self, curvature: Curvature) -> Corrections:
        """Return the same pairs as corrections of another matrix."""
        if not len(self):
            return self
        images = [curvature.solve(difference) for difference in self.Y]
        both = _rows(tuple(each for pair in zip(self.both[::2], images, strict=True) for each in pair))
        return replace(
            self, both=both, YZ=np.stack([_split(_products(both, difference)[0])[1] for difference in self.Y])
        )

    def direction(
        self, g: np.ndarray, z: np.ndarray, *, scaled_well: bool, along: np.ndarray | None = None
    ) -> tuple[np.ndarray, float]:
        """Return −B⁻¹g and its product with g, given z = B₀⁻¹g and perhaps the products of S and Z with g.

        Unless B₀ is scaled well, the last pair sets its scale.
        """
        if not len(self):
            return (step := -z), inner_products((g, step))[0]
        from scipy.linalg.blas import dtrsv

        scale = 1.0 if scaled_well else float(self.R[-1, -1] / self.YZ[-1, -1])
        of_steps, of_images = _split(_products(self.both, g)[0] if along is None else along)
        inner = dtrsv(self.R, of_steps)
        middle = self.R.diagonal() * inner + scale * (self.YZ @ inner - of_images)
        outer = dtrsv(self.R, middle, trans=1)
        factors = np.empty(2 * len(inner))  # interleaved, as the rows of S and Z
        factors[::2], factors[1::2] = -outer, scale * inner
        if (function := compiled_function("combination_of", None, z)) is not None:
            found: tuple[Any, float] = function(-scale, z, factors, self.both, g)
            return found
        if isinstance(self.both, tuple):
            return combination_along(np.concatenate([[-scale], factors]), (z, *self.both), g)
        step = -scale * z + np.asarray(factors, like=self.both) @ self.both
        return step, inner_products((g, step))[0]


def _is_apart(vector: np.ndarray) -> bool:
    """Whether vectors of this length are kept as a tuple instead of the rows of a matrix."""
    return vector.size > SHORT and not is_elsewhere(vector)


def _rows(vectors: tuple[np.ndarray, ...]) -> Any:
    """Return vectors as a tuple or as the rows of a matrix."""
    return vectors if _is_apart(vectors[0]) else np.stack(vectors)


def _split(found: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the products with S and those with Z."""
    return found[::2], found[1::2]


def _products(rows: Any, vector: np.ndarray, *more: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, Any]:
    """Return the products of the rows with a vector, and those of further pairs of vectors, in memory."""
    if isinstance(rows, tuple):
        found = products([*((row, vector) for row in rows), *more])
        return found[: len(rows)], found[len(rows) :]
    return np.asarray(on_host(rows @ vector)), inner_products(*more) if more else ()


def _bordered(square: np.ndarray, column: np.ndarray, row: np.ndarray | float) -> np.ndarray:
    """Return a larger square matrix, with ``column`` as its last column and ``row`` as the rest of its last row."""
    m = len(column)
    larger = np.empty((m, m), order="F")
    larger[:-1, :-1] = square
    larger[:, -1] = column
    larger[-1, :-1] = row
    return larger
