"""Least squares with ½‖w‖², for all strengths of the penalty at once: by moments of the features, or by products of the examples.

    min_{W, b}  Σ_i c_i ‖W x_i + b − y_i‖² + alpha ‖W‖²,        y_i ∈ R^K

Moments of disjoint groups of rows add up, so that all folds together cost one pass over the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import NamedTuple

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.matrix import linear

PIECE = 1 << 18
"""Numbers of the data that are looked at at a time."""


class Centred(NamedTuple):
    """Σ c_i (x_i − m)(x_i − m)ᵀ, Σ c_i (x_i − m)(y_i − ȳ)ᵀ, m and ȳ."""

    second: np.ndarray
    cross: np.ndarray
    mean: np.ndarray
    target_mean: np.ndarray


@dataclass(frozen=True, eq=False)
class Moments:
    """Weighted sums over rows of features x − o and targets y, about an origin o that keeps their digits.

    Attributes
    ----------
    total : float
        Σ c_i.
    first, targets : arrays of shape (d,) and (K,)
        Σ c_i (x_i − o) and Σ c_i y_i.
    second, cross : arrays of shape (d, d) and (d, K)
        Σ c_i (x_i − o)(x_i − o)ᵀ and Σ c_i (x_i − o) y_iᵀ.
    origin : array of shape (d,)
        o.
    """

    total: float
    first: np.ndarray
    targets: np.ndarray
    second: np.ndarray
    cross: np.ndarray
    origin: np.ndarray

    @classmethod
    def of(cls, X: linear.Matrix, Y: np.ndarray, c: np.ndarray, origin: np.ndarray) -> Moments:
        """Sum over the rows of X; where these are sparse, the origin must be zero."""
        d = X.shape[1]
        first, second, cross = np.zeros(d), np.zeros((d, d)), np.zeros((d, Y.shape[1]))
        for part in pieces(X):
            rows = linear.take_rows(X, part)
            rows = rows - origin if origin.any() else rows
            weighted = rows if np.all(c[part] == 1.0) else linear.scale_rows(rows, c[part])
            first += weighted.T @ np.ones(rows.shape[0])
            second += linear.to_dense(weighted.T @ rows)
            cross += weighted.T @ Y[part]
        return cls(float(c.sum()), first, c @ Y, second, cross, origin)

    def times(self, factor: float) -> Moments:
        """Return the moments of rows that count so many times."""
        if factor == 1.0:
            return self
        first, targets = factor * self.first, factor * self.targets
        return Moments(factor * self.total, first, targets, factor * self.second, factor * self.cross, self.origin)

    def centred(self, *, fit_intercept: bool) -> Centred:
        """Return them about the means, or about zero where there is no intercept."""
        if not fit_intercept:
            return Centred(self.second, self.cross, np.zeros_like(self.first), np.zeros_like(self.targets))
        target_mean = self.targets / self.total
        second = self.second - np.outer(self.first, self.first / self.total)
        cross = self.cross - np.outer(self.first, target_mean)
        return Centred(second, cross, self.first / self.total + self.origin, target_mean)

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.total + other.total,
            self.first + other.first,
            self.targets + other.targets,
            self.second + other.second,
            self.cross + other.cross,
            self.origin,
        )


def moments_of_folds(X: linear.Matrix, Y: np.ndarray, c: np.ndarray, folds: Folds, *, shift: bool) -> list[Moments]:
    """Return the moments of each fold; rows that all folds treat alike are summed once."""
    origin = np.zeros(X.shape[1])
    if shift and not linear.is_sparse(X):
        origin = linear.transposed_times(X, c) / c.sum()
    kinds, group = folds.patterns
    if kinds.shape[1] > len(folds) + 1:  # the folds overlap in so many ways that each is better summed on its own
        each = (Moments.of(*_chosen(X, Y, c * counts), origin) for counts in folds.counts)
        return list(each)
    groups = [Moments.of(*_chosen(X, Y, c * (group == k)), origin) for k in range(kinds.shape[1])]
    parts = [[groups[k].times(count) for k, count in enumerate(counts) if count > 0.0] for counts in kinds]
    return [reduce(add, own) for own in parts]


def _chosen(X: linear.Matrix, Y: np.ndarray, c: np.ndarray) -> tuple[linear.Matrix, np.ndarray, np.ndarray]:
    """Return the rows that have a weight."""
    rows = np.flatnonzero(c > 0.0)
    if rows.size == c.size:
        return X, Y, c
    together = rows.size and rows[-1] - rows[0] + 1 == rows.size
    own = slice(rows[0], rows[-1] + 1) if together else rows  # a view, where it can be had
    return X[own], Y[own], c[own]


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


class ByExamples:
    """The solutions from the eigenvalues of the n×n products: w = Xᵀ D(s) v, (PKP + alpha I) v = P D(s) y.

    Here s = √c, K = D(s) X Xᵀ D(s), and P takes out the component along s where there is an intercept.

    Parameters
    ----------
    K : array of shape (n, n)
        X Xᵀ.
    Y : array of shape (n, K)
        Targets.
    c : array of shape (n,)
        Weights, all positive.
    """

    def __init__(self, K: np.ndarray, Y: np.ndarray, c: np.ndarray, *, fit_intercept: bool) -> None:
        from scipy.linalg import eigh

        self.s = np.sqrt(c)
        self.unit = self.s / np.linalg.norm(self.s) if fit_intercept else np.zeros(len(c))
        values, vectors = eigh(self._projected(self._projected(K * np.outer(self.s, self.s)).T))
        self.values, self.vectors = np.maximum(values, 0.0), self._projected(vectors)
        self.along = self.vectors.T @ (self.s[:, None] * Y)

    def _projected(self, columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(self.unit, self.unit @ columns)

    def duals(self, alpha: float) -> np.ndarray:
        """Return v, of shape (n, K)."""
        return self.vectors @ (self.along / (self.values + alpha)[:, None])

    def models(self, X: linear.Matrix, Y: np.ndarray, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K), for the rows X of which the products were given."""
        V = np.stack([self.s[:, None] * self.duals(alpha) for alpha in alphas])  # (alphas, n, K)
        flat = V.transpose(1, 0, 2).reshape(len(self.s), -1)
        W = linear.transposed_times(X, flat).T.reshape(len(alphas), Y.shape[1], -1)
        if not self.unit.any():
            return W, np.zeros(W.shape[:2])
        c = np.square(self.s) / np.square(self.s).sum()
        return W, c @ Y - W @ linear.transposed_times(X, c)


def pieces(X: linear.Matrix) -> Iterator[slice]:
    """Cut the rows into pieces that stay in the cache, if they are dense."""
    n, d = X.shape
    step = n if linear.is_sparse(X) else max(64, PIECE // max(1, d))
    for low in range(0, n, max(1, step)):
        yield slice(low, min(low + step, n))
