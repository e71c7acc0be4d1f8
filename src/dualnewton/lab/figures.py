"""Shared by the three figures: the runs of a grid, their panels, and the curve of ``solve`` with default settings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.lab._numbers import ROUNDING
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Curve, Panel
from dualnewton.lab.sets import Posed
from dualnewton.lab.watched import DEFAULT, NICE, Limits, Watched, watch_repeatedly
from dualnewton.run.loop import solve

ORDERS = {NICE: "independent sets in every round, as in the paper", DEFAULT: "the default order of solve"}
"""The orders of the examples, one for each row of every figure, with their titles."""

REPEATS = 3
"""Number of runs of each timed method; their iterates are equal, and the shortest time of each epoch counts."""

COLUMNS = ("data", "order", "method", "tau", "epoch", "seconds", "gap", "relative_gap")
"""The columns of the CSV files."""


@dataclass(frozen=True)
class Grid:
    """The runs of a figure on every data set, in both orders."""

    methods: Sequence[str]
    taus: Sequence[int]
    limits: Limits  # stopping conditions of each run

    def cells(self, posed: Posed) -> list[tuple[str, int]]:
        """Return the pairs of method and τ ≤ n; τ = 1 occurs once, because the two methods then coincide."""
        pairs = [(method, tau) for method in self.methods for tau in self.taus if tau <= posed.problem.n]
        return [(method, tau) for method, tau in pairs if tau > 1 or method == self.methods[0]]

    def weight(self, sets: Sequence[Posed]) -> float:
        """Return the weight of the runs in the progress bar."""
        return float(len(ORDERS) * sum(len(self.cells(posed)) for posed in sets))


def runs_of(grid: Grid, posed: Posed, order: str, steps: Steps, name: str, seed: int, times: int = 1) -> list[Watched]:
    """Run a grid on one data set, each run ``times`` times, and keep the shortest time of each epoch."""
    found = []
    for method, tau in grid.cells(posed):
        tell = steps.begin(f"{name}: {posed.name}, {method.upper()} τ={tau}", grid.limits.goal)
        found.append(watch_repeatedly(times, posed.problem, method, tau, order, grid.limits, seed, tell))
    return found


def runs_of_method(method: str, runs: Sequence[Watched]) -> list[Watched]:
    """Return the runs of a method, including the run with τ = 1, which both methods share."""
    return [run for run in runs if run.method == method or run.tau == 1]


def curves(runs: Sequence[Watched], x: str, taus: Sequence[int]) -> list[Curve]:
    """Return curves of the relative gap against "epoch" or "seconds", with a colour per τ and a line style per method."""
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
    """Return the curve of ``solve`` with default settings, whose time includes its own certificates."""
    result = solve(posed.problem, tol=goal, random_state=seed)
    trace = result.trace
    name = f"solve, default settings ({result.plan.method}{f', τ = {result.plan.tau}' if not result.plan.is_primal else ''})"
    return Curve(name, getattr(trace, x), np.maximum(trace.gap / np.abs(trace.primal), ROUNDING), "default", shade)


def panel(posed: Posed, order: str, lines: Sequence[Curve], end: float | None = None) -> Panel:
    """Return the panel of a data set and an order."""
    return Panel(f"{posed}: {order}", lines, end=end)


def records(posed: Posed, runs: Iterable[Watched]) -> list[tuple[Any, ...]]:
    """Return the points of the curves as records, in the order of ``COLUMNS``."""
    return [
        (posed.name, run.order, run.method, run.tau, float(epoch), float(spent), float(gap), float(relative))
        for run in runs
        for epoch, spent, gap, relative in zip(run.epoch, run.seconds, run.gap, run.relative_gap, strict=True)
    ]
