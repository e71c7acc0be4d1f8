"""Newton's method for softmax with kinks and bounds: the steps of ``proximal.py`` over coordinates (class k, feature j).

    n P(W, b) = Σ_i c_i φ_i(W a_i + b) + Σ_kj ½ ridge_j w_kj² + threshold_j |w_kj|,      lower ≤ w_k ≤ upper

The curvature of row i is c_i Q_i ⊗ ã_i ã_iᵀ with Q = diag(p) − ppᵀ, whose rows sum to zero: it is the Laplacian of the graph on
the classes with the weights p_k p_l. So what joins two classes gives what each has by itself, and nothing cancels.

Two directions are flat. To add a number to all intercepts changes nothing: a step moves their differences only. To add a number
to a feature's coefficients in all classes changes the penalty alone; a tiny lift of the curvature keeps steps there finite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.losses.softmax import chances, pair_products
from dualnewton.matrix import Data, linear
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import Costs
from dualnewton.solvers.deadline import Deadline
from dualnewton.solvers.primal.joint_softmax import joined
from dualnewton.solvers.prox import subproblem as quadratic
from dualnewton.solvers.prox.newton import Model, Proximal
from dualnewton.solvers.prox.subproblem import Penalty
from dualnewton.solvers.prox.working_set import (
    LARGE,
    Gathered,
    affordable,
    of_classes,
    sum_of_grams,
    take_all,
)

LARGEST = 0.25
"""The most that p_k(1 − p_k) can be."""

LIFT = 1e-11
"""Of the curvature of a coordinate is added to it: far above rounding, and far below what would slow Newton's method down."""

FLAT = 1e-12
"""An eigenvalue of the intercepts' curvature below this, where each intercept's own is one, is zero but for rounding."""


@dataclass(frozen=True, eq=False)
class Chances:
    """The curvature of all rows in their margins: c_i p_ik p_il between two classes, c_i p_ik (1 − p_ik) of each by itself.

    Attributes
    ----------
    c : array of shape (n,)
        The weights.
    p, missed : arrays of shape (n, K)
        p and 1 − p.
    """

    c: np.ndarray
    p: np.ndarray
    missed: np.ndarray

    @classmethod
    def at(cls, margins: np.ndarray, c: np.ndarray, damping: float) -> Chances:
        """Return those at some margins, and more than that for ``damping`` > 0, up to what no margins can exceed.

        With p′ = (1 − δ)p + δ/K and c′ = (1 + δ(K/2 − 1))c the curvature of a row is its own for δ = 0, and ½(I − 11ᵀ/K), which
        is never less, for δ = 1.
        """
        K = margins.shape[1]
        p, missed = chances(margins)
        for part, even in ((p, 1.0 / K), (missed, 1.0 - 1.0 / K)):
            part *= 1.0 - damping
            part += damping * even
        return cls((1.0 + damping * (0.5 * K - 1.0)) * c, p, missed)

    @property
    def classes(self) -> int:
        """K."""
        return int(self.p.shape[1])

    def own(self, k: int) -> np.ndarray:
        """c_i p_ik (1 − p_ik)."""
        return self.c * self.p[:, k] * self.missed[:, k]


@dataclass(frozen=True, eq=False)
class Joint:
    """The curvature of some coordinates and of the K intercepts.

    Attributes
    ----------
    H : array of shape (m, m)
        Of the coordinates.
    border : array of shape (m, K)
        Between the two.
    corner : array of shape (K, K)
        Of the intercepts.
    """

    H: np.ndarray
    border: np.ndarray
    corner: np.ndarray

    def lifted(self) -> np.ndarray:
        """Return H with the lift for flat directions."""
        return self._lifted(self.H.copy())

    def without_intercepts(self, inverse: np.ndarray) -> np.ndarray:
        """Return H − border corner⁺ borderᵀ: the curvature where the intercepts follow to their best values."""
        return self._lifted(self.H - self.border @ (inverse @ self.border.T))

    def _lifted(self, H: np.ndarray) -> np.ndarray:
        H[np.diag_indices_from(H)] += LIFT * self.H.diagonal()
        return H

    def inverse(self) -> np.ndarray:
        """Return corner⁺: an inverse but for the direction in which all intercepts move together, and for absent classes.

        Each intercept is measured by its own curvature first: classes may be rare.
        """
        own = self.corner.diagonal()
        units = np.where(own > 0.0, 1.0 / np.sqrt(np.where(own > 0.0, own, 1.0)), 0.0)
        values, vectors = np.linalg.eigh(units[:, None] * self.corner * units)
        part = units[:, None] * vectors[:, values > FLAT]
        return (part / values[values > FLAT]) @ part.T


def laplacian(joined: np.ndarray) -> np.ndarray:
    """Return the matrix with −joined off its diagonal whose rows sum to zero."""
    L = -joined
    np.fill_diagonal(L, 0.0)
    np.fill_diagonal(L, -L.sum(axis=1))
    return L


class Coordinates(ABC):
    """Where the curvature of coordinates comes from."""

    @abstractmethod
    def curvature(self, inside: np.ndarray, at: Chances, deadline: Deadline) -> Joint:
        """Return the curvature of these coordinates, k d + j for feature j of class k, in order."""


class AllOfThem(Coordinates):
    """All coordinates, by a pass over the data for each two classes."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def curvature(self, inside: np.ndarray, at: Chances, deadline: Deadline) -> Joint:  # noqa: ARG002 (it costs about a pass)
        K, d = at.classes, self.data.d
        H = joined(self.data, (at.c[:, None] * pair_products(at.p)).T, K, intercept=True)
        whole = H[:, :d, :, :d].reshape(inside.size, inside.size)
        return Joint(whole, H[:, :d, :, d].reshape(inside.size, K), H[:, d, :, d].copy())


class Some(Coordinates):
    """Some coordinates, by the gathered rows of their features."""

    def __init__(self, features: Gathered) -> None:
        self.features = features

    def curvature(self, inside: np.ndarray, at: Chances, deadline: Deadline) -> Joint:
        K = at.classes
        classes, features = np.divmod(inside, self.features.data.d)
        places = self.features.places(features)
        weighted = np.sqrt(at.c)[:, None] * at.p
        border = np.zeros((inside.size, K))

        def scaled() -> Iterator[linear.Matrix]:
            for part in self.features.pieces(inside.size):
                M = _scaled(self.features.rows[places, part], weighted[part], classes)
                border[:] -= np.asarray(M @ weighted[part])
                yield M

        # 1. Between classes, −Σ c p_k p_l a_i a_j = −(√c p_k a_i)·(√c p_l a_j).
        H = -sum_of_grams(scaled(), inside.size, deadline)
        # 2. Within a class, by weights of their own, in which 1 − p has all its digits.
        ends = np.searchsorted(classes, np.arange(K + 1))
        for k in range(K):
            own = slice(int(ends[k]), int(ends[k + 1]))
            if own.start < own.stop:
                H[own, own] = self.features.gram(places[own], at.own(k), deadline)
        mine = (np.arange(inside.size), classes)
        border[mine] = 0.0
        border[mine] = -border.sum(axis=1)
        return Joint(H, border, laplacian(weighted.T @ weighted))


def _scaled(rows: linear.Matrix, weighted: np.ndarray, classes: np.ndarray) -> linear.Matrix:
    """Multiply the row of each coordinate by the column of its class."""
    if not linear.is_sparse(rows):
        return rows * weighted.T[classes]
    of_entry = np.repeat(classes, np.diff(rows.indptr))
    data = rows.data * weighted[rows.indices, of_entry]
    return sp.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)


class Classes(Model):
    """A problem with the loss ``Softmax``.

    Parameters
    ----------
    coordinates : Coordinates
        Where its curvature comes from.
    norms : array of shape (d,)
        Σ c_i a_ij² of each feature.
    """

    def __init__(
        self,
        problem: Problem,
        coordinates: Coordinates,
        least: int,
        most: int,
        norms: np.ndarray,
        start: tuple[np.ndarray, np.ndarray],
        *,
        tol: float,
        compiled: bool,
    ) -> None:
        K, one = problem.columns, Penalty.of(problem)
        super().__init__(
            problem,
            Penalty(*(np.tile(getattr(one, part.name), K) for part in fields(one))),
            least,
            most,
            LARGEST * np.tile(norms, K),
            start,
            tol=tol,
            compiled=compiled,
            quadratic=False,
        )
        self.coordinates = coordinates

    def row_losses(self, rows: slice, margins: np.ndarray) -> tuple[float, np.ndarray]:
        return self.problem.row_losses(rows, margins)

    def _model_minimum(self, inside: np.ndarray, goal: float, deadline: Deadline) -> tuple[np.ndarray, np.ndarray]:
        problem, offset = self.problem, self.problem.offset
        margins = self.margins if offset is None else self.margins + offset
        joint = self.coordinates.curvature(inside, Chances.at(margins, problem.c, self.damping), deadline)
        slopes, before, penalty = self.gradient[inside], self.w[inside], self.penalty.only(inside)
        trial = self.w.copy()
        if not problem.fit_intercept:
            trial[inside] = quadratic.minimise(joint.lifted(), slopes, before, penalty, goal, self.sweep, deadline)
            return trial, self.b
        inverse = joint.inverse()
        H, slopes = joint.without_intercepts(inverse), slopes - joint.border @ (inverse @ self.slope)
        trial[inside] = quadratic.minimise(H, slopes, before, penalty, goal, self.sweep, deadline)
        return trial, self.b - inverse @ (self.slope + joint.border.T @ (trial[inside] - before))


class ProximalSoftmax(Proximal):
    """Models that move together, each of several classes: their trial points share the passes, their features are gathered once.

    Parameters
    ----------
    problems : sequence of Problem
        They share X and the regulariser, which is separable.
    data, starts, tol, compiled
        Those of :class:`Proximal`.
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
        self.data, self.models = data, []
        costs = of_classes(Costs.of(data.profile), max(problem.columns for problem in problems))
        every = take_all(costs, once=False)
        sizes = (0, 0) if every else (affordable(costs), LARGE)
        coordinates = AllOfThem(data) if every else Some(Gathered(data))
        norms: list[tuple[np.ndarray, np.ndarray]] = []  # one for each vector of weights
        for problem, start in zip(problems, starts, strict=True):
            found = next((own for c, own in norms if np.array_equal(c, problem.c)), None)
            if found is None:
                found = np.zeros(problem.d) if every else data.column_norms(problem.c)
                norms.append((problem.c, found))
            self.models.append(Classes(problem, coordinates, *sizes, found, start, tol=tol, compiled=compiled))
        self._evaluate(self.models)
