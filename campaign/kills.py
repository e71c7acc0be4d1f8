"""Runs with a checkpoint are killed at random moments: they continue to the same bits, and leave no damaged or temporary file."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dualnewton as dn
from campaign.parts import Defect
from dualnewton import losses, regularizers
from dualnewton.files import archive
from dualnewton.matrix import ChunkedData
from dualnewton.run.checkpoint import KIND, VERSION

KILLS = 4
"""Kills of each seed."""

MOST = 30.0
"""Seconds that a process may take after its kill was sent, or without one."""

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Run:
    """A fit that lasts some 0.1 s: a function of the folder with data and checkpoint, which returns the bits of its result."""

    name: str
    fit: Callable[[Path], bytes]
    command_line: bool = False


def _rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((n, d)) * np.geomspace(0.05, 3.0, d)
    return X, np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0.0, 1.0, -1.0)


def _solve(name: str, loss: Any, n: int, d: int, *, pieces: bool = False, penalty: Any = None, **options: Any) -> Run:
    def fit(folder: Path) -> bytes:
        X, y = _rows(n, d)
        data = ChunkedData(np.array_split(X, 4)) if pieces else X
        g = regularizers.L2() if penalty is None else penalty
        problem = dn.Problem(data, y, loss, regularizer=g, lam=1e-5, fit_intercept=True)
        often = dn.Checkpoint(folder / "run.checkpoint", seconds=0.0, spacing=0.0)
        result = dn.solve(problem, random_state=3, checkpoint=often, **options)
        if result.status is dn.Status.INTERRUPTED:
            return b""
        return b"".join(np.asarray(part).tobytes() for part in (result.w, result.intercept, result.alpha))

    return Run(name, fit)


def _command(name: str, *words: str) -> Run:
    def fit(folder: Path) -> bytes:
        from dualnewton.cli import main

        path = folder / "rows.npz"
        if not path.exists():
            X, y = _rows(3000, 20)
            np.savez(path, X=X, y=y)
        model, state = folder / "out.model", folder / "run.checkpoint"
        sys.argv = [
            "dualnewton",
            "fit",
            str(path),
            "--out",
            str(model),
            "--checkpoint",
            str(state),
            "--seed",
            "3",
            *words,
        ]
        code = 0
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            try:
                main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if code or state.exists():
            return b""
        saved = dn.load(model)
        return saved.coef.tobytes() + saved.intercept.tobytes()

    return Run(name, fit, command_line=True)


RUNS = [
    _solve("sdna", losses.Logistic(), 400, 10, method="sdna", tau=5, max_epochs=20, tol=0.0),
    _solve("sdca", losses.Squared(), 400, 10, method="sdca", tau=4, max_epochs=20, tol=0.0),
    _solve("newton", losses.Logistic(), 4000, 40, method="newton", tol=1e-13),
    _solve("ihs", losses.Logistic(), 4000, 40, method="ihs", tau=60, tol=1e-12),
    _solve("auto", losses.SquaredHinge(), 4000, 40, tol=1e-12),
    _solve("interior", losses.Hinge(), 1500, 20, method="interior", tol=1e-10),
    _solve("hinge", losses.Hinge(), 200, 8, method="sdna", tau=1, max_epochs=60, tol=1e-9),
    _solve("lasso", losses.Logistic(), 1000, 60, penalty=regularizers.L1(), method="newton", tol=1e-10),
    _solve("pieces", losses.Logistic(), 4000, 30, pieces=True, method="newton", tol=1e-13),
    _solve("pieces, ihs", losses.Logistic(), 4000, 30, pieces=True, method="ihs", tau=60, tol=1e-12),
    _command("command line", "--tol", "1e-12", "--method", "ihs"),
    _command("command line, hinge", "--tol", "1e-8", "--loss", "hinge", "--method", "interior"),
]


def started(run: Run, folder: Path) -> int:
    """Fork a process that fits, and writes the bits of what it found beside the data if it has ended by itself."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            # As in a process of its own; the campaign's own process may ignore them.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            bits = run.fit(folder)
            if bits:
                (folder / "bits").write_bytes(bits)
            code = 0
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    return pid


def ended(pid: int) -> int:
    """Wait for a process; return its exit code, negative for a signal."""
    latest = time.monotonic() + MOST
    while time.monotonic() < latest:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise Defect(f"no end {MOST:g} s after the signal")


def require_whole(folder: Path) -> None:
    """Read what a killed process has left."""
    for path in folder.glob("run.checkpoint"):
        archive.read(path, KIND, VERSION)
    for path in folder.glob("out.model"):
        dn.load(path)


def case(seed: int, folder: Path) -> Counter[str]:
    """Kill one run some times, let it end, and compare."""
    rng = np.random.default_rng([seed, 60])
    run = RUNS[seed % len(RUNS)]
    reference, place = folder / "reference", folder / "killed"
    reference.mkdir()
    place.mkdir()
    began = time.monotonic()
    wanted = run.fit(reference)
    seconds = time.monotonic() - began
    if not wanted:
        raise Defect(f"{run.name}: the fit does not end by itself")
    counts: Counter[str] = Counter()
    for _ in range(KILLS):
        sent = SIGNALS[int(rng.integers(len(SIGNALS)))]
        pid = started(run, place)
        time.sleep(float(rng.uniform(0.0, seconds)))
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sent)
        code = ended(pid)
        if code not in (0, -sent, 130, 143):
            raise Defect(f"{run.name}: exit code {code} after {sent.name}")
        require_whole(place)
        counts[f"{sent.name} too late" if (place / "bits").exists() else sent.name] += 1
        (place / "bits").unlink(missing_ok=True)
    if (code := ended(started(run, place))) != 0:
        raise Defect(f"{run.name}: the run that continues ended with {code}")
    if not (place / "bits").exists() or (place / "bits").read_bytes() != wanted:
        raise Defect(f"{run.name}: the run that was continued has other bits")
    left = {path.name for path in place.iterdir()} - {"bits", "run.checkpoint", "rows.npz", "out.model"}
    if left:
        raise Defect(f"{run.name}: left {sorted(left)}")
    return counts
