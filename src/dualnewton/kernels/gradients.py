"""∇g* of a nonseparable regulariser: compiled from its ``grad_conjugate`` method and called through its address.

The kernels receive the address in an array with one entry, or an empty array if ∇g* needs no call. The argument types are thus
the same for every regulariser, so that no kernel is recompiled for one, and g = ½‖w‖² has no extra cost.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import float64, types
from numba.extending import intrinsic

from dualnewton.errors import DualnewtonError
from dualnewton.kernels._compiler import address_of, call_address
from dualnewton.kernels._jit import FASTMATH
from dualnewton.regularizers import Regularizer
from dualnewton.validation import frozen

Gradient = types.void(float64[::1], float64[::1])
"""Signature of a compiled gradient (s, w), which writes ∇g*(s) to w."""

NONE = frozen(np.zeros(0, dtype=np.uintp))
"""The empty array: ∇g* needs no call."""

_jit = partial(numba.njit, fastmath=FASTMATH, error_model="numpy")
"""Compiler options under which scalar division by zero gives inf or NaN, as in NumPy."""


class CompiledGradient(NamedTuple):
    """∇g* as the kernels call it: an array with its address, which is valid as long as ``function`` exists."""

    function: Any
    address: np.ndarray


def compiled_gradient(regularizer: Regularizer) -> CompiledGradient:
    """Compile ∇g* of a regulariser from its own method ``grad_conjugate``.

    A named tuple of those fields that are numbers or arrays replaces ``self``. Regularisers with equal fields share one
    compilation; it holds copies of the arrays, so that later changes to them have no effect.
    """
    fields = {
        name: frozen(np.array(value, order="C")) if np.ndim(value) else np.asarray(value).item()
        for name, value in vars(regularizer).items()
        if isinstance(value, int | float | np.number | np.bool_ | np.ndarray) and not name.startswith("_")
    }
    return _compiled(
        _Recipe(type(regularizer), tuple((name, *_content(value)) for name, value in fields.items()), fields)
    )


def _content(value: Any) -> tuple[Any, ...]:
    """Return a key that is equal for two fields exactly if they are the same constant in compiled code."""
    array = np.asarray(value)
    return array.dtype.str, array.shape, blake2b(array.tobytes()).digest()


@dataclass(frozen=True)
class _Recipe:
    kind: type[Regularizer]
    contents: tuple[Any, ...]
    fields: dict[str, Any] = field(compare=False)


@lru_cache(maxsize=64)
def _compiled(recipe: _Recipe) -> CompiledGradient:
    method = _method(recipe.kind)  # type: ignore[arg-type]
    self = _fields_type(tuple(recipe.fields) or ("none",))(*(recipe.fields.values() or [0.0]))

    def gradient(s: np.ndarray, w: np.ndarray) -> None:
        found = method(self, s)
        if found.size != w.size:
            raise DualnewtonError("grad_conjugate must return a vector of the length of its argument")
        # A loop, since an array assignment would also compile its error message for different shapes, which takes seconds.
        for j in range(w.size):
            w[j] = found[j]

    function = _jit(Gradient)(gradient)
    (made,) = function.overloads.values()
    return CompiledGradient(function, frozen(np.array([address_of(made)], dtype=np.uintp)))


# Instances of one class share the compiled method, which saves half of the compile time.


@lru_cache(maxsize=64)
def _method(kind: type[Regularizer]) -> Any:
    return _jit(kind.grad_conjugate)


@lru_cache(maxsize=64)
def _fields_type(names: tuple[str, ...]) -> Any:
    return namedtuple("Fields", names)  # type: ignore[misc]


@intrinsic
def call_gradient(typingctx: Any, address: Any, s: Any, w: Any) -> Any:
    """Call the function at an address and propagate its exceptions."""
    if (s, w) != Gradient.args:
        raise numba.TypingError(f"a gradient takes two vectors {Gradient.args}, got {(s, w)}")

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        call_address(context, builder, builder.load(data), Gradient, args[1:])
        return context.get_dummy_value()

    return types.void(address, s, w), codegen
