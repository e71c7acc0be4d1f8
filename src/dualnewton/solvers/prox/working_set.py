"""The features that take part in a step, and their curvature Σ_i h_i ã_i ã_iᵀ.

With few features all take part, and the passes over the data bring their matrix. With many, those that matter are gathered as
rows of a matrix of their own when they are first asked for, and are shared by all models over the same data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from dualnewton.matrix import Data, linear
from dualnewton.planning.costs import MULTIPLY, PAIR, Costs
from dualnewton.solvers.deadline import Deadline

LARGE = 4000
"""The most features of a step: their matrix is factorised."""

LEAST = 64
"""Features whose matrix is always affordable."""

ALL_AT_ONCE, MOST_AT_ONCE = 3.0, 2000
"""Times the features whose matrix costs a pass: up to so many all are taken where one matrix serves for all steps."""

DENSE = 0.05
"""The share of nonzero entries beyond which gathered features are stored densely."""

CANCELLED = 2e-15
"""Of the curvature of a feature is left to it where the intercept takes all of it away."""

DENSE_PIECE, FEWEST = 1 << 20, 1 << 7
"""Numbers of dense features that are multiplied at a time, and examples at least: with ``LARGE`` features, in 0.2 s."""

PRODUCTS, SPARSE_PRODUCTS = 1 << 30, 1 << 25
"""Multiplications of dense and of sparse features between two checks of the deadline: about a tenth of a second."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """Of some features and a constant one: H between the features, the border with the constant, and the sum of the weights."""

    H: np.ndarray
    border: np.ndarray
    total: float

    def without_constant(self) -> np.ndarray:
        """Return H − border borderᵀ/total: the curvature where the intercept follows the features to its best value."""
        H = np.outer(self.border, self.border / -self.total)
        H += self.H
        # What cancels (a feature that is nearly constant) must not leave a negative curvature behind.
        H[np.diag_indices_from(H)] += CANCELLED * self.H.diagonal()
        return H

    def only(self, features: np.ndarray) -> Curvature:
        """Return the part of some features."""
        return Curvature(self.H[np.ix_(features, features)], self.border[features], self.total)


class Features(ABC):
    """Where the curvature of features comes from."""

    @abstractmethod
    def curvature(self, features: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Curvature:
        """Return the curvature of these features, with a weight for each row."""

    def rows_of(self, features: np.ndarray) -> linear.Matrix | None:  # noqa: ARG002
        """Return these features, one row each, where they are gathered."""
        return None

    def remembered(self, weights: np.ndarray) -> Features:
        """Return the same for weights that never change, where nothing need be computed twice."""
        return Remembered(self, weights)


class Everything(Features):
    """All features, by a pass over the data."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def curvature(self, features: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Curvature:  # noqa: ARG002 (all, by one pass)
        H = self.data.weighted_gram(weights, intercept=True)
        return Curvature(H[:-1, :-1].copy(), H[:-1, -1].copy(), float(H[-1, -1]))


class Remembered(Features):
    """The curvature of all features, computed once."""

    def __init__(self, features: Features, weights: np.ndarray) -> None:
        self.features, self.weights = features, weights
        self.known: Curvature | None = None

    def curvature(self, features: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Curvature:  # noqa: ARG002 (they do not change)
        if self.known is None:
            self.known = self.features.curvature(features, self.weights, deadline)
        return self.known


class Gathered(Features):
    """Some features, one row each, in the order in which they were first asked for.

    All rows have one storage, chosen by the share of nonzero entries of all features gathered so far: dense above ``DENSE``, CSR
    below. More features may change it; then the rows that are there are converted.
    """

    def __init__(self, data: Data) -> None:
        self.data = data
        self.place = np.full(data.d, -1)
        self.count = self.stored = 0
        self.rows: linear.Matrix = None

    def places(self, features: np.ndarray) -> np.ndarray:
        """Return the rows of these features, after gathering those that are missing."""
        missing = np.unique(features[self.place[features] < 0])
        if missing.size:
            more = self.data.columns(missing)
            self.place[missing] = self.count + np.arange(missing.size)
            self.count += missing.size
            self.stored += more.nnz if linear.is_sparse(more) else more.size
            dense = self.stored > DENSE * self.data.n * self.count
            self.rows = linear.stacked([more] if self.rows is None else [self.rows, more], dense=dense)
        return self.place[features]

    def rows_of(self, features: np.ndarray) -> linear.Matrix:
        places = self.places(features)
        return self.rows[places]

    def curvature(self, features: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Curvature:
        places = self.places(features)
        H = self.gram(places, weights, deadline)
        return Curvature(H, (self.rows @ weights)[places], float(weights.sum()))

    def gram(self, places: np.ndarray, weights: np.ndarray, deadline: Deadline) -> np.ndarray:
        """Return A D(weights) Aᵀ for the rows A at these places."""
        roots = np.sqrt(weights)
        pieces = (linear.scale_columns(self.rows[places, part], roots[part]) for part in self.pieces(places.size))
        return sum_of_grams(pieces, places.size, deadline)

    def pieces(self, size: int) -> list[slice]:
        """Cut the examples so that copies of so many features stay small; sparse ones are small as they are."""
        if linear.is_sparse(self.rows):
            return [slice(None)]
        step, n = max(FEWEST, DENSE_PIECE // max(size, 1)), self.data.n
        return [slice(low, low + step) for low in range(0, n, step)]

    def remembered(self, weights: np.ndarray) -> Features:
        return Growing(self, weights)


class Growing(Features):
    """The curvature of the gathered features for weights that never change: products with new ones are added as they come.

    With more than ``LARGE`` features gathered, their matrix would be larger than that of any step, and is not kept.
    """

    def __init__(self, gathered: Gathered, weights: np.ndarray) -> None:
        self.gathered, self.weights = gathered, weights
        self.known = Curvature(np.zeros((0, 0)), np.zeros(0), float(weights.sum()))

    def rows_of(self, features: np.ndarray) -> linear.Matrix:
        return self.gathered.rows_of(features)

    def curvature(self, features: np.ndarray, weights: np.ndarray, deadline: Deadline) -> Curvature:  # noqa: ARG002 (they do not change)
        places = self.gathered.places(features)
        if self.gathered.count > LARGE:
            return self.gathered.curvature(features, self.weights, deadline)
        rows, old = self.gathered.rows, self.known.border.size
        if (size := self.gathered.count) > old:
            new = rows[old:]
            even = np.ptp(self.weights) == 0.0
            weighted = new * self.weights[0] if even else linear.scale_columns(new, self.weights)
            H = np.zeros((size, size))
            H[:old, :old] = self.known.H
            add_products(H[old:], weighted, rows, deadline)
            H[:old, old:] = H[old:, :old].T
            self.known = Curvature(H, np.append(self.known.border, new @ self.weights), self.known.total)
        return self.known.only(places)


def add_products(H: np.ndarray, A: linear.Matrix, B: linear.Matrix, deadline: Deadline) -> None:
    """H += A Bᵀ, in pieces of the columns of dense matrices and of the rows of sparse ones; H is stored row by row."""
    if linear.is_sparse(A):
        other, step = sp.csr_array(B.T), max(1, SPARSE_PRODUCTS // max(B.nnz, 1))
        for low in range(0, A.shape[0], step):
            H[low : low + step] += linear.to_dense(A[low : low + step] @ other)
            deadline.check()
        return
    from scipy.linalg.blas import dgemm

    step = max(FEWEST, PRODUCTS // max(H.size, 1))
    for low in range(0, A.shape[1], step):
        part = slice(low, low + step)
        # Fortran's order: Hᵀ += B Aᵀ, in place.
        dgemm(1.0, B[:, part].T, A[:, part].T, beta=1.0, c=H.T, trans_a=True, overwrite_c=True)
        deadline.check()


def sum_of_grams(pieces: Iterable[linear.Matrix], size: int, deadline: Deadline) -> np.ndarray:
    """Σ M Mᵀ over matrices of so many rows."""
    from scipy.linalg.blas import dsyrk

    H = np.zeros((size, size))
    for M in pieces:
        if linear.is_sparse(M):
            add_products(H, M, M, deadline)
        else:
            # Fortran's order: the upper triangle of Hᵀ is the lower one of H.
            dsyrk(1.0, M.T, beta=1.0, c=H.T, trans=True, overwrite_c=True)
        deadline.check()
    lower = np.tril(H)
    lower += np.tril(H, -1).T
    return lower


def of_classes(costs: Costs, columns: int) -> Costs:
    """Return the costs where a coordinate is a feature of a class: those of data in which each class has features of its own."""
    return replace(costs, d=columns * costs.d, stored=columns * costs.stored, pairs=columns**2 * costs.pairs)


def affordable(costs: Costs) -> int:
    """Return how many features have a matrix that costs about a pass."""
    if costs.sparse:
        size = costs.d * math.sqrt(costs.data_pass / max(costs.pairs * PAIR, 1e-300))
    else:
        size = math.sqrt(2.0 * MULTIPLY * costs.data_pass / costs.n)
    return int(min(costs.d, LARGE, max(LEAST, size)))


def take_all(costs: Costs, *, once: bool) -> bool:
    """Whether every step is over all features; ``once`` if the curvature is computed once."""
    few = costs.d <= (LEAST if is_thin(costs) else MOST_AT_ONCE)
    return few and costs.d <= (ALL_AT_ONCE if once else 1.0) * affordable(costs)


def is_thin(costs: Costs) -> bool:
    """Whether the features have so few entries that they stay sparse when they are gathered."""
    return costs.sparse and costs.stored <= DENSE * costs.n * costs.d


def chosen(support: np.ndarray, scores: np.ndarray, least: int, most: int) -> np.ndarray:
    """Return the features of a step, in order: those in use and those with the highest scores, twice as many as are in use.

    Should so many be more than may take part, those with the highest scores do.
    """
    wanted = max(least, 2 * int(np.count_nonzero(support)))
    size = min(wanted, most, scores.size)
    ranked = scores if size < min(wanted, scores.size) else np.where(support, np.inf, scores)
    first = np.argpartition(-ranked, size - 1)[:size]
    useful = np.sort(first[ranked[first] > 0.0])
    return useful if useful.size else first[:1]  # where only the intercept is left to move
