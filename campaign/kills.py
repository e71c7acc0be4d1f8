"""Runs with a checkpoint are killed at random moments: they continue to the same bits, and leave no damaged or temporary file."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import dualnewton as dn
from campaign.parts import Defect, skipped
from dualnewton import losses, regularizers
from dualnewton.files import archive
from dualnewton.matrix import ChunkedData
from dualnewton.row_arrays import on_host
from dualnewton.run.checkpoint import KIND, VERSION

KILLS = 8
"""Kills of each seed."""

SPREAD, REST = 0.9, 0.2
"""A kill comes within this fraction of the time that a run has left; with less than the second fraction left, it begins anew."""

MOST = 30.0
"""Seconds that a process may take after its kill was sent, or without one."""

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True)
class Run:
    """A fit that lasts some 0.1 s.

    Attributes
    ----------
    name : str
        What the messages call it.
    fit : callable
        A function of the folder with data and checkpoint, which returns the bits of its result.
    needs : tuple of str
        The packages without which it is skipped.
    apart : bool
        Whether it starts threads, which a process forked later would lack: it never runs in the process of the campaign.
    """

    name: str
    fit: Callable[[Path], bytes]
    needs: tuple[str, ...] = ()
    apart: bool = False


def _rows(n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    X = rng.standard_normal((n, d)) * np.geomspace(0.05, 3.0, d)
    return X, np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0.0, 1.0, -1.0)


def _solved(problem: dn.Problem, folder: Path, **options: Any) -> bytes:
    often = dn.Checkpoint(folder / "run.checkpoint", seconds=0.0, spacing=0.0)
    result = dn.solve(problem, random_state=3, checkpoint=often, **options)
    if result.status is dn.Status.INTERRUPTED:
        return b""
    return b"".join(np.asarray(on_host(part)).tobytes() for part in (result.w, result.intercept, result.alpha))


def _solve(name: str, loss: Any, n: int, d: int, *, pieces: bool = False, penalty: Any = None, **options: Any) -> Run:
    def fit(folder: Path) -> bytes:
        X, y = _rows(n, d)
        data = ChunkedData(np.array_split(X, 4)) if pieces else X
        g = regularizers.L2() if penalty is None else penalty
        problem = dn.Problem(data, y, loss, regularizer=g, lam=1e-5, fit_intercept=True)
        return _solved(problem, folder, **options)

    return Run(name, fit)


def _on_dask(name: str, **options: Any) -> Run:
    def fit(folder: Path) -> bytes:
        from campaign.dask import STORAGES, cluster

        cluster()
        X, y = _rows(300, 10)
        problem = dn.Problem(STORAGES["Dask"](X), y, losses.Logistic(), lam=1e-5, fit_intercept=True)
        return _solved(problem, folder, **options)

    return Run(name, fit, needs=("dask", "distributed"), apart=True)


def _command(name: str, *words: str) -> Run:
    def fit(folder: Path) -> bytes:
        from dualnewton.cli import main

        path = folder / "rows.npz"
        if not path.exists():
            X, y = _rows(3000, 20)
            np.savez(folder / "unfinished.npz", X=X, y=y)  # a signal may come in between
            (folder / "unfinished.npz").replace(path)
        model, state = folder / "out.model", folder / "run.checkpoint"
        sys.argv = [*f"dualnewton fit {path} --out {model} --checkpoint {state} --seed 3".split(), *words]
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

    return Run(name, fit, needs=("typer", "rich"))


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
    _on_dask("Dask, newton", method="newton", tol=1e-13),
    _on_dask("Dask, ihs", method="ihs", tau=60, tol=1e-12),
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
        except BaseException:
            (folder / "error").write_text(traceback.format_exc())
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


@cache
def reference(run: Run) -> tuple[bytes, float]:
    """Return the bits of a run that is never killed, and the seconds that it takes once its kernels are compiled."""
    for _ in range(2):
        with tempfile.TemporaryDirectory(prefix="campaign-reference-") as name:
            folder = Path(name)
            began = time.monotonic()
            bits = finished(run, folder) if run.apart else run.fit(folder)
            seconds = time.monotonic() - began
    if not bits:
        raise Defect(f"{run.name}: the fit does not end by itself")
    return bits, seconds


def finished(run: Run, folder: Path) -> bytes:
    """Let a run end in a process of its own, and return its bits."""
    (folder / "bits").unlink(missing_ok=True)
    if (code := ended(started(run, folder))) != 0 or not (folder / "bits").exists():
        raise Defect(f"{run.name}: a run that is not killed ended with {code}")
    return (folder / "bits").read_bytes()


def require_same(run: Run, folder: Path, wanted: bytes) -> None:
    """Let a run end that was killed before; it has the bits of one that was not, and leaves no other file."""
    if finished(run, folder) != wanted:
        raise Defect(f"{run.name}: the run that was continued has other bits")
    left = {path.name for path in folder.iterdir()} - {
        "bits",
        "run.checkpoint",
        "rows.npz",
        "unfinished.npz",
        "out.model",
    }
    if left:
        raise Defect(f"{run.name}: left {sorted(left)}")


def killed(run: Run, folder: Path, sent: signal.Signals, moment: float) -> bool:
    """Start a run, send a signal after some seconds, and check what is left; return whether the signal came in time."""
    pid = started(run, folder)
    time.sleep(moment)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, sent)
    code = ended(pid)
    if code not in (0, -sent, 130, 143):
        error = folder / "error"
        why = error.read_text() if error.exists() else "no exception"
        raise Defect(f"{run.name}: exit code {code} after {sent.name}: {why}")
    require_whole(folder)
    return not (folder / "bits").exists()


def case(seed: int, folder: Path) -> Counter[str]:
    """Kill one run some times, each time nearer to its end; let it end, compare, and begin again."""
    rng = np.random.default_rng([seed, 60])
    run = RUNS[seed % len(RUNS)]
    if (without := skipped(run.name, run.needs)) is not None:
        return without
    wanted, seconds = reference(run)
    counts: Counter[str] = Counter()
    left, place = 0.0, None
    for k in range(KILLS):
        if place is None:
            left, place = seconds, folder / str(k)
            place.mkdir()
        sent, moment = SIGNALS[int(rng.integers(len(SIGNALS)))], float(rng.uniform(0.0, SPREAD * left))
        in_time = killed(run, place, sent, moment)
        counts[sent.name if in_time else f"{sent.name} too late"] += 1
        left -= moment
        if not in_time or left < REST * seconds or k == KILLS - 1:
            require_same(run, place, wanted)
            place = None
    return counts
