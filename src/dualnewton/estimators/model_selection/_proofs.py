"""Intervals for the scores of the exact fits of cross-validation, fold by fold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.estimators.model_selection.choice import BOUNDS, UNKNOWN, Held, Interval, interval
from dualnewton.matrix import Data
from dualnewton.objective.certificate import Certificate
from dualnewton.objective.distance import Rotation, Sample, ball, region
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import bounds_choice
from dualnewton.planning.tuning import Tuning

MOST_ENTRIES = 1 << 25
"""Entries of the dense rows that a rotation may hold in memory."""


class Model(NamedTuple):
    """A model of a fold, and its certificate."""

    w: np.ndarray
    intercept: Any
    certificate: Certificate


class Proofs:
    """Locates the minimisers of the models of a grid, and bounds their scores on held-out rows.

    Parameters
    ----------
    data : Data
        All rows.
    folds : Folds
        Which of them each fold holds out.
    weights : sequence of arrays or None
        Weights of the held-out rows of each fold in the score; None for equal ones.
    scoring : str
        The name of the score.
    tuning : Tuning
        Up to which size a Hessian is computed.
    """

    def __init__(
        self, data: Data, folds: Folds, weights: Sequence[np.ndarray | None], scoring: str, tuning: Tuning
    ) -> None:
        self.data, self.folds, self.weights, self.scoring, self.tuning = data, folds, weights, scoring, tuning
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
        """Return where the score of the minimiser lies, given a model, its predictions on held-out rows and their score."""
        if self.scoring not in BOUNDS:
            self.reason = f"no bound is known for the score {self.scoring!r}"
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
