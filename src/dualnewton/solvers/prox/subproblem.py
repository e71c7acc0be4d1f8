"""A quadratic model with a separable penalty, minimised: the step of proximal Newton methods.

    min_v  slopesᵀ(v − w) + ½ (v − w)ᵀH(v − w) + Σ_j ½ ridge_j v_j² + threshold_j |v_j|,      lower ≤ v ≤ upper

Sweeps of coordinate descent find which features are zero or at a bound, and steps of Newton's method on the others, whose signs
are then known, find their values: sweeps alone would be slow where features are correlated, steps alone could cycle. Where every
coordinate has a threshold, ``direct/active_set.py`` is used instead of sweeps in NumPy, and after a few compiled rounds if these
did not suffice: with more coordinates than the rank of H, rounds take up to 80 times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace

import numpy as np

from dualnewton.kernels.constants import NOTHING
from dualnewton.objective.problem import Problem
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.deadline import NEVER, Deadline, OutOfTime
from dualnewton.solvers.direct.active_set import Kinks, Matrix, Model
from dualnewton.solvers.primal.curvature import Cholesky
from dualnewton.solvers.prox.rounds import AT_ONCE, Point, alternate, reachable_goal

SWEEPS = 8
"""Least number of coordinate descent sweeps between two Newton steps on the free features; more if a step costs more."""

ROUNDS_AT_ONCE = 1 << 29
"""Cubes of coordinates in the rounds of a kernel between two checks of the deadline: a round takes up to a tenth of a second."""

FEW, MOST = (4, 4), (20, 50)
"""Rounds, and the steps in each that end at a bound or a change of sign (they leave fewer features free): at first, and where the
minimum is followed from where it is known."""

MOST_IN_VAIN, SHRINKS = 4, 0.5
"""Consecutive rounds that minimise over the free features and leave this fraction of the largest violation, after which the
violation is taken for rounding."""

NEAR = 1e-6
"""Violation, as a fraction of the one at the start, from which on a few rounds reach the minimum."""

SLOWLY, ROUGHLY = 0.5, 0.3
"""Factor by which the additional threshold is reduced each time, and sufficient violation, as a fraction of it."""


@dataclass(frozen=True, eq=False)
class Penalty:
    """Σ_j ½ ridge_j w_j² + threshold_j |w_j|, subject to lower ≤ w ≤ upper."""

    ridge: np.ndarray
    threshold: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, problem: Problem) -> Penalty:
        """Return n λ g of a problem, from the form of its regulariser: of all features of the first column, then the next."""
        scale = problem.lam * problem.n
        threshold, factor, lower, upper = problem.regularizer.form.limits(problem.d)
        return cls(*(np.tile(part, problem.columns) for part in (scale / factor, scale * threshold, lower, upper)))

    def only(self, features: np.ndarray) -> Penalty:
        """Return the part of some features."""
        return Penalty(*(getattr(self, part.name)[features] for part in fields(self)))

    def kinks(self) -> Kinks | None:
        """Return the penalty for the active set method, if it has thresholds and no bounds but zero from below."""
        if not (np.all(self.threshold > 0.0) and np.all(self.upper == np.inf)):
            return None
        if np.all(self.lower == -np.inf):
            return Kinks(self.ridge, -self.threshold, self.threshold)
        return Kinks(self.ridge, self.lower - np.inf, self.threshold) if not self.lower.any() else None

    def times(self, factor: float) -> Penalty:
        """Return the penalty times a factor, with the same bounds."""
        return Penalty(factor * self.ridge, factor * self.threshold, self.lower, self.upper)

    def value(self, w: np.ndarray) -> float:
        """Return the sum, at a point within the bounds."""
        return 0.5 * float(self.ridge @ np.square(w)) + float(self.threshold @ np.abs(w))

    def nearest(self, w: np.ndarray) -> np.ndarray:
        """Return the point within the bounds that is nearest to w."""
        return np.clip(w, self.lower, self.upper)

    def violations(self, w: np.ndarray, slopes: np.ndarray) -> np.ndarray:
        """Return the distance of −slopes, of the smooth part without the ridge, from the subdifferential of the rest at w."""
        s = slopes + self.ridge * w
        to_the_right = s + np.where(w >= 0.0, self.threshold, -self.threshold)
        to_the_left = s + np.where(w > 0.0, self.threshold, -self.threshold)
        wants_right = np.where(w < self.upper, -to_the_right, 0.0)
        wants_left = np.where(w > self.lower, to_the_left, 0.0)
        return np.maximum(np.maximum(wants_right, wants_left), 0.0)


Sweep = Callable[..., bool]
"""See :func:`sweeps`."""


def sweeps(
    H: np.ndarray,
    slopes: np.ndarray,
    v: np.ndarray,
    ridge: np.ndarray,
    threshold: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    most: int,
    goal: float,
) -> bool:
    """Minimise over one coordinate after the other, in place: v, and the slopes H(v − w) + … that belong to it.

    Each sweep visits the coordinates that are not zero at its beginning or would move; the last is one in which none moved its
    slope by more than ``goal``. Return whether there was such a sweep among the first ``most``. Moves that would change a slope
    by less than ``NOTHING`` times the goal are not made: each would cost as much as any other.
    This is what the kernel of the same name does (``kernels/quadratic.py``).
    """
    diagonal = H.diagonal()
    curvature = diagonal + ridge
    inverse = 1.0 / np.where(curvature > 0.0, curvature, np.inf)
    for _ in range(most):
        u = diagonal * v - slopes
        best = np.clip((u - np.clip(u, -threshold, threshold)) * inverse, lower, upper)
        largest = 0.0
        for j in np.flatnonzero((v != 0.0) | (best != v)):
            u_j = diagonal[j] * v[j] - slopes[j]
            shrunk = u_j - min(max(u_j, -threshold[j]), threshold[j])
            new = min(max(shrunk * inverse[j], lower[j]), upper[j])
            change = new - v[j]
            if abs(change) * curvature[j] > NOTHING * goal:
                v[j] = new
                slopes += change * H[j]
                largest = max(largest, abs(change) * curvature[j])
        if largest <= goal:
            return True
    return False


def sweep_of(*, compiled: bool) -> Sweep:
    """Return coordinate descent in NumPy, or its kernel."""
    if not compiled:
        return sweeps
    from dualnewton.kernels import quadratic  # loads Numba

    return quadratic.sweeps


def rounds_of(
    H: np.ndarray,
    slopes: np.ndarray,
    V: np.ndarray,
    penalties: Sequence[Penalty],
    goals: np.ndarray,
    rounds: int,
    steps: int,
    found: np.ndarray,
    done: np.ndarray,
    progress: np.ndarray | None = None,
    trail: np.ndarray | None = None,
    targets: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Do rounds of Newton steps and sweeps of several models by the kernel, from penalty to penalty while goals are reached.

    V, slopes, ``found``, ``done`` and ``trail`` are changed in place: see ``kernels/quadratic.py``. H has the shape
    (F, capacity, capacity), slopes and V have F rows, the goals a row for each penalty. ``targets`` are the linear terms, of
    shape (F, m), and Σ c y² of each model, if they are known.
    """
    from dualnewton.kernels import quadratic  # loads Numba
    from dualnewton.kernels.blas import addresses

    progress = np.tile([np.inf, 0.0], (len(V), 1)) if progress is None else progress
    along, squares = (np.zeros(V.shape), np.full(len(V), np.nan)) if targets is None else targets
    trail = np.zeros((len(V), 2, V.shape[1] + 1)) if trail is None else trail
    first, strengths = penalties[0], [(each.ridge, each.threshold) for each in penalties]
    parts = [*map(np.array, zip(*strengths, strict=True)), *map(np.ascontiguousarray, (first.lower, first.upper))]
    limits, written = (goals, rounds, steps, addresses("dpotrf")), (progress, trail, found, done)
    arguments = (H, along, squares, slopes, V, V.shape[1], *parts, *limits, *written)
    quadratic.minima.prepare(*arguments)
    quadratic.minima(*arguments)


def minimise(
    H: np.ndarray,  # (m, m) symmetric, positive semidefinite
    slopes: np.ndarray,  # (m,) of the smooth part at w, without the ridge
    w: np.ndarray,  # (m,) within the bounds
    penalty: Penalty,
    goal: float = 0.0,  # violation that is small enough; rounding sets a limit of its own
    sweep: Sweep = sweeps,  # :func:`sweeps`, or its compiled twin
    # When it has passed, the current point is returned, at which the model does not exceed its value at w.
    deadline: Deadline = NEVER,
    *,
    rank: int | None = None,  # rank of H, or more
    crossovers: Crossovers = USUAL,  # tuned numbers of sweeps and Newton steps
) -> np.ndarray:
    """Return the minimiser v of the model, starting at w.

    Where a few rounds are not enough (more features than examples, and a weak penalty) and some coordinate has no threshold, the
    minimum is followed from w on: a threshold is added at which w is the minimum, and reduced step by step, so that few features
    move at a time.
    """
    goal = reachable_goal(goal, H, np.abs(slopes), np.abs(w))
    point, kinks = _Point(H, slopes, w, penalty, sweep, deadline, crossovers), penalty.kinks()
    begin = point.violation
    with suppress(OutOfTime):
        reached = (point.has_kernel or kinks is None) and point.descend(goal, *FEW)
        if not reached and point.violation > NEAR * begin:
            if kinks is not None:
                point.by_active_sets(goal, kinks, w.size if rank is None else min(rank, w.size))
            else:
                again = _Point(H, slopes, w, penalty, sweep, deadline, crossovers)
                point = _followed(again, goal, begin)
        if not point.violation <= goal:
            point.descend(goal, *MOST)
    return point.v


def _followed(point: _Point, goal: float, begin: float) -> _Point:
    """Follow the minimum from the start of the point, where the largest violation is ``begin``; return the point at the end."""
    penalty, extra = point.penalty, SLOWLY * begin
    while extra > max(goal, NEAR * begin):
        point.penalty = replace(penalty, threshold=penalty.threshold + extra)
        point.descend(ROUGHLY * extra, *MOST)
        extra *= SLOWLY
    point.penalty = penalty
    return point


class _Point(Point):
    """The current v, which moves to the minimum."""

    penalty: Penalty
    steps = 0  # Newton steps at most between two sweeps

    @property
    def has_kernel(self) -> bool:
        """Whether a kernel does whole rounds."""
        return getattr(self.sweeps, "rounds", None) is not None and self.v.size <= self.crossovers.kernel_coordinates

    def descend(self, goal: float, rounds: int, steps: int) -> bool:
        """Do rounds of sweeps and steps until no violation exceeds the goal; return whether that was reached."""
        if self.has_kernel and self._by_kernel(goal, rounds, steps):
            return True
        self.steps = steps
        return alternate(self, goal, rounds=rounds, in_vain=MOST_IN_VAIN, shrinks=SHRINKS)

    def by_active_sets(self, goal: float, kinks: Kinks, rank: int) -> None:
        """Go to the minimum by the active set method and proximal point steps, for a penalty with these thresholds.

        Compiled sweeps cost little against the linear system of all coordinates that would move, and leave fewer of them.
        """
        if self.sweeps is not sweeps:
            self.sweep(goal)
        model = Model(Matrix(self.H, rank), self.slopes, self.v, kinks)
        # A run ignores these warnings, too; paths of a cross-validation are computed outside of one.
        with np.errstate(over="ignore", invalid="ignore"):
            fraction, few = goal / float(kinks.high.max()), self.crossovers.exchanged_coordinates
            self.v = model.minimise(fraction, self.deadline.is_over, exchanged=few)
        self.slopes = model.slopes

    def _by_kernel(self, goal: float, rounds: int, steps: int) -> bool:
        """Do the same by the kernel of whole rounds, a few at a time; it ends early where a Newton step cannot be computed."""
        at_once = max(1, ROUNDS_AT_ONCE // max(1, self.v.size**3))
        progress, H = np.array([[np.inf, 0.0]]), np.ascontiguousarray(self.H)[None]
        arguments = (H, self.slopes[None], self.v[None], [self.penalty], np.array([[goal]]))
        found, done = np.empty((1, 1, self.v.size)), np.zeros(1, dtype=np.intp)
        for made in range(0, rounds, at_once):
            rounds_of(*arguments, min(at_once, rounds - made), steps, found, done, progress)
            self.deadline.check()
            if done[0] or progress[0, 1] >= MOST_IN_VAIN:
                break
        return bool(done[0])

    def sweep(self, goal: float) -> None:
        """Sweep as often as a Newton step would cost, a few sweeps at a time: only v and the slopes pass from one to the next."""
        parts = [getattr(self.penalty, part.name) for part in fields(self.penalty)]
        used = np.count_nonzero(self.v)
        count = max(SWEEPS, int(used * used / (self.crossovers.sweeps_divisor * self.v.size)))
        at_once = max(1, AT_ONCE // self.v.size**2)
        for made in range(0, count, at_once):
            ended = self.sweeps(self.H, self.slopes, self.v, *parts, min(at_once, count - made), goal)
            self.deadline.check()
            if ended:
                return

    def step(self) -> bool:
        """Take steps over the free coordinates, ``steps`` at most, until one ends at their minimum; return whether one does."""
        return any(self._step() for _ in range(self.steps))

    def _step(self) -> bool:
        """Take a step of Newton's method over the coordinates that are free to move, as far as their signs last.

        Return whether the whole step, to the minimum over these coordinates, keeps all signs. Coordinates that would change
        their sign or leave the bounds stop there. If a step of all coordinates to the point where the first of them stops
        lowers the model more, that step is taken: up to there the model is a quadratic function.
        """
        H, slopes, v, penalty = self.H, self.slopes, self.v, self.penalty
        kink = penalty.threshold > 0.0
        free = np.flatnonzero((penalty.lower < v) & (v < penalty.upper) & ((v != 0.0) | ~kink))
        if free.size == 0:
            return True
        part, old = penalty.only(free), v[free]
        signs = np.sign(old) * kink[free]
        downhill = -(slopes[free] + part.ridge * old + part.threshold * signs)
        step = Cholesky(H[np.ix_(free, free)], part.ridge, check=self.deadline.check).solve(downhill)
        low = np.where(signs > 0.0, np.maximum(part.lower, 0.0), part.lower)
        high = np.where(signs < 0.0, np.minimum(part.upper, 0.0), part.upper)
        new = np.clip(old + step, low, high)
        change = H[free].T @ (new - old)
        whole = np.array_equal(new, old + step)
        if not whole:
            moved = new - old
            gain = float(slopes[free] @ moved) + 0.5 * float(change[free] @ moved) + part.value(new) - part.value(old)
            with np.errstate(divide="ignore", invalid="ignore"):
                lasts = np.where(step > 0.0, (high - old) / step, np.where(step < 0.0, (low - old) / step, np.inf))
            t = min(1.0, float(lasts.min()))
            # The shorter way gains t(1 − t/2) of what the whole step would have gained twice.
            if gain > -t * (1.0 - 0.5 * t) * float(downhill @ step):
                new = np.where(lasts <= t, np.where(step > 0.0, high, low), old + t * step)
                change = H[free].T @ (new - old)
        v[free] = new
        slopes += change
        self.deadline.check()
        return whole
