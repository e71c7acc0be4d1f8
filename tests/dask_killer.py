"""Kill workers of a Dask cluster at random moments of a fit, in each of its phases; the fit must end with the same bits.

Run it alone for many kills: ``python tests/dask_killer.py --kills 54 --seed 1`` prints the seed and a line for each fit. There a
task pauses before it computes, so that a random moment of a phase of a few milliseconds can be met, and each fit is disturbed in
the phases that have had the fewest kills so far.
"""

import argparse
import contextlib
import functools
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
    "dualnewton-sampled-rows",
    "dualnewton-column-norms",
    "dualnewton-chances",
    "dualnewton-sketch-rows",
    "dualnewton-weighted-gram",
    "dualnewton-gradients",
)
"""Prefixes of the tasks in whose time a worker is killed: rows of X, labels, reductions, rows that come to the client, norms of
the features, weights of the draws, drawing of rows, Gram matrices, passes."""

PAUSED = ("make_share", "beside", "picked", "over_blocks")
"""The functions of ``matrix/dask/tasks.py`` in which a task of each phase pauses."""

PAUSE = 0.03
"""Seconds of a pause."""

KILLS_OF_A_FIT = 3


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


def pause():
    """Let tasks on this worker pause before they compute; workers that replace killed ones call this, too."""
    from dualnewton.matrix.dask import tasks

    for name in PAUSED:
        setattr(tasks, name, _pausing(getattr(tasks, name)))


def _pausing(function):
    @functools.wraps(function)
    def paused(*given):
        time.sleep(PAUSE)
        return function(*given)

    return paused


class Killer(threading.Thread):
    """Kills a worker process in each of some phases: when it has a task with that prefix to compute, after a random while.

    A task that has ended meanwhile is not counted, and the killer waits for the next one. The first ones that it meets are left
    alone half of the time, since a phase has several tasks in a fit.
    """

    def __init__(self, client, rng, prefixes, delay):
        super().__init__(daemon=True)
        self.client, self.rng, self.prefixes, self.delay = client, rng, prefixes, delay
        self.ended, self.killed = threading.Event(), []

    def run(self):
        """Kill workers, one after the other; the next when the last has been replaced."""
        left, spared = list(self.prefixes), set()
        while left and not self.ended.is_set():
            for prefix in left:
                found = self.working_on(prefix)
                if found is None or found in spared:
                    continue
                if self.rng.random() < 0.5 and len(spared) < len(self.prefixes):
                    spared.add(found)
                    continue
                time.sleep(self.delay * self.rng.random())
                if self.kill(*found):
                    self.killed.append(prefix)
                    left.remove(prefix)
                break
            time.sleep(0.0005)

    def working_on(self, prefix):
        """Return the address of a worker that has a task of a phase to compute, and its key, if all workers are there."""
        workers = list(self.client.cluster.scheduler.workers.values())
        busy = [
            (each.address, task.key)
            for each in workers
            for task in [*each.processing]
            if str(task.key[0]).startswith(prefix)
        ]
        return busy[int(self.rng.integers(len(busy)))] if busy and len(workers) > 1 else None

    def kill(self, address, key):
        """Kill the process of a worker if it still has a task to compute, and wait until the scheduler knows; return whether."""
        worker = self.client.cluster.scheduler.workers.get(address)
        nannies = [each for each in list(self.client.cluster.workers.values()) if each.worker_address == address]
        if worker is None or all(task.key != key for task in [*worker.processing]) or not nannies or not nannies[0].pid:
            return False
        os.kill(nannies[0].pid, signal.SIGKILL)
        while address in self.client.cluster.scheduler.workers and not self.ended.is_set():
            time.sleep(0.005)
        return True


def fit_with_kills(client, rng, prefixes, delay=0.002, **more):
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


def by_phase(kills):
    """Return the kills of each phase in words."""
    return ", ".join(f"{phase.removeprefix('dualnewton-')} {kills[phase]}" for phase in PHASES)


def main():
    """Kill many workers."""
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "critical"  # workers report each lost connection
    import dask
    from distributed import WorkerPlugin

    class Setup(WorkerPlugin):
        def setup(self, worker):  # noqa: ARG002
            pause()

    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=54)
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
            client.register_plugin(Setup())
            while kills.total() < asked.kills and has_workers(client):
                try:
                    fewest = sorted(rng.permutation(PHASES).tolist(), key=kills.__getitem__)[:KILLS_OF_A_FIT]
                    result, killed = fit_with_kills(client, rng, fewest, PAUSE)
                except (DualnewtonError, TimeoutError) as error:  # Dask has not replaced the workers
                    lost += 1
                    print(f"a fit without workers ended with an error: {error}", flush=True)
                    break
                fits += 1
                kills.update(killed)
                same = bits(result) == expected
                found = "equal" if same else "DIFFER"
                print(f"fit {fits}: {len(killed)} kills, bits {found}; {by_phase(kills)}", flush=True)
                assert same
    print(
        f"{kills.total()} kills in {fits} fits, all with the same bits: {by_phase(kills)}; {lost} fits lost all workers"
    )


if __name__ == "__main__":
    main()
