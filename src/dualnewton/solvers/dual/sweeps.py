"""Dual methods in the interface of the loop: a sampling draws index blocks, and an engine does the rounds on them."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.samplings import IndexBlock, Sampling
from dualnewton.solvers.crossovers import USUAL, Crossovers
from dualnewton.solvers.dual.engine import Engine
from dualnewton.solvers.protocol import DualPoint, Method

PIECE = 1 << 14
"""Number of examples visited between two checks of the deadline by compiled rounds; NumPy rounds visit a thousandth of it."""

FOCUSED_RESIDUAL = 0.1
"""Sweeps over active examples end when their dual residual is at most this fraction of the residual of the last full sweep."""


ESTIMATED, MANY, SHARE = 1 << 10, 1 << 10, 8
"""Examples from which the gap is estimated, the least number of all examples for that, and the part of these that is used at most
(one eighth). The estimate varies by about a tenth; a certificate that misses the tolerance costs as much as a further step."""

NEAR, CLOSE = 10.0, 20.0
"""Mean residuals of a full sweep, in units of the wanted gap, from which on the gap is estimated: after that sweep, and after the
focused ones that follow."""


class Sweeps(Method):
    """Sweeps with shrinking: each step does several sweeps over the active examples and one full sweep.

    In classification the dual variables of most examples converge early; these examples become inactive and are skipped.
    The full sweep that follows reactivates examples that became inactive too early.
    """

    # Between two full sweeps: limits on the calls for sweeps over active examples, on their work in epochs, and on visits per
    # call (a small set is swept several times).
    focused_sweeps, focused_epochs, least_visits = 10, math.inf, 1
    expected_ratio = 0.5  # first estimate of the duality gap divided by the dual residual, before any certificate

    def __init__(
        self,
        engine: Engine,  # engine that does the rounds
        sampling: Sampling,  # Ŝ
        models: int,  # number of models
        *,
        # Whether to skip inactive examples in some sweeps. (Sets of active examples have a different law than Ŝ.)
        focus: bool,
        crossovers: Crossovers = USUAL,  # tuned numbers of sweeps
        # Wanted relative gap, near which the gap is estimated from some of the examples; zero for no estimates.
        tol: float = 0.0,
    ) -> None:
        self.engine, self.sampling, self.focus, self.crossovers = engine, sampling, focus, crossovers
        self.certificates_are_cheap = engine.certificates_are_cheap
        self.residuals = [math.nan] * models
        self.tol = tol if sampling.n >= MANY and not engine.certificates_are_cheap else 0.0
        self.estimates = [_UNKNOWN] * models  # the gap, and D

    @cached_property
    def rounds(self) -> int:
        """The number of rounds between two checks of the deadline."""
        # A round of NumPy takes 14 µs or more, and some 0.1 s for a block of 30 examples that converges slowly.
        examples = PIECE // 1000 if self.certificates_are_cheap else PIECE
        return max(1, round(examples / self.sampling.expected_size))

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        epochs, models = self._focused_sweeps(rng, deadline, most) if self.focus else 0.0, range(len(self.residuals))
        if epochs > 0.0 and self._have_ended():
            return epochs
        if epochs < most:
            block = self.sampling.draw(rng, self.sampling.rounds_per_epoch)
            epochs += self._sweep(block, deadline)
        self.residuals = [self.engine.residual(k) for k in models]
        self.estimates = [self._estimate(k, NEAR) for k in models]
        return epochs

    def _estimate(self, k: int, close: float) -> tuple[float, float]:
        """Return the gap of model k and D, estimated from some examples; no gap if the last full sweep was far from the end."""
        if self.tol <= 0.0:
            return _UNKNOWN
        _, known = self.estimates[k]
        largest = self.engine.largest_dual(k) if math.isnan(known) else known
        if not 0.0 < self.residuals[k] <= self.tol * close * largest:
            return math.nan, known
        gap, dual = self.engine.estimated(k, min(ESTIMATED, self.sampling.n // SHARE))
        return (gap, dual) if dual > 0.0 else _UNKNOWN

    def _have_ended(self) -> bool:
        """Whether the estimated gaps of all models are small enough after focused sweeps, so that no full sweep is needed."""
        found = []
        for k in range(len(self.residuals)):
            found.append(self._estimate(k, CLOSE))
            gap, dual = found[-1]
            if not gap <= self.tol * dual:
                return False
        self.estimates = found
        return True

    def _focused_sweeps(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        epochs = 0.0
        for _ in range(self.focused_sweeps):
            active, largest = self.engine.active(), self.crossovers.active_share * self.sampling.n
            if active is None or not 0 < active.size <= largest or time.perf_counter() > deadline:
                break
            # Fewer sweeps only if the limit ends the run, so that an unlimited run never has a state after fewer sweeps.
            allowed = math.ceil(min((most - epochs) * self.sampling.n / active.size, self.least_visits))
            sweeps = max(1, min(self.least_visits // active.size, allowed))
            order = np.concatenate([rng.permutation(active) for _ in range(sweeps)])
            block = IndexBlock(order, np.append(np.arange(0, order.size, self.sampling.max_size), order.size))
            epochs += self._sweep(block, deadline)
            left = [_fraction(self.engine.residual(k) / sweeps, before) for k, before in enumerate(self.residuals)]
            if max(left) <= FOCUSED_RESIDUAL or epochs >= min(most, self.focused_epochs):
                break
        return epochs

    def _sweep(self, block: IndexBlock, deadline: float) -> float:
        """Do the rounds of a block until the deadline; return the number of epochs done."""
        visited = 0
        # The serial kernel sums residuals per call: the block is cut into pieces even without a deadline, to get equal sums.
        cut = deadline < math.inf or self.sampling.max_size == 1
        for piece in block.pieces(self.rounds) if cut else [block]:
            self.engine.run(piece, deadline)
            visited += piece.indices.size
            if time.perf_counter() > deadline:
                break
        self.engine.end_epoch()
        return visited / self.sampling.n

    def point(self, k: int) -> DualPoint:
        return DualPoint(alpha=self.engine.alpha(k))

    def residual(self, k: int) -> float:
        return self.residuals[k]

    def gap(self, k: int) -> float:
        return self.estimates[k][0]

    def objective(self, k: int) -> float:
        return self.estimates[k][1]

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:  # noqa: ARG002
        self.engine.correct(k, found.w)
        gap, dual = self.estimates[k]
        if gap <= self.tol * dual and found.certificate.relative_gap > self.tol:
            self.tol = 0.0  # the certificate has refuted an estimate: no more of them

    def adapt(self, k: int, gap: float, residual: float) -> None:
        self.engine.adapt(k, gap, residual)

    def keep(self, wanted: Sequence[int]) -> None:
        self.engine.keep(wanted)
        self.residuals = [self.residuals[k] for k in wanted]
        self.estimates = [self.estimates[k] for k in wanted]

    def state(self) -> tuple[Any, ...]:
        """Return the state of the engine, the mean dual residual of each model in the last full sweep, and what was estimated."""
        return self.engine.state(), tuple(self.residuals), tuple(self.estimates), self.tol

    def restore(self, state: tuple[Any, ...]) -> None:
        engine, residuals, estimates, self.tol = state
        self.engine.restore(engine)
        self.residuals, self.estimates = list(residuals), list(estimates)


_UNKNOWN = math.nan, math.nan
"""The estimates of a model that is far from the end."""


def _fraction(now: float, before: float) -> float:
    return now / before if before > 0.0 else 0.0
