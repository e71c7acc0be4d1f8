"""Runs of ``solve`` that certify the iterate after every epoch and record the time of draws and rounds alone.

By default ``solve`` certifies less often, since a certificate costs about an epoch. A curve needs one after every epoch
(``certify_every=1``), and its time must exclude them (``work_seconds`` of the trace).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.problem import Problem
from dualnewton.planning.plan import Plan
from dualnewton.run.loop import solve
from dualnewton.run.result import Progress, Status
from dualnewton.samplings import Nice

NICE, DEFAULT = "i.i.d. τ-nice", "library default"
"""How the sets are drawn: independently in every round, as in the paper, or in the default order of ``solve``."""

Tell = Callable[[float, float], None]
"""A progress callback with the arguments epoch and relative gap."""


@dataclass(frozen=True)
class Limits:
    """The stopping conditions of a run."""

    goal: float  # certified relative gap at which the run ends
    epochs: int = 1_000_000  # largest number of epochs
    seconds: float = math.inf  # time limit in seconds, including the certificates


@dataclass(frozen=True, eq=False)
class Watched:
    """The record of a run: the epochs, the seconds of work and the certified gap after every step of ``solve``."""

    method: str
    order: str  # ``NICE`` or ``DEFAULT``
    tau: int
    plan: Plan
    # The curve, which begins at α = 0. The gap is that of the current iterate, not the smallest so far.
    epoch: np.ndarray
    seconds: np.ndarray
    gap: np.ndarray
    relative_gap: np.ndarray

    def first(self, level: float, column: str = "epoch") -> float:
        """Return the epochs (or seconds) until the relative gap was at most ``level``; ∞ if it never was."""
        below = np.flatnonzero(self.relative_gap <= level)
        return float(getattr(self, column)[below[0]]) if below.size else math.inf

    @property
    def seconds_per_epoch(self) -> float:
        """The median of the seconds per epoch over all steps except the first."""
        each = np.diff(self.seconds) / np.diff(self.epoch)
        return float(np.median(each[1:] if len(each) > 1 else each))

    @property
    def label(self) -> str:
        """The name in legends."""
        return f"{self.method.upper()}, τ = {self.tau}"


def watch(
    problem: Problem,
    method: str,
    tau: int,
    order: str,
    limits: Limits,
    seed: int = 0,
    tell: Tell = lambda _epoch, _gap: None,
) -> Watched:
    """Run a dual method ("sdna", "sdca") with sets of size τ from α = 0, and certify its iterate after every step.

    ``order`` is ``NICE`` or ``DEFAULT``; ``tell`` is called with the epoch and the relative gap after every step.
    """
    drawn = {"sampling": Nice(problem.n, tau)} if order == NICE else {"tau": tau}
    end = time.perf_counter() + limits.seconds
    rows: list[tuple[Any, ...]] = []

    def over(progress: Progress) -> bool:
        """Stop by the gap of the iterate, and only between two steps, so that repeated runs have equal iterates."""
        iterate = progress.latest
        assert iterate is not None
        rows.append((progress.epoch, progress.work_seconds, iterate.gap, iterate.relative_gap))
        if progress.epoch > 0.0:
            tell(progress.epoch, iterate.relative_gap)
        return iterate.relative_gap <= limits.goal or time.perf_counter() >= end

    result = solve(
        problem,
        method=method,
        **drawn,
        tol=0.0,
        max_epochs=limits.epochs,
        random_state=seed,
        callback=over,
        certify_every=1,
    )
    if result.status is Status.INTERRUPTED:  # Ctrl-C ends the whole experiment, not only this run
        raise KeyboardInterrupt
    return Watched(method, order, tau, result.plan, *(np.array(column) for column in zip(*rows, strict=True)))


def watch_repeatedly(times: int, *run: Any) -> Watched:
    """Repeat a run, with the arguments of :func:`watch` and equal iterates each time, and keep the shortest time of each step.

    The shortest time is the best estimate, because other work on the machine can only lengthen a time.
    """
    runs = [watch(*run) for _ in range(times)]
    steps = min(len(run.seconds) for run in runs)  # the time limit may end some runs earlier than others
    shortest = np.min([np.diff(run.seconds[:steps]) for run in runs], axis=0)
    kept = {name: getattr(runs[0], name)[:steps] for name in ("epoch", "gap", "relative_gap")}
    return replace(runs[0], seconds=np.append(0.0, np.cumsum(shortest)), **kept)
