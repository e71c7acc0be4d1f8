"""Rounds of SDNA on sets of several examples, in two stages.

The first stage gathers rows and computes Gram blocks, which depend on neither w nor α. The second stage computes margins,
solves the block subproblems and updates w. Threads may therefore do the first stage of later sets while one thread does the
second stage, with the same bits as a single thread. All threads run one kernel, so that one compilation serves any number of
them. Each claims pieces of the index block in order, as long as buffer slots are free, and does their first stage. The thread
that ``leads``, the only one if there are no others, also does the second stage of the pieces in order, as soon as they are ready.
They coordinate through an array of shared atomic ``counters``.

    rounds(functions, stored, indices, starts, grams, limit, counters, leads, scratch, models, loss)

``functions`` read the rows, whose addresses are in ``stored``, so that one compilation of the rounds serves all storages
(:mod:`dualnewton.kernels.sets`). ``grams`` (slots, sets, τ, τ) and, for dense data, gathered rows (slots, sets, τ, ≥ d) are the
output of the first stage. For CSR data gathered rows (slots, 1, 1, d) hold one expanded row at a time, and zeros otherwise.
Gram blocks of dense float32 rows are summed in float32 up to ``limit`` (:mod:`dualnewton.kernels.gram`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualnewton.kernels import atomic, sets
from dualnewton.kernels._compiler import ShortLoopsCompiler
from dualnewton.kernels._jit import lean_call, least
from dualnewton.kernels.models import Kernel
from dualnewton.kernels.newton import START_RESIDUAL, VECTORS, padded
from dualnewton.kernels.piece_blocks import copy_label, solve_any_block


class Scratch(NamedTuple):
    """Scratch arrays of the second stage, for sets of up to ``size`` examples."""

    margins: np.ndarray  # (size, K)
    h: np.ndarray  # (size, K) changes of the dual variables, scaled
    squares: np.ndarray  # (2, ≥ size, ≥ size) the Gram block and the matrix of a Newton step
    work: np.ndarray  # see ``newton``
    vectors: np.ndarray  # (4, ≥ size) margins, old and new dual variables and weights of one model
    y: np.ndarray  # (size,) its labels, or (size, m) numbers of a piecewise linear loss

    @classmethod
    def of(cls, size: int, labels: np.ndarray) -> Scratch:
        """Allocate them for models with these labels."""
        K, width = len(labels), padded(size)
        return cls(
            margins=np.zeros((size, K)),
            h=np.zeros((size, K)),
            squares=np.zeros((2, width, width)),
            work=np.zeros((VECTORS, width)),
            vectors=np.zeros((4, width)),
            y=np.zeros((size, *labels.shape[2:])),
        )


@lean_call
def _consume(functions, stored, indices, starts, first, last, slot, grams, scratch, models, loss):
    K = models.w.shape[0]
    per_row_c, per_row_o = models.c.shape[1] > 1, models.o.shape[1] > 1
    # Read the fields once: inside the loops, Numba would count references for every example.
    w, w_bar, alphas, labels, weights, offsets = models.w, models.w_bar, models.alpha, models.y, models.c, models.o
    b, b_curvature, scales, tolerance = models.b, models.b_curvature, models.scale, models.tolerance
    residual, inactive_below, active, limits, gradient = (
        models.residual, models.inactive_below, models.active, models.limits, models.gradient,
    )  # fmt: skip
    margins, h, G, B = scratch.margins, scratch.h, scratch.squares[0], scratch.squares[1]
    work, y, vectors = scratch.work, scratch.y, scratch.vectors
    u, alpha, beta, c = vectors[0], vectors[1], vectors[2], vectors[3]
    for s in range(first, last):
        begin, t, place = starts[s], starts[s + 1] - starts[s], s - first
        S = indices[begin : begin + t]
        sets.margins(functions.margins, stored, slot, place, S, w, margins)
        for k in range(K):
            scale = scales[k]
            for i in range(t):
                e = indices[begin + i]
                u[i] = margins[i, k] + offsets[k, e * per_row_o] + b[k]
                alpha[i], c[i] = alphas[k, e], weights[k, e * per_row_c]
                copy_label(labels, k, e, y, i)
                for j in range(t):
                    G[i, j] = grams[place, i, j] * scale + b_curvature[k]
            residual[k] += solve_any_block(
                G, u, alpha, y, c, beta, t, tolerance[k], loss, work, B
            )  # fmt: skip
            total = 0.0
            for i in range(t):
                e, mass = indices[begin + i], c[i] * (beta[i] - alpha[i])
                alphas[k, e] = beta[i]
                active[k, e] = work[START_RESIDUAL, i] > inactive_below[k]
                h[i, k] = mass * scale
                total += mass
            b[k] += b_curvature[k] * total
        sets.update(functions.update, stored, slot, place, S, h, w_bar, w, limits, gradient)


TAKEN, CONSUMED, FAILED, READY = 0, 1, 2, 8
"""Positions in ``counters``: number of pieces claimed, number consumed, whether a helper failed, and from READY on one flag
per piece that says whether its first stage is done. READY = 8 (64 bytes) keeps the flags off the cache line of the counters."""


@lean_call
def _claim(counters, pieces, slots):
    """Claim and return the next piece if there is one and a buffer slot is free, else −1."""
    taken = atomic.load(counters, TAKEN)
    end = least(pieces, atomic.load(counters, CONSUMED) + slots)
    if taken < end and atomic.swap_if(counters, TAKEN, taken, taken + 1):
        return taken
    return -1


@lean_call
def _make_ready(functions, stored, indices, starts, grams, limit, counters, piece):
    """Do the first stage of a piece and set its flag."""
    slots, ahead, total = grams.shape[0], grams.shape[1], starts.size - 1
    first, slot = piece * ahead, piece % slots
    last = least(total, first + ahead)
    horizon = total if slots == 1 else 0  # with several slots another thread may produce the next piece
    sets.grams(functions.grams, stored, slot, first, last, horizon, indices, starts, grams[slot], limit)
    atomic.store(counters, READY + piece, 1)


@lean_call
def _rounds(functions, stored, indices, starts, grams, limit, counters, leads, scratch, models, loss):
    slots, ahead, total = grams.shape[0], grams.shape[1], starts.size - 1
    pieces, piece = -(-total // ahead), 0
    while piece < pieces if leads else atomic.load(counters, TAKEN) < pieces:
        if leads and atomic.load(counters, READY + piece) != 0:
            first, slot = piece * ahead, piece % slots
            last = least(total, first + ahead)
            _consume(functions, stored, indices, starts, first, last, slot, grams[slot], scratch, models, loss)
            piece += 1
            atomic.store(counters, CONSUMED, piece)
        elif leads and atomic.load(counters, FAILED) != 0:
            return  # the piece will never be ready
        else:
            claimed = _claim(counters, pieces, slots)
            if claimed >= 0:
                _make_ready(functions, stored, indices, starts, grams, limit, counters, claimed)
            else:
                atomic.yield_thread()


rounds = Kernel(_rounds, ShortLoopsCompiler)
