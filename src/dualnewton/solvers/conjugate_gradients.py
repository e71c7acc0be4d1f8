"""The method of conjugate gradients for one linear system, with a preconditioner and a stopping rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def conjugate_gradients(
    matrix: Callable[[np.ndarray], np.ndarray],  # product with a positive semidefinite matrix
    right: np.ndarray,  # right-hand side, of any shape
    inverse: Callable[[np.ndarray], np.ndarray],  # product with the inverse of the preconditioner
    *,
    fraction: float,  # of the right-hand side at which a residual is small enough, in the norm of ``inverse``
    most: int,  # largest number of products with the matrix
    is_enough: Callable[[np.ndarray], bool] = lambda _: False,  # whether a residual is small enough by another rule
    # Curvature of a direction, relative to the preconditioner, as a fraction of the largest so far, that ends the method.
    flat: float = 0.0,
    check: Callable[[], None] = lambda: None,  # called after each product; it may raise an exception
) -> tuple[np.ndarray, int]:
    """Return the solution and the number of products. Each iterate is a direction of descent of ½xᵀMx − rᵀx, from zero on."""
    x, r = np.zeros_like(right), right
    p = z = inverse(r)
    power = length = float(r.ravel() @ z.ravel())
    enough, largest, products = fraction**2 * power, 0.0, 0
    while products < most and power > enough and not is_enough(r):
        image = matrix(p)
        check()
        products += 1
        curvature = float(p.ravel() @ image.ravel())
        largest = max(largest, curvature / length)
        if not curvature > flat * largest * length:  # NaN included
            break
        t = power / curvature
        x, r = x + t * p, r - t * image
        z = inverse(r)
        last, power = power, float(r.ravel() @ z.ravel())
        p = z + (power / last) * p
        length = power + (power / last) ** 2 * length  # pᵀ inverse⁻¹ p: r is orthogonal to the last direction
    return x, products
