"""Newton's method for penalties with kinks and bounds (Lasso, elastic net, w ≥ 0, a box), as the loop drives it.

    n P(w, b) = Σ_i c_i φ_i(a_iᵀw + b) + Σ_j ½ ridge_j w_j² + threshold_j |w_j|,      lower ≤ w ≤ upper

Each turn 1. chooses a working set of features, 2. minimises the quadratic model of the losses plus the penalty itself over it
(``quadratic.py``), with the intercept at its best for whatever the features do, and 3. passes over the data at the point found:
value, gradient of all features, margins. If the point is not low enough, the margins tell how far to go back.

:class:`Model` has what does not depend on the losses; ``proximal_softmax.py`` is the same for several classes.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.losses import Curvature
from dualnewton.losses.base import blocks
from dualnewton.matrix import Data, linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.protocol import PrimalPoint, SharedPasses
from dualnewton.solvers.prox import column_descent as by_columns
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox.subproblem import Penalty, Sweep
from dualnewton.solvers.prox.working_set import (
    LARGE,
    Everything,
    Features,
    Gathered,
    affordable,
    chosen,
    is_thin,
    take_all,
)

SUFFICIENT = 1e-4
"""Of the decrease that the model promises is asked of a step."""

SHORTEST = 1e-12
"""A step of which no larger part goes downhill is rounding."""

DAMPING, CALMER, WILDER = 1e-3, 0.1, 10.0
"""The curvature of a row counts as at least this fraction of the largest it could have; less after each full step, more after a
shortened one. Rows without any (Huber, squared hinge) would else make the model a line."""

ROUNDING, PATIENCE = 1e-14, 3
"""Of the value: less is no decrease; and steps in a row without one, nor a smaller gap, after which a model is stuck."""

WELL_BELOW = 0.1
"""Of the gap that is wanted: what a step may leave."""

ENOUGH = 1e-2
"""Of the violation outside the working set: what a step may leave inside, since the next is over another set; and of all the
violation where the model is not exact."""


class Model(ABC):
    """Where a model is, and where it tries to be.

    Parameters
    ----------
    problem : Problem
        With a separable regulariser.
    penalty : Penalty
        n λ g, of the coefficients in a row.
    least, most : int
        Coordinates of a working set, at least and at most; zero if all take part.
    bounds : array
        Of the curvature of each coordinate, from above: how much of its slope a step can use.
    start : (array, float or array)
        (w, b).
    tol : float
        The relative gap that is wanted.
    compiled : bool
        Whether kernels may be used.
    quadratic : bool
        Whether the curvature is the same everywhere.
    """

    def __init__(
        self,
        problem: Any,
        penalty: Penalty,
        least: int,
        most: int,
        bounds: np.ndarray,
        start: tuple[np.ndarray, Any],
        *,
        tol: float,
        compiled: bool,
        quadratic: bool,
    ) -> None:
        self.tol, self.quadratic = tol, quadratic
        self.problem, self.penalty, self.least, self.most, self.bounds = problem, penalty, least, most, bounds
        self.compiled, self.sweep = compiled, sweep_of(compiled=compiled)
        self.shape, self.size = start[0].shape, start[0].size
        self.columns = self.size // problem.d
        self.trial_w, self.trial_b = penalty.nearest(start[0].ravel()), start[1]
        self.w, self.b = self.trial_w, self.trial_b
        self.value = self.gap = self.least_gap = math.inf
        self.in_vain = 0
        self.promise, self.part, self.damping = 0.0, 1.0, DAMPING
        self.gradient, self.slope, self.margins = np.zeros(self.size), 0.0 * start[1], np.zeros(0)
        self.waiting = self.stuck = False

    @property
    def g(self) -> Any:
        """The penalty, as a function of all coefficients."""
        return self.problem.g

    @abstractmethod
    def row_losses(self, rows: slice, margins: np.ndarray) -> tuple[float, np.ndarray]:
        """Return Σ c_i φ_i over a block of rows, and the derivatives by their margins aᵀw + b."""

    @abstractmethod
    def _model_minimum(self, inside: np.ndarray, goal: float, deadline: Deadline) -> tuple[np.ndarray, Any]:
        """Return (w, b) where the model over these coordinates is least, but for violations up to the goal."""

    def point(self) -> PrimalPoint:
        """Return where the model is, as the judge takes it."""
        return PrimalPoint(self.w.reshape(self.shape).copy(), self.b)

    # 3. What a pass brings ---------------------------------------------------------------------------------------------

    def receive(self, losses: float, gradient: np.ndarray, slope: Any, margins: np.ndarray) -> None:
        """Take the values at the trial point; go there if it is low enough, else go back on the way to it."""
        value = losses + self.penalty.value(self.trial_w)
        gap = self._gap(losses, gradient)
        # Where values are all rounding, the gap decides.
        level = value <= self.value + 1e-12 * abs(self.value) and gap < self.gap
        if math.isfinite(value) and (level or value <= self.value + SUFFICIENT * self.part * self.promise):
            if self.value < math.inf:
                self.damping = min(self.damping * (CALMER if self.part == 1.0 else WILDER), 1.0)
                gained = gap < 0.5 * self.least_gap or value < self.value - ROUNDING * abs(self.value)
                self.in_vain = 0 if gained else self.in_vain + 1
                self.stuck = self.in_vain >= PATIENCE
            self.least_gap = min(self.least_gap, gap)
            self.w, self.b, self.value, self.gap = self.trial_w, self.trial_b, value, gap
            self.gradient, self.slope, self.margins = gradient, slope, margins
            self.waiting = False
        else:
            self._go_back(margins)

    def _gap(self, losses: float, gradient: np.ndarray) -> float:
        """n(P − D) by Fenchel and Young, for α = −φ′ shortened to within the reach of g*; near enough what the judge will say."""
        scale = self.problem.lam * self.problem.n
        bar = gradient / -scale
        w, s = self.trial_w.reshape(self.shape), bar.reshape(self.shape)
        r = self.g.reach(s)
        defect = self.g.value(w) + self.g.conjugate(r * s) - r * float(self.trial_w @ bar)
        return max(scale * defect, 0.0) + (1.0 - r) ** 2 * abs(losses)

    def _go_back(self, margins: np.ndarray) -> None:
        """Halve the step until the decrease suffices; the margins on the way are between those at its ends."""
        w, b, way = self.w, self.b, margins - self.margins
        step_w, step_b, t = self.trial_w - w, self.trial_b - b, 0.5
        promise = self.part * self.promise
        while t > SHORTEST:
            trial = w + t * step_w
            value = self._losses(self.margins + t * way) + self.penalty.value(trial)
            if math.isfinite(value) and value <= self.value + SUFFICIENT * t * promise:
                self.trial_w, self.trial_b, self.part = self.penalty.nearest(trial), b + t * step_b, t * self.part
                self.waiting = True
                return
            t *= 0.5
        self.stuck, self.waiting = self.damping >= 1.0 or self.quadratic, False
        self.damping = 1.0  # the model lies nowhere below the losses then

    def _losses(self, margins: np.ndarray) -> float:
        return sum(self.row_losses(rows, margins[rows])[0] for rows in blocks(self.problem.n))

    # 1. and 2. The next point ------------------------------------------------------------------------------------------

    def propose(self, deadline: Deadline) -> float:
        """Set the next trial point; return how many epochs of work that took.

        At the deadline the trial point is where the minimisation of the model has come to. If it has not begun,
        :class:`OutOfTime` is raised and the model stays as it is.
        """
        if self.waiting:
            return 0.0  # a shorter step is to be tried
        violations = self.penalty.violations(self.w, self.gradient)
        inside = self._working_set(violations)
        inexact = np.full(self.size, True)
        inexact[inside] = not self.quadratic
        goal = max(ENOUGH * float(violations[inexact].max(initial=0.0)), self._negligible())
        self.trial_w, self.trial_b = self._model_minimum(inside, goal, deadline)
        step = self.trial_w - self.w
        self.promise = (
            float(self.gradient @ step)
            + float(np.dot(self.slope, self.trial_b - self.b))
            + self.penalty.value(self.trial_w)
            - self.penalty.value(self.w)
        )
        self.part = 1.0
        return inside.size / self.size

    def _negligible(self) -> float:
        """Return a violation that leaves a gap well below what is wanted.

        A violation ε of all d coordinates costs the gap dε²/(2 ridge), or, where α is shortened by 1/(1 + ε/threshold),
        about twice that fraction of the value.
        """
        by_threshold = 0.5 * float(self.penalty.threshold.max())
        by_ridge = math.sqrt(
            2.0 * abs(self.value) * float(self.penalty.ridge.min()) / (self.size * self.tol or math.inf)
        )
        return WELL_BELOW * self.tol * max(by_threshold, by_ridge)

    def _working_set(self, violations: np.ndarray) -> np.ndarray:
        if self.least == 0:
            return np.arange(self.size)
        curvature = self.bounds + self.penalty.ridge
        scores = np.square(violations) / np.where(curvature > 0.0, curvature, np.inf)
        support = self.penalty.nearest(np.zeros(self.size)) != self.w
        return chosen(support, scores, self.least, self.most)


class OneColumn(Model):
    """A :class:`Problem`.

    Parameters
    ----------
    features : Features
        Where its curvature comes from.
    norms : array of shape (d,)
        Σ c_i a_ij² of each feature.
    """

    def __init__(
        self,
        problem: Problem,
        features: Features,
        least: int,
        most: int,
        norms: np.ndarray,
        start: tuple[np.ndarray, float],
        *,
        tol: float,
        compiled: bool,
    ) -> None:
        super().__init__(
            problem,
            Penalty.of(problem),
            least,
            most,
            norms / (problem.loss.gamma or 1.0),
            (start[0], float(start[1])),
            tol=tol,
            compiled=compiled,
            quadratic=problem.loss.curvature is Curvature.CONSTANT,
        )
        self.features, self.forms_matrices = features, False

    def row_losses(self, rows: slice, margins: np.ndarray) -> tuple[float, np.ndarray]:
        return self.problem.row_losses(rows, margins)

    def _model_minimum(self, inside: np.ndarray, goal: float, deadline: Deadline) -> tuple[np.ndarray, float]:
        problem = self.problem
        curvature, gamma = problem.row_curvature(self.margins), problem.loss.gamma
        # Without γ no number bounds the curvature of a row: the largest there is here stands in for it.
        largest = problem.c / gamma if gamma is not None else float(curvature.max())
        weights = np.maximum(curvature, self.damping * largest)
        may_form = inside.size <= LARGE and (self.forms_matrices or not self.compiled)
        A = None if may_form else self.features.rows_of(inside)
        if A is not None and by_columns.pays(A):
            v, border, total = self._by_columns(inside, goal, A, weights, deadline)
        else:
            v, border, total = self._by_matrix(inside, goal, weights, deadline)
        trial = self.w.copy()
        trial[inside] = v
        if not problem.fit_intercept:
            return trial, 0.0
        return trial, float(self.b - (self.slope + float(border @ (v - self.w[inside]))) / total)

    def _by_matrix(
        self, inside: np.ndarray, goal: float, weights: np.ndarray, deadline: Deadline
    ) -> tuple[np.ndarray, np.ndarray, float]:
        curvature = self.features.curvature(inside, weights, deadline)
        H, slopes, border, total = curvature.H, self.gradient[inside], curvature.border, curvature.total
        if self.problem.fit_intercept:
            H, slopes = curvature.without_constant(), slopes - border * (self.slope / total)
        part = self.penalty.only(inside)
        return quadratic.minimise(H, slopes, self.w[inside], part, goal, self.sweep, deadline), border, total

    def _by_columns(
        self, inside: np.ndarray, goal: float, A: linear.Matrix, weights: np.ndarray, deadline: Deadline
    ) -> tuple[np.ndarray, np.ndarray, float]:
        roots, total, slopes = np.sqrt(weights), float(weights.sum()), self.gradient[inside]
        A = A if np.all(weights == 1.0) else linear.scale_columns(A, roots)
        border = np.asarray(A @ roots)
        q = border / math.sqrt(total) if self.problem.fit_intercept else np.zeros(inside.size)
        slopes = slopes - q * (self.slope / math.sqrt(total))
        v, reached = by_columns.minimise(A, q, slopes, self.w[inside], self.penalty.only(inside), goal, deadline)
        self.forms_matrices = not reached
        return v, border, total


class Together:
    """The losses of several models, whose margins stand side by side (see :class:`Target`)."""

    def __init__(self, models: Sequence[Model]) -> None:
        self.models = models

    def each(self) -> Iterator[tuple[Model, Any]]:
        """Yield each model with its columns of margins: a number if there is one."""
        first = 0
        for model in self.models:
            yield model, first if model.columns == 1 else slice(first, first + model.columns)
            first += model.columns

    def losses(self, rows: slice, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and derivatives of all models on a block of rows."""
        values, R = np.empty(len(self.models)), np.empty(Z.shape)
        for k, (model, own) in enumerate(self.each()):
            values[k], R[:, own] = model.row_losses(rows, Z[:, own])
        return values, R


class Proximal(SharedPasses):
    """Models that move together: their trial points share the passes, their features are gathered once.

    Parameters
    ----------
    problems : sequence of Problem
        They share X, loss and regulariser; the latter is separable.
    data : Data
        The data.
    starts : sequence of (w, intercept)
        Where the models start.
    tol : float
        The relative gap that is wanted.
    compiled : bool
        Whether kernels may be used.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        data: Data,
        starts: Sequence[tuple[np.ndarray, Any]],
        *,
        tol: float,
        compiled: bool,
    ) -> None:
        self.data = data
        costs, once = Costs.of(data.profile), problems[0].loss.curvature is Curvature.CONSTANT
        every = take_all(costs, once=once)
        sizes = (0, 0) if every else (affordable(costs), costs.d if is_thin(costs) and compiled else LARGE)
        features = Everything(data) if every else Gathered(data)
        kinds: list[tuple[np.ndarray, Features, np.ndarray]] = []  # one for each vector of weights
        self.models = []
        for problem, start in zip(problems, starts, strict=True):
            kind = next((kind for kind in kinds if np.array_equal(kind[0], problem.c)), None)
            if kind is None:
                own = features.remembered(problem.c) if once else features
                kind = problem.c, own, np.zeros(0) if every else data.column_norms(problem.c)
                kinds.append(kind)
            self.models.append(OneColumn(problem, kind[1], *sizes, kind[2], start, tol=tol, compiled=compiled))
        self._evaluate(self.models)

    def _evaluate(self, models: Sequence[Model]) -> None:
        """Pass over the data once, at the trial points of these models."""
        together = Together(models)
        W = np.vstack([model.trial_w.reshape(-1, self.data.d) for model in models])
        found = self.data.evaluate(W, np.hstack([model.trial_b for model in models]), together)
        for value, (model, own) in zip(found.values, together.each(), strict=True):
            gradient, margins = found.gradients[own].ravel(), np.ascontiguousarray(found.margins[:, own])
            model.receive(float(value), gradient, found.slopes[own], margins)

    def turn(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        limit, moved, extra = Deadline(deadline), [], 0.0
        try:
            for model in self.models:
                extra += model.propose(limit)
                moved.append(model)
        except OutOfTime:
            if not moved:
                return 0.0
        self._evaluate(moved)
        return 1.0 + extra / len(self.models)

    def candidate(self, k: int) -> PrimalPoint:
        point: PrimalPoint = self.models[k].point()
        return point

    def anchors(self) -> dict[str, Any]:
        return {**super().anchors(), "sweep": self.models[0].sweep}


def sweep_of(*, compiled: bool) -> Sweep:
    """Return coordinate descent as NumPy has it, or its kernel, ready to be called."""
    if not compiled:
        return quadratic.sweeps
    from dualnewton.kernels.quadratic import sweeps  # loads Numba

    vector = np.zeros(1)
    sweeps.prepare(np.zeros((1, 1)), *[vector] * 6, 1, 0.0)
    return sweeps
