"""Work in a process of its own, which can be ended: compiled code cannot be interrupted, and others' may crash."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any, Protocol

PREPARATION_SECONDS = 120.0
"""For imports, compilation and a warm-up, before the clock starts."""

_READY, _VALUE, _END = "ready", "value", "end"

DONE, CUT = "", "cut short by the time limit"
"""How the work ended: all is done, or the time was over. Otherwise it is an error in words."""


class Job(Protocol):
    """What a child does. It has to be picklable where processes cannot be forked."""

    def prepare(self) -> None:
        """Do what shall not count."""

    def work(self) -> Iterator[Any]:
        """Yield the values one by one."""


def values_of(job: Job, cap: float, threads: int, start: str | None = None) -> Iterator[Any]:
    """Yield what a job yields, and at last how it ended, as a string.

    Parameters
    ----------
    job : Job
        What to do.
    cap : float
        Seconds for the work, from the moment it is prepared.
    threads : int
        For the BLAS and OpenMP pools of the child.
    start : str, optional
        How the process starts: "fork" where there is one, so that the child has the data and the kernels at once, else "spawn".
    """
    if start is None:
        start = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(job, sender, threads), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a multi-threaded process": its threads are idle
        child.start()
    sender.close()
    deadline = time.perf_counter() + PREPARATION_SECONDS
    ending = CUT
    try:
        while receiver.poll(max(0.0, deadline - time.perf_counter())):
            kind, value = receiver.recv()
            if kind == _READY:
                deadline = time.perf_counter() + cap
            elif kind == _VALUE:
                yield value
            else:
                ending = value
                break
    except EOFError:
        ending = "its process died"
    finally:
        child.kill()
        child.join()
        receiver.close()
    yield ending


def _serve(job: Job, sender: Connection, threads: int) -> None:
    from threadpoolctl import threadpool_limits

    with contextlib.closing(sender), silence(), threadpool_limits(limits=threads):
        try:
            job.prepare()
            sender.send((_READY, None))
            for value in job.work():
                sender.send((_VALUE, value))
            sender.send((_END, DONE))
        except Exception as error:
            sender.send((_END, f"{type(error).__name__}: {' '.join(str(error).split())}"))


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Send warnings and all output, that of C code too, nowhere: runs at loose tolerances complain by design."""
    with warnings.catch_warnings(), open(os.devnull, "w") as nowhere:
        warnings.simplefilter("ignore")
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
        yield
