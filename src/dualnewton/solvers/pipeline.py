"""The Gram pipeline: threads that produce Gram blocks ahead of the one that consumes them, with the same bits as one alone."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from dualnewton.kernels import blocks
from dualnewton.kernels.gram import room_for_rows
from dualnewton.kernels.models import CompiledLoss, Models
from dualnewton.kernels.rows import Rows
from dualnewton.samplings import IndexBlock

CACHE = 1 << 18
"""Bytes of gathered rows that one thread works on at a time: they should stay in its cache between the two halves."""

AHEAD = 1 << 20
"""Bytes of gathered rows in one piece of work of several threads: enough to outweigh the call."""

SLOTS = 2
"""Pieces ready or in the making, per producing thread, beyond the one that is consumed."""


class Pipeline:
    """Rounds of SDNA on sets of several examples, by one thread or more.

    G_S and the gathered rows depend on neither w nor α, so whoever is free may compute them, for the next piece that nobody has
    taken; the thread that called does the dependent half of the pieces in order, and helps when it would wait.
    """

    def __init__(self, rows: Rows, d: int, size: int, n_threads: int) -> None:
        self.rows, self.n_threads = rows, n_threads
        per_set = 8 * size * (d if rows.data.ndim == 2 else size)
        self.sets = max(1, (CACHE if n_threads == 1 else AHEAD) // per_set)
        slots = 1 if n_threads == 1 else 1 + SLOTS * (n_threads - 1)
        dense = rows.data.ndim == 2
        self.slots = [
            (room_for_rows(self.sets, size, d) if dense else np.zeros((1, 1, d)), np.empty((self.sets, size, size)))
            for _ in range(slots)
        ]

    def prepare(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> None:
        """Compile what runs will need."""
        if self.n_threads == 1:
            blocks.rounds.prepare(*self._whole(block, models, loss))
        else:
            slot = self.slots[0]
            blocks.produce.prepare(*self.rows, block.indices, block.starts, 0, 0, *slot)
            blocks.consume.prepare(
                *self.rows, block.indices, block.starts, 0, 0, *slot, models, loss.pointwise, loss.slopes
            )

    def _whole(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> tuple[Any, ...]:
        return (*self.rows, block.indices, block.starts, *self.slots[0], models, loss.pointwise, loss.slopes)

    def run(self, block: IndexBlock, models: Models, loss: CompiledLoss) -> None:
        """Do the rounds of an index block."""
        if self.n_threads == 1:
            blocks.rounds(*self._whole(block, models, loss))
            return
        work = _Pieces(self, block)
        helpers = [threading.Thread(target=work.produce_until_done, daemon=True) for _ in range(self.n_threads - 1)]
        for helper in helpers:
            helper.start()
        try:
            for piece in range(work.count):
                slot = work.wait_for(piece)
                first, last = work.range_of(piece)
                blocks.consume(
                    *self.rows, block.indices, block.starts, first, last, *slot, models, loss.pointwise, loss.slopes
                )
                work.done_with(piece)
        finally:
            work.stop()
            for helper in helpers:
                helper.join()

    def close(self) -> None:
        """Give the buffers back."""
        self.slots = []


class _Pieces:
    """Who has taken which piece of an index block, and which are ready."""

    def __init__(self, pipeline: Pipeline, block: IndexBlock) -> None:
        self.pipeline, self.block = pipeline, block
        self.count = -(-len(block) // pipeline.sets)
        self.changed = threading.Condition()
        self.taken = self.consumed = 0
        self.ready: set[int] = set()
        self.error: BaseException | None = None

    def range_of(self, piece: int) -> tuple[int, int]:
        return piece * self.pipeline.sets, min(len(self.block), (piece + 1) * self.pipeline.sets)

    def slot_of(self, piece: int) -> tuple[np.ndarray, np.ndarray]:
        return self.pipeline.slots[piece % len(self.pipeline.slots)]

    def produce(self, piece: int) -> None:
        first, last = self.range_of(piece)
        rows, block = self.pipeline.rows, self.block
        blocks.produce(*rows, block.indices, block.starts, first, last, *self.slot_of(piece))
        with self.changed:
            self.ready.add(piece)
            self.changed.notify_all()

    def produce_until_done(self) -> None:
        """Take pieces in order while there is room for them; what a helper thread does."""
        try:
            while True:
                with self.changed:
                    while self.taken < self.count and self.taken >= self.consumed + len(self.pipeline.slots):
                        self.changed.wait()
                    if self.taken >= self.count:
                        return
                    piece, self.taken = self.taken, self.taken + 1
                self.produce(piece)
        except BaseException as error:
            with self.changed:
                self.error = error
                self.changed.notify_all()

    def wait_for(self, piece: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the slot of a piece once it is ready; produce it, or another that is free, rather than wait idly."""
        while True:
            with self.changed:
                if self.error is not None:
                    raise self.error
                if piece in self.ready:
                    return self.slot_of(piece)
                room = self.taken < min(self.count, self.consumed + len(self.pipeline.slots))
                if not room:
                    self.changed.wait()
                    continue
                mine, self.taken = self.taken, self.taken + 1
            self.produce(mine)

    def done_with(self, piece: int) -> None:
        """Free the slot of a consumed piece."""
        with self.changed:
            self.ready.discard(piece)
            self.consumed = piece + 1
            self.changed.notify_all()

    def stop(self) -> None:
        """Let the helpers go, also when the consumer was interrupted."""
        with self.changed:
            self.taken = self.count
            self.changed.notify_all()
