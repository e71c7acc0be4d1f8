"""Vector registers of four float64 numbers as a Numba type, with explicit loads, stores and multiply-adds.

LLVM vectorises plain loops, but not loops with a prefetch or with several stores; the kernels with such loops use this type
instead.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES = 4
"""Numbers per vector: 256 bits."""

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


class _Lanes(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"float64x{LANES}")


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


_lanes = _Lanes()


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Return the address of the vector at a flat index of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), _VECTOR.as_pointer())


@intrinsic
def zeros(typingctx: Any) -> Any:
    """A vector of zeros."""
    return _lanes(), lambda *_: ir.Constant(_VECTOR, None)


@intrinsic
def spread(typingctx: Any, value: Any) -> Any:
    """(value, value, value, value)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.Constant(_VECTOR, ir.Undefined)
        for lane in range(LANES):
            vector = builder.insert_element(vector, args[0], ir.IntType(32)(lane))
        return vector

    return _lanes(types.float64), codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any) -> Any:
    """Load four numbers from a flat index of a contiguous array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *args), align=8)

    return _lanes(array, types.intp), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Store a vector to four numbers from a flat index of a contiguous array on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(context, builder, signature.args[0], *args[:2]), align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """X y + z, lane by lane, as a fused multiply-add if the processor has one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
        function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fmuladd.v{LANES}f64")
        return builder.call(function, args)

    return _lanes(x, y, z), codegen
