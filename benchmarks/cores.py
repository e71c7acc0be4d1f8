"""Speed-up with the number of threads: ``python -m benchmarks.cores [--scale 1.0] [--seconds 450] [--cap 20] [--threads …]``.

Measures, for each number of threads as far as the machine has cores,

1. the machine: read bandwidth of a plain sum over a large array, and the rate of single-threaded BLAS products in a pool;
2. whole fits: seconds to a relative gap of 1e-6 for several methods;
3. several models in shared passes: ten classes, each against the rest;
4. the fits of the other libraries that are installed;
5. the passes over the data, as fractions of the read bandwidth, and the weighted Gram matrix, as a fraction of the BLAS rate;
6. a cross-validation.

One thread and all threads come first, the numbers between them last. A fit that exceeds ``--cap`` seconds with all threads is not
tried with one. Kernels are compiled or loaded before, and that time is
reported apart. Lines are printed as they are measured. The tables are written to benchmarks/CORES.md and the numbers to
benchmarks/cores.json after each step, so that a run that is cut short leaves what it has measured. ``--scale`` multiplies the
number of rows.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from benchmarks.report import MISSING, Section, Table, environment, markdown, seconds
from benchmarks.timing import Outcome, best_of, cores, in_child
from threadpoolctl import threadpool_limits

import dualnewton as dn
from dualnewton import losses
from dualnewton.lab.peers import PEERS, Peer, preload
from dualnewton.matrix.workers import threads as using_threads
from dualnewton.objective.targets import Derivatives
from dualnewton.planning.costs import prepared

THREADS = (1, 2, 4, 8, 16)
METHODS = ("auto", "newton", "ihs", "sdna")
COMPARED = ("lbfgs", "newton-cholesky", "snapml", "cyanure")
TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8)
"""Tolerances of other libraries, loosest first: the first one that reaches the goal is timed."""

GOAL, LAM_N = 1e-6, 1.0
"""Relative accuracy P − P* ≤ GOAL · P*, and λn."""

CAP, PASS_CAP = 20.0, 30.0
"""Limits in seconds of the fits of one contender at one number of threads (by default), and of all passes over one data set."""

FITS = 5
"""Fits of ours of which the fastest counts, if they take less than SHORT seconds together."""

SHORT, HOPELESS = 4.0, 10.0
"""Seconds after which work is not repeated, and those of several models in all threads from which one thread is not tried."""

FILES = Path(__file__).parent / "CORES.md", Path(__file__).parent / "cores.json"

CLASSES = 10
"""Models that share a pass, for the passes with several columns."""

CROSS_VALIDATION, MODELS = "LogisticRegressionCV, 5 × 5", f"{CLASSES} models, one against the rest"
SHARE_OF_ROWS = 4
"""These several models are fitted on the first rows: one of so many."""


# Data ----------------------------------------------------------------------------------------------------------------------


def dense(n: int, d: int, *, unit: bool) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian rows with a common factor, of length one or standardised, labelled by a random hyperplane with noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    X += rng.standard_normal((n, 1))
    if unit:
        X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    else:
        X -= X.mean(axis=0)
        X /= np.sqrt(np.einsum("ij,ij->j", X, X) / n)
    return X, _labels(X, rng)


def sparse(n: int, d: int, entries: int) -> tuple[sp.csr_array, np.ndarray]:
    """CSR rows of length one with up to ``entries`` entries, in columns of which the first are the most frequent."""
    rng = np.random.default_rng(0)
    columns = np.minimum((d * rng.random(n * entries) ** 3).astype(np.int32), d - 1)
    starts = np.arange(0, n * entries + 1, entries, dtype=np.int32)
    X = sp.csr_array((rng.random(n * entries) + 0.1, columns, starts), shape=(n, d))
    X.sum_duplicates()
    norms = np.sqrt(np.add.reduceat(np.square(X.data), X.indptr[:-1]))
    X.data /= np.repeat(norms, np.diff(X.indptr))
    return X, _labels(X, rng)


def _labels(X: Any, rng: np.random.Generator) -> np.ndarray:
    scores = X @ rng.standard_normal(X.shape[1])
    return np.where(scores + 0.3 * scores.std() * rng.standard_normal(X.shape[0]) > np.median(scores), 1.0, -1.0)


def data_sets(scale: float) -> dict[str, Callable[[], tuple[Any, np.ndarray]]]:
    """Return the data sets with their numbers of rows multiplied by ``scale``."""

    def rows(n: int) -> int:
        return max(1000, round(scale * n))

    return {
        f"dense {rows(200_000)}×500, unit rows": lambda: dense(rows(200_000), 500, unit=True),
        f"dense {rows(1_000_000)}×100, standardised": lambda: dense(rows(1_000_000), 100, unit=False),
        f"CSR {rows(500_000)}×100000, 40 a row": lambda: sparse(rows(500_000), 100_000, 40),
    }


# The machine -----------------------------------------------------------------------------------------------------------------


@cache
def _reader() -> Any:
    import numba

    @numba.njit(nogil=True, fastmath={"reassoc"})
    def total(x):
        s = 0.0
        for v in x:
            s += v
        return s

    total(np.zeros(8))
    return total


def read_bandwidth(x: np.ndarray, threads: int) -> float:
    """GB/s of a sum over a flat array, cut into 16 pieces a thread."""
    pieces = np.array_split(x, 16 * threads)
    with ThreadPoolExecutor(threads) as pool:
        return x.nbytes / best_of(lambda: list(pool.map(_reader(), pieces)), 25).seconds / 1e9


def blas_rate(threads: int, size: int = 1024) -> float:
    """GFlop/s of single-threaded products AᵀA of square matrices, by BLAS, eight a thread."""
    A = np.random.default_rng(0).standard_normal((size, size))
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        found = best_of(lambda: list(pool.map(lambda _: A.T @ A, range(8 * threads))), 3)
    return 8 * threads * size**3 / found.seconds / 1e9  # of the symmetric product: half of 2 size³


def machine(threads: int, scale: float) -> list[float]:
    """Return the read bandwidth of an array of 1 GiB times ``scale``, and the BLAS rate."""
    return [read_bandwidth(np.ones(max(1 << 22, round(scale * (1 << 27)))), threads), blas_rate(threads)]


# Passes -------------------------------------------------------------------------------------------------------------------------


def passes(X: Any, y: np.ndarray, threads: int) -> Iterator[tuple[str, float]]:
    """Yield the seconds of each kind of pass; a certificate is one pass as well."""
    n, d = X.shape
    problem = dn.Problem(X, y, losses.Logistic(), lam=LAM_N / n)
    rng = np.random.default_rng(1)
    W = 0.1 * rng.standard_normal((CLASSES, d))
    near = dn.solve(problem, method="ihs", tol=1e-3, n_threads=threads, random_state=0).w
    data = prepared(problem.data, compiled=True)
    weights = rng.random(n)
    once, together = Derivatives([problem]), Derivatives([problem] * CLASSES)
    kinds: dict[str, Callable[[], Any]] = {
        "evaluate": lambda: data.evaluate(W[:1], np.zeros(1), once, [problem.row_vectors]),
        f"evaluate, {CLASSES} models": lambda: data.evaluate(
            W, np.zeros(CLASSES), together, [problem.row_vectors] * CLASSES
        ),
        "weighted products": lambda: data.weighted_products(W[:1], np.zeros(1), weights[:, None]),
        "diagonal": lambda: data.column_norms(weights),
        "row scores": lambda: data.row_scores(np.ones(d)),
        "products": lambda: data.times(W[0]),
        "transposed products": lambda: data.transposed_times(weights),
        "certificate": lambda: problem.certify(near),
    }
    if d <= 1000:
        kinds["weighted Gram"] = lambda: data.weighted_gram(weights)
    with threadpool_limits(1), using_threads(threads):
        for name, run in kinds.items():
            run()
            yield name, best_of(run, 25, 0.4).seconds


# Fits ---------------------------------------------------------------------------------------------------------------------------


def our_fit(X: Any, y: np.ndarray, method: str, threads: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds of one fit after another, with the method that ran, its passes and its certified gap."""
    total = 0.0
    for run in range(FITS):
        start = time.perf_counter()
        with using_threads(threads):  # which read X once, as those of estimators do
            problem = dn.Problem(X, y, losses.Logistic(), lam=LAM_N / len(y))
        result = dn.solve(problem, method=method, tol=GOAL, n_threads=threads, random_state=0, time_limit=CAP)
        took = time.perf_counter() - start
        certificate = result.certificate
        yield {
            "seconds": took if certificate.relative_gap <= GOAL else math.nan,
            "primal": certificate.primal,
            "epochs": result.n_epochs,
            "ran": result.plan.method,
        }
        total += took
        if run and total > SHORT:  # the first run may load kernels that smaller data do not need
            return


def peer_fit(X: Any, y: np.ndarray, peer: Peer, threads: int, best: float) -> Iterator[dict[str, Any]]:
    """Yield the seconds of the loosest tolerance that reaches the goal."""
    problem = dn.Problem(X, y, losses.Logistic(), lam=LAM_N / len(y))
    X = sp.csr_matrix(X) if sp.issparse(X) else X  # Snap ML rejects SciPy's arrays
    for tol in TOLERANCES:
        start = time.perf_counter()
        w = peer.fit(X, y, LAM_N, tol, threads)
        took = time.perf_counter() - start
        if problem.primal(w) - best <= GOAL * best:
            yield {"seconds": took, "tol": tol}
            return


def warm_up(X: Any, y: np.ndarray, method: str, threads: int) -> None:
    """Load or compile the kernels on the first rows."""
    few = slice(0, min(len(y), 4000))
    dn.solve(dn.Problem(X[few], y[few], losses.Logistic(), lam=1e-3), method=method, n_threads=threads, random_state=0)


def several_models(X: Any, y: np.ndarray, kind: str, threads: int) -> Iterator[dict[str, Any]]:
    """Yield the seconds of ten models, each of a class against the rest, or of a cross-validation, on a part of the rows."""
    few = slice(0, len(y) // SHARE_OF_ROWS)
    X, y = X[few], y[few]  # before the clock starts: SciPy's copy of 125000 rows takes 35 ms
    scores = X @ np.random.default_rng(2).standard_normal(X.shape[1])
    classes = np.argsort(np.argsort(scores)) * CLASSES // len(scores)
    took = 0.0
    for _ in range(2):
        if took > SHORT:
            return
        start = time.perf_counter()
        if kind == CROSS_VALIDATION:
            dn.LogisticRegressionCV(Cs=5, cv=5, tol=GOAL, n_jobs=threads).fit(X, y)
        else:
            with using_threads(threads):  # which read X once, as in ``our_fit``
                data = dn.Problem(X, y, losses.Logistic()).data
            labels = [np.where(classes == k, 1.0, -1.0) for k in range(CLASSES)]
            problems = [dn.Problem(data, own, losses.Logistic(), lam=LAM_N / len(own)) for own in labels]
            dn.solve_many(problems, tol=GOAL, n_threads=threads, random_state=0)
        took = time.perf_counter() - start
        yield {"seconds": took}


def compiled_kernels() -> tuple[int, float]:
    """Compile or load the kernels of these fits; return the number of those compiled, and the seconds of all."""
    from dualnewton.kernels._compiler import SO_FAR
    from dualnewton.run.warm_up import steps

    start, wanted = (
        time.perf_counter(),
        ("float64: passes", "rounds, Logistic", "loss Logistic", "linear", "smooth losses, SDNA"),
    )
    for step in steps(dtypes=("float64",)):
        if any(word in step.name for word in wanted):
            step.prepare()
    return SO_FAR.compiled, time.perf_counter() - start


# The run ------------------------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """All numbers of a run, by threads: of the machine, of passes by data set and kind, of fits by data set and contender."""

    threads: list[int]
    scale: float
    cap: float = CAP
    read: dict[int, float] = field(default_factory=dict)
    blas: dict[int, float] = field(default_factory=dict)
    passes: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    bytes_read: dict[str, float] = field(default_factory=dict)
    products: dict[str, float] = field(default_factory=dict)  # multiplications of a weighted Gram matrix
    fits: dict[str, dict[str, dict[int, float]]] = field(default_factory=dict)
    compiled: int = 0
    compiling_seconds: float = 0.0
    ran: dict[str, dict[str, str]] = field(default_factory=dict)

    def write(self) -> None:
        """Write both files."""
        FILES[1].write_text(json.dumps({"environment": environment(), **vars(self)}, indent=1))
        title = f"Threads 1 to {self.threads[-1]}, scale {self.scale:g}"
        passes, fits = ([data for data, of in found.items() if of] for found in (self.passes, self.fits))
        tables = [self._machine(), *map(self._pass_table, passes), *map(self._fit_table, fits)]
        command = (
            f"python -m benchmarks.cores --scale {self.scale:g} --threads {','.join(self.columns)} --cap {self.cap:g}"
        )
        FILES[0].write_text(markdown([Section(title, tables)], command, []))

    @property
    def columns(self) -> list[str]:
        """The headings of the columns with one number per number of threads."""
        return [str(t) for t in self.threads]

    def _machine(self) -> Table:
        rows = [["read, GB/s", *(f"{self.read[t]:.1f}" for t in self.threads if t in self.read)]]
        rows.append(["BLAS, GFlop/s", *(f"{self.blas[t]:.0f}" for t in self.threads if t in self.blas)])
        kernels = f"{self.compiled} kernels compiled, the others loaded, in {seconds(self.compiling_seconds)}."
        note = f"BLAS: products AᵀA, of which half is counted. Before all fits: {kernels}"
        return Table("The machine", ["threads", *self.columns], rows, note)

    def _pass_table(self, data: str) -> Table:
        rows = []
        for kind, by_threads in self.passes[data].items():
            gram = kind == "weighted Gram"
            amount, rate = (self.products, self.blas) if gram else (self.bytes_read, self.read)
            shown = [
                f"{seconds(by_threads[t])} ({amount[data] / by_threads[t] / 1e9 / rate[t]:.0%})"
                if t in by_threads
                else MISSING
                for t in self.threads
            ]
            rows.append([kind, *shown, _speedup(by_threads)])
        note = "In brackets: of the read bandwidth, or of the BLAS rate (weighted Gram), at the same number of threads."
        return Table(f"Passes, {data}", ["pass", *self.columns, "speed-up"], rows, note)

    def _fit_table(self, data: str) -> Table:
        rows = []
        for name, by_threads in self.fits[data].items():
            ran = self.ran.get(data, {}).get(name, name)
            shown = [seconds(by_threads[t]) if t in by_threads else MISSING for t in self.threads]
            rows.append([name if ran == name else f"{name} ({ran})", *shown, _speedup(by_threads)])
        note = f"Seconds to P − P* ≤ {GOAL:g} P*, logistic, λn = {LAM_N:g}; ours include the certificate."
        if CROSS_VALIDATION in self.fits[data]:
            note += f" Several models: on one row of {SHARE_OF_ROWS}."
        return Table(f"Fits, {data}", ["method", *self.columns, "speed-up"], rows, note)


def _speedup(by_threads: dict[int, float]) -> str:
    first, last = by_threads.get(1), by_threads.get(max(by_threads, default=1))
    return f"{first / last:.1f}×" if first and last and first / last > 0.0 else MISSING


def measure(threads: list[int], scale: float, limit: float, cap: float) -> Measured:
    """Measure everything, or as much as starts within ``limit`` seconds."""
    found, end = Measured(threads, scale, cap), time.perf_counter() + limit
    preload()
    found.compiled, found.compiling_seconds = compiled_kernels()
    print(f"kernels: {found.compiled} compiled, {seconds(found.compiling_seconds)}", flush=True)
    for t in threads:
        found.read[t], found.blas[t] = in_child(partial(machine, t, scale), 60.0, t, _reader).values
        print(f"{t} threads: read {found.read[t]:.1f} GB/s, BLAS {found.blas[t]:.0f} GFlop/s", flush=True)
    sets = {name: make() for name, make in data_sets(scale).items()}
    ends = sorted({1, threads[-1]}, reverse=True)
    best = {data: _fits(found, data, X, y, ends, end) for data, (X, y) in sets.items()}
    between = [t for t in threads if t not in ends]
    for data, (X, y) in sets.items():
        _several(found, data, X, y, MODELS, ends, end)
    for data, (X, y) in sets.items():
        _peers(found, data, X, y, best[data], ends[:1], end)
    for data, (X, y) in sets.items():
        _passes(found, data, X, y, ends, end)
    for data, (X, y) in sets.items():
        _several(found, data, X, y, CROSS_VALIDATION, ends, end)
        _peers(found, data, X, y, best[data], ends[1:], end)
    for data, (X, y) in sets.items():
        _passes(found, data, X, y, between, end)
        _fits(found, data, X, y, between, end)
    return found


def _passes(found: Measured, data: str, X: Any, y: np.ndarray, threads: list[int], end: float) -> None:
    found.bytes_read[data] = float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes)
    found.products[data] = float(len(y)) * X.shape[1] ** 2
    kinds = found.passes.setdefault(data, {})
    for t in threads:
        for kind, took in _values(partial(passes, X, y, t), PASS_CAP, t, partial(warm_up, X, y, "newton", t), end):
            kinds.setdefault(kind, {})[t] = took
            print(f"{data}: {kind}, {t} threads: {seconds(took)}", flush=True)
    found.write()


def _fits(found: Measured, data: str, X: Any, y: np.ndarray, threads: list[int], end: float) -> float:
    """Time our methods; return the lowest primal value."""
    times, best = found.fits.setdefault(data, {}), math.inf
    for method in METHODS:
        for t in threads if method != "newton" or X.shape[1] <= 5000 else ():
            if t < found.threads[-1] and found.threads[-1] not in times.get(method, {}):
                continue  # all threads took too long
            work = partial(our_fit, X, y, method, t)
            for row in _values(work, found.cap, t, partial(warm_up, X, y, method, t), end):
                by_threads = times.setdefault(method, {})
                by_threads[t] = min(row["seconds"], by_threads.get(t, math.inf))
                best = min(best, row["primal"])
                if t == found.threads[-1]:
                    found.ran.setdefault(data, {})[method] = row["ran"]
                epochs = f"{row['epochs']:g} epochs by {row['ran']}"
                print(f"{data}: {method}, {t} threads: {seconds(row['seconds'])}, {epochs}", flush=True)
        found.write()
    return best


def _several(found: Measured, data: str, X: Any, y: np.ndarray, kind: str, threads: list[int], end: float) -> None:
    times = found.fits.setdefault(data, {})
    for t in threads:
        if min(times.get(kind, {}).values(), default=0.0) > HOPELESS:
            continue
        for row in _values(partial(several_models, X, y, kind, t), 2.0 * found.cap, t, lambda: None, end):
            times.setdefault(kind, {})[t] = min(row["seconds"], times.get(kind, {}).get(t, math.inf))
            print(f"{data}: {kind}, {t} threads: {seconds(row['seconds'])}", flush=True)
    found.write()


def _peers(found: Measured, data: str, X: Any, y: np.ndarray, best: float, threads: list[int], end: float) -> None:
    times = found.fits.setdefault(data, {})
    for peer in PEERS["logistic"]:
        for t in threads:
            if peer.name not in COMPARED or not peer.installed or peer.refuses(X) or best == math.inf:
                continue
            for row in _values(partial(peer_fit, X, y, peer, t, best), found.cap, t, lambda: None, end):
                times.setdefault(peer.name, {})[t] = row["seconds"]
                print(f"{data}: {peer.name}, {t} threads: {seconds(row['seconds'])}, tol {row['tol']:g}", flush=True)
        found.write()


def _values(work: Callable[[], Iterable[Any]], cap: float, t: int, prepare: Callable[[], Any], end: float) -> list[Any]:
    """Return the values that the work yields in a child process, none after ``end``."""
    if time.perf_counter() >= end:
        return []
    outcome = in_child(work, cap, t, prepare)
    if outcome.ending != Outcome.DONE:
        print(f"  {outcome.ending}", flush=True)
    return outcome.values


def main() -> None:
    """Parse the options, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="factor of the numbers of rows")
    parser.add_argument("--seconds", type=float, default=450.0, help="no measurement starts after so many seconds")
    parser.add_argument("--cap", type=float, default=CAP, help="limit in seconds of the fits of one contender")
    parser.add_argument("--threads", default=",".join(map(str, THREADS)), help="numbers of threads, with commas")
    options = parser.parse_args()
    threads = [t for t in map(int, options.threads.split(",")) if t <= len(cores())]
    measure(threads, options.scale, options.seconds, options.cap).write()


if __name__ == "__main__":
    main()
