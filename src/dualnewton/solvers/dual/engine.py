"""What the one loop drives: K models over the same data, moved together by the index blocks of a sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.samplings import IndexBlock, Sampling
from dualnewton.solvers.dual.base import Solver


class Engine:
    """The reference engine: one NumPy solver per model.

    Attributes
    ----------
    certificates_are_cheap : bool
        Whether a certificate costs little against an epoch, as it does here.
    """

    certificates_are_cheap = True

    def __init__(
        self, problems: Sequence[Problem], sampling: Sampling, solver: type[Solver], alphas: Sequence[np.ndarray]
    ) -> None:
        self.solvers = [solver(problem, sampling) for problem in problems]
        for one, alpha in zip(self.solvers, alphas, strict=True):
            one.start_from(alpha)

    def run(self, block: IndexBlock) -> None:
        """Do the rounds of an index block on every model."""
        for solver in self.solvers:
            solver.run(block)

    def end_epoch(self) -> None:
        """Do what is due between epochs."""
        for solver in self.solvers:
            solver.end_epoch()

    def alpha(self, k: int) -> np.ndarray:
        """Return the dual point of model k."""
        return self.solvers[k].alpha

    def residual(self, k: int) -> float:  # noqa: ARG002
        """Return the mean dual residual c (α + φ′)² over the visits since it was last asked for; NaN if it is not kept.

        It is zero exactly at an optimal α, and falls as the gap does.
        """
        return np.nan

    def awake(self) -> np.ndarray | None:
        """Return the examples with a large dual residual at their last visit, in order; None if that is not kept."""
        return None

    def correct(self, k: int, w: np.ndarray) -> None:
        """Take the w of model k that the judge has computed from its α, without what rounding has gathered since."""

    def adapt(self, k: int, gap: float, residual: float) -> None:
        """Take the expected gap and the dual residual of model k, to which the accuracy of rounds may be tied."""

    def keep(self, wanted: Sequence[int]) -> None:
        """Go on with these models only."""
        self.solvers = [self.solvers[k] for k in wanted]

    def anchors(self) -> dict[str, Any]:
        """Name what a checkpoint does not store (see :meth:`Method.anchors`)."""
        return {}

    def close(self) -> None:
        """Give back what the engine holds."""
