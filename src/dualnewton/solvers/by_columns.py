"""The model of a proximal Newton step over many sparse features, minimised without its matrix.

    H = A Aᵀ − q qᵀ,        one row of A for each feature; q is not zero where the intercept follows the features

A coordinate then moves at the price of its own entries, where a row of H would be thousands of them. There is no step on the free
features here: sparse features are seldom alike, and where they are, ``reached`` is false and the caller forms the matrix.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from dualnewton import _linear
from dualnewton.solvers.quadratic import ROUNDING, Penalty

MOST_SWEEPS = 100

CHEAPER = 2
"""Times the entries of the features: if H has more, it is not formed."""


def pays(A: _linear.Matrix) -> bool:
    """Whether these features are better moved by their entries than by their matrix."""
    return bool(_linear.is_sparse(A)) and CHEAPER * A.nnz < A.shape[0] ** 2


def column_sweeps(
    A: _linear.Matrix,
    q: np.ndarray,
    diagonal: np.ndarray,
    slopes: np.ndarray,
    v: np.ndarray,
    moved: np.ndarray,
    ridge: np.ndarray,
    threshold: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    most: int,
    goal: float,
) -> bool:
    """Minimise over one coordinate after the other, v in place; return whether a sweep over all moved no slope beyond ``goal``.

    Each sweep over all is followed by sweeps over those that are not zero. ``slopes`` are those at the v that is handed over,
    ``moved`` becomes Aᵀ of how far it has moved.
    This is what the kernel of the same name does (``kernels/quadratic.py``).
    """
    along_q, every = 0.0, True
    for _ in range(most):
        largest = 0.0
        for j in range(v.size):
            if not every and v[j] == 0.0:
                continue
            a = _linear.to_dense(A[[j]])[0]
            curvature = diagonal[j] + ridge[j]
            u = diagonal[j] * v[j] - (slopes[j] + a @ moved - q[j] * along_q)
            shrunk = u - min(max(u, -threshold[j]), threshold[j])
            new = min(max(shrunk / curvature if curvature > 0.0 else 0.0, lower[j]), upper[j])
            change = new - v[j]
            if change != 0.0:
                v[j] = new
                moved += change * a
                along_q += change * q[j]
                largest = max(largest, abs(change) * curvature)
        if every and largest <= goal:
            return True
        every = not every and largest <= goal
    return False


def minimise(
    A: _linear.Matrix, q: np.ndarray, slopes: np.ndarray, w: np.ndarray, penalty: Penalty, goal: float
) -> tuple[np.ndarray, bool]:
    """Return about the minimiser of the model, starting at w, and whether it was reached."""
    from dualnewton.kernels.quadratic import column_sweeps as compiled  # loads Numba
    from dualnewton.kernels.rows import Rows

    v, diagonal = w.copy(), np.maximum(_linear.squared_norms(A) - np.square(q), 0.0)
    goal = max(goal, ROUNDING * float(np.abs(slopes).max(initial=0.0)))
    parts = [getattr(penalty, part.name) for part in fields(penalty)]
    arguments = (*Rows.of(A), q, diagonal, slopes, v, np.zeros(A.shape[1]), *parts, MOST_SWEEPS, goal)
    compiled.prepare(*arguments)
    return v, bool(compiled(*arguments))
