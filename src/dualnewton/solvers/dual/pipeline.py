"""The Gram pipeline: threads compute Gram blocks in advance of the thread that uses them, with the same bits as one thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from dualnewton.kernels import blocks, sets
from dualnewton.kernels.gram import buffer_for_rows
from dualnewton.kernels.models import Models
from dualnewton.kernels.newton import padded
from dualnewton.kernels.rows import Rows
from dualnewton.samplings import IndexBlock

PIECE = 1 << 18
"""Bytes of gathered rows (or of Gram blocks of sparse rows) per piece of work, small enough for the cache of one core, in which
they stay between the two stages."""

SLOTS = 2
"""Number of buffers per thread: pieces whose first stage is done or in progress. With four, the rows that wait for their second
stage leave the caches: 4 threads took 0.92 s instead of 0.76 s for a fit on 200000×500."""


def useful_threads(tau: int, models: int) -> int:
    """Return the number of threads that sets of ``tau`` examples keep busy.

    The first stage takes τ(τ + 1)/2 products of rows, and reads the rows from memory, the second 2τ for each model. Once the
    first stages of all threads take less time than the second, which one thread does, more threads only evict rows from caches.
    """
    return 2 + tau // (4 * models)


class Pipeline:
    """Rounds of SDNA on sets of several examples, by one thread or several.

    G_S and the gathered rows depend on neither w nor α, so that any free thread may compute them for the next unclaimed piece.
    The calling thread does the dependent stage of the pieces in order, and first stages while it would otherwise wait.
    """

    def __init__(self, rows: Rows, d: int, n_threads: int) -> None:
        self.rows, self.d, self.n_threads = rows, d, n_threads
        self._allocate(1)

    def _allocate(self, size: int) -> None:
        """Allocate buffers for sets of up to ``size`` examples: the largest set drawn so far, not the largest possible one."""
        dense = self.rows.data.ndim == 2
        self.size = size
        entry = self.rows.data.itemsize if dense else 8
        self.sets = max(1, PIECE // (entry * size * (self.d if dense else size)))
        slots = 1 if self.n_threads == 1 else SLOTS * self.n_threads
        gathered = (
            buffer_for_rows(slots * self.sets, size, self.d, self.rows.data.dtype)
            if dense
            else np.zeros((slots, 1, self.d))
        )
        shape = (slots, gathered.shape[0] // slots, *gathered.shape[1:])
        self.gathered, self.grams = gathered.reshape(shape), np.empty((slots, self.sets, padded(size), padded(size)))
        self.stored = sets.described(self.rows, self.d, self.gathered)

    def prepare(self, block: IndexBlock, limit: float, models: Models, loss: Any) -> None:
        """Compile the kernels for these types of arguments."""
        self.functions = sets.functions_for(self.rows, self.gathered, len(models.w))
        blocks.rounds.prepare(*self._arguments(block, limit), True, blocks.Scratch.of(1, models.y), models, loss)

    def _arguments(self, block: IndexBlock, limit: float) -> tuple[Any, ...]:
        counters = np.zeros(blocks.READY + -(-len(block) // self.sets), dtype=np.int64)
        return (self.functions, self.stored, block.indices, block.starts, self.grams, limit, counters)

    def run(self, block: IndexBlock, limit: float, models: Models, loss: Any) -> None:
        """Do the rounds of an index block; Gram blocks of float32 rows are summed in float32 if τ max‖a_i‖² ≤ ``limit``."""
        if len(block) == 0:
            return
        if (largest := int(block.sizes.max())) > self.size:
            self._allocate(largest)
        shared = self._arguments(block, limit)
        counters, errors, scratch = shared[-1], [], blocks.Scratch.of(self.size, models.y)

        def help_out() -> None:
            try:
                blocks.rounds(*shared, False, scratch, models, loss)
            except BaseException as error:
                errors.append(error)
                counters[blocks.FAILED] = 1

        helpers: list[threading.Thread] = []
        try:
            for _ in range(self.n_threads - 1 if len(block) > 2 * self.sets else 0):
                helpers.append(threading.Thread(target=help_out, daemon=True))
                helpers[-1].start()
            blocks.rounds(*shared, True, scratch, models, loss)
        finally:
            # Mark all pieces as claimed, so that the helper threads end even after an error.
            counters[blocks.TAKEN] = counters.size - blocks.READY
            for helper in helpers:
                if helper.ident is not None:
                    helper.join()
        if errors:
            raise errors[0]
