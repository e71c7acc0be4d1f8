"""Validation of arguments: each error names the argument, the value found and what is allowed.

scikit-learn's validation is not used here, because importing it takes about a second.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualnewton.errors import DualnewtonError
from dualnewton.row_arrays import is_elsewhere

Array = Any
"""A float or an array of floats; the formulas of losses and regularisers accept both."""

SHORT = 1 << 13
"""Length of vectors up to which BLAS multiplies them in one thread, however many it has."""


def positive(name: str, value: float, *, or_zero: bool = False) -> float:
    """Return ``value`` as a float if it is finite and positive (or zero, where allowed)."""
    if type(value) is float and 0.0 < value < math.inf:  # calls dominate the time of small fits
        return value
    try:
        number = finite(name, value)
    except DualnewtonError:
        number = -1.0
    if number < 0.0 or (number == 0.0 and not or_zero):
        raise DualnewtonError(f"{name} must be a finite number {'>= 0' if or_zero else '> 0'}, got {value!r}")
    return number


def between(name: str, value: float, low: float, high: float) -> float:
    """Return ``value`` as a float if it lies strictly between the two ends."""
    try:
        number = finite(name, value)
    except DualnewtonError:
        number = low
    if not low < number < high:
        raise DualnewtonError(f"{name} must be a number > {low:g} and < {high:g}, got {value!r}")
    return number


def finite_or_none(value: float | None) -> float | None:
    """Return a finite number, or None, since JSON has no infinities and NaN."""
    return float(value) if value is not None and math.isfinite(value) else None


def finite(name: str, value: float) -> float:
    """Return ``value`` as a float if it is a finite number."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise DualnewtonError(f"{name} must be a finite number, got {value!r}")
    return number


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int if it is a whole number in [low, high]."""
    allowed = f"an integer >= {low}" if high is None else f"an integer in [{low}, {high}]"
    try:
        number = operator.index(value)
    except TypeError:
        raise DualnewtonError(f"{name} must be {allowed}, got {value!r}") from None
    if isinstance(value, bool) or number < low or (high is not None and number > high):
        raise DualnewtonError(f"{name} must be {allowed}, got {value!r}")
    return number


def vector(name: str, value: Any, length: int, *, low: float = -math.inf) -> np.ndarray:
    """Return ``value`` as a read-only float64 vector of the given length, finite and at least ``low`` throughout."""
    array = _floats(name, value, np.float64)
    if array.shape != (length,):
        raise DualnewtonError(f"{name} must have shape ({length},), got {array.shape}")
    if not (length <= SHORT and type(array) is np.ndarray and math.isfinite(np.vdot(array, array))):
        _all_finite(name, array)
    if low > -math.inf and length and array.min() < low:
        where = int(np.argmin(array))
        raise DualnewtonError(f"{name} must be >= {low:g} everywhere, got {float(array[where])!r} at index {where}")
    return frozen(array)


def probabilities(name: str, value: Any, length: int) -> np.ndarray:
    """Return ``value`` as a vector of ``length`` nonnegative probabilities that sum to one."""
    array = vector(name, value, length, low=0.0)
    total = math.fsum(array)
    if abs(total - 1.0) > 1e-9:
        raise DualnewtonError(f"{name} must sum to 1, got a sum of {total!r}")
    return frozen(array / total)


def data_matrix(
    name: str,
    value: Any,
    squares: Callable[[Any], float] | None = None,
    in_order: Callable[[sp.csr_array], bool] | None = None,
) -> np.ndarray | sp.csr_array:
    """Return ``value`` as a nonempty finite float matrix, CSR if sparse and otherwise in C order, copied only if necessary.

    ``squares`` returns the sum of squares of such a matrix, which is finite only if all entries are, and ``in_order`` whether the
    column indices of each row of a CSR matrix increase; by default one thread computes both.
    """
    if type(value) is not np.ndarray and sp.issparse(value):
        matrix = sp.csr_array(value)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = sp.csr_array((_floats(name, matrix.data), matrix.indices, matrix.indptr), shape=matrix.shape)
        if in_order is not None:
            matrix.has_canonical_format = in_order(matrix)
        matrix = without_repeats(matrix)
        entries = matrix.data
    else:
        matrix = _floats(name, value)
        matrix = entries = np.ascontiguousarray(matrix, like=matrix)
    if matrix.ndim != 2:
        raise DualnewtonError(f"{name} must be a matrix with one row per example, got {matrix.ndim} dimension(s)")
    if 0 in matrix.shape:
        raise DualnewtonError(f"{name} must have at least one row and one column, got shape {matrix.shape}")
    _all_finite(name, entries, None if squares is None else squares(matrix))
    return matrix


def without_repeats(matrix: sp.csr_array) -> sp.csr_array:
    """Return the CSR matrix itself if it has no duplicate entries, else a copy in which duplicates are summed."""
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def frozen(array: np.ndarray) -> np.ndarray:
    """Return a read-only view of ``array``, so that no code of the library can modify its inputs.

    Row arrays on other devices cannot be protected: they are returned unchanged.
    """
    if type(array) is not np.ndarray and is_elsewhere(array):
        return array
    view = array.view()
    view.setflags(write=False)
    return view


def _floats(name: str, value: Any, dtype: type | None = None) -> np.ndarray:
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value
    try:
        array = as_array(value)
        if array.dtype.kind not in "fiub":  # NumPy would convert some text, objects and dates, and drop imaginary parts
            raise TypeError
        if dtype is None:
            dtype = array.dtype.type if array.dtype in (np.float32, np.float64) else np.float64
        return array.astype(dtype, copy=False)
    except (TypeError, ValueError):
        raise DualnewtonError(f"{name} must hold real numbers, got {_described(value)}") from None


def as_array(value: Any) -> Any:
    """Return a row array unchanged, and anything else as a NumPy array."""
    return value if is_elsewhere(value) else np.asarray(value)


def _described(value: Any) -> str:
    kind, dtype = type(value).__name__, getattr(value, "dtype", None)
    if isinstance(value, str):
        return f"the text {value!r}"
    return f"{kind} with entries that are not" if dtype is None else f"{kind} of {dtype}"


def sum_of_squares(array: np.ndarray) -> float:
    """Return the sum of squares of an array; unlike sum(), neither function warns of an overflow.

    A product of long vectors by BLAS would wake its threads, which then wait for more work in a loop: for a tenth of a second
    they would take the cores from the threads of a fit.
    """
    if array.ndim == 1 and not is_elsewhere(array):
        return float(np.einsum("i,i->", array, array))
    return float(np.vdot(array, array))


def _all_finite(name: str, array: np.ndarray, squares: float | None = None) -> None:
    # A finite sum of squares proves that every entry is finite, in one pass and without a mask of the size of the data.
    total = squares
    if total is None:  # calls dominate the time of small fits
        total = float(np.vdot(array, array)) if array.size <= SHORT else sum_of_squares(array)
    if not math.isfinite(total) and not (finite := np.isfinite(array)).all():
        at = tuple(int(i) for i in np.argwhere(~finite)[0])
        where = at[0] if len(at) == 1 else at
        raise DualnewtonError(f"{name} must be finite, got {float(array[at])!r} at index {where}")
