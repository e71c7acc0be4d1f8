"""Losses in kernels: compiled from their own methods, and called through addresses, or inlined in the serial rounds.

Kernels that take addresses are compiled once for all losses; a new or user-defined loss then compiles in a fraction of a second.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numba import float64, types

from dualnewton import losses
from dualnewton.kernels._compiler import address_of, compiled_for
from dualnewton.kernels._jit import address_function, calling, jit, kernel_function, overloads
from dualnewton.losses import Loss

VALUES = types.UniTuple(float64, 3)(float64, float64, float64)
"""Signature of a loss with one parameter p, or none: (p, z, y) ↦ φ, φ′, φ″."""

SLOPES = types.UniTuple(float64, 2)(float64, float64, float64)
"""Signature of (p, z, y) ↦ φ′, φ″, for kernels that do not need the value."""


class Pointers(NamedTuple):
    """A loss as an argument of kernels that are compiled once for all losses: addresses of its functions, and its parameter."""

    values: np.uintp
    slopes: np.uintp
    parameter: float


class CompiledLoss(NamedTuple):
    """A loss as an argument of kernels: its addresses, valid as long as the compiled functions exist, or its fields.

    A piecewise linear loss is given by its numbers (``Models.y``), and its fields are None.
    """

    argument: Any
    functions: tuple[Any, ...] = ()


BY_NUMBERS = CompiledLoss(None)
"""A piecewise linear loss."""


@overloads
def values_at(loss, z, y):
    """φ(z; y), φ′(z; y), φ″(z; y)."""
    if loss.instance_class is Pointers:
        return lambda loss, z, y: _call_values(loss.values, loss.parameter, z, y)
    value, first, second = _methods(kind_of(loss), "value", "derivative", "second_derivative")
    return lambda loss, z, y: (value(loss, z, y), first(loss, z, y), second(loss, z, y))


@overloads
def slopes_at(loss, z, y):
    """φ′(z; y), φ″(z; y).

    The serial rounds are given the fields of the library's own losses, by whose type the expressions are selected and inlined: a
    call through an address took a fifth of their time.
    """
    if loss.instance_class is Pointers:
        return lambda loss, z, y: _call_slopes(loss.slopes, loss.parameter, z, y)
    first, second = _methods(kind_of(loss), "derivative", "second_derivative")
    return lambda loss, z, y: (first(loss, z, y), second(loss, z, y))


_call_values, _call_slopes = calling(VALUES), calling(SLOPES)


def _methods(kind: type[Loss], *names: str) -> list[Any]:
    return [jit(getattr(kind, name)) for name in names]


def of_library(kind: type[Loss]) -> bool:
    """Whether a class of losses is the library's own.

    Its methods are known: they create no object that Numba would have to count, and compile faster without counting; they change
    with the installation only, so that their kernels can be kept on disk. A user's method may do anything.
    """
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


@cache
def _fields_type(kind: type[Loss], names: tuple[str, ...]) -> Any:
    """Make a named tuple type with the fields of a loss; it is importable by name, which Numba's cache on disk requires."""
    name = f"{kind.__name__}Fields"
    made = namedtuple(name, names or ["none"])  # type: ignore[misc, arg-type]
    made.__module__ = __name__
    if of_library(kind):  # a user's class may have the same name as one of ours
        globals()[name] = made
    _KINDS[made] = kind
    return made


_KINDS: dict[Any, type[Loss]] = {}
"""The loss of each type of fields."""


def kind_of(fields: Any) -> type[Loss]:
    """Return the class of a loss from the Numba type of its fields."""
    return _KINDS[fields.instance_class]


_INLINED = (
    losses.Squared,
    losses.Logistic,
    losses.SquaredHinge,
    losses.SmoothHinge,
    losses.Huber,
    losses.SquaredEpsilonInsensitive,
)
_BY_ADDRESS = (losses.Poisson, losses.Gamma, losses.Tweedie)
"""Losses whose exponentials take longer than a call through an address."""

_FIELDS: dict[type[Loss], Any] = {
    kind: _fields_type(kind, tuple(field.name for field in dataclasses.fields(kind)))  # type: ignore[arg-type]
    for kind in (*_INLINED, *_BY_ADDRESS)
}
"""The library's own losses with one parameter or none, which are compiled once per installation, for all values of it."""


def inlined(loss: Loss) -> CompiledLoss:
    """Return a loss as an argument of the serial rounds: the fields of a loss of the library, or the addresses of any other."""
    return CompiledLoss(fields_of(loss)) if type(loss) in _INLINED else compiled(loss)


def fields_of(loss: Loss) -> Any:
    """Return a named tuple of the fields of a loss, which replaces ``self`` in its methods."""
    fields = {name: float(value) for name, value in vars(loss).items()}
    return _fields_type(type(loss), tuple(fields))(*(fields.values() or [0.0]))  # type: ignore[arg-type]


def compiled(loss: Loss) -> CompiledLoss:
    """Compile a loss from its own methods; a loss of the library is loaded from the cache, if possible."""
    if type(loss) in _FIELDS:
        return _of_library(_FIELDS[type(loss)], *fields_of(loss))
    return _of_user(loss)


@lru_cache(maxsize=64)
def _of_library(fields: Any, parameter: float) -> CompiledLoss:
    return _with_addresses(_functions_of(fields), parameter)


@cache
def _functions_of(fields: Any) -> tuple[Any, Any]:
    def values(parameter: float, z: float, y: float) -> tuple[float, float, float]:
        return values_at(fields(parameter), z, y)

    def slopes(parameter: float, z: float, y: float) -> tuple[float, float]:
        return slopes_at(fields(parameter), z, y)

    made = address_function(values), address_function(slopes)
    for function in made:
        compiled_for(function, VALUES.args)
    return made


@lru_cache(maxsize=64)
def _of_user(loss: Loss) -> CompiledLoss:
    """Compile a loss for the values of its fields, whose number and types may be any."""
    self = fields_of(loss)
    value, first, second = _methods(type(loss), "value", "derivative", "second_derivative")

    def values(parameter: float, z: float, y: float) -> tuple[float, float, float]:
        return value(self, z, y), first(self, z, y), second(self, z, y)

    def slopes(parameter: float, z: float, y: float) -> tuple[float, float]:
        return first(self, z, y), second(self, z, y)

    made = kernel_function(values), kernel_function(slopes)
    for function in made:
        function.compile(VALUES.args)
    return _with_addresses(made, 0.0)


def _with_addresses(functions: tuple[Any, Any], parameter: float) -> CompiledLoss:
    values, slopes = (np.uintp(address_of(function.overloads[VALUES.args])) for function in functions)
    return CompiledLoss(Pointers(values, slopes, parameter), functions)
