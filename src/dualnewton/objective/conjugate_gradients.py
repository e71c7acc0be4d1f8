"""The method of conjugate gradients, with a preconditioner: for one linear system, or for several that share products."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MOST_PRODUCTS = 1000
"""Products for several systems at most: as many as the passes to which a run is limited by default."""

SINGULAR = 2.0**-48
"""Curvature pᵀMp, relative to the preconditioner, as a fraction of the largest so far, up to which M is singular along p."""

Product = Callable[[np.ndarray], np.ndarray]
"""The product of a matrix with an array: with each row, or with all entries."""


class System:
    """A linear system Mx = r with a positive semidefinite matrix. Each x is a direction of descent of ½xᵀMx − rᵀx."""

    def __init__(
        self,
        right: np.ndarray,  # right-hand side, of any shape
        inverse: Product,  # product with the inverse of the preconditioner; unknowns where it is zero stay at zero
        *,
        fraction: float,  # of the right-hand side at which a residual is small enough, in the norm of ``inverse``
        is_enough: Callable[[np.ndarray], bool] = lambda _: False,  # whether a residual is small enough by another rule
        # Curvature of a direction, relative to the preconditioner, as a fraction of the largest so far, that ends the method.
        flat: float = 0.0,
    ) -> None:
        self.inverse, self.is_enough, self.flat = inverse, is_enough, flat
        self.x, self.residual, z = np.zeros_like(right), right, inverse(right)
        self.power = self.length = float(right.ravel() @ z.ravel())
        self.enough, self.largest = fraction**2 * self.power, 0.0
        # The vector whose product with M is needed next; None once the system is solved.
        self.direction = z if self.power > self.enough and not is_enough(right) else None

    def advance(self, image: np.ndarray) -> None:
        """Move along the direction, given its product with M."""
        p, last, self.direction = self.direction, self.power, None
        assert p is not None
        curvature = float(p.ravel() @ image.ravel())
        self.largest = max(self.largest, curvature / self.length)
        if not curvature > self.flat * self.largest * self.length:  # NaN included
            return
        t = last / curvature
        self.x, self.residual = self.x + t * p, self.residual - t * image
        z = self.inverse(self.residual)
        self.power = float(self.residual.ravel() @ z.ravel())
        if self.power > self.enough and not self.is_enough(self.residual):
            ratio = self.power / last
            self.direction = z + ratio * p
            self.length = self.power + ratio**2 * self.length  # pᵀ inverse⁻¹ p: the residual is orthogonal to p


def conjugate_gradients(
    matrix: Product,
    right: np.ndarray,
    inverse: Product,
    *,
    most: int,  # largest number of products with the matrix
    check: Callable[[], None] = lambda: None,  # called after each product; it may raise an exception
    **rules: Any,  # further parameters of :class:`System`
) -> tuple[np.ndarray, int]:
    """Return the solution of a system and the number of products."""
    system, products = System(right, inverse, **rules), 0
    while products < most and system.direction is not None:
        image = matrix(system.direction)
        check()
        products += 1
        system.advance(image)
    return system.x, products


@dataclass
class Effort:
    """Limits on the products of several systems, and their number so far: a solution is approximate once these are reached."""

    products: float = MOST_PRODUCTS  # at most
    deadline: float = math.inf  # by ``time.perf_counter``
    # A residual of at most this fraction of the right-hand side, both in the norm of the preconditioner, is small enough.
    fraction: float = 0.0
    made: int = field(default=0, init=False)

    def is_over(self) -> bool:
        """Whether a limit is reached."""
        return self.made >= self.products or time.perf_counter() > self.deadline


def solve_together(
    product: Product,  # V ↦ VM
    right: np.ndarray,  # (S, m) right-hand sides
    inverse: np.ndarray,  # (m,) diagonal preconditioner; unknowns where it is zero stay at zero
    enough: np.ndarray,  # (S, m) absolute values of the entries of a residual that are small enough, for the other unknowns
    effort: Effort,
) -> np.ndarray:
    """Solve XM = R for several right-hand sides, the rows of R; systems that are not solved yet share products."""

    def system(own: np.ndarray, most: np.ndarray) -> System:
        rules: dict[str, Any] = {
            "fraction": effort.fraction,
            "is_enough": lambda r: not (np.abs(r) > most).any(),
            "flat": SINGULAR,
        }
        return System(own, inverse.__mul__, **rules)

    systems = list(map(system, right, np.where(inverse > 0.0, enough, math.inf)))
    while not effort.is_over() and (left := [each for each in systems if each.direction is not None]):
        images = product(np.array([each.direction for each in left]))
        effort.made += 1
        for each, image in zip(left, images, strict=True):
            each.advance(image)
    return np.array([each.x for each in systems])
