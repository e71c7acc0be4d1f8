"""What only a fresh process can tell: the peak of its memory, and the first fit of its life.

``python -m benchmarks.fresh memory NAME K`` and ``python -m benchmarks.fresh fit SIZE STORAGE LOSS`` print one line of JSON.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SMALL = (1_000, 100)
LARGE = (2_000, 100)
SIZES = {"small": SMALL, "large": LARGE}
STORAGES = ("dense", "CSR")


# From outside ------------------------------------------------------------------------------------------------------------


def run(*arguments: str, timeout: float = 120.0, **environment: str) -> dict[str, float] | None:
    """Start this module in a new interpreter on one thread and read its JSON; None where it fails."""
    settings = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
    command = [sys.executable, "-m", "benchmarks.fresh", *arguments]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, timeout=timeout, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        return None
    return json.loads(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Start:
    """Seconds of a first fit: the whole process, the fit in it, the same with a filled cache, and a second fit."""

    process: float
    cold: float
    cached: float
    warm: float


def first_fit(size: str, storage: str, loss: str) -> Start:
    """Fit in a new interpreter with an empty compilation cache, then in another one with what that left in it."""
    with tempfile.TemporaryDirectory() as cache:
        start = time.perf_counter()
        cold = run("fit", size, storage, loss, NUMBA_CACHE_DIR=cache)
        process = time.perf_counter() - start
        cached = run("fit", size, storage, loss, NUMBA_CACHE_DIR=cache)
    if cold is None or cached is None:
        return Start(math.nan, math.nan, math.nan, math.nan)
    # The process has also made a second fit and the data, which a user's first fit has not.
    return Start(process - cold["second"] - cold["data"], cold["first"], cached["first"], cached["second"])


# From inside -------------------------------------------------------------------------------------------------------------


def fit(size: str, storage: str, loss: str) -> dict[str, float]:
    """Make the data with NumPy alone, then time two fits; the first pays for imports and compilation."""
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


def memory(name: str, models: str) -> dict[str, float]:
    """Fit K models on named data; return the bytes of the data, the peak above them, and what is allowed."""
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
    """Return by how many bytes the peak of this process during ``work()`` lies above what it held before (Linux)."""
    gc.collect()
    # Memory that was freed but kept by the allocator would be used again unseen: give it back to the system first.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        raise OSError("the peak of memory is measured on Linux with the GNU C library only")
    trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forgets the peak so far
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


COMMANDS: dict[str, Callable[..., dict[str, float]]] = {"fit": fit, "memory": memory}

if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    print(json.dumps(COMMANDS[name](*arguments)))
