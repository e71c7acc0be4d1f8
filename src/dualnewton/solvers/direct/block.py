"""What the direct solvers share: the rows as one dense block, and the point where a solver ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import Data, linear
from dualnewton.matrix.blocks import CACHED, FEW
from dualnewton.matrix.protocol import Work
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.primal.incremental_gram import IncrementalGram
from dualnewton.solvers.primal.single_precision import estimated_diagonal
from dualnewton.solvers.protocol import PairPoint, PrimalPoint, WholePoint

STEP_EPOCHS = 2.0
"""Epochs of work that a step counts for: one pass for values and gradient, one for the matrix of the linear system."""

MOST_STEPS = 50
"""Largest number of steps of a direct solver; well-posed problems take fewer than 20."""

WELL_BELOW = 0.5
"""A solver continues until the gap that it expects is at most this fraction of ``tol``: the certificate rounds differently."""


@dataclass(frozen=True, eq=False)
class Block:
    """All rows of small data as float64 arrays, which the problems of a fit share."""

    data: Data  # data
    crossovers: Crossovers = USUAL  # tuned numbers by which its solvers choose between two ways of computing the same

    @cached_property
    def cache(self) -> dict[Any, Any]:
        """What a solver computes once for all problems of a fit."""
        return {}

    @cached_property
    def stored(self) -> linear.Matrix:
        """X, in CSR as it is stored, or the dense rows."""
        return self.data.rows(slice(None)) if self.data.profile.sparse else self.rows

    def squared_sums(self, weights: np.ndarray, *, equal: bool = False) -> np.ndarray:
        """Return Σ weights_i a_ij² for each feature, given whether all weights are equal.

        It is an estimate for dense rows, whose squares would be a large array.
        """
        if not self.data.profile.sparse:
            return estimated_diagonal(self.data, weights)
        if equal:
            return weights[0] * self.data.squared_feature_norms
        return np.asarray(linear.transposed(linear.squared(self.stored)) @ weights)

    def grams(self, ridge: np.ndarray, *, intercept: bool) -> IncrementalGram:
        """Return the sums Σ weights_i ã_i ã_iᵀ of sparse rows, over the pairs of stored entries of each row.

        They are factorised with this ridge added.
        """
        data = self.data.using(Work(compiled=True, by_pairs=lambda *_: True))
        return IncrementalGram(data, intercept=intercept, ridge=ridge, updated_share=self.crossovers.updated_share)

    def part(self, chosen: np.ndarray) -> Block:
        """Return the block of some of the rows."""
        return Block(self.data.subset(chosen), self.crossovers)

    @cached_property
    def rows(self) -> np.ndarray:
        """X, of shape (n, d), in C order."""
        return np.ascontiguousarray(linear.to_dense(self.data.rows(slice(None))), dtype=np.float64)

    @cached_property
    def light(self) -> linear.Matrix:
        """X by which products cost least: in CSR if few of its entries are stored, or dense."""
        profile = self.data.profile
        few = profile.sparse and profile.stored <= self.crossovers.expanded_share * profile.n * profile.d
        return self.stored if few else self.rows

    @cached_property
    def by_feature(self) -> linear.Matrix:
        """The features of ``light`` in CSR, one row for each."""
        return linear.transposed(self.light).tocsr()

    def columns(self, features: np.ndarray) -> np.ndarray:
        """Return some features as an array, one row for each."""
        return (
            linear.to_dense(self.by_feature[features])
            if linear.is_sparse(self.light)
            else self.light.take(features, axis=1).T
        )

    @cached_property
    def extended(self) -> np.ndarray:
        """The rows (a_i, 1), of shape (n, d + 1): the last column belongs to the intercept."""
        rows = np.empty((self.data.n, self.data.d + 1))
        rows[:, :-1] = linear.to_dense(self.data.rows(slice(None)))
        rows[:, -1] = 1.0
        return rows


def weighted_sums(R: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return Rᵀ rows for weights R of shape (n, K), by products with vectors where K is small and the rows are not."""
    return np.array([r @ rows for r in R.T]) if R.shape[1] <= FEW and rows.size > CACHED else R.T @ rows


class Found(NamedTuple):
    """The point where a direct solver ended."""

    # (K,) The model.
    w: np.ndarray
    intercept: Any
    steps: int  # linear systems solved
    alpha: np.ndarray | None = None  # dual point, where the solver has a better one than −φ′(z)
    scale: float | None = None  # σ, where a scale of the residuals is fitted
    given_up: bool = (
        False  # whether the solver ended early, so that other methods continue without a certificate of this point
    )

    def point(self) -> Any:
        """Return the point as an object that has the problem certify it."""
        if self.scale is not None:
            return WholePoint({"w": self.w, "intercept": self.intercept, "scale": self.scale, "alpha": self.alpha})
        if self.alpha is not None:
            return PairPoint(self.w, self.intercept, self.alpha)
        return PrimalPoint(self.w, self.intercept)


class Limits(NamedTuple):
    """How far a direct solver goes."""

    tol: float  # relative gap that is wanted
    most: int = MOST_STEPS  # number of steps
    deadline: float = math.inf  # by ``time.perf_counter``

    def is_late(self) -> bool:
        """Whether the deadline has passed."""
        return time.perf_counter() > self.deadline


Start = tuple[np.ndarray, Any]
"""(w, b)."""

Solver = Callable[..., Found]
"""``solve(problem, block, start, limits)``: start is None for a cold start."""

Solvers = Callable[..., list[Found]]
"""``solve(problems, block, starts, limits)``: the same for several problems over the same rows."""


def one_by_one(
    solve: Solver, problems: Sequence[Any], block: Block, starts: Sequence[Start | None], limits: Limits
) -> list[Found]:
    """Solve each of several problems by a call of its own."""
    return [solve(problem, block, start, limits) for problem, start in zip(problems, starts, strict=True)]
