"""Kill workers of a Dask cluster at random moments of a fit, in each of its phases; the fit must end with the same bits.

Run it alone for many kills: ``python tests/dask_killer.py --kills 50 --seed 1`` prints the seed and a line for each fit.
"""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import numpy as np

import dualnewton as dn
from dualnewton import losses
from dualnewton.errors import DualnewtonError
from dualnewton.matrix.dask import local

N, D, BLOCKS = 6000, 8, 12
PHASES = (
    "dualnewton-share",
    "dualnewton-y-of-blocks",
    "dualnewton-row-sums",
    "dualnewton-sketch-rows",
    "dualnewton-weighted-gram",
    "dualnewton-gradients",
)
"""Prefixes of the tasks in whose time a worker is killed, in their order in a fit: rows of X, labels, reductions, drawing of
rows, curvature, passes."""


def block_of(number):
    """Make a block of rows; it is made again, with the same bits, when its worker is lost."""
    rng = np.random.default_rng(number)
    X = rng.standard_normal((N // BLOCKS, D))
    return np.column_stack([X, np.where(X.sum(axis=1) + rng.standard_normal(len(X)) > 0.0, 1.0, -1.0)])


def collections():
    """Return X and y as dask arrays of blocks."""
    import dask
    import dask.array as da

    size = N // BLOCKS
    made = [da.from_delayed(dask.delayed(block_of)(k), (size, D + 1), float) for k in range(BLOCKS)]
    table = da.concatenate(made)
    return table[:, :D], table[:, D]


def fit(**more):
    """Fit once, and return the result; the client does not gather row arrays, as it would for so few rows."""
    with mock.patch.object(local, "FEW_ROWS", 0):
        problem = dn.Problem(*collections(), losses.Logistic(), lam=1e-3, fit_intercept=True)
    return dn.solve(problem, method="ihs", tau=500, tol=1e-8, random_state=0, **more)


def bits(result):
    """Return what must not depend on lost workers."""
    return result.w.tobytes(), result.intercept, result.certificate, result.n_epochs


class Killer(threading.Thread):
    """Kills a worker process in each of some phases: when it computes a task with that prefix, after a random while."""

    def __init__(self, client, rng, prefixes, delay):
        super().__init__(daemon=True)
        self.client, self.rng, self.prefixes, self.delay = client, rng, prefixes, delay
        self.ended, self.killed = threading.Event(), []

    def run(self):
        """Kill workers, one after the other; the next when the last has been replaced."""
        left = list(self.prefixes)
        while left and not self.ended.is_set():
            for prefix in left:
                if (address := self.working_on(prefix)) is not None:
                    time.sleep(self.delay * self.rng.random())
                    self.kill(address, prefix)
                    left.remove(prefix)
                    break
            time.sleep(0.0005)

    def working_on(self, prefix):
        """Return the address of a worker that has a task of a phase to compute, if all workers are there."""
        workers = list(self.client.cluster.scheduler.workers.values())
        busy = [
            each.address for each in workers if any(str(task.key[0]).startswith(prefix) for task in [*each.processing])
        ]
        return busy[int(self.rng.integers(len(busy)))] if busy and len(workers) > 1 else None

    def kill(self, address, prefix):
        """Kill the process of a worker, and wait until the scheduler knows."""
        for nanny in list(self.client.cluster.workers.values()):
            if nanny.worker_address == address and nanny.pid is not None:
                os.kill(nanny.pid, signal.SIGKILL)
                self.killed.append(prefix)
        while address in self.client.cluster.scheduler.workers and not self.ended.is_set():
            time.sleep(0.005)


def fit_with_kills(client, rng, prefixes, delay=0.05, **more):
    """Fit while workers are killed; return the result, and the phases in which one was, fewer if the fit was faster."""
    client.wait_for_workers(2, timeout=60)
    killer = Killer(client, rng, prefixes, delay)
    killer.start()
    try:
        return fit(**more), killer.killed
    finally:
        killer.ended.set()
        killer.join()


@contextlib.contextmanager
def scheduler():
    """Start a cluster of one process, which can be killed as a whole, with its scheduler; yield the process and the address."""
    made = (
        "import time; from distributed import LocalCluster\n"
        "cluster = LocalCluster(n_workers=1, threads_per_worker=2, processes=False, protocol='tcp', dashboard_address=None)\n"
        "print(cluster.scheduler_address, flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", made],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=Path(__file__).parent,
    )
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def workers():
    """Start a cluster of two worker processes, and yield its client."""
    from distributed import Client, LocalCluster

    made = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0")
    try:
        with Client(made) as client:
            yield client
    finally:
        with contextlib.suppress(KeyError):  # of Dask, for a worker that was killed before it was known
            made.close()


def has_workers(client):
    """Whether both workers are there; Dask does not replace one that was killed while it started, then a new cluster is made."""
    try:
        client.wait_for_workers(2, timeout=20)
    except TimeoutError:
        return False
    return True


def main():
    """Kill many workers."""
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"  # workers report each lost connection
    import dask

    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    print(f"seed {asked.seed}", flush=True)
    rng, fits, lost, kills = np.random.default_rng(asked.seed), 0, 0, Counter()
    # Dask gives up a task whose worker has died four times, which so many kills may cause.
    dask.config.set({"distributed.scheduler.allowed-failures": asked.kills})
    expected = None
    while kills.total() < asked.kills:
        with workers() as client:
            expected = expected or bits(fit())
            while kills.total() < asked.kills and has_workers(client):
                try:
                    result, killed = fit_with_kills(client, rng, rng.permutation(PHASES).tolist())
                except (DualnewtonError, TimeoutError) as error:  # Dask has not replaced the workers
                    lost += 1
                    print(f"a fit without workers ended with an error: {error}", flush=True)
                    break
                fits += 1
                kills.update(each.removeprefix("dualnewton-") for each in killed)
                same = bits(result) == expected
                found = "equal" if same else "DIFFER"
                print(f"fit {fits}: {len(killed)} kills, bits {found}; {dict(kills)}", flush=True)
                assert same
    print(f"{kills.total()} kills in {fits} fits, all with the same bits: {dict(kills)}; {lost} fits lost all workers")


if __name__ == "__main__":
    main()
