"""Validation of X, y, weights and strengths by scikit-learn's rules, without copies where possible."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs  # type: ignore[import-untyped]
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _check_sample_weight,
    _check_y,
    assert_all_finite,
    check_consistent_length,
    check_non_negative,
)

from dualnewton import matrix
from dualnewton.errors import DualnewtonError
from dualnewton.estimators._devices import beside, library_of, rows_on_gpu
from dualnewton.interop.parts import Examples
from dualnewton.io.dataset import Dataset
from dualnewton.matrix import as_data
from dualnewton.matrix.linear import with_few_entries
from dualnewton.matrix.workers import LONG, sum_of_squares, threads
from dualnewton.planning.costs import most_nonzero
from dualnewton.row_arrays import on_host
from dualnewton.validation import without_repeats

try:
    from sklearn.utils.validation import validate_data

    FINITE = "ensure_all_finite"
except ImportError:  # up to scikit-learn 1.5 this was a method with another parameter name
    FINITE = "force_all_finite"

    def validate_data(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        """Check X and y, and store or compare the number and the names of features."""
        return estimator._validate_data(*args, **kwargs)


UNCHECKED = {FINITE: False}
"""The argument that turns off scikit-learn's check that X is finite; here it is combined with another check."""

CSR = (sp.csr_array, sp.csr_matrix)
"""The types of sparse rows that need no conversion."""

LARGEST = 1e150
"""The largest entry of X whose square, added up over a row, is still finite in float64."""


PLAIN, INTEGERS = (np.dtype("float64"), np.dtype("float32")), np.dtype("int64")
"""Types of arrays that need no conversion; integers as labels or targets only."""


def checked(model: Any, X: Any, y: Any, sample_weight: Any, **of_y: Any) -> Examples:
    """Check the arguments of ``fit``; CSR (of 32 or 64 bits) and C order are not copied, and float32 stays float32.

    Dense rows that are nearly all zeros become CSR, unless the model keeps dense rows.
    """
    shapes = (1, 2) if of_y.get("multi_output") else (1,)
    entries, dimensions = (X.data, (1,)) if type(X) in CSR and X.ndim == 2 and 0 not in X.shape else (X, (2,))
    squares = plain_squares(entries, dimensions, model.n_jobs) if model.device is None else None
    if squares is not None and is_plain(y, shapes) and X.shape[0] == len(y):
        model.n_features_in_ = X.shape[1]
        vars(model).pop("feature_names_in_", None)
        X = _own_rows(X) if entries is not X else X
    elif (rows := rows_on_gpu(X, model.device)) is not None:
        sample_weight, squares = on_host(sample_weight), None
        X, y, sample_weight = _checked_data(model, rows, on_host(y), sample_weight, **of_y)
    elif isinstance(X, Dataset | matrix.Data):
        squares = None
        X, y, sample_weight = _checked_data(model, *opened(X, y, sample_weight), **of_y)
    else:
        if of_y.get("y_numeric"):
            _require_numbers(model, y)
        X, y = validate_data(
            model,
            X,
            y,
            accept_sparse="csr",
            accept_large_sparse=True,
            dtype=[np.float64, np.float32],
            order="C",
            **UNCHECKED,
            **of_y,
        )
        X = _own_rows(X)
        squares = _require_finite_squares(model, X)
    if sample_weight is not None:
        sample_weight = weights_of(sample_weight, X)
    if type(X) is np.ndarray and not model._keeps_dense and (most := most_nonzero(len(X), X.shape[1], model._tuning)):
        X = with_few_entries(X, most)
    return Examples(X, y, sample_weight, squares=squares if X.dtype == np.float64 else None)


def _require_numbers(model: Any, y: Any) -> None:
    """Raise an error if a target of a regression is text that is not a number: scikit-learn's does not name y."""
    found = np.asarray(y)
    if found.dtype.kind not in "OU":
        return
    for each in found.flat:
        try:
            float(each) if isinstance(each, str) else None
        except ValueError:
            raise DualnewtonError(
                f"y must hold numbers for {type(model).__name__}, got the text {str(each)!r}: classes need a classifier"
            ) from None


def weights_of(sample_weight: Any, X: Any) -> np.ndarray:
    """Check weights of the rows of X. (scikit-learn's option against negative weights changed its name between versions.)"""
    found = _check_sample_weight(sample_weight, X, dtype=np.float64)
    check_non_negative(found, "`sample_weight`")
    return found


def opened(X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Return X, y and weights, by default those of the data set if X is one."""
    if not isinstance(X, Dataset):
        return X, y, sample_weight
    if X.offset is not None:
        raise DualnewtonError(
            f"{X.name} has offsets, which estimators do not take: use Problem(data.X, data.y, loss, offset=data.offset) and solve"
        )
    return X, X.y if y is None else y, X.sample_weight if sample_weight is None else sample_weight


def _checked_data(model: Any, X: Any, y: Any, sample_weight: Any, **of_y: Any) -> tuple[Any, Any, Any]:
    """Check the vectors of a data set, or of a ``matrix.Data`` object; its rows are checked when they are read."""
    rows, names = (X.X, X.feature_names) if isinstance(X, Dataset) else (X, None)
    if y is None:
        raise DualnewtonError(f"{type(model).__name__} needs labels or targets: the data set has none, and y is None")
    if not isinstance(rows, matrix.Data):  # a data set in memory
        more = {"dtype": [np.float64, np.float32], "order": "C", "accept_sparse": "csr", **of_y}
        found, y = validate_data(model, rows, y, **more)
        rows = _own_rows(found)
    else:
        y = _check_y(y, estimator=model, **of_y)
        check_consistent_length(rows, y)
        model.n_features_in_ = rows.d
    vars(model).pop("feature_names_in_", None)
    if names is not None:
        model.feature_names_in_ = np.array(names, dtype=object)
    return rows, y, sample_weight


def margins_of(model: Any, X: Any, accept_sparse: Any = "csr") -> np.ndarray:
    """Return X ``coef_``ᵀ + ``intercept_``."""
    if isinstance(X, Dataset | matrix.Data) or library_of(X) is not None:
        rows = as_data(X.X if isinstance(X, Dataset) else X)
        if rows.d != model.n_features_in_:
            raise DualnewtonError(
                f"X has {rows.d} features, but {type(model).__name__} is expecting {model.n_features_in_} features as input"
            )
        found = rows.times(np.asarray(on_host(model.coef_).T, dtype=np.float64))
        found = found + np.asarray(on_host(model.intercept_), like=found)
        return found if library_of(X) is None else beside(X, found)
    found = safe_sparse_dot(checked_rows(model, X, accept_sparse), on_host(model.coef_).T, dense_output=True)
    return found + on_host(model.intercept_)


def checked_rows(model: Any, X: Any, accept_sparse: Any = "csr") -> Any:
    """Check the rows for a prediction by a fitted model."""
    named = hasattr(
        model, "feature_names_in_"
    )  # scikit-learn warns if X is an array and the model was fitted on named columns
    if not named and plain_squares(X, (2,), model.n_jobs) is not None and X.shape[1] == model.n_features_in_:
        return X
    return validate_data(model, X, accept_sparse=accept_sparse, reset=False)


def _own_rows(X: Any) -> Any:
    """Return CSR rows without repeated entries, which all problems of a fit share; other arrays unchanged."""
    return without_repeats(sp.csr_array(X)) if sp.issparse(X) else X


def is_plain(y: Any, dimensions: tuple[int, ...]) -> bool:
    """Whether y is an array that scikit-learn's validation would return unchanged; labels and targets may be integers."""
    if type(y) is np.ndarray and y.dtype == INTEGERS and y.ndim in dimensions:
        return bool(y.size) and y.flags.c_contiguous and y.dtype.isnative
    return plain_squares(y, dimensions) is not None


def plain_squares(values: Any, dimensions: tuple[int, ...], n_jobs: int | None = None) -> float | None:
    """Return the sum of squares of an array of floats that scikit-learn's validation would return unchanged; else None.

    That validation takes longer than a small fit, and reads large arrays several times; the sum of squares reads them once.
    """
    if type(values) is not np.ndarray or values.ndim not in dimensions:
        return None
    if not values.size or not values.flags.c_contiguous or values.dtype not in PLAIN or not values.dtype.isnative:
        return None
    squares = _squares(values.reshape(-1), n_jobs)
    return squares if squares < LARGEST**2 else None


def _squares(entries: np.ndarray, n_jobs: int | None) -> float:
    """Return the sum of squares of a flat array, on ``n_jobs`` threads if it is long; overflow gives no warning."""
    if entries.size <= LONG:
        return sum_of_squares(entries)
    with threads(effective_n_jobs(n_jobs)):
        return sum_of_squares(entries)


def _require_finite_squares(model: Any, X: Any) -> float | None:
    """Return the sum of all squares, or None if it is very large.

    Reject entries that are not finite, with scikit-learn's message, and entries whose squares overflow: every method uses the
    norms of rows or of features. The sum needs one pass; the entries are examined only if it is large or NaN.
    """
    entries = X.data if sp.issparse(X) else X
    squares = _squares(entries.reshape(-1), model.n_jobs)
    if squares <= LARGEST:  # False for NaN
        return squares
    assert_all_finite(entries, estimator_name=type(model).__name__, input_name="X")
    largest = max(float(entries.max(initial=0.0)), -float(entries.min(initial=0.0)))
    if largest > LARGEST:
        raise DualnewtonError(
            f"X must have entries of magnitude at most {LARGEST:g}, whose squares are finite, got {largest:.3g}: "
            "scale the features"
        )
    return None


MOST_VALUES = 1 << 12
"""Largest range of integer labels for which they are counted instead of sorted."""

RESOLUTION = 1e-15
"""Value of every alpha of the grid if all coefficients are zero for every alpha > 0; scikit-learn uses the same value."""


def falling_grid(highest: float, eps: float, count: int) -> np.ndarray:
    """Return ``count`` values in geometric progression, from the highest strength down to ``eps`` times it."""
    return np.full(count, RESOLUTION) if highest <= RESOLUTION else np.geomspace(highest, highest * eps, count)


def strengths(name: str, values: Any, *, or_zero: bool, why: str = "") -> np.ndarray:
    """Check a list of penalty strengths and return it, in the given order, as floats.

    They must be finite and positive, or zero if ``or_zero`` allows it. The error names the parameter and the first value that is
    not allowed, with the reason ``why``, if given.
    """
    given = np.atleast_1d(np.asarray(values, dtype=object))
    if given.ndim != 1 or given.size == 0:
        raise DualnewtonError(f"{name} must be a number or a list of numbers, got {values!r}")
    for k, each in enumerate(given):
        if not isinstance(each, Real):
            raise TypeError(f"{name}[{k}] must be an instance of float, not {type(each).__name__}")
        value = float(each)
        if not (value > 0.0 or (value == 0.0 and or_zero)) or math.isinf(value):
            raise DualnewtonError(f"{name}[{k}] == {each}, must be {'>=' if or_zero else '>'} 0.0 and finite{why}")
    return given.astype(np.float64)


def in_unit_interval(values: np.ndarray) -> bool:
    """Whether all values are between 0 and 1."""
    return bool(np.all((values >= 0.0) & (values <= 1.0)))


def class_numbers(model: Any, data: Examples) -> tuple[np.ndarray, Examples]:
    """Return the classes in order, and the data with y replaced by the number of the class of each row."""
    if data.y.dtype.kind not in "iubU":  # integers, booleans and strings are labels
        check_classification_targets(data.y)
    classes, codes = distinct(data.y)
    if len(classes) < 2:
        raise DualnewtonError(
            f"y must hold at least two classes for {type(model).__name__}, got only one class: {classes.tolist()[0]!r}"
        )
    return classes, data._replace(y=codes.reshape(-1))


def distinct(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values of y in order, and the index of each entry; small integers are counted, not sorted."""
    low, high = (int(y.min()), int(y.max())) if y.dtype.kind in "iu" and y.size else (0, MOST_VALUES)
    if high - low >= MOST_VALUES or high > np.iinfo(np.intp).max:
        values, numbers = np.unique(y, return_inverse=True)
        return values, numbers.reshape(-1)
    shifted = y.ravel().astype(np.intp, copy=False)
    shifted = shifted - low if low else shifted
    present = np.bincount(shifted, minlength=high - low + 1) > 0
    values = np.flatnonzero(present)
    if values.size < present.size:
        shifted = (np.cumsum(present) - 1)[shifted]
    return (values + low).astype(y.dtype, copy=False), shifted
