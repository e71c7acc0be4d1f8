"""The arguments of the kernels: the state of K models over the same rows, and the compiled functions of their loss."""

from __future__ import annotations

import dataclasses
import threading
from collections import namedtuple
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import float64, types

from dualnewton import losses
from dualnewton.kernels._jit import FASTMATH, jit, overloads
from dualnewton.losses import Loss

Pointwise = types.FunctionType(types.UniTuple(float64, 3)(float64, float64))
"""Type of (z, y) ↦ φ, φ′, φ″ as a function pointer: a new loss compiles in a fraction of a second, without any kernel."""

Slopes = types.FunctionType(types.UniTuple(float64, 2)(float64, float64))
"""Type of (z, y) ↦ φ′, φ″, for kernels that do not need the value."""


class Models(NamedTuple):
    """The state of K models, one row each; c and o have a single column if all examples have the same value."""

    w: np.ndarray  # (K, d) primal points
    w_bar: np.ndarray  # (K, d) ᾱ; the same array as w where ∇g* is the identity
    alpha: np.ndarray  # (K, n) dual variables
    y: np.ndarray  # (K, n) labels; for a piecewise linear loss (K, n, 2m + 1), its slopes and kinks (``Loss.pieces``)
    c: np.ndarray  # (K, n) or (K, 1) sample weights
    o: np.ndarray  # (K, n) or (K, 1) offsets
    b: np.ndarray  # (K,) intercepts
    b_curvature: np.ndarray  # (K,) ρ/(λn), zero without an intercept
    scale: np.ndarray  # (K,) 1/(λn)
    limits: np.ndarray  # (4, d) threshold, factor, lower, upper of a separable ∇g*; else (4, 0)
    gradient: np.ndarray  # (1,) the address of a nonseparable ∇g* (see gradients.py); else (0,)
    tolerance: np.ndarray  # (K,) absolute tolerance of the margins in the block subproblems
    residual: np.ndarray  # (K,) sum over the visits of a sweep of c (α + φ′)² or c (φ + φ* + αz); it falls with the gap
    inactive_below: np.ndarray  # (K,) an example whose residual is at most this becomes inactive (shrinking)
    active: np.ndarray  # (n,) whether an example was active for any model at its last visit


class CompiledLoss(NamedTuple):
    """The functions of a loss as the kernels call them.

    ``pointwise`` and ``slopes`` are function pointers. ``inlined`` is for the serial rounds, in which a call through a pointer
    cost a fifth of the time: for a loss of this library it holds the fields of the loss, by whose type :func:`slopes_at` selects
    the expressions and inlines them; for a user-defined loss it is the pointer ``slopes``. All are None for a piecewise linear
    loss, which enters by its numbers (``Models.y``).
    """

    pointwise: Any
    slopes: Any
    inlined: Any


BY_NUMBERS = CompiledLoss(None, None, None)
"""The functions of a piecewise linear loss: none."""


def slopes_at(loss: Any, z: float, y: float) -> tuple[float, float]:
    """φ′(z; y), φ″(z; y)."""
    raise NotImplementedError("for compiled code")


@overloads(slopes_at)
def _slopes_at(loss, z, y):
    def through_pointer(loss, z, y):
        return loss(z, y)

    if not isinstance(loss, types.BaseNamedTuple):
        return through_pointer
    kind = next(kind for kind, fields in _FIELDS.items() if fields is loss.instance_class)
    first, second = (numba.njit(getattr(kind, name), fastmath=FASTMATH) for name in ("derivative", "second_derivative"))

    def in_place(loss, z, y):
        return first(loss, z, y), second(loss, z, y)

    return in_place


def _fields_type(kind: type[Loss]) -> Any:
    """Make a named tuple type with the fields of a loss; it is importable by name, which Numba's cache on disk requires."""
    name = f"{kind.__name__}Fields"
    made = namedtuple(name, [field.name for field in dataclasses.fields(kind)] or ["none"])  # type: ignore[misc, arg-type]
    made.__module__ = __name__
    globals()[name] = made
    return made


_INLINED = (
    losses.Squared,
    losses.Logistic,
    losses.SquaredHinge,
    losses.SmoothHinge,
    losses.Huber,
    losses.SquaredEpsilonInsensitive,
)
_FIELDS: dict[type[Loss], Any] = {kind: _fields_type(kind) for kind in _INLINED}


@lru_cache(maxsize=64)
def compiled(loss: Loss) -> CompiledLoss:
    """Compile a loss from its own methods.

    A named tuple of its fields replaces ``self``, so that the methods compile unchanged.
    """
    fields = {name: float(value) for name, value in vars(loss).items()}
    kind = _FIELDS.get(type(loss)) or namedtuple("Fields", fields or ["none"])  # type: ignore[misc, call-overload]
    self = kind(*(fields.values() or [0.0]))
    value, first, second = (
        numba.njit(getattr(type(loss), name), fastmath=FASTMATH)
        for name in ("value", "derivative", "second_derivative")
    )

    def pointwise(z: float, y: float) -> tuple[float, float, float]:
        return value(self, z, y), first(self, z, y), second(self, z, y)

    def slopes(z: float, y: float) -> tuple[float, float]:
        return first(self, z, y), second(self, z, y)

    pointer = numba.njit(Slopes.signature, fastmath=FASTMATH)(slopes)
    return CompiledLoss(
        numba.njit(Pointwise.signature, fastmath=FASTMATH)(pointwise),
        pointer,
        self if type(loss) in _FIELDS else pointer,
    )


class Kernel:
    """A compiled function with one specialisation per combination of array types, which takes the loss as a pointer.

    By default Numba would compile the kernel again for every loss. ``prepare`` compiles it for the types of its arguments; a
    call assumes that this was done and does not check, since determining the types of many arrays can take longer than a sweep.
    """

    rounds: Kernel | None = None
    """The kernel that alternates this one with other steps, where there is one."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        # Two dispatchers: ``called`` has compilation disabled, so that a call never compiles while another thread prepares other
        # types; ``dispatcher`` is never called and can still compile when another kernel that uses it is prepared.
        self.called = jit(dispatcher.py_func)
        self.known: set[Any] = set()

    def prepare(self, *args: Any) -> None:
        """Compile the kernel for the types of these arguments, or load it from the cache."""
        kinds = tuple(map(_kind, args))
        with _COMPILING:
            if kinds not in self.known:
                self.dispatcher.compile(kinds)
                self.called.add_overload(self.dispatcher.overloads[kinds])
                self.called.disable_compile()
                self.known.add(kinds)

    def __call__(self, *args: Any) -> Any:
        return self.called(*args)


_COMPILING = threading.Lock()
"""Serialises compilation: several threads may prepare kernels at the same time."""


def _kind(arg: Any) -> Any:
    if isinstance(arg, numba.core.registry.CPUDispatcher):
        (only,) = arg.overloads.values()
        return types.FunctionType(only.signature)  # type: ignore[attr-defined]
    if type(arg) is np.ndarray:
        flags = arg.flags
        layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        return _array_kind(arg.dtype, arg.ndim, layout, flags.writeable, flags.aligned)
    return numba.typeof(arg)


@lru_cache(maxsize=256)
def _array_kind(dtype: np.dtype[Any], ndim: int, layout: Any, writeable: bool, aligned: bool) -> Any:
    """Return the Numba type of an array from its properties; Numba's own ``typeof`` can take longer than a kernel call."""
    return types.Array(numba.from_dtype(dtype), ndim, layout, readonly=not writeable, aligned=aligned)
