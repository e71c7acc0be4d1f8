"""The compiler options of every kernel, calls through addresses, and the prefetch instruction, which Numba does not offer."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dualnewton.kernels._compiler import KERNEL, LEAN, ChosenPart, KernelCompiler, Part, call_address

FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
"""LLVM flags that let sums be reordered, so that they are vectorised; NaN and infinity keep their meaning."""

jit = partial(Part, fastmath=FASTMATH)
"""Decorator of functions that kernels call, and of functions wrapped by a ``Kernel``."""

lean: Any = partial(Part, fastmath=FASTMATH, **LEAN)
"""Decorator of such functions that allocate no arrays (except by ``_memory``) and return none: faster to compile. A variable has
one type throughout, and tuples of several types are not indexed. An overload that calls one inlines it and all that it calls."""

lean_call: Any = partial(lean, forceinline=False)
"""Decorator of lean functions whose calls are left to LLVM, since they are few: copies of a large one take long to compile."""

kernel_function: Any = partial(numba.njit, fastmath=FASTMATH, pipeline_class=KernelCompiler, **KERNEL)
"""Decorator of functions that Python calls, or compiled code through their address; :func:`compiled_for` compiles them."""

address_function: Any = partial(kernel_function, no_cpython_wrapper=True, **LEAN)
"""Decorator of functions that compiled code alone calls, through their address, and that allocate nothing."""


overloads: Any = partial(ChosenPart, fastmath=FASTMATH, forceinline=True, **LEAN)
"""Decorator that selects a lean implementation by argument types and inlines it: a call would pass whole array headers."""

ROWS: Any = {"fastmath": FASTMATH, "error_model": "numpy"}
"""Options of functions of rows: a check for a division by zero would keep LLVM from working on several rows at once."""

LEAN_ROWS: Any = {**ROWS, **LEAN}
"""Options of those of one margin for the library's losses."""

row_function: Any = partial(numba.njit, pipeline_class=KernelCompiler, **KERNEL | ROWS, no_cpython_wrapper=True)
"""Decorator of functions of rows, which compiled code calls through their addresses; :func:`compiled_for` compiles them."""

row_part: Any = partial(Part, forceinline=True, **ROWS)
"""Decorator of functions that functions of rows call."""

row_overloads: Any = partial(ChosenPart, forceinline=True, **ROWS)
"""Decorator that selects one of these by argument types."""


def emitted(kinds: Any, codegen: Any) -> Any:
    """Return a function for compiled code, with the types of a Numba signature, whose LLVM code ``codegen`` emits."""

    def function(*_: Any) -> Any:
        return kinds, codegen

    # Numba takes the parameters from the signature; the first is its own.
    names = ["typing", *(f"given{k}" for k in range(len(kinds.args)))]
    parameters = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(function)


def calling(kinds: Any) -> Any:
    """Return the call of a compiled function with this signature: its address, then its arguments, pointers as addresses."""
    pointers = [isinstance(kind, types.CPointer | types.RawPointer) for kind in kinds.args]

    def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
        values = [
            builder.inttoptr(value, context.get_value_type(kind)) if pointer else value
            for value, kind, pointer in zip(args[1:], kinds.args, pointers, strict=True)
        ]
        return call_address(context, builder, args[0], kinds, values)

    given = (types.intp if pointer else kind for kind, pointer in zip(kinds.args, pointers, strict=True))
    return emitted(kinds.return_type(types.intp, *given), codegen)


@intrinsic
def prefetch(typingctx: Any, array: Any, offset: Any) -> Any:
    """Prefetch the element at a flat offset of a contiguous array."""
    signature = types.void(array, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        byte = ir.IntType(8).as_pointer()
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        place = builder.bitcast(builder.gep(data, [args[1]]), byte)
        # Arguments: 0 = read access, 3 = keep in all cache levels, 1 = data cache.
        builder.call(function, [place, number(0), number(3), number(1)])
        return context.get_dummy_value()

    return signature, codegen


def _chosen(name: str) -> Any:
    def pick(typingctx: Any, a: Any, b: Any) -> Any:
        kind = typingctx.unify_types(types.unliteral(a), types.unliteral(b))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            x, y = (context.cast(builder, arg, own, kind) for arg, own in zip(args, signature.args, strict=True))
            floats = isinstance(kind, types.Float)
            compare = builder.fcmp_ordered if floats else builder.icmp_signed
            return builder.select(compare(name, y, x), y, x)

        return kind(a, b), codegen

    return intrinsic(pick)


least, most = _chosen("<"), _chosen(">")
"""min and max of two signed numbers: Numba compiles a function for each combination of types and options of its callers."""
