"""Runs of ``solve`` with a certificate of every iterate, and a clock that counts draws and rounds only.

``solve`` computes a certificate when one is due, since each costs about an epoch. A curve needs one after every epoch, and its
time must not include them: ``certify_every=1``, and the ``work_seconds`` of the trace.
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
"""How sets of examples come about: drawn anew for every round, as in the paper, or by the order that ``solve`` has by
default."""

Tell = Callable[[float, float], None]
"""(epoch, relative gap) ↦ nothing: hears how far a run has come."""


@dataclass(frozen=True)
class Limits:
    """When a watched run ends.

    Attributes
    ----------
    goal : float
        The certified relative gap.
    epochs : int
        The most epochs.
    seconds : float
        The most seconds, certificates included.
    """

    goal: float
    epochs: int = 1_000_000
    seconds: float = math.inf


@dataclass(frozen=True, eq=False)
class Watched:
    """What was seen: after every turn the epochs, the seconds of the turns, and the certified gap.

    Attributes
    ----------
    method, order : str
        "sdna" or "sdca"; ``NICE`` or ``DEFAULT``.
    tau : int
        τ.
    plan : Plan
        What ``solve`` did.
    epoch, seconds, gap, relative_gap : arrays
        The curve, which begins at α = 0. The gap is that of the iterate itself, not of the best one so far.
    """

    method: str
    order: str
    tau: int
    plan: Plan
    epoch: np.ndarray
    seconds: np.ndarray
    gap: np.ndarray
    relative_gap: np.ndarray

    def first(self, level: float, column: str = "epoch") -> float:
        """Return the epochs (or the seconds) until the relative gap was at most a level; ∞ if it never was."""
        below = np.flatnonzero(self.relative_gap <= level)
        return float(getattr(self, column)[below[0]]) if below.size else math.inf

    @property
    def seconds_per_epoch(self) -> float:
        """The median over the turns but the first, of the seconds per epoch."""
        each = np.diff(self.seconds) / np.diff(self.epoch)
        return float(np.median(each[1:] if len(each) > 1 else each))

    @property
    def label(self) -> str:
        """What a legend calls it."""
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
    """Run a dual method from α = 0 and certify its iterate after every turn.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : {"sdna", "sdca"}
        The method.
    tau : int
        The size of the sets.
    order : str
        ``NICE`` or ``DEFAULT``.
    limits : Limits
        When to end.
    seed : int
        Of the draws.
    tell : callable
        Hears the epoch and the relative gap after every turn.
    """
    drawn = {"sampling": Nice(problem.n, tau)} if order == NICE else {"tau": tau}
    end = time.perf_counter() + limits.seconds
    rows: list[tuple[Any, ...]] = []

    def over(progress: Progress) -> bool:
        """Stop by the gap of the iterate, and between two turns only: repeated runs then have the same iterates."""
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
    if result.status is Status.INTERRUPTED:  # the whole experiment is meant, not this run of many
        raise KeyboardInterrupt
    return Watched(method, order, tau, result.plan, *(np.array(column) for column in zip(*rows, strict=True)))


def watch_again(
    times: int,
    problem: Problem,
    method: str,
    tau: int,
    order: str,
    limits: Limits,
    seed: int = 0,
    tell: Tell = lambda _epoch, _gap: None,
) -> Watched:
    """Repeat a run, whose iterates are the same each time, and keep the shortest time of each turn.

    Everything else that happens on a machine only adds to a time.
    """
    runs = [watch(problem, method, tau, order, limits, seed, tell) for _ in range(times)]
    turns = min(len(run.seconds) for run in runs)  # a run that the clock has ended is shorter
    shortest = np.min([np.diff(run.seconds[:turns]) for run in runs], axis=0)
    kept = {name: getattr(runs[0], name)[:turns] for name in ("epoch", "gap", "relative_gap")}
    return replace(runs[0], seconds=np.append(0.0, np.cumsum(shortest)), **kept)
