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


def _spread(builder: Any, value: Any) -> Any:
    vector = ir.Constant(_lanes.vector, ir.Undefined)
    for lane in range(LANES):
        vector = builder.insert_element(vector, value, _INT32(lane))
    return vector


@intrinsic
def spread(typingctx: Any, value: Any) -> Any:
    """(value, value, value, value)."""
    return _lanes(types.float64), lambda _, builder, __, args: _spread(builder, args[0])


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


def _fma(builder: Any, kind: Any, x: Any, y: Any, z: Any) -> Any:
    signature = ir.FunctionType(kind.vector, [kind.vector] * 3)
    name = f"llvm.fmuladd.v{kind.count}{kind.name_of_one}"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [x, y, z])


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """X y + z, lane by lane, as a fused multiply-add if the processor has one."""
    return x(x, y, z), lambda _, builder, __, args: _fma(builder, x, *args)


def _totals(builder: Any, vectors: Any) -> Any:
    """Return (Σ a, Σ b, Σ c, Σ d) in float64 for four vectors: four sums over lanes by three vector additions."""

    def pick(x: Any, y: Any, lanes: list[int]) -> Any:
        return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(_INT32, LANES), lanes))

    def wide(x: Any) -> Any:  # adds the two halves of eight lanes
        if x.type.count == LANES:
            return x
        low, high = pick(x, x, [0, 1, 2, 3]), pick(x, x, [4, 5, 6, 7])
        return builder.fadd(_converted(builder, low, _lanes.vector), _converted(builder, high, _lanes.vector))

    def pairs(x: Any, y: Any) -> Any:  # (x0+x1, y0+y1, x2+x3, y2+y3)
        return builder.fadd(pick(x, y, [0, 4, 2, 6]), pick(x, y, [1, 5, 3, 7]))

    a, b, c, d = map(wide, vectors)
    ab, cd = pairs(a, b), pairs(c, d)
    return builder.fadd(pick(ab, cd, [0, 1, 4, 5]), pick(ab, cd, [2, 3, 6, 7]))


# Tuples of vectors, for the rows of a register block: Numba takes a millisecond for each statement that they replace ---------


def _zeros_of(count: int) -> Any:
    def repeated(typingctx: Any, zero: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return cgutils.pack_array(builder, [args[0]] * count)

        return types.UniTuple(zero, count)(zero), codegen

    return intrinsic(repeated)


four, ten, sixteen = map(_zeros_of, (4, 10, 16))
"""Tuples of so many copies of a vector."""


@intrinsic
def places_of_rows(typingctx: Any, base: Any, i: Any, last: Any, width: Any) -> Any:
    """Return the flat indices base + width·min(i + r, last) of four rows, r = 0 … 3."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        base, i, last, width = args
        return cgutils.pack_array(
            builder, [builder.add(base, builder.mul(width, row)) for row in _four_rows(builder, i, last)]
        )

    return types.UniTuple(types.intp, 4)(*[types.intp] * 4), codegen


@intrinsic
def places_of_chosen(typingctx: Any, indices: Any, begin: Any, i: Any, last: Any, width: Any) -> Any:
    """Return the flat indices width·indices[begin + min(i + r, last)] of four rows, r = 0 … 3."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, begin, i, last, width = args
        data = context.make_array(indices)(context, builder, args[0]).data
        rows = [builder.load(builder.gep(data, [builder.add(begin, row)])) for row in _four_rows(builder, i, last)]
        return cgutils.pack_array(builder, [builder.mul(width, row) for row in rows])

    return types.UniTuple(types.intp, 4)(indices, *[types.intp] * 4), codegen


def _four_rows(builder: Any, i: Any, last: Any) -> list[Any]:
    rows = [builder.add(i, i.type(r)) for r in range(4)]
    return [builder.select(builder.icmp_signed("<", last, row), last, row) for row in rows]


@intrinsic
def load_four(typingctx: Any, array: Any, places: Any, k: Any, like: Any) -> Any:
    """Load a vector at k from each of four rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stored = ir.VectorType(context.get_data_type(array.dtype), like.count)
        found = []
        for place in cgutils.unpack_tuple(builder, args[1]):
            at = _address(context, builder, array, args[0], builder.add(place, args[2]), stored)
            found.append(_converted(builder, builder.load(at, align=array.dtype.bitwidth // 8), like.vector))
        return cgutils.pack_array(builder, found)

    return types.UniTuple(like, 4)(array, places, types.intp, like), codegen


@intrinsic
def store_four(typingctx: Any, array: Any, places: Any, k: Any, vectors: Any) -> Any:
    """Store a vector at k to each of four rows."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        stored = ir.VectorType(context.get_data_type(array.dtype), vectors.dtype.count)
        given = (cgutils.unpack_tuple(builder, args[index]) for index in (1, 3))
        for place, vector in zip(*given, strict=True):
            at = _address(context, builder, array, args[0], builder.add(place, args[2]), stored)
            builder.store(_converted(builder, vector, stored), at, align=array.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, places, types.intp, vectors), codegen


@intrinsic
def add_products(typingctx: Any, x: Any, y: Any, sums: Any) -> Any:
    """Add the products of each of four vectors x with each of four vectors y to sixteen sums."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        xs, ys, found = (cgutils.unpack_tuple(builder, arg) for arg in args)
        kind = sums.dtype
        made = [_fma(builder, kind, xs[r], ys[c], found[4 * r + c]) for r in range(4) for c in range(4)]
        return cgutils.pack_array(builder, made)

    return sums(x, y, sums), codegen


@intrinsic
def add_own_products(typingctx: Any, x: Any, sums: Any) -> Any:
    """Add the products of four vectors with each other and themselves to ten sums."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        xs, found = (cgutils.unpack_tuple(builder, arg) for arg in args)
        pairs = [(r, c) for r in range(4) for c in range(r + 1)]
        made = [_fma(builder, sums.dtype, xs[r], xs[c], old) for (r, c), old in zip(pairs, found, strict=True)]
        return cgutils.pack_array(builder, made)

    return sums(x, sums), codegen


@intrinsic
def add_totals(typingctx: Any, G: Any, i: Any, j: Any, sums: Any) -> Any:
    """G[i + r, j + c] += the sum over lanes of the product of rows i + r and j + c; ten sums are those of a diagonal block."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(G)(context, builder, args[0])
        width = builder.extract_value(array.shape, 1)
        found = cgutils.unpack_tuple(builder, args[3])
        for r in range(4):
            if sums.count == 10:
                row = [found[max(r, c) * (max(r, c) + 1) // 2 + min(r, c)] for c in range(4)]
            else:
                row = found[4 * r : 4 * r + 4]
            place = builder.add(builder.mul(builder.add(args[1], args[1].type(r)), width), args[2])
            at = _address(context, builder, G, args[0], place, _lanes.vector)
            builder.store(builder.fadd(builder.load(at, align=8), _totals(builder, row)), at, align=8)
        return context.get_dummy_value()

    return types.void(G, types.intp, types.intp, sums), codegen


@intrinsic
def fma_four(typingctx: Any, x: Any, y: Any, sums: Any) -> Any:
    """Add the products of each of four vectors with the vector y to four sums."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        xs, found = (cgutils.unpack_tuple(builder, args[index]) for index in (0, 2))
        made = [_fma(builder, y, each, args[1], old) for each, old in zip(xs, found, strict=True)]
        return cgutils.pack_array(builder, made)

    return sums(x, y, sums), codegen


@intrinsic
def combined(typingctx: Any, x: Any, factors: Any, start: Any) -> Any:
    """Add the products of four vectors with their factors to a vector, one after the other."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        total = args[2]
        for each, factor in zip(*(cgutils.unpack_tuple(builder, arg) for arg in args[:2]), strict=True):
            total = _fma(builder, start, each, factor, total)
        return total

    return start(x, factors, start), codegen


@intrinsic
def four_totals(typingctx: Any, u: Any, v: Any) -> Any:
    """The sums over lanes of u + v, for four vectors each, as a tuple of numbers."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pairs = zip(*(cgutils.unpack_tuple(builder, arg) for arg in args), strict=True)
        found = _totals(builder, [builder.fadd(x, y) for x, y in pairs])
        each = [builder.extract_element(found, _INT32(lane)) for lane in range(LANES)]
        return cgutils.pack_array(builder, each)

    return types.UniTuple(types.float64, LANES)(u, v), codegen


@intrinsic
def spread_four(typingctx: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Four vectors, each of one number repeated."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return cgutils.pack_array(builder, [_spread(builder, arg) for arg in args])

    return types.UniTuple(_lanes, 4)(*[types.float64] * 4), codegen
