"""Least squares with ½‖w‖², for all strengths of the penalty at once, by moments of the features.

    min_{W, b}  Σ_i c_i ‖W x_i + b − y_i‖² + alpha ‖W‖²,        y_i ∈ R^K

Moments of disjoint groups of rows add up, so that all folds together cost one pass over the data.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.matrix import Data
from dualnewton.objective.moments import Moments, origin_of
from dualnewton.planning.direct import factorises_each
from dualnewton.solvers.primal.curvature import Cholesky


def moments_of_folds(data: Data, Y: np.ndarray, c: np.ndarray, folds: Folds, *, shift: bool) -> list[Moments]:
    """Return the moments of each fold; rows that are in the same training sets are summed once."""
    origin, (kinds, group) = origin_of(data, c, shift=shift), folds.patterns
    if kinds.shape[1] > len(folds) + 1:  # with so many groups, summing each fold separately is cheaper
        return [Moments.of(data, Y, c * counts, origin) for counts in folds.counts]
    groups = [Moments.of(data, Y, c * (group == k), origin) for k in range(kinds.shape[1])]
    parts = [[groups[k].times(count) for k, count in enumerate(counts) if count > 0.0] for counts in kinds]
    return [reduce(add, own) for own in parts]


def models_of(moments: Moments, alphas: np.ndarray, *, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return W of shape (alphas, K, d) and b of shape (alphas, K) for some moments."""
    if not factorises_each(len(alphas)):
        return ByFeatures(moments, fit_intercept=fit_intercept).models(alphas)
    second, cross, mean, target_mean = moments.centred(fit_intercept=fit_intercept)
    W = np.stack([Cholesky(second.copy(), np.full(len(second), alpha)).solve(cross).T for alpha in alphas])
    return W, target_mean - W @ mean


class ByFeatures:
    """The solutions from the eigenvalues of the d×d moments: w = V (Λ + alpha)⁻¹ Vᵀ Σ c_i (x_i − m)(y_i − ȳ).

    Attributes
    ----------
    mean, target_mean : arrays
        The weighted means m and ȳ; zeros without an intercept.
    values, vectors : arrays
        Λ and V of Σ c_i (x_i − m)(x_i − m)ᵀ.
    """

    def __init__(self, moments: Moments, *, fit_intercept: bool) -> None:
        second, cross, self.mean, self.target_mean = moments.centred(fit_intercept=fit_intercept)
        values, self.vectors = np.linalg.eigh(second)
        self.values = np.maximum(values, 0.0)
        self.along = self.vectors.T @ cross

    def models(self, alphas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K)."""
        W = np.stack([(self.vectors @ (self.along / (self.values + alpha)[:, None])).T for alpha in alphas])
        return W, self.target_mean - W @ self.mean
