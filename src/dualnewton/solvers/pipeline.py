"""The Gram pipeline: threads that compute Gram blocks ahead of the one that uses them, with the same bits as one alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from dualnewton.kernels import blocks
from dualnewton.kernels.gram import room_for_rows
from dualnewton.kernels.models import CompiledLoss, Models
from dualnewton.kernels.rows import Rows
from dualnewton.samplings import IndexBlock

PIECE = 1 << 18
"""Bytes of gathered rows in a piece of work: they should stay in a core's cache between the two halves."""

SLOTS = 4
"""Pieces ready or in the making, per thread."""


class Pipeline:
    """Rounds of SDNA on sets of several examples, by one thread or more.

    G_S and the gathered rows depend on neither w nor α, so whoever is free may compute them for the next piece that nobody has
    taken; the thread that called does the dependent half of the pieces in order, and helps when it would wait.
    """

    def __init__(self, rows: Rows, d: int, size: int, n_threads: int) -> None:
        self.rows, self.n_threads = rows, n_threads
        dense = rows.data.ndim == 2
        self.sets = max(1, PIECE // (8 * size * (d if dense else size)))
        slots = 1 if n_threads == 1 else SLOTS * n_threads
        gathered = room_for_rows(slots * self.sets, size, d) if dense else np.zeros((slots, 1, d))
        shape = (slots, gathered.shape[0] // slots, *gathered.shape[1:])
        self.gathered, self.grams = gathered.reshape(shape), np.empty((slots, self.sets, size, size))

    def prepare(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> None:
        """Compile what runs will need."""
        blocks.rounds.prepare(*self._alone(block, models, loss))
        if self.n_threads > 1:
            shared = self._shared(block)
            blocks.helper.prepare(*shared)
            blocks.leader.prepare(*shared, models, loss.pointwise, loss.slopes)

    def _alone(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> tuple[Any, ...]:
        buffers = self.gathered[0], self.grams[0]
        return (*self.rows, block.indices, block.starts, *buffers, models, loss.pointwise, loss.slopes)

    def _shared(self, block: IndexBlock) -> tuple[Any, ...]:
        board = np.zeros(blocks.READY + -(-len(block) // self.sets), dtype=np.int64)
        return (*self.rows, block.indices, block.starts, self.gathered, self.grams, board)

    def run(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> None:
        """Do the rounds of an index block."""
        if self.n_threads == 1 or len(block) <= 2 * self.sets:
            blocks.rounds(*self._alone(block, models, loss))
            return
        shared = self._shared(block)
        helpers = [threading.Thread(target=blocks.helper, args=shared, daemon=True) for _ in range(self.n_threads - 1)]
        for helper in helpers:
            helper.start()
        blocks.leader(*shared, models, loss.pointwise, loss.slopes)
        for helper in helpers:
            helper.join()

    def close(self) -> None:
        """Give the buffers back."""
        del self.gathered, self.grams
