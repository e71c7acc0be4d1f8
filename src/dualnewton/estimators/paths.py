"""Paths of Lasso and elastic net with scikit-learn's signatures and return values, and a certificate for each model."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from dualnewton import losses
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._validation import falling_grid, is_plain, plain_squares, strengths, weights_of
from dualnewton.interop.specification import outputs
from dualnewton.matrix import MemoryData, as_data
from dualnewton.matrix.linear import is_sparse, with_few_entries, without_empty_columns
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import most_nonzero
from dualnewton.regularizers import mixed
from dualnewton.run.path import solve_path


def lasso_path(X: Any, y: Any, **options: Any) -> tuple[Any, ...]:
    """Compute the Lasso for decreasing alphas: :func:`enet_path` with ``l1_ratio=1``, with the same other parameters.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = dn.lasso_path(X, y, alphas=5)
    >>> alphas.shape, coefs.shape, gaps.shape
    ((5,), (10, 5), (5,))
    """
    if "l1_ratio" in options:
        raise DualnewtonError(f"l1_ratio is 1 in lasso_path, got {options['l1_ratio']!r}: use enet_path")
    return enet_path(X, y, l1_ratio=1.0, **options)


def enet_path(
    X: Any,
    y: Any,
    *,
    l1_ratio: float = 0.5,
    eps: float = 1e-3,
    alphas: Any = 100,
    precompute: Any = "auto",  # noqa: ARG001
    Xy: Any = None,  # noqa: ARG001
    copy_X: bool = True,  # noqa: ARG001
    coef_init: Any = None,  # noqa: ARG001
    verbose: Any = False,  # noqa: ARG001
    return_n_iter: bool = False,
    positive: bool = False,
    check_input: bool = True,  # noqa: ARG001
    tol: float = 1e-4,
    max_iter: int = 1000,
    sample_weight: Any = None,
    return_certificates: bool = False,
) -> tuple[Any, ...]:
    """Compute the elastic net for decreasing alphas, without an intercept, with a certificate for each model.

        min_w  Σ c_i (x_iᵀw − y_i)²/(2 Σ c_i) + alpha (r‖w‖₁ + ½(1 − r)‖w‖²),    r = l1_ratio,  w ≥ 0 if ``positive``

    Parameters
    ----------
    X : array or sparse array of shape (n, d)
        The examples.
    y : array of shape (n,) or (n, outputs)
        Targets. Several outputs are fitted independently. (In scikit-learn they share the selected features.)
    l1_ratio : float
        r ∈ (0, 1].
    eps, alphas : float, int or sequence of floats
        The values, or their number; then the grid goes from the least alpha at which all coefficients are zero to ``eps``
        times it.
    precompute, Xy, copy_X, coef_init, verbose, check_input
        Accepted and ignored.
    return_n_iter : bool
        Whether to return the number of passes over the data of each model.
    positive : bool
        Whether the coefficients must not be negative.
    tol : float
        The certified relative gap (P − D)/|P| at which a fit has converged.
    max_iter : int
        Limit on the passes over the data for each model.
    sample_weight : array of shape (n,), optional
        c, nonnegative.
    return_certificates : bool
        Whether to return the certificates.

    Returns
    -------
    alphas : array of shape (m,)
        The values, from the largest to the smallest.
    coefs : array of shape (d, m) or (outputs, d, m)
        The coefficients.
    dual_gaps : array of shape (m,)
        P − D of each model; with several outputs, their sum.
    n_iters : list of int
        Passes over the data, if ``return_n_iter``.
    certificates : list of Certificate, or of lists with one for each output
        If ``return_certificates``.

    Examples
    --------
    >>> import dualnewton as dn
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> alphas, coefs, gaps = dn.enet_path(X, y, l1_ratio=0.9, alphas=5)
    >>> alphas.shape, coefs.shape, gaps.shape
    ((5,), (10, 5), (5,))
    """
    from sklearn.utils.validation import check_X_y

    if not (isinstance(l1_ratio, int | float) and 0.0 < l1_ratio <= 1.0):
        raise DualnewtonError(f"l1_ratio must be a number in (0, 1], got {l1_ratio!r}")
    squares = plain_squares(X, (2,))
    if squares is None or not is_plain(y, (1, 2)) or len(X) != len(y):
        X, y = check_X_y(
            X, y, accept_sparse="csr", dtype=[np.float64, np.float32], order="C", multi_output=True, y_numeric=True
        )
    c = None
    if sample_weight is not None:
        c = weights_of(sample_weight, X)
        c = c / c.mean()
    X, d, features = with_few_entries(X, most_nonzero(*X.shape)), X.shape[1], np.arange(X.shape[1])
    if is_sparse(X) and X.nnz:  # the coefficients of features without entries are zero
        X, features = without_empty_columns(X)
    data = as_data(X) if squares is None or X.dtype != np.float64 else MemoryData(X, squares=squares)
    targets = outputs(np.asarray(y, dtype=np.float64), 0)
    values = _grid(data, targets, c, l1_ratio, eps, alphas, positive=positive)
    lam, g = mixed(1.0, l1_ratio, positive=positive)
    each = []
    for target in targets:
        problem = Problem(data, target, losses.Squared(), regularizer=g, lam=lam, sample_weight=c)
        each.append(solve_path(problem, lam * values, tol=float(tol), max_epochs=max_iter, duals=False))
    coefs = np.zeros((len(each), d, len(values)), X.dtype)
    coefs[:, features] = [np.stack([result.w for result in own], axis=1) for own in each]
    gaps = np.sum([[result.certificate.gap for result in own] for own in each], axis=0)
    found: tuple[Any, ...] = (values, coefs if np.ndim(y) == 2 else coefs[0], gaps)
    if return_n_iter:
        found += ([int(np.ceil(max(r.n_epochs for r in results))) for results in zip(*each, strict=True)],)
    if return_certificates:
        proofs = [[result.certificate for result in results] for results in zip(*each, strict=True)]
        found += (proofs if np.ndim(y) == 2 else [own[0] for own in proofs],)
    return found


def _grid(
    data: Any, targets: list[np.ndarray], c: np.ndarray | None, ratio: float, eps: float, alphas: Any, *, positive: bool
) -> np.ndarray:
    """Return the values of alpha, from the largest to the smallest."""
    if not isinstance(alphas, Integral):
        return np.sort(strengths("alphas", alphas, or_zero=False))[::-1]
    if not eps > 0.0:
        raise DualnewtonError(f"eps must be a number > 0, got {eps!r}")
    if alphas < 1:
        raise DualnewtonError(f"alphas must be a number >= 1 or a list of values, got {alphas!r}")
    slopes = np.stack([data.transposed_times(y if c is None else c * y) for y in targets])
    highest = max(float((slopes if positive else np.abs(slopes)).max()), 0.0) / (data.n * ratio)
    return falling_grid(highest, eps, int(alphas))
