"""Leave-one-out errors of ridge regression, for all rows: from one decomposition, or from an inverse for each of few penalties.

If r are the residuals of the model of all rows, the error at row i of the model fitted without it is r_i/(1 − h_i), where the
leverage h_i is c_i times the i-th diagonal entry of the matrix that maps targets to predictions, intercept included (Rifkin
and Lippert 2007).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.estimators._direct import ByExamples
from dualnewton.estimators.model_selection._least_squares import ByFeatures, Moments, origin_of
from dualnewton.matrix import Data

PIECE = 1 << 18
"""Number of entries of the rows that are read at a time."""


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """The leave-one-out errors, and the models of all rows.

    Attributes
    ----------
    errors : array of shape (alphas, n, K)
        y_i minus the prediction of the model without row i.
    W, b : arrays of shape (alphas, K, d) and (alphas, K)
        The models of all rows.
    decomposed : bool
        Whether they come from one eigendecomposition, not from a factor for each alpha.
    """

    errors: np.ndarray
    W: np.ndarray
    b: np.ndarray
    decomposed: bool = True


def leave_one_out(data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, *, fit_intercept: bool) -> LeaveOneOut:
    """Compute the errors from the moments of the features or the products of the examples, whichever matrix is smaller.

    Parameters
    ----------
    data : Data
        The examples.
    Y : array of shape (n, K)
        Targets.
    c : array of shape (n,)
        Weights; a row of weight zero is ignored.
    alphas : array
        Positive.
    fit_intercept : bool
        Whether there is an unpenalised intercept.
    """
    if fit_intercept and np.count_nonzero(c) < 2:
        raise DualnewtonError(
            "leave-one-out cross-validation (cv=None) with an intercept needs at least 2 rows of positive weight, got "
            f"{np.count_nonzero(c)} (n_samples={data.n}): use Ridge with a value of alpha instead"
        )
    by = _by_features if data.n > data.d else _by_examples
    return by(data, Y, c, alphas, fit_intercept)


def _by_features(data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, fit_intercept: bool) -> LeaveOneOut:
    moments = Moments.of(data, Y, c, origin_of(data, c, shift=fit_intercept))
    found = ByFeatures(moments, fit_intercept=fit_intercept)
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


def _by_examples(data: Data, Y: np.ndarray, c: np.ndarray, alphas: np.ndarray, fit_intercept: bool) -> LeaveOneOut:
    inside, outside = np.flatnonzero(c > 0.0), np.flatnonzero(c == 0.0)
    products = data.row_gram(inside if outside.size else slice(None))  # a slice is not copied
    found = ByExamples(products, Y[inside], c[inside], fit_intercept=fit_intercept)
    inverses = found.inverses(alphas)
    W, b = found.models(data, inside, Y[inside], alphas, [each.duals for each in inverses])
    errors = np.empty((len(alphas), *Y.shape))
    for k, (duals, diagonal) in enumerate(inverses):
        # r_i = alpha v_i/s_i and 1 − h_i = alpha times the diagonal of the inverse: alpha cancels.
        errors[k, inside] = duals / (found.s * diagonal)[:, None]
        if outside.size:
            errors[k, outside] = Y[outside] - (data.times(W[k].T)[outside] + b[k])
    return LeaveOneOut(errors, W, b, decomposed=found.is_decomposed)
