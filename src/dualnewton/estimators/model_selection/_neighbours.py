"""The models of a value and of its folds, by L-BFGS from Hessians that neighbouring values and folds share.

Along the values of a grid, each model starts near its minimum (``_grid.py``), and the curvatures c_i φ″_i of the rows change
little from one value to the next and from one fold to another. The Gram matrices of these curvatures are therefore kept, and
computed again only when the curvatures have changed too much; the ridge of each value is added before they are factorised. From
there a few steps of L-BFGS suffice, each of which is one pass over the data for all folds. The models are certified once, when
the gradients say that their gaps are small. Those that miss ``tol`` are solved together by the usual methods.

The curvature of a row is its mean over the folds that are trained on it. A model predicts rows that it holds out worse: where
classes are nearly separable, the curvatures of these exceed those of training rows by orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._session import GridSession, certified
from dualnewton.matrix import Data
from dualnewton.matrix.factors import factorised, solved
from dualnewton.matrix.grams import coupled
from dualnewton.objective.problem import Problem
from dualnewton.objective.row_sums import couplings, curvature
from dualnewton.objective.targets import Derivatives
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import (
    has_hessian_of_each_class,
    has_hessian_of_each_fold,
    keeps_hessian,
    steps_to_folds,
    sums_in_single,
)
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.row_arrays import some_columns
from dualnewton.run.result import Result
from dualnewton.solvers.direct.classes import coupling, solved_by_class
from dualnewton.solvers.primal.lbfgs import Corrections
from dualnewton.solvers.primal.objective import Objective
from dualnewton.solvers.primal.single_precision import ROUGH, noise_of_factor

WELL_BELOW = 0.5
"""Fraction of the wanted gap at which the steps of a model end: the certificate rounds differently."""

MOST_STEPS, FIRST_STEPS, MOST_PAIRS = 24, 6, 24
"""Largest number of steps of a model; number after which it is left to other methods, if more than the largest number are
predicted; and pairs of L-BFGS."""

SHORTEST = 0.1
"""Smallest part of a step that is tried; each trial without a decrease takes half of the one before."""

FORESEEN = 0.1
"""Predicted fraction of the wanted gap at which the point after a step is certified without being evaluated; the prediction
assumes the same decrease as in the last step."""

FAR = 0.1
"""Relative gap after the steps above which the model is fitted from another start."""

Inverse = Callable[[np.ndarray], np.ndarray]


class Neighbours:
    """Steps to the models of a value, whose rows have the weights c, and to those of its folds."""

    def __init__(
        self, data: Data, folds: Folds, c: np.ndarray | None, tuning: Tuning = DEFAULT, *, classes: int = 1
    ) -> None:
        self.c, self.tuning, self.useful = c, tuning, True
        kinds, group = folds.patterns
        self.joint = classes > 1 and has_hessian_of_each_fold(data, len(folds), tuning, classes)
        # Whether classes that have no joint Hessian share one; each has its own once that turns out to be slow, if it costs
        # little.
        self.shared = classes > 1 and not self.joint
        self.apart = self.shared and has_hessian_of_each_class(data, len(folds), tuning, classes)
        if self.joint or has_hessian_of_each_fold(data, len(folds), tuning):
            self.groups: list[Any] = [np.flatnonzero(group == k) for k in range(kinds.shape[1])]
            self.kinds = kinds
        else:  # the Hessian of all rows, in the mean proportion of all models
            self.groups = [None]
            weights = folds.counts.sum(axis=1) if c is None else folds.counts @ c
            share = weights.mean() / (data.n if c is None else c.sum())
            self.kinds = np.full((len(folds), 1), (len(folds) * share + 1.0) / (len(folds) + 1))
        self.known: dict[int, _Grams] = {}
        self.single = sums_in_single(data.profile, tuning)  # until that turns out to be too rough
        self.data = prepared(data, compiled=not is_small(tuning, data.n, data.d), models=len(folds), tuning=tuning)

    @staticmethod
    def is_cheaper(data: Data, folds: Folds, tuning: Tuning = DEFAULT, *, classes: int = 1) -> bool:
        """Whether such steps cost less than passes over the data."""
        return steps_to_folds(data, folds.patterns[0].shape[1], len(folds), tuning, classes)

    def fit(
        self, session: GridSession, problems: Sequence[Problem], starts: Sequence[Result], *, folds: bool
    ) -> list[Result]:
        """Return the results of the folds, one after the other, or those of all rows; there is one for each class.

        A tiny ``tol`` is reached in fewer steps by Newton's method, whose Hessian is that of the last step.
        """
        if not self.useful or session.is_over or session.goal < session.tol:
            return session.solve(problems, starts)
        kinds = self.kinds if folds or len(self.groups) == 1 else np.ones((1, len(self.groups)))
        models = self._descended(session, problems, starts, kinds if folds else kinds[:1])
        points = [model.objective.point(model.x) for model in models]
        reason = "L-BFGS from a Hessian that neighbouring values and folds share"
        W, b = [point.w for point in points], [point.intercept for point in points]
        results = certified(problems, W, b, session.goal, reason, [model.passes for model in models])
        session.report(results)
        missed = [k for k, result in enumerate(results) if not result.converged]
        # With a weaker penalty the probabilities of the rows differ more from each other, and the models of the folds are
        # farther apart: if no step sufficed, no later one will.
        if self.shared and self.apart and missed:
            self.shared, self.known = False, {}
        else:
            self.useful = len(missed) < len(results) or not folds
        nearer = [results[k] if results[k].certificate.relative_gap < FAR else starts[k] for k in missed]
        return session.improved(problems, results, missed, nearer)

    def _descended(
        self, session: GridSession, problems: Sequence[Problem], starts: Sequence[Result], kinds: np.ndarray
    ) -> list[_Model]:
        """Return the models after steps until their gaps are small enough, or decrease too slowly.

        ``kinds`` has a row for each fold: how often it counts each group of rows.
        """
        models = [_Model(Objective(each), start) for each, start in zip(problems, starts, strict=True)]
        going, inverses = list(range(len(models))), list[Inverse]()
        for _ in range(min(MOST_STEPS, max(1, math.ceil(session.epochs_left)))):
            parts = [models[k].objective.parts(models[k].trial) for k in going]
            W, b = (np.concatenate(each) for each in zip(*parts, strict=True))
            posed = [problems[k] for k in going]
            found = self.data.evaluate(W, b, Derivatives(posed), [each.row_vectors for each in posed])
            if not inverses:
                inverses = self._inverses(models, found.margins, kinds)
            left, end = [], 0
            for place, k in enumerate(going):
                model, columns = models[k], slice(end, end + problems[k].columns)
                end = columns.stop
                gradient = model.objective.vector(found.gradients[columns], found.slopes[columns])
                if model.receive(float(found.values[place]), gradient, inverses[k], session.goal):
                    left.append(k)
            going = left
            if not going or session.is_over:
                break
        return models

    def _inverses(self, models: Sequence[_Model], margins: np.ndarray, kinds: np.ndarray) -> list[Inverse]:
        """Return g ↦ B⁻¹g of each model, given the margins of all models at their starts."""
        columns, fits = models[0].objective.columns, len(models) // len(kinds)
        found: list[list[Inverse]] = []
        for fit in range(fits):
            each = range(fit, len(models), fits)
            Z = [some_columns(margins, slice(k * columns, (k + 1) * columns)) for k in each]
            objectives = [models[k].objective for k in each]
            own = self._grams(fit, objectives, Z).inverses(kinds, objectives[0])
            if own is None:  # with weaker penalties the rounding errors of sums in single precision would be larger yet
                self.single, self.known = False, {}
                own = self._grams(fit, objectives, Z).inverses(kinds, objectives[0])
            assert own is not None
            found.append(own)
        return [found[fit][fold] for fold in range(len(kinds)) for fit in range(fits)]

    def _grams(self, fit: int, objectives: Sequence[Objective], Z: Sequence[np.ndarray]) -> _Grams:
        """Return the Gram matrices of the groups of rows, computed again if the curvatures have changed.

        The objectives and margins are those of folds, or those of all rows.
        """
        first, S = objectives[0], None
        curved = couplings if self.joint or self.shared else curvature
        weights: Any = sum(
            curved(each.problem.loss, each.as_margins(z), each.problem.row_vectors)
            for each, z in zip(objectives, Z, strict=True)
        )
        if len(objectives) > 1:  # the mean of the folds that are trained on a row
            total = sum(each.problem.c for each in objectives)
            part = (1.0 if self.c is None else self.data.placed(self.c)) / np.where(total > 0.0, total, 1.0)
            weights = weights * (part if weights.ndim == 1 else part[:, None])
        if self.shared:
            weights, S = coupling(weights, first.columns)
        known = self.known.get(fit)
        if known is not None and keeps_hessian(self.data.profile, known.weights, weights, self.tuning):
            return known
        sums = [self._gram(weights if own is None else weights[own], own, first) for own in self.groups]
        self.known[fit] = _Grams(weights, sums, S, self.single)
        return self.known[fit]

    def _gram(self, weights: np.ndarray, rows: np.ndarray | None, objective: Objective) -> np.ndarray:
        """Return the Gram matrix of a group of rows: those of several classes, or a joint one, if they do not share one."""
        free, K = objective.problem.fit_intercept, objective.columns
        if weights.ndim == 1:
            return self.data.weighted_gram(weights, rows, intercept=free, single=self.single)
        columns = map(np.ascontiguousarray, weights.T)
        sums = (self.data.weighted_gram(own, rows, intercept=free, single=self.single) for own in columns)
        if not self.joint:
            return np.stack(list(sums))
        H = coupled(sums, K)
        if free:  # along equal intercepts, where the gradient is zero, the curvature is zero
            H[:, -1, :, -1] += float(H[:, -1, :, -1].trace()) / K**2 or 1.0
        return H.reshape(objective.ridge.size, -1)


@dataclass(frozen=True, eq=False)
class _Grams:
    """Gram matrices of groups of rows with the given curvatures, one for each class or one; S⁻¹ if that serves all classes."""

    weights: np.ndarray
    each: list[np.ndarray]
    S: np.ndarray | None
    single: bool  # whether they were summed in single precision
    known: dict[tuple[bytes, float], Inverse | None] = field(default_factory=dict)

    def inverses(self, kinds: np.ndarray, objective: Objective) -> list[Inverse] | None:
        """Return g ↦ B⁻¹g for B = Σ_k counts_k G_k + ridge, or S ⊗ that, for each row of counts.

        None if single precision changes B too much. Equal ones are computed once for each penalty.
        """
        found = []
        for counts in kinds:
            key = counts.tobytes(), objective.problem.lam
            if any(lam != key[1] for _, lam in self.known):
                self.known.clear()
            if key not in self.known:
                self.known[key] = self._inverse(counts, objective)
            if (inverse := self.known[key]) is None:
                return None
            found.append(inverse)
        return found

    def _factor(self, H: np.ndarray, ridge: np.ndarray) -> np.ndarray | None:
        """Return the factor of H + D(ridge); None if single precision changes that too much."""
        diagonal = H.diagonal() + ridge
        factor: np.ndarray = factorised(H, ridge)
        return None if self.single and noise_of_factor(factor, diagonal) > ROUGH else factor

    def _inverse(self, counts: np.ndarray, objective: Objective) -> Inverse | None:
        H = counts[0] * self.each[0]
        for count, gram in zip(counts[1:], self.each[1:], strict=True):
            if count:
                H += gram if count == 1.0 else count * gram
        K, S = objective.columns, self.S
        if H.ndim > 2:
            each = (self._factor(own, objective.column_ridge) for own in H)
            factors = [own for own in each if own is not None]
            return None if len(factors) < len(H) else lambda g: solved_by_class(factors, g)
        factor = self._factor(H, objective.ridge if S is None else (K - 1) * objective.column_ridge)
        if factor is None:
            return None
        if S is None:
            return lambda g: solved(factor, g)
        return lambda g: (S @ solved(factor, g.reshape(K, -1).T).T).ravel()


class _Model:
    """The state of one model during the steps: the best point x so far, and the next trial point."""

    def __init__(self, objective: Objective, start: Result) -> None:
        self.objective = objective
        self.x = self.trial = objective.vector(start.w, np.asarray(start.intercept))
        self.value = self.gap = self.first = self.last = math.inf
        self.gradient = self.image = self.x
        self.pairs, self.passes, self.part = Corrections.none(), 0, 1.0

    def receive(self, value: float, gradient: np.ndarray, inverse: Inverse, goal: float) -> bool:
        """Take the losses and their gradient at the trial point; return whether another point is to be tried."""
        x, ridge = self.trial, self.objective.ridge
        value += 0.5 * float((ridge * x).dot(x))
        slopes = gradient.reshape(self.objective.columns, -1)[:, self.objective.problem.d :]
        gradient = gradient + ridge * x
        # The gap of the dual point that belongs to x: see ``solvers/direct/risk.py``.
        gap = self.objective.gap(gradient) + float(np.abs(slopes).sum())
        self.passes += 1
        if not (value < self.value or gap < self.gap):
            self.part *= 0.5
            self.trial = self.x + 0.5 * (x - self.x)
            return self.part >= SHORTEST
        image, self.last = inverse(gradient), self.gap
        if self.passes > 1:
            self.pairs = self.pairs.with_pair(x - self.x, gradient - self.gradient, image - self.image, MOST_PAIRS)
        else:
            self.first = gap
        self.x, self.value, self.gradient, self.image, self.gap, self.part = x, value, gradient, image, gap, 1.0
        wanted = WELL_BELOW * goal * value
        if gap > wanted and self._is_slow(wanted):
            return False
        self.trial = x + self.pairs.direction(gradient, image, scaled_well=True)[0]
        if self.last < math.inf and gap * (gap / self.last) <= FORESEEN * wanted:
            self.x = self.trial
            return False
        return gap > wanted

    def _is_slow(self, wanted: float) -> bool:
        """Whether more than ``MOST_STEPS`` steps are predicted, from the steps so far."""
        steps = self.passes - 1
        if steps < FIRST_STEPS:
            return False
        decrease = math.log(self.first / self.gap) / steps
        return wanted <= 0.0 or decrease * (MOST_STEPS - steps) < math.log(self.gap / wanted)
