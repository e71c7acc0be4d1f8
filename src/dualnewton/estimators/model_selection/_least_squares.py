"""Least squares with ½‖w‖², for all strengths of the penalty and all outputs at once, and its leave-one-out errors.

    min_{W, b}  Σ_i c_i ‖W x_i + b − y_i‖² + alpha ‖W‖²,        y_i ∈ R^K

The solutions follow from the d×d moments of the features or from the n×n products of the examples, whichever matrix is smaller.
Moments of disjoint groups of rows add up, so that all folds together cost one pass over the data.

If r are the residuals of the model of all rows, the error at row i of the model fitted without it is r_i/(1 − h_i), where the
leverage h_i is c_i times the i-th diagonal entry of the matrix that maps targets to predictions, intercept included (Rifkin
and Lippert 2007).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.estimators.model_selection._folds import Folds
from dualnewton.matrix import Data, linear
from dualnewton.objective.moments import Moments, origin_of
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import factorises_each, inverts_each
from dualnewton.planning.tuning import Tuning
from dualnewton.solvers.primal.curvature import Cholesky

PIECE = 1 << 18
"""Number of entries of the rows that are read at a time."""

CANCELLED = 1e-8
"""Fraction of a diagonal entry up to which a pivot of its factor, or what removing the intercept leaves of it, has lost too many
digits: then the eigenvalues, which are never negative, take the place of the inverse."""


LOST = 1e-4
"""Relative error of the smallest λ + alpha, by the rounding of the largest eigenvalue λ, above which leave-one-out errors come
from singular values: features of a small scale are lost in squares beside those of a large one."""

LARGEST = 1 << 24
"""Largest number of entries of rows whose singular values are computed."""


class FoldMoments:
    """The moments of the training rows of folds, and of the rows that they hold out.

    Rows that are in the same training sets are summed once.

    Attributes
    ----------
    training : list of Moments
        Of each fold.
    """

    def __init__(self, data: Data, Y: np.ndarray, c: np.ndarray, folds: Folds, tuning: Tuning, *, shift: bool) -> None:
        data = prepared(data, compiled=not is_small(tuning, data.n, data.d), tuning=tuning)
        origin, (kinds, group) = origin_of(data, c, shift=shift), folds.patterns
        self.folds, self.groups = folds, list[Moments]()
        self._held_out = dict[int, Moments | None]()  # those asked for
        if kinds.shape[1] > len(folds) + 1:  # with so many groups, summing each fold separately is cheaper
            self.training = [Moments.of(data, Y, c * counts, origin) for counts in folds.counts]
            return
        self.groups = [Moments.of(data, Y, c * (group == k), origin) for k in range(kinds.shape[1])]
        parts = [[self.groups[k].times(count) for k, count in enumerate(counts) if count > 0.0] for counts in kinds]
        self.training = [reduce(add, own) for own in parts]

    def held_out(self, fold: int) -> Moments | None:
        """Return the moments of the rows that a fold holds out, if these are all rows outside of its training set."""
        if fold not in self._held_out:
            self._held_out[fold] = self._outside(fold)
        return self._held_out[fold]

    def _outside(self, fold: int) -> Moments | None:
        counts, tests = self.folds.counts[fold], self.folds.tests[fold]
        outside = [own for own, count in zip(self.groups, self.folds.patterns[0][fold], strict=False) if count == 0.0]
        all_others = np.array_equal(np.bincount(tests, minlength=counts.size), counts == 0.0)
        return reduce(add, outside) if outside and all_others else None


def moments_of_folds(
    data: Data, Y: np.ndarray, c: np.ndarray, folds: Folds, tuning: Tuning, *, shift: bool
) -> list[Moments]:
    """Return the moments of the training rows of each fold."""
    return FoldMoments(data, Y, c, folds, tuning, shift=shift).training


def models_of(
    moments: Moments, alphas: np.ndarray, tuning: Tuning, *, fit_intercept: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return W of shape (alphas, K, d) and b of shape (alphas, K) for some moments."""
    if not factorises_each(len(alphas), tuning):
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


class Inverse(NamedTuple):
    """For one alpha: v, of shape (n, K), and the diagonal of P(PKP + alpha I)⁻¹P."""

    duals: np.ndarray
    diagonal: np.ndarray


class ByExamples:
    """The solutions from the n×n products X Xᵀ: w = Xᵀ D(s) v, (PKP + alpha I) v = P D(s) y.

    Here s = √c for weights c that are not all zero, K = D(s) X Xᵀ D(s), and P removes the component along s if there is an
    intercept. Y has the shape (n, outputs).
    """

    def __init__(self, products: np.ndarray, Y: np.ndarray, c: np.ndarray, *, fit_intercept: bool) -> None:
        self.s = np.sqrt(c)
        self.unit = self.s / np.linalg.norm(self.s) if fit_intercept else np.zeros(len(c))
        self.K = self._projected(self._projected(products * np.outer(self.s, self.s)).T)
        self.targets = self._projected(self.s[:, None] * Y)  # exactly zero if the targets are constant

    @cached_property
    def spectrum(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of PKP and its eigenvectors."""
        from scipy.linalg import eigh

        values, vectors = eigh(self.K, driver="evd")  # a third less time than the default driver
        return np.maximum(values, 0.0), self._projected(vectors)

    @property
    def is_decomposed(self) -> bool:
        """Whether the eigenvalues are known."""
        return "spectrum" in vars(self)

    def _projected(self, columns: np.ndarray) -> np.ndarray:
        return columns - np.outer(self.unit, self.unit @ columns)

    def duals(self, alpha: Any) -> np.ndarray:
        """Return v, of shape (n, K), for one alpha or one for each of the K targets."""
        values, vectors = self.spectrum
        return np.asarray(vectors @ ((vectors.T @ self.targets) / (values[:, None] + alpha)))

    def _each_dual(self, alphas: np.ndarray, tuning: Tuning) -> list[np.ndarray]:
        """Return v for each alpha: from the eigenvalues if they are known, or from a factor for each alpha if these are few."""
        if self.is_decomposed or not factorises_each(len(alphas), tuning):
            return [self.duals(alpha) for alpha in alphas]
        factors = (Cholesky(self.K.copy(), np.full(len(self.K), alpha)) for alpha in alphas)
        return [self._projected(factor.solve(self.targets)) for factor in factors]

    def inverses(self, alphas: np.ndarray, tuning: Tuning) -> list[Inverse]:
        """Return what leave-one-out errors need, for each alpha: from the inverse of a matrix for each if these are few."""
        if inverts_each(len(alphas), tuning):
            found = [inverse for inverse in map(self._inverse, alphas) if inverse is not None]
            if len(found) == len(alphas):
                return found
        values, vectors = self.spectrum
        squares = np.square(vectors)
        return [Inverse(self.duals(alpha), squares @ (1.0 / (values + alpha))) for alpha in alphas]

    def _inverse(self, alpha: float) -> Inverse | None:
        """Invert PKP + alpha I; None if it is nearly singular, or if a row has nearly all weight."""
        from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

        # Along the unit vector PKP is zero. An eigenvalue like the others is put there, so that removing it cancels few digits.
        level = float(np.trace(self.K)) / len(self.K)
        M = self.K + np.outer(level * self.unit, self.unit)
        M.reshape(-1)[:: len(M) + 1] += alpha
        sizes = M.diagonal().copy()
        factor, failed = dpotrf(M.T, lower=1, overwrite_a=1)  # M is symmetric, so that its transpose is M for LAPACK
        if failed or np.any(np.square(factor.diagonal()) <= CANCELLED * sizes):
            return None
        duals = self._projected(dpotrs(factor, self.targets, lower=1)[0])
        whole = dpotri(factor, lower=1, overwrite_c=1)[0].diagonal()
        diagonal = whole - np.square(self.unit) / (level + alpha)
        return None if np.any(diagonal <= CANCELLED * whole) else Inverse(duals, diagonal)

    def models(
        self,
        data: Data,
        rows: np.ndarray,
        Y: np.ndarray,
        alphas: np.ndarray,
        tuning: Tuning,
        duals: Sequence[np.ndarray] | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return W of shape (alphas, K, d) and b of shape (alphas, K); ``rows`` are those of the products, v may be known."""
        c, (m, K) = np.square(self.s) / np.square(self.s).sum(), Y.shape
        V = np.zeros((data.n, len(alphas) * K + 1))
        duals = self._each_dual(alphas, tuning) if duals is None else duals
        V[rows, :-1] = np.stack([self.s[:, None] * v for v in duals], axis=1).reshape(m, -1)
        V[rows, -1] = c
        sums = data.transposed_times(V)
        W = np.ascontiguousarray(sums[:, :-1].T).reshape(len(alphas), K, -1)
        return W, c @ Y - W @ sums[:, -1] if self.unit.any() else np.zeros(W.shape[:2])


# Leave-one-out errors ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The leave-one-out errors, and the models of all rows."""

    errors: np.ndarray  # (alphas, n, K) y_i minus the prediction of the model without row i
    # (alphas, K, d) The models of all rows.
    W: np.ndarray
    b: np.ndarray
    decomposed: bool = True  # whether they come from one decomposition, not from a factor for each alpha
    singular: bool = False  # whether that is of the rows, not of their products


def leave_one_out(
    data: Data,  # examples
    Y: np.ndarray,  # (n, K) targets
    c: np.ndarray,  # (n,) weights; a row of weight zero is ignored
    alphas: np.ndarray,  # positive
    tuning: Tuning,  # tuned numbers of the planner
    *,
    fit_intercept: bool,  # whether there is an unpenalised intercept
) -> LeaveOneOut:
    """Compute the errors from the moments of the features or the products of the examples, whichever matrix is smaller."""
    if fit_intercept and np.count_nonzero(c) < 2:
        raise DualnewtonError(
            "leave-one-out cross-validation (cv=None) with an intercept needs at least 2 rows of positive weight, got "
            f"{np.count_nonzero(c)} (n_samples={data.n}): use Ridge with a value of alpha instead"
        )
    if data.n > data.d:
        return _by_features(data, Y, c, alphas, fit_intercept)
    return _by_examples(data, Y, c, alphas, tuning, fit_intercept)


def _are_lost(data: Data, values: np.ndarray, alphas: np.ndarray) -> bool:
    """Whether the eigenvalues have lost too many digits, and singular values can be computed."""
    able = data.capabilities.local and data.capabilities.whole and data.n * data.d <= LARGEST
    error, smallest = np.finfo(float).eps * values.max(initial=0.0), values.min(initial=np.inf) + alphas.min()
    return bool(able and LOST * smallest < error < np.inf)


def _by_rows(data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, fit_intercept: bool) -> LeaveOneOut:
    """Compute them from the singular values of D(√c)(X − 1mᵀ) = U D(σ) Vᵀ.

    With e = alpha/(σ² + alpha), residuals are r = (I − UUᵀ)t + U D(e)Uᵀt and 1 − h_i is the same sum for t = e_i.
    """
    rows, inside = np.asarray(linear.to_dense(data.rows(slice(None))), dtype=np.float64), c > 0.0
    share, s = c / c.sum() if fit_intercept else np.zeros(len(c)), np.sqrt(c[inside])[:, None]
    mean, target_mean = share @ rows, share @ Y
    T, dimension = s * (Y[inside] - target_mean), len(s) - fit_intercept
    U, sigma, V = np.linalg.svd(s * (rows[inside] - mean), full_matrices=False)
    U, sigma, V = U[:, :dimension], sigma[:dimension], V[:dimension].T
    squares, along = np.square(U), U.T @ T
    # Nothing is left outside of the span of U if it has all dimensions; otherwise rounding would be.
    rest = T - U @ along if len(sigma) < dimension else np.zeros(T.shape)
    free = np.maximum(1.0 - share[inside] - squares.sum(axis=1), 0.0) * (len(sigma) < dimension)
    errors, W = np.empty((len(alphas), *Y.shape)), np.empty((len(alphas), Y.shape[1], data.d))
    for k, alpha in enumerate(alphas):
        left = alpha / (np.square(sigma) + alpha)
        W[k] = ((V * (sigma / (np.square(sigma) + alpha))) @ along).T
        errors[k] = Y - target_mean - (rows - mean) @ W[k].T
        errors[k, inside] = (rest + U @ (left[:, None] * along)) / (s * (free + squares @ left)[:, None])
    return LeaveOneOut(errors, W, target_mean - W @ mean, singular=True)


def _by_features(data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, fit_intercept: bool) -> LeaveOneOut:
    moments = Moments.of(data, Y, c, origin_of(data, c, shift=fit_intercept))
    found = ByFeatures(moments, fit_intercept=fit_intercept)
    if _are_lost(data, found.values, alphas):
        return _by_rows(data, Y, c, alphas, fit_intercept)
    inverse = 1.0 / (found.values[:, None] + alphas)  # (d, alphas)
    share = c / c.sum() if fit_intercept else np.zeros(len(c))
    factors = (found.along[:, None] * inverse[:, :, None]).reshape(data.d, -1)  # (d, alphas · K)
    errors, step = np.empty((len(alphas), *Y.shape)), max(64, PIECE // max(factors.shape))
    for low in range(0, data.n, step):
        part = slice(low, min(low + step, data.n))
        # In the basis of the eigenvectors, predictions and leverages are sums with one factor per eigenvector.
        A = data.rows(part) @ found.vectors - found.mean @ found.vectors
        missing = 1.0 - share[part, None] - c[part, None] * (np.square(A) @ inverse)
        fitted = (A @ factors).reshape(len(A), len(alphas), -1)
        residuals = (Y[part] - found.target_mean)[:, None] - fitted
        errors[:, part] = (residuals / missing[:, :, None]).swapaxes(0, 1)
    return LeaveOneOut(errors, *found.models(alphas))


def _by_examples(
    data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, tuning: Tuning, fit_intercept: bool
) -> LeaveOneOut:
    inside, outside = np.flatnonzero(c > 0.0), np.flatnonzero(c == 0.0)
    products = data.row_gram(inside if outside.size else slice(None))  # a slice is not copied
    found = ByExamples(products, Y[inside], c[inside], fit_intercept=fit_intercept)
    inverses = found.inverses(alphas, tuning)
    if found.is_decomposed and _are_lost(data, found.spectrum[0], alphas):
        return _by_rows(data, Y, c, alphas, fit_intercept)
    W, b = found.models(data, inside, Y[inside], alphas, tuning, [each.duals for each in inverses])
    errors = np.empty((len(alphas), *Y.shape))
    for k, (duals, diagonal) in enumerate(inverses):
        # r_i = alpha v_i/s_i and 1 − h_i = alpha times the diagonal of the inverse: alpha cancels.
        errors[k, inside] = duals / (found.s * diagonal)[:, None]
        if outside.size:
            errors[k, outside] = Y[outside] - (data.times(W[k].T)[outside] + b[k])
    return LeaveOneOut(errors, W, b, decomposed=found.is_decomposed)
