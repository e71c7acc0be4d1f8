"""Against peers: the time to P − P* ≤ 1e-6·P*, ours at default settings, theirs at their best tolerance."""

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
COMPETITIVE = 3.0
"""On more threads only those are asked again that were so close to the best peer on one: the others cannot become the best."""

NOT_CERTIFIED = "P* unknown"


@dataclass(frozen=True)
class Limits:
    """When a contender is cut short.

    Parameters
    ----------
    cap : float
        The most seconds a run may take.
    search : float
        A peer's search may take so many times the best peer's time. Its trials before the success are not longer than that,
        and are four or so: who could win is done well before.
    run : float
        Each run of it may take so many times the best peer's time: who takes longer cannot win.
    caps : float
        A search may take so many times the cap at most.
    """

    cap: float
    search: float = 15.0
    run: float = 2.5
    caps: float = 3.0

    SHORTEST_SEARCH = 1.0
    SHORTEST_RUN = 0.5

    def for_search(self, best: float) -> float:
        """The seconds of a search, with the best peer's time so far."""
        return min(self.caps * self.cap, max(self.SHORTEST_SEARCH, self.search * best))

    def for_run(self, best: float) -> float:
        """The seconds of a run."""
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
    """A cell with what all contenders needed for it, on some number of threads."""

    cell: Cell
    optimum: Optimum
    ours: Ours | None
    tried: dict[str, float | str] = field(default_factory=dict)

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
        """The best peer's time over ours: ∞ where only we reached the goal, 0 where only a peer did, NaN where nobody did."""
        best = self.best_peer[1]
        mine = self.ours.seconds if self.ours and self.ours.reached else math.inf
        return best / mine if math.isfinite(best) or math.isfinite(mine) else math.nan


@dataclass
class Experience:
    """What the cells of the same data and loss have taught: who is fast, and which tolerance sufficed."""

    times: dict[str, float] = field(default_factory=dict)
    digits: dict[str, int] = field(default_factory=dict)

    def fast_first(self, peers: Iterable[Peer]) -> list[Peer]:
        """Order the peers by their last time, since the best time cuts the others short."""
        return sorted(peers, key=lambda peer: self.times.get(peer.name, math.inf))

    def learn(self, peer: Peer, trials: list[Trial]) -> None:
        """Take what a search has found."""
        best = min((trial for trial in trials if trial.seconds is not None), key=_time, default=None)
        self.times.pop(peer.name, None)
        if best is not None:
            self.times[peer.name] = _time(best)
            self.digits[peer.name] = math.ceil(best.digits)


def _time(trial: Trial) -> float:
    return math.inf if trial.seconds is None else trial.seconds


# Ours --------------------------------------------------------------------------------------------------------------------


def our_warm_up(cell: Cell, threads: int, **settings: Any) -> None:
    """Solve something like it first, as every peer does: the first milliseconds after a fork are slow for anyone."""
    warm = warm_up_like(cell)
    for _ in range(WARM_UPS):
        dn.solve(warm.problem(), n_threads=threads, random_state=0, **settings)


def our_fit(cell: Cell, optimum: Optimum, threads: int, limit: float, settings: dict[str, Any]) -> Iterator[Ours]:
    """Build the problem and solve it; the peers' times hold their checks of the data too."""
    run = best_of(
        lambda: dn.solve(cell.problem(), tol=GOAL, n_threads=threads, random_state=0, time_limit=limit, **settings)
    )
    result = run.value
    reached = optimum.reached_by(cell.problem().primal(result.w))
    yield Ours(run.seconds, result.plan.method, result.plan.tau, result.n_epochs, reached)


def our_time(cell: Cell, optimum: Optimum, threads: int, limit: float, **settings: Any) -> tuple[Ours | None, str]:
    """Return our fit, with every setting left alone that is not given, and how its child ended."""
    outcome = in_child(
        partial(our_fit, cell, optimum, threads, limit, settings),
        2.0 * limit,
        threads,
        partial(our_warm_up, cell, threads, **settings),
    )
    return outcome.last(), outcome.ending


# Theirs ------------------------------------------------------------------------------------------------------------------


def peer_fit(peer: Peer, cell: Cell, optimum: Optimum, threads: int, first: int) -> Iterator[Trial]:
    """Yield every run of a peer: the search for its loosest sufficient tolerance, then the best again."""
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
        if spent > ENOUGH_SECONDS:  # a long run, or none that sufficed
            break
        yield Trial(best.digits, attempt(10.0**-best.digits))


def trials_of(
    peer: Peer, cell: Cell, optimum: Optimum, threads: int, first: int, budget: float, patience: float
) -> tuple[list[Trial], str]:
    """Run the search in a child; return its trials, and how it ended."""
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
    """Whether more threads could make it the best, after what was found on one."""
    return peer.threaded and known.peers.get(peer.name, math.inf) <= COMPETITIVE * known.best_peer[1]


def ask_peers(
    row: Row, peers: list[Peer], threads: int, known: Row | None, limits: Limits, experience: Experience
) -> None:
    """Measure every peer that is installed and takes such data, and write it into the row.

    Parameters
    ----------
    known : Row, optional
        What was found on one thread: a peer that more of them cannot help is not asked again.
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
    """Measure ours, then the peers for this loss, or those given."""
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
    """Run every cell at every number of threads; cells that follow each other may learn from each other.

    Parameters
    ----------
    then : callable
        What else is to be measured of a row, told the number of threads.
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
    """The number of threads in words."""
    return f"on {threads} thread{'s' * (threads > 1)}"


def mean_ratio(rows: list[Row]) -> float:
    """The geometric mean of the ratios, where both sides reached the goal."""
    return geometric_mean(row.ratio for row in rows if 0.0 < row.ratio < math.inf)


def certified(rows: list[Row]) -> Target:
    """Whether P* is known."""
    worst = max(row.optimum.uncertainty for row in rows)
    return Target(f"P* certified to {CERTIFIED:g} in every cell", f"{worst:.1e} at worst", worst <= CERTIFIED)


def shown_ratio(row: Row) -> str:
    """A ratio, or who alone reached the goal."""
    return {0.0: "only a peer", math.inf: "only ours"}.get(row.ratio) or ratio(row.ratio)


COLUMNS = ["data", "loss", "λn", "ours", "method", "τ", "epochs", "best peer", "its time", "best peer / ours"]


def line(row: Row) -> list[str]:
    """Ours against the best of the others in a cell."""
    name, best = row.best_peer
    ours = row.ours if row.ours and row.ours.reached else None
    mine = [seconds(ours.seconds), ours.method, str(ours.tau), f"{ours.epochs:.3g}"] if ours else [MISSING] * 4
    cell = [row.cell.data.name, row.cell.loss, f"{row.cell.lam_n:g}"]
    name = name if row.optimum.certified else NOT_CERTIFIED
    return [*cell, *mine, name, seconds(best), shown_ratio(row)]


def overview(rows: list[Row], threads: int) -> Table:
    """Ours against the best of the others, cell by cell."""
    note = (
        "Ours is one call at default settings, the construction of the problem included; a peer's time is its smallest over a "
        f"search for the loosest tolerance that suffices. {MISSING}: not within the time limit."
    )
    return Table(f"Ours and the best peer, {on(threads)[3:]}", COLUMNS, [line(row) for row in rows], note)


def details(rows: list[Row], threads: int) -> Iterator[Table]:
    """Yield every peer's time, a table per loss."""
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
            "not measured again on more."
        )
        yield Table(f"All peers, {loss}, {on(threads)[3:]}", ["data", "λn", *names], lines, note)


def shown(found: float | str) -> str:
    """A time, or the reason why there is none."""
    return found if isinstance(found, str) else seconds(found)
