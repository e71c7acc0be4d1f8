"""Quadratic losses of K columns with a penalty on the norm of each feature's coefficients (the multi-task Lasso).

    n P(W, b) = Σ_i ½ c_i ‖W a_i + b + o_i − y_i‖² + Σ_j ½ ridge_j ‖W_j‖² + threshold_j ‖W_j‖

Each turn 1. chooses a working set of features by the duality gap, 2. minimises the objective over these and the intercepts
(``joint_subproblem.py``) with the Hessian Σ c_i a_i a_iᵀ, which is the same for each column and everywhere, and 3. passes over
the data at the point found: value, gradient of all features, gap.

The gap and the working set. With the residuals α_i = y_i − z_i, Ā = −∇/(λn) for the gradient ∇ of the losses, and r ≤ 1 the
largest factor for which g*(rĀ) is finite, rα is feasible (Σ c_i α_i = 0 at the best intercepts, and scaling keeps that), and

    n(P(W) − D(rα)) = λn (g(W) + g*(rĀ) − r⟨W, Ā⟩) + (1 − r)² Σ_i c_i φ_i.

D falls by at least ½ Σ c_i ‖α_i − α*_i‖²/n away from its maximum α*, so that Σ c_i ‖rα_i − α*_i‖² ≤ 2n(P − D) =: ρ². Hence the
gradient of feature j at the optimum differs from r∇_j by at most ρ√(Σ c_i a_ij²). A feature whose slope stays within its
threshold for all these has zero coefficients at the optimum, and takes no part.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.matrix import Data
from dualnewton.objective.groups import columns_of
from dualnewton.objective.problem import Problem
from dualnewton.objective.targets import Derivatives
from dualnewton.regularizers.joint import feature_norms
from dualnewton.solvers.crossovers import Sizes
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.protocol import PrimalPoint, SharedPasses
from dualnewton.solvers.prox.curvature import RowWeights
from dualnewton.solvers.prox.gaps import allowed_violation, value_and_gap
from dualnewton.solvers.prox.joint_subproblem import JointPenalty, Sweep, minimise, sweep_of
from dualnewton.solvers.prox.model import PATIENCE, ROUNDING
from dualnewton.solvers.prox.working_set import Features, chosen_features, shared_features

WELL_BELOW, ENOUGH = 0.4, 0.1
"""Fraction of the wanted gap that a minimisation over a working set may leave, and fraction of the largest violation outside the
set that it may leave inside, since the next is over another set."""


@dataclass(frozen=True, eq=False)
class Task:
    """The problem and the options of its solution; constant during a run."""

    problem: Problem  # with quadratic losses of K columns
    penalty: JointPenalty  # n λ g
    features: Features  # where the curvature of features comes from
    lengths: np.ndarray  # (d,) √(Σ c_i a_ij²) of each feature, by which working sets are chosen
    sizes: Sizes  # features of a working set
    tol: float  # relative gap that is wanted
    sweep: Sweep  # block coordinate descent, in NumPy or compiled

    def evaluated(self, state: State, losses: float, gradient: np.ndarray, slope: np.ndarray) -> State:
        """Return a point with the results of a pass there."""
        value, gap = value_and_gap(self.problem, state.W, losses, gradient)
        return replace(state, value=value, gap=gap, gradient=gradient, slope=slope)

    def working_set(self, state: State) -> np.ndarray:
        """Return the features of a step, in order: those in use, and those whose slope is nearest to its threshold."""
        if self.sizes.every:
            return np.arange(self.problem.d)
        r = self.problem.g.reach(state.gradient / -(self.problem.lam * self.problem.n))
        slack = self.penalty.threshold - r * feature_norms(state.gradient)
        radius, free = math.sqrt(2.0 * state.gap), self.lengths > 0.0
        distance = np.where(free, slack / np.where(free, self.lengths, 1.0), np.inf)
        scores = np.where(distance <= radius, 1.0 / (1.0 + distance - distance.min()), 0.0)
        return chosen_features(feature_norms(state.W) > 0.0, scores, self.sizes.least, self.sizes.most)

    def goal(self, state: State, inside: np.ndarray) -> float:
        """Return the violation that a minimisation over these features may leave."""
        outside = self.penalty.violations(state.W, state.gradient)
        outside[inside] = 0.0
        negligible = WELL_BELOW * self.tol * allowed_violation(*self.penalty, state.value, self.tol)
        return max(ENOUGH * float(outside.max()), negligible)

    def minimum(self, state: State, deadline: Deadline) -> tuple[np.ndarray, np.ndarray, float]:
        """Return (W, b) where the objective over a working set is least, and the epochs of work that took.

        The intercepts are eliminated: they follow the features to their best values.
        """
        inside = self.working_set(state)
        curvature = self.features.curvature(inside, RowWeights(self.problem.c), deadline)
        inverse = (1.0 if self.problem.fit_intercept else 0.0) / curvature.corner  # zero without intercepts
        border, factor = curvature.border[:, 0], float(inverse[0, 0])
        slopes = state.gradient[:, inside] - factor * np.outer(state.slope, border)
        old, penalty, goal = state.W[:, inside], self.penalty.only(inside), self.goal(state, inside)
        H, tuned = curvature.reduced(inverse), self.sizes.tuning
        V = minimise(H, slopes, old, penalty, goal, self.sweep, deadline, crossovers=tuned)
        W = state.W.copy()
        W[:, inside] = V
        return W, state.b - factor * (state.slope + (V - old) @ border), inside.size / W.shape[1]


@dataclass(frozen=True, eq=False)
class State:
    """A point of one model, and the results of a pass over the data there."""

    # (K, d) The point.
    W: np.ndarray
    b: np.ndarray
    # (K, d) Of the losses, in W and in b.
    gradient: np.ndarray
    slope: np.ndarray
    # n P, and n(P − D) for the dual point that belongs to W.
    value: float = math.inf
    gap: float = math.inf
    # The least gap so far, the number of consecutive steps without progress, and whether rounding prevents further progress.
    least_gap: float = math.inf
    in_vain: int = 0
    stuck: bool = False

    @classmethod
    def at(cls, W: np.ndarray, b: np.ndarray) -> State:
        """Return a point that has not been evaluated yet."""
        return cls(W, b, np.zeros(W.shape), np.zeros(b.shape))

    def after(self, before: State) -> State:
        """Return the next state, given where the step began: that point itself, if this one is no better."""
        lower = self.value < before.value - ROUNDING * abs(before.value)
        gained = lower or self.gap < 0.5 * before.least_gap
        in_vain = 0 if gained else before.in_vain + 1
        better = self if lower or self.gap < before.gap else before
        return replace(better, least_gap=min(before.least_gap, self.gap), in_vain=in_vain, stuck=in_vain >= PATIENCE)


class JointDescent(SharedPasses):
    """Models that move together: they share the passes, and their features are gathered once."""

    models: list[State]

    def __init__(
        self,
        # They share X, a quadratic loss of K columns and the regulariser, which joins the columns or is ½‖W‖².
        problems: Sequence[Problem],
        data: Data,
        starts: Sequence[tuple[np.ndarray, Any]],  # where the models start
        *,
        tol: float,  # relative gap that is wanted
        compiled: bool,  # whether kernels may be used
        sizes: Sizes,  # of the working sets
    ) -> None:
        self.data, sweep = data, sweep_of(compiled=compiled)
        shared = zip(problems, shared_features(problems, data, sizes, fixed=True), strict=True)
        self.tasks = [
            Task(problem, JointPenalty.of(problem), features, np.sqrt(squares), sizes, tol, sweep)
            for problem, (features, squares) in shared
        ]
        self.models = self._evaluated([State.at(W, np.asarray(b)) for W, b in starts])

    def _evaluated(self, points: Sequence[State]) -> list[State]:
        """Pass over the data once, at the points of the first models."""
        tasks = self.tasks[: len(points)]
        problems = [task.problem for task in tasks]
        W, b = np.concatenate([point.W for point in points]), np.concatenate([point.b for point in points])
        found = self.data.evaluate(W, b, Derivatives(problems), [each.row_vectors for each in problems])
        each = zip(tasks, points, found.values, columns_of(problems), strict=True)
        return [
            task.evaluated(point, float(value), found.gradients[own], found.slopes[own])
            for task, point, value, (_, own) in each
        ]

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:  # noqa: ARG002
        limit, points, extra = Deadline(deadline), list[State](), 0.0
        try:
            for task, state in zip(self.tasks, self.models, strict=True):
                W, b, work = task.minimum(state, limit)
                points.append(replace(state, W=W, b=b))
                extra += work
        except OutOfTime:
            if not points:
                return 0.0
        for k, found in enumerate(self._evaluated(points)):
            self.models[k] = found.after(self.models[k])
        return 1.0 + extra / len(self.models)

    def point(self, k: int) -> PrimalPoint:
        state = self.models[k]
        return PrimalPoint(state.W.copy(), state.b)

    def keep(self, wanted: Sequence[int]) -> None:
        super().keep(wanted)
        self.tasks = [self.tasks[k] for k in wanted]

    def state(self) -> tuple[tuple[State, Any], ...]:
        return tuple((state, task.features.state()) for state, task in zip(self.models, self.tasks, strict=True))

    def restore(self, state: tuple[tuple[State, Any], ...]) -> None:
        self.models = [own for own, _ in state]
        for task, (_, features) in zip(self.tasks, state, strict=True):
            task.features.restore(features)
