"""Jobs in a child process, which can be killed at a time limit; compiled code cannot be interrupted otherwise, and may crash."""

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
"""Time limit in seconds for imports, compilation and a warm-up, which are not timed; compilation may take tens of seconds."""

_READY, _VALUE, _END = "ready", "value", "end"

DONE, CUT = "", "cut short by the time limit"
"""How a job ended: complete, or killed at the time limit. Any other ending is an error message."""


class Job(Protocol):
    """The work of a child process. It must be picklable on systems where processes cannot be forked."""

    def prepare(self) -> None:
        """Do the part of the work that is not timed."""

    def work(self) -> Iterator[Any]:
        """Yield the results one by one."""


def values_of(job: Job, cap: float, threads: int, start: str | None = None) -> Iterator[Any]:
    """Run a job in a child process; yield its results and, as the last value, its ending as a string.

    ``cap`` limits the seconds of the work after its preparation, ``threads`` the BLAS and OpenMP thread pools of the child.
    By default the process is started by "fork" where it exists, so that the child shares the data and the compiled kernels,
    else by "spawn".
    """
    if start is None:
        start = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(start)
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(job, sender, threads), daemon=True)
    with warnings.catch_warnings():
        # Python warns of a fork in a multi-threaded process; the threads of this process are idle at this point.
        warnings.simplefilter("ignore", DeprecationWarning)
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
    """Discard warnings and all output, also that of C code, since fits at loose tolerances warn that they did not converge."""
    with warnings.catch_warnings(), open(os.devnull, "w") as null:
        warnings.simplefilter("ignore")
        for stream in (1, 2):
            os.dup2(null.fileno(), stream)
        yield
