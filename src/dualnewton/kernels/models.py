"""The arguments of the kernels: the state of K models over the same rows, and kernels with known argument types."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types

from dualnewton.kernels._compiler import LEAN, KernelCompiler, Part, compiled_for
from dualnewton.kernels._jit import kernel_function


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
    residual: np.ndarray  # (K,) sum over the visits of a sweep of c (α + φ′)² or c (φ + φ* + αz); it decreases as P − D
    inactive_below: np.ndarray  # (K,) an example whose residual is at most this becomes inactive (shrinking)
    active: np.ndarray  # (K, n) whether an example was active at its last visit


class Kernel:
    """A compiled function with one specialisation per combination of argument types, kept on disk.

    ``prepare`` compiles it for the types of its arguments, or loads it; a call assumes that this was done and does not check,
    since determining the types of many arrays can take longer than a sweep.
    """

    rounds: Kernel | None = None
    """The kernel that alternates this one with other steps, if there is one."""

    def __init__(self, part: Part, compiler: type[KernelCompiler] = KernelCompiler) -> None:
        # Two dispatchers: ``called`` has compilation disabled, so that a call never compiles while another thread prepares other
        # types.
        options = {name: part.targetoptions[name] for name in LEAN if name in part.targetoptions}
        options["pipeline_class"] = compiler
        self.prepared, self.called = (kernel_function(part.py_func, **options) for _ in range(2))
        self.known: set[Any] = set()  # types of arguments
        self.seen: set[Any] = set()  # keys of arguments, see :func:`_key`

    def prepare(self, *args: Any) -> None:
        """Compile the kernel for the types of these arguments, or load it from the cache."""
        key = tuple(map(_key, args))
        if key in self.seen:
            return
        with _COMPILING:
            if (kinds := tuple(map(_kind, args))) not in self.known:
                self.called.add_overload(compiled_for(self.prepared, kinds))
                self.called.disable_compile()
                self.known.add(kinds)
            self.seen.add(key)

    def __call__(self, *args: Any) -> Any:
        return self.called(*args)


class LazyKernel(Kernel):
    """A kernel that is prepared when it is called, since most fits do not get there."""

    def __call__(self, *args: Any) -> Any:
        self.prepare(*args)
        return super().__call__(*args)


_COMPILING = threading.Lock()
"""Serialises compilation: several threads may prepare kernels at the same time."""


def _key(arg: Any) -> Any:
    """Return the properties that determine the Numba type of an argument; to find and hash that type takes ten times as long."""
    if type(arg) is np.ndarray:
        return _array_key(arg)
    if isinstance(arg, tuple):
        return type(arg), *map(_key, arg)
    return type(arg) if isinstance(arg, bool | int | float | np.generic | None) else numba.typeof(arg)


def _kind(arg: Any) -> Any:
    return _array_kind(*_array_key(arg)) if type(arg) is np.ndarray else numba.typeof(arg)


def _array_key(array: np.ndarray) -> tuple[Any, ...]:
    flags = array.flags
    layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
    return array.dtype, array.ndim, layout, flags.writeable, flags.aligned


@lru_cache(maxsize=256)
def _array_kind(dtype: np.dtype[Any], ndim: int, layout: Any, writeable: bool, aligned: bool) -> Any:
    """Return the Numba type of an array from its properties; Numba's own ``typeof`` can take longer than a kernel call."""
    return types.Array(numba.from_dtype(dtype), ndim, layout, readonly=not writeable, aligned=aligned)
