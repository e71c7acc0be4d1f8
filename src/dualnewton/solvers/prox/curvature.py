"""The curvature of the losses, row by row in the margins, and summed over the rows in the coordinates of a step.

A coordinate is k d + j: feature j in column k of the model. A row with the curvature Q_i in its margins has Q_i ⊗ ã_i ã_iᵀ in the
coordinates and the intercepts. With one column Q_i is a number (:class:`RowWeights`). With the K columns of softmax it is
c_i (diag(p) − ppᵀ) (:class:`Probabilities`), whose rows sum to zero: the Laplacian of the graph on the classes with the weights
p_k p_l. So the entries on its diagonal are sums of those off it, and nothing cancels.

Softmax has two flat directions. Adding a number to all intercepts changes nothing: a step moves their differences only. Adding a
number to a feature's coefficients in all classes changes the penalty alone: ``lift`` keeps steps along it finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from dualnewton.losses.simplex import pair_products, probabilities
from dualnewton.matrix import Data, grams, linear
from dualnewton.objective.problem import Problem
from dualnewton.solvers.deadline import Deadline

if TYPE_CHECKING:
    from dualnewton.solvers.prox.working_set import Gathered

LARGEST = 0.25
"""The most that p_k(1 − p_k) can be."""

LIFT = 1e-11
"""Fraction of a coordinate's curvature that is added to it for softmax: far above rounding, too little to slow convergence."""

CANCELLED = 2e-15
"""Fraction of a feature's curvature that is added to it with one column: the feature may be constant, and eliminating the
intercept would then leave rounding of either sign."""

FLAT = 1e-12
"""Eigenvalues of the intercepts' curvature, scaled to a unit diagonal, that count as zero."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """The curvature of m coordinates and of the K intercepts."""

    H: np.ndarray  # (m, m) of the coordinates
    border: np.ndarray  # (m, K) between coordinates and intercepts
    corner: np.ndarray  # (K, K) of the intercepts
    lift: float  # fraction of the diagonal of H that is added to it once the intercepts are eliminated

    def reduced(self, inverse: np.ndarray) -> np.ndarray:
        """Return H − border corner⁺ borderᵀ, the curvature where the intercepts follow to their best values, with the lift."""
        H = self.border @ (-inverse @ self.border.T)
        H += self.H
        H[np.diag_indices_from(H)] += self.lift * self.H.diagonal()
        return H

    def times(self, factor: float) -> Curvature:
        """Return the curvature times a factor."""
        return Curvature(factor * self.H, factor * self.border, factor * self.corner, self.lift)

    def only(self, places: np.ndarray) -> Curvature:
        """Return the part of some coordinates."""
        return Curvature(self.H[np.ix_(places, places)], self.border[places], self.corner, self.lift)


def pseudo_inverse(corner: np.ndarray) -> np.ndarray:
    """Return corner⁺, which moves intercepts neither along flat directions nor for classes without curvature.

    Each intercept is scaled by its own curvature first: classes may be rare.
    """
    own = corner.diagonal()
    units = np.where(own > 0.0, 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(units[:, None] * corner * units)
    part = units[:, None] * vectors[:, values > FLAT]
    return (part / values[values > FLAT]) @ part.T


class RowCurvature(ABC):
    """The curvature of the losses in the margins of each row."""

    factors = False
    """Whether the curvature of coordinates is AAᵀ for rows A, one for each coordinate, that are as sparse as the features."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """The rank of the curvature of any coordinates, or more."""

    @staticmethod
    @abstractmethod
    def bound(problem: Problem) -> float:
        """Return an upper bound of a coordinate's curvature as a multiple of Σ c_i a_ij²."""

    @classmethod
    @abstractmethod
    def of(cls, problem: Problem, margins: np.ndarray, damping: float) -> RowCurvature:
        """Return the curvature at margins a_iᵀw + b; with ``damping`` from 0 to 1 raised, at 1 to what no margins exceed."""

    @abstractmethod
    def of_all(self, data: Data) -> Curvature:
        """Return the curvature of all coordinates, by passes over the data."""

    @abstractmethod
    def of_some(self, gathered: Gathered, places: np.ndarray, columns: np.ndarray, deadline: Deadline) -> Curvature:
        """Return the curvature of coordinates, given the place of each one's feature among the gathered ones and its column."""

    def factored(self, features: linear.Matrix) -> tuple[linear.Matrix, np.ndarray, np.ndarray]:
        """Return (A, border, corner) for features that are rows of a matrix, where ``factors``."""
        raise NotImplementedError


def kind_of(problem: Problem) -> type[RowCurvature]:
    """Return the kind of curvature that the loss has: one weight for each row, or a block of K×K."""
    return RowWeights if problem.columns == 1 else Probabilities


@dataclass(frozen=True, eq=False)
class RowWeights(RowCurvature):
    """One column: the weight h_i of each row."""

    h: np.ndarray

    factors = True

    @property
    def rank(self) -> int:
        return len(self.h)

    @staticmethod
    def bound(problem: Problem) -> float:
        return 1.0 / (problem.loss.gamma or 1.0)

    @classmethod
    def of(cls, problem: Problem, margins: np.ndarray, damping: float) -> RowWeights:
        curvature, gamma = problem.row_curvature(margins), problem.loss.gamma
        # Without γ no number bounds the curvature of a row: the largest one at these margins takes its place.
        largest = problem.c / gamma if gamma is not None else float(curvature.max())
        return cls(np.maximum(curvature, damping * largest))

    @property
    def corner(self) -> np.ndarray:
        """The curvature of the intercept."""
        return np.array([[float(self.h.sum())]])

    def of_all(self, data: Data) -> Curvature:
        H = data.weighted_gram(self.h, intercept=True)
        return Curvature(H[:-1, :-1].copy(), H[:-1, -1:].copy(), H[-1:, -1:].copy(), CANCELLED)

    def of_some(self, gathered: Gathered, places: np.ndarray, columns: np.ndarray, deadline: Deadline) -> Curvature:  # noqa: ARG002
        H = gathered.gram(places, self.h, deadline)
        return Curvature(H, (gathered.rows @ self.h)[places, None], self.corner, CANCELLED)

    def factored(self, features: linear.Matrix) -> tuple[linear.Matrix, np.ndarray, np.ndarray]:
        roots = np.sqrt(self.h)
        A = features if np.all(self.h == 1.0) else linear.scale_columns(features, roots)
        return A, np.asarray(A @ roots)[:, None], self.corner


@dataclass(frozen=True, eq=False)
class Probabilities(RowCurvature):
    """The K columns of softmax: c_i p_ik (1 − p_ik) of class k by itself, and −c_i p_ik p_il between two classes."""

    c: np.ndarray  # (n,) weights
    # (n, K) p and 1 − p, each to full relative accuracy.
    p: np.ndarray
    missed: np.ndarray

    @property
    def rank(self) -> int:
        n, K = self.p.shape
        return n * (K - 1)

    @staticmethod
    def bound(problem: Problem) -> float:  # noqa: ARG004
        return LARGEST

    @classmethod
    def of(cls, problem: Problem, margins: np.ndarray, damping: float) -> Probabilities:
        return cls.at(margins if problem.offset is None else margins + problem.offset, problem.c, damping)

    @classmethod
    def at(cls, margins: np.ndarray, c: np.ndarray, damping: float) -> Probabilities:
        """Return the curvature at margins that include the offsets, for these weights.

        With p′ = (1 − δ)p + δ/K and c′ = (1 + δ(K/2 − 1))c the curvature of a row is its own for δ = 0, and ½(I − 11ᵀ/K), which
        is never less, for δ = 1.
        """
        K = margins.shape[1]
        p, missed = probabilities(margins)
        for part, even in ((p, 1.0 / K), (missed, 1.0 - 1.0 / K)):
            part *= 1.0 - damping
            part += damping * even
        return cls((1.0 + damping * (0.5 * K - 1.0)) * c, p, missed)

    def of_all(self, data: Data) -> Curvature:
        K, d = self.p.shape[1], data.d
        H = data.coupled_gram(list((self.c[:, None] * pair_products(self.p)).T), K, intercept=True)
        whole, border = H[:, :d, :, :d].reshape(K * d, K * d), H[:, :d, :, d].reshape(K * d, K)
        return Curvature(whole, border, H[:, d, :, d].copy(), LIFT)

    def of_some(self, gathered: Gathered, places: np.ndarray, columns: np.ndarray, deadline: Deadline) -> Curvature:
        size, K = places.size, self.p.shape[1]
        weighted, border = np.sqrt(self.c)[:, None] * self.p, np.zeros((size, K))

        def scaled() -> Iterator[linear.Matrix]:
            for part in gathered.pieces(size):
                M = _scaled(gathered.rows[places, part], weighted[part], columns)
                border[:] -= np.asarray(M @ weighted[part])
                yield M

        # 1. Between classes, −Σ c p_k p_l a_i a_j = −(√c p_k a_i)·(√c p_l a_j).
        H = -grams.sum_of_grams(scaled(), size, deadline.check)
        # 2. Within a class, by weights of their own, in which 1 − p has all its digits. Coordinates are sorted by class.
        ends = np.searchsorted(columns, np.arange(K + 1))
        for k in range(K):
            own = slice(int(ends[k]), int(ends[k + 1]))
            if own.start < own.stop:
                H[own, own] = gathered.gram(places[own], self.c * self.p[:, k] * self.missed[:, k], deadline)
        mine = (np.arange(size), columns)
        border[mine] = 0.0
        border[mine] = -border.sum(axis=1)
        return Curvature(H, border, laplacian(weighted.T @ weighted), LIFT)


def laplacian(joined: np.ndarray) -> np.ndarray:
    """Return the matrix with −joined off its diagonal whose rows sum to zero."""
    L = -joined
    np.fill_diagonal(L, 0.0)
    np.fill_diagonal(L, -L.sum(axis=1))
    return L


def _scaled(rows: linear.Matrix, weighted: np.ndarray, columns: np.ndarray) -> linear.Matrix:
    """Multiply the row of each coordinate by the weights of its column."""
    if not linear.is_sparse(rows):
        return rows * weighted.T[columns]
    of_entry = np.repeat(columns, np.diff(rows.indptr))
    data = rows.data * weighted[rows.indices, of_entry]
    return sp.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)
