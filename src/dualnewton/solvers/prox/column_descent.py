"""A quadratic model of many features with a separable penalty, minimised without its matrix.

    min_v  constant + slopesᵀv + ½ (v − o)ᵀH(v − o) + Σ_j ½ ridge_j v_j² + threshold_j |v_j|,      lower ≤ v ≤ upper
    H = A Aᵀ − q qᵀ,        one row of A for each feature; q is not zero where the intercept follows the features

A move of a coordinate costs the stored entries of its feature, instead of a row of H with thousands of entries. Sweeps over the
coordinates in use are extrapolated (Anderson 1965; Bertrand and Massias 2021 for coordinate descent): the combination of the last
points that a sweep is expected to change least, with zeros where signs change, is the next point if the model is lower there.
Where features are so correlated that this is not enough, Newton steps over the coordinates in use follow, whose matrix is formed
for them alone. Where these are too many, the caller forms H.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dualnewton.kernels.constants import IN_VAIN, INSIDE, LIFT, LITTLE, MEMORY, STEPS, SWEEPS
from dualnewton.matrix import linear
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.prox.rounds import AT_ONCE, ROUNDING
from dualnewton.solvers.prox.subproblem import Penalty

MOST_SWEEPS = 100
"""Sweeps for a step of proximal Newton's method; if these are not enough, H is formed."""


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
    progress: np.ndarray,
    most_free: int,
) -> int:
    """Do rounds of sweeps from a start on until the largest violation or the relative gap reaches its goal: return 1 then.

    v, ``moved``, ``along_q``, ``progress`` and the number of ``sweeps`` are changed in place. Return 0 after ``limit`` sweeps,
    and −1 if Newton steps brought no progress. A round visits the coordinates that are not zero or violate the optimality
    conditions. Once sweeps have cost as much as Newton steps over the coordinates in use, if these are at most ``most_free``,
    Newton steps follow; they count as the number of sweeps of equal cost. This is what the kernel of the same name does
    (``kernels/columns.py``), which has arguments for known slopes besides.
    """
    penalty, curvature = Penalty(ridge, threshold, lower, upper), diagonal + ridge
    inverse = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=curvature > 0.0)
    parts = (A, q, diagonal, inverse, slopes, v, moved, threshold, lower, upper, along_q)
    point = _Point(A, q, diagonal, slopes, v, moved, along_q, penalty)
    point.go(start)
    while True:
        here, losses = point.here, constant + point.value - penalty.value(v)
        violations = penalty.violations(v, here)
        largest = float(violations.max(initial=0.0))
        if largest <= goal or relative_gap(v, here, penalty, losses) <= gap_goal:
            return 1
        if progress[4] >= IN_VAIN or sweeps[0] >= limit:
            return -1 if progress[4] >= IN_VAIN else 0
        visited, history = np.flatnonzero((v != 0.0) | (violations > 0.0)), [v.copy()]
        free = visited[point.is_free[visited]]
        if free.size <= most_free and progress[2] >= (cost := _cost_of_steps(A, free)):
            point.newton_steps(free)
            in_vain = progress[4] + 1.0 if largest > 0.5 * progress[3] else 0.0
            progress[2:] = 0.0, min(progress[3], largest), in_vain
            sweeps[0] += int(cost)
            continue
        end, inside = min(sweeps[0] + SWEEPS, limit), max(INSIDE * largest, 0.5 * goal)
        while sweeps[0] < end:
            if len(history) > MEMORY:
                new = penalty.nearest(_extrapolated(np.stack(history)))
                point.go_if_lower(np.where((threshold > 0.0) & (new * v <= 0.0), 0.0, new))
                history = [v.copy()]
            largest = column_sweep(*parts, visited, visited.size)
            sweeps[0] += 1
            progress[2] += 1.0
            history.append(v.copy())
            if largest <= inside:
                break


@dataclass(frozen=True, eq=False)
class _Point:
    """The current point of rounds, whose arrays are changed in place; see :func:`column_sweep`."""

    A: linear.Matrix
    q: np.ndarray
    diagonal: np.ndarray
    slopes: np.ndarray
    v: np.ndarray
    moved: np.ndarray
    along_q: np.ndarray
    penalty: Penalty

    @property
    def here(self) -> np.ndarray:
        """The slopes."""
        return np.asarray(self.slopes + self.A @ self.moved - self.q * self.along_q[0])

    @property
    def value(self) -> float:
        """The value of the model, less the constant."""
        quadratic = 0.5 * float(self.moved @ self.moved) - 0.5 * float(self.along_q[0] ** 2)
        return float(self.slopes @ self.v) + quadratic + self.penalty.value(self.v)

    @property
    def is_free(self) -> np.ndarray:
        """Which coordinates are away from kinks and bounds."""
        inside = (self.penalty.lower < self.v) & (self.v < self.penalty.upper)
        return inside & ((self.v != 0.0) | (self.penalty.threshold == 0.0))

    def go(self, new: np.ndarray) -> None:
        self.moved[:] += self.A.T @ (new - self.v)
        self.along_q[:] += self.q @ (new - self.v)
        self.v[:] = new

    def go_if_lower(self, new: np.ndarray, gain: float = 0.0) -> bool:
        """Go to a point if the model is lower there by more than a gain; return whether."""
        before, lowest = (self.v.copy(), self.moved.copy(), self.along_q.copy()), self.value
        self.go(new)
        if not (lower := self.value < lowest - gain):
            self.v[:], self.moved[:], self.along_q[:] = before
        return lower

    def newton_steps(self, free: np.ndarray) -> None:
        """Minimise over free coordinates; those that reach a kink or a bound stay there, and the others go on."""
        rows = linear.to_dense(self.A[free])
        H = rows @ rows.T - np.outer(self.q[free], self.q[free])
        H[np.diag_indices_from(H)] = self.diagonal[free] * (1.0 + LITTLE) + self.penalty.ridge[free]
        for _ in range(STEPS):
            threshold, ridge = self.penalty.threshold[free], self.penalty.ridge[free]
            downhill = -(self.here[free] + ridge * self.v[free] + threshold * np.sign(self.v[free]))
            try:
                step = np.linalg.solve(np.linalg.cholesky(H).T, np.linalg.solve(np.linalg.cholesky(H), downhill))
            except np.linalg.LinAlgError:
                return
            if not (decrease := float(downhill @ step)) > 0.0 or not self._cut_step(free, step, decrease):
                return
            left = self.is_free[free]
            free, H = free[left], H[np.ix_(left, left)]
            if free.size == 0:
                return

    def _cut_step(self, free: np.ndarray, step: np.ndarray, decrease: float) -> bool:
        """Take a step as far as signs and bounds last; return whether it was cut.

        Coordinates that would go further stop there. If the decrease is then too small, all coordinates move only as far as the
        first of them can, by a fraction t of the step, which decreases the model by t(1 − t/2) times the slope along it.
        """
        v, penalty = self.v[free], self.penalty.only(free)
        ends = np.where(step > 0.0, penalty.upper, penalty.lower)
        turns = (penalty.threshold > 0.0) & (v * step < 0.0)
        ends = np.where(turns, np.where(v > 0.0, np.maximum(ends, 0.0), np.minimum(ends, 0.0)), ends)
        inside = np.where(step > 0.0, np.minimum(v + step, ends), np.maximum(v + step, ends))
        shares = np.divide(ends - v, step, out=np.full(v.size, np.inf), where=step != 0.0)
        t, new = min(1.0, float(shares[inside == ends].min(initial=np.inf))), self.v.copy()
        new[free] = inside
        if not self.go_if_lower(new, t * (1.0 - 0.5 * t) * decrease if t < 1.0 else 0.0) and t < 1.0:
            new[free] = np.where(shares <= t, ends, v + t * step)
            self.go_if_lower(new)
        return t < 1.0


def _cost_of_steps(A: linear.Matrix, free: np.ndarray) -> float:
    """Return the number of sweeps over some features that cost as much as Newton steps.

    A sweep has two multiplications for each stored entry, the matrix of m features m/2, and its factors have m³/6. BLAS takes a
    third of the time for those of dense features; of sparse ones it takes an eighth for the factors, but the entries of the
    matrix are computed one by one.
    """
    m = free.size
    if m == 0:
        return np.inf
    if linear.is_sparse(A):
        return m / 4.0 + m**3 / (96.0 * linear.entries(A[free]).size)
    return m / 12.0 + m**2 / (36.0 * A.shape[1])


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


def relative_gap(v: np.ndarray, slopes: np.ndarray, penalty: Penalty, losses: float) -> float:
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
    known, known_at : arrays of shape (m,) and (n,)
        The slopes where all were computed the last time, and ``moved`` there. They bound the slopes at other points.
    progress : array of shape (5,)
        ``along_q`` there, how many slopes were computed since then; the sweeps since the last Newton steps, the least violation
        before any of those, and the number of consecutive Newton steps without progress.
    """

    def __init__(
        self,
        A: linear.Matrix,  # (m, n) features
        # (m,) As above; the slopes at the origin, without the ridge.
        q: np.ndarray,
        slopes: np.ndarray,
        v: np.ndarray,  # (m,) origin o, where the point is at first, within the bounds
        constant: float,  # losses at the origin less slopesᵀo; they matter for the gap alone
        # (n,) r, if the model is ½‖r + Aᵀ(v − o)‖² less the intercept's part, plus the penalty: ``moved`` includes r, and the
        # slopes and the constant are zero. (Slopes at the points of a path, which shrink with the residuals, then bound each
        # other better.)
        residuals: np.ndarray | None = None,
    ) -> None:
        self.A, self.q, self.slopes, self.v, self.constant = A, q, slopes, v.copy(), constant
        self.diagonal, self.origin = np.maximum(linear.squared_norms(A) - np.square(q), 0.0), v
        self.residuals = np.zeros(A.shape[1]) if residuals is None else residuals
        self.moved, self.along_q, self.sweeps = self.residuals.copy(), np.zeros(1), np.zeros(1, dtype=np.intp)
        self.known, self.known_at = slopes.copy() if residuals is None else self.here, self.residuals.copy()
        self.progress = np.zeros(5)
        self.rows: tuple[np.ndarray, ...] | None = None
        self.prepared = False

    def move_to(self, v: np.ndarray) -> None:
        """Make v the current point."""
        self.v, way = np.array(v), v - self.origin
        self.moved, self.along_q = self.residuals + self.A.T @ way, np.array([float(self.q @ way)])

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
        *,
        most_free: int = 0,
    ) -> bool:
        """Do rounds of sweeps from a start on, ``most`` sweeps in all; return whether a goal was reached.

        Newton steps are over at most ``most_free`` coordinates. After a few hundredths of a second the deadline is checked, which
        raises :class:`OutOfTime`.
        """
        from dualnewton.kernels import columns  # loads Numba
        from dualnewton.kernels.rows import Rows

        compiled, parts = columns.column_rounds, [getattr(penalty, part.name) for part in fields(penalty)]
        self.rows = Rows.of(self.A) if self.rows is None else self.rows
        model = (*self.rows, self.q, self.diagonal, self.slopes, self.v, self.moved, *parts, self.along_q)
        self.progress[2:] = 0.0, np.inf, 0.0
        more = self.progress, most_free, self.known, self.known_at, columns.routines()
        end, at_once = (
            int(self.sweeps[0]) + most,
            SWEEPS * max(1, AT_ONCE // (SWEEPS * max(linear.entries(self.A).size, 1))),
        )
        while True:
            limit = min(end, int(self.sweeps[0]) + at_once)
            arguments = (*model, start, self.constant, goal, gap_goal, limit, self.sweeps, *more)
            if not self.prepared:  # the types stay the same
                compiled.prepare(*arguments)
                self.prepared = True
            if (found := compiled(*arguments)) != 0 or self.sweeps[0] >= end:
                return bool(found == 1)
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
