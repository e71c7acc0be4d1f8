"""Kill workers of a Dask cluster at random moments of a fit, in each of its phases; the fit must end with the same bits.

Run it alone for many kills: ``python tests/dask_killer.py --kills 50 --seed 1`` prints a line for each fit and the seed.
"""

import argparse
import os
import signal
import threading
import time

import numpy as np

import dualnewton as dn
from dualnewton import losses

N, D, BLOCKS = 6000, 8, 12
PHASES = (
    "dualnewton-share",
    "dualnewton-gradients",
    "dualnewton-weighted-gram",
    "dualnewton-row-sums",
    "dualnewton-sketch-rows",
)
"""Prefixes of the tasks in whose time a worker is killed: loading, passes, curvature, reductions, drawing of rows."""


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
    """Fit once, and return the result."""
    X, y = collections()
    problem = dn.Problem(X, y, losses.Logistic(), lam=1e-3, fit_intercept=True)
    return dn.solve(problem, method="ihs", tau=500, tol=1e-9, random_state=0, **more)


def bits(result):
    """Return what must not depend on lost workers."""
    return result.w.tobytes(), result.intercept, result.certificate, result.n_epochs


class Killer(threading.Thread):
    """Waits until a task with a prefix is computed, then a random while, and kills a random worker process."""

    def __init__(self, client, rng, prefix, delay):
        super().__init__(daemon=True)
        self.client, self.rng, self.prefix, self.delay = client, rng, prefix, delay
        self.ended, self.killed = threading.Event(), None

    def run(self):
        """Kill one worker."""
        known = self.client.cluster.scheduler.tasks
        while not self.ended.is_set():
            if any(str(key[0]).startswith(self.prefix) for key in known.copy() if isinstance(key, tuple)):
                time.sleep(self.delay * self.rng.random())
                workers = list(self.client.cluster.workers.values())
                chosen = workers[int(self.rng.integers(len(workers)))]
                self.killed = chosen.process.pid
                if self.killed is not None:
                    os.kill(self.killed, signal.SIGKILL)
                return
            time.sleep(0.005)


def fit_with_a_kill(client, rng, prefix, delay=1.0):
    """Fit while a worker is killed; return the result, and the process that was killed, None if the fit was faster."""
    client.wait_for_workers(2)
    killer = Killer(client, rng, prefix, delay)
    killer.start()
    try:
        return fit(), killer
    finally:
        killer.ended.set()
        killer.join()


def main():
    """Kill many workers."""
    from distributed import Client, LocalCluster

    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    print(f"seed {asked.seed}")
    rng, kills, fits = np.random.default_rng(asked.seed), 0, 0
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        expected = bits(fit())
        while kills < asked.kills:
            prefix = PHASES[fits % len(PHASES)]
            result, killer = fit_with_a_kill(client, rng, prefix)
            fits, kills = fits + 1, kills + (killer.killed is not None)
            same = bits(result) == expected
            phase, ended = prefix.removeprefix("dualnewton-"), "equal" if same else "DIFFER"
            print(f"fit {fits}: killed {killer.killed} in {phase}, bits {ended}", flush=True)
            assert same
    print(f"{kills} kills in {fits} fits: all with the same bits")


if __name__ == "__main__":
    main()
