"""The threads of BLAS stay asleep: once woken, they occupy the cores for tens of milliseconds, against the threads of the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TASKS = Path("/proc/self/task")

SCRIPT = """
import threading, time
from pathlib import Path

import numpy as np
import scipy.linalg  # loads its BLAS
import scipy.sparse as sp

import dualnewton as dn
from dualnewton.matrix.workers import threads

def ran():
    "Nanoseconds for which threads that Python does not know have run."
    known = {thread.native_id for thread in threading.enumerate()}
    tasks = [task for task in Path("/proc/self/task").iterdir() if int(task.name) not in known]
    return len(tasks), sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)

def work(n=4000, d=60_000):
    rng = np.random.default_rng(0)
    columns = np.sort(rng.integers(d, size=(n, 600)), axis=1)  # enough entries for compiled passes
    X = sp.csr_array((rng.random(n * 600), columns.ravel(), np.arange(0, 600 * n + 1, 600)), shape=(n, d))
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    def fit():
        with threads(2):
            problem = dn.Problem(X, y, dn.losses.Logistic(), lam=1.0 / n)
        return dn.solve(problem, method="ihs", tol=1e-3, n_threads=2, random_state=0)
    return fit

fit = work()
fit()  # compiles, and starts whatever starts once
time.sleep(0.3)
count, before = ran()
fit()
print(count, ran()[1] - before)
if count:
    WAKE
    print(ran()[1] > before)
"""


@pytest.mark.skipif(not (TASKS / str(os.getpid()) / "schedstat").exists(), reason="needs /proc/self/task/*/schedstat")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
def test_a_fit_does_not_wake_the_threads_of_blas():
    woken = "ones = np.ones(2_000_000); ones.dot(ones); time.sleep(0.1)"  # what the fit must not do shows in the same numbers
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.replace("WAKE", woken)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    count, nanoseconds = map(int, first.split())
    if not count:
        pytest.skip("this BLAS has no threads of its own")
    assert rest == ["True"], "the threads of BLAS are not seen, so that the test shows nothing"
    assert nanoseconds == 0
