"""Against peers: the time to P − P* ≤ 1e-6·P*, ours at default settings, theirs at their best tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from benchmarks.data import LOSSES, Cell, warm_up_cells
from benchmarks.peers import PEERS, Peer, reference
from benchmarks.report import MISSING, Section, Table, Target, ratio, seconds
from benchmarks.timing import REPEATS, best_of, geometric_mean, in_child, loosest_success

import dualnewton as dn

GOAL = 1e-6
TIGHT = 1e-10
REFERENCE_CAP = 60.0

HOPELESS = 15.0
"""A peer is cut short after so many times the best peer's time. Its search makes at most nine runs before the success that it
then repeats twice, and a looser run is not longer: with less than the best time each, it is done well before."""

SHORTEST_BUDGET = 1.0


@dataclass(frozen=True)
class Optimum:
    """P*, known from above by two solvers and from below by our dual."""

    primal: float
    dual: float

    @property
    def uncertainty(self) -> float:
        """How far P* may lie below, relatively."""
        return (self.primal - self.dual) / abs(self.primal)

    def reached_by(self, primal: float) -> bool:
        """P − P* ≤ 1e-6·P*."""
        return primal - self.primal <= GOAL * abs(self.primal)


@dataclass(frozen=True)
class Ours:
    """Our fit of a cell."""

    seconds: float
    tau: int
    epochs: float
    reached: bool


@dataclass(frozen=True)
class Row:
    """A cell with what all contenders needed for it, on some number of threads."""

    cell: Cell
    optimum: Optimum
    ours: Ours | None
    tried: dict[str, float | str]

    @property
    def peers(self) -> dict[str, float]:
        """The times of those that reached the goal; ``tried`` holds the reason for the others."""
        return {name: found for name, found in self.tried.items() if not isinstance(found, str)}

    @property
    def best_peer(self) -> tuple[str, float]:
        """The fastest that reached the goal."""
        return min(self.peers.items(), key=lambda item: item[1], default=(MISSING, math.inf))

    @property
    def ratio(self) -> float:
        """The best peer's time over ours; NaN where one of the two is missing."""
        best = self.best_peer[1]
        return best / self.ours.seconds if self.ours and self.ours.reached and math.isfinite(best) else math.nan


def find_optimum(cell: Cell) -> Iterator[Optimum]:
    """Solve tightly, and let a peer that shares nothing with us look for something lower."""
    problem = cell.problem()
    ours = dn.solve(problem, tol=TIGHT, n_threads=1, random_state=0, time_limit=REFERENCE_CAP / 3)
    yield Optimum(ours.certificate.primal, ours.certificate.dual)
    theirs = problem.primal(reference(cell.loss).fit(problem.X, problem.y, cell.lam_n, tol=1e-9))
    yield Optimum(min(ours.certificate.primal, theirs), ours.certificate.dual)


def our_warm_up(threads: int) -> None:
    """Solve something else first, as every peer does: the first milliseconds after a fork are slow for anyone."""
    for cell in warm_up_cells():
        dn.solve(cell.problem(), n_threads=threads, random_state=0)


def our_fit(cell: Cell, optimum: Optimum, threads: int, cap: float) -> Iterator[Ours]:
    """Build the problem and solve it with every setting left alone; the peers' times hold their checks of the data too."""
    run = best_of(lambda: dn.solve(cell.problem(), tol=GOAL, n_threads=threads, random_state=0, time_limit=cap))
    result = run.value
    reached = optimum.reached_by(cell.problem().primal(result.w))
    yield Ours(run.seconds, result.plan.tau, result.n_epochs, reached)


def peer_fit(peer: Peer, cell: Cell, optimum: Optimum, threads: int) -> Iterator[float]:
    """Yield the times at which a peer reaches the goal; the shortest counts."""
    problem = cell.problem()

    def attempt(tol: float) -> float | None:
        def fit() -> np.ndarray:
            return peer.fit(cell.data.X, cell.data.y, cell.lam_n, tol, threads)

        first = best_of(fit, repeats=1)
        if not optimum.reached_by(problem.primal(first.value)):
            return None
        return min(first.seconds, best_of(fit, repeats=REPEATS - 1).seconds)  # only a success is worth repeating

    yield from loosest_success(attempt)


def time_of(peer: Peer, warm: Cell, cell: Cell, optimum: Optimum, threads: int, budget: float) -> float | str:
    """Return the peer's shortest time, or the reason why there is none."""
    outcome = in_child(
        work=partial(peer_fit, peer, cell, optimum, threads),
        cap=budget,
        threads=threads,
        prepare=partial(peer.fit, warm.data.X, warm.data.y, warm.lam_n, 1e-3, threads),  # imports; starts its threads
    )
    if outcome.values:
        return min(outcome.values)
    return "not reached" if outcome.ending == outcome.DONE else outcome.ending.split(":")[0]


def compare(cell: Cell, warm: Cell, threads: int, optimum: Optimum, known: dict[str, float | str], cap: float) -> Row:
    """Measure ours, then every peer that is installed and takes such data.

    Parameters
    ----------
    known : dict
        What was found on one thread: a peer without threads is not asked again.
    """
    ours = in_child(
        partial(our_fit, cell, optimum, threads, cap), 2 * cap, threads, partial(our_warm_up, threads)
    ).last()
    row = Row(cell, optimum, ours, {})
    for peer in PEERS[cell.loss]:
        if not peer.installed:
            row.tried[peer.name] = "not installed"
        elif not peer.takes(cell.data.X):
            row.tried[peer.name] = "too wide"
        elif known and not peer.threaded:
            row.tried[peer.name] = known[peer.name]
        else:
            budget = min(cap, max(SHORTEST_BUDGET, HOPELESS * row.best_peer[1]))
            row.tried[peer.name] = time_of(peer, warm, cell, optimum, threads, budget)
    return row


# The section -------------------------------------------------------------------------------------------------------------


def section(cells: list[Cell], warm: Cell, thread_counts: list[int], cap: float, say: Callable[[str], None]) -> Section:
    """Run every cell at every number of threads."""
    rows: dict[int, list[Row]] = {threads: [] for threads in thread_counts}
    for cell in cells:
        optimum = in_child(partial(find_optimum, cell), REFERENCE_CAP, threads=1).last()
        if optimum is None:
            raise RuntimeError(f"no optimum could be found for {cell}")
        known: dict[str, float | str] = {}
        for threads in thread_counts:
            row = compare(cell, warm, threads, optimum, known, cap)
            known = known or row.tried
            rows[threads].append(row)
            name, best = row.best_peer
            say(
                f"{cell}, {threads} threads: ours {seconds(row.ours.seconds if row.ours else None)}, {name} {seconds(best)}"
            )
    result = Section(f"Against peers: time to P − P* ≤ {GOAL:g}·P*, no intercept")
    for threads, measured in rows.items():
        result.tables += [overview(measured, threads), *details(measured, threads)]
        ratios = [row.ratio for row in measured]
        ahead = sum(value > 1.0 for value in ratios)
        mean = geometric_mean(value for value in ratios if math.isfinite(value))
        on = f"on {threads} thread{'s' * (threads > 1)}"
        result.targets += [
            Target(f"ahead of the best peer in every cell, {on}", f"{ahead} of {len(ratios)}", ahead == len(ratios)),
            Target.at_least(f"geometric mean of the ratios at least 1.5, {on}", [mean], 1.5),
        ]
    worst = max(row.optimum.uncertainty for row in rows[thread_counts[0]])
    result.targets.append(
        Target(f"P* certified to {GOAL / 100:g} in every cell", f"{worst:.1e} at worst", worst <= GOAL / 100)
    )
    return result


def overview(rows: list[Row], threads: int) -> Table:
    """Ours against the best of the others, cell by cell."""
    columns = ["data", "loss", "λn", "ours", "τ", "epochs", "best peer", "its time", "best peer / ours"]
    lines = []
    for row in rows:
        name, best = row.best_peer
        ours = row.ours
        mine = [seconds(ours.seconds), str(ours.tau), f"{ours.epochs:.3g}"] if ours and ours.reached else [MISSING] * 3
        cell = [row.cell.data.name, row.cell.loss, f"{row.cell.lam_n:g}"]
        lines.append([*cell, *mine, name, seconds(best), ratio(row.ratio)])
    note = (
        "Ours is one call at default settings, the construction of the problem included; a peer's time is its smallest over a "
        "search for the loosest tolerance that suffices."
    )
    return Table(f"Ours and the best peer, {threads} thread{'s' * (threads > 1)}", columns, lines, note)


def details(rows: list[Row], threads: int) -> Iterator[Table]:
    """Yield every peer's time, a table per loss."""
    for loss in LOSSES:
        names = [peer.name for peer in PEERS[loss]]
        lines = [
            [row.cell.data.name, f"{row.cell.lam_n:g}", *(_shown(row.tried[name]) for name in names)]
            for row in rows
            if row.cell.loss == loss
        ]
        note = f"Cut short: no success within {HOPELESS:g} times the best peer's time, or the time limit."
        yield Table(f"All peers, {loss}, {threads} thread{'s' * (threads > 1)}", ["data", "λn", *names], lines, note)


def _shown(found: float | str) -> str:
    return found if isinstance(found, str) else seconds(found)
