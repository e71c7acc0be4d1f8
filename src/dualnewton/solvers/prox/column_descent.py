"""The model of a proximal Newton step over many sparse features, minimised without its matrix.

    H = A Aᵀ − q qᵀ,        one row of A for each feature; q is not zero where the intercept follows the features

A move of a coordinate costs the stored entries of its feature, instead of a row of H with thousands of entries. There are no
Newton steps here: sparse features are seldom correlated, and where they are, ``reached`` is false and the caller forms H.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from dualnewton.matrix import linear
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.prox.rounds import ROUNDING
from dualnewton.solvers.prox.subproblem import Penalty

MOST_SWEEPS = 100


def column_sweep(
    A: linear.Matrix,
    q: np.ndarray,
    diagonal: np.ndarray,
    slopes: np.ndarray,
    v: np.ndarray,
    moved: np.ndarray,
    ridge: np.ndarray,
    threshold: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    along_q: np.ndarray,
    every: bool,
) -> float:
    """Minimise over one coordinate after the other, v in place; return the largest change of a slope by a move.

    All coordinates are visited, or those that are not zero. ``slopes`` are those where the first sweep began; ``moved`` is Aᵀ of
    how far v has moved since then, and ``along_q`` is qᵀ of it, in an array of one number.
    This is what the kernel of the same name does (``kernels/quadratic.py``).
    """
    largest = 0.0
    for j in range(v.size):
        if not every and v[j] == 0.0:
            continue
        a = linear.to_dense(A[[j]])[0]
        curvature = diagonal[j] + ridge[j]
        u = diagonal[j] * v[j] - (slopes[j] + a @ moved - q[j] * along_q[0])
        shrunk = u - min(max(u, -threshold[j]), threshold[j])
        new = min(max(shrunk / curvature if curvature > 0.0 else 0.0, lower[j]), upper[j])
        change = new - v[j]
        if change != 0.0:
            v[j] = new
            moved += change * a
            along_q += change * q[j]
            largest = max(largest, abs(change) * curvature)
    return largest


def minimise(
    A: linear.Matrix,
    q: np.ndarray,
    slopes: np.ndarray,
    w: np.ndarray,
    penalty: Penalty,
    goal: float,
    deadline: Deadline = NEVER,
) -> tuple[np.ndarray, bool]:
    """Return an approximate minimiser of the model, starting at w, and whether it is accurate enough.

    Each sweep over all coordinates is followed by sweeps over those that are not zero. The minimum is reached when a sweep over
    all changes no slope by more than the goal.
    """
    from dualnewton.kernels.quadratic import column_sweep as compiled  # loads Numba
    from dualnewton.kernels.rows import Rows

    v, diagonal = w.copy(), np.maximum(linear.squared_norms(A) - np.square(q), 0.0)
    goal = max(goal, ROUNDING * float(np.abs(slopes).max(initial=0.0)))
    parts = [getattr(penalty, part.name) for part in fields(penalty)]
    arguments = (*Rows.of(A), q, diagonal, slopes, v, np.zeros(A.shape[1]), *parts, np.zeros(1))
    every = True
    compiled.prepare(*arguments, every)
    try:
        for _ in range(MOST_SWEEPS):
            largest = compiled(*arguments, every)
            if every and largest <= goal:
                return v, True
            every = not every and largest <= goal
            deadline.check()
    except OutOfTime:
        pass
    return v, False
