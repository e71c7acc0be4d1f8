"""The coordinates that take part in a step, and where their curvature comes from.

With few coordinates all take part, and passes over the data sum their matrix. With many, the features of a working set are
gathered as rows of a matrix of their own when they are first needed, and are shared by all models over the same data.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualnewton.matrix import Data, grams, linear
from dualnewton.objective.problem import Problem
from dualnewton.solvers.crossovers import Sizes
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.prox.curvature import CANCELLED, Curvature, RowCurvature, RowWeights


class Features(ABC):
    """Where the curvature of coordinates comes from; coordinate k d + j is feature j in column k."""

    @abstractmethod
    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:
        """Return the curvature of these coordinates, which are sorted, for the curvature of each row."""

    def rows_of(self, features: np.ndarray) -> linear.Matrix | None:  # noqa: ARG002
        """Return these features, one row each, where they are gathered."""
        return None

    def state(self) -> Any:
        """Return what depends on earlier steps, as plain data; None if nothing does."""
        return None

    def restore(self, state: Any) -> None:  # noqa: B027
        """Take such a state."""

    def remembered(self, weights: np.ndarray) -> Features:
        """Return the same for row weights that never change, where nothing need be computed twice."""
        return Remembered(self, weights)


class Everything(Features):
    """All features, by passes over the data."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:  # noqa: ARG002 (all, by passes)
        return at.of_all(self.data)


class Remembered(Features):
    """The curvature of all features for weights that never change, computed once."""

    def __init__(self, features: Features, weights: np.ndarray) -> None:
        self.features, self.weights = features, weights
        self.known: Curvature | None = None

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:  # noqa: ARG002 (it does not change)
        if self.known is None:
            self.known = self.features.curvature(inside, RowWeights(self.weights), deadline)
        return self.known


class Gathered(Features):
    """Some features, one row each, in the order in which they were first asked for.

    All rows have one storage, chosen by the share of nonzero entries of all features gathered so far: dense above
    ``sizes.tuning.thin_share``, CSR below. More features may change it; then the rows that are there are converted.

    Attributes
    ----------
    features : integer array
        The features in ``rows``, in their order.
    means : array
        Their means; zeros where none are subtracted.
    """

    def __init__(
        self,
        data: Data,
        sizes: Sizes,  # decisions about storage and sizes
        # (n,) Weights of the examples, whose sum is one: the mean of a feature is subtracted from it.
        shares: np.ndarray | None = None,
    ) -> None:
        self.data, self.sizes, self.shares, self.means = data, sizes, shares, np.zeros(0)
        self.place, self.features, self.stored = np.full(data.d, -1), np.zeros(0, dtype=np.intp), 0
        self.rows: linear.Matrix = None
        self.buffer = np.empty((0, data.n))
        self.order: list[np.ndarray] = []  # the features of each gathering

    def state(self) -> tuple[np.ndarray, ...]:
        return tuple(self.order)

    def restore(self, state: tuple[np.ndarray, ...]) -> None:
        for features in state:
            self.places(features)

    def places(self, features: np.ndarray) -> np.ndarray:
        """Return the rows of these features, after gathering those that are missing."""
        missing = np.unique(features[self.place[features] < 0])
        if missing.size:
            more = self.data.columns(missing)
            self.order.append(missing)
            means = np.zeros(missing.size) if self.shares is None else more @ self.shares
            if self.shares is not None:
                more -= means[:, None]
            self.means = np.append(self.means, means)
            self.place[missing] = self.features.size + np.arange(missing.size)
            self.features = np.append(self.features, missing)
            self.stored += more.nnz if linear.is_sparse(more) else more.size
            dense = self.stored > self.sizes.tuning.thin_share * self.data.n * self.features.size
            self.rows = self._appended(more, dense=dense)
        return self.place[features]

    def _appended(self, more: linear.Matrix, *, dense: bool) -> linear.Matrix:
        """Return the rows with more of them; an array is allocated for as many again, so that few gatherings copy it."""
        rows = more[:0] if self.rows is None else self.rows
        old, size = rows.shape[0], rows.shape[0] + more.shape[0]
        if not dense or linear.is_sparse(rows) or linear.is_sparse(more):
            return linear.stacked([rows, more], dense=dense)
        if size > len(self.buffer):
            self.buffer = more if old == 0 else np.empty((2 * size, self.data.n))
            self.buffer[:old] = rows
        if old:
            self.buffer[old:size] = more
        return self.buffer[:size]

    def rows_of(self, features: np.ndarray) -> linear.Matrix:
        places = self.places(features)
        return self.rows[places]

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:
        columns, features = np.divmod(inside, self.data.d)
        return at.of_some(self, self.places(features), columns, deadline)

    def gram(self, places: np.ndarray, weights: np.ndarray, deadline: Deadline) -> np.ndarray:
        """Return A D(weights) Aᵀ for the rows A at these places."""
        roots = np.sqrt(weights)
        pieces = (linear.scale_columns(self.rows[places, part], roots[part]) for part in self.pieces(places.size))
        return grams.sum_of_grams(pieces, places.size, deadline.check)

    def pieces(self, size: int) -> list[slice]:
        """Cut the examples so that copies of so many features stay small."""
        return grams.column_pieces(self.rows, size)

    def remembered(self, weights: np.ndarray) -> Features:
        return Growing(self, weights)


class ByPasses(Features):
    """Some features, by a pass over the data for each matrix, where rows are too many to gather features of all of them."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:  # noqa: ARG002 (by one pass)
        columns, features = np.divmod(inside, self.data.d)
        own, places = np.unique(features, return_inverse=True)
        return at.of_all(self.data.with_features(own)).only(columns * own.size + places)

    def remembered(self, weights: np.ndarray) -> Features:
        return GrowingByPasses(self, weights)


class GrowingByPasses(Features):
    """The curvature, for weights that never change, of all features that were asked for so far: a pass whenever more are."""

    def __init__(self, passes: ByPasses, weights: np.ndarray) -> None:
        self.passes, self.weights = passes, weights
        self.features, self.known = np.zeros(0, dtype=np.intp), None  # type: np.ndarray, Curvature | None

    def state(self) -> tuple[np.ndarray, Curvature | None]:
        return self.features, self.known

    def restore(self, state: tuple[np.ndarray, Curvature | None]) -> None:
        self.features, self.known = state

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:  # noqa: ARG002 (it does not change)
        if self.known is None or not np.isin(inside, self.features).all():
            self.features = np.union1d(self.features, inside)
            self.known = self.passes.curvature(self.features, RowWeights(self.weights), deadline)
        return self.known.only(np.searchsorted(self.features, inside))


def features_of(data: Data, sizes: Sizes) -> Features:
    """Return where the curvature comes from: all features, features that are gathered, or passes where rows are too many."""
    if sizes.every:
        return Everything(data)
    return Gathered(data, sizes) if data.capabilities.whole else ByPasses(data)


def shared_features(
    problems: Sequence[Problem], data: Data, sizes: Sizes, *, fixed: bool
) -> list[tuple[Features, np.ndarray]]:
    """Return where the curvature of each problem comes from, and Σ c_i a_ij² of its features; zeros if all features take part.

    Problems with equal weights c share both. ``fixed`` says that the curvature of a row is the same at all margins.
    """
    features, known, found = features_of(data, sizes), list[tuple[np.ndarray, Features, np.ndarray]](), []
    for problem in problems:
        own = next((each for each in known if np.array_equal(each[0], problem.c)), None)
        if own is None:
            squares = np.zeros(data.d) if sizes.every else data.column_norms(problem.c)
            own = problem.c, features.remembered(problem.c) if fixed else features, squares
            known.append(own)
        found.append(own[1:])
    return found


class Growing(Features):
    """The curvature of the gathered features for weights that never change: products with new ones are added as they come.

    With more than ``largest_matrix`` features gathered, their matrix is larger than that of any step, and is not kept.
    """

    def __init__(self, gathered: Gathered, weights: np.ndarray) -> None:
        self.gathered, self.weights = gathered, weights
        self.known = Curvature(np.zeros((0, 0)), np.zeros((0, 1)), RowWeights(weights).corner, CANCELLED)

    def state(self) -> tuple[Any, Curvature]:
        return self.gathered.state(), self.known  # its last bits depend on the order in which it has grown

    def restore(self, state: tuple[Any, Curvature]) -> None:
        gathered, self.known = state
        self.gathered.restore(gathered)

    def rows_of(self, features: np.ndarray) -> linear.Matrix:
        return self.gathered.rows_of(features)

    def curvature(self, inside: np.ndarray, at: RowCurvature, deadline: Deadline) -> Curvature:  # noqa: ARG002 (it does not change)
        places = self.gathered.places(inside)
        if self.gathered.features.size > self.gathered.sizes.tuning.largest_matrix:
            return self.gathered.curvature(inside, RowWeights(self.weights), deadline)
        rows, old = self.gathered.rows, len(self.known.H)
        if (size := self.gathered.features.size) > old:
            new = rows[old:]
            even = np.ptp(self.weights) == 0.0
            weighted = new * self.weights[0] if even else linear.scale_columns(new, self.weights)
            H = np.zeros((size, size))
            H[:old, :old] = self.known.H
            grams.add_products(H[old:], weighted, rows, deadline.check)
            H[:old, old:] = H[old:, :old].T
            border = np.append(self.known.border, (new @ self.weights)[:, None], axis=0)
            self.known = replace(self.known, H=H, border=border)
        return self.known.only(places)


def chosen_features(support: np.ndarray, scores: np.ndarray, least: int, most: int) -> np.ndarray:
    """Return the features of a step, in order: those in use and those with the highest scores, twice as many as are in use.

    Should so many be more than may take part, those with the highest scores do.
    """
    wanted = max(least, 2 * int(np.count_nonzero(support)))
    size = min(wanted, most, scores.size)
    ranked = scores if size < min(wanted, scores.size) else np.where(support, np.inf, scores)
    first = np.argpartition(-ranked, size - 1)[:size]
    useful = np.sort(first[ranked[first] > 0.0])
    return useful if useful.size else first[:1]  # where only the intercept is left to move
