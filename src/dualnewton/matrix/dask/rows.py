"""Row arrays whose entries lie in blocks on the workers of a cluster, beside the rows of X that they belong to.

A :class:`RowBlocks` is an expression: functions of NumPy that are called with it are recorded, and evaluated, block by block and
all together, by the task that needs the result. A reduction over rows runs at once and returns a NumPy array or number.
Assignments (``x[mask] = 0``, ``x *= 2``, ``out=x``) replace the expression; stored blocks never change.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from dualnewton.matrix.dask import tasks
from dualnewton.matrix.dask.programs import Call, Constant, Expression, Positions, assigned, reshaped
from dualnewton.row_arrays import declare

if TYPE_CHECKING:
    from dualnewton.matrix.dask.layout import Layout

DEEPEST = 24
"""Calls that an expression may nest before its value is stored on the workers: without a limit, margins that are updated at each
step would refer to all those before."""

EVERYTHING = slice(None)

JOINED = {np.add, np.maximum, np.minimum, np.logical_and, np.logical_or}
"""Ufuncs whose reductions over the blocks are joined by themselves."""

REDUCTIONS: dict[Any, np.ufunc] = {
    np.sum: np.add,
    np.max: np.maximum,
    np.min: np.minimum,
    np.all: np.logical_and,
    np.any: np.logical_or,
    np.count_nonzero: np.add,
}
"""NumPy's reductions, and how the results of blocks are joined."""

NEUTRAL = {np.max: -np.inf, np.min: np.inf, np.maximum.reduce: -np.inf, np.minimum.reduce: np.inf}
"""Values of reductions over no rows, for entries of floating point."""

ROWWISE = {
    np.argmax, np.array, np.asarray, np.clip, np.column_stack, np.copy, np.einsum, np.isclose,
    np.nan_to_num, np.outer, np.round, np.squeeze, np.stack, np.take, np.transpose, np.vstack, np.hstack, np.where,
    np.expand_dims, np.dot, np.searchsorted,
}  # fmt: skip
"""Functions of NumPy that are called for each block alone, where they do not go along the axis of the rows."""


class RowBlocks(NDArrayOperatorsMixin):
    """An array with one row for each row of the data. The expression gives the entries of a block."""

    def __init__(self, layout: Layout, expression: Expression) -> None:
        self.layout, self.expression = layout, expression

    # Shape -----------------------------------------------------------------------------------------------------------

    @property
    def meta(self) -> np.ndarray:
        """The same array without rows: the axis of length zero is that of the rows."""
        return self.expression.meta

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the entries."""
        return self.meta.dtype

    @property
    def axis(self) -> int:
        """The axis of the rows."""
        return self.meta.shape.index(0)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, as NumPy has it."""
        return tuple(length or self.layout.n for length in self.meta.shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.meta.ndim

    @property
    def size(self) -> int:
        """The number of entries."""
        return math.prod(self.shape)

    @property
    def T(self) -> RowBlocks:
        """The transpose."""
        return self._recorded(np.transpose, self)

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowBlocks(shape={self.shape}, dtype={self.dtype}, blocks={self.layout.count})"

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise TypeError(
            "the entries are on the workers of a cluster: compute() gathers them, to_dask() makes a dask array of them"
        )

    def compute(self) -> np.ndarray:
        """Gather all entries in the memory of this process."""
        return self.layout.entries(self, np.arange(self.layout.n))

    def to_dask(self) -> Any:
        """Return the entries as a dask array, in the blocks that they have."""
        return self.layout.dask_array(self)

    # NumPy's dispatch ------------------------------------------------------------------------------------------------

    def _recorded(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> RowBlocks:
        """Record a function that works on each row alone."""
        made = RowBlocks(self.layout, Call.of(function, self._expressions(args), self._expressions(kwargs)))
        if made.expression.depth > DEEPEST:
            (made,) = self.layout.stored([made])
        return made

    def _joined(self, join: np.ufunc, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Join the values of a function on each block."""
        call = Call.over_rows(function, self._expressions(args), self._expressions(kwargs))
        return self.layout.joined(join, call, tasks.value)[0]

    def summed(self, function: Callable[..., tuple[Any, ...]], *others: Any) -> tuple[Any, ...]:
        """Return the sums of a function of this array and others, all of them from one task for each share."""
        call = Call.over_rows(function, self._expressions((self, *others)), {})
        return self.layout.joined(np.add, call, tasks.values)

    def _expressions(self, value: Any) -> Any:
        """Return a value with the expressions of the row arrays in it."""
        if isinstance(value, RowBlocks):
            if value.layout is not self.layout:
                raise TypeError("row arrays of different data cannot be combined")
            return value.expression
        if isinstance(value, tuple | list):
            return type(value)(self._expressions(each) for each in value)
        return {name: self._expressions(each) for name, each in value.items()} if isinstance(value, dict) else value

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **kwargs: Any) -> Any:
        if method == "reduce" and ufunc in JOINED:
            return self._reduced(ufunc, ufunc.reduce, *inputs, **{"axis": 0, **kwargs})
        if method != "__call__":
            return NotImplemented
        if ufunc is np.matmul and _ends_in_rows(inputs[0]):
            return self._joined(np.add, np.matmul, *inputs)
        made = self._recorded(ufunc, *inputs, **kwargs)
        return made if out is None else out[0]._replaced(made.astype(out[0].dtype))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if (own := OWN.get(function)) is not None:
            return own(self, *args, **kwargs)
        if (join := REDUCTIONS.get(function)) is not None:
            return self._reduced(join, function, *args, **kwargs)
        if function is np.vdot or (function is np.dot and _ends_in_rows(args[0])):
            return self._joined(np.add, function, *args)
        return self._recorded(function, *args, **kwargs) if function in ROWWISE else NotImplemented

    def _reduced(self, join: np.ufunc, function: Any, values: RowBlocks, axis: Any = None, **kwargs: Any) -> Any:
        """Reduce along the given axes: each row alone, or over rows."""
        axes = range(values.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
        if values.axis not in {each % values.ndim for each in axes}:
            return self._recorded(function, values, axis=axis, **kwargs)
        if function in NEUTRAL and values.dtype.kind == "f":
            kwargs = {"initial": NEUTRAL[function], **kwargs}
        return self._joined(join, function, values, axis=axis, **kwargs)

    def _full(self, shape: Any, value: float, dtype: Any = None) -> Any:
        """Return an array of one number; an array of NumPy if no axis has the length of the rows."""
        lengths = tuple(np.atleast_1d(shape).tolist())
        if self.layout.n not in lengths:
            return np.full(lengths, value, dtype or np.float64)
        return RowBlocks(self.layout, Constant(self._marked(lengths), value, np.dtype(dtype or np.float64)))

    def _marked(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return a shape with zero for the axis of the rows."""
        axis = shape.index(self.layout.n)
        return *shape[:axis], 0, *shape[axis + 1 :]

    # Indexing --------------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        keys, own = self._keys(key)
        if isinstance(own, RowBlocks):
            if own.dtype == bool:
                return self.layout.entries_where(self, own)
            return self._recorded(operator.getitem, self, keys)
        if not self._is_everything(own):
            if any(each is not own and not (isinstance(each, slice) and each == EVERYTHING) for each in keys):
                raise TypeError("single rows are taken with all their columns: take columns first, then rows")
            rows = np.arange(self.layout.n)[own]
            found = self.layout.entries(self, np.atleast_1d(rows))
            return found[0] if np.ndim(rows) == 0 else found
        keys = tuple(EVERYTHING if each is own else each for each in keys)
        if all(isinstance(each, slice) and each == EVERYTHING for each in keys):
            return self  # assignments to a full slice change the array, as those to a view do
        return self._recorded(operator.getitem, self, keys)

    def __setitem__(self, key: Any, value: Any) -> None:
        keys, own = self._keys(key)
        if not isinstance(own, RowBlocks):
            if not self._is_everything(own):
                raise TypeError("entries of single rows cannot be assigned: they are on the workers of a cluster")
            keys = tuple(EVERYTHING if each is own else each for each in keys)
        self._replaced(self._recorded(assigned, self, keys, value))

    def _keys(self, key: Any) -> tuple[tuple[Any, ...], Any]:
        """Return a key for each axis, and that of the rows; a mask of all entries is both."""
        keys = key if isinstance(key, tuple) else (key,)
        if isinstance(keys[0], RowBlocks) and keys[0].ndim == self.ndim > 1:
            return keys, keys[0]
        axes = [each for each in keys if each is not None]
        rest = (EVERYTHING,) * (self.ndim - len(axes))
        return (*keys, *rest), (*axes, *rest)[self.axis]

    def _is_everything(self, key: Any) -> bool:
        return isinstance(key, slice) and key.indices(self.layout.n) == (0, self.layout.n, 1)

    def _replaced(self, made: RowBlocks) -> RowBlocks:
        self.expression = made.expression
        return self

    # NumPy's methods -------------------------------------------------------------------------------------------------

    def sum(self, axis: Any = None) -> Any:
        """Return the sum along the given axes."""
        return np.sum(self, axis=axis)

    def mean(self, axis: Any = None) -> Any:
        """Return the mean along the given axes."""
        total = np.sum(self, axis=axis)
        return total * (np.size(total) / self.size)

    def max(self, axis: Any = None) -> Any:
        """Return the largest entry along the given axes."""
        return np.max(self, axis=axis)

    def min(self, axis: Any = None) -> Any:
        """Return the smallest entry along the given axes."""
        return np.min(self, axis=axis)

    def any(self, axis: Any = None) -> Any:
        """Whether an entry is true along the given axes."""
        return np.any(self, axis=axis)

    def all(self, axis: Any = None) -> Any:
        """Whether all entries are true along the given axes."""
        return np.all(self, axis=axis)

    def argmax(self, axis: int) -> Any:
        """Return the place of the largest entry along an axis other than that of the rows."""
        return np.argmax(self, axis=axis)

    def astype(self, dtype: Any, copy: bool = True) -> RowBlocks:  # noqa: ARG002 (NumPy's signature)
        """Return the entries in another type."""
        return (
            RowBlocks(self.layout, self.expression)
            if self.dtype == dtype
            else self._recorded(np.ndarray.astype, self, np.dtype(dtype))
        )

    def entries_of(self, table: np.ndarray) -> RowBlocks:
        """Return ``table[x]`` for the entries x, which are indices of a small table."""
        return self._recorded(np.take, table, self)

    def copy(self) -> RowBlocks:
        """Return an array that assignments to this one do not change."""
        return RowBlocks(self.layout, self.expression)

    def reshape(self, *shape: Any) -> RowBlocks:
        """Return the entries in another shape, which must have an axis of the rows."""
        wanted = tuple(shape[0]) if np.ndim(shape[0]) else shape
        if -1 in wanted:
            wanted = tuple(self.size // -math.prod(wanted) if length == -1 else length for length in wanted)
        return self._recorded(reshaped, self, self._marked(wanted))


def _ends_in_rows(values: Any) -> bool:
    """Whether the last axis of an array is that of the rows."""
    return isinstance(values, RowBlocks) and values.meta.shape[-1] == 0


def _like(own: RowBlocks, value: Any, *_: Any, **__: Any) -> Any:  # noqa: ARG001
    """Return a small array as it is: an expression takes NumPy's arrays."""
    return value.copy() if isinstance(value, RowBlocks) else np.asarray(value)


def _positions(own: RowBlocks, stop: int, *_: Any) -> Any:
    return RowBlocks(own.layout, Positions()) if stop == own.layout.n else np.arange(stop)


def _average(own: RowBlocks, values: RowBlocks, axis: Any = None, weights: Any = None) -> Any:  # noqa: ARG001
    if weights is None:
        return values.mean(axis=axis)
    return np.asarray(weights @ values) / weights.sum()


def _joined_columns(own: RowBlocks, parts: Any, axis: int = 0) -> RowBlocks:
    axes = {each.axis for each in parts if isinstance(each, RowBlocks)}
    if axes == {axis % own.ndim}:
        raise TypeError("row arrays cannot be joined along their rows")
    return own._recorded(np.concatenate, parts, axis=axis)


def _unique(own: RowBlocks, values: RowBlocks, *, return_inverse: bool = False) -> Any:  # noqa: ARG001
    """Return the distinct entries, and the number of its own for each row."""
    found = values.layout.distinct(values)
    return (found, np.searchsorted(found, values)) if return_inverse else found


def _first_least(own: RowBlocks, values: RowBlocks) -> int:
    """Return the first row with the smallest entry."""
    places = RowBlocks(own.layout, Positions(absolute=True))
    return int(np.where(values == values.min(), places, own.layout.n).min())


def _are_equal(own: RowBlocks, one: Any, other: Any) -> bool:  # noqa: ARG001
    return np.shape(one) == np.shape(other) and bool(np.all(one == other))


def _made(value: float) -> Callable[..., Any]:
    """Return the function that answers ``np.zeros(shape, like=…)`` and the like."""
    return lambda own, shape, dtype=None, **_: own._full(shape, value, dtype)


def _made_like(value: float) -> Callable[..., Any]:
    return lambda own, like, dtype=None, **_: own._full(like.shape, value, dtype or like.dtype)


OWN: dict[Any, Callable[..., Any]] = {
    np.zeros: _made(0.0),
    np.empty: _made(0.0),
    np.ones: _made(1.0),
    np.zeros_like: _made_like(0.0),
    np.empty_like: _made_like(0.0),
    np.ones_like: _made_like(1.0),
    np.full_like: lambda own, like, value, dtype=None: own._full(like.shape, value, dtype or like.dtype),
    np.arange: _positions,
    np.asarray: _like,
    np.array: _like,
    np.ascontiguousarray: _like,
    np.argmin: _first_least,
    np.average: _average,
    np.mean: lambda _, values, axis=None: values.mean(axis=axis),
    np.array_equal: _are_equal,
    np.concatenate: _joined_columns,
    np.unique: _unique,
    np.shape: lambda _, values: values.shape,
    np.ndim: lambda _, values: values.ndim,
    np.size: lambda _, values: values.size,
    np.reshape: lambda _, values, shape: values.reshape(shape),
    np.copyto: lambda own, target, values: target._replaced(own._recorded(np.broadcast_to, values, target.shape)),
}
"""Functions of NumPy that row arrays answer in their own way."""

declare(RowBlocks, RowBlocks.compute, summed=lambda function, rows, *others: rows.summed(function, *others))
