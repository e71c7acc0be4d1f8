"""A fit of data four times as large as its memory stays within that memory, under a hard limit of the system.

Compiling kernels takes more memory than the fit: a fit of fewer rows compiles them before, in a process without the limit.
"""

import json
import subprocess
import sys

import numpy as np

LIMIT = 288 << 20
"""Bytes of memory of the fit; Python with NumPy, SciPy and Numba takes 190 MiB of it."""

BUFFERS = 64 << 20
"""Address space beyond that, which each thread's heap and BLAS reserve and hardly use. BLAS does not return without its own."""

N, D, FULL = 300_000, 1024, 10_000

FEW = 4 * FULL
"""Rows of the fit that compiles the kernels: enough for compiled passes, and for several pieces in its memory."""

CHILD = """
import json, re, resource, sys
# Memory that the process may write to, of its data, its heap and its threads: beyond the limit an allocation fails.
if len(sys.argv) > 3:
    resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[3]), int(sys.argv[3])))
import dualnewton as dn

data = dn.data.open(sys.argv[1], memory=int(sys.argv[2]))
problem = dn.Problem(data.X, data.y, dn.losses.Logistic(), lam=1e-3, fit_intercept=True)
result = dn.solve(problem, method="ihs", tol=3e-2, n_threads=2)
# Of this program alone: the maximum that getrusage reports includes that of the process which started it.
peak = 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read()).group(1))
print(json.dumps({"gap": result.certificate.relative_gap, "peak": peak, "read": data.X.source.bytes_read}))
"""


def written(path, n):
    """Write n rows and their labels; most of the file is a hole, which is read as zeros."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, D))
    X[:FULL] = rng.standard_normal((FULL, D))
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y[:FULL] = np.where(X[:FULL, 0] > 0.0, 1.0, -1.0)
    X.flush()
    np.save(path.with_suffix(".y.npy"), y)


def fitted(path, memory, *limit):
    """Fit in a process of its own; return what it prints."""
    words = [sys.executable, "-c", CHILD, str(path), str(memory), *map(str, limit)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_fit_ends_under_a_hard_limit_of_memory(tmp_path):
    few, path = tmp_path / "few.npy", tmp_path / "X.npy"
    written(few, FEW)
    written(path, N)
    assert 4 * N * D > 4 * LIMIT
    fitted(few, LIMIT * FEW // N)
    found = fitted(path, LIMIT, LIMIT + BUFFERS)
    assert found["gap"] <= 3e-2
    assert found["read"] >= 2 * 4 * N * D
    assert found["peak"] <= LIMIT
