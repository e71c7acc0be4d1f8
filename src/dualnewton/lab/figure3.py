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
"""The method, τ, and limits (relative gap, epochs, seconds) of each run, in full with the paper's τ and for a quick run."""

LARGEST = 256
"""An additional τ for the NumPy rounds, whose best τ is larger than those of the paper."""

SAMPLE_SECONDS = 0.25
"""Seconds of NumPy rounds from which the cost of an epoch is estimated, enough for a stable median."""


def run(sets: Sequence[Posed], steps: Steps, seed: int = 0, *, quick: bool = False) -> Section:
    """Run the third experiment, as :func:`figure1.run` does the first."""
    chosen = QUICK if quick else FULL
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
        "A larger τ needs fewer epochs, each of which costs more; the leftmost curve has the best τ. The title of a panel "
        "names the data and the order: independent sets in every round, as in the paper, or the default order of solve, beside "
        "solve with default settings.",
        lowest=0.5 * chosen.limits.goal,
    )
    return Section(
        "figure3",
        "Figure 3. Gap against runtime",
        "One thread. The time includes draws and rounds and excludes the certificate after every epoch. "
        f"The time of each epoch is the shortest of {REPEATS} runs, whose iterates are equal. "
        "The time of solve with default settings includes its certificates.",
        charts=[chart],
        tables=tables,
        claims=verdicts,
        columns=COLUMNS,
        records=found,
    )


Plain = dict[int, tuple[float, float, float]]
"""A mapping from τ to the number of epochs, the seconds per epoch, and their product."""


def in_numpy(posed: Posed, runs: Sequence[Watched], chosen: Grid, seed: int) -> Plain:
    """Estimate the time of the same runs with the NumPy reference rounds: epochs times the measured cost of an epoch.

    The iterates are equal up to rounding, and so are the epochs. A NumPy round has a fixed cost (that of the interpreter), as a
    round has on machines where fetching data is costly.
    """
    goal = chosen.limits.goal
    epochs = {run.tau: run.first(goal) for run in runs}
    if posed.problem.n >= LARGEST and chosen is FULL:
        epochs[LARGEST] = watch(posed.problem, "sdna", LARGEST, NICE, chosen.limits, seed).first(goal)
    costs = {tau: numpy_epoch_cost(posed, tau, seed) for tau in epochs}
    return {tau: (needed, costs[tau], needed * costs[tau]) for tau, needed in epochs.items()}


def numpy_epoch_cost(posed: Posed, tau: int, seed: int) -> float:
    """Return the seconds of an epoch of NumPy rounds, estimated from the median over some rounds."""
    sampling = Nice(posed.problem.n, tau)
    solver = SDNA(posed.problem, sampling)
    took: list[float] = []
    with one_blas_thread:
        for S in sampling.draw(np.random.default_rng(seed), sampling.rounds_per_epoch):
            began = time.perf_counter()
            solver.round(S)
            took.append(time.perf_counter() - began)
            if sum(took) > SAMPLE_SECONDS and len(took) > 2:
                break
    return float(np.median(took)) * posed.problem.n / tau


def table(posed: Posed, goal: float, runs: Sequence[Watched], plain: Plain) -> Table:
    """Return the table of epochs, cost per epoch and their product, for compiled and for NumPy rounds."""
    rows = []
    compiled = {run.tau: run for run in runs}
    for tau, (needed, numpy_cost, numpy_total) in plain.items():
        one = compiled.get(tau)
        mine = ["", ""] if one is None else [seconds(one.seconds_per_epoch), seconds(one.first(goal, "seconds"))]
        rows.append([str(tau), count(needed), *mine, seconds(numpy_cost), seconds(numpy_total)])
    return Table(
        f"To a relative gap of {goal:g}, {posed.name}, independent sets",
        ("τ", "epochs", "an epoch, compiled", "all, compiled", "an epoch, NumPy", "all, NumPy (product)"),
        rows,
        "A compiled round of one example costs a few hundred nanoseconds, so small sets are cheap. A NumPy round costs at least "
        "tens of microseconds, so larger sets are faster, as the paper says of machines on which fetching data is costly.",
    )
