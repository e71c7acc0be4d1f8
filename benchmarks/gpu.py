"""Fits on a GPU: ``python -m benchmarks.gpu [--seconds 150] [--scale 1.0]`` writes benchmarks/GPU.md.

For each problem: milliseconds to a certified relative gap of 1e-6 with the data on the GPU, and the same as a number of *reads*,
where a read is the time in which the GPU reads X once (the sum of its entries). The aim for dense rows is 10 reads and the time
of the Hessians that the fit computes, of all rows or of samples, at half of the rate of a product of float32 matrices (cuBLAS) in
the same run. Beside them:

- the certificate of the same model and dual point, computed again in memory by the CPU, for the smaller data;
- PyTorch's L-BFGS on the same GPU and the same data, until P − P* ≤ 1e-6 P*;
- this library on up to 16 cores, with the data in memory;
- scikit-learn, until P − P* ≤ 1e-6 P*.

Each measurement is caught alone, and the page is written after each of them, so that a run that is cut short leaves what it has
measured. All fits on the GPU come first. ``--scale`` multiplies the numbers of rows.
"""

from __future__ import annotations

import argparse
import math
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu_data import dense, labels, others, sparse, timed
from benchmarks.gpu_torch import Ended, lbfgs
from benchmarks.report import MISSING, Section, Table, Target, markdown, seconds
from benchmarks.timing import Outcome, cores, in_child

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.cuda import CudaData
from dualnewton.matrix.cuda_library import cupy
from dualnewton.matrix.workers import threads as using_threads
from dualnewton.row_arrays import on_host
from dualnewton.run.checkpoint import installed_version

FILE = Path(__file__).parent / "GPU.md"
GOAL, REPEATS, LIMIT = 1e-6, 3, 20.0
"""Relative accuracy, fits of which the fastest counts, and the limit of one in seconds."""

THREADS = min(16, len(cores()))
CONFIRMED = 110_000_000
"""Entries of X up to which the CPU confirms the certificate."""

CAP = 60.0
"""Limit in seconds of all fits of one contender on the CPU, compilation included."""

TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Tolerances of scikit-learn, loosest first: the first one that reaches the goal is timed."""

READS, SHARE = 10.0, 0.5
"""Reads of X that a fit may take beside its Hessians, and the share of the float32 rate at which these are allowed for."""


@dataclass
class Cell:
    """A problem, and what was measured on it; times in seconds."""

    data: str
    task: str
    problem: dn.Problem | None
    read: float
    result: Any = None
    check: float = math.nan
    fit: float = math.nan
    products: float = math.nan  # rows × features² of the Hessians of the fit
    equal_bits: bool = False
    torch: Ended | None = None
    confirmed: float = math.nan
    on_cpu: float = math.nan
    sklearn: float = math.nan
    failures: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The data and the task."""
        return f"{self.data}, {self.task}"

    @property
    def reads(self) -> float:
        """The time of the fit, in reads of X."""
        return self.fit / self.read

    @property
    def hessians(self) -> float:
        """The time of the Hessians at half of the float32 rate, in reads of X."""
        return 2.0 * self.products / (SHARE * float32_rate()) / self.read

    @property
    def allowed(self) -> float:
        """The reads that the fit may take."""
        return READS + self.hessians

    def row(self) -> list[str]:
        """Return the cells of its row in the table."""
        gap = MISSING if self.result is None else f"{self.result.certificate.relative_gap:.1e}"
        passes = MISSING if self.result is None else f"{self.result.n_epochs:.1f}"
        reads = f"{self.reads:.1f}" if math.isfinite(self.fit) else MISSING
        confirmed = f"{self.confirmed:.1e}" if math.isfinite(self.confirmed) else MISSING
        other = MISSING if self.torch is None else self.torch.words(GOAL)
        times = [seconds(each) for each in (self.read, self.check, self.fit)]
        aim = [MISSING] * 3
        if math.isfinite(self.reads * self.products):
            aim = [f"{self.hessians:.1f}", f"{self.allowed:.1f}", "yes" if self.reads <= self.allowed else "no"]
        return [
            self.data,
            self.task,
            *times,
            reads,
            *aim,
            passes,
            gap,
            confirmed,
            other,
            *map(seconds, (self.on_cpu, self.sklearn)),
        ]


COLUMNS = [
    "data (float32)",
    "task",
    "read",
    "check of X",
    "fit",
    "reads",
    "Hessians",
    "allowed",
    "within",
    "passes",
    "gap",
    "gap by CPU",
    "PyTorch's L-BFGS",
    f"fit, {THREADS} cores",
    "scikit-learn",
]

NOTE = (
    "read: one sum over X; check of X: `Problem(X, y, …)`, which looks for entries that are not finite; fit: "
    "`solve(problem, tol=1e-6)`, certificate included, the fastest of three after one that compiles, and the same in reads; "
    "Hessians, of dense rows and one column: the reads in which rows × features² multiplications and as many additions, of all "
    "Hessians of the fit, take place at half of the float32 rate; allowed: ten reads more; within: whether the fit takes no "
    "more; passes: over all rows; gap by CPU: relative gap of the same w, b and α, computed again from a copy of the data in "
    "memory. Logistic, ridge, Huber and softmax: λn = 1; Lasso: a tenth of the λ at which w = 0; sparse logistic: λ = 1e-3 "
    "of ‖w‖₁; hinge: λ = 1e-4; all with an intercept, except for CSR. PyTorch's L-BFGS (history 10, strong Wolfe "
    "conditions, gradients by two products, margins in float32 and sums in float64): until P − P* ≤ 1e-6 P*, or for some "
    "seconds to the (P − P*)/P* that is given. scikit-learn: LogisticRegression(solver='newton-cholesky') with the loosest "
    "of the tolerances 1e-2 … 1e-6 that reaches the same, on float32 or else on float64 rows."
)


# On the GPU ------------------------------------------------------------------------------------------------------------


def dense_cells(n: int, d: int, condition: float, *, all_tasks: bool = False) -> Iterator[Cell]:
    """Yield the problems on dense rows, made on the GPU."""
    X, z = dense(n, d, condition)
    y, read, name = labels(z), timed(X.sum) / 1e3, f"{n:,}×{d}, condition {condition:g}"
    yield Cell(name, "logistic", dn.Problem(X, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True), read)
    for task, problem in others(X, z, y) if all_tasks else ():
        yield Cell(name, task, problem, read)


def sparse_cells(n: int, d: int, per_row: int) -> Iterator[Cell]:
    """Yield the problem on sparse rows, made on the GPU."""
    X, y = sparse(n, d, per_row)
    read, name = timed(lambda: (X.data.sum(), X.indices.sum())) / 1e3, f"CSR {n:,}×{d:,}, {per_row} a row"
    yield Cell(name, "logistic", dn.Problem(X, y, losses.Logistic(), lam=1.0 / n), read)


def cells(scale: float) -> Iterator[Cell]:
    """Yield all problems; data that cannot be made are left out."""

    def rows(n: int) -> int:
        return max(1000, round(scale * n))

    for made in (
        partial(dense_cells, rows(1_000_000), 100, 1e4, all_tasks=True),
        partial(dense_cells, rows(60_000), 784, 1e6),
        partial(dense_cells, rows(10_000_000), 100, 1e6),
        partial(dense_cells, rows(1_000_000), 1000, 1e6),
        partial(dense_cells, rows(1_000_000), 2000, 1e6),
        partial(sparse_cells, rows(2_000_000), 200_000, 50),
        partial(sparse_cells, rows(10_000_000), 1_000_000, 50),
    ):
        try:
            yield from made()
        except Exception:
            print(f"data {made.args}: FAILED\n{traceback.format_exc()[-1500:]}", flush=True)
        cupy().get_default_memory_pool().free_all_blocks()


@cache
def float32_rate() -> float:
    """Return the operations per second of a product of float32 matrices by cuBLAS."""
    n, d = 1 << 14, 1 << 13
    A = cupy().random.default_rng(0).random((n, d), dtype=np.float32)
    return 2.0 * n * d * d / (timed(lambda: A.T @ A) / 1e3)


@contextmanager
def counted() -> Iterator[list[float]]:
    """Yield a list to which each Hessian of dense rows appends its rows × features²."""
    found: list[float] = []
    gram = CudaData._gram

    def counting(data: CudaData, weights: Any, rows: Any, *, intercept: bool, single: bool) -> Any:
        found.append(float(data.n if rows is None else rows.size) * (data.d + intercept) ** 2)
        return gram(data, weights, rows, intercept=intercept, single=single)

    CudaData._gram = counting  # type: ignore[method-assign]
    try:
        yield found
    finally:
        CudaData._gram = gram  # type: ignore[method-assign]


def fit(cell: Cell) -> None:
    """Time the fit, count its Hessians, and compare the bits of two."""
    problem: Any = cell.problem
    if problem.columns == 1 and not problem.data.profile.sparse:
        with counted() as products:
            dn.solve(problem, tol=GOAL, random_state=0, time_limit=LIMIT)
        cell.products = sum(products)
    rest = {"regularizer": problem.regularizer, "lam": problem.lam, "fit_intercept": problem.fit_intercept}
    cell.check = timed(lambda: dn.Problem(problem.data.matrix, problem.y, problem.loss, **rest), 3) / 1e3
    best, before = math.inf, None
    for _ in range(1 + REPEATS):
        cupy().cuda.Device().synchronize()
        began = time.perf_counter()
        cell.result = dn.solve(problem, tol=GOAL, random_state=0, time_limit=LIMIT)
        took = time.perf_counter() - began
        if before is not None:
            best, cell.equal_bits = min(best, took), np.array_equal(cell.result.w, before)
        before = cell.result.w
    if cell.result.certificate.relative_gap <= GOAL:
        cell.fit = best


def compare_with_torch(cell: Cell, limit: float) -> None:
    """Time PyTorch's L-BFGS, where the objective is smooth."""
    if cell.result is not None:
        cell.torch = lbfgs(cell.problem, cell.result.certificate.primal, GOAL, limit)


# On the CPU ------------------------------------------------------------------------------------------------------------


@dataclass
class InMemory:
    """What the CPU needs of a problem: its arguments, and the model and the dual point of the fit on the GPU."""

    X: np.ndarray
    y: np.ndarray
    loss: Any
    rest: dict[str, Any]
    point: tuple[Any, Any, Any]
    primal: float

    @classmethod
    def of(cls, cell: Cell, known: dict[str, np.ndarray]) -> InMemory:
        """Copy a problem to memory; X only once for all problems that share it."""
        problem, result = cell.problem, cell.result
        assert problem is not None
        if cell.data not in known:
            known[cell.data] = on_host(problem.data.matrix)  # type: ignore[attr-defined]
        X = known[cell.data]
        rest = {"regularizer": problem.regularizer, "lam": problem.lam, "fit_intercept": problem.fit_intercept}
        point = result.w, result.intercept, on_host(result.alpha)
        return cls(X, on_host(problem.y), problem.loss, rest, point, result.certificate.primal)

    def problem(self) -> dn.Problem:
        """Return the problem in memory."""
        return dn.Problem(self.X, self.y, self.loss, **self.rest)


def certificates(here: InMemory) -> Iterator[float]:
    """Yield the relative gap that the CPU finds."""
    with using_threads(THREADS):
        yield here.problem().certify(*here.point).relative_gap


def our_fits(here: InMemory) -> Iterator[float]:
    """Yield the seconds of one fit after another, checks of X not counted, as on the GPU."""
    for _ in range(REPEATS):
        with using_threads(THREADS):
            problem = here.problem()
        began = time.perf_counter()
        result = dn.solve(problem, tol=GOAL, n_threads=THREADS, random_state=0)
        took = time.perf_counter() - began
        if result.certificate.relative_gap <= GOAL:
            yield took


def sklearn_fits(here: InMemory) -> Iterator[float]:
    """Yield the seconds of scikit-learn with the loosest tolerance that reaches the goal."""
    from sklearn.linear_model import LogisticRegression

    problem = here.problem()
    C = 1.0 / (here.rest["lam"] * len(here.y))
    for kind in (np.float32, np.float64):
        X = here.X.astype(kind, copy=False)
        for tol in TOLERANCES:
            model = LogisticRegression(C=C, tol=tol, solver="newton-cholesky", max_iter=1000)
            began = time.perf_counter()
            model.fit(X, here.y)
            took = time.perf_counter() - began
            if problem.primal(model.coef_[0], float(model.intercept_[0])) - here.primal <= GOAL * here.primal:
                yield took
                return


# The run ---------------------------------------------------------------------------------------------------------------


def caught(cell: Cell, what: str, work: Callable[[], Any]) -> None:
    """Do a part of the work on a problem; print and note a failure."""
    try:
        work()
    except Exception as error:
        cell.failures.append(f"{cell.name}, {what}: {type(error).__name__}")
        print(f"{cell.name}, {what}: FAILED\n{traceback.format_exc()[-1500:]}", flush=True)


def from_cpu(cell: Cell, what: str, work: Callable[[], Iterator[float]]) -> None:
    """Keep the least number that work in a child process yields."""
    outcome = in_child(work, CAP, THREADS)
    if outcome.ending != Outcome.DONE:
        cell.failures.append(f"{cell.name}, {what}: {outcome.ending}")
    setattr(cell, what, min(outcome.values, default=math.nan))


def measure(scale: float, limit: float) -> list[Cell]:
    """Measure everything, or as much as starts within ``limit`` seconds."""
    end = time.perf_counter() + limit
    found: list[Cell] = []
    copies: dict[str, InMemory] = {}
    known: dict[str, np.ndarray] = {}
    for cell in cells(scale):
        found.append(cell)
        caught(cell, "fit", partial(fit, cell))
        caught(
            cell, "PyTorch", partial(compare_with_torch, cell, min(5.0, max(0.5, 0.1 * (end - time.perf_counter()))))
        )
        problem: Any = cell.problem
        if cell.result is not None and problem.data.profile.stored <= CONFIRMED and not problem.data.profile.sparse:
            caught(cell, "copy to memory", lambda cell=cell: copies.setdefault(cell.name, InMemory.of(cell, known)))
        cell.problem = problem = None
        print(" | ".join(cell.row()), flush=True)
        write(found, scale)
    measured: tuple[tuple[str, Callable[[InMemory], Iterator[float]]], ...] = (
        ("confirmed", certificates),
        ("on_cpu", our_fits),
        ("sklearn", sklearn_fits),
    )
    for what, work in measured:
        for cell in found:
            here = copies.get(cell.name)
            if here is not None and time.perf_counter() < end and is_measured(what, here):
                caught(cell, what, partial(from_cpu, cell, what, partial(work, here)))
                print(f"{cell.name}, {what}: {getattr(cell, what):.3g}", flush=True)
                write(found, scale)
    return found


def is_measured(what: str, here: InMemory) -> bool:
    """Whether something is measured on the CPU: fits for the logistic loss with ‖w‖² alone, scikit-learn's on narrow rows."""
    plain = isinstance(here.loss, losses.Logistic) and isinstance(here.rest["regularizer"], regularizers.L2)
    return what == "confirmed" or (plain and (what == "on_cpu" or here.X.shape[1] <= 100))


def targets(found: list[Cell]) -> list[Target]:
    """Return what the fits should reach."""

    def of(words: str) -> list[Cell]:
        return [cell for cell in found if cell.task == "logistic" and words in cell.data]

    wide = [cell.fit for cell in of("×2000,")]
    confirmed = [cell.confirmed for cell in found if math.isfinite(cell.confirmed)]
    equal = [cell.equal_bits for cell in found if math.isfinite(cell.fit)]
    return [
        *(
            Target.at_most(
                f"{words[:-1]} in 10 reads of X and the time of its Hessians at half of the float32 rate",
                [cell.reads / cell.allowed for cell in of(words)],
                1.0,
                " of that",
            )
            for words in ("10,000,000×100,", "1,000,000×1000,")
        ),
        Target.at_most("1,000,000×2000 with condition 1e6 in 0.5 s", wide, 0.5, " s"),
        Target.at_most(
            "CSR 10,000,000×1,000,000 in 30 reads", [cell.reads for cell in of("×1,000,000,")], 30.0, " reads"
        ),
        Target.at_most("relative gaps found by the CPU ≤ 2e-6", confirmed, 2.0 * GOAL, ""),
        Target("two fits have equal bits", f"{sum(equal)} of {len(equal)} problems", all(equal) if equal else None),
    ]


def write(found: list[Cell], scale: float) -> None:
    """Write the page."""
    xp = cupy()
    name = xp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    versions = ", ".join(
        f"{one} {own}" for one in ("cupy-cuda12x", "cupy-cuda13x", "cupy", "torch") if (own := installed_version(one))
    )
    notes = [f"GPU: {name}, CUDA {xp.cuda.runtime.runtimeGetVersion()}, {versions}"]
    notes += [f"float32 rate: {float32_rate() / 1e12:.1f} TFLOP/s (cuBLAS, 8192×16384 by 16384×8192)"]
    notes += [f"not measured: {failure}" for cell in found for failure in cell.failures]
    table = Table("Logistic regression and others", COLUMNS, [cell.row() for cell in found], NOTE)
    FILE.write_text(
        markdown(
            [Section("Fits on a GPU", [table], targets(found))], f"python -m benchmarks.gpu --scale {scale:g}", notes
        )
    )


def main() -> None:
    """Parse the options, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of rows")
    parser.add_argument("--seconds", type=float, default=150.0, help="no measurement starts after so many seconds")
    options = parser.parse_args()
    measure(options.scale, options.seconds)


if __name__ == "__main__":
    main()
