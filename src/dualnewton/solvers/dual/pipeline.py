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

    def __init__(self, rows: Rows, d: int, n_threads: int) -> None:
        self.rows, self.d, self.n_threads = rows, d, n_threads
        self._make_room(1)

    def _make_room(self, size: int) -> None:
        """Allocate buffers for sets of up to ``size`` examples: by what was drawn, since what could be may be far more."""
        dense = self.rows.data.ndim == 2
        self.size = size
        entry = self.rows.data.itemsize if dense else 8
        self.sets = max(1, PIECE // (entry * size * (self.d if dense else size)))
        slots = 1 if self.n_threads == 1 else SLOTS * self.n_threads
        room = slots * self.sets, size, self.d
        gathered = room_for_rows(*room, self.rows.data.dtype) if dense else np.zeros((slots, 1, self.d))
        shape = (slots, gathered.shape[0] // slots, *gathered.shape[1:])
        self.gathered, self.grams = gathered.reshape(shape), np.empty((slots, self.sets, size, size))

    def prepare(self, block: IndexBlock, limit: float, models: Models, loss: CompiledLoss) -> None:
        """Compile what runs will need."""
        blocks.rounds.prepare(*self._alone(block, limit, models, loss))
        if self.n_threads > 1:
            shared = self._shared(block, limit)
            blocks.helper.prepare(*shared)
            blocks.leader.prepare(*shared, models, loss.pointwise, loss.slopes)

    def _alone(self, block: IndexBlock, limit: float, models: Models, loss: CompiledLoss) -> tuple[Any, ...]:
        buffers = self.gathered[0], self.grams[0], limit
        return (*self.rows, block.indices, block.starts, *buffers, models, loss.pointwise, loss.slopes)

    def _shared(self, block: IndexBlock, limit: float) -> tuple[Any, ...]:
        board = np.zeros(blocks.READY + -(-len(block) // self.sets), dtype=np.int64)
        return (*self.rows, block.indices, block.starts, self.gathered, self.grams, limit, board)

    def run(self, block: IndexBlock, limit: float, models: Models, loss: CompiledLoss) -> None:
        """Do the rounds of an index block; Gram blocks of float32 rows are summed in float32 up to τ max‖a_i‖² = ``limit``."""
        if len(block) == 0:
            return
        if (largest := int(block.sizes.max())) > self.size:
            self._make_room(largest)
        if self.n_threads == 1 or len(block) <= 2 * self.sets:
            blocks.rounds(*self._alone(block, limit, models, loss))
            return
        shared = self._shared(block, limit)
        board, errors = shared[-1], []

        def help_out() -> None:
            try:
                blocks.helper(*shared)
            except BaseException as error:
                errors.append(error)
                board[blocks.FAILED] = 1

        helpers: list[threading.Thread] = []
        try:
            for _ in range(self.n_threads - 1):
                helpers.append(threading.Thread(target=help_out, daemon=True))
                helpers[-1].start()
            blocks.leader(*shared, models, loss.pointwise, loss.slopes)
        finally:
            # Nothing is left to take: the helpers go home, whatever happened.
            board[blocks.TAKEN] = board.size - blocks.READY
            for helper in helpers:
                if helper.ident is not None:
                    helper.join()
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Give the buffers back."""
        del self.gathered, self.grams
