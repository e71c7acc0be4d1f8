"""Vector registers of four float64 or eight float32 numbers as Numba types, with explicit loads, stores and multiply-adds.

LLVM vectorises plain loops, but not loops with a prefetch or with several stores; the kernels with such loops use these types
instead. On an AVX-512 machine (AMD Zen 4) Gram blocks of 16 and 32 rows took 5 % less time with four float64 lanes than with
eight, blocks of 4 rows 5 % more.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, models, register_model

LANES, NARROW_LANES = 4, 8
"""Numbers per vector: float64, float32. Both fill 256 bits."""

_INT32 = ir.IntType(32)


class _Lanes(types.Type):
    def __init__(self, name: str, number: Any, count: int) -> None:
        super().__init__(name=f"{name}x{count}")
        self.name_of_one, self.count, self.vector = f"f{name[-2:]}", count, ir.VectorType(number, count)


@register_model(_Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.vector)


_lanes, _narrow = _Lanes("float64", ir.DoubleType(), LANES), _Lanes("float32", ir.FloatType(), NARROW_LANES)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any, kind: Any) -> Any:
    """Return the address of the element at a flat index of a contiguous array, as a pointer to ``kind``."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.bitcast(builder.gep(data, [index]), kind.as_pointer())


@intrinsic
def fetch_to_l2(typingctx: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of a flat index of an array into the second-level cache; it cannot fault, even past the end.

    Prefetching the next set of rows into the first level would evict the current set, which cost a quarter more time.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8)
        place = _address(context, builder, signature.args[0], args[0], args[1], byte)
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), _INT32, _INT32, _INT32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
        # Arguments: 0 = read access, 2 = keep from the second cache level on, 1 = data cache.
        builder.call(function, [place, _INT32(0), _INT32(2), _INT32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), codegen


def _converted(builder: Any, vector: Any, kind: Any) -> Any:
    """Convert a vector to another element type with the same number of lanes."""
    if vector.type == kind:
        return vector
    widens = kind.element == ir.DoubleType()
    return builder.fpext(vector, kind) if widens else builder.fptrunc(vector, kind)


@intrinsic
def zeros(typingctx: Any) -> Any:
    """A vector of four float64 zeros."""
    return _lanes(), lambda *_: ir.Constant(_lanes.vector, None)


@intrinsic
def narrow_zeros(typingctx: Any) -> Any:
    """A vector of eight float32 zeros."""
    return _narrow(), lambda *_: ir.Constant(_narrow.vector, None)


@intrinsic
def lanes_of(typingctx: Any, vector: Any) -> Any:
    """The number of lanes of a vector."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.get_constant(types.intp, vector.count)

    return types.intp(vector), codegen


@intrinsic
def spread(typingctx: Any, value: Any) -> Any:
    """(value, value, value, value)."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector = ir.Constant(_lanes.vector, ir.Undefined)
        for lane in range(LANES):
            vector = builder.insert_element(vector, args[0], _INT32(lane))
        return vector

    return _lanes(types.float64), codegen


@intrinsic
def load(typingctx: Any, array: Any, index: Any, like: Any) -> Any:
    """Load consecutive elements from a flat index of a contiguous array, with the number and type of lanes of ``like``."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        stored = ir.VectorType(context.get_data_type(array_type.dtype), like.count)
        place = _address(context, builder, array_type, args[0], args[1], stored)
        vector = builder.load(place, align=array_type.dtype.bitwidth // 8)
        return _converted(builder, vector, like.vector)

    return like(array, types.intp, like), codegen


@intrinsic
def store(typingctx: Any, array: Any, index: Any, vector: Any) -> Any:
    """Store a vector to consecutive elements from a flat index of a contiguous array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array_type = signature.args[0]
        stored = ir.VectorType(context.get_data_type(array_type.dtype), vector.count)
        place = _address(context, builder, array_type, args[0], args[1], stored)
        builder.store(_converted(builder, args[2], stored), place, align=array_type.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, types.intp, vector), codegen


@intrinsic
def add(typingctx: Any, x: Any, y: Any) -> Any:
    """X + y, lane by lane."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.fadd(*args)

    return x(x, y), codegen


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """X y + z, lane by lane, as a fused multiply-add if the processor has one."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(x.vector, [x.vector] * 3)
        name = f"llvm.fmuladd.v{x.count}{x.name_of_one}"
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args)

    return x(x, y, z), codegen


@intrinsic
def totals(typingctx: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """(Σ a, Σ b, Σ c, Σ d) in float64: four sums over lanes by three vector additions."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def pick(x: Any, y: Any, lanes: list[int]) -> Any:
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT32, LANES), lanes))

        def wide(x: Any) -> Any:  # adds the two halves of eight lanes
            if a.count == LANES:
                return x
            low, high = pick(x, x, [0, 1, 2, 3]), pick(x, x, [4, 5, 6, 7])
            return builder.fadd(_converted(builder, low, _lanes.vector), _converted(builder, high, _lanes.vector))

        def pairs(x: Any, y: Any) -> Any:  # (x0+x1, y0+y1, x2+x3, y2+y3)
            return builder.fadd(pick(x, y, [0, 4, 2, 6]), pick(x, y, [1, 5, 3, 7]))

        a4, b4, c4, d4 = map(wide, args)
        ab, cd = pairs(a4, b4), pairs(c4, d4)
        return builder.fadd(pick(ab, cd, [0, 1, 4, 5]), pick(ab, cd, [2, 3, 6, 7]))

    return _lanes(a, b, c, d), codegen


@intrinsic
def numbers(typingctx: Any, vector: Any) -> Any:
    """The four numbers of a float64 vector, as a tuple."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        each = [builder.extract_element(args[0], _INT32(lane)) for lane in range(LANES)]
        return context.make_tuple(builder, signature.return_type, each)

    return types.UniTuple(types.float64, LANES)(vector), codegen
