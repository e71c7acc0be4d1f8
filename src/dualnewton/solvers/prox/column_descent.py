"""A quadratic model of many features with a separable penalty, minimised without its matrix.

    min_v  constant + slopesᵀv + ½ (v − o)ᵀH(v − o) + Σ_j ½ ridge_j v_j² + threshold_j |v_j|,      lower ≤ v ≤ upper
    H = A Aᵀ − q qᵀ,        one row of A for each feature; q is not zero where the intercept follows the features

A move of a coordinate costs the stored entries of its feature, instead of a row of H with thousands of entries. Sweeps over the
coordinates in use are extrapolated (Anderson 1965; Bertrand and Massias 2021 for coordinate descent): the combination of the last
points that a sweep is expected to change least, with zeros where signs change, is the next point if the model is lower there.
Where features are so correlated that this is not enough, ``reached`` is false and the caller forms H.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from dualnewton.matrix import linear
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.prox.rounds import AT_ONCE, ROUNDING
from dualnewton.solvers.prox.subproblem import Penalty

MOST_SWEEPS = 100
"""Sweeps for a step of proximal Newton's method; if these are not enough, H is formed."""

MEMORY, SWEEPS, LIFT = 5, 25, 1e-10
"""Sweeps between two extrapolations, sweeps between two surveys of all coordinates at most, and the fraction of its trace that is
added to the diagonal of the matrix of an extrapolation."""

INSIDE = 0.2
"""Largest change of a slope by a sweep, as a fraction of the largest violation, at which all coordinates are surveyed again."""


def column_sweep(
    A: linear.Matrix,
    q: np.ndarray,
    diagonal: np.ndarray,
    inverse: np.ndarray,
    slopes: np.ndarray,
    v: np.ndarray,
    moved: np.ndarray,
    threshold: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    along_q: np.ndarray,
    visited: np.ndarray,
    count: int,
) -> float:
    """Minimise over one coordinate after the other, v in place; return the largest change of a slope by a move.

    The first ``count`` coordinates in ``visited`` take part. ``diagonal`` is that of H, ``inverse`` has 1/(H_jj + ridge_j), or
    zero for coordinates without curvature. ``slopes`` are those at the origin o; ``moved`` is Aᵀ of how far v
    is from there, and ``along_q`` is qᵀ of it, in an array of one number.
    This is what the kernel of the same name does (``kernels/columns.py``).
    """
    largest = 0.0
    for j in visited[:count]:
        a = linear.to_dense(A[[j]])[0]
        u = diagonal[j] * v[j] - (slopes[j] + a @ moved - q[j] * along_q[0])
        shrunk = u - min(max(u, -threshold[j]), threshold[j])
        new = min(max(shrunk * inverse[j], lower[j]), upper[j])
        change = new - v[j]
        if change != 0.0:
            v[j] = new
            moved += change * a
            along_q += change * q[j]
            largest = max(largest, abs(change) * diagonal[j])
    return largest


def column_rounds(
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
    start: np.ndarray,
    constant: float,
    goal: float,
    gap_goal: float,
    limit: int,
    sweeps: np.ndarray,
) -> bool:
    """Do rounds of sweeps from a start on until the largest violation or the relative gap reaches its goal; return whether.

    v, ``moved``, ``along_q`` and the number of ``sweeps``, which is at most ``limit``, are changed in place.
    A round visits the coordinates that are not zero or violate the optimality conditions.
    This is what the kernel of the same name does (``kernels/columns.py``).
    """

    def go(new: np.ndarray) -> None:
        moved[:] += A.T @ (new - v)
        along_q[:] += q @ (new - v)
        v[:] = new

    def value() -> float:
        quadratic = 0.5 * float(moved @ moved) - 0.5 * float(along_q[0] ** 2)
        return float(slopes @ v) + quadratic + penalty.value(v)

    penalty, curvature = Penalty(ridge, threshold, lower, upper), diagonal + ridge
    inverse = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=curvature > 0.0)
    parts = (A, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q)
    go(start)
    while True:
        here = slopes + A @ moved - q * along_q[0]
        violations = penalty.violations(v, here)
        largest, losses = float(violations.max(initial=0.0)), constant + value() - penalty.value(v)
        reached = largest <= goal or expected_gap(v, here, penalty, losses) <= gap_goal
        if reached or sweeps[0] >= limit:
            return reached
        visited, history = np.flatnonzero((v != 0.0) | (violations > 0.0)), [v.copy()]
        end, inside = min(sweeps[0] + SWEEPS, limit), max(INSIDE * largest, 0.5 * goal)
        while sweeps[0] < end:
            if len(history) > MEMORY:
                before, lowest = (v.copy(), moved.copy(), along_q.copy()), value()
                new = penalty.nearest(_extrapolated(np.stack(history)))
                go(np.where((threshold > 0.0) & (new * v <= 0.0), 0.0, new))
                if not value() < lowest:
                    v[:], moved[:], along_q[:] = before
                history = [v.copy()]
            largest = column_sweep(*parts, visited, visited.size)
            sweeps[0] += 1
            history.append(v.copy())
            if largest <= inside:
                break


def _extrapolated(points: np.ndarray) -> np.ndarray:
    """Return Σ x_k v_k with Σ x_k = 1 for which ‖Σ x_k (v_k − v_{k−1})‖ is least, v_k the last points."""
    changes = np.diff(points, axis=0)
    G = changes @ changes.T
    G[np.diag_indices_from(G)] += LIFT * np.trace(G)
    try:
        x = np.linalg.solve(G, np.ones(len(G)))
    except np.linalg.LinAlgError:
        return points[-1]
    return np.asarray((x / x.sum()) @ points[1:])


def expected_gap(v: np.ndarray, slopes: np.ndarray, penalty: Penalty, losses: float) -> float:
    """Return the relative gap at a point by Fenchel and Young, not too small; the dual point is shortened without a ridge."""
    wants = np.maximum(np.where(penalty.upper > 0.0, -slopes, 0.0), np.where(penalty.lower < 0.0, slopes, 0.0))
    beyond, value = np.maximum(wants - penalty.threshold, 0.0), penalty.value(v)
    if np.all(penalty.ridge > 0.0):
        gap = value + float(v @ slopes) + 0.5 * float(np.square(beyond) @ (1.0 / penalty.ridge))
    else:
        r = float(np.min(np.where(beyond > 0.0, penalty.threshold / np.maximum(wants, 1e-300), 1.0), initial=1.0))
        gap = value + r * float(v @ slopes) + (1.0 - r) ** 2 * losses
    return gap / (losses + value) if losses + value > 0.0 else 0.0


class ColumnModel:
    """A model and its current point.

    Attributes
    ----------
    sweeps : array of shape (1,)
        How many there were so far.
    """

    def __init__(
        self,
        A: linear.Matrix,  # (m, n) features
        # (m,) As above; the slopes at the origin, without the ridge.
        q: np.ndarray,
        slopes: np.ndarray,
        v: np.ndarray,  # (m,) origin o, where the point is at first, within the bounds
        constant: float,  # losses at the origin less slopesᵀo; they matter for the gap alone
    ) -> None:
        self.A, self.q, self.slopes, self.v, self.constant = A, q, slopes, v.copy(), constant
        self.diagonal, self.origin = np.maximum(linear.squared_norms(A) - np.square(q), 0.0), v
        self.moved, self.along_q, self.sweeps = np.zeros(A.shape[1]), np.zeros(1), np.zeros(1, dtype=np.intp)
        self.rows: tuple[np.ndarray, ...] | None = None
        self.prepared = False

    def stand(self, v: np.ndarray) -> None:
        """Make v the current point."""
        self.v, way = np.array(v), v - self.origin
        self.moved, self.along_q = self.A.T @ way, np.array([float(self.q @ way)])

    @property
    def here(self) -> np.ndarray:
        """The slopes at the current point."""
        return np.asarray(self.slopes + self.A @ self.moved - self.q * self.along_q[0])

    def descend(
        self,
        start: np.ndarray,
        penalty: Penalty,
        goal: float,
        gap_goal: float,
        most: int,
        deadline: Deadline = NEVER,
    ) -> bool:
        """Do rounds of sweeps from a start on, ``most`` sweeps in all; return whether a goal was reached.

        After a few hundredths of a second the deadline is checked, which raises :class:`OutOfTime`.
        """
        from dualnewton.kernels import columns  # loads Numba
        from dualnewton.kernels.rows import Rows

        compiled, parts = columns.column_rounds, [getattr(penalty, part.name) for part in fields(penalty)]
        self.rows = Rows.of(self.A) if self.rows is None else self.rows
        model = (*self.rows, self.q, self.diagonal, self.slopes, self.v, self.moved, *parts, self.along_q)
        end, at_once = (
            int(self.sweeps[0]) + most,
            SWEEPS * max(1, AT_ONCE // (SWEEPS * max(linear.entries(self.A).size, 1))),
        )
        while True:
            limit = min(end, int(self.sweeps[0]) + at_once)
            arguments = (*model, start, self.constant, goal, gap_goal, limit, self.sweeps)
            if not self.prepared:  # the types stay the same
                compiled.prepare(*arguments)
                self.prepared = True
            if (reached := bool(compiled(*arguments))) or self.sweeps[0] >= end:
                return reached
            start = self.v
            deadline.check()


def minimise(
    A: linear.Matrix,
    q: np.ndarray,
    slopes: np.ndarray,
    w: np.ndarray,
    penalty: Penalty,
    goal: float,
    deadline: Deadline = NEVER,
) -> tuple[np.ndarray, bool]:
    """Return an approximate minimiser of the model with the origin w, and whether no violation exceeds the goal."""
    model = ColumnModel(A, q, slopes, w, 0.0)
    goal = max(goal, ROUNDING * float(np.abs(slopes).max(initial=0.0)))
    try:
        return model.v, model.descend(model.v, penalty, goal, -np.inf, MOST_SWEEPS, deadline)
    except OutOfTime:
        return model.v, False
