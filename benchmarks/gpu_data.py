"""Data for the benchmarks on a GPU, made there in float32, and the time of work on it.

Dense features are Gaussian, and their scales range over the given condition number; labels are those of a logistic model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import dualnewton as dn
from dualnewton import losses, regularizers
from dualnewton.matrix.cuda import as_cuda
from dualnewton.matrix.cuda_library import cupy


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
