"""Atomic loads, stores and compare-and-swap on 64-bit counters that several threads share, in one order for all threads."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from dualnewton.kernels._jit import lean


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@intrinsic
def load(typingctx: Any, words: Any, i: Any) -> Any:
    """Return words[i]: writes made before the matching store are visible afterwards."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, args), "seq_cst", 8)

    return types.int64(words, types.intp), codegen


@intrinsic
def store(typingctx: Any, words: Any, i: Any, value: Any) -> Any:
    """words[i] = value: earlier writes are visible to a thread that loads this value."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _place(context, builder, signature, args), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.int64), codegen


@intrinsic
def swap_if(typingctx: Any, words: Any, i: Any, expected: Any, value: Any) -> Any:
    """Set words[i] to ``value`` if it equals ``expected`` (compare-and-swap); return whether it did."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(place, args[2], args[3], "seq_cst", "seq_cst"), 1)

    return types.boolean(words, types.intp, types.int64, types.int64), codegen


@intrinsic
def yield_thread(typingctx: Any) -> Any:
    """Yield the processor to another thread: the thread for which this one waits may need it to run."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":  # Windows has no sched_yield
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen


@lean
def next_number(counter):
    """Return the number in a counter that the threads share, and add one to it."""
    while True:
        number = load(counter, 0)
        if swap_if(counter, 0, number, number + 1):
            return number
