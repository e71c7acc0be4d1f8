"""The comparison with other libraries on data of many shapes and conditionings, and of "auto" with each of our methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.against_peers import (
    COLUMNS,
    Limits,
    Ours,
    Row,
    certified,
    details,
    line,
    mean_ratio,
    measured,
    on,
    our_time,
    overview,
    shown,
)
from benchmarks.data import Cell
from benchmarks.report import MISSING, Section, Table, Target, number, ratio, seconds

OUR_METHODS = ("sdna", "newton", "ihs")

PATIENCE = 4.0
"""A method is stopped after this multiple of the time of "auto", since it was then not the better choice."""

SHORTEST_BUDGET = 0.5
"""Smallest time limit of a method in seconds, so that noise in a short time of "auto" does not stop it too early."""

MOST_CELLS = 0.9
"""Fraction of the cells in which a target must hold."""

SLOWEST = 1.3
"""Largest allowed ratio of our time to the best peer's, and of the time of "auto" to that of our best method."""

WORST = 10
"""Number of rows in the table of the worst cells."""


@dataclass(frozen=True)
class Hindsight:
    """The times of our methods in a cell, or the reasons why there are none."""

    cell: Cell
    auto: Ours | None
    times: dict[str, float | str]

    @property
    def regret(self) -> float:
        """The time of "auto" divided by the best; ∞ if only another method reached the goal, NaN if none did."""
        mine = self.auto.seconds if self.auto and self.auto.reached else math.inf
        best = min([mine, *(found for found in self.times.values() if not isinstance(found, str))])
        return mine / best if math.isfinite(best) else math.nan

    @property
    def line(self) -> list[str]:
        """The row of the table."""
        auto = [seconds(self.auto.seconds), self.auto.method] if self.auto and self.auto.reached else [MISSING] * 2
        regret = "only another" if math.isinf(self.regret) else ratio(self.regret)
        return [str(self.cell), *auto, *(shown(self.times[method]) for method in OUR_METHODS), regret]


def hindsight(row: Row, threads: int, cap: float) -> Hindsight:
    """Measure each of our methods separately."""
    return Hindsight(row.cell, row.ours, {method: own_time(row, method, threads, cap) for method in OUR_METHODS})


def own_time(row: Row, method: str, threads: int, cap: float) -> float | str:
    """Return the time of a method at default settings; a dash if the method cannot solve the problem."""
    auto = row.ours if row.ours and row.ours.reached else None
    limit = min(cap, max(SHORTEST_BUDGET, PATIENCE * auto.seconds)) if auto else cap
    found, ending = our_time(row.cell, row.optimum, threads, limit, method=method)
    if found:
        return found.seconds if found.reached else f"> {seconds(min(limit, found.seconds))}"
    refused = ending.startswith("failed: DualnewtonError")
    return MISSING if refused else ending.split(":")[0]


# The section -------------------------------------------------------------------------------------------------------------


def section(cells: list[Cell], thread_counts: list[int], cap: float, say: Callable[[str], None]) -> Section:
    """Run every cell at every number of threads."""
    own: dict[int, list[Hindsight]] = {threads: [] for threads in thread_counts}
    rows = measured(
        cells, thread_counts, Limits(cap), say, lambda row, threads: own[threads].append(hindsight(row, threads, cap))
    )
    result = Section("Every regime: time to P − P* ≤ 1e-06·P*, no intercept")
    for threads, found in rows.items():
        result.tables += [worst(found, threads), overview(found, threads), methods(own[threads], threads)]
        result.tables += details(found, threads)
        result.targets += [*against_peers(found, threads), against_hindsight(own[threads], threads)]
    result.targets.append(certified(rows[thread_counts[0]]))
    return result


def against_peers(rows: list[Row], threads: int) -> list[Target]:
    """Return the targets against the best peer: the number of cells ahead, the slowest cell, and the geometric mean."""
    ratios = [row.ratio for row in rows]
    ahead = sum(value > 1.0 for value in ratios)
    slow = [value for value in ratios if value < 1.0 / SLOWEST]
    unknown = sum(math.isnan(value) for value in ratios)
    behind = f"{len(slow)} of {len(rows)} cells slower" + (
        f", {ratio(1.0 / min(slow)) if min(slow) else 'not solved'} at worst" if slow else ""
    )
    without = f", {unknown} of them not solved in time by any library" * (unknown > 0)
    mean = mean_ratio(rows)
    return [
        Target(
            f"ahead of the best peer in at least {MOST_CELLS:.0%} of the cells, {on(threads)}",
            f"{ahead} of {len(rows)}{without}",
            ahead >= MOST_CELLS * len(rows),
        ),
        Target(f"never slower than {SLOWEST:g}× the best peer, {on(threads)}", behind, not slow),
        Target.at_least(f"geometric mean of the ratios at least 2, {on(threads)}", [mean], 2.0),
    ]


def against_hindsight(found: list[Hindsight], threads: int) -> Target:
    """Return the target that "auto" is close to the best of our methods in most cells."""
    regrets = [one.regret for one in found if not math.isnan(one.regret)]
    good = sum(regret <= SLOWEST for regret in regrets)
    largest = max(regrets, default=math.nan)
    worst = "elsewhere only another method solves it" if math.isinf(largest) else f"{number(largest)}× at worst"
    measured = f"{good} of {len(regrets)}, {worst}" if regrets else MISSING
    claim = f"auto within {SLOWEST:g}× of our best method in at least {MOST_CELLS:.0%} of the cells, {on(threads)}"
    return Target(claim, measured, good >= MOST_CELLS * len(regrets) if regrets else None)


def worst(rows: list[Row], threads: int) -> Table:
    """Return the table of the cells with the smallest ratios."""
    compared = [row for row in rows if not math.isnan(row.ratio)]
    lines = [line(row) for row in sorted(compared, key=lambda row: row.ratio)[:WORST]]
    return Table(f"The worst {len(lines)} cells, {on(threads)[3:]}", COLUMNS, lines)


def methods(found: list[Hindsight], threads: int) -> Table:
    """Return the table of the times of all our methods and of "auto"."""
    columns = ["cell", "auto", "its method", *OUR_METHODS, "auto / best"]
    note = f"A method is stopped (>) after {PATIENCE:g} times the time of auto, or at the limit. {MISSING}: not applicable."
    return Table(f"Our methods in hindsight, {on(threads)[3:]}", columns, [one.line for one in found], note)
