"""Newton systems of risks without a penalty by conjugate gradients, for more coefficients than a matrix H of them may have.

    H θ = g,        H = Σ m_i x̃_i x̃_iᵀ,   m_i = c_i φ″_i,   θ = (w, b)

Each conjugate gradient is a pass over the data. An intercept is eliminated, which leaves the system of centred features,

    Σ m_i (x_i − x̄)(x_i − x̄)ᵀ w = g_w − g_b x̄,        b = g_b/Σ m_i − x̄ᵀw,        x̄ = Σ m_i x_i / Σ m_i.

Conjugate gradients that start at zero stay in the range of their matrix, and end at the shortest w if H is singular. Scaling the
features by the diagonal of H, without which features of different scales take too many passes, ends at another w in that case.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import Data
from dualnewton.objective.conjugate_gradients import Effort, solve_together
from dualnewton.row_arrays import on_host

CONSTANT = 2.0**-48
"""Sum of squares of a centred feature, as a fraction of that of the feature, up to which the feature is constant."""

APART = 2.0**4
"""Ratio of the largest to the smallest diagonal entry of H from which systems are scaled."""

PROBES, ROUGH, EXACT = (2, 8), 1e-6, 1e-13
"""Numbers of random vectors with standard normal entries by which a null space is found, if it has fewer dimensions; the accuracy
of the system of one such vector, which tells whether there is a null space, and that of the others."""

NULL = 1e-3
"""Length up to which an error in such a vector is that of its system."""


@dataclass(frozen=True, eq=False)
class CentredSystems:
    """H of a loss of one column, without the intercept: systems of one matrix and several right-hand sides."""

    data: Data
    weights: Any  # (n,) m_i
    mean: np.ndarray  # (d,) x̄; zero without an intercept
    mass: float  # Σ m_i; zero without an intercept
    diagonal: np.ndarray  # (d,) of the matrix of centred features; zero for constant ones

    @classmethod
    def of(cls, data: Data, weights: Any | None, *, intercept: bool) -> CentredSystems:
        """Return the systems with these weights, ones by default."""
        own = np.square(data.feature_norms) if weights is None else data.column_norms(weights)
        weights, mass, mean = data.ones() if weights is None else weights, 0.0, np.zeros(data.d)
        if intercept:
            mass = float(on_host(weights.sum()))
            mean = data.transposed_times(weights) / (mass or 1.0)
        centred = own - mass * np.square(mean)
        return cls(data, weights, mean, mass, np.where(centred > CONSTANT * own, centred, 0.0))

    def product(self, V: np.ndarray) -> np.ndarray:
        """Return the product of the matrix of centred features with each row of V."""
        weights = self.weights[:, None]
        if len(V) > 1:
            weights = np.zeros((self.data.n, len(V)), like=self.weights) + weights
        found, sums = self.data.weighted_products(V, -(V @ self.mean), weights)
        return found - np.multiply.outer(sums, self.mean)  # the sums are zero up to rounding

    def solved(self, G: np.ndarray, enough: np.ndarray, effort: Effort) -> np.ndarray:
        """Return θ for each row of G, of shape (S, d), or (S, d + 1) with an intercept."""
        if not self.mass:
            return self.centred(G, enough, effort)
        along, one = G[:, : self.data.d], G[:, self.data.d]
        W = self.centred(along - np.multiply.outer(one, self.mean), enough, effort)
        return np.column_stack([W, one / self.mass - W @ self.mean])

    def centred(self, right: np.ndarray, enough: np.ndarray, effort: Effort) -> np.ndarray:
        """Return the shortest w for each right-hand side of the system of centred features, of shape (S, d).

        ``enough`` has the absolute values of residuals that are small enough, in the same shape.
        """
        plain = (self.diagonal > 0.0).astype(float)
        if not self.is_scaled:
            return solve_together(self.product, right, plain, enough, effort)
        given, V = len(right), np.empty((0, self.data.d))
        if "basis" not in vars(self) and not effort.fraction:  # the system of a random vector shares the passes
            V, accuracy = self._probes(1, ROUGH)
            right, enough = np.vstack([right, self.product(V)]), np.vstack([enough, accuracy])
        found = solve_together(self.product, right, self._inverse, enough, effort)
        W = found[:given]
        if effort.is_over():
            return W
        basis = self.null_space(effort.deadline, V - found[given:])
        if effort.is_over():
            return W
        if basis is not None:
            return W - (W @ basis.T) @ basis
        return solve_together(self.product, self.product(W), plain, enough[:given], effort)

    @property
    def is_scaled(self) -> bool:
        """Whether the features are scaled: their scales differ, and they are not more than the rows, which makes H singular."""
        own = self.diagonal[self.diagonal > 0.0]
        return len(own) < self.data.n and own.max(initial=0.0) > APART * own.min(initial=math.inf)

    @property
    def _inverse(self) -> np.ndarray:
        return np.divide(1.0, self.diagonal, out=np.zeros(self.data.d), where=self.diagonal > 0.0)

    def null_space(self, deadline: float = math.inf, left: np.ndarray | None = None) -> np.ndarray | None:
        """Return an orthonormal basis of the w that give all rows the same margin; None if it has too many dimensions.

        Systems from zero recover random vectors from their products with the matrix but for their projection on its null space,
        in scaled coordinates. So many projections are independent unless they span that space. ``left`` is the first random
        vector without the solution of its system, if that is known. After the deadline the result is meaningless.
        """
        # The basis is kept as cached properties are, but only if it was found in time.
        known, roots = vars(self), np.sqrt(self.diagonal)
        if "basis" in known:
            return known["basis"]
        left = self._unrecovered(1, ROUGH, deadline) if left is None or not len(left) else left
        basis = self._equal_sums if np.linalg.norm(left * roots) <= NULL else None
        for count in PROBES if basis is None else ():
            left = self._unrecovered(count, EXACT, deadline)
            lengths = np.linalg.svd(left * roots, compute_uv=False)
            rank = int(np.count_nonzero(lengths > NULL))
            if rank < count:
                basis = np.linalg.svd(left, full_matrices=False)[2][:rank]
                break
        if time.perf_counter() <= deadline:
            known["basis"] = basis
        return basis

    def _unrecovered(self, count: int, accuracy: float, deadline: float) -> np.ndarray:
        """Return random vectors without the solutions of their systems."""
        (V, enough), effort = self._probes(count, accuracy), Effort(deadline=deadline)
        return V - solve_together(self.product, self.product(V), self._inverse, enough, effort)

    def _probes(self, count: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
        """Return random vectors, and the residuals that their systems may leave; a single one is orthogonal to equal sums."""
        roots = np.sqrt(self.diagonal)
        V = np.random.default_rng(0).standard_normal((count, self.data.d)) * np.sqrt(self._inverse)
        if count == 1 and len(known := self._equal_sums):
            V -= (V * self.diagonal) @ known.T / (np.square(known) @ self.diagonal) * known
        return V, np.tile(accuracy * roots, (count, 1))

    @cached_property
    def _equal_sums(self) -> np.ndarray:
        """The vector of equal coefficients, of norm one, as a row, if it gives all rows the same margin; else no rows.

        Rows of counts or shares often have equal sums, and so have those of dummy variables.
        """
        roots = np.sqrt(self.diagonal)
        ones = (roots > 0.0)[None] / np.sqrt(max(int(np.count_nonzero(roots)), 1))
        limits = EXACT * float(np.linalg.norm(ones * roots)) * roots
        return ones if (np.abs(self.product(ones)) <= limits).all() else ones[:0]
