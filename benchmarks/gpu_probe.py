"""Times of single operations and profiles of fits on a GPU: ``python -m benchmarks.gpu_probe [--gathers]``.

The planner's rates of a GPU follow from them. With ``--gathers``, only times of random reads by the entries of a sparse matrix.

A *read* is the time in which the GPU reads X once, by the sum of its entries.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import functools
import itertools
import pstats
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.gpu_data import dense, labels, others, sparse, timed

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import cuda, cuda_gram
from dualnewton.matrix.cuda import as_cuda
from dualnewton.matrix.cuda_library import THREADS, cupy, kernel, limit, namespace
from dualnewton.objective.targets import Derivatives, PrimalPoints

TOL = 1e-6
LIMIT = 4.0
"""Seconds after which a fit ends."""


def operations(X: Any, y: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the operations of a fit on dense data."""
    xp, data = cupy(), as_cuda(X)
    n, d = X.shape
    problem = dn.Problem(X, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True)
    lasso = dn.Problem(X, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True, regularizer=regularizers.L1())
    W, b, rows = np.full((1, d), 0.01), np.zeros(1), [problem.row_vectors]
    weights = xp.random.default_rng(0).random(n)
    yield "read", lambda: X.sum()
    yield "Problem", lambda: dn.Problem(X, y, losses.Logistic(), lam=1.0 / n)
    yield "pass", lambda: data.evaluate(W, b, Derivatives([problem]), rows)
    yield "certificate pass", lambda: data.evaluate(W, b, PrimalPoints([problem]), rows)
    yield "certificate pass, Lasso", lambda: data.evaluate(W, b, PrimalPoints([lasso]), rows)
    yield "certify", lambda: problem.certify(W[0], 0.0)
    yield "times", lambda: data.times(W[0])
    yield "transposed_times", lambda: data.transposed_times(weights)
    yield "times, 8 columns", lambda: data.times(np.tile(W[0], (8, 1)).T)
    yield "transposed_times, 8 columns", lambda: data.transposed_times(xp.stack([weights] * 8, axis=1))
    yield "curvature", lambda: problem.row_curvature(weights)
    yield "best intercept", lambda: problem.best_intercept_at(weights)
    yield "dual_at", lambda: problem.dual_at(-y * 0.3, W[0])
    yield "gram float64", lambda: data.weighted_gram(weights, intercept=True, keep=True)
    yield "gram float32", lambda: data.weighted_gram(weights, intercept=True, single=True, keep=True)
    yield (
        "scale float64 alone",
        lambda: cuda_gram.scale(data.number, X, weights, None, xp.empty((min(n, (1 << 28) // d), d)), root=True),
    )
    part = X[: min(n, (1 << 28) // d)]
    yield f"TF32 product of {len(part)} rows", lambda: tf32(part)
    yield "the same in float32", lambda: part.T @ part
    yield "the same by syrk", lambda: symmetric(part)
    wide = part.astype(np.float64)
    yield "the same in float64", lambda: wide.T @ wide
    yield "the same by syrk in float64", lambda: symmetric(wide)
    yield "the same in float64, four blocks", lambda: by_blocks(wide, 4)
    H = data.weighted_gram(weights, keep=True) if d > 200 else xp.asarray(data.weighted_gram(weights))
    from dualnewton.matrix.cuda_library import CudaAlgebra

    zeros = np.zeros(len(H))
    factor = CudaAlgebra().cholesky(H, zeros)[0]
    yield "factor", lambda: CudaAlgebra().cholesky(H, zeros)
    yield "solve", lambda: CudaAlgebra().solve(factor, W[0])
    yield "draw 100000 rows", lambda: data.draw(np.random.default_rng(0), weights, min(100000, n // 10))
    yield "subset of 100000 rows", lambda: data.subset(np.arange(0, n, max(1, n // 100000)))
    yield "1000 rows to the host", lambda: data.rows(np.arange(0, n, max(1, n // 1000)))


def symmetric(B: Any) -> Any:
    """Return the lower half of BᵀB, of which cuBLAS computes no other entries."""
    from cupy import cublas

    return cublas.syrk("T", B, out=cupy().zeros((B.shape[1],) * 2, dtype=B.dtype), lower=True)


def by_blocks(B: Any, count: int) -> Any:
    """Return BᵀB without the blocks above its diagonal."""
    H = cupy().zeros((B.shape[1],) * 2, dtype=B.dtype)
    step = -(-B.shape[1] // count)
    for low in range(0, B.shape[1], step):
        H[low:, low : low + step] = B[:, low:].T @ B[:, low : low + step]
    return H


def sweep(X: Any, y: Any) -> None:
    """Print the times of a pass for so many columns per thread, rows at a time and blocks per multiprocessor."""
    problem = dn.Problem(X, y, losses.Logistic(), lam=1.0 / len(y), fit_intercept=True)
    W, b, rows = np.full((1, X.shape[1]), 0.01), np.zeros(1), [problem.row_vectors]
    before = cuda.FEW_COLUMNS, cuda.MOST_ROWS, cuda.PASS_BLOCKS
    try:
        for target in (Derivatives([problem]), PrimalPoints([problem])):
            for columns, most in itertools.product((2, 4, 8), (4, 8, 16)):
                found = []
                for blocks in (1, 2):
                    cuda.FEW_COLUMNS, cuda.MOST_ROWS, cuda.PASS_BLOCKS = columns, most, blocks
                    data = cuda.CudaData(X, namespace())
                    work = functools.partial(data.evaluate, W, b, target, rows)
                    found.append(f"{blocks}: {timed(work, 3):.2f}")
                print(f"    {type(target).__name__}, {columns} columns, {most} rows, blocks: ms", *found, flush=True)
    finally:
        cuda.FEW_COLUMNS, cuda.MOST_ROWS, cuda.PASS_BLOCKS = before


def tf32(B: Any) -> Any:
    """Return BᵀB by TF32 tensor cores."""
    from cupy._core import _routines_linalg as routines

    before = routines.get_compute_type(np.dtype(np.float32))
    routines.set_compute_type(np.dtype(np.float32), routines.COMPUTE_TYPE_TF32)
    try:
        return B.T @ B
    finally:
        routines.set_compute_type(np.dtype(np.float32), before)


def errors(X: Any, _: Any) -> None:
    """Print the errors of Gram products of a chunk, as fractions of the diagonal and, as a matrix, of the largest eigenvalue."""
    xp = cupy()
    B = X[: min(len(X), (1 << 28) // X.shape[1])]
    exact = as_cuda(B).weighted_gram(xp.ones(len(B)), keep=True)
    exact = xp.asarray(exact)
    roots = xp.sqrt(exact.diagonal())
    largest = float(xp.linalg.eigvalsh(exact)[-1])
    for name, found in (("float32", B.T @ B), ("TF32", tf32(B))):
        wrong = found.astype(np.float64) - exact
        of_diagonal = float(abs(wrong / xp.outer(roots, roots)).max())
        of_matrix = float(abs(xp.linalg.eigvalsh(0.5 * (wrong + wrong.T))).max()) / largest
        print(
            f"  error of {name}: {of_diagonal:.2e} of the diagonal, {of_matrix:.2e} of the largest eigenvalue",
            flush=True,
        )


def probe(sizes: list[tuple[int, int, float]]) -> None:
    """Print the times of operations and of fits."""
    xp = cupy()
    print(xp.cuda.runtime.getDeviceProperties(0)["name"], "CuPy", xp.__version__, "NumPy", np.__version__)
    for n, d, condition in sizes:
        print(f"== {n} x {d}, condition {condition:g}", flush=True)
        X, z = dense(n, d, condition)
        y = labels(z)
        found = operations(X, y)
        while True:
            name = "?"
            try:
                name, work = next(found)
                print(f"  {name:32s} {timed(work):9.3f} ms", flush=True)
            except StopIteration:
                break
            except Exception:
                print(f"  {name}: FAILED", traceback.format_exc()[-1500:], flush=True)
                if name == "?":
                    break
        for study in (errors, sweep):
            try:
                study(X, y)
            except Exception:
                print("  FAILED", traceback.format_exc()[-800:], flush=True)
        for method in ("newton", "ihs", "auto"):
            fit("logistic", dn.Problem(X, y, losses.Logistic(), lam=1.0 / n, fit_intercept=True), method)
        if n * d <= 10**8:
            for name, problem in others(X, z, y):
                fit(name, problem, "auto")
        del X, z, y, found, work
        xp.get_default_memory_pool().free_all_blocks()


def probe_sparse(sizes: list[tuple[int, int, int]]) -> None:
    """Print the times of passes and fits on sparse data."""
    xp = cupy()
    for n, d, per_row in sizes:
        print(f"== CSR {n} x {d}, {per_row} a row", flush=True)
        try:
            X, y = sparse(n, d, per_row)
            problem = dn.Problem(X, y, losses.Logistic(), lam=1.0 / n)
            for name, work in sparse_operations(X, y, problem):
                print(f"  {name} {timed(work):.2f} ms", flush=True)
            for method in ("newton", "ihs"):
                fit("logistic", problem, method)
        except Exception:
            print("  FAILED", traceback.format_exc()[-2000:], flush=True)
        X = y = problem = None
        xp.get_default_memory_pool().free_all_blocks()


def sparse_operations(X: Any, y: Any, problem: dn.Problem) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the operations of a pass over sparse rows."""
    data, W, b = problem.data, np.full((1, problem.d), 0.01), np.zeros(1)
    yield "read", lambda: (X.data.sum(), X.indices.sum())
    yield "times", lambda: data.times(W[0])
    yield "transposed_times", lambda: data.transposed_times(y)
    yield "pass", lambda: data.evaluate(W, b, Derivatives([problem]), [problem.row_vectors])


GATHERS = r"""
// Sums of the entries of a sparse matrix times the numbers of W at their columns, or at MASK & column.
extern "C" __global__ void gathered(const float* data, const int* indices, const double* W, double* Z, long long stored)
{
    long long first = (long long)blockIdx.x * THREADS + threadIdx.x, threads = (long long)gridDim.x * THREADS;
    double z = 0.0;
    #pragma unroll 4
    for (long long s = first; s < stored; s += threads) z += (MASK ? W[MASK & indices[s]] : indices[s]) * (double)data[s];
    Z[first] = z;
}
"""


def gathers(X: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield products of the entries with numbers of a vector, without sums per row: they show what the random reads cost."""
    xp, blocks = cupy(), 8 * limit(0, "MultiProcessorCount")
    W, Z = xp.ones(X.shape[1]), xp.empty(blocks * THREADS)
    for words, mask in (("all columns", -1), ("8192 columns, which L1 holds", 8191), ("no column", 0)):
        work = kernel("gathered", GATHERS, MASK=mask)
        given = (blocks,), (THREADS,), (X.data, X.indices, W, Z, np.int64(X.nnz))
        yield f"entries times numbers of {words}", functools.partial(work, *given)


def fit(name: str, problem: dn.Problem, method: str) -> None:
    """Print the time of a fit and what it is spent on."""
    try:
        dn.solve(problem, method=method, tol=TOL, random_state=0, time_limit=LIMIT)
        began = time.perf_counter()
        result = dn.solve(problem, method=method, tol=TOL, random_state=0, time_limit=LIMIT)
        seconds = time.perf_counter() - began
        gap = result.certificate.relative_gap
        print(
            f"  fit {name} {method}: {1e3 * seconds:.1f} ms, gap {gap:.1e}, {result.n_epochs:.1f} epochs, {result.status}"
        )
        print(f"    {result.plan.reason}", flush=True)
        profile = cProfile.Profile()
        profile.runcall(dn.solve, problem, method=method, tol=TOL, random_state=0, time_limit=LIMIT)
        stats = pstats.Stats(profile)
        for (file, _, name), (_, calls, own, whole, _) in sorted(stats.stats.items(), key=lambda each: -each[1][3])[
            :28
        ]:
            if whole > 0.02 * seconds:
                print(f"      {1e3 * whole:8.1f} ms ({1e3 * own:7.1f} own) {calls:5d} {Path(file).name}:{name}")
    except Exception:
        print(f"  fit {name} {method}: FAILED", traceback.format_exc()[-2500:], flush=True)


def main() -> None:
    """Parse the options and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gathers", action="store_true", help="only random reads by the entries of a sparse matrix")
    print(datetime.datetime.now(datetime.UTC).date())
    if parser.parse_args().gathers:
        X, _ = sparse(10_000_000, 1_000_000, 50)
        for name, work in gathers(X):
            print(f"  {name} {timed(work):.2f} ms", flush=True)
        return
    probe([(1_000_000, 100, 1e4), (10_000_000, 100, 1e6), (1_000_000, 1000, 1e6), (1_000_000, 2000, 1e6)])
    probe_sparse([(2_000_000, 200_000, 50), (10_000_000, 1_000_000, 50)])


if __name__ == "__main__":
    main()
