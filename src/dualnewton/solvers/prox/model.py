"""One model of a proximal Newton method: its point, its trial point and the line search between them.

    n P(W, b) = Σ_i c_i φ_i(W a_i + b) + Σ_kj ½ ridge_j w_kj² + threshold_j |w_kj|,      lower ≤ w_k ≤ upper

W has a row for each of the K columns of margins; its coordinates are numbered k d + j. With K = 1 it is a vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.row_arrays import blocks
from dualnewton.solvers.crossovers import Sizes
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.protocol import PrimalPoint
from dualnewton.solvers.prox import column_descent as by_columns
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox.curvature import Curvature as Summed
from dualnewton.solvers.prox.curvature import kind_of, pseudo_inverse
from dualnewton.solvers.prox.gaps import allowed_violation, value_and_gap
from dualnewton.solvers.prox.subproblem import Penalty, Sweep
from dualnewton.solvers.prox.working_set import Features, chosen_features

SUFFICIENT = 1e-4
"""Fraction of the decrease predicted by the model that a step has to achieve."""

SHORTEST = 1e-12
"""Fraction of the whole step below which the line search ends: no decrease there is more than rounding."""

DAMPING, RELAXED, RAISED = 1e-3, 0.1, 10.0
"""The curvature of a row counts as at least this fraction of the largest it could have; the fraction is multiplied by the second
number after a full step and by the third after a shortened one. Without it, rows that have no curvature (Huber, squared hinge)
could leave the model linear."""

ROUNDING, PATIENCE = 1e-14, 3
"""A decrease below this fraction of the value counts as none; a model is stuck after this many steps in a row that bring neither
a decrease nor half the gap."""

WELL_BELOW = 0.1
"""Fraction of the wanted gap that the minimisation of the quadratic model may leave."""

ENOUGH = 1e-2
"""Fraction of the largest violation outside the working set that a step may leave inside, since the next is over another set;
where the model is not exact, fraction of the largest violation of all."""


@dataclass(frozen=True, eq=False)
class Task:
    """The problem and the options of its solution; constant during a run."""

    problem: Problem  # with a separable regulariser
    penalty: Penalty  # n λ g, of all coordinates
    features: Features  # where the curvature of coordinates comes from
    bounds: np.ndarray  # upper bound of the curvature of each coordinate, by which working sets are chosen
    sizes: Sizes  # coordinates of a working set
    tol: float  # relative gap that is wanted
    sweep: Sweep  # coordinate descent on the quadratic model, in NumPy or compiled

    @property
    def quadratic(self) -> bool:
        """Whether the curvature is the same everywhere, so that the model is exact."""
        return self.problem.loss.curvature is Curvature.CONSTANT

    def shaped(self, coordinates: np.ndarray) -> np.ndarray:
        """Return coordinates in the shape of the problem's w."""
        K = self.problem.columns
        return coordinates if K == 1 else coordinates.reshape(K, -1)

    def gap(self, w: np.ndarray, losses: float, gradient: np.ndarray) -> float:
        """Return an estimate of n(P − D)."""
        return value_and_gap(self.problem, self.shaped(w), losses, self.shaped(gradient))[1]

    def negligible(self, value: float) -> float:
        """Return a violation that leaves a gap well below what is wanted where n P is ``value``."""
        ridge, threshold = self.penalty.ridge, self.penalty.threshold
        return WELL_BELOW * self.tol * allowed_violation(ridge, threshold, value, self.tol)

    def working_set(self, w: np.ndarray, violations: np.ndarray) -> np.ndarray:
        """Return the coordinates of a step from w, in order."""
        if self.sizes.every:
            return np.arange(w.size)
        curvature = self.bounds + self.penalty.ridge
        scores = np.square(violations) / np.where(curvature > 0.0, curvature, np.inf)
        support = self.penalty.nearest(np.zeros(w.size)) != w
        return chosen_features(support, scores, self.sizes.least, self.sizes.most)


@dataclass(frozen=True, eq=False)
class Place:
    """A point (w, b) and what a pass over the data has found there; b and slope, its derivative, have one entry per column."""

    w: np.ndarray
    b: np.ndarray
    value: float
    gap: float
    gradient: np.ndarray
    slope: np.ndarray
    margins: np.ndarray


@dataclass(frozen=True, eq=False)
class Trial:
    """A point that the next pass evaluates."""

    # The point.
    w: np.ndarray
    b: np.ndarray
    promise: float = 0.0  # predicted change of the value by the whole step, to first order; it is negative
    part: float = 1.0  # fraction of that step that is tried


@dataclass(frozen=True, eq=False)
class Known:
    """The curvature of some coordinates at an earlier point."""

    inside: np.ndarray
    curvature: Summed


@dataclass(frozen=True)
class Progress:
    """The damping of the curvature, the least gap so far, and the number of consecutive steps without progress."""

    damping: float = DAMPING
    least_gap: float = math.inf
    in_vain: int = 0
    stuck: bool = False
    factor: float = math.inf  # by which the last step multiplied the gap, if it was a whole one

    def after(self, before: Place, found: Place, part: float) -> Progress:
        """Return the progress after a step of this part that was accepted; the first evaluation is none."""
        if before.value == math.inf:
            return replace(self, least_gap=found.gap)
        factor = found.gap / before.gap if part == 1.0 and before.gap > 0.0 else math.inf
        gained = found.gap < 0.5 * self.least_gap or found.value < before.value - ROUNDING * abs(before.value)
        in_vain = 0 if gained else self.in_vain + 1
        damping = min(self.damping * (RELAXED if part == 1.0 else RAISED), 1.0)
        return Progress(damping, min(self.least_gap, found.gap), in_vain, in_vain >= PATIENCE, factor)


class Model:
    """A point that moves a step at a time: :meth:`propose`, a pass over the data at the trial point, :meth:`receive`."""

    def __init__(
        self,
        task: Task,  # what is to be solved
        w: np.ndarray,
        b: np.ndarray,
        *,
        # Whether the matrix of the quadratic model is formed; else coordinates are moved by their entries where that is
        # cheaper.
        forms_matrices: bool,
    ) -> None:
        self.task, self.forms_matrices, self.progress = task, forms_matrices, Progress()
        self.known: Known | None = None  # the last matrix of the quadratic model, where it changes
        w, b = task.penalty.nearest(w.ravel()), np.atleast_1d(b)
        # Where the model is; its value is infinite before the first evaluation.
        self.place = Place(w, b, math.inf, math.inf, np.zeros(w.size), np.zeros(b.size), np.zeros(0))
        self.trial: Trial | None = Trial(w, b)  # point that waits for its evaluation

    @property
    def state(self) -> tuple[Place, Trial | None, Progress, bool, Known | None]:
        """The state of the model between two steps."""
        return self.place, self.trial, self.progress, self.forms_matrices, self.known

    @state.setter
    def state(self, state: tuple[Place, Trial | None, Progress, bool, Known | None]) -> None:
        self.place, self.trial, self.progress, self.forms_matrices, self.known = state

    @property
    def value(self) -> float:
        """The objective n P."""
        return self.place.value

    @property
    def gap(self) -> float:
        """An estimate of n(P − D)."""
        return self.place.gap

    @property
    def evaluated(self) -> bool:
        """Whether the starting point was evaluated."""
        return self.place.value < math.inf

    def restart(self, trial: Trial | None) -> None:
        """Start at another point, which waits for its evaluation."""
        self.place, self.trial = replace(self.place, value=math.inf, gap=math.inf), trial
        self.known, self.progress = None, Progress()

    @property
    def stuck(self) -> bool:
        """Whether rounding prevents further progress."""
        return self.progress.stuck

    def point(self) -> PrimalPoint:
        """Return the current point, in the shapes of the problem."""
        b = self.place.b
        return PrimalPoint(self.task.shaped(self.place.w).copy(), float(b[0]) if b.size == 1 else b)

    # 1. and 2. The next point ------------------------------------------------------------------------------------------

    def propose(self, deadline: Deadline) -> float:
        """Set the next trial point; return how many epochs of work that took.

        At the deadline the trial point is where the minimisation of the quadratic model has come to. If it has not begun,
        :class:`OutOfTime` is raised and the model stays as it is.
        """
        if self.trial is not None:
            return 0.0  # the line search has chosen a shorter step
        task, place = self.task, self.place
        violations = task.penalty.violations(place.w, place.gradient)
        if self.known is not None and not self._suffices(self.known, violations):
            self.known = None
        inside, work = (self.known.inside, 0.0) if self.known else (task.working_set(place.w, violations), 1.0)
        inexact = np.full(place.w.size, True)
        inexact[inside] = not task.quadratic
        goal = max(ENOUGH * float(violations[inexact].max(initial=0.0)), task.negligible(place.value))
        w, b = self._model_minimum(inside, goal, deadline)
        smooth = float(place.gradient @ (w - place.w)) + float(place.slope @ (b - place.b))
        self.trial = Trial(w, b, smooth + task.penalty.value(w) - task.penalty.value(place.w))
        return work * inside.size / place.w.size

    def _suffices(self, known: Known, violations: np.ndarray) -> bool:
        """Whether a step with the last matrix is expected to reach the wanted gap.

        The error of that matrix is proportional to the length of the last step, whose own error was half of that: the gap is
        multiplied by at most about twice the last factor. Coordinates without known curvature must satisfy the optimality
        conditions.
        """
        others = violations.copy()
        others[known.inside] = 0.0
        reached = 2.0 * self.progress.factor * self.gap <= self.task.tol * abs(self.place.value)
        return reached and not others.any()

    def _model_minimum(self, inside: np.ndarray, goal: float, deadline: Deadline) -> tuple[np.ndarray, np.ndarray]:
        """Return (w, b) where the model over these coordinates is least, but for violations up to the goal.

        The intercepts follow the coordinates to their best values: they are eliminated.
        """
        task, place = self.task, self.place
        at = kind_of(task.problem).of(task.problem, place.margins, self.progress.damping)
        formed = self.forms_matrices and inside.size <= task.sizes.tuning.largest_matrix
        A = None if self.known or formed else task.features.rows_of(inside)
        by_entries = A is not None and linear.is_sparse(A) and task.sizes.tuning.by_entries(A.nnz, inside.size)
        if by_entries:
            A, border, corner = at.factored(A)
        else:
            curvature = self.known.curvature if self.known else task.features.curvature(inside, at, deadline)
            keeps = not task.quadratic and inside.size <= task.sizes.kept
            self.known = Known(inside, curvature) if keeps else None
            border, corner = curvature.border, curvature.corner
        inverse = pseudo_inverse(corner) * task.problem.fit_intercept  # zero without intercepts
        slopes = place.gradient[inside] - border @ (inverse @ place.slope)
        before, penalty = place.w[inside], task.penalty.only(inside)
        if by_entries:
            q = (border * np.sqrt(inverse)).ravel()
            v, reached = by_columns.minimise(A, q, slopes, before, penalty, goal, deadline)
            self.forms_matrices = not reached
        else:
            H, rank = curvature.reduced(inverse), at.rank
            v = quadratic.minimise(
                H, slopes, before, penalty, goal, task.sweep, deadline, rank=rank, crossovers=task.sizes.tuning
            )
        w = place.w.copy()
        w[inside] = v
        return w, place.b - inverse @ (place.slope + border.T @ (v - before))

    # 3. What a pass finds ----------------------------------------------------------------------------------------------

    def receive(
        self, trial: Trial, losses: float, gradient: np.ndarray, slope: np.ndarray, margins: np.ndarray
    ) -> None:
        """Take the values at the trial point; go there if it is low enough, else shorten the step to it."""
        value, gap = losses + self.task.penalty.value(trial.w), self.task.gap(trial.w, losses, gradient)
        found = Place(trial.w, trial.b, value, gap, gradient, slope, margins)
        if self.place.value == math.inf and not math.isfinite(value):
            # The losses at the start exceed the range of float64: there is no value that a step could decrease.
            self.progress = replace(self.progress, stuck=True)
            return
        if self._is_low_enough(found, trial):
            self.progress = self.progress.after(self.place, found, trial.part)
            self.place, self.trial = found, None
            return
        self.trial = self._shortened(trial, margins)
        if self.trial is None:  # at full damping the model lies nowhere below the losses
            stuck = self.progress.damping >= 1.0 or self.task.quadratic
            self.progress = replace(self.progress, damping=1.0, stuck=stuck, factor=math.inf)

    def _is_low_enough(self, found: Place, trial: Trial) -> bool:
        before = self.place
        # Where the values differ by rounding alone, the gaps decide.
        level = found.value <= before.value + 1e-12 * abs(before.value) and found.gap < before.gap
        enough = before.value + SUFFICIENT * trial.part * trial.promise
        return math.isfinite(found.value) and (level or found.value <= enough)

    def _shortened(self, trial: Trial, margins: np.ndarray) -> Trial | None:
        """Halve the step until the decrease suffices; the margins on the way are between those at its ends."""
        place, penalty, t = self.place, self.task.penalty, 0.5
        way, step_w, step_b = margins - place.margins, trial.w - place.w, trial.b - place.b
        while t * trial.part > SHORTEST:
            w = place.w + t * step_w
            value = self._losses(place.margins + t * way) + penalty.value(w)
            if math.isfinite(value) and value <= place.value + SUFFICIENT * t * trial.part * trial.promise:
                return Trial(penalty.nearest(w), place.b + t * step_b, trial.promise, t * trial.part)
            t *= 0.5
        return None

    def _losses(self, margins: np.ndarray) -> float:
        problem, vectors = self.task.problem, self.task.problem.row_vectors
        return sum(problem.row_losses(vectors.part(rows), margins[rows])[0] for rows in blocks(margins))
