"""Words that several threads share: loads, stores and claims that none of them can see half done."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic


def _place(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    array = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.gep(array.data, [args[1]])


@intrinsic
def load(typingctx: Any, words: Any, i: Any) -> Any:
    """Return words[i], and see all that was written before it was stored there."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_place(context, builder, signature, args), "acquire", 8)

    return types.int64(words, types.intp), codegen


@intrinsic
def store(typingctx: Any, words: Any, i: Any, value: Any) -> Any:
    """words[i] = value, after all that was written before."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[2], _place(context, builder, signature, args), "release", 8)
        return context.get_dummy_value()

    return types.void(words, types.intp, types.int64), codegen


@intrinsic
def swap_if(typingctx: Any, words: Any, i: Any, expected: Any, value: Any) -> Any:
    """If words[i] is still as expected, set it to the value; return whether it was."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature, args)
        return builder.extract_value(builder.cmpxchg(place, args[2], args[3], "acq_rel", "acquire"), 1)

    return types.boolean(words, types.intp, types.int64, types.int64), codegen


@intrinsic
def give_way(typingctx: Any) -> Any:
    """Let another thread have the processor: what one waits for may be what it keeps from running."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if sys.platform != "win32":  # where the name is not among those of the process
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), codegen
