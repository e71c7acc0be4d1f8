"""Newton's method for several small models over the same rows at once, such as the classes of a one-vs-rest classifier.

The objective of each is that of ``newton.py`` with one column. On small data a NumPy call takes longer than its arithmetic, so
that each array operation serves all models: margins, labels and derivatives have a row for each model, and the Hessians are
blocks of one product. The models share no step: each has its own direction, and leaves when its own gap is small enough. A model
whose whole step is too long goes on alone (``newton.py``), where steps are shortened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.losses import Curvature, Loss
from dualnewton.objective.problem import Problem
from dualnewton.solvers.direct import squares
from dualnewton.solvers.direct.active_set import solution
from dualnewton.solvers.direct.block import WELL_BELOW, Block, Found, Limits, Solver, Start, one_by_one
from dualnewton.solvers.direct.descent import ROUNDING, SUFFICIENT


def solve(
    problems: Sequence[Problem],
    block: Block,
    starts: Sequence[Start | None],
    limits: Limits,
    *,
    alone: Solver,
) -> list[Found]:
    """Take steps until the expected gap of every model is small enough.

    Parameters
    ----------
    alone : callable
        The direct solver of one model, for models that differ in more than labels, weights, offsets and penalty, and for those
        whose step is too long.
    """
    first = problems[0]
    if any(each.loss != first.loss or each.fit_intercept != first.fit_intercept for each in problems):
        return one_by_one(alone, problems, block, starts, limits)
    if first.loss.curvature is Curvature.CONSTANT and shares_weights(problems):
        return squares.solve(problems, block, starts, limits)
    models, numbers, found = Models.of(problems, block), np.arange(len(problems)), dict[int, Found]()
    at, steps = models.start(starts), 0
    while True:
        way, slopes = models.directions(at)
        new = models.point(at.x + way, at.margins + way @ models.columns)
        steps += 1
        accepted = _accepted(at, new, way, slopes)
        ended = models.gaps(new) <= WELL_BELOW * limits.tol * np.abs(new.values)
        ended |= ~(slopes < -ROUNDING * np.abs(at.values))
        if steps >= limits.most or limits.is_late():
            ended[:] = True
        going = accepted & ~ended
        if np.count_nonzero(going) == going.size:
            at = new
            continue
        for k in (~accepted).nonzero()[0]:
            problem, start = problems[numbers[k]], models.split(at.x[k])
            own = alone(problem, block, start, limits._replace(most=limits.most - steps))
            found[numbers[k]] = own._replace(steps=steps + own.steps)
        for k in (accepted & ended).nonzero()[0]:
            found[numbers[k]] = Found(*models.split(new.x[k]), steps)
        kept = going.nonzero()[0]
        if not kept.size:
            return [found[k] for k in range(len(problems))]
        models, numbers, at = models.only(kept), numbers[kept], Points(*(each[kept] for each in new))


def shares_weights(problems: Sequence[Problem]) -> bool:
    """Whether the rows have the same weights in all problems: none, or the same object."""
    return all(each.sample_weight is problems[0].sample_weight for each in problems)


class Points(NamedTuple):
    """x of each model, of shape (K, m), with its margins without offsets (K, n), the gradient of n P (K, m), and n P (K,)."""

    x: np.ndarray
    margins: np.ndarray
    gradients: np.ndarray
    values: np.ndarray


def _accepted(at: Points, new: Points, way: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Apply the rule of ``newton.py`` to each model: Armijo, or a smaller slope where the values differ by rounding only."""
    accepted = new.values <= at.values + SUFFICIENT * slopes
    if np.count_nonzero(accepted) < accepted.size:
        level = new.values <= at.values + ROUNDING * np.abs(at.values)
        accepted |= level & (np.abs(np.einsum("kj,kj->k", new.gradients, way)) < -slopes)
    return accepted


@dataclass(frozen=True, eq=False)
class Models:
    """What the models are fitted to."""

    loss: Loss  # of one column
    d: int  # number of features
    columns: np.ndarray  # (m, n) features, and a row of ones for the intercept, if there is one
    ridge: np.ndarray  # (K, m) λn v_j, and 0 for the intercept
    halves: np.ndarray  # (K, d) 1/(2 ridge_j)
    y: np.ndarray  # (K, n) labels
    # (K, n) Weights and offsets.
    c: np.ndarray | None
    o: np.ndarray | None

    @classmethod
    def of(cls, problems: Sequence[Problem], block: Block) -> Models:
        first, d = problems[0], problems[0].d
        columns = np.empty((d + first.fit_intercept, first.n))
        columns[:d], columns[d:] = block.rows.T, 1.0
        ridge = squares.ridges(problems)
        weighted = any(problem.sample_weight is not None for problem in problems)
        shifted = any(problem.offset is not None for problem in problems)
        return cls(
            first.loss,
            d,
            columns,
            ridge,
            0.5 / ridge[:, :d],
            np.array([problem.y for problem in problems]),
            np.array([problem.c for problem in problems]) if weighted else None,
            np.array([problem.o for problem in problems]) if shifted else None,
        )

    def only(self, kept: np.ndarray) -> Models:
        """Return some of the models."""
        c, o = (None if each is None else each[kept] for each in (self.c, self.o))
        part = Models(self.loss, self.d, self.columns, self.ridge[kept], self.halves[kept], self.y[kept], c, o)
        if part.columns.shape[0] > part.d and c is None:  # the moments of the features are the same for all models
            vars(part).update(mean=self.mean, spread=self.spread)
        return part

    def start(self, starts: Sequence[Start | None]) -> Points:
        """Return where the models start: at zero, or where they are given."""
        x = np.zeros(self.ridge.shape)
        for own, start in zip(x, starts, strict=True):
            if start is not None:
                own[: self.d], own[self.d :] = start
        return self.point(x, x @ self.columns)

    def split(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return w and b of one model."""
        return x[: self.d].copy(), float(x[self.d]) if len(x) > self.d else 0.0

    def point(self, x: np.ndarray, margins: np.ndarray) -> Points:
        """Evaluate all models."""
        losses, slopes = self.loss.value_and_derivative(margins if self.o is None else margins + self.o, self.y)
        if self.c is not None:
            losses, slopes = self.c * losses, self.c * slopes
        pull = self.ridge * x
        values = np.add.reduce(losses, axis=1) + 0.5 * np.add.reduce(pull * x, axis=1)
        return Points(x, margins, slopes @ self.columns.T + pull, values)

    def gaps(self, at: Points) -> np.ndarray:
        """n(P − D) for the balanced α that belongs to x, as :meth:`Risk.gap` estimates it."""
        features, b = at.gradients[:, : self.d], at.gradients[:, self.d :]
        if not b.size:
            return np.add.reduce(features * features * self.halves, axis=1)
        balanced = features - b * self.mean
        gaps = np.add.reduce(balanced * balanced * self.halves, axis=1)
        return gaps + self.spread * self.halves[:, 0] * np.square(b[:, 0])

    @cached_property
    def mean(self) -> np.ndarray:
        """The weighted mean of the features: of shape (1, d), or (K, d) with weights."""
        c = np.ones((1, self.columns.shape[1])) if self.c is None else self.c
        return (c @ self.columns[: self.d].T) / np.add.reduce(c, axis=1)[:, None]

    @cached_property
    def spread(self) -> np.ndarray:
        """The weighted mean squared distance of the rows from their mean."""
        flat = self.columns[: self.d].reshape(-1)
        square: Any = float(flat @ flat) / self.columns.shape[1]
        if self.c is not None:
            square = self.c @ np.square(self.columns[: self.d]).sum(axis=0) / self.c.sum(axis=1)
        return np.maximum(square - np.add.reduce(self.mean * self.mean, axis=1), 0.0)

    def directions(self, at: Points) -> tuple[np.ndarray, np.ndarray]:
        """Return the Newton directions, and the slopes of the objectives along them."""
        way = np.array([solution(H, -g) for H, g in zip(self.hessians(at.margins), at.gradients, strict=True)])
        return way, np.add.reduce(at.gradients * way, axis=1)

    def hessians(self, margins: np.ndarray) -> np.ndarray:
        """Return the Hessians, of shape (K, m, m)."""
        K, m = self.ridge.shape
        weights = self.loss.second_derivative(margins if self.o is None else margins + self.o, self.y)
        weights = weights if self.c is None else self.c * weights
        scaled = weights[:, None, :] * self.columns
        H = (scaled.reshape(K * m, -1) @ self.columns.T).reshape(K, m, m)
        diagonals = H.reshape(K, -1)[:, :: m + 1]
        diagonals += self.ridge
        return H
