"""Expressions of row arrays: recorded by the client, evaluated by the tasks on the workers, block by block.

Each expression has a ``meta``, the NumPy array that it has for a block without rows. Its only axis of length zero is the axis
of the rows, and its other axes and its type are those of every block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Shape = tuple[int, ...]
"""Lengths of the axes; zero for that of the rows."""

SMALL = 1 << 12
"""Bytes up to which an array in an expression, such as the intercepts of models, is compared by its content (4 KiB)."""


@dataclass(eq=False)
class Stored:
    """Arrays of all rows that are stored on the workers."""

    futures: list[Any]  # one for each share, whose value (``tasks.Outcome``) has the arrays of its blocks
    outcomes: list[Any] = field(default_factory=list)  # these values, where the client has gathered them; else empty


@dataclass(frozen=True, eq=False)
class Leaf:
    """One of the arrays that are stored together."""

    stored: Stored
    place: int
    meta: np.ndarray
    depth: int = 0


@dataclass(frozen=True, eq=False)
class Constant:
    """An array of one number."""

    shape: Shape
    value: Any
    dtype: np.dtype[Any]
    depth: int = 0

    @property
    def meta(self) -> np.ndarray:
        """The array without rows."""
        return np.empty(self.shape, self.dtype)

    def evaluate(self, known: Sequence[Any], rows: range) -> np.ndarray:  # noqa: ARG002
        """Return the array for a block of rows."""
        return np.full(tuple(length or len(rows) for length in self.shape), self.value, self.dtype)


@dataclass(frozen=True, eq=False)
class Positions:
    """The index of each row in its block, for expressions such as ``Z[rows, y]``; among all rows if ``absolute``."""

    absolute: bool = False
    depth: int = 0
    meta: np.ndarray = field(default_factory=lambda: np.arange(0))

    def evaluate(self, known: Sequence[Any], rows: range) -> np.ndarray:  # noqa: ARG002
        """Return the indices for a block of rows."""
        return np.arange(rows.start, rows.stop) if self.absolute else np.arange(len(rows))


@dataclass(frozen=True, eq=False)
class Scattered:
    """Zero but for some rows, which are given by their indices in increasing order."""

    indices: np.ndarray
    entries: np.ndarray
    depth: int = 0

    @property
    def meta(self) -> np.ndarray:
        """The array without rows."""
        return self.entries[:0]

    def evaluate(self, known: Sequence[Any], rows: range) -> np.ndarray:  # noqa: ARG002
        """Return the entries of a block of rows."""
        low, high = np.searchsorted(self.indices, [rows.start, rows.stop])
        found = np.zeros((len(rows), *self.entries.shape[1:]), self.entries.dtype)
        found[self.indices[low:high] - rows.start] = self.entries[low:high]
        return found


@dataclass(frozen=True, eq=False)
class Call:
    """A function of expressions and other values, which may stand inside tuples and lists."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    meta: Any
    depth: int

    @classmethod
    def of(cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Record a function that works on each row alone."""
        meta = function(*replaced(args, lambda each: each.meta), **replaced(kwargs, lambda each: each.meta))
        return cls(function, args, kwargs, meta, 1 + max(each.depth for each in inside((args, kwargs))))

    @classmethod
    def over_rows(cls, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Record a function whose values of blocks are joined; it is not called without rows."""
        return cls(function, args, kwargs, None, 1)


Expression = Leaf | Constant | Positions | Scattered | Call


def replaced(value: Any, by: Callable[[Any], Any]) -> Any:
    """Return a value with the expressions (or places) in it replaced."""
    kind = type(value)
    if kind in _REPLACED:
        return by(value)
    if kind is tuple or kind is list:
        return kind([replaced(each, by) for each in value])
    return {name: replaced(each, by) for name, each in value.items()} if kind is dict else value


def inside(value: Any) -> list[Any]:
    """Return the expressions in a value."""
    found: list[Any] = []
    replaced(value, found.append)
    return found


def identity(value: Any) -> Any:
    """Return a hashable value that equal expressions share; TypeError if there is none.

    Stored arrays never change, so that expressions of the same functions of the same stored arrays have the same value.
    """
    if isinstance(value, Leaf):
        return value.stored, value.place
    if isinstance(value, Call):
        return value.function, identity(value.args), identity(value.kwargs)
    if isinstance(value, Constant):
        return Constant, value.shape, value.value, value.dtype
    if isinstance(value, tuple | list):
        return type(value), *map(identity, value)
    if isinstance(value, dict):
        return tuple((name, identity(each)) for name, each in value.items())
    if isinstance(value, slice):
        return slice, value.start, value.stop, value.step
    if isinstance(value, np.ndarray) and value.nbytes <= SMALL:
        return np.ndarray, value.shape, value.dtype.str, value.tobytes()
    return type(value), value


# What is sent to the workers -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class At:
    """A reference to the value of an earlier instruction, by its index in the program."""

    place: int


_REPLACED = frozenset({Leaf, Constant, Positions, Scattered, Call, At})
"""Types that :func:`replaced` looks for; a set, since every call of a NumPy function searches an expression for them."""


@dataclass(frozen=True, eq=False)
class Load:
    """The instruction that reads a stored array: the index of its source, and its index among the arrays of the source."""

    source: int
    place: int


@dataclass(frozen=True, eq=False)
class Apply:
    """The instruction that calls a function."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def evaluate(self, known: Sequence[Any], rows: range) -> Any:  # noqa: ARG002
        """Return the value of the function, given those of earlier instructions."""
        args, kwargs = (replaced(each, lambda at: known[at.place]) for each in (self.args, self.kwargs))
        return self.function(*args, **kwargs)


@dataclass(frozen=True, eq=False)
class Program:
    """Instructions that evaluate several expressions; what they share is evaluated once."""

    instructions: tuple[Any, ...]
    outputs: tuple[int, ...]

    def run(self, stored: Sequence[Sequence[np.ndarray]], rows: range) -> list[Any]:
        """Return the values for a block of rows, given its arrays of each source."""
        known: list[Any] = []
        for each in self.instructions:
            known.append(stored[each.source][each.place] if isinstance(each, Load) else each.evaluate(known, rows))
        return [known[place] for place in self.outputs]


def compiled(expressions: Sequence[Expression]) -> tuple[Program, list[Stored]]:
    """Return the program that evaluates some expressions, and the sources of its stored arrays."""
    instructions: list[Any] = []
    places: dict[int, int] = {}  # by identity
    sources: list[Stored] = []

    def place_of(each: Expression) -> int:
        if id(each) not in places:
            if isinstance(each, Leaf):
                if each.stored not in sources:
                    sources.append(each.stored)
                made: Any = Load(sources.index(each.stored), each.place)
            elif isinstance(each, Call):
                args, kwargs = (replaced(part, lambda one: At(place_of(one))) for part in (each.args, each.kwargs))
                made = Apply(each.function, args, kwargs)
            else:
                made = each
            instructions.append(made)
            places[id(each)] = len(instructions) - 1
        return places[id(each)]

    outputs = tuple(place_of(each) for each in expressions)
    return Program(tuple(instructions), outputs), sources


# Functions of blocks that NumPy has in another form ------------------------------------------------------------------


def assigned(values: np.ndarray, key: Any, entries: Any) -> np.ndarray:
    """Return a copy of the values with ``values[key] = entries``."""
    made = values.copy()
    made[key] = entries
    return made


def reshaped(values: np.ndarray, shape: Shape) -> np.ndarray:
    """Return a block in another shape; zero stands for the length of the axis of the rows."""
    rows = values.size // max(1, math.prod(length or 1 for length in shape))
    return values.reshape(tuple(length or rows for length in shape))
