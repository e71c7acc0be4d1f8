"""A run looked at after every turn, with a clock that stops while the judge works.

``solve`` asks for a certificate when one is due, since each costs about an epoch. A curve wants one after every epoch, and must
not pay for it: here the runner of ``solve`` is driven turn by turn, and only its turns (the draws and the rounds) are timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from dualnewton._blas import one_blas_thread
from dualnewton.judging import judge_duals
from dualnewton.plan import Plan, plan
from dualnewton.problem import Problem
from dualnewton.runners import make_runner
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
    epochs : float
        The most epochs.
    seconds : float
        The most seconds, certificates included.
    """

    goal: float
    epochs: float = math.inf
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
        What ``solve`` would have done.
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
    sampling = Nice(problem.n, tau) if order == NICE else None
    rng = np.random.default_rng(seed)
    rows = [(0.0, 0.0, *_start(problem))]
    end = time.perf_counter() + limits.seconds
    with one_blas_thread:
        chosen = plan(problem, method, tau)
        pair = judge_duals([problem], [problem.no_dual()])[0]
        runner = make_runner(chosen, [(problem, pair)], sampling, limits.goal, 1)
        try:
            while rows[-1][3] > limits.goal and rows[-1][0] < limits.epochs and time.perf_counter() < end:
                began = time.perf_counter()
                epochs = runner.turn(rng, math.inf, math.inf)
                took = time.perf_counter() - began
                point = runner.candidate(0)
                found = judge_duals([problem], [point.alpha])[0]  # type: ignore[union-attr]
                runner.learn(0, found)
                runner.adapt(0, found.certificate.gap, runner.surprise(0))
                row = rows[-1][0] + epochs, rows[-1][1] + took, found.certificate.gap, found.certificate.relative_gap
                rows.append(row)
                tell(row[0], row[3])
        finally:
            runner.close()
    return Watched(method, order, tau, chosen, *(np.array(column) for column in zip(*rows, strict=True)))


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


def _start(problem: Problem) -> tuple[float, float]:
    certificate = judge_duals([problem], [problem.no_dual()])[0].certificate
    return certificate.gap, certificate.relative_gap
