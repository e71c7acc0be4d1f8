"""Dual methods as the loop drives them: index blocks drawn from a sampling, rounds on them by an engine."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.samplings import IndexBlock, Sampling
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.protocol import DualPoint, Method

PIECE = 1 << 14
"""Examples visited between two looks at the clock, by compiled rounds; by NumPy rounds a hundredth of it."""

FOCUSED_SWEEPS = 10
"""The most sweeps over active examples between two over all."""

ENOUGH = 0.1
"""They end when the dual residual has fallen to this fraction of what it was in the last sweep over all."""

MOSTLY_AWAKE = 0.7
"""With a larger fraction of the examples active, a sweep over all costs little more."""


class Sweeps(Method):
    """Each step is some sweeps over the active examples, and one sweep over all.

    Most dual variables of a classification soon reach their final values (shrinking). Examples are inactive while their dual
    residual is small; those that became so too soon are found by the sweep over all that follows.

    Parameters
    ----------
    engine : Engine
        Does the rounds.
    sampling : Sampling
        Ŝ.
    models : int
        How many there are.
    focus : bool
        Whether some sweeps may leave out the inactive examples. (Sets of the others have another law than Ŝ.)
    """

    expected_ratio = 0.5

    def __init__(self, engine: Engine, sampling: Sampling, models: int, *, focus: bool) -> None:
        self.engine, self.sampling, self.focus = engine, sampling, focus
        self.certificates_are_cheap = engine.certificates_are_cheap
        self.residuals = [math.nan] * models

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        epochs = self._focused_sweeps(rng, deadline, most) if self.focus else 0.0
        if epochs < most:
            block = self.sampling.draw(rng, self.sampling.rounds_per_epoch)
            epochs += self._sweep(block, deadline)
        self.residuals = [self.engine.residual(k) for k in range(len(self.residuals))]
        return epochs

    def _focused_sweeps(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        epochs = 0.0
        for _ in range(FOCUSED_SWEEPS):
            awake = self.engine.awake()
            if awake is None or not 0 < awake.size <= MOSTLY_AWAKE * self.sampling.n or time.perf_counter() > deadline:
                break
            order = rng.permutation(awake)
            block = IndexBlock(order, np.append(np.arange(0, order.size, self.sampling.max_size), order.size))
            epochs += self._sweep(block, deadline)
            left = [_fraction(self.engine.residual(k), before) for k, before in enumerate(self.residuals)]
            if max(left) <= ENOUGH or epochs >= most:
                break
        return epochs

    def _sweep(self, block: IndexBlock, deadline: float) -> float:
        """Do the rounds of a block, until the deadline; return how many epochs that was."""
        visited = 0
        examples = PIECE // 100 if self.certificates_are_cheap else PIECE
        rounds = max(1, round(examples / self.sampling.expected_size))
        # One at a time, each call of the kernel adds up its residuals: without a deadline, too, by pieces, for the same sums.
        cut = deadline < math.inf or self.sampling.max_size == 1
        for piece in block.pieces(rounds) if cut else [block]:
            self.engine.run(piece)
            visited += piece.indices.size
            if time.perf_counter() > deadline:
                break
        self.engine.end_epoch()
        return visited / self.sampling.n

    def point(self, k: int) -> DualPoint:
        return DualPoint(alpha=self.engine.alpha(k))

    def residual(self, k: int) -> float:
        return self.residuals[k]

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:  # noqa: ARG002
        self.engine.correct(k, found.w)

    def adapt(self, k: int, gap: float, residual: float) -> None:
        self.engine.adapt(k, gap, residual)

    def keep(self, wanted: Sequence[int]) -> None:
        self.engine.keep(wanted)
        self.residuals = [self.residuals[k] for k in wanted]

    def anchors(self) -> dict[str, Any]:
        return {"sampling": self.sampling, **self.engine.anchors()}

    def close(self) -> None:
        self.engine.close()


def _fraction(now: float, before: float) -> float:
    return now / before if before > 0.0 else 0.0
