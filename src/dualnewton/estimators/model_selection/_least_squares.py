"""Least squares with ½‖w‖², for all strengths of the penalty at once, by moments of the features.

    min_{W, b}  Σ_i c_i ‖W x_i + b − y_i‖² + alpha ‖W‖²,        y_i ∈ R^K

Moments of disjoint groups of rows add up, so that all folds together cost one pass over the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.matrix import Data


class Centred(NamedTuple):
    """Σ c_i (x_i − m)(x_i − m)ᵀ, Σ c_i (x_i − m)(y_i − ȳ)ᵀ, m and ȳ."""

    second: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    target_mean: np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted sums over rows of x̃ = (x − o, 1) and targets y, about an origin o that keeps their digits.

    Attributes
    ----------
    gram : array of shape (d + 1, d + 1)
        Σ c_i x̃_i x̃_iᵀ.
    cross : array of shape (d + 1, K)
        Σ c_i x̃_i y_iᵀ.
    origin : array of shape (d,)
        o.
    """

    gram: np.ndarray
    cross: np.ndarray
    origin: np.ndarray

    @classmethod
    def of(cls, data: Data, Y: np.ndarray, c: np.ndarray, origin: np.ndarray) -> Moments:
        """Sum over the rows that have a weight."""
        rows = np.flatnonzero(c > 0.0)
        return cls(*data.moments(c[rows], Y[rows], origin, rows), origin)

    @property
    def total(self) -> float:
        """Σ c_i."""
        return float(self.gram[-1, -1])

    def times(self, factor: float) -> Moments:
        """Return the moments of rows that count so many times."""
        return self if factor == 1.0 else Moments(factor * self.gram, factor * self.cross, self.origin)

    def centred(self, *, fit_intercept: bool) -> Centred:
        """Return them about the means, or about zero where there is no intercept."""
        second, cross, first = self.gram[:-1, :-1], self.cross[:-1], self.gram[:-1, -1]
        if not fit_intercept:
            return Centred(second, cross, np.zeros_like(first), np.zeros(cross.shape[1]))
        mean, target_mean = first / self.total, self.cross[-1] / self.total
        return Centred(
            second - np.outer(first, mean), cross - np.outer(first, target_mean), mean + self.origin, target_mean
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.gram + other.gram, self.cross + other.cross, self.origin)


def origin_of(data: Data, c: np.ndarray, *, shift: bool) -> np.ndarray:
    """Return the mean of dense rows, and zero for sparse ones, which it would expand, or where no intercept asks for it."""
    return data.transposed_times(c) / c.sum() if shift and not data.profile.sparse else np.zeros(data.d)


def moments_of_folds(data: Data, Y: np.ndarray, c: np.ndarray, folds: Folds, *, shift: bool) -> list[Moments]:
    """Return the moments of each fold; rows that all folds treat alike are summed once."""
    origin, (kinds, group) = origin_of(data, c, shift=shift), folds.patterns
    if kinds.shape[1] > len(folds) + 1:  # the folds overlap in so many ways that each is better summed on its own
        return [Moments.of(data, Y, c * counts, origin) for counts in folds.counts]
    groups = [Moments.of(data, Y, c * (group == k), origin) for k in range(kinds.shape[1])]
    parts = [[groups[k].times(count) for k, count in enumerate(counts) if count > 0.0] for counts in kinds]
    return [reduce(add, own) for own in parts]


class ByFeatures:
    """The solutions from the eigenvalues of the d×d moments: w = V (Λ + alpha)⁻¹ Vᵀ Σ c_i (x_i − m)(y_i − ȳ).

    Attributes
    ----------
    mean, target_mean : arrays
        m and ȳ, by weight; zeros without an intercept.
    values, vectors : arrays
        Λ and V of Σ c_i (x_i − m)(x_i − m)ᵀ.
    """

    def __init__(self, moments: Moments, *, fit_intercept: bool) -> None:
        from scipy.linalg import eigh

        second, cross, self.mean, self.target_mean = moments.centred(fit_intercept=fit_intercept)
        values, self.vectors = eigh(second)
        self.values = np.maximum(values, 0.0)
        self.along = self.vectors.T @ cross

    def models(self, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K)."""
        W = np.stack([(self.vectors @ (self.along / (self.values + alpha)[:, None])).T for alpha in alphas])
        return W, self.target_mean - W @ self.mean
