"""Intervals for the scores of the exact fits of cross-validation, fold by fold."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection._least_squares import FoldMoments
from dualnewton.estimators.model_selection.choice import BOUNDS, UNKNOWN, Held, Interval, interval
from dualnewton.matrix import Data
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.distance import (
    ROUNDING,
    Ball,
    Rotation,
    Sample,
    ball,
    region,
    spread_by_rows,
    spread_per_root_gap,
)
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import bounds_choice
from dualnewton.planning.tuning import Tuning

MOST_ENTRIES = 1 << 25
"""Largest number of entries of the dense rows that a rotation keeps in memory."""


class Model(NamedTuple):
    """A model of a fold, and its certificate."""

    w: np.ndarray
    intercept: Any
    certificate: Certificate


class Proofs:
    """Locates the minimisers of the models of a grid, and bounds their scores on held-out rows."""

    def __init__(
        self,
        data: Data,  # all rows
        folds: Folds,  # test rows of each fold
        # Weights of the held-out rows of each fold in the score; None for equal weights.
        weights: Sequence[np.ndarray | None],
        scoring: str,  # name of the score
        tuning: Tuning,  # has the largest size of a Hessian that is computed
        # The moment of ``time.perf_counter`` after which no score is bounded: a Hessian for each model takes longer
        # than the fits.
        deadline: float = math.inf,
    ) -> None:
        self.data, self.folds, self.weights, self.scoring, self.tuning = data, folds, weights, scoring, tuning
        self.deadline = deadline
        self.samples: dict[tuple[int, bool], Sample] = {}
        self.reason = ""

    @cached_property
    def rotation(self) -> Rotation:
        """The rows in n coordinates."""
        return Rotation.of(self.data)

    def sample(self, fold: int, *, rotated: bool) -> Sample:
        """Return the held-out rows of a fold."""
        if (fold, rotated) not in self.samples:
            rows, given = self.folds.tests[fold], self.weights[fold]
            order = np.argsort(rows, kind="stable")
            data = self.rotation.data if rotated else self.data
            self.samples[fold, rotated] = Sample(data, rows[order], None if given is None else given[order])
        return self.samples[fold, rotated]

    def held(self, fold: int, margins: np.ndarray, y: np.ndarray) -> Held:
        """Return predictions for the held-out rows of a fold, in the order of the fold; classes by their numbers."""
        given = self.weights[fold]
        omega = np.full(len(y), 1.0 / len(y)) if given is None else given / given.sum()
        return Held(margins, y, omega) if margins.ndim == 1 else Held.of_classes(margins, y, omega)

    def interval(self, fold: int, problem: Problem, model: Model, held: Held, score: float) -> Interval:
        """Return an interval that contains the score of the minimiser, given a model and its held-out predictions and score."""
        if self.scoring not in BOUNDS:
            self.reason = f"no bound is known for the score {self.scoring!r}"
            return UNKNOWN
        if time.perf_counter() >= self.deadline:
            self.reason = "time_limit was reached"
            return UNKNOWN
        return interval(self.scoring, held, score, self._spread(fold, problem, model))

    def _spread(self, fold: int, problem: Problem, model: Model) -> float | None:
        """Return a bound of √(Σ ω_s ‖z_s − z_s*‖²) over the held-out rows; None if there is none."""
        whole = problem.columns * (problem.d + problem.fit_intercept)
        by_rows = problem.columns * (problem.n + problem.fit_intercept)
        rotated = problem.regularizer.form.is_plain and problem.d > problem.n and problem.n * problem.d <= MOST_ENTRIES
        found: Any = None
        if bounds_choice(whole, self.tuning):
            rotated, found = False, region(problem, model.w, model.intercept)
        elif rotated and bounds_choice(by_rows, self.tuning):
            found = self.rotation.region(problem, model.w, model.intercept)
        else:
            rotated, found = False, ball(problem, model.certificate)
        if found is None:
            self.reason = self.reason or (
                f"the Hessian of size {whole} is singular, or too large to be computed for every model"
            )
            return None
        return float(found.spread(self.sample(fold, rotated=rotated)))


class LeastSquaresProofs:
    """Bounds the scores of least squares by the gaps of the models alone: one factor per fold serves all models."""

    def __init__(
        self,
        data: Data,  # all rows
        folds: Folds,  # training and test rows of each fold
        weights: np.ndarray | None,  # (n,) weights of the rows, in the fits and in the score
        tuning: Tuning,  # has the largest size of a Hessian that is computed
        *,
        fit_intercept: bool,  # whether the models have an intercept
        normalised: bool,  # whether the problems of folds scale their weights to mean one
        # The moments of the rows, if they are known. They may be about any origin: (w, b) ↦ (w, b + oᵀw) leaves the
        # penalty as it is.
        moments: FoldMoments | None = None,
    ) -> None:
        self.data, self.folds, self.fit_intercept, self.normalised = data, folds, fit_intercept, normalised
        self.moments, self.tuning = moments, tuning
        self.c = np.ones(data.n) if weights is None else weights
        self.wide, self.local = data.d > data.n, bounds_choice(data.d + 1, tuning)
        self.by_rows = self.wide and bounds_choice(data.n, tuning) and data.capabilities.whole
        self._factors = dict[tuple[int, float], float | None]()

    def _grams(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ c_i ã_i ã_iᵀ over the training rows of a fold and over the rows that it holds out."""
        if self.moments is None:
            self.moments = FoldMoments(
                self.data, np.zeros((self.data.n, 0)), self.c, self.folds, self.tuning, shift=self.fit_intercept
            )
        fitted, held_out = self.moments.training[fold], self.moments.held_out(fold)
        if held_out is None:
            rows, origin = np.sort(self.folds.tests[fold]), fitted.origin
            return fitted.gram, self.data.moments(self.c[rows], np.zeros((rows.size, 0)), origin, rows)[0]
        return fitted.gram, held_out.gram

    @cached_property
    def _row_products(self) -> np.ndarray:
        """The products of all pairs of rows."""
        return self.data.row_gram()

    def factor(self, fold: int, lam: float) -> float | None:
        """Return f with √(mean (z_s − z_s*)²) ≤ f √gap for every model of the fold whose penalty has the curvature λ or more.

        It is kept: all strengths of a Lasso have the curvature zero.
        """
        if (fold, lam) not in self._factors:
            self._factors[fold, lam] = self._computed_factor(fold, lam)
        return self._factors[fold, lam]

    def _computed_factor(self, fold: int, lam: float) -> float | None:
        if self.wide and not lam > 0.0:  # the Hessian is singular
            return None
        found = self._by_rows(fold, lam) if self.by_rows else None
        if found is None and self.local:
            found = self._local(fold, lam)
        return self.rough(fold, lam) if found is None else found

    def _local(self, fold: int, lam: float) -> float | None:
        n, (fitted, sample) = self.data.n, self._grams(fold)
        ridge = np.append(np.full(self.data.d, n * lam), 0.0)
        size = self.data.d + self.fit_intercept
        scaled = self._scale(fold) * fitted[:size, :size], sample[:size, :size] / sample[-1, -1]
        factor = spread_per_root_gap(*scaled, ridge[:size])
        return None if factor is None else factor * math.sqrt(n)

    def _by_rows(self, fold: int, lam: float) -> float | None:
        n, held = self.data.n, np.bincount(self.folds.tests[fold], minlength=self.data.n) * self.c
        c = self._scale(fold) * self.folds.counts[fold] * self.c
        factor = spread_by_rows(self._row_products, c, held / held.sum(), n * lam, intercept=self.fit_intercept)
        return None if factor is None else factor * math.sqrt(n)

    def rough(self, fold: int, lam: float) -> float | None:
        """Return the factor that strong convexity in w gives, without a matrix of the features or the rows; None if λ is zero.

        See :class:`~dualnewton.objective.distance.Ball`.
        """
        if not (lam > 0.0 and self.data.capabilities.whole):  # the held-out rows are selected
            return None
        counts = self.folds.counts[fold] * self.c
        mean = self.data.transposed_times(counts) / counts.sum() if self.fit_intercept else np.zeros(self.data.d)
        rows = np.sort(self.folds.tests[fold])
        weight = self._scale(fold) * counts.sum() / self.data.n  # the mean weight in P
        found = Ball(mean, math.sqrt(2.0 / lam), math.sqrt(2.0 / weight) if self.fit_intercept else 0.0)
        return found.spread(Sample(self.data, rows, self.c[rows]))

    def _scale(self, fold: int) -> float:
        return self.data.n / float(self.folds.counts[fold] @ self.c) if self.normalised else 1.0

    def interval(
        self, scoring: str, factor: float | None, certificate: Certificate, score: float, y: np.ndarray | None = None
    ) -> Interval:
        """Return an interval that contains the score of the exact fit, given the score and the certificate of the model."""
        if factor is None:
            return UNKNOWN
        gap = float(gaps_of(certificate.primal, certificate.dual))
        targets = np.zeros(1) if y is None else y
        held = Held(np.zeros(len(targets)), targets, np.full(len(targets), 1.0 / len(targets)))
        return interval(scoring, held, score, factor * math.sqrt(gap))


def gaps_of(primal: Any, dual: Any) -> Any:
    """Return gaps with what the values may be off by rounding, given primal and dual values."""
    return np.maximum(primal - dual, 0.0) + ROUNDING * np.abs(primal)
