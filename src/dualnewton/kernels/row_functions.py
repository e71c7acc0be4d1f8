"""Functions of consecutive rows, compiled from the methods of a loss and called through their addresses.

A pass calls such a function once for each block of rows: the call costs nothing, and no kernel is compiled again for a loss.
Arrays are given by addresses, since each model of a pass has vectors of its own, some of which may be absent.

All have the parameters (m, z, y, c, o, slopes, kept, factors, sign), where the arrays have m entries and sign is 1 or −1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import carray, float64, intp, types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import get_cython_function_address, intrinsic

from dualnewton.kernels._jit import FASTMATH
from dualnewton.kernels.elementary import vectorised
from dualnewton.kernels.losses import fields_of
from dualnewton.losses import Loss
from dualnewton.losses.base import balancing_direction

_SIGNATURE = float64(intp, *[types.CPointer(float64)] * 7, float64)


class RowFunction(NamedTuple):
    """A compiled function, and its address, which is valid as long as the function exists."""

    function: Any
    address: int


def _compiled(function: Callable[..., float]) -> RowFunction:
    made = numba.cfunc(_SIGNATURE, fastmath=FASTMATH, error_model="numpy")(function)
    return RowFunction(made, int(made.address))  # type: ignore[arg-type]


def _of_loss(make: Callable[[Loss], RowFunction]) -> Callable[[Loss], RowFunction | None]:
    """Remember the functions of losses; None for a loss whose methods or fields cannot be compiled."""

    @lru_cache(maxsize=64)
    def made(loss: Loss) -> RowFunction | None:
        try:
            return make(loss)
        except (NumbaError, TypeError, ValueError):
            return None

    return made


@_of_loss
def losses_of(loss: Loss) -> RowFunction:
    """Return Σ c φ(z + o; y); write sign·φ′ to ``slopes`` and sign·cφ′ to ``factors``."""
    self, value, derivative = (
        fields_of(loss),
        *(vectorised(getattr(type(loss), name)) for name in ("value", "derivative")),
    )

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o = carray(z, m), carray(y, m), carray(c, m), carray(o, m)
        slopes, factors = carray(slopes, m), carray(factors, m)
        total = 0.0
        for i in range(m):
            slope = sign * derivative(self, z[i] + o[i], y[i])
            total += c[i] * value(self, z[i] + o[i], y[i])
            slopes[i] = slope
            factors[i] = c[i] * slope
        return total

    return _compiled(function)


@_of_loss
def direction_of(loss: Loss) -> RowFunction:
    """Given sign·φ′ in ``slopes``, write the balancing direction d to ``kept`` and cd to ``factors``."""
    if type(loss).balancing_direction is not Loss.balancing_direction:
        raise TypeError(f"{type(loss).__name__} has a direction of its own")
    self, second, domain = (
        fields_of(loss),
        *(vectorised(getattr(type(loss), name)) for name in ("second_derivative", "domain")),
    )
    direction = vectorised(balancing_direction)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o = carray(z, m), carray(y, m), carray(c, m), carray(o, m)
        slopes, kept, factors = carray(slopes, m), carray(kept, m), carray(factors, m)
        for i in range(m):
            low, high = domain(self, y[i])
            d = direction(sign * slopes[i], low, high, second(self, z[i] + o[i], y[i]))
            kept[i] = d
            factors[i] = c[i] * d
        return 0.0

    return _compiled(function)


@lru_cache(maxsize=1)
def weighted() -> RowFunction:
    """Write cz to ``factors``."""

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, c, factors = carray(z, m), carray(c, m), carray(factors, m)
        for i in range(m):
            factors[i] = c[i] * z[i]
        return 0.0

    return _compiled(function)


@lru_cache(maxsize=1)
def given() -> RowFunction:
    """Write c to ``factors``."""

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        c, factors = carray(c, m), carray(factors, m)
        for i in range(m):
            factors[i] = c[i]
        return 0.0

    return _compiled(function)


@intrinsic
def call(
    typingctx: Any,
    address: Any,
    m: Any,
    z: Any,
    y: Any,
    c: Any,
    o: Any,
    slopes: Any,
    kept: Any,
    factors: Any,
    sign: Any,
) -> Any:
    """Call the function of rows at an address, with the addresses of its arrays."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number, whole = context.get_value_type(float64), context.get_value_type(intp)
        kind = ir.FunctionType(number, [whole, *[number.as_pointer()] * 7, number])
        pointers = [builder.inttoptr(arg, number.as_pointer()) for arg in args[2:9]]
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), [args[1], *pointers, args[9]])

    return float64(*[intp] * 9, float64), codegen


@intrinsic
def call_gemm(
    typingctx: Any,
    address: Any,
    transposed: Any,
    m: Any,
    n: Any,
    k: Any,
    A: Any,
    lda: Any,
    B: Any,
    ldb: Any,
    beta: Any,
    C: Any,
    ldc: Any,
) -> Any:
    """C = op(A) B + beta C by the function dgemm of BLAS at an address; A, B and C are addresses of column-major matrices."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, transposed, m, n, k, A, lda, B, ldb, beta, C, ldc = args
        byte, number, small = ir.IntType(8), ir.DoubleType(), ir.IntType(32)

        def place(value: Any) -> Any:
            room = cgutils.alloca_once(builder, value.type)
            builder.store(value, room)
            return builder.bitcast(room, byte.as_pointer())

        def whole(value: Any) -> Any:
            return place(builder.trunc(value, small))

        letter = builder.select(
            builder.icmp_signed("!=", transposed, transposed.type(0)), byte(ord("T")), byte(ord("N"))
        )
        arrays = {name: builder.inttoptr(value, byte.as_pointer()) for name, value in (("A", A), ("B", B), ("C", C))}
        given = [
            place(letter),
            place(byte(ord("N"))),
            whole(m),
            whole(n),
            whole(k),
            place(number(1.0)),
            arrays["A"],
            whole(lda),
            arrays["B"],
            whole(ldb),
            place(beta),
            arrays["C"],
            whole(ldc),
        ]
        kind = ir.FunctionType(ir.VoidType(), [byte.as_pointer()] * len(given))
        builder.call(builder.inttoptr(address, kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(*[intp] * 9, float64, intp, intp), codegen


@lru_cache(maxsize=1)
def gemm_address() -> int:
    """Return the address of dgemm in SciPy's BLAS."""
    import scipy.linalg.cython_blas  # noqa: F401

    return int(get_cython_function_address("scipy.linalg.cython_blas", "dgemm"))
