"""The three operations of SDNA's rounds on the rows of a set, compiled once per storage and called through their addresses.

The rounds (:mod:`dualnewton.kernels.blocks`) are thus compiled once for all storages and types of data; a set of rows costs three
calls, of a few nanoseconds each. The functions are

    grams(..., slot, first, last, horizon, indices, starts, out, limit)
        gather the rows of the sets first, …, last-1 if dense and write their Gram blocks to ``out``
    margins(..., slot, place, S, w, out)
        out[i, k] = a_iᵀw_k for the rows of a set S
    update(..., slot, place, S, h, w_bar, w, limits, gradient)
        w̄_k += Σ h_ik a_i, and w_k = ∇g*(w̄_k) (:func:`dualnewton.kernels.rows.follow`)

and each begins with the arguments data, columns, row_starts, gathered, stored: pointers to the arrays of
:class:`~dualnewton.kernels.rows.Rows` and to the gathered rows, and the array that has these addresses and the shapes
(:func:`described`). ``slot`` and ``place`` say where the gathered rows of a set are.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import float64, int64, intp, types, uintp
from numba.extending import intrinsic

from dualnewton.kernels import rows as row
from dualnewton.kernels._compiler import address_of, call_address, compiled_for
from dualnewton.kernels._jit import address_function, lean
from dualnewton.kernels._memory import array_at
from dualnewton.kernels.gram import gather_and_gram
from dualnewton.kernels.rows import Rows
from dualnewton.kernels.thin import block_margins, block_update, margins_of_model, update_of_model

POINTERS = 4
"""Number of addresses at the beginning of ``stored``."""

N, FEATURES, ENTRIES, SLOTS, SETS, SIZE, WIDTH = range(POINTERS, POINTERS + 7)
"""Positions in ``stored``: n, d, the number of stored entries, and the shape of the gathered rows."""

VECTOR, MATRIX, INDICES = float64[::1], float64[:, ::1], int64[::1]
AT = INDICES, intp, intp  # stored, slot, place
GRAMS = (INDICES, intp, intp, intp, intp, INDICES, INDICES, float64[:, :, ::1], float64)
MARGINS = (*AT, INDICES, MATRIX, MATRIX)
UPDATE = (*AT, INDICES, MATRIX, MATRIX, MATRIX, MATRIX, uintp[::1])
"""Types of the arguments of the three functions, after the pointers."""


class SetFunctions(NamedTuple):
    """The addresses of the functions of one storage, as the rounds take them."""

    grams: np.uintp
    margins: np.uintp
    update: np.uintp


def described(rows: Rows, d: int, gathered: np.ndarray) -> np.ndarray:
    """Return the addresses and the shapes of the stored rows and of the array for gathered rows, as one integer array."""
    arrays = [*rows, gathered]
    shape = rows.data.shape[0] if rows.data.ndim == 2 else rows.starts.size - 1, d, rows.data.size, *gathered.shape
    return np.array([array.ctypes.data for array in arrays] + list(shape), dtype=np.int64)


def functions_for(rows: Rows, gathered: np.ndarray, models: int) -> SetFunctions:
    """Compile the functions for the storage of these rows and the number of models, or load them."""
    is_dense = rows.data.ndim == 2
    indices = [None, None] if is_dense else [rows.columns.dtype, rows.starts.dtype]
    return _compiled(is_dense and models == 1, rows.data.dtype, *indices, gathered.dtype)


@lru_cache(maxsize=32)
def _compiled(alone: bool, *dtypes: np.dtype[Any] | None) -> SetFunctions:
    """Compile the functions for these types; ``alone`` says that there is one model on dense rows."""
    pointers = [types.voidptr if dtype is None else types.CPointer(numba.from_dtype(dtype)) for dtype in dtypes]
    functions = _SPARSE if dtypes[1] else _ALONE if alone else _DENSE
    made = [compiled_for(f, (*pointers, *kinds)) for f, kinds in zip(functions, (GRAMS, MARGINS, UPDATE), strict=True)]
    return SetFunctions(*(np.uintp(address_of(each)) for each in made))


# Dense rows ----------------------------------------------------------------------------------------------------------------


@lean
def _shape(stored):
    """Return the shape of the array for gathered rows."""
    return stored[SLOTS], stored[SETS], stored[SIZE], stored[WIDTH]


@address_function
def _dense_grams(
    data, columns, row_starts, gathered, stored, slot, first, last, horizon, indices, starts, out, limit
):  # fmt: skip
    A, buffer = array_at(data, (stored[N], stored[FEATURES])), array_at(gathered, _shape(stored))
    gather_and_gram(A, indices, starts, first, last, buffer[slot], out, horizon, limit)


@address_function
def _dense_margins(data, columns, row_starts, gathered, stored, slot, place, S, w, out):
    block_margins(array_at(gathered, _shape(stored))[slot, place], S.size, w, out)


@address_function
def _dense_update(
    data, columns, row_starts, gathered, stored, slot, place, S, h, w_bar, w, limits, gradient
):  # fmt: skip
    A = array_at(data, (stored[N], stored[FEATURES]))
    block_update(array_at(gathered, _shape(stored))[slot, place], S.size, h, w_bar)
    for k in range(w.shape[0]):
        row.follow(A, columns, row_starts, S, 0, S.size, w_bar[k], w[k], limits, gradient)


@address_function
def _alone_margins(data, columns, row_starts, gathered, stored, slot, place, S, w, out):
    margins_of_model(array_at(gathered, _shape(stored))[slot, place], S.size, w, out)


@address_function
def _alone_update(
    data, columns, row_starts, gathered, stored, slot, place, S, h, w_bar, w, limits, gradient
):  # fmt: skip
    A = array_at(data, (stored[N], stored[FEATURES]))
    update_of_model(array_at(gathered, _shape(stored))[slot, place], S.size, h, w_bar)
    row.follow(A, columns, row_starts, S, 0, S.size, w_bar[0], w[0], limits, gradient)


# CSR rows: the array for gathered rows has one dense row per slot, zero between uses --------------------------------------------


@address_function
def _sparse_grams(
    data, columns, row_starts, gathered, stored, slot, first, last, horizon, indices, starts, out, limit
):  # fmt: skip
    values, places = array_at(data, stored[ENTRIES]), array_at(columns, stored[ENTRIES])
    begins = array_at(row_starts, stored[N] + 1)
    spread = array_at(gathered, _shape(stored))[slot, 0, 0]
    for s in range(first, last):
        S = indices[starts[s] : starts[s + 1]]
        G = out[s - first]
        for i in range(S.size):
            if i + 1 < S.size:
                row.fetch(values, places, begins, S[i + 1])
            row.spread(values, places, begins, S[i], 1.0, spread)
            for j in range(i, S.size):
                G[i, j] = row.dot(values, places, begins, S[j], spread)
                G[j, i] = G[i, j]
            row.spread(values, places, begins, S[i], 0.0, spread)


@address_function
def _sparse_margins(data, columns, row_starts, gathered, stored, slot, place, S, w, out):
    values, places = array_at(data, stored[ENTRIES]), array_at(columns, stored[ENTRIES])
    begins = array_at(row_starts, stored[N] + 1)
    for k in range(w.shape[0]):
        for i in range(S.size):
            out[i, k] = row.dot(values, places, begins, S[i], w[k])


@address_function
def _sparse_update(
    data, columns, row_starts, gathered, stored, slot, place, S, h, w_bar, w, limits, gradient
):  # fmt: skip
    values, places = array_at(data, stored[ENTRIES]), array_at(columns, stored[ENTRIES])
    begins = array_at(row_starts, stored[N] + 1)
    for k in range(w.shape[0]):
        for i in range(S.size):
            row.add(values, places, begins, S[i], h[i, k], w_bar[k])
        row.follow(values, places, begins, S, 0, S.size, w_bar[k], w[k], limits, gradient)


_DENSE = _dense_grams, _dense_margins, _dense_update
_ALONE = _dense_grams, _alone_margins, _alone_update
_SPARSE = _sparse_grams, _sparse_margins, _sparse_update


# Calls ------------------------------------------------------------------------------------------------------------------------


def _call(kinds: Any, *given: Any) -> Any:
    """Return the types and the code of a call: the address, ``stored``, from which the pointers are read, and the rest.

    Arrays may be read-only, since the function that is called writes to its outputs alone, and both types have one layout.
    """
    signature = types.void(*[types.voidptr] * POINTERS, *kinds)

    def codegen(context: Any, builder: Any, called: Any, args: Any) -> Any:
        stored = context.make_array(called.args[1])(context, builder, args[1])
        kind = context.get_value_type(types.voidptr)
        pointers = [
            builder.inttoptr(builder.load(builder.gep(stored.data, [context.get_constant(intp, k)])), kind)
            for k in range(POINTERS)
        ]
        call_address(context, builder, args[0], signature, [*pointers, *args[1:]])
        return context.get_dummy_value()

    taken = [own if isinstance(own, types.Array) else kind for own, kind in zip(given, kinds, strict=True)]
    return types.void(uintp, *taken), codegen


@intrinsic
def grams(
    typingctx: Any, address: Any, stored: Any, slot: Any, first: Any, last: Any, horizon: Any, indices: Any,
    starts: Any, out: Any, limit: Any,
) -> Any:  # fmt: skip
    """Gather the rows of the sets first, …, last-1 if dense and write their Gram blocks; prefetch sets below ``horizon``."""
    return _call(GRAMS, stored, slot, first, last, horizon, indices, starts, out, limit)


@intrinsic
def margins(typingctx: Any, address: Any, stored: Any, slot: Any, place: Any, S: Any, w: Any, out: Any) -> Any:
    """out[i, k] = a_iᵀw_k for i in the set."""
    return _call(MARGINS, stored, slot, place, S, w, out)


@intrinsic
def update(
    typingctx: Any, address: Any, stored: Any, slot: Any, place: Any, S: Any, h: Any, w_bar: Any, w: Any,
    limits: Any, gradient: Any,
) -> Any:  # fmt: skip
    """w̄_k += Σ h_ik a_i and w_k = ∇g*(w̄_k), for all models."""
    return _call(UPDATE, stored, slot, place, S, h, w_bar, w, limits, gradient)
