"""Functions of BLAS and LAPACK, called from kernels through their addresses.

They must use one thread, as in the context of ``matrix.blas.one_blas_thread``. Matrices are column-major.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, intp, types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic


@lru_cache(maxsize=16)
def blas_address(name: str) -> int:
    """Return the address of a function of SciPy's BLAS."""
    import scipy.linalg.cython_blas  # noqa: F401

    return int(get_cython_function_address("scipy.linalg.cython_blas", name))


@lru_cache(maxsize=16)
def lapack_address(name: str) -> int:
    """Return the address of a function of SciPy's LAPACK."""
    import scipy.linalg.cython_lapack  # noqa: F401

    return int(get_cython_function_address("scipy.linalg.cython_lapack", name))


def addresses(*names: str) -> np.ndarray:
    """Return the addresses of functions of LAPACK, as kernels take them."""
    return np.array([lapack_address(name) for name in names], dtype=np.intp)


def _call_blas(builder: Any, address: Any, arguments: Any) -> Any:
    """Call a function of BLAS; arrays and numbers are passed by address. Return its last argument, as it leaves it."""
    byte = ir.IntType(8).as_pointer()

    def place(value: Any) -> Any:
        room = cgutils.alloca_once(builder, value.type)
        builder.store(value, room)
        return builder.bitcast(room, byte)

    given = [each if each.type == byte else place(each) for each in arguments]
    kind = ir.FunctionType(ir.VoidType(), [byte] * len(given))
    builder.call(builder.inttoptr(address, kind.as_pointer()), given)
    return given[-1]


def _whole(builder: Any, value: Any) -> Any:
    return builder.trunc(value, ir.IntType(32))


def _array(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, ir.IntType(8).as_pointer())


def _letter(letter: str) -> Any:
    return ir.IntType(8)(ord(letter))


def _chosen(builder: Any, number: Any, letters: str = "TN") -> Any:
    """Return the first letter where the number is not zero, else the second."""
    return builder.select(builder.icmp_signed("!=", number, number.type(0)), *map(_letter, letters))


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
        letter, one = _chosen(builder, transposed), ir.DoubleType()(1.0)
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


# Tiles of a large factor ------------------------------------------------------------------------------------------------------


@intrinsic
def subtract_product(
    typingctx: Any, address: Any, m: Any, n: Any, k: Any, A: Any, lda: Any, B: Any, ldb: Any, C: Any, ldc: Any
) -> Any:
    """C −= A Bᵀ by dgemm, for A of m×k and B of n×k."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, m, n, k, A, lda, B, ldb, C, ldc = args
        m, n, k, lda, ldb, ldc = (_whole(builder, value) for value in (m, n, k, lda, ldb, ldc))
        A, B, C = (_array(builder, value) for value in (A, B, C))
        factors = ir.DoubleType()(-1.0), ir.DoubleType()(1.0)
        given = [_letter("N"), _letter("T"), m, n, k, factors[0], A, lda, B, ldb, factors[1], C, ldc]
        _call_blas(builder, address, given)
        return context.get_dummy_value()

    return types.void(*[intp] * 10), codegen


@intrinsic
def subtract_square(typingctx: Any, address: Any, n: Any, k: Any, A: Any, lda: Any, C: Any, ldc: Any) -> Any:
    """C −= A Aᵀ on and below the diagonal by dsyrk, for A of n×k."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, n, k, A, lda, C, ldc = args
        n, k, lda, ldc = (_whole(builder, value) for value in (n, k, lda, ldc))
        factors = ir.DoubleType()(-1.0), ir.DoubleType()(1.0)
        given = [
            _letter("L"),
            _letter("N"),
            n,
            k,
            factors[0],
            _array(builder, A),
            lda,
            factors[1],
            _array(builder, C),
            ldc,
        ]
        _call_blas(builder, address, given)
        return context.get_dummy_value()

    return types.void(*[intp] * 7), codegen


@intrinsic
def factorise(typingctx: Any, address: Any, upper: Any, n: Any, A: Any, lda: Any) -> Any:
    """A = its Cholesky factor, upper or lower, by dpotrf, or by dpotri the inverse of the matrix that has the factor A.

    Return zero if that was possible.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, upper, n, A, lda = args
        number = ir.IntType(32)
        given = [_chosen(builder, upper, "UL"), _whole(builder, n), _array(builder, A), _whole(builder, lda), number(0)]
        info = builder.load(builder.bitcast(_call_blas(builder, address, given), number.as_pointer()))
        return builder.sext(info, context.get_value_type(intp))

    return intp(*[intp] * 5), codegen


@intrinsic
def divide(typingctx: Any, address: Any, m: Any, n: Any, L: Any, ldl: Any, B: Any, ldb: Any) -> Any:
    """B = B L⁻ᵀ by dtrsm, for B of m×n and a lower triangle L."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, m, n, L, ldl, B, ldb = args
        m, n, ldl, ldb = (_whole(builder, value) for value in (m, n, ldl, ldb))
        letters, one = [_letter(letter) for letter in "RLTN"], ir.DoubleType()(1.0)
        _call_blas(builder, address, [*letters, m, n, one, _array(builder, L), ldl, _array(builder, B), ldb])
        return context.get_dummy_value()

    return types.void(*[intp] * 7), codegen


@intrinsic
def subtract_from_vector(
    typingctx: Any, address: Any, transposed: Any, m: Any, n: Any, A: Any, lda: Any, x: Any, y: Any
) -> Any:
    """Y −= op(A) x by dgemv, for A of m×n and contiguous vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, transposed, m, n, A, lda, x, y = args
        m, n, lda = (_whole(builder, value) for value in (m, n, lda))
        A, x, y = (_array(builder, value) for value in (A, x, y))
        one, factors = ir.IntType(32)(1), (ir.DoubleType()(-1.0), ir.DoubleType()(1.0))
        letter = _chosen(builder, transposed)
        _call_blas(builder, address, [letter, m, n, factors[0], A, lda, x, one, factors[1], y, one])
        return context.get_dummy_value()

    return types.void(*[intp] * 8), codegen


@intrinsic
def divide_vector(typingctx: Any, address: Any, transposed: Any, n: Any, L: Any, ldl: Any, x: Any) -> Any:
    """X = op(L)⁻¹ x by dtrsv, for a lower triangle L and a contiguous vector."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address, transposed, n, L, ldl, x = args
        letters = _letter("L"), _chosen(builder, transposed), _letter("N")
        whole = _whole(builder, n), _array(builder, L), _whole(builder, ldl)
        _call_blas(builder, address, [*letters, *whole, _array(builder, x), ir.IntType(32)(1)])
        return context.get_dummy_value()

    return types.void(*[intp] * 6), codegen
