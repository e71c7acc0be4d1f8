"""A process that starts runs as processes of their own and kills them: ``python checkpoint_killer.py FOLDER SEED KILLS``.

It imports and compiles once and forks each run from there, so that a run starts at once and can be killed often. What has been
killed leaves its checkpoint in the folder, for whoever goes on with it, and a line of JSON says how it went.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import dualnewton as dn
from checkpoint_cases import COMPILED, SEED, Case, direction, one, several
from dualnewton import losses
from dualnewton.files import archive as _archive
from dualnewton.files.replacing import unfinished
from dualnewton.run import checkpoint

MOST = 20.0
"""Seconds that a run may take; it is killed then, and the test fails."""

logistic = losses.Logistic()
RUNS = [
    Case("sdna", lambda: one(logistic, fit_intercept=True), {"method": "sdna", "tau": 5, "max_epochs": 60, "tol": 0.0}),
    Case("sdca", lambda: one(logistic, n=400, sparse=0.5), {"method": "sdca", "tau": 4, "max_epochs": 60}, COMPILED),
    Case("newton", lambda: several(logistic, (1e-3, 1e-5, 1e-7), n=3000, d=60), {"method": "newton", "tol": 1e-13}),
    Case("ihs", lambda: one(logistic, n=5000, d=50, lam=1e-7), {"method": "ihs", "tau": 30, "tol": 1e-13}),
    Case("auto", lambda: several(logistic, (1e-2, 1e-6), n=5000, d=50), {"tol": 1e-12}),
    # Its gradient is compiled, and has another address in every process.
    Case(
        "own penalty",
        lambda: one(logistic, regularizer=direction()),
        {"tau": 3, "max_epochs": 150, "tol": 0.0},
        COMPILED,
    ),
    Case("hinge", lambda: one(losses.Hinge(), n=40, d=4, fit_intercept=True), {"tol": 1e-6}),
    Case(
        "large state", lambda: one(logistic, n=100_000, d=2), {"method": "sdna", "tau": 1, "max_epochs": 20, "tol": 0.0}
    ),
]


def often(path):
    return dn.Checkpoint(path, seconds=0.0, spacing=0.0)


def start(case, problems, path):
    """Fork a run; return its number."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            case.solve(problems, checkpoint=often(path))
            code = 0
        finally:
            os._exit(code)
    return pid


def end(pid, moment, written):
    """Kill a run at a moment, or when it is seen to write a file after it; return its exit status, None if it was killed."""
    latest = time.perf_counter() + MOST
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        now = time.perf_counter()
        if now >= latest or (now >= moment and (written is None or unfinished(written))):
            os.kill(pid, signal.SIGKILL)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            return None if code == -signal.SIGKILL else code
        time.sleep(1e-3 if written is None else 0.0)


def can_be_read(path):
    """Whether the file that a kill has left is whole; there may be none yet."""
    if path.exists():
        identity = _archive.read(path, "checkpoint", checkpoint.VERSION)[0]["run"]
        checkpoint.keeper_of(path, lambda: identity, np.random.default_rng(SEED))
    return True


def torment(case, folder, rng, wanted):
    """Kill a run so many times, every other time while it writes, and begin anew when it has ended."""
    path = folder / f"{case.name}.checkpoint"
    problems = case.make()
    case.solve(problems)  # compiles
    began = time.perf_counter()
    case.solve(problems, checkpoint=often(path))
    whole = time.perf_counter() - began
    path.unlink()
    told = {"kills": 0, "while writing": 0, "resumed": 0, "ended": 0, "failed": 0}
    while told["kills"] < wanted or not path.exists():
        told["resumed"] += path.exists()
        for left in unfinished(path):
            left.unlink()
        pid = start(case, problems, path)
        moment = time.perf_counter() + rng.uniform(0.0, 0.6 * whole)
        code = end(pid, moment, path if told["kills"] % 2 else None)
        if code is None:
            told["kills"] += 1
            told["while writing"] += bool(unfinished(path))
            assert can_be_read(path)
        else:
            told["ended" if code == 0 else "failed"] += 1
            if code:
                break
            path.unlink()
    return told


if __name__ == "__main__":
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number, case in enumerate(RUNS):
        told = torment(case, folder, np.random.default_rng([seed, number]), kills)
        print(json.dumps({"run": case.name, **told}), flush=True)
