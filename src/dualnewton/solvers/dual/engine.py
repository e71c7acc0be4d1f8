"""The interface of an engine (K models over the same data, updated by the same index blocks) and its reference in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.problem import Problem
from dualnewton.samplings import IndexBlock, Sampling
from dualnewton.solvers.dual.base import Solver


class Engine:
    """The reference engine: one NumPy solver per model."""

    certificates_are_cheap = True  # whether a certificate costs little compared with an epoch, as it does here
    # Whether it has :meth:`visits` and :meth:`shrink`, a step's sweeps over single examples with shrinking.
    shrinks = False

    def __init__(
        self, problems: Sequence[Problem], sampling: Sampling, solver: type[Solver], alphas: Sequence[np.ndarray]
    ) -> None:
        self.solvers = solver.for_each(problems, sampling)
        for one, alpha in zip(self.solvers, alphas, strict=True):
            one.start_from(alpha)

    def run(self, block: IndexBlock, deadline: float = math.inf) -> None:
        """Do the rounds of an index block on every model; after the deadline a round may leave its block unfinished."""
        for solver in self.solvers:
            solver.run(block, deadline)

    def end_epoch(self) -> None:
        """Do the work due after each epoch."""
        for solver in self.solvers:
            solver.end_epoch()

    def alpha(self, k: int) -> np.ndarray:
        """Return the dual point of model k."""
        return self.solvers[k].alpha

    def residual(self, k: int) -> float:  # noqa: ARG002
        """Return the mean dual residual of model k over the visits since the last call; NaN if not recorded.

        The residual of an example is c (α + φ′)², for a piecewise linear loss c (φ + φ* + αz). It is zero if and only if the dual
        variable is optimal for the margin; the mean decreases with the gap.
        """
        return np.nan

    def largest_dual(self, k: int) -> float:
        """Return an upper bound on D of model k; of an engine whose certificates are not cheap, as :meth:`estimated`."""
        raise NotImplementedError(f"{type(self).__name__} has no largest_dual(k)")

    def estimated(self, k: int, examples: int) -> tuple[float, float]:
        """Return the gap and D of model k as estimated from about this number of examples, for the w of the rounds.

        The gap is the mean of φ(z) + φ*(−α) + αz. Where certificates are cheap nothing is estimated.
        """
        raise NotImplementedError(f"{type(self).__name__} has no estimated(k, examples)")

    def active(self) -> np.ndarray | None:
        """Return the sorted indices of the examples that were active at their last visit; None if that is not recorded."""
        return None

    def visits(self, k: int) -> Any:
        """Return the visits of a step of model k, which begin with all examples."""
        raise NotImplementedError(f"{type(self).__name__} does not shrink")

    def shrink(self, k: int, visits: Any, draws: np.ndarray, fraction: float) -> int:
        """Do some of these visits, at most one for each random number below 2³² (uint32), and return how many.

        The visits end when the residual has decreased to a fraction of its first value.
        """
        raise NotImplementedError(f"{type(self).__name__} does not shrink")

    def correct(self, k: int, w: np.ndarray) -> None:
        """Replace the w of model k by the one that the verifier recomputed from α, which removes accumulated rounding errors."""

    def adapt(self, k: int, gap: float, residual: float) -> None:
        """Adapt tolerances to the expected gap of model k and to its mean dual residual in the last full sweep."""

    def restart(self, k: int, alpha: np.ndarray) -> None:
        """Set the dual point of model k to a feasible α, and recompute w and the intercept from it."""
        self.solvers[k].start_from(alpha)

    def move(
        self, k: int, S: np.ndarray, rows: linear.Matrix, beta: np.ndarray, intercept: float | None = None
    ) -> None:
        """Set the dual variables of the examples S of model k to β, given their rows; b follows from them, unless given."""
        self.solvers[k].move(S, rows, beta)
        if intercept is not None:
            self.solvers[k].intercept = intercept

    def model(self, k: int) -> tuple[np.ndarray, float, float]:
        """Return w, b and the curvature ρ/(λn) of the intercept of model k."""
        solver = self.solvers[k]
        return solver.w, solver.intercept, solver.intercept_curvature

    def keep(self, wanted: Sequence[int]) -> None:
        """Continue with these models only."""
        self.solvers = [self.solvers[k] for k in wanted]

    def state(self) -> Any:
        """Return the state of the models between sweeps, as plain data."""
        return tuple(solver.state for solver in self.solvers)

    def restore(self, state: Any) -> None:
        """Restore the state of an engine for the same problems."""
        for solver, own in zip(self.solvers, state, strict=True):
            solver.state = own
