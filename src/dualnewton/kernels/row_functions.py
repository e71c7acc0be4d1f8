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
import numpy as np
from llvmlite import ir
from numba import carray, float64, intp, types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.extending import get_cython_function_address, intrinsic, overload

from dualnewton.kernels._jit import FASTMATH
from dualnewton.kernels.elementary import vectorised
from dualnewton.kernels.losses import fields_of, kind_of
from dualnewton.losses import Loss
from dualnewton.losses.base import balancing_direction

_SIGNATURE = float64(intp, *[types.CPointer(float64)] * 7, float64)


class RowFunction(NamedTuple):
    """A compiled function, and its address, which is valid as long as the function exists."""

    function: Any
    address: int


def _compiled(function: Callable[..., float], loss: Loss | None = None) -> RowFunction:
    """Compile a function, or load it from the cache on disk unless it is made of a user's loss."""
    cache = loss is None or type(loss).__module__.startswith("dualnewton.")
    made = numba.cfunc(_SIGNATURE, cache=cache, fastmath=FASTMATH, error_model="numpy")(function)
    return RowFunction(made, int(made.address))  # type: ignore[arg-type]


def _of_loss(make: Callable[[Loss], RowFunction]) -> Callable[[Loss], RowFunction | None]:
    """Remember the functions of losses; None for a loss whose methods or fields cannot be compiled."""

    @lru_cache(maxsize=64)
    def made(loss: Loss) -> RowFunction | None:
        try:
            return make(loss) if loss.columns == 1 else None
        except (NumbaError, TypeError, ValueError):
            return None

    return made


# The methods of a loss, which Numba finds by the type of its fields ------------------------------------------------------------


def _method(name: str) -> Any:
    def method(self: Any, z: float, y: float) -> Any:
        raise NotImplementedError("for compiled code")

    @overload(method, jit_options={"fastmath": FASTMATH, "error_model": "numpy", "forceinline": True})
    def of_loss(self, z, y):
        own = vectorised(getattr(kind_of(self), name))
        if name == "domain":
            return lambda self, z, y: own(self, y)  # noqa: ARG005
        return lambda self, z, y: own(self, z, y)

    return method


_value, _derivative, _second_derivative = _method("value"), _method("derivative"), _method("second_derivative")
_conjugate_inside, _domain = _method("conjugate_inside"), _method("domain")
_direction = vectorised(balancing_direction)


# Functions of rows ----------------------------------------------------------------------------------------------------------


@_of_loss
def losses_of(loss: Loss) -> RowFunction:
    """Return Σ c φ(z + o; y); write sign·φ′ to ``slopes`` and sign·cφ′ to ``factors``."""
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o = carray(z, m), carray(y, m), carray(c, m), carray(o, m)
        slopes, factors = carray(slopes, m), carray(factors, m)
        total = 0.0
        for i in range(m):
            slope = sign * _derivative(self, z[i] + o[i], y[i])
            total += c[i] * _value(self, z[i] + o[i], y[i])
            slopes[i] = slope
            factors[i] = c[i] * slope
        return total

    return _compiled(function, loss)


@_of_loss
def direction_of(loss: Loss) -> RowFunction:
    """Given sign·φ′ in ``slopes``, write the balancing direction d to ``kept`` and cd to ``factors``."""
    if type(loss).balancing_direction is not Loss.balancing_direction:
        raise TypeError(f"{type(loss).__name__} has a direction of its own")
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o = carray(z, m), carray(y, m), carray(c, m), carray(o, m)
        slopes, kept, factors = carray(slopes, m), carray(kept, m), carray(factors, m)
        for i in range(m):
            low, high = _domain(self, z[i], y[i])
            d = _direction(sign * slopes[i], low, high, _second_derivative(self, z[i] + o[i], y[i]))
            kept[i] = d
            factors[i] = c[i] * d
        return 0.0

    return _compiled(function, loss)


@_of_loss
def curvature_of(loss: Loss) -> RowFunction:
    """Write cφ″(z + o; y) to ``factors``."""
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o, factors = carray(z, m), carray(y, m), carray(c, m), carray(o, m), carray(factors, m)
        for i in range(m):
            factors[i] = c[i] * _second_derivative(self, z[i] + o[i], y[i])
        return 0.0

    return _compiled(function, loss)


@_of_loss
def conjugates_of(loss: Loss) -> RowFunction:
    """Return Σ c φ*(−z; y) for a dual point z; a row of weight zero contributes zero even where its φ* is infinite."""
    if type(loss).conjugate is not Loss.conjugate or type(loss).conjugates is not Loss.conjugates:
        raise TypeError(f"{type(loss).__name__} has conjugates of its own")
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c = carray(z, m), carray(y, m), carray(c, m)
        total = outside = 0.0
        for i in range(m):
            low, high = _domain(self, z[i], y[i])
            inside = min(max(-z[i], low), high)
            total += c[i] * _conjugate_inside(self, inside, y[i]) if c[i] > 0.0 else 0.0
            outside += c[i] if inside != -z[i] else 0.0  # NaN is outside, too
        return total if outside == 0.0 else np.inf

    return _compiled(function, loss)


@_of_loss
def slope_of(loss: Loss) -> RowFunction:
    """Return Σ c φ′(z + o + sign·kept; y) kept: the derivative of the sum of losses along a line."""
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, o, way = carray(z, m), carray(y, m), carray(c, m), carray(o, m), carray(kept, m)
        total = 0.0
        for i in range(m):
            total += c[i] * _derivative(self, z[i] + o[i] + sign * way[i], y[i]) * way[i]
        return total

    return _compiled(function, loss)


@_of_loss
def intercept_slopes_of(loss: Loss) -> RowFunction:
    """Write Σ cφ′, Σ cφ″ and Σ c|φ′| at the margins z + sign to the first three places of ``kept``."""
    if type(loss).best_intercept is not Loss.best_intercept:
        raise TypeError(f"{type(loss).__name__} finds its intercept otherwise")
    self = fields_of(loss)

    def function(m, z, y, c, o, slopes, kept, factors, sign):
        z, y, c, kept = carray(z, m), carray(y, m), carray(c, m), carray(kept, 3)
        value = curvature = terms = 0.0
        for i in range(m):
            slope = c[i] * _derivative(self, z[i] + sign, y[i])
            curvature += c[i] * _second_derivative(self, z[i] + sign, y[i])
            value += slope
            terms += abs(slope)
        kept[0], kept[1], kept[2] = value, curvature, terms
        return value

    return _compiled(function, loss)


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


def _call_blas(builder: Any, address: Any, arguments: Any) -> None:
    """Call a function of BLAS with arrays by address and numbers, which it takes by address, too."""
    byte = ir.IntType(8).as_pointer()

    def place(value: Any) -> Any:
        room = cgutils.alloca_once(builder, value.type)
        builder.store(value, room)
        return builder.bitcast(room, byte)

    given = [each if each.type == byte else place(each) for each in arguments]
    kind = ir.FunctionType(ir.VoidType(), [byte] * len(given))
    builder.call(builder.inttoptr(address, kind.as_pointer()), given)


def _whole(builder: Any, value: Any) -> Any:
    return builder.trunc(value, ir.IntType(32))


def _array(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


def _letter(letter: str) -> Any:
    return ir.IntType(8)(ord(letter))


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
        m, n, k, lda, ldb, ldc = (_whole(builder, value) for value in (m, n, k, lda, ldb, ldc))
        A, B, C = (_array(builder, value) for value in (A, B, C))
        is_transposed = builder.icmp_signed("!=", transposed, transposed.type(0))
        letter, one = builder.select(is_transposed, _letter("T"), _letter("N")), ir.DoubleType()(1.0)
        _call_blas(builder, address, [letter, _letter("N"), m, n, k, one, A, lda, B, ldb, beta, C, ldc])
        return context.get_dummy_value()

    return types.void(*[intp] * 9, float64, intp, intp), codegen


@intrinsic
def call_syrk(typingctx: Any, address: Any, n: Any, k: Any, alpha: Any, A: Any, beta: Any, C: Any, like: Any) -> Any:
    """C = alpha A Aᵀ + beta C on and below the diagonal, by dsyrk or ssyrk, whichever is at the address for the type of ``like``.

    A and C are addresses of column-major matrices, of n×k and n×n.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, n, k, alpha, A, beta, C, _ = args
        if like.dtype.bitwidth == 32:
            alpha, beta = (builder.fptrunc(value, ir.FloatType()) for value in (alpha, beta))
        n, k, A, C = _whole(builder, n), _whole(builder, k), _array(builder, A), _array(builder, C)
        _call_blas(builder, address, [_letter("L"), _letter("N"), n, k, alpha, A, n, beta, C, n])
        return context.get_dummy_value()

    return types.void(intp, intp, intp, float64, intp, float64, intp, like), codegen


@lru_cache(maxsize=8)
def blas_address(name: str) -> int:
    """Return the address of a function of SciPy's BLAS."""
    import scipy.linalg.cython_blas  # noqa: F401

    return int(get_cython_function_address("scipy.linalg.cython_blas", name))
