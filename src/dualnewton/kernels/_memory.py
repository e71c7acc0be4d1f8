"""Arrays in lean functions: scratch memory, which is borrowed and given back, and views.

Numba's own (``np.empty``, slices, ``reshape``) count references, and compile functions for each combination of types.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_BYTE = ir.IntType(8).as_pointer()

LINE = 64
"""Bytes of a cache line, to which borrowed arrays are aligned: vectors that straddle two lines would take longer."""


def _described(context: Any, builder: Any, kind: Any, data: Any, lengths: Any, parent: Any = None) -> Any:
    """Return the array of a C-order type with these data and lengths; ``parent`` is the memory to be freed."""
    width = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [context.get_constant(types.intp, width)]
    for length in lengths[:0:-1]:
        strides.insert(0, builder.mul(strides[0], length))
    made = context.make_array(kind)(context, builder)
    populate_array(made, data=data, shape=lengths, strides=strides, itemsize=strides[-1], meminfo=None, parent=parent)
    return made._getvalue()


def _lengths(context: Any, builder: Any, shape: Any, given: Any) -> list[Any]:
    """Return the lengths in a shape, which is a number or a tuple of numbers."""
    values = cgutils.unpack_tuple(builder, given) if isinstance(shape, types.BaseTuple) else [given]
    kinds = getattr(shape, "types", (shape,))
    return [context.cast(builder, value, kind, types.intp) for value, kind in zip(values, kinds, strict=True)]


def _of_shape(dtype: Any, shape: Any) -> Any:
    return types.Array(dtype, len(getattr(shape, "types", (shape,))), "C")


@intrinsic
def array_at(typingctx: Any, pointer: Any, shape: Any) -> Any:
    """Return the C-order array of a shape at a pointer; ``carray`` is the same, by a function that is compiled for it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _described(context, builder, signature.return_type, args[0], _lengths(context, builder, shape, args[1]))

    return _of_shape(pointer.dtype, shape)(pointer, shape), codegen


@intrinsic
def borrowed(typingctx: Any, shape: Any, like: Any) -> Any:
    """Return an uninitialised C-order array with entries of the type of ``like``, an array or a number; see :func:`give_back`."""
    dtype = like.dtype if isinstance(like, types.Array) else types.unliteral(like)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        lengths, number = _lengths(context, builder, shape, args[0]), context.get_value_type(types.intp)
        size = number(context.get_abi_sizeof(context.get_data_type(dtype)))
        for length in lengths:
            size = builder.mul(size, length)
        malloc = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_BYTE, [number]), "PyMem_RawMalloc")
        found = builder.call(malloc, [builder.add(size, number(LINE))])
        with builder.if_then(cgutils.is_null(builder, found), likely=False):
            context.call_conv.return_user_exc(builder, MemoryError, ("no memory for a kernel",))
        first = builder.and_(builder.add(builder.ptrtoint(found, number), number(LINE - 1)), number(-LINE))
        data = builder.inttoptr(first, context.get_data_type(dtype).as_pointer())
        return _described(context, builder, signature.return_type, data, lengths, found)

    return _of_shape(dtype, shape)(shape, like), codegen


@intrinsic
def give_back(typingctx: Any, array: Any) -> Any:
    """Free a borrowed array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        memory = context.make_array(array)(context, builder, args[0]).parent
        free = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [_BYTE]), "PyMem_RawFree")
        builder.call(free, [builder.bitcast(memory, _BYTE)])
        return context.get_dummy_value()

    return types.void(array), codegen


@intrinsic
def view(typingctx: Any, array: Any, first: Any, count: Any) -> Any:
    """Return consecutive entries of a C-order array from the flat index ``first`` on; ``count`` is their number or a shape."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        lengths = _lengths(context, builder, count, args[2])
        return _described(context, builder, signature.return_type, builder.gep(data, [args[1]]), lengths)

    kind = types.Array(array.dtype, _of_shape(array.dtype, count).ndim, "C", readonly=not array.mutable)
    return kind(array, types.intp, count), codegen


@intrinsic
def address(typingctx: Any, array: Any) -> Any:
    """Return the address of the first entry of an array, as a number."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        return builder.ptrtoint(data, context.get_value_type(types.intp))

    return types.intp(array), codegen
