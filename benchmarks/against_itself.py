"""Comparisons of our own settings: block sizes, minibatch SDCA, threads, many models at once, memory and the first fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from benchmarks import fresh
from benchmarks.against_peers import our_warm_up
from benchmarks.data import LOSSES, Cell, Dataset, ten_classes
from benchmarks.report import MISSING, Section, Table, Target, ratio, seconds
from benchmarks.timing import best_of, in_child

import dualnewton as dn

GOAL = 1e-6
"""The certified relative gap to which all fits are timed."""

TAUS = (1, 4, 8, 16, 32, 64)
"""The block sizes that are compared."""

TAUS_FOR_THREADS = (16, 32, 64)
"""The block sizes for which two threads are compared with one; smaller blocks leave too little work to share."""

PATIENCE = 4.0
"""A run is stopped after this multiple of the best time so far, which suffices for all ratios that are compared."""

SHORTEST_BUDGET = 1.0
"""Smallest time limit of a run in seconds, so that noise in a short best time does not stop a run too early."""


@dataclass(frozen=True)
class Spent:
    """The seconds to the goal; if it was not reached, the seconds until the run was stopped, a lower bound."""

    seconds: float
    done: bool

    def __str__(self) -> str:
        return seconds(self.seconds) if self.done or math.isnan(self.seconds) else f"> {seconds(self.seconds)}"


NEVER = Spent(math.nan, done=False)  # a setting that was not measured


def timed_solve(cell: Cell, limit: float, **settings: Any) -> Spent:
    """Time a fit to a certified relative gap of GOAL, without the construction of the problem."""
    problem = cell.problem()
    run = best_of(lambda: dn.solve(problem, tol=GOAL, random_state=0, time_limit=limit, **settings))
    return Spent(run.seconds, run.value.converged)


def quotient(above: Spent, below: Spent) -> float:
    """Return above / below, a lower bound if only ``above`` was stopped early; NaN if ``below`` was."""
    return above.seconds / below.seconds if below.done else math.nan


def fastest(times: Iterable[Spent]) -> Spent:
    """Return the shortest time of the runs that reached the goal or, if none did, the largest lower bound."""
    times = list(times)
    done = [time for time in times if time.done]
    return (
        min(done, key=lambda time: time.seconds) if done else max(times, key=lambda time: time.seconds, default=NEVER)
    )


# The block size ----------------------------------------------------------------------------------------------------------


@dataclass
class Sweep:
    """The times of a cell by method and τ, and of τ = "auto"."""

    cell: Cell
    auto: Spent = NEVER
    auto_tau: int = 0
    times: dict[tuple[str, int], Spent] = field(default_factory=dict)

    def at(self, method: str, tau: int) -> Spent:
        """Return the time of one setting."""
        return self.times.get((method, tau), NEVER)

    def best(self, method: str, beyond: int = 0) -> Spent:
        """Return the shortest time of a method over all τ > ``beyond``."""
        return fastest(time for (name, tau), time in self.times.items() if name == method and tau > beyond)

    @property
    def regret(self) -> float:
        """The time of τ = "auto" divided by the best time; NaN if it did not reach the goal."""
        return quotient(self.auto, fastest([self.auto, self.best("sdna")])) if self.auto.done else math.nan


def sweep(cell: Cell, methods: tuple[str, ...], cap: float) -> Iterator[tuple[str, int, Spent]]:
    """Yield ("auto", τ chosen, time) and then (method, τ, time) for every τ of the grid."""
    best = timed_solve(cell, cap, n_threads=1)
    yield "auto", dn.plan(cell.problem()).tau, best
    for method in methods:
        for tau in (tau for tau in TAUS if tau <= len(cell.data.y)):
            limit = min(cap, max(SHORTEST_BUDGET, PATIENCE * best.seconds))
            spent = timed_solve(cell, limit, method=method, tau=tau, n_threads=1)
            best = fastest([best, spent])
            yield method, tau, spent


def measured_sweep(cell: Cell, cap: float) -> Sweep:
    """Run the sweep in a child process: SDNA on all cells, and minibatch SDCA on dense cells."""
    methods = ("sdna", "sdca") if cell.data.is_dense else ("sdna",)
    found = Sweep(cell)
    settings = 1 + len(methods) * len(TAUS)
    for method, tau, spent in in_child(
        partial(sweep, cell, methods, cap), settings * cap, 1, partial(our_warm_up, cell, 1)
    ).values:
        if method == "auto":
            found.auto, found.auto_tau = spent, tau
        else:
            found.times[method, tau] = spent
    return found


def sweep_section(cells: list[Cell], cap: float, say: Callable[[str], None]) -> Section:
    """Time every τ on every cell."""
    sweeps = []
    for cell in cells:
        sweeps.append(found := measured_sweep(cell, cap))
        say(f"{cell}: auto (τ = {found.auto_tau}) {found.auto}, best SDNA {found.best('sdna')}")
    dense = [found for found in sweeps if found.cell.data.is_dense]
    gains = [quotient(found.at("sdna", 1), found.best("sdna", beyond=1)) for found in dense]
    ahead = [quotient(found.best("sdca"), found.best("sdna", beyond=1)) for found in dense]
    result = Section("Against itself: the block size τ (1 thread)")
    result.targets = [
        Target.at_least("dense cells: the best τ > 1 beats τ = 1 at least 1.4×", gains, 1.4),
        Target.at_least("dense cells: the best τ > 1 beats minibatch SDCA at every τ", ahead, 1.0),
        Target.at_most("all cells: τ = auto within 1.3× of the best τ in hindsight", [f.regret for f in sweeps], 1.3),
    ]
    note = f"A run is stopped (>) after {PATIENCE:g} times the best time so far, or at the time limit."
    columns = ["cell", "auto", "its τ", *(f"τ = {tau}" for tau in TAUS)]
    for method, name, shown in (("sdna", "SDNA", sweeps), ("sdca", "Minibatch SDCA", dense)):
        rows = [[str(f.cell), str(f.auto), str(f.auto_tau), *(str(f.at(method, tau)) for tau in TAUS)] for f in shown]
        result.tables.append(Table(f"{name}: time to a certified relative gap of {GOAL:g}", columns, rows, note))
    return result


# Threads, many models ----------------------------------------------------------------------------------------------------


def threads_section(cells: list[Cell], cap: float) -> Section:
    """Compare two threads with one for the τ at which the Gram matrices of the blocks can be computed in parallel."""
    rows, gains = [], []
    for cell in (cell for cell in cells if cell.data.is_dense):
        for tau in TAUS_FOR_THREADS:
            one, two = (
                in_child(partial(_one_time, cell, cap, tau, threads), 2 * cap, threads).last(NEVER)
                for threads in (1, 2)
            )
            gains.append(quotient(one, two) if one.done else math.nan)
            rows.append([str(cell), str(tau), str(one), str(two), ratio(gains[-1])])
    result = Section("Against itself: threads")
    columns = ["cell", "τ", "1 thread", "2 threads", "gain"]
    result.tables = [Table("SDNA on dense data, with equal bits for any number of threads", columns, rows)]
    result.targets = [Target.at_least("dense cells, τ ≥ 16: 2 threads at least 1.4× faster than 1", gains, 1.4)]
    return result


def _one_time(cell: Cell, cap: float, tau: int, threads: int) -> Iterator[Spent]:
    yield timed_solve(cell, cap, method="sdna", tau=tau, n_threads=threads)


def many_section(data: Dataset, cap: float) -> Section:
    """Compare ten one-vs-rest classes in one pass with one class alone."""
    result = Section("Against itself: ten classes in one pass (1 thread)")
    rows, costs = [], []
    for loss in LOSSES:
        one, ten = in_child(partial(many, data, loss, cap), 4 * cap, threads=1).last((NEVER, NEVER))
        costs.append(quotient(ten, one) if ten.done else math.nan)
        rows.append([data.name, loss, str(one), str(ten), ratio(costs[-1])])
    result.tables = [Table("Ten one-vs-rest classes, λn = 1", ["data", "loss", "a class", "ten", "ten / one"], rows)]
    measured = costs if hasattr(dn, "solve_many") else []
    result.targets = [Target.at_most("ten one-vs-rest classes cost at most 4× one on dense data", measured, 4.0)]
    return result


def many(data: Dataset, loss: str, cap: float) -> Iterator[tuple[Spent, Spent]]:
    """Yield the mean time of a single class, and the time of all ten together if the library has ``solve_many``."""
    X, n = data.X, len(data.y)
    problems = [dn.Problem(X, y, LOSSES[loss], lam=1.0 / n) for y in ten_classes(X).T]
    settings: dict[str, Any] = {"tol": GOAL, "n_threads": 1, "random_state": 0, "time_limit": cap}
    runs = [best_of(partial(dn.solve, problem, **settings)) for problem in problems]
    one = Spent(float(np.mean([run.seconds for run in runs])), all(run.value.converged for run in runs))
    solve_many = getattr(dn, "solve_many", None)
    if solve_many is None:
        yield one, NEVER
        return
    together = best_of(lambda: solve_many(problems, **settings))
    yield one, Spent(together.seconds, all(result.converged for result in together.value))


# Memory and the first fit ------------------------------------------------------------------------------------------------


def memory_section(names: list[str], cap: float) -> Section:
    """Measure the peak memory of a fit above that of a process that holds only the data; each in a new process."""
    result = Section("Against itself: memory")
    rows, uses = [], []
    for name in names:
        for models in (1, 10) if hasattr(dn, "solve_many") else (1,):
            found = fresh.run("memory", name, str(models), timeout=6 * cap)
            if found is None:
                rows.append([name, str(models), MISSING, MISSING, MISSING])
                continue
            uses.append(found["extra"] / found["allowed"])
            mebibytes = (f"{found[key] / 2**20:.1f} MiB" for key in ("data", "extra", "allowed"))
            rows.append([name, str(models), *mebibytes])
    result.tables = [
        Table("Peak of a fit beyond the data", ["data", "models K", "the data", "extra", "8K(6n+6d) B + 64 MiB"], rows)
    ]
    claim = "extra memory at most 8·K·(6n + 6d) bytes plus 64 MiB"
    result.targets = [Target.at_most(claim, uses, 1.0, unit=" of it")]
    return result


def start_section() -> Section:
    """Measure the first fit of a new interpreter with an empty compilation cache, and the time of compilation."""
    result = Section("Against itself: the first fit")
    small = [fresh.first_fit("small", storage, loss) for storage in fresh.STORAGES for loss in LOSSES]
    large = [fresh.first_fit("large", storage, loss) for storage in fresh.STORAGES for loss in LOSSES]
    pairs = [(storage, loss) for storage in fresh.STORAGES for loss in LOSSES]
    columns = ["storage", "loss", "empty cache, whole process", "empty cache, fit", "filled cache, fit", "second fit"]
    for title, found in (
        (f"{fresh.SMALL[0]}×{fresh.SMALL[1]}: nothing is compiled", small),
        (f"{fresh.LARGE[0]}×{fresh.LARGE[1]}: compilation, excluded from all other tables", large),
    ):
        rows = [
            [*pair, seconds(start.process), seconds(start.cold), seconds(start.cached), seconds(start.warm)]
            for pair, start in zip(pairs, found, strict=True)
        ]
        result.tables.append(Table(title, columns, rows))
    claim = "first fit with n·d ≤ 1e5 under 1 s: interpreter, imports, empty cache"
    result.targets = [Target.at_most(claim, [start.process for start in small], 1.0, unit=" s")]
    return result
