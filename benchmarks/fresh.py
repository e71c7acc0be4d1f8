"""Measurements that need a new process: the peak of its memory, and the time of its first fit.

``python -m benchmarks.fresh memory NAME K``, ``… fit SIZE STORAGE LOSS`` and ``… estimator "NAME key=value" STORAGE DTYPE`` print
one line of JSON. ``benchmarks.first_fits`` runs the last for all estimators.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SMALL = (1_000, 100)  # n and d of a problem that is solved without compiled kernels
LARGE = (2_000, 100)  # n and d of a problem that is solved with compiled kernels
SIZES = {"small": SMALL, "large": LARGE}
STORAGES = ("dense", "CSR")
FITS = {
    "dense": (3_000, 60),
    "CSR": (6_000, 500),
    "large dense": (30_000, 100),  # larger than the cache
    "long dense": (3_000, 1_000),  # and with rows that rounds of SDNA visit in blocks
}  # n and d of the fits of estimators: too large for the path without kernels
PER_ROW = 15  # entries per row of CSR data


# In the parent process ---------------------------------------------------------------------------------------------------


def run(*arguments: str, timeout: float = 120.0, **environment: str) -> dict[str, float] | None:
    """Run this module in a new interpreter on one thread; return its JSON and its messages of compilation, None if it fails.

    Python may write its bytecode, as installers do: to compile all modules that a fit imports takes 0.06 s in each process.
    """
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "", **environment}
    command = [sys.executable, "-m", "benchmarks.fresh", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=timeout, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    messages = sum(line.startswith("dualnewton: compiling") for line in done.stderr.splitlines())
    return {**json.loads(done.stdout.splitlines()[-1]), "messages": float(messages)}


@dataclass(frozen=True)
class Start:
    """Times in seconds: the process of a first fit, that fit, a first fit with a filled cache, and a second fit."""

    process: float
    cold: float
    cached: float
    warm: float


def first_fit(size: str, storage: str, loss: str) -> Start:
    """Fit in a new interpreter with an empty compilation cache, then in another one with the cache filled by the first."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        cold = run("fit", size, storage, loss, NUMBA_CACHE_DIR=cache)
        process = time.perf_counter() - start
        cached = run("fit", size, storage, loss, NUMBA_CACHE_DIR=cache)
    if cold is None or cached is None:
        return Start(math.nan, math.nan, math.nan, math.nan)
    # The second fit and the generation of the data are no part of a user's first fit.
    return Start(process - cold["second"] - cold["data"], cold["first"], cached["first"], cached["second"])


# In the new process ------------------------------------------------------------------------------------------------------


def fit(size: str, storage: str, loss: str) -> dict[str, float]:
    """Generate the data with NumPy alone, then time two fits; the first includes imports and compilation."""
    start = time.perf_counter()
    import numpy as np

    imported = time.perf_counter()
    n, d = SIZES[size]
    rng = np.random.default_rng(0)
    X: Any = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    made = time.perf_counter()
    import dualnewton as dn

    phi = {"logistic": dn.losses.Logistic, "squared hinge": dn.losses.SquaredHinge}[loss]()
    if storage == "CSR":
        import scipy.sparse as sp

        X = sp.csr_matrix(X * (np.abs(X) > 0.1))
    marks = [time.perf_counter()]
    for _ in range(2):
        dn.solve(dn.Problem(X, y, phi, lam=1.0 / n), n_threads=1, random_state=0)
        marks.append(time.perf_counter())
    first, second = np.diff(marks)
    imports = (imported - start) + (marks[0] - made)
    return {"first": float(first) + imports, "second": float(second), "data": made - imported}


def estimator(words: str, storage: str, dtype: str) -> dict[str, float]:
    """Time three fits of an estimator, given by its name and parameters, in CPU seconds and elapsed seconds.

    The import of the estimator is not part of a fit; what the first fit imports, Numba among it, is.
    """
    import numpy as np

    import dualnewton as dn

    name, *settings = words.split()
    kind, (X, y) = getattr(dn, name), _example(name, storage, dtype)
    parameters = dict(setting.split("=") for setting in settings)
    cpu, elapsed = [], []
    for _ in range(3):
        start = time.process_time(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a fit with max_iter epochs has not converged
            kind(**parameters).fit(X, y)
        cpu.append(time.process_time() - start[0])
        elapsed.append(time.perf_counter() - start[1])
    second = int(np.argmin(cpu[1:])) + 1
    times = {"first": cpu[0], "second": cpu[second], "first elapsed": elapsed[0], "second elapsed": elapsed[second]}
    return times | {"numba": float("numba" in sys.modules)}


def _example(name: str, storage: str, dtype: str) -> tuple[Any, Any]:
    """Return data for an estimator: two classes, a target, one that is positive, or three targets."""
    import numpy as np

    n, d = FITS[storage]
    rng = np.random.default_rng(0)
    X: Any = rng.standard_normal((n, d))
    if storage == "CSR":
        import scipy.sparse as sp

        X = sp.csr_array(X * (rng.random((n, d)) < PER_ROW / d))
    X = X.astype(dtype)
    targets = X @ rng.standard_normal((d, 3)) + rng.standard_normal((n, 3))
    if any(word in name for word in ("Classifier", "Logistic", "SVC")):
        return X, (targets[:, 0] > 0.0).astype(int)
    if any(word in name for word in ("Poisson", "Gamma", "Tweedie")):
        return X, np.exp(targets[:, 0] / targets[:, 0].std())
    return X, targets if "MultiTask" in name else targets[:, 0]


def memory(name: str, models: str) -> dict[str, float]:
    """Fit K models on a named data set; return the bytes of the data, of the peak above them, and of the allowed peak."""
    from benchmarks import data

    import dualnewton as dn

    K = int(models)
    known = {dataset.name: dataset for dataset in (*data.REAL, *data.DENSE, *data.QUICK_DENSE)}
    chosen = known[name]
    for cell in data.warm_up_cells():  # so that imports, compilation and thread pools are not counted
        _fit_many(dn, [cell.problem()] * K)
    X = chosen.X
    n, d = X.shape
    labels = [chosen.y] if K == 1 else list(data.ten_classes(X).T)
    phi = data.LOSSES["logistic"]
    extra = extra_memory(lambda: _fit_many(dn, [dn.Problem(X, y, phi, lam=1.0 / n) for y in labels]))
    size = X.nbytes if chosen.is_dense else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    return {"data": size, "extra": extra, "allowed": 8 * K * (6 * n + 6 * d) + 64 * 2**20}


def extra_memory(work: Callable[[], Any]) -> int:
    """Return the peak memory of this process during ``work()`` minus the memory before, in bytes (Linux only)."""
    gc.collect()
    # Freed memory that the allocator keeps could be reused without raising the peak, so it is returned to the system first.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        raise OSError("the peak of memory is measured on Linux with the GNU C library only")
    trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets the recorded peak
    before = _status("VmRSS")
    work()
    return _status("VmHWM") - before


def _fit_many(dn: Any, problems: list[Any]) -> None:
    if len(problems) == 1:
        dn.solve(problems[0], n_threads=1, random_state=0)
    else:
        dn.solve_many(problems, n_threads=1, random_state=0)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


COMMANDS: dict[str, Callable[..., dict[str, float]]] = {"fit": fit, "memory": memory, "estimator": estimator}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(COMMANDS[name](*arguments)))
