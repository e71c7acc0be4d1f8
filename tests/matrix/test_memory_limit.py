"""A fit of data four times as large as its memory stays within that memory, under a hard limit of the system."""

import json
import subprocess
import sys

import numpy as np

LIMIT = 288 << 20
"""Bytes of memory of the fit; Python with NumPy, SciPy and Numba takes 190 MiB of it."""

N, D, FULL = 300_000, 1024, 10_000

CHILD = """
import json, re, resource, sys
# Memory that the process may write to, of its data, its heap and its threads: beyond the limit an allocation fails.
resource.setrlimit(resource.RLIMIT_DATA, (int(sys.argv[2]), int(sys.argv[2])))
import dualnewton as dn

data = dn.data.open(sys.argv[1], memory=int(sys.argv[2]))
problem = dn.Problem(data.X, data.y, dn.losses.Logistic(), lam=1e-3, fit_intercept=True)
result = dn.solve(problem, method="ihs", tol=3e-2, n_threads=2)
# Of this program alone: the maximum that getrusage reports includes that of the process which started it.
peak = 1024 * int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read()).group(1))
print(json.dumps({"gap": result.certificate.relative_gap, "peak": peak, "read": data.X.source.bytes_read}))
"""


def test_a_fit_ends_under_a_hard_limit_of_memory(tmp_path):
    path, rng = tmp_path / "X.npy", np.random.default_rng(0)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (N, D))  # most of the file is a hole, which is read as zeros
    X[:FULL] = rng.standard_normal((FULL, D))
    y = np.where(rng.random(N) < 0.5, -1.0, 1.0)
    y[:FULL] = np.where(X[:FULL, 0] > 0.0, 1.0, -1.0)
    X.flush()
    assert X.nbytes > 4 * LIMIT
    del X
    np.save(tmp_path / "X.y.npy", y)
    words = [sys.executable, "-c", CHILD, str(path), str(LIMIT)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["gap"] <= 3e-2
    assert found["read"] >= 2 * 4 * N * D
    assert found["peak"] <= LIMIT
