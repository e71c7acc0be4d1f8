"""Comparison with other libraries: the time to P − P* ≤ 1e-6·P*, ours at default settings, theirs at their best tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks.data import Cell, warm_up_like
from benchmarks.optimum import CERTIFIED, GOAL, Optimum, optimum_of
from benchmarks.peers import PEERS, Peer
from benchmarks.report import MISSING, Section, Table, Target, ratio, seconds
from benchmarks.timing import ENOUGH_SECONDS, REPEATS, Trial, best_of, geometric_mean, in_child, loosest_success

import dualnewton as dn

WARM_UPS = 5
"""Number of fits of a small problem in a child process before the timed fit."""

COMPETITIVE = 3.0
"""A peer is measured again on two threads only if its time on one is at most this multiple of the best peer's; a slower one
cannot become the best."""

NOT_CERTIFIED = "P* unknown"
"""The entry of a cell whose optimum could not be certified."""


@dataclass(frozen=True)
class Limits:
    """The time limits of a contender.

    Parameters
    ----------
    cap : float
        Largest time of a run in seconds.
    search : float
        Largest time of a peer's search for its tolerance, as a multiple of the best peer's time. A search has about four
        trials before the successful one, each no longer than that one, so a peer that could be the best ends well before.
    run : float
        Largest time of each run of a peer, as a multiple of the best peer's time; a slower peer cannot be the best.
    caps : float
        Largest time of a search, as a multiple of ``cap``.
    """

    cap: float
    search: float = 15.0
    run: float = 2.5
    caps: float = 3.0

    SHORTEST_SEARCH = 1.0
    SHORTEST_RUN = 0.5
    """Smallest limits in seconds of a search and of a run, so that noise in short times does not stop a peer."""

    def for_search(self, best: float) -> float:
        """Return the limit of a search in seconds, given the best peer's time so far."""
        return min(self.caps * self.cap, max(self.SHORTEST_SEARCH, self.search * best))

    def for_run(self, best: float) -> float:
        """Return the limit of a run in seconds, given the best peer's time so far."""
        return min(self.cap, max(self.SHORTEST_RUN, self.run * best))


@dataclass(frozen=True)
class Ours:
    """Our fit of a cell."""

    seconds: float
    method: str
    tau: int
    epochs: float
    reached: bool


@dataclass(frozen=True)
class Row:
    """The times of all contenders in a cell, on one number of threads."""

    cell: Cell
    optimum: Optimum
    ours: Ours | None
    tried: dict[str, float | str] = field(default_factory=dict)

    @property
    def peers(self) -> dict[str, float]:
        """The times of the peers that reached the goal; ``tried`` holds the reasons of the others."""
        return {name: found for name, found in self.tried.items() if not isinstance(found, str)}

    @property
    def best_peer(self) -> tuple[str, float]:
        """The name and the time of the fastest peer that reached the goal."""
        return min(self.peers.items(), key=lambda item: item[1], default=(MISSING, math.inf))

    @property
    def ratio(self) -> float:
        """The best peer's time divided by ours: ∞ if only we reached the goal, 0 if only a peer did, NaN if none did."""
        best = self.best_peer[1]
        mine = self.ours.seconds if self.ours and self.ours.reached else math.inf
        return best / mine if math.isfinite(best) or math.isfinite(mine) else math.nan


@dataclass
class Experience:
    """Results of earlier cells with the same data and loss: the times of the peers and the tolerances that sufficed."""

    times: dict[str, float] = field(default_factory=dict)
    digits: dict[str, int] = field(default_factory=dict)

    def fast_first(self, peers: Iterable[Peer]) -> list[Peer]:
        """Order the peers by their last time, because the best time so far limits the time of the others."""
        return sorted(peers, key=lambda peer: self.times.get(peer.name, math.inf))

    def learn(self, peer: Peer, trials: list[Trial]) -> None:
        """Record the best trial of a search."""
        best = min((trial for trial in trials if trial.seconds is not None), key=_time, default=None)
        self.times.pop(peer.name, None)
        if best is not None:
            self.times[peer.name] = _time(best)
            self.digits[peer.name] = math.ceil(best.digits)


def _time(trial: Trial) -> float:
    return math.inf if trial.seconds is None else trial.seconds


# Ours --------------------------------------------------------------------------------------------------------------------


def our_warm_up(cell: Cell, threads: int, **settings: Any) -> None:
    """Solve a small problem of the same kind before the timed fit, as every peer does, since a new process starts slowly."""
    warm = warm_up_like(cell)
    for _ in range(WARM_UPS):
        dn.solve(warm.problem(), n_threads=threads, random_state=0, **settings)


def our_fit(cell: Cell, optimum: Optimum, threads: int, limit: float, settings: dict[str, Any]) -> Iterator[Ours]:
    """Build the problem and solve it; the construction is timed because the peers' times include their data checks."""
    run = best_of(
        lambda: dn.solve(cell.problem(), tol=GOAL, n_threads=threads, random_state=0, time_limit=limit, **settings)
    )
    result = run.value
    reached = optimum.reached_by(cell.problem().primal(result.w))
    yield Ours(run.seconds, result.plan.method, result.plan.tau, result.n_epochs, reached)


def our_time(cell: Cell, optimum: Optimum, threads: int, limit: float, **settings: Any) -> tuple[Ours | None, str]:
    """Return our fit, at default settings except for those given, and how its child process ended."""
    outcome = in_child(
        partial(our_fit, cell, optimum, threads, limit, settings),
        2.0 * limit,
        threads,
        partial(our_warm_up, cell, threads, **settings),
    )
    return outcome.last(), outcome.ending


# Theirs ------------------------------------------------------------------------------------------------------------------


def peer_fit(peer: Peer, cell: Cell, optimum: Optimum, threads: int, first: int) -> Iterator[Trial]:
    """Yield every run of a peer: the search for the loosest sufficient tolerance, then repetitions of the best run."""
    problem = cell.problem()

    def attempt(tol: float) -> float | None:
        run = best_of(lambda: peer.fit(cell.data.X, cell.data.y, cell.lam_n, tol, threads), repeats=1)
        return run.seconds if optimum.reached_by(problem.primal(run.value)) else None

    best = Trial(first, None)
    for trial in loosest_success(attempt, first) if not peer.direct else [Trial(first, attempt(10.0**-first))]:
        best = min(best, trial, key=_time)
        yield trial
    spent = 0.0
    for _ in range(REPEATS - 1):
        spent += _time(best)
        if spent > ENOUGH_SECONDS:  # the run is long, or no run sufficed
            break
        yield Trial(best.digits, attempt(10.0**-best.digits))


def trials_of(
    peer: Peer, cell: Cell, optimum: Optimum, threads: int, first: int, budget: float, patience: float
) -> tuple[list[Trial], str]:
    """Run the search in a child process; return its trials and how it ended."""
    warm = warm_up_like(cell)
    outcome = in_child(
        work=partial(peer_fit, peer, cell, optimum, threads, first),
        cap=budget,
        threads=threads,
        prepare=partial(peer.fit, warm.data.X, warm.data.y, warm.lam_n, 1e-3, threads),  # starts its threads
        patience=patience,
    )
    return outcome.values, "not reached" if outcome.ending == outcome.DONE else outcome.ending.split(":")[0]


def could_gain(peer: Peer, known: Row) -> bool:
    """Return True if the peer could be the best on more threads, given its time on one."""
    return peer.threaded and known.peers.get(peer.name, math.inf) <= COMPETITIVE * known.best_peer[1]


def ask_peers(
    row: Row, peers: list[Peer], threads: int, known: Row | None, limits: Limits, experience: Experience
) -> None:
    """Measure every peer that is installed and supports the data, and add its time to the row.

    Parameters
    ----------
    known : Row, optional
        The row on one thread; a peer that cannot gain from more threads is not measured again.
    """
    for peer in experience.fast_first(peers):
        best = row.best_peer[1]
        if not peer.installed:
            row.tried[peer.name] = "not installed"
        elif refusal := peer.refuses(row.cell.data.X):
            row.tried[peer.name] = refusal
        elif known and not could_gain(peer, known):
            row.tried[peer.name] = known.tried[peer.name]
        else:
            trials, ending = trials_of(
                peer,
                row.cell,
                row.optimum,
                threads,
                experience.digits.get(peer.name, 1),
                limits.for_search(best),
                limits.for_run(best),
            )
            experience.learn(peer, trials)
            row.tried[peer.name] = experience.times.get(peer.name, ending)


def compare(
    cell: Cell,
    threads: int,
    optimum: Optimum,
    known: Row | None,
    limits: Limits,
    experience: Experience,
    peers: list[Peer] | None = None,
) -> Row:
    """Measure our fit, then all peers for the loss, or those given."""
    row = Row(cell, optimum, our_time(cell, optimum, threads, limits.cap)[0])
    ask_peers(row, peers or PEERS[cell.loss], threads, known, limits, experience)
    return row


def measured(
    cells: Iterable[Cell],
    thread_counts: list[int],
    limits: Limits,
    say: Callable[[str], None],
    then: Callable[[Row, int], None] = lambda _row, _threads: None,
    peers: list[Peer] | None = None,
) -> dict[int, list[Row]]:
    """Run every cell at every number of threads; a cell reuses the results of the one before with the same data and loss.

    Parameters
    ----------
    then : callable
        Called with each row and the number of threads, for further measurements.
    """
    rows: dict[int, list[Row]] = {threads: [] for threads in thread_counts}
    previous: Row | None = None
    experience = Experience()
    for cell in cells:
        if previous and (previous.cell.data, previous.cell.loss) != (cell.data, cell.loss):
            previous, experience = None, Experience()
        optimum = optimum_of(cell, previous.optimum if previous else None)
        known: Row | None = None
        for threads in thread_counts:
            if optimum.certified:
                row = compare(cell, threads, optimum, known, limits, experience, peers)
                then(row, threads)
            else:
                row = Row(cell, optimum, None, {peer.name: NOT_CERTIFIED for peer in peers or PEERS[cell.loss]})
            known = previous = known or row
            rows[threads].append(row)
            name, best = row.best_peer
            mine = seconds(row.ours.seconds if row.ours and row.ours.reached else None)
            say(f"{cell}, {threads} threads: ours {mine}, {name} {seconds(best)}")
    return rows


# The section -------------------------------------------------------------------------------------------------------------


def section(cells: list[Cell], thread_counts: list[int], cap: float, say: Callable[[str], None]) -> Section:
    """Run every cell at every number of threads."""
    rows = measured(cells, thread_counts, Limits(cap), say)
    result = Section(f"Against peers: time to P − P* ≤ {GOAL:g}·P*, no intercept")
    for threads, found in rows.items():
        result.tables += [overview(found, threads), *details(found, threads)]
        ratios = [row.ratio for row in found]
        ahead = sum(value > 1.0 for value in ratios)
        result.targets += [
            Target(
                f"ahead of the best peer in every cell, {on(threads)}",
                f"{ahead} of {len(ratios)}",
                ahead == len(ratios),
            ),
            Target.at_least(f"geometric mean of the ratios at least 1.5, {on(threads)}", [mean_ratio(found)], 1.5),
        ]
    result.targets.append(certified(rows[thread_counts[0]]))
    return result


def on(threads: int) -> str:
    """Return "on k threads"."""
    return f"on {threads} thread{'s' * (threads > 1)}"


def mean_ratio(rows: list[Row]) -> float:
    """Return the geometric mean of the ratios of the cells in which both sides reached the goal."""
    return geometric_mean(row.ratio for row in rows if 0.0 < row.ratio < math.inf)


def certified(rows: list[Row]) -> Target:
    """Return the target that P* is certified in every cell."""
    worst = max(row.optimum.uncertainty for row in rows)
    return Target(f"P* certified to {CERTIFIED:g} in every cell", f"{worst:.1e} at worst", worst <= CERTIFIED)


def shown_ratio(row: Row) -> str:
    """Return a ratio as text, or which side alone reached the goal."""
    return {0.0: "only a peer", math.inf: "only ours"}.get(row.ratio) or ratio(row.ratio)


COLUMNS = ["data", "loss", "λn", "ours", "method", "τ", "epochs", "best peer", "its time", "best peer / ours"]


def line(row: Row) -> list[str]:
    """Return the row of a cell: our fit and the best peer."""
    name, best = row.best_peer
    ours = row.ours if row.ours and row.ours.reached else None
    mine = [seconds(ours.seconds), ours.method, str(ours.tau), f"{ours.epochs:.3g}"] if ours else [MISSING] * 4
    cell = [row.cell.data.name, row.cell.loss, f"{row.cell.lam_n:g}"]
    name = name if row.optimum.certified else NOT_CERTIFIED
    return [*cell, *mine, name, seconds(best), shown_ratio(row)]


def overview(rows: list[Row], threads: int) -> Table:
    """Return the table of our fit and the best peer in every cell."""
    note = (
        "Our time is that of one call at default settings with the construction of the problem; a peer's time is the smallest in "
        f"a search for the loosest tolerance that suffices. {MISSING}: not within the time limit."
    )
    return Table(f"Ours and the best peer, {on(threads)[3:]}", COLUMNS, [line(row) for row in rows], note)


def details(rows: list[Row], threads: int) -> Iterator[Table]:
    """Yield a table of the times of all peers for each loss."""
    for loss in dict.fromkeys(row.cell.loss for row in rows):
        names = [peer.name for peer in PEERS[loss]]
        lines = [
            [row.cell.data.name, f"{row.cell.lam_n:g}", *(shown(row.tried[name]) for name in names)]
            for row in rows
            if row.cell.loss == loss
        ]
        note = (
            f"Cut short: a run took {Limits.run:g} times as long as the best peer's, the search {Limits.search:g} times, or the "
            f"time limit was reached. A peer without threads, or {COMPETITIVE:g} times slower than the best on one thread, is "
            "not measured on more threads."
        )
        yield Table(f"All peers, {loss}, {on(threads)[3:]}", ["data", "λn", *names], lines, note)


def shown(found: float | str) -> str:
    """Return a time as text, or the reason why there is none."""
    return found if isinstance(found, str) else seconds(found)
