"""Cholesky factors of large matrices and solves with them, by square tiles.

    cholesky(L, tile, first, last, counter, done, state, blas)   overwrite a matrix by its factor L, columns of tiles from
                                                                 ``first`` to ``last``
    solve(L, tile, x, counter, done, state, blas)                x = (L Lᵀ)⁻¹ x

L is stored column by column, as the rows of an array in C order; its entries on and below the diagonal are read and written. All
threads call a kernel with the same arguments. Each takes the next tile from the counter, column by column, and waits until the
tiles that it needs are ``done``: these come before it, so that another thread computes them. What is computed of a tile depends
on the size alone, and so do its bits. The first number of ``state`` is set if the matrix is not positive definite. ``blas`` has
the addresses of the functions that :data:`CHOLESKY` and :data:`SOLVE` name.
"""

from __future__ import annotations

import numpy as np

from dualnewton.kernels._jit import lean, lean_call, least, most
from dualnewton.kernels._memory import address
from dualnewton.kernels.atomic import load, next_number, store, yield_thread
from dualnewton.kernels.blas import (
    divide,
    divide_vector,
    factorise,
    subtract_from_vector,
    subtract_product,
    subtract_square,
)
from dualnewton.kernels.team import TeamKernel

CHOLESKY, SOLVE = ("dgemm", "dsyrk", "dtrsm", "dpotrf"), ("dgemv", "dtrsv")
"""Functions of BLAS and LAPACK whose addresses the kernels take, in this order."""


@lean
def _wait(done, place, state):
    """Wait for a tile; return whether it will be done."""
    while load(done, place) == 0:
        if load(state, 0) != 0:
            return False
        yield_thread()
    return True


@lean
def _cholesky(L, tile, first, last, counter, done, state, blas):
    n, tiles = L.shape[0], -(-L.shape[0] // tile)
    j, before, task = first, 0, next_number(counter)
    while True:
        while j < last and task - before >= tiles - j:
            before += tiles - j
            j += 1
        if j >= last:
            return
        if not _tile(L, n, tile, tiles, j + task - before, j, done, state, blas):
            store(state, 0, 1)
            return
        task = next_number(counter)


@lean_call
def _tile(L, n, tile, tiles, i, j, done, state, blas):
    """Compute tile (i, j); return whether that was possible."""
    top, left, here = i * tile, j * tile, address(L)
    rows, columns = least(tile, n - top), least(tile, n - left)
    own = here + 8 * (top + left * n)
    # The tiles to the left of the last ones first: those are computed at the same time as this one.
    for low, high in ((0, j - 1), (most(0, j - 1), j)):
        if low >= high:
            continue
        if not (_wait(done, i * tiles + high - 1, state) and _wait(done, j * tiles + high - 1, state)):
            return False
        start, depth = 8 * low * tile * n, (high - low) * tile
        if i == j:
            subtract_square(blas[1], rows, depth, here + 8 * top + start, n, own, n)
        else:
            subtract_product(
                blas[0], rows, columns, depth, here + 8 * top + start, n, here + 8 * left + start, n, own, n
            )
    if i == j:
        if factorise(blas[3], 0, rows, own, n) != 0:
            return False
        for place in range(left, left + rows):  # that of OpenBLAS does not fail where entries are not numbers
            if not np.isfinite(L[place, place]):
                return False
    else:
        if not _wait(done, j * tiles + j, state):
            return False
        divide(blas[2], rows, columns, here + 8 * (left + left * n), n, own, n)
    store(done, i * tiles + j, 1)
    return True


@lean
def _solve(L, tile, x, counter, done, state, blas):
    n, tiles, here, there = L.shape[0], -(-L.shape[0] // tile), address(L), address(x)
    task = next_number(counter)
    while task < 2 * tiles:
        # Forward substitution from the first tile to the last, then backward from the last to the first.
        backward = 1 if task >= tiles else 0
        i = 2 * tiles - 1 - task if backward else task
        own, rows = there + 8 * i * tile, least(tile, n - i * tile)
        if backward:
            _wait(done, tiles - 1, state)
        for step in range(task - backward * tiles):
            k = tiles - 1 - step if backward else step
            _wait(done, backward * tiles + k, state)
            top, left = most(i, k) * tile, least(i, k) * tile
            sizes = least(tile, n - top), least(tile, n - left)
            subtract_from_vector(
                blas[0], backward, sizes[0], sizes[1], here + 8 * (top + left * n), n, there + 8 * k * tile, own
            )
        divide_vector(blas[1], backward, rows, here + 8 * i * tile * (n + 1), n, own)
        store(done, backward * tiles + i, 1)
        task = next_number(counter)


cholesky, solve = TeamKernel(_cholesky), TeamKernel(_solve)
