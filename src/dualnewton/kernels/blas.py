"""Functions of BLAS and LAPACK, called from kernels through their addresses.

They must use one thread, as in the context of ``matrix.blas.one_blas_thread``. Matrices are column-major.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import float64, intp, types
from numba.core import cgutils
from numba.extending import get_cython_function_address

from dualnewton.kernels._jit import emitted

_WHOLE, _BYTES = ir.IntType(32), ir.IntType(8).as_pointer()


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


def _passed(builder: Any, word: str, given: Iterator[Any]) -> Any:
    """Return an argument of a function of BLAS, given those of the call that are left."""
    if "|" in word:
        number = next(given)
        return builder.select(builder.icmp_signed("!=", number, number.type(0)), *map(_letter, word.split("|")))
    if word == "whole":
        return builder.trunc(next(given), _WHOLE)
    if word == "array":
        return builder.inttoptr(next(given), _BYTES)
    if word in ("real", "single"):
        return next(given) if word == "real" else builder.fptrunc(next(given), ir.FloatType())
    if word.isalpha():
        return _letter(word)
    return ir.DoubleType()(float(word)) if "." in word else _WHOLE(int(word))


def _letter(letter: str) -> Any:
    return ir.IntType(8)(ord(letter))


def _routine(arguments: str, *, fails: bool = False) -> Any:
    """Return the call of a function of BLAS or LAPACK at an address, in kernels.

    ``arguments`` are those of the function, in order: letters and numbers that are always the same; ``T|N`` for a letter that is
    the first of these if a number is not zero, else the second; ``whole``, ``real`` and ``single`` for integers and numbers in
    float64 and float32; ``array`` for the address of an array. The call takes the address of the function and those that are not
    always the same. With ``fails``, the function has a last argument, zero unless it failed, which the call returns.
    """
    words = arguments.split()
    open_ones = [word for word in words if "|" in word or word in ("whole", "array", "real", "single")]
    kinds = [float64 if word in ("real", "single") else intp for word in open_ones]

    def codegen(context: Any, builder: Any, _: Any, args: Any) -> Any:
        left = iter(args[1:])
        values = [_passed(builder, word, left) for word in words] + [_WHOLE(0)] * fails
        # Arrays and numbers are passed by address.
        places = [each if each.type == _BYTES else cgutils.alloca_once_value(builder, each) for each in values]
        kind = ir.FunctionType(ir.VoidType(), [_BYTES] * len(places))
        builder.call(builder.inttoptr(args[0], kind.as_pointer()), [builder.bitcast(place, _BYTES) for place in places])
        if not fails:
            return context.get_dummy_value()
        return builder.sext(builder.load(places[-1]), context.get_value_type(intp))

    return emitted((intp if fails else types.void)(intp, *kinds), codegen)


call_gemm = _routine("T|N N whole whole whole 1.0 array whole array whole real array whole")
"""C = op(A) B + beta C by dgemm: (address, transposed, m, n, k, A, lda, B, ldb, beta, C, ldc)."""

call_syrk = _routine("L N whole whole real array whole real array whole")
"""C = alpha A Aᵀ + beta C on and below the diagonal by dsyrk, for A of n×k: (address, n, k, alpha, A, lda, beta, C, ldc)."""

call_single_syrk = _routine("L N whole whole single array whole single array whole")
"""The same by ssyrk, for arrays of float32."""

factorise = _routine("U|L whole array whole", fails=True)
"""A = its Cholesky factor, upper or lower, by dpotrf, or by dpotri the inverse of the matrix that has the factor A: (address,
upper, n, A, lda). It returns zero if that was possible."""

# Tiles of a large factor ------------------------------------------------------------------------------------------------------

subtract_product = _routine("N T whole whole whole -1.0 array whole array whole 1.0 array whole")
"""C −= A Bᵀ by dgemm, for A of m×k and B of n×k: (address, m, n, k, A, lda, B, ldb, C, ldc)."""

subtract_square = _routine("L N whole whole -1.0 array whole 1.0 array whole")
"""C −= A Aᵀ on and below the diagonal by dsyrk, for A of n×k: (address, n, k, A, lda, C, ldc)."""

divide = _routine("R L T N whole whole 1.0 array whole array whole")
"""B = B L⁻ᵀ by dtrsm, for B of m×n and a lower triangle L: (address, m, n, L, ldl, B, ldb)."""

subtract_from_vector = _routine("T|N whole whole -1.0 array whole array 1 1.0 array 1")
"""y −= op(A) x by dgemv, for A of m×n and contiguous vectors: (address, transposed, m, n, A, lda, x, y)."""

divide_vector = _routine("L T|N N whole array whole array 1")
"""x = op(L)⁻¹ x by dtrsv, for a lower triangle L and a contiguous vector: (address, transposed, n, L, ldl, x)."""
