"""The threads of a run. They do not change a bit of any result: work is divided by size alone, and sums are added in order."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import threading
import warnings
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from dualnewton import validation
from dualnewton.matrix.blas import one_blas_thread

LONG = 1 << 20
"""Number of entries that are summed at a time (8 MiB)."""


class Workers:
    """The calling thread and ``helpers`` further threads, which start at their first use.

    They wait for work in compiled code (:mod:`dualnewton.kernels.team`): a fit of a tenth of a second shares work some fifty
    times, and threads that wait in Python begin one after the other, each when it has got the interpreter's lock.

    Where threads outnumber the items of :meth:`each`, those that process items have helpers of their own, in ``teams``.
    """

    def __init__(self, helpers: int = 0) -> None:
        self.helpers = helpers
        self.leading = threading.Lock()  # held during a job: another thread that has work meanwhile does it alone
        self.helping: list[threading.Thread] = []  # the threads of the helpers, also those that are about to start
        self.most = helpers  # how many helpers the team has places for
        self.teams: list[Workers] = []
        self.is_complete = True  # whether the system has allowed all threads
        self.words: Any = None  # of the team, once there is one
        self.work: Callable[[], Any] | None = None
        self.errors: list[BaseException] = []

    def run(self, kernel: Any, shares: int, *arguments: Any) -> None:
        """Run a ``TeamKernel`` in the threads, in at most as many as there are shares of its work."""
        kernel.prepare(*arguments)
        if (wanted := self._begin(shares)) == 0:
            kernel(*arguments)
            return
        try:
            kernel(*arguments, words=self.words, wanted=wanted)
        finally:
            self._end()

    def share(self, work: Callable[[], Any], shares: int) -> None:
        """Call ``work`` in each thread that is free, in at most as many as there are shares of the work."""
        if (wanted := self._begin(shares)) == 0:
            work()
            return
        from dualnewton.kernels import team

        try:
            self.work = work
            team.publish(self.words, team.PYTHON, 0, wanted)
            work()
        finally:
            team.finish(self.words)
            self._end()

    def _begin(self, shares: int) -> int:
        """Begin to lead the helpers; return how many of them are wanted, or zero if the calling thread works alone."""
        wanted = min(self.helpers, shares - 1)
        if wanted <= 0 or not self.leading.acquire(blocking=False):
            return 0
        if self.words is None:
            from dualnewton.kernels import team

            team.prepare()
            self.words = team.new_team(self.most)
        self._start(wanted)
        return wanted

    def _start(self, wanted: int) -> None:
        """Start helpers until ``wanted`` of them exist.

        A new thread starts when it gets the interpreter's lock, for which ``Thread.start`` waits: 0.15 ms, 2 ms for 15 threads.
        The leader therefore starts one thread, which starts the others while the leader works.
        """
        members = range(1 + len(self.helping), 1 + wanted)
        if not members:
            return
        others = [threading.Thread(target=self._help, args=(member,), daemon=True) for member in members[1:]]
        first = threading.Thread(target=self._help, args=(members[0], others), daemon=True)
        self.helping += [first, *others]
        self._started([first])

    def _started(self, threads: Sequence[threading.Thread]) -> None:
        """Start threads; if the system allows no further one, the work is done by those that there are."""
        try:
            for thread in threads:
                thread.start()
        except RuntimeError:
            self.is_complete = False

    def _end(self) -> None:
        """End a job: raise the first error of a helper."""
        errors, self.errors, self.work = self.errors, [], None  # no references to arrays while the threads wait
        self.leading.release()
        if errors:
            raise errors[0]

    def _help(self, member: int, others: Sequence[threading.Thread] = ()) -> None:
        """Start other helpers, and do the jobs of the team until it ends."""
        from dualnewton.kernels import team

        self._started(others)
        while True:
            try:
                if not team.serve(self.words, member):
                    return
                assert self.work is not None
                self.work()
            except BaseException as error:
                self.errors.append(error)
            team.leave(self.words)

    def each(self, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
        """Return ``work(item)`` for each item, in the order of the items; the threads left over are divided among these."""
        if self.helpers == 0 or len(items) < 2:
            return [work(item) for item in items]
        waiting = iter(range(len(items)))  # next() is atomic, so that each item is processed once
        done: list[Any] = [None] * len(items)
        warnings = np.geterr()  # which each thread has of its own
        teams = iter(self._divided(len(items)))

        def take() -> None:
            before = _workers.set(next(teams, ALONE))
            try:
                with np.errstate(**warnings):
                    for place in waiting:
                        done[place] = work(items[place])
            finally:
                _workers.reset(before)

        self.share(take, len(items))
        return done

    def _divided(self, count: int) -> Sequence[Workers]:
        """Return the teams of as many threads, which have all threads together; none if each of them would be alone."""
        helpers = (1 + self.helpers) // count - 1
        if helpers <= 0 or self.leading.locked():
            return ()
        while len(self.teams) < count:
            self.teams.append(Workers(self.helpers))
        for team in self.teams:
            team.helpers = helpers  # of the places for more
        return self.teams[:count]

    @property
    def can_wait(self) -> bool:
        """Whether the threads may wait for another run: none leads a job, and none is missing."""
        return self.is_complete and not self.leading.locked() and all(team.can_wait for team in self.teams)

    def close(self) -> None:
        """End the threads."""
        while self.teams:
            self.teams.pop().close()
        if self.words is None:
            return
        from dualnewton.kernels import team

        team.dismiss(self.words)
        for thread in self.helping:  # the first of them has started the next ones before it ends
            if thread.ident is not None:
                thread.join()
        team.release(self.words)
        self.helping.clear()
        self.words = None


ALONE = Workers()
"""The calling thread alone."""

_workers: ContextVar[Workers] = ContextVar("workers", default=ALONE)


def workers() -> Workers:
    """Return the threads that this thread may use: those of :func:`threads` around it, else only itself."""
    return _workers.get()


_waiting: list[Workers] = []
"""The threads of the last context that has ended, which sleep until another one wants as many."""


class threads:  # noqa: N801 (used as a function: a generator's context takes three times as long, which small fits would notice)
    """Let all passes in this context use ``count`` threads, those of solvers as well as those of certificates.

    Inside a context with as many threads, these are used, and after one its threads: to start and end 15 threads takes 3 ms, a
    fit has two contexts, and a cross-validation many runs.
    """

    def __init__(self, count: int) -> None:
        self.helpers = count - 1

    def __enter__(self) -> None:
        around = _workers.get()
        self.is_own = around.helpers != self.helpers
        self.made = _workers_of(self.helpers) if self.is_own else around
        self.before = _workers.set(self.made)

    def __exit__(self, *_: object) -> None:
        _workers.reset(self.before)
        if not self.is_own or self.made.words is None:
            return
        if self.made.can_wait:
            _waiting.append(self.made)
            end_waiting(most=1)
        else:
            self.made.close()


def _workers_of(helpers: int) -> Workers:
    """Return as many helpers, by preference those that wait."""
    if helpers:
        with contextlib.suppress(IndexError):  # none wait, or another thread has just taken them
            found = _waiting.pop()
            if found.helpers == helpers and found.can_wait:
                return found
            found.close()
    return Workers(helpers)


def end_waiting(most: int = 0) -> None:
    """End the threads that wait for another run, except those of the last contexts."""
    while len(_waiting) > most:
        with contextlib.suppress(IndexError):
            _waiting.pop(0).close()


atexit.register(end_waiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=end_waiting)  # a child would have teams without threads


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
