"""The threads of a run. They do not change a bit of any result: work is divided by size alone, and sums are added in order."""

from __future__ import annotations

import contextlib
import io
import threading
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any

import numpy as np

from dualnewton import validation
from dualnewton.matrix.blas import one_blas_thread

LONG = 1 << 20
"""Number of entries that are summed at a time (8 MiB)."""


class Workers:
    """The calling thread and ``helpers`` further threads, which start at their first use.

    Parameters
    ----------
    helpers : int
        Number of further threads; with 0 the calling thread does all the work.
    """

    def __init__(self, helpers: int = 0) -> None:
        self.helpers = helpers
        # A fit of a tenth of a second shares work some fifty times: these queues take a quarter of the time of an executor.
        self.jobs: SimpleQueue[tuple[Callable[[], Any], SimpleQueue[BaseException | None]] | None] = SimpleQueue()
        self.started: list[threading.Thread] = []

    def share(self, work: Callable[[], Any], shares: int) -> None:
        """Call ``work`` once in each thread, in at most as many as there are shares of the work."""
        if (others := min(self.helpers, shares - 1)) <= 0:
            work()
            return
        self._start(others)
        ends: SimpleQueue[BaseException | None] = SimpleQueue()
        for _ in range(others):
            self.jobs.put((work, ends))
        try:
            work()
        finally:
            errors = [ends.get() for _ in range(others)]
        for error in errors:
            if error is not None:
                raise error

    def _start(self, count: int) -> None:
        """Start threads until ``count`` of them run."""
        while len(self.started) < count:
            self.started.append(threading.Thread(target=_serve, args=(self.jobs,), daemon=True))
            self.started[-1].start()

    def each(self, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Return ``work(item)`` for each item, in the order of the items; no further threads are used inside of these."""
        if self.helpers == 0 or len(items) == 1:
            return [work(item) for item in items]
        waiting = iter(range(len(items)))  # next() is atomic, so that each item is processed once
        done: list[Any] = [None] * len(items)
        warnings = np.geterr()  # which each thread has of its own

        def take() -> None:
            before = _workers.set(ALONE)
            try:
                with np.errstate(**warnings):
                    for place in waiting:
                        done[place] = work(items[place])
            finally:
                _workers.reset(before)

        self.share(take, len(items))
        return done

    def close(self) -> None:
        """End the threads."""
        for _ in self.started:
            self.jobs.put(None)
        for thread in self.started:
            thread.join()
        self.started.clear()


def _serve(jobs: SimpleQueue[Any]) -> None:
    """Do one job after the other, until there is None; report the error of each, or None."""
    while (job := jobs.get()) is not None:
        work, ends = job
        error: BaseException | None = None
        try:
            work()
        except BaseException as raised:
            error = raised
        ends.put(error)
        del job, work, ends, error  # no references to arrays while the thread waits


ALONE = Workers()
"""The calling thread alone."""

_workers: ContextVar[Workers] = ContextVar("workers", default=ALONE)


def workers() -> Workers:
    """Return the threads that this thread may use: those of :func:`threads` around it, else only itself."""
    return _workers.get()


class threads:  # noqa: N801 (used as a function: a generator's context takes three times as long, which small fits would notice)
    """Let all passes in this context use ``count`` threads, those of solvers as well as those of certificates."""

    def __init__(self, count: int) -> None:
        self.made = ALONE if count == 1 else Workers(count - 1)

    def __enter__(self) -> None:
        self.before = _workers.set(self.made)

    def __exit__(self, *_: object) -> None:
        _workers.reset(self.before)
        self.made.close()


def sum_of_squares(entries: np.ndarray) -> float:
    """Return the sum of squares of a flat array, in threads if it is long (those of BLAS keep cores busy afterwards).

    An overflow gives no warning.
    """
    if entries.size <= validation.SHORT:
        return float(np.vdot(entries, entries))
    with one_blas_thread:
        if entries.size <= LONG:
            return float(np.vdot(entries, entries))  # a third of the time of einsum
        pieces = [entries[low : low + LONG] for low in range(0, entries.size, LONG)]
        return float(sum(workers().each(pieces, _squares)))


def _squares(entries: np.ndarray) -> float:
    with np.errstate(over="ignore", invalid="ignore"):  # of this thread
        return float(entries.dot(entries))  # ``@`` on vectors keeps the interpreter's lock, so that threads would wait


def physical_cores() -> int:
    """Return the number of physical cores that this process may use, within its CPU affinity and the limits of its container."""
    from joblib import cpu_count  # type: ignore[import-untyped]

    # A small container may not list its cores. joblib then counts logical ones, and writes a warning and a traceback.
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        return int(cpu_count(only_physical_cores=True))


def added(parts: Sequence[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    """Add tuples of arrays in their order, so that the result does not depend on which thread computed which part."""
    total = parts[0]
    for part in parts[1:]:
        total = tuple(sum_ + more for sum_, more in zip(total, part, strict=True))
    return total
