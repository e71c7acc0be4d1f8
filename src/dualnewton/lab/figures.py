"""What the three figures share: the runs of a grid, panels of them, and the default of the library beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Curve, Panel
from dualnewton.lab.sets import Posed
from dualnewton.lab.watched import DEFAULT, NICE, Limits, Watched, watch_again
from dualnewton.run.loop import solve

ORDERS = {NICE: "sets drawn anew for every round, as in the paper", DEFAULT: "the order that solve has by default"}
"""The rows of every figure."""

ROUNDING = 1e-16
"""Where a gap of zero is drawn."""

REPEATS = 3
"""Runs of what is timed: their iterates are the same, and each turn counts with its shortest time."""

COLUMNS = ("data", "order", "method", "tau", "epoch", "seconds", "gap", "relative_gap")


@dataclass(frozen=True)
class Grid:
    """The runs of a figure on every data set, in both orders.

    Attributes
    ----------
    methods : sequence of str
        "sdna", "sdca".
    taus : sequence of int
        τ.
    limits : Limits
        When each run ends.
    """

    methods: Sequence[str]
    taus: Sequence[int]
    limits: Limits

    def cells(self, posed: Posed) -> list[tuple[str, int]]:
        """The pairs of method and τ; the two methods are one for τ = 1, which is run once, and no set is larger than n."""
        pairs = [(method, tau) for method in self.methods for tau in self.taus if tau <= posed.problem.n]
        return [(method, tau) for method, tau in pairs if tau > 1 or method == self.methods[0]]

    def weight(self, sets: Sequence[Posed]) -> float:
        """How much of a progress bar they take."""
        return float(len(ORDERS) * sum(len(self.cells(posed)) for posed in sets))


def runs_of(grid: Grid, posed: Posed, order: str, steps: Steps, name: str, seed: int, times: int = 1) -> list[Watched]:
    """Run a grid on one data set, each run some times, of which the shortest times are kept."""
    found = []
    for method, tau in grid.cells(posed):
        tell = steps.begin(f"{name}: {posed.name}, {method.upper()} τ={tau}", grid.limits.goal)
        found.append(watch_again(times, posed.problem, method, tau, order, grid.limits, seed, tell))
    return found


def of(method: str, runs: Sequence[Watched]) -> list[Watched]:
    """Those of a method, τ = 1 included whichever method has run it."""
    return [run for run in runs if run.method == method or run.tau == 1]


def curves(runs: Sequence[Watched], x: str, taus: Sequence[int]) -> list[Curve]:
    """The relative gap against "epoch" or "seconds"; a colour for each τ, a kind of line for each method."""
    both = len({run.method for run in runs}) > 1
    return [
        Curve(
            "SDNA = SDCA, τ = 1" if both and run.tau == 1 else run.label,
            getattr(run, x),
            run.relative_gap,
            run.method.upper(),
            list(taus).index(run.tau),
        )
        for run in runs
    ]


def automatic(posed: Posed, goal: float, seed: int, x: str, shade: int) -> Curve:
    """What ``solve`` does when it is left alone: its own certificates, their time included."""
    result = solve(posed.problem, tol=goal, random_state=seed)
    trace = result.trace
    name = f"solve as it is ({result.plan.method}{f', τ = {result.plan.tau}' if not result.plan.is_primal else ''})"
    return Curve(name, getattr(trace, x), np.maximum(trace.gap / np.abs(trace.primal), ROUNDING), "default", shade)


def panel(posed: Posed, order: str, lines: Sequence[Curve], end: float | None = None) -> Panel:
    """A panel for a data set and an order."""
    return Panel(f"{posed}: {order}", lines, end=end)


def records(posed: Posed, runs: Iterable[Watched]) -> list[tuple[Any, ...]]:
    """The curves in long format."""
    return [
        (posed.name, run.order, run.method, run.tau, float(epoch), float(spent), float(gap), float(relative))
        for run in runs
        for epoch, spent, gap, relative in zip(run.epoch, run.seconds, run.gap, run.relative_gap, strict=True)
    ]
