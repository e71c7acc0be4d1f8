"""Newton's method for P* on sparse data with many features and many examples, for which no Hessian can be formed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

import dualnewton as dn

DOMINANT = 2_000
"""Number of columns that the preconditioner treats exactly; the inverse of their block takes 32 MB."""

FORCING = (1e-2, 1e-4)
"""Relative residual to which a Newton system is solved: the first one, and the smallest, since each is a tenth of the last."""

NEGLIGIBLE = 1e-12
"""Second derivative, relative to the largest, below which an example counts as linear and is left out of the system."""

Linear = Callable[[np.ndarray], np.ndarray]


def dual_newton(problem: dn.Problem, u: np.ndarray, tight: float, seconds: float) -> np.ndarray:
    """Minimise P over w = Xᵀu by Newton's method until the relative gap of w and α = λn·u is ``tight``, or until the limit.

    With h = φ″ and r = z − φ′/φ″ at the margins z of the last point, the Newton point is w = Xᵀu for

        (X Xᵀ + λn diag(1/h)) u = r,        u_i = 0 where h_i = 0,

    for losses with φ′ = 0 wherever φ″ = 0. Unlike −φ′(Xw)/λn, this u does not magnify the error of w by 1/λ.
    """
    X, y, phi, lam_n = problem.X, problem.y, problem.loss, problem.lam * problem.n
    columns, end = X.T.tocsr(), time.perf_counter() + seconds
    forcing, least = FORCING
    while True:
        w = columns @ u
        certificate = problem.certify(w, alpha=lam_n * u)
        if certificate.relative_gap <= tight or time.perf_counter() > end:
            return u
        z = X @ w
        slope, h = phi.derivative(z, y), phi.second_derivative(z, y)
        active = h > NEGLIGIBLE * h.max()
        rows, diagonal = X[active], lam_n / h[active]
        right = z[active] - slope[active] / h[active]
        step = -u
        step[active] += conjugate_gradients(
            product(rows, diagonal), right, u[active], preconditioner(rows, diagonal), forcing, end
        )
        along, length = columns @ step, 1.0
        while problem.primal(w + length * along) > certificate.primal and length > 1e-6:
            length *= 0.5
        u = u + length * step
        forcing = max(0.1 * forcing, least)


def product(X: Any, diagonal: np.ndarray) -> Linear:
    """u ↦ (X Xᵀ + diag) u."""
    columns = X.T.tocsr()
    return lambda u: X @ (columns @ u) + diagonal * u


def preconditioner(X: Any, diagonal: np.ndarray) -> Linear:
    """Return an approximate inverse of X Xᵀ + diag: the dominant columns of X exactly, the others by their diagonal.

    In text data a few thousand words account for most of the matrix. The inverse is computed by Woodbury's identity.
    """
    squares = X.multiply(X).tocsr()
    norms = np.asarray(squares.sum(axis=1)).ravel()
    dominant = np.argsort(-(squares.T @ (1.0 / (norms + diagonal))))[:DOMINANT]
    words = X[:, dominant]
    rest = norms - np.asarray(squares[:, dominant].sum(axis=1)).ravel() + diagonal
    inner = (words.T @ sp.diags_array(1.0 / rest) @ words).toarray() + np.eye(len(dominant))
    inverse = la.inv(inner, overwrite_a=True)  # one product is faster than two triangular solves

    def apply(v: np.ndarray) -> np.ndarray:
        scaled = v / rest
        return scaled - (words @ (inverse @ (words.T @ scaled))) / rest

    return apply


def conjugate_gradients(
    product: Linear, right: np.ndarray, x: np.ndarray, precondition: Linear, forcing: float, end: float
) -> np.ndarray:
    """Solve product(x) = right until the preconditioned residual is reduced by ``forcing``, or until the time limit."""
    x = x.copy()
    residual = right - product(x)
    z = precondition(residual)
    direction, size = z, float(residual @ z)
    goal = forcing**2 * size
    while size > goal and time.perf_counter() < end:
        image = product(direction)
        length = size / float(direction @ image)
        x += length * direction
        residual -= length * image
        z = precondition(residual)
        size, before = float(residual @ z), size
        direction = z + (size / before) * direction
    return x
