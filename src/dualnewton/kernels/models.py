"""What the kernels work on: K models over the same rows, and the functions of their loss."""

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
"""(z, y) ↦ φ, φ′, φ″, called through a pointer: a new loss compiles in a fraction of a second, and no kernel with it."""

Slopes = types.FunctionType(types.UniTuple(float64, 2)(float64, float64))
"""(z, y) ↦ φ′, φ″, where the value is not needed."""


class Models(NamedTuple):
    """The state of K models, one row each; c and o have a single column where all examples have the same."""

    w: np.ndarray  # (K, d) primal points
    w_bar: np.ndarray  # (K, d) ᾱ; the same array as w where ∇g* is the identity
    alpha: np.ndarray  # (K, n)
    y: np.ndarray  # (K, n)
    c: np.ndarray  # (K, n) or (K, 1)
    o: np.ndarray  # (K, n) or (K, 1)
    b: np.ndarray  # (K,) intercepts
    b_curvature: np.ndarray  # (K,) ρ/(λn), zero without an intercept
    scale: np.ndarray  # (K,) 1/(λn)
    limits: np.ndarray  # (4, d) threshold, factor, lower, upper of a separable ∇g*; else (4, 0)
    gradient: np.ndarray  # (1,) the address of another ∇g* (see gradients.py); else (0,)
    tolerance: np.ndarray  # (K,) of the margins, in the block solves
    surprise: np.ndarray  # (K,) Σ c (α + φ′)² at the visits of a sweep, which falls as the gap does
    sleepy: np.ndarray  # (K,) a visit with less surprise than this leaves the example asleep
    awake: np.ndarray  # (n,) whether the last visit surprised any model


class CompiledLoss(NamedTuple):
    """The functions of a loss as the kernels call them.

    ``pointwise`` and ``slopes`` are pointers. ``inlined`` is for the innermost loop of all, in which a call through a pointer
    was seen to cost a fifth of the time: the fields of a loss of this library, by whose type :func:`slopes_at` finds the
    expressions and compiles them in place; for a loss of the user's it is the pointer again.
    """

    pointwise: Any
    slopes: Any
    inlined: Any


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
    """A named tuple with the fields of a loss, importable by name so that what is compiled for it can be cached."""
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

    Its fields become a named tuple that stands for ``self``, so that the expressions compile as they are written.
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
    """A compiled function of which each combination of array types is made once, with the loss as a pointer.

    Left to itself Numba would compile the kernel anew for every loss it is handed. ``prepare`` sees to that once for arguments
    of some types, since finding the types of many arrays takes longer than many a sweep; a call trusts that it was done.
    """

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = dispatcher
        # What is called compiles nothing, not even while another thread prepares other types; what compiles is never called,
        # and stays free to compile when a kernel that uses it is prepared.
        self.called = jit(dispatcher.py_func)
        self.known: set[Any] = set()

    def prepare(self, *args: Any) -> None:
        """Compile, or load from the cache, what a call with these arguments needs."""
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
    """What Numba's own ``typeof`` says, which takes longer over an array than many a kernel over its rows."""
    return types.Array(numba.from_dtype(dtype), ndim, layout, readonly=not writeable, aligned=aligned)
