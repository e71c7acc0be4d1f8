"""Comparison with the hardware: an epoch of our methods against the least work that must be done on the same data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from benchmarks.data import Cell, Dataset
from benchmarks.report import Section, Table, Target, ratio, seconds
from benchmarks.timing import in_child

import dualnewton as dn
from dualnewton import samplings

EPOCHS = 12
"""Number of timed epochs, about that of a fit. Later epochs cost less, so a median over more would be too low."""

SECONDS = 5.0
"""Time limit in seconds of the timed epochs together."""

CAP = 60.0
"""Time limit in seconds of one comparison."""


@dataclass(frozen=True)
class Epoch:
    """The median time of each part of an epoch of ``solve``, without certificates."""

    draw: float
    rounds: float
    end: float

    @property
    def total(self) -> float:
        """The time of the whole epoch in seconds."""
        return self.draw + self.rounds + self.end


def epoch_of_ours(problem: dn.Problem, tau: int) -> Epoch:
    """Run the compiled engine as ``solve`` does, from α = 0, and time its epochs.

    After each epoch, untimed, the engine receives its certified gap, because the accuracy of its inner solves depends on the
    gap; without it the engine would use its loosest accuracy and the times would be too low.
    """
    from dualnewton.solvers.dual.compiled import CompiledEngine

    sampling = samplings.Shuffled(problem.n, tau)
    engine = CompiledEngine([problem], sampling, [np.zeros(problem.n)], separable_rounds=False, n_threads=1)
    rng = np.random.default_rng(0)
    laps: list[tuple[float, ...]] = []
    while len(laps) < EPOCHS and sum(map(sum, laps)) < SECONDS:
        marks = [time.perf_counter()]
        block = sampling.draw(rng, sampling.rounds_per_epoch)
        marks.append(time.perf_counter())
        engine.run(block)
        marks.append(time.perf_counter())
        engine.end_epoch()
        marks.append(time.perf_counter())
        laps.append(tuple(np.diff(marks)))
        alpha = engine.alpha(0)
        engine.adapt(0, problem.certify(problem.w_of(alpha), alpha=alpha).gap, 0.0)
    return Epoch(*(statistics.median(lap) for lap in zip(*laps, strict=True)))


def median_of(run: Callable[[], Any], repeats: int = EPOCHS) -> float:
    """Return the median time of repeated runs, the same statistic as for our epochs."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


# The floors --------------------------------------------------------------------------------------------------------------


@cache
def sweep_kernel() -> Callable[..., None]:
    """Compile a permuted sweep that does, for each row, a dot product with w and an axpy to w, and prefetches later rows.

    A method with τ = 1 must do at least this work: read the row, compute its margin, update w. The step is too small to
    change w noticeably, but depends on the dot product, so that the compiler can neither drop nor reorder the two.
    """
    from llvmlite import ir
    from numba import njit, types
    from numba.core import cgutils
    from numba.extending import intrinsic

    @intrinsic
    def prefetch(_context, array, index):
        def generate(context, builder, signature, arguments):
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            item = cgutils.get_item_pointer(context, builder, signature.args[0], view, [arguments[1]])
            byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
            function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
            read, keep, data = (ir.Constant(word, value) for value in (0, 3, 1))
            builder.call(function, [builder.bitcast(item, byte), read, keep, data])
            return context.get_dummy_value()

        return types.void(array, index), generate

    @njit(fastmath={"reassoc", "contract", "arcp", "nsz"}, nogil=True)
    def sweep(values, columns, starts, order, w, margins):
        n = len(order)
        for k in range(n):
            # Prefetch the row pointers ten rows ahead and the rows four ahead, by cache lines of 64 bytes.
            if k + 10 < n:
                prefetch(starts, order[k + 10])
                prefetch(margins, order[k + 10])
            if k + 4 < n:
                ahead = order[k + 4]
                for p in range(starts[ahead], starts[ahead + 1], 8):
                    prefetch(values, p)
                for p in range(starts[ahead], starts[ahead + 1], 16):
                    prefetch(columns, p)
            i = order[k]
            dot = 0.0
            for p in range(starts[i], starts[i + 1]):
                dot += values[p] * w[columns[p]]
            step = 1e-12 * (margins[i] - dot)
            for p in range(starts[i], starts[i + 1]):
                w[columns[p]] += step * values[p]

    return sweep


def sparse_floor(X: Any) -> float:
    """Return the time of a permuted sweep over the rows of a CSR matrix."""
    sweep = sweep_kernel()
    n, d = X.shape
    order = np.random.default_rng(0).permutation(n)
    arguments = (X.data, X.indices, X.indptr, order, np.zeros(d), np.zeros(n))
    sweep(*arguments)  # compiles
    return median_of(lambda: sweep(*arguments))


def dense_floor(X: np.ndarray) -> float:
    """Return the time of the products A w and Aᵀ v."""
    n, d = X.shape
    w, v = np.ones(d), np.ones(n)
    return median_of(lambda: X @ w) + median_of(lambda: X.T @ v)


# The section -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Floor:
    """A comparison: the storage of the data, τ, the measured lower bound with its name, and the largest allowed ratio."""

    dense: bool
    tau: int
    measure: Callable[[Any], float]
    what: str
    bound: float


FLOORS = [
    Floor(False, 1, sparse_floor, "bare permuted sweep", 1.3),
    Floor(True, 16, dense_floor, "A w and Aᵀ v", 2.0),
]


def compare(cell: Cell, floor: Floor) -> Iterator[tuple[float, Epoch]]:
    """Measure the lower bound and our epoch in the same process, one after the other."""
    problem = cell.problem()
    yield floor.measure(problem.X), epoch_of_ours(problem, floor.tau)


def section(sets: list[Dataset]) -> Section:
    """Run all comparisons, on one thread."""
    result = Section("Against the hardware (1 thread)")
    for floor in FLOORS:
        rows, ratios, failures = [], [], []
        for data in (data for data in sets if data.is_dense == floor.dense):
            cell = Cell(data, "logistic", 1.0)
            outcome = in_child(partial(compare, cell, floor), CAP, threads=1)
            bare, ours = outcome.last((np.nan, Epoch(np.nan, np.nan, np.nan)))
            failures += [] if outcome.values else [f"{data.name} {outcome.ending}"]
            ratios.append(ours.total / bare)
            times = (bare, ours.draw, ours.rounds, ours.end, ours.total)
            rows.append([data.name, *map(seconds, times), ratio(ours.rounds / bare), ratio(ratios[-1])])
        columns = ["data", floor.what, "draw", "rounds", "end of epoch", "epoch", "rounds only", "epoch / floor"]
        title = f"An epoch of SDNA, τ = {floor.tau}, on {'dense' if floor.dense else 'CSR'} data, logistic, λn = 1"
        result.tables.append(Table(title, columns, rows, "; ".join(failures)))
        claim = f"an epoch at τ = {floor.tau} costs at most {floor.bound}× {floor.what}"
        result.targets.append(Target.at_most(claim, ratios, floor.bound))
    return result
