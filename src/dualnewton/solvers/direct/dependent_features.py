"""Features that are nearly linear combinations of each other, as a block of the preconditioner of conjugate gradients.

A combination of features that is nearly zero on all rows, such as the difference of two copies of one feature, is a direction of
little curvature. Where the other features are well conditioned, conjugate gradients need about a dozen products for each group of
such directions, but they find them on the way: a direction p has then far less curvature than the mean one, and if few features
depend on each other, nearly all of its length in these. Their matrix is factorised and takes the place of a part of the diagonal:

    M = (XᵀCX + D(ridge))_FF for the features F that have been found, and the diagonal, or its mean, for all others.

F are the features with the largest entries of Σ_k p_k²/p_kᵀHp_k, the diagonal of H⁻¹ as far as the directions p_k span it: one
direction is a random combination of the flat ones, and some features may have small coefficients in it. For the same reason half
of the new features must suffice for nearly all of its length: if more features depend on each other, a block with some of them
would only make groups of flat directions of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.matrix.factors import factorised, solved

AT_ONCE, MOST = 48, 96
"""Features that are added at a time, and largest number of them: a solve with their factor takes a tenth of the time of a product
with a million entries."""

FLAT, LOWER = 0.125, 0.5
"""Curvature of a direction, relative to the mean one, below which its features are examined, and factor by which that of a later
direction must be smaller to be examined as well: directions of many features are examined rarely."""

MAJORITY, SEVERAL = 0.9, 3
"""Share of the squared length of a direction that must be in half of the new features and the known ones, and least number of
their flat directions: of fewer, conjugate gradients need no more products than from a new start with a preconditioner."""


@dataclass(frozen=True, eq=False)
class DependentFeatures:
    """Some features, and the mean of their products over the rows, weighted by the curvature of the losses."""

    features: np.ndarray  # indices
    products: np.ndarray  # mean of a_F a_Fᵀ; if there is an intercept, of the features less their means

    @classmethod
    def of(cls, features: np.ndarray, rows: np.ndarray, weights: np.ndarray, *, centred: bool) -> DependentFeatures:
        """Return these features of dense rows in float32; ``centred`` says that there is an intercept."""
        shares = (weights / (float(weights.sum()) or 1.0)).astype(np.float32)
        own = rows.take(features, axis=1)
        if centred:
            own -= shares @ own
        own *= np.sqrt(shares)[:, None]
        return cls(features, (own.T @ own).astype(np.float64))

    def preconditioner(self, inverse: Any, mass: float, ridge: Any) -> BlockDiagonal:
        """Return the preconditioner for weights of this sum, given the inverse of the diagonal, or of its mean, and the ridge."""
        own = ridge[self.features] if isinstance(ridge, np.ndarray) else np.full(self.features.size, ridge)
        return BlockDiagonal(inverse, self.features, factorised(mass * self.products, own))


@dataclass(frozen=True, eq=False)
class BlockDiagonal:
    """The inverse of a matrix that is diagonal except for the block of some features."""

    inverse: Any  # inverse of the diagonal, or one number
    features: np.ndarray  # indices
    factor: np.ndarray  # Cholesky factor of the block

    def has_several_flat(self) -> bool:
        """Whether several combinations of the features have far less curvature than the features.

        L_jj² is what the features before the j-th leave of its curvature, Σ_k L_jk².
        """
        left, squares = np.square(self.factor.diagonal()), np.square(np.tril(self.factor)).sum(axis=1)
        return int(np.count_nonzero(left < FLAT * squares)) >= SEVERAL

    def times(self, r: np.ndarray) -> np.ndarray:
        """Return the product with a vector."""
        q: np.ndarray = self.inverse * r
        q[self.features] = solved(self.factor, r[self.features])
        return q


class Directions:
    """What the directions of one run of conjugate gradients tell about features that depend on each other.

    Parameters
    ----------
    inverse : array or float
        Inverse of the diagonal of the preconditioner M, whose entries are about those of the diagonal of H.
    known : array
        Indices of the features that have been found in earlier systems.
    """

    def __init__(self, inverse: Any, known: np.ndarray) -> None:
        self.inverse, self.known = inverse, known
        self.length, self.flat = 0.0, FLAT
        self.earlier: list[np.ndarray] = []
        self.curvatures: list[float] = []

    def found_in(self, p: np.ndarray, square: float, share: float, curvature: float) -> np.ndarray | None:
        """Return the known features and new ones if this direction is flat and nearly all in few features; else None.

        Parameters
        ----------
        p : array
            The direction, which is kept.
        square : float
            rᵀM⁻¹r.
        share : float
            Coefficient of the last direction in this one: pᵀMp = rᵀM⁻¹r + share² p'ᵀMp', since r is orthogonal to p'.
        curvature : float
            pᵀHp.
        """
        self.earlier.append(p)
        self.curvatures.append(curvature)
        self.length = square + share * share * self.length
        if not 0.0 < curvature < self.flat * self.length:
            return None
        self.flat = LOWER * curvature / self.length
        most = min(AT_ONCE, MOST - self.known.size, p.size // 2 - self.known.size)
        if most <= 0:
            return None
        squares = np.square(self.earlier) / self.inverse
        diagonal = (1.0 / np.array(self.curvatures)) @ squares
        diagonal[self.known] = 0.0
        new = np.argsort(-diagonal)[:most]
        missing = MAJORITY * float(squares[-1].sum()) - float(squares[-1, self.known].sum())
        few = 1 + int(np.searchsorted(np.cumsum(squares[-1, new]), missing))
        return np.concatenate([self.known, new]) if SEVERAL - self.known.size < few <= most // 2 else None
