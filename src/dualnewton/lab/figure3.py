"""Figure 3: the duality gap of SDNA against runtime, for τ = 1, 4, 16, 32, 64."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from dualnewton.lab import claims
from dualnewton.lab._numbers import count, seconds
from dualnewton.lab.figures import COLUMNS, ORDERS, REPEATS, Grid, automatic, curves, panel, records, runs_of
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Chart, Section, Table
from dualnewton.lab.sets import Posed
from dualnewton.lab.watched import DEFAULT, NICE, Limits, Watched, watch
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.samplings import Nice
from dualnewton.solvers import SDNA

FULL = Grid(("sdna",), (1, 4, 16, 32, 64), Limits(1e-9, 300, 6.0))
QUICK = Grid(("sdna",), (1, 4, 16, 32), Limits(1e-4, 150, 1.0))

LARGEST = 256
"""A larger τ for the NumPy rounds, whose best one lies beyond the paper's grid."""

LOOK = 0.25
"""Seconds of NumPy rounds from which their price is taken."""


def grid(quick: bool) -> Grid:
    """The runs."""
    return QUICK if quick else FULL


def run(sets: Sequence[Posed], steps: Steps, seed: int = 0, *, quick: bool = False) -> Section:
    """Run the third experiment.

    Parameters
    ----------
    sets, steps, seed, quick
        As of :func:`figure1.run`.
    """
    chosen = grid(quick)
    goal = chosen.limits.goal
    rows: dict[str, list] = {order: [] for order in ORDERS}
    found: list = []
    verdicts: list = []
    tables: list = []
    for posed in sets:
        for order in ORDERS:
            runs = runs_of(chosen, posed, order, steps, "figure 3", seed, REPEATS)
            lines = curves(runs, "seconds", chosen.taus)
            if order == DEFAULT:
                lines.append(automatic(posed, goal, seed, "seconds", len(chosen.taus)))
            rows[order].append(panel(posed, order, lines))
            found += records(posed, runs)
            if order == NICE:
                epochs, times = ({run.tau: run.first(goal, name) for run in runs} for name in ("epoch", "seconds"))
                plain = in_numpy(posed, runs, chosen, seed)
                needed, totals = ({tau: row[place] for tau, row in plain.items()} for place in (0, 2))
                verdicts += [
                    claims.interior(posed, "compiled rounds", epochs, times),
                    claims.interior(posed, "NumPy rounds", needed, totals),
                ]
                tables.append(table(posed, goal, runs, plain))
    chart = Chart(
        "figure3",
        "Figure 3. Duality gap of SDNA against runtime",
        [rows[order] for order in ORDERS],
        "seconds",
        "relative duality gap (P − D)/P",
        "Fewer epochs against dearer ones: the leftmost curve has the best τ. Upper row: sets drawn anew for "
        "every round, as in the "
        "paper; lower row: the order that solve has by default, and solve left alone.",
        lowest=0.5 * chosen.limits.goal,
    )
    return Section(
        "figure3",
        "Figure 3. Gap against runtime",
        "One thread. The clock runs during draws and rounds and stands still while the judge certifies, which it "
        "does after every epoch. "
        f"Each turn counts with its shortest time in {REPEATS} runs, whose iterates are the same. "
        "The curve of solve left alone has its own certificates in its time.",
        charts=[chart],
        tables=tables,
        claims=verdicts,
        columns=COLUMNS,
        records=found,
    )


Plain = dict[int, tuple[float, float, float]]
"""From τ to the epochs, the seconds of an epoch, and their product."""


def in_numpy(posed: Posed, runs: Sequence[Watched], chosen: Grid, seed: int) -> Plain:
    """What the same runs would cost with the reference rounds: their epochs, times the price of some NumPy rounds.

    The iterates are the same but for rounding, so the epochs are. A NumPy round has a fixed price (the interpreter's), as a round
    has wherever fetching data is costly.
    """
    goal = chosen.limits.goal
    epochs = {run.tau: run.first(goal) for run in runs}
    if posed.problem.n >= LARGEST and chosen is FULL:
        epochs[LARGEST] = watch(posed.problem, "sdna", LARGEST, NICE, chosen.limits, seed).first(goal)
    prices = {tau: price(posed, tau, seed) for tau in epochs}
    return {tau: (needed, prices[tau], needed * prices[tau]) for tau, needed in epochs.items()}


def price(posed: Posed, tau: int, seed: int) -> float:
    """The seconds of an epoch of NumPy rounds, from the median of some."""
    sampling = Nice(posed.problem.n, tau)
    solver = SDNA(posed.problem, sampling)
    took: list[float] = []
    with one_blas_thread:
        for S in sampling.draw(np.random.default_rng(seed), sampling.rounds_per_epoch):
            began = time.perf_counter()
            solver.round(S)
            took.append(time.perf_counter() - began)
            if sum(took) > LOOK and len(took) > 2:
                break
    return float(np.median(took)) * posed.problem.n / tau


def table(posed: Posed, goal: float, runs: Sequence[Watched], plain: Plain) -> Table:
    """Epochs times price, for both kinds of rounds."""
    rows = []
    compiled = {run.tau: run for run in runs}
    for tau, (needed, numpy_price, numpy_total) in plain.items():
        one = compiled.get(tau)
        mine = ["", ""] if one is None else [seconds(one.seconds_per_epoch), seconds(one.first(goal, "seconds"))]
        rows.append([str(tau), count(needed), *mine, seconds(numpy_price), seconds(numpy_total)])
    return Table(
        f"To a relative gap of {goal:g}, {posed.name}, sets drawn anew",
        ("τ", "epochs", "an epoch, compiled", "all, compiled", "an epoch, NumPy", "all, NumPy (product)"),
        rows,
        "A compiled round of one example costs a few hundred nanoseconds, so small sets are cheap. A NumPy round "
        "costs tens of microseconds "
        "whatever its size, and larger sets pay: as the paper says of machines on which fetching data is costly.",
    )
