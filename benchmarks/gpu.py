"""Fits on a GPU: times to a certified relative gap of 1e-6, beside reads of X, PyTorch's L-BFGS, 16 cores and scikit-learn.

    python -m benchmarks.gpu            writes benchmarks/GPU.md
    python -m benchmarks.gpu --probe    prints the times of single operations

The data are made on the GPU, in float32: Gaussian features whose scales range over the given condition number, and labels of a
logistic model. A *read* is the time in which the GPU reads X once, by the sum of its entries.
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import pstats
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix import cuda
from dualnewton.matrix.cuda import as_cuda, cupy
from dualnewton.objective.bounds import Derivatives, PrimalPoints

FILE = Path(__file__).parent / "GPU.md"
TOL = 1e-6
LIMIT = 4.0
"""Seconds after which a fit of the probe ends."""


def timed(work: Callable[[], Any], repeats: int = 5) -> float:
    """Return the least milliseconds of some calls, after one that compiles."""
    xp = cupy()
    work()
    best = np.inf
    for _ in range(repeats):
        xp.cuda.Device().synchronize()
        began = time.perf_counter()
        work()
        xp.cuda.Device().synchronize()
        best = min(best, time.perf_counter() - began)
    return 1e3 * best


def dense(n: int, d: int, condition: float, seed: int = 0) -> tuple[Any, Any]:
    """Return float32 features on the GPU and the margins of a random model."""
    xp = cupy()
    rng = xp.random.default_rng(seed)
    X = xp.empty((n, d), dtype=np.float32)
    scales = xp.asarray(np.geomspace(1.0, condition**-0.5, d), dtype=np.float32)
    step = max(1, (1 << 28) // d)
    for low in range(0, n, step):
        part = X[low : low + step]
        part[:] = rng.standard_normal(part.shape, dtype=np.float32) * scales
    w = rng.standard_normal(d) / xp.sqrt(d) / scales
    return X, as_cuda(X)._times(w)


def labels(z: Any, seed: int = 1) -> Any:
    """Return labels ±1 of a logistic model."""
    xp = cupy()
    chance = xp.random.default_rng(seed).random(len(z))
    return xp.where(chance < 1.0 / (1.0 + xp.exp(-z)), 1.0, -1.0)


# The probe -------------------------------------------------------------------------------------------------------------


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
    yield "scale float64 alone", lambda: data._scale(weights, None, xp.empty((min(n, (1 << 28) // d), d)), 0, root=True)
    part = X[: min(n, (1 << 28) // d)]
    yield f"TF32 product of {len(part)} rows", lambda: tf32(part)
    yield "the same in float32", lambda: part.T @ part
    yield "the same by syrk", lambda: symmetric(part)
    wide = part.astype(np.float64)
    yield "the same in float64", lambda: wide.T @ wide
    yield "the same by syrk in float64", lambda: symmetric(wide)
    yield "the same in float64, four blocks", lambda: by_blocks(wide, 4)
    H = data.weighted_gram(weights, keep=True) if d > 200 else xp.asarray(data.weighted_gram(weights))
    from dualnewton.matrix.cuda import CudaAlgebra

    factor = CudaAlgebra().cholesky(H)[0]
    yield "factor", lambda: CudaAlgebra().cholesky(H)
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
    """Print the times of a pass for tiles of so many bytes and so many blocks per multiprocessor."""
    problem = dn.Problem(X, y, losses.Logistic(), lam=1.0 / len(y), fit_intercept=True)
    W, b, rows, target = np.full((1, X.shape[1]), 0.01), np.zeros(1), [problem.row_vectors], Derivatives([problem])
    before = cuda.TILE_BYTES, cuda.BLOCKS
    try:
        for size in (20480, 32768, 40960, 65536, 98304):
            found = []
            for blocks in (2, 3, 4, 6, 8, 12):
                cuda.TILE_BYTES, cuda.BLOCKS = size, blocks
                data = cuda.CudaData(X, cuda.namespace())
                found.append(f"{blocks}: {timed(lambda data=data: data.evaluate(W, b, target, rows), 3):.2f}")
            print(f"    pass with tiles of {size} bytes, blocks: ms", ", ".join(found), flush=True)
    finally:
        cuda.TILE_BYTES, cuda.BLOCKS = before


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


def others(X: Any, z: Any, y: Any) -> Iterator[tuple[str, dn.Problem]]:
    """Yield problems of other losses and penalties on the same rows."""
    xp = cupy()
    n, rng = len(y), xp.random.default_rng(3)
    targets = z + rng.standard_normal(n)
    classes = xp.asarray(xp.digitize(targets, xp.quantile(targets, xp.linspace(0.0, 1.0, 11)[1:-1])))
    yield "ridge", dn.Problem(X, targets, losses.Squared(), lam=1.0 / n, fit_intercept=True)
    yield "Huber", dn.Problem(X, targets, losses.Huber(), lam=1.0 / n, fit_intercept=True)
    strength = 0.1 * float(abs(as_cuda(X)._transposed(targets)).max()) / n
    lasso = regularizers.L1()
    yield "Lasso", dn.Problem(X, targets, losses.Squared(), regularizer=lasso, lam=strength, fit_intercept=True)
    yield "sparse logistic", dn.Problem(X, y, losses.Logistic(), regularizer=lasso, lam=1e-3, fit_intercept=True)
    yield "hinge", dn.Problem(X, y, losses.Hinge(), lam=1e-4, fit_intercept=True)
    yield "softmax, 10 classes", dn.Problem(X, classes, losses.Softmax(10), lam=1.0 / n, fit_intercept=True)


def sparse(n: int, d: int, per_row: int) -> tuple[Any, Any]:
    """Return a CSR matrix of float32 on the GPU with so many entries in each row, and labels of a logistic model."""
    xp = cupy()
    from cupyx.scipy.sparse import csr_matrix

    rng, width = xp.random.default_rng(0), d // per_row
    indices = (rng.random((n, per_row), dtype=np.float32) * width).astype(np.int32) % width
    indices += xp.arange(per_row, dtype=np.int32) * width
    values = rng.standard_normal(n * per_row, dtype=np.float32)
    ends = xp.arange(0, n * per_row + 1, per_row, dtype=np.int32)
    X = csr_matrix((values, indices.reshape(-1), ends), shape=(n, d))
    return X, labels(as_cuda(X)._times(rng.standard_normal(d) / per_row**0.5))


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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probe", action="store_true")
    asked = parser.parse_args()
    print(datetime.datetime.now(datetime.UTC).date())
    if asked.probe:
        probe([(1_000_000, 100, 1e4), (10_000_000, 100, 1e6), (1_000_000, 1000, 1e6), (1_000_000, 2000, 1e6)])
        probe_sparse([(2_000_000, 200_000, 50), (10_000_000, 1_000_000, 50)])
