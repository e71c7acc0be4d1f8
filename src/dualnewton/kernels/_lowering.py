"""Translation of lean functions to LLVM's language in fewer instructions than Numba's.

Numba writes each access to an array, and each step of a loop, as dozens of instructions that LLVM removes again: stores of whole
array headers to the stack, branches for errors. Here entries of C-order arrays, constant places in tuples, sizes and shapes of
arrays, and loops over ranges are a few instructions each. They have the same meaning, except that the step of a range must not be
zero. All else is left to Numba.
"""

from __future__ import annotations

import operator
from functools import cache
from typing import Any

from llvmlite import binding as llvm
from numba.core import cgutils, types
from numba.core.lowering import Lower
from numba.np.arrayobj import fix_integer_index, load_item, store_item

POWERS = {operator.pow, operator.ipow}

ATTRIBUTES = {"size": "nitems", "shape": "shape"}
"""Attributes of arrays, and the fields of Numba's array headers that have them."""


def _is_tuple(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple)


def is_place(array: Any, index: Any) -> bool:
    """Whether these are the types of a C-order array and of as many integers as it has dimensions."""
    if not isinstance(array, types.Array) or array.layout != "C":
        return False
    places = tuple(index) if _is_tuple(index) else (index,)
    return array.ndim == len(places) and all(isinstance(place, types.Integer) for place in places)


class LeanLower(Lower):
    """Numba's translation of a function, with shorter code for arrays and loops."""

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Translate an expression."""
        found = None
        if self._is_range(expr):
            found = self._range(resty, expr)
        elif expr.op == "getiter" and isinstance(self.typeof(expr.value.name), types.RangeType):
            found = self._begin(resty, expr)
        elif expr.op == "iternext" and isinstance(self.typeof(expr.value.name), types.RangeIteratorType):
            found = self._next(resty, expr)
        elif expr.op in ("pair_first", "pair_second"):
            found = self.builder.extract_value(self.loadvar(expr.value.name), int(expr.op == "pair_second"))
        elif expr.op == "getattr" and expr.attr in ATTRIBUTES:
            kind = self.typeof(expr.value.name)
            if isinstance(kind, types.Array):
                found = self._field(kind, self.loadvar(expr.value.name), ATTRIBUTES[expr.attr])
        return super().lower_expr(resty, expr) if found is None else found

    def storevar(self, value: Any, name: str, argidx: Any = None) -> None:  # noqa: ARG002
        """Store a variable; Numba first loads its old value, whose references it counts."""
        if name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))

    def lower_block(self, block: Any) -> None:
        """Translate the statements of a block."""
        self.pre_block(block)
        for statement in block.body:
            self.loc = statement.loc
            self.lower_inst(statement)
        self.post_block(block)

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Translate an operation on two values. Numba first looks for one with a constant, which only powers have."""
        if op in POWERS:
            return super().lower_binop(resty, expr, op)
        signature = self.fndesc.calltypes[expr]
        values = [self._cast_var(*each) for each in zip((expr.lhs, expr.rhs), signature.args, strict=True)]
        typing = self.context.typing_context
        function = typing.resolve_value_type(op)
        if signature.args not in function._impl_keys:  # x += y of numbers is typed as another function
            function.get_call_type(typing, signature.args, {})
        found = self.context.get_function(function, signature)(self.builder, values)
        return self.context.cast(self.builder, found, signature.return_type, resty)

    # Arrays and tuples --------------------------------------------------------------------------------------------------

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """Translate value[index]."""
        kind, place = self.typeof(value.name), self.typeof(index.name)
        if _is_tuple(kind) and isinstance(place, types.IntegerLiteral):
            known = place.literal_value % len(kind)
            found = self.builder.extract_value(self.loadvar(value.name), known)
            return self.context.cast(self.builder, found, kind[known], resty)
        if (pointer := self._entry(value, index)) is None:
            return super().lower_getitem(resty, expr, value, index, signature)
        return self.context.cast(self.builder, load_item(self.context, self.builder, kind, pointer), kind.dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Translate target[index] = value."""
        if (pointer := self._entry(target_var, index_var)) is None:
            return super().lower_setitem(target_var, index_var, value_var, signature)
        kind = self.typeof(target_var.name)
        value = self.context.cast(self.builder, self.loadvar(value_var.name), self.typeof(value_var.name), kind.dtype)
        store_item(self.context, self.builder, kind, value, pointer)
        return None

    def _entry(self, array: Any, index: Any) -> Any:
        """Return the address of an entry of a C-order array, or None if this is not what is indexed."""
        kind, given = self.typeof(array.name), self.typeof(index.name)
        if not is_place(kind, given):
            return None
        places = tuple(given) if _is_tuple(given) else (given,)
        header, value = self.loadvar(array.name), self.loadvar(index.name)
        values = cgutils.unpack_tuple(self.builder, value) if _is_tuple(given) else [value]
        lengths = cgutils.unpack_tuple(self.builder, self._field(kind, header, "shape"))
        flat = None
        for place, number, length in zip(places, values, lengths, strict=True):
            own = self._index(place, number, length)
            flat = own if flat is None else self.builder.add(self.builder.mul(flat, length), own)
        return self.builder.gep(self._field(kind, header, "data"), [flat])

    def _index(self, kind: Any, number: Any, length: Any) -> Any:
        """Return an index; a negative one counts from the end."""
        if isinstance(kind, types.IntegerLiteral) and kind.literal_value >= 0:
            return self.context.get_constant(types.intp, kind.literal_value)
        return fix_integer_index(self.context, self.builder, types.unliteral(kind), number, length)

    def _field(self, kind: Any, header: Any, name: str) -> Any:
        return self.builder.extract_value(header, self.context.data_model_manager[kind].get_field_position(name))

    # Loops --------------------------------------------------------------------------------------------------------------

    def _is_range(self, expr: Any) -> bool:
        """Whether an expression is a call of ``range``."""
        function = self.typeof(expr.func.name) if getattr(expr, "op", None) == "call" else None
        return isinstance(function, types.Function) and function.typing_key is range

    def _range(self, kind: Any, expr: Any) -> Any:
        """Translate range(stop), range(start, stop) or range(start, stop, step)."""
        number = self.context.get_constant
        given = [self._cast_var(each, kind.dtype) for each in expr.args]
        start, stop = (number(kind.dtype, 0), *given) if len(given) == 1 else given[:2]
        return self._struct(kind, start, stop, given[2] if len(given) == 3 else number(kind.dtype, 1))

    def _begin(self, kind: Any, expr: Any) -> Any:
        """Translate iter(range): the next number and how many are left are on the stack."""
        builder, own = self.builder, self.typeof(expr.value.name)
        start, stop, step = cgutils.unpack_tuple(builder, self.loadvar(expr.value.name), 3)
        left = builder.sub(stop, start)
        definition = self.func_ir.get_definition(expr.value)
        if not self._is_range(definition) or len(definition.args) == 3:
            zero, one = (self.context.get_constant(own.dtype, k) for k in (0, 1))
            forward, positive = builder.icmp_signed(">", left, zero), builder.icmp_signed(">", step, zero)
            uneven = builder.icmp_signed("!=", builder.srem(left, step), zero)
            steps = builder.add(builder.sdiv(left, step), builder.select(uneven, one, zero))
            left = builder.select(builder.xor(forward, positive), zero, steps)
        places = [cgutils.alloca_once(builder, start.type) for _ in range(2)]
        for value, place in zip((start, left), places, strict=True):
            builder.store(value, place)
        return self._struct(kind, places[0], stop, step, places[1])

    def _next(self, kind: Any, expr: Any) -> Any:
        """Translate next(iterator): a number, and whether there was one."""
        builder, own = self.builder, self.typeof(expr.value.name)
        place, _, step, left_at = cgutils.unpack_tuple(builder, self.loadvar(expr.value.name), 4)
        number, left = builder.load(place), builder.load(left_at)
        zero, one = (self.context.get_constant(own.yield_type, k) for k in (0, 1))
        builder.store(builder.sub(left, one, flags=["nsw"]), left_at)
        builder.store(builder.add(number, step), place)
        return self._struct(kind, number, builder.icmp_signed(">", left, zero))

    def _struct(self, kind: Any, *values: Any) -> Any:
        found = self.context.get_constant_undef(kind)
        for k, value in enumerate(values):
            found = self.builder.insert_value(found, value, k)
        return found


# Functions that LLVM leaves as they are --------------------------------------------------------------------------------


def leave_as_is(function: Any) -> None:
    """Have LLVM not optimise a function."""
    function.add_function_attribute("noinline")  # the next one requires it
    function.add_function_attribute("optnone")


@cache
def marks_functions() -> bool:
    """Whether llvmlite adds attributes to functions; earlier versions add them to returned values, where they are not allowed."""
    module = llvm.parse_assembly("define void @empty() { ret void }")
    leave_as_is(module.get_function("empty"))
    try:
        module.verify()
    except RuntimeError:
        return False
    return True
