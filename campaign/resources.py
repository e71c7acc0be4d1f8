"""Shortages of disk, memory, descriptors and time, many fits at once, interrupts, and a damaged compilation cache."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import joblib
import numpy as np

import dualnewton as dn
from campaign.parts import Defect
from dualnewton import losses

Rng = np.random.Generator
FITS, MANY, GROWTH = 140, 10_000, 8 << 20
"""Fits in one process, in one case of ten so many, and the bytes by which memory may grow in the second half of them."""

INTERRUPTS = 25
"""Interrupts of each case."""


def _rows(n: int = 60, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, d))
    return X, np.where(X[:, 0] + rng.standard_normal(n) > 0.0, 1.0, -1.0)


METHODS = ("auto", "newton", "ihs", "sdna", "sdca")


def fit(number: int = 0) -> bytes:
    """Fit a small model by one of the methods; return its bits."""
    X, y = _rows()
    loss = losses.Hinge() if number % 7 == 6 else losses.Logistic()
    problem = dn.Problem(X, y, loss, lam=1e-3, fit_intercept=True)
    method = METHODS[number % len(METHODS)] if number % 7 != 6 else "auto"
    result = dn.solve(problem, method=method, tol=1e-6, max_epochs=10, random_state=0)
    return np.asarray(result.w).tobytes() + np.float64(result.intercept).tobytes()


def require(condition: bool, what: str) -> None:
    """Raise a defect if a condition does not hold."""
    if not condition:
        raise Defect(what)


def in_fork(task: Callable[[], str]) -> str:
    """Do a task in a forked process, whose limits may be changed; return its answer."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = "the process failed"
        try:
            answer = task()
        except BaseException as error:
            answer = f"defect: {type(error).__name__}: {error}"
        finally:
            os.write(writer, answer.encode()[:4000])
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    require(code == 0 and bool(answer), f"the process ended with {code}")
    if answer.startswith("defect"):
        raise Defect(answer)
    return answer


# Disks ---------------------------------------------------------------------------------------------------------------------


def disk_full(rng: Rng, folder: Path) -> str:
    """Let files grow to a random size only while a model, a checkpoint and a data set are written over older ones."""
    X, y = _rows()
    model, path = dn.LogisticRegression().fit(X, y), folder / "old.model"
    dn.save(model, path)
    before = path.read_bytes()
    room = int(rng.integers(0, len(before)))

    def task() -> str:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
        for write in (
            lambda: dn.save(model, path),
            lambda: dn.solve(dn.Problem(X, y, losses.Logistic()), checkpoint=folder / "new.checkpoint"),
        ):
            try:
                write()
            except OSError:
                continue
        return "refused"

    answer = in_fork(task)
    require(path.read_bytes() == before, "a full disk has changed the old file")
    left = [each.name for each in folder.iterdir() if each.name.endswith(".part")]
    require(not left, f"a full disk left {left}")
    return f"full disk: {answer}"


def folder_not_writable(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Save where nobody may: in /proc, and below a file."""
    X, y = _rows()
    model = dn.Ridge().fit(X, y)
    (folder / "file").write_text("")
    for path in (Path("/proc/x.model"), folder / "file" / "x.model", folder / "absent" / "x.model"):
        for write in (
            lambda path=path: dn.save(model, path),
            lambda path=path: dn.solve(dn.Problem(X, y, losses.Squared()), checkpoint=path),
        ):
            try:
                write()
            except (OSError, dn.DualnewtonError) as error:
                require(
                    path.name in str(error) or path.parent.name in str(error), f"the error names no file: {error!r}"
                )
            else:
                raise Defect(f"{path} was written")
    return "folder not writable: refused"


def no_temporary_folder(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit text on disk without a folder for temporary files."""
    X, y = _rows(50)
    table = folder / "rows.csv"
    np.savetxt(table, np.column_stack([X, y]), delimiter=",")
    with (
        mock.patch.dict(os.environ, {"TMPDIR": "/nowhere", "TEMP": "/nowhere", "TMP": "/nowhere"}),
        mock.patch("tempfile.tempdir", "/nowhere"),
    ):
        data = dn.data.open(table)
        require(dn.solve(dn.Problem(data.X, data.y, losses.Squared())).converged, "no fit")
    return "no temporary folder: fitted"


def no_descriptors(rng: Rng, folder: Path) -> str:
    """Read, fit and save with a few descriptors left."""
    X, y = _rows(50)
    np.savez(folder / "rows.npz", X=X, y=y)
    room = int(rng.integers(0, 6))

    def task() -> str:
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + room, used + room))
        try:
            data = dn.data.read(folder / "rows.npz")
            dn.save(dn.Ridge().fit(data.X, data.y), folder / "m.model")
        except OSError:
            return "refused"
        except dn.DualnewtonError as error:
            return "refused" if "rows.npz" in str(error) else f"defect: {error}"
        return "fitted"

    return f"{room} descriptors: {in_fork(task)}"


def no_memory(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit with little memory left."""
    room = int(rng.integers(1, 60)) << 20
    X, y = _rows(40_000, 60)

    def large() -> None:
        dn.solve(dn.Problem(X, y, losses.Logistic(), lam=1e-3), method="newton", random_state=0)

    large()  # loads what it needs

    def task() -> str:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            large()
        except MemoryError:
            return "MemoryError"
        return "fitted"

    return f"little memory: {in_fork(task)}"


# Many fits -----------------------------------------------------------------------------------------------------------------


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def many_fits(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit many models in one process: memory, threads and descriptors stay as they are."""
    fits = FITS if rng.random() < 0.9 else MANY
    for number in range(fits // 2):
        fit(number)
    gc.collect()
    before = _resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))
    for number in range(fits // 2):
        fit(number)
    gc.collect()
    after = _resident(), threading.active_count(), len(os.listdir("/proc/self/fd"))
    require(after[0] - before[0] <= GROWTH, f"memory grew by {(after[0] - before[0]) >> 10} KiB in {fits // 2} fits")
    require(after[1:] == before[1:], f"threads and descriptors went from {before[1:]} to {after[1:]}")
    return f"{fits} fits: nothing grew"


def threads_at_once(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit in 16 threads at a time."""
    wanted = [fit(number) for number in range(7)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(fit, range(64)))
    require(
        all(found[k] == wanted[k % 35 % 7] or found[k] == fit(k) for k in range(64)), "a fit in a thread has other bits"
    )
    return "16 threads: same bits"


def processes_at_once(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit in forked and spawned processes, by joblib and by asyncio."""
    wanted = [fit(number) for number in range(6)]
    kind = ("fork", "spawn", "joblib", "asyncio")[int(rng.integers(4))]
    if kind == "joblib":
        found = joblib.Parallel(2)(joblib.delayed(fit)(number) for number in range(6))
        joblib.externals.loky.get_reusable_executor().shutdown(wait=True)
    elif kind == "asyncio":

        async def together() -> list[bytes]:
            return await asyncio.gather(*(asyncio.to_thread(fit, number) for number in range(6)))

        found = asyncio.run(together())
    else:
        with multiprocessing.get_context(kind).Pool(2) as pool:
            found = pool.map(fit, range(6))
    require(found == wanted, f"a fit by {kind} has other bits")
    return f"{kind}: same bits"


# Time ----------------------------------------------------------------------------------------------------------------------


def jumping_clock(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Fit while the clocks jump, forwards and back: the bits of a fit without a limit do not depend on them."""
    wanted = [fit(number) for number in range(7)]

    def clock() -> float:
        return float(rng.uniform(-1e9, 1e9))

    with mock.patch("time.perf_counter", clock), mock.patch("time.monotonic", clock), mock.patch("time.time", clock):
        found = [fit(number) for number in range(7)]
    require(found == wanted, "the clock has changed the bits")
    return "jumping clock: same bits"


def interrupts(rng: Rng, folder: Path) -> str:  # noqa: ARG001
    """Send SIGINT at random moments of a fit: the result says so, or KeyboardInterrupt is raised; the next fit is as always."""
    number = int(rng.integers(7))
    wanted = fit(number)
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    seen = Counter[str]()
    try:
        for _ in range(INTERRUPTS):
            began = time.perf_counter()
            timer = threading.Timer(float(rng.uniform(0.0, 0.05)), os.kill, (os.getpid(), signal.SIGINT))
            try:
                timer.start()
                while time.perf_counter() - began < 5.0 and timer.is_alive():
                    fit(number)
                timer.join()
                seen["result"] += 1
            except KeyboardInterrupt:
                seen["KeyboardInterrupt"] += 1
            with contextlib.suppress(KeyboardInterrupt):
                timer.join()
    finally:
        signal.signal(signal.SIGINT, old)
    require(fit(number) == wanted, "a fit after an interrupt has other bits")
    return f"Ctrl-C {INTERRUPTS} times: same bits afterwards"


# The compilation cache -----------------------------------------------------------------------------------------------------

COMPILED = """
import numpy as np, dualnewton as dn
rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 5)); y = np.where(X[:, 0] > 0, 1.0, -1.0)
p = dn.Problem(X, y, dn.losses.Logistic(), lam=1e-3)
r = dn.solve(p, method="sdca", tau=1, max_epochs=200, tol=1e-9, random_state=0)
print(r.w.tobytes().hex(), r.status.name)
"""


def _compiling(cache: Path | str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-W", "error", "-c", COMPILED]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _answers(*processes: subprocess.Popen[bytes]) -> list[bytes]:
    found = [process.communicate() for process in processes]
    for process, (_, errors) in zip(processes, found, strict=True):
        require(process.returncode == 0, f"exit code {process.returncode}: {errors[-1500:].decode()}")
    return [out for out, _ in found]


def compilation_cache(rng: Rng, folder: Path) -> str:
    """Fill the cache by two processes at once, damage its files, and use a folder that cannot be written."""
    first, second = _answers(_compiling(folder / "cache"), _compiling(folder / "cache"))
    require(first == second, "two processes that fill the cache differ")
    files = [path for path in (folder / "cache").rglob("*") if path.is_file()]
    require(bool(files), "nothing was compiled")
    for path in files:
        raw = bytearray(path.read_bytes())
        if rng.random() < 0.5:
            del raw[int(rng.integers(len(raw))) :]
            path.write_bytes(raw)
    (third,) = _answers(_compiling(folder / "cache"))
    require(third == first, "a damaged cache changes the bits")
    (fourth,) = _answers(_compiling("/proc/nowhere"))
    require(fourth == first, "a cache that cannot be written changes the bits")
    return "compilation cache: same bits"


CASES = [
    disk_full,
    folder_not_writable,
    no_temporary_folder,
    no_descriptors,
    no_memory,
    many_fits,
    threads_at_once,
    processes_at_once,
    jumping_clock,
    interrupts,
    compilation_cache,
]


def case(seed: int, folder: Path) -> Counter[str]:
    """Try one shortage."""
    rng = np.random.default_rng([seed, 80])
    return Counter([CASES[seed % len(CASES)](rng, folder)])
