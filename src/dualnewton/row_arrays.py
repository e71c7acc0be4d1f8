"""Arrays with one entry per row of the data (labels, weights, margins, dual variables), wherever the rows are.

A row array is a NumPy array for rows in memory or on disk. Other kinds of data keep theirs on a GPU or on other machines. All of
them follow NumPy's dispatch (``__array_ufunc__``, ``__array_function__``), so that an expression of NumPy's functions works
on each of them and its result stays where the rows are. The rules for code that handles row arrays:

- Expressions of ufuncs, slices of columns, joining of columns, and reductions over rows are written as for NumPy.
- A new row array is made by ``like=`` (``np.zeros(n, like=y)``) or by :func:`ones`. So is a small array that enters an expression
  with row arrays: ``z + np.asarray(b, like=z)``.
- A reduction's result comes to the host by ``float(x)`` for a number and by :func:`on_host` for an array.
- Several sums over the same rows are one function (:func:`summed`), since on a cluster each reduction is an exchange of messages.
- Functions of many rows are evaluated in :func:`blocks`, or by :func:`mapped`: NumPy arrays are cut for the cache, others not.
- Selecting, drawing or sorting rows is an operation of ``matrix.Data``.

A module that defines another kind of row array declares it here (:func:`declare`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np

BLOCK = 1 << 13
"""Number of entries per block of NumPy arrays. The temporaries of an expression (64 KiB each) then stay in cache; the operating
system maps memory for larger ones at every call."""

SHORT = 1 << 10
"""Length of vectors up to which copying one takes less time than finding where it lies."""

WIDE_BLOCK = 1 << 17
"""Number of entries per block of rows of several columns (1 MiB): calls on shorter columns would take longer than arithmetic."""

SHIFTS = 16
"""Number of margin shifts at which a compiled function sums slopes in one call (``shifted_slopes_of``), and of labels that one
counts (``label_weights_of``)."""

SUMMED = 1 << 10
"""Rows that are added before their sum is added to others: a million rows are added 2000 at a time at most."""

RowArray = Any
"""A NumPy array, or an array of a kind that :func:`declare` was called for."""


class Algebra(Protocol):
    """Linear algebra on square matrices of a declared kind, by factors of its own choice."""

    def cholesky(self, H: Any, diagonal: np.ndarray) -> tuple[Any, bool]:
        """Return a factor of H + D(diagonal), an array, and whether that was not positive definite."""

    def solve(self, factor: Any, g: np.ndarray) -> np.ndarray:
        """Solve with a factor; g and the result are NumPy arrays."""


_TO_HOST: dict[type, Callable[[Any], np.ndarray]] = {}
_SUMMED: dict[type, Callable[..., tuple[Any, ...]]] = {}
_FUNCTIONS: dict[type, Callable[[str, Any], Callable[..., Any] | None]] = {}
_ADDITIONS: dict[type, Callable[[int], int]] = {}
ALGEBRA: dict[type, Algebra] = {}
"""Linear algebra of declared kinds of arrays, by their type."""


def declare(
    kind: type,
    to_host: Callable[[Any], np.ndarray],
    algebra: Algebra | None = None,
    summed: Callable[..., tuple[Any, ...]] | None = None,
    functions: Callable[[str, Any], Callable[..., Any] | None] | None = None,
    additions: Callable[[int], int] | None = None,
) -> None:
    """Declare a type of row arrays that are not in this process's memory; ``to_host`` returns such an array as a NumPy array.

    With an ``algebra``, data may also keep Gram matrices in arrays of this type. ``summed`` calls a function for each block of
    rows where the rows are (:func:`summed`); without it, functions are called with the arrays of this type. ``functions`` returns
    the functions of a loss over rows that are compiled for this type, by their names (:func:`compiled_function`), and
    ``additions`` the number of additions through which a row's term enters their sums over a number of rows.
    """
    _TO_HOST[kind] = to_host
    if algebra is not None:
        ALGEBRA[kind] = algebra
    if summed is not None:
        _SUMMED[kind] = summed
    if functions is not None:
        _FUNCTIONS[kind] = functions
    if additions is not None:
        _ADDITIONS[kind] = additions


def compiled_function(name: str, loss: Any, rows: RowArray) -> Callable[..., Any] | None:
    """Return a function of a loss over rows that is compiled for this kind of row arrays; None if there is none.

    Names and arguments are those of ``kernels/row_functions.py`` for rows in memory. It returns its sums over rows. Functions of
    vectors over features, which need no loss, are also found here.
    """
    there = _FUNCTIONS.get(type(rows))
    return None if there is None else there(name, loss)


def inner_products(*pairs: tuple[Any, Any]) -> tuple[float, ...]:
    """Return the inner products of up to three pairs of vectors of one length: one call where each would be several."""
    if (function := compiled_function("inner_products_of", None, pairs[0][0])) is not None:
        return function(*pairs)
    return tuple(float(u.dot(v)) for u, v in pairs)


def is_elsewhere(array: Any) -> bool:
    """Whether an array is of a declared kind, so that compiled functions cannot read it."""
    return type(array) in _TO_HOST


def on_host(array: Any) -> Any:
    """Return an array or a number as a NumPy array or number; one in memory is returned unchanged."""
    move = _TO_HOST.get(type(array))
    return array if move is None else move(array)


def ones(shape: int | tuple[int, ...], like: RowArray) -> RowArray:
    """Return ones of the kind of a row array. (``np.ones(…, like=)`` passes on an argument ``device``, which CuPy rejects.)"""
    return np.zeros(shape, like=like) + 1.0


def summed(function: Callable[..., tuple[Any, ...]], rows: RowArray, *others: Any) -> tuple[Any, ...]:
    """Return ``function(rows, *others)``, a tuple of sums over rows (numbers or arrays).

    If rows are on other machines, the function is called there with the NumPy arrays of each block, and its values are added:
    several sums then take one exchange of messages, and compiled functions are used. It must be a function of a module.
    """
    there = _SUMMED.get(type(rows))
    return function(rows, *others) if there is None else there(function, rows, *others)


def totals(rows: RowArray) -> Any:
    """Return the sum of each column, or of a vector, of many rows in memory by sums of blocks, for :func:`additions`."""
    count, rest = divmod(len(rows), SUMMED)
    if type(rows) is not np.ndarray or count < 2:
        return column_sums(rows)
    whole = rows[: len(rows) - rest].reshape(count, SUMMED, *rows.shape[1:])
    return whole.sum(axis=1).sum(axis=0) + rows[len(rows) - rest :].sum(axis=0)


def additions(rows: RowArray) -> int:
    """Return the largest number of additions, in any order, through which a row enters the sums of :func:`totals`.

    For a vector of a declared kind: of the sums of its compiled functions.
    """
    n = len(rows)
    if type(rows) is np.ndarray:
        return n if n < 2 * SUMMED else SUMMED + n // SUMMED + 1
    declared = _ADDITIONS.get(type(rows)) if rows.ndim == 1 else None
    return n if declared is None else declared(n)


def column_sums(rows: RowArray) -> Any:
    """Return the sum of each column, or of a vector.

    A product with ones takes an eighth of the time of NumPy's sum along axis 0, where rows are short; of CuPy's a thirtieth.
    Long contiguous columns are summed faster by NumPy.
    """
    if rows.ndim == 1 or type(rows) in _SUMMED:
        return rows.sum(axis=0)
    if type(rows) is np.ndarray and rows.flags.f_contiguous:
        return rows.T.dot(_few_ones(len(rows))) if len(rows) <= SHORT else np.add.reduce(rows)
    return (ones(len(rows), rows) if type(rows) in _TO_HOST else np.ones(len(rows))) @ rows


@lru_cache(maxsize=16)
def _few_ones(count: int) -> np.ndarray:
    return np.ones(count)


def product(u: RowArray, v: RowArray) -> Any:
    """Return Σ u v over all entries; NumPy would first copy arrays that are stored by columns, as compiled passes return them."""
    if type(u) is np.ndarray and type(v) is np.ndarray:  # methods: functions of NumPy take twice as long for few rows
        if u.ndim == 1:
            return u.dot(v)
        if u.flags.f_contiguous and v.flags.f_contiguous:
            return u.ravel("K").dot(v.ravel("K"))
    return np.vdot(u, v)


def by_columns(rows: RowArray) -> RowArray:
    """Return an array with several columns; a small NumPy one with contiguous columns, as passes return theirs.

    NumPy's operations take several times as long along short rows, and on arrays in different orders. Compiled passes copy the
    labels into the order of rows, which takes long where there are many.
    """
    return np.asfortranarray(rows) if type(rows) is np.ndarray and rows.size <= WIDE_BLOCK else rows


def stacked(vectors: Sequence[np.ndarray]) -> np.ndarray:
    """Return NumPy vectors of one length as the rows of an array; long ones that lie in one array at equal distances, as the
    targets of several outputs do, are not copied.
    """
    first = vectors[0]
    if first.size > SHORT and first.base is not None and first.flags.c_contiguous:
        places = [each.__array_interface__["data"][0] for each in vectors]
        step = places[-1] - places[0] if len(places) < 2 else places[1] - places[0]
        same = all(each.base is first.base and each.dtype == first.dtype for each in vectors)
        if same and step > 0 and all(b - a == step for a, b in pairwise(places)):
            return np.lib.stride_tricks.as_strided(first, (len(vectors), first.size), (step, first.itemsize))
    return np.array(vectors)


def side_by_side(vectors: Sequence[RowArray]) -> RowArray:
    """Return vectors as the columns of an array; NumPy ones stay contiguous."""
    return np.stack(vectors, axis=1) if is_elsewhere(vectors[0]) else stacked(vectors).T


def some_columns(array: RowArray, wanted: int | slice) -> RowArray:
    """Return a column as a vector, or consecutive ones, contiguous in one of the two orders (those of compiled passes are)."""
    own = array[:, wanted]
    if type(array) in _TO_HOST:
        return np.ascontiguousarray(own, like=array)
    return own if own.T.flags.c_contiguous else np.ascontiguousarray(own)


def at_labels(columns: RowArray, y: RowArray) -> tuple[RowArray, Any]:
    """Return an array with the entries of contiguous columns, of shape (K, n), and the indices of columns[y_i, i] in it.

    Rows on a cluster keep their axis. In memory the array is a flat view: one index per entry takes a third of the time of two.
    """
    positions = np.arange(len(y), like=y)
    if type(columns) in _TO_HOST:
        return columns, (y, positions)
    return columns.reshape(-1), y * len(y) + positions


def blocks(rows: RowArray, columns: int = 1, least: int = 1) -> Iterator[slice]:
    """Yield slices of rows that are evaluated together.

    NumPy arrays are cut into blocks of about ``BLOCK`` entries, or ``WIDE_BLOCK`` for several columns, and at least ``least``
    rows; others are not cut.
    """
    n = len(rows)
    step = n if type(rows) in _TO_HOST else max(least, (BLOCK if columns == 1 else WIDE_BLOCK) // columns)
    for start in range(0, n, max(step, 1)):
        yield slice(start, min(start + step, n))


def mapped(function: Callable[..., RowArray], *rows: RowArray, columns: int = 1) -> RowArray:
    """Return ``function(*rows)``, evaluated block by block; ``columns`` is the number of entries per row."""
    first = rows[0]
    if len(first) * columns <= (BLOCK if columns == 1 else WIDE_BLOCK) or type(first) in _TO_HOST:
        return function(*rows)
    found: Any = None
    for part in blocks(first, columns):
        block = function(*(each[part] for each in rows))
        if found is None:
            found = np.empty((len(first), *block.shape[1:]), block.dtype)
        found[part] = block
    return found
