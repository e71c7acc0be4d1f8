"""How a time is taken: in a child process of its own, on pinned cores, the best of a few repetitions."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from threadpoolctl import threadpool_limits

from dualnewton.lab.child import silence

REPEATS = 10

ENOUGH_SECONDS = 0.5
"""A run this long is not repeated: the machine's noise is then small against it."""


@dataclass(frozen=True)
class Timed:
    """The shortest of some runs, and what the last of them returned."""

    seconds: float
    value: Any


def best_of(run: Callable[[], Any], repeats: int = REPEATS, enough: float = ENOUGH_SECONDS) -> Timed:
    """Run up to ``repeats`` times, fewer once the runs have taken ``enough`` seconds together; keep the shortest time.

    The shortest and not the mean: everything else that happens on a machine only adds.
    """
    times: list[float] = []
    value = None
    while len(times) < repeats and sum(times) < enough:
        start = time.perf_counter()
        value = run()
        times.append(time.perf_counter() - start)
    return Timed(min(times), value)


@dataclass(frozen=True)
class Trial:
    """A run at the tolerance 10^−digits: its seconds, or None where the result is not good enough."""

    digits: float
    seconds: float | None

    @property
    def succeeded(self) -> bool:
        """Whether the tolerance sufficed."""
        return self.seconds is not None


TIGHTEST = 10
"""The digits after which a search gives up."""


def loosest_success(attempt: Callable[[float], float | None], first: int = 1) -> Iterator[Trial]:
    """Yield every trial of a search for the loosest tolerance that suffices.

    A solver is charged for the accuracy that was asked of it and no more: whole decades until a success stands next to a
    failure, then two bisections, so that the tolerance is at most a quarter of a decade tighter than it had to be.

    Parameters
    ----------
    attempt : callable
        Takes a tolerance; returns its seconds, or None where the result is not good enough.
    first : int
        The digits to begin with: a good guess saves runs.
    """

    def trial(digits: float) -> Trial:
        return Trial(digits, attempt(10.0**-digits))

    tight = first
    yield (found := trial(tight))
    step = -1 if found.succeeded else 1
    while 1 <= tight + step <= TIGHTEST:
        yield (following := trial(tight + step))
        if following.succeeded != found.succeeded:
            break
        tight += step
    else:
        if not found.succeeded:
            return
    tight += step == 1
    low, high = tight - 1.0, float(tight)
    for _ in range(2):
        middle = (low + high) / 2
        yield (found := trial(middle))
        low, high = (low, middle) if found.succeeded else (middle, high)


def geometric_mean(values: Iterable[float]) -> float:
    """exp of the mean of the logarithms: the mean for which 2× ahead and 2× behind cancel; NaN of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Let this process use so many cores, and its BLAS and OpenMP pools so many threads."""
    before = cores()
    try:
        _set_affinity(before[-threads:])  # the last ones: the first also serves most interrupts
        with threadpool_limits(limits=threads):
            yield
    finally:
        _set_affinity(before)


def cores() -> list[int]:
    """Return the cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _set_affinity(chosen: Iterable[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)


@dataclass(frozen=True)
class Outcome:
    """What a child sent, and how it ended."""

    values: list[Any]
    ending: str

    DONE = "done"
    CUT = "cut short"
    FAILED = "failed"

    def last(self, default: Any = None) -> Any:
        """Return the last value, or the default where there is none."""
        return self.values[-1] if self.values else default


def in_child(
    work: Callable[[], Iterable[Any]],
    cap: float,
    threads: int,
    prepare: Callable[[], Any] = lambda: None,
    patience: float = math.inf,
) -> Outcome:
    """Collect what ``work()`` yields in a forked child that is killed after ``cap`` seconds.

    Compiled code cannot be interrupted from within, and a peer may crash: neither must take the benchmark along. The
    child inherits the data and the compiled kernels, and its first act on its own is to pin itself. What it has sent
    before its end stays valid.

    Parameters
    ----------
    work : callable
        Returns the values one by one.
    cap : float
        Seconds for the work, from the moment the child is prepared: imports and warm-up must not eat a short budget.
    threads : int
        What the child is pinned to.
    prepare : callable
        Runs first, in the child.
    patience : float
        Seconds to wait for each value: the child is killed too if one takes longer.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_serve, args=(work, prepare, sender, threads), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # "fork in a multi-threaded process": its threads are idle
        child.start()
    sender.close()
    values: list[Any] = []
    deadline, wait = time.perf_counter() + PREPARATION_SECONDS, math.inf
    try:
        while receiver.poll(max(0.0, min(wait, deadline - time.perf_counter()))):
            kind, value = receiver.recv()
            if kind == _READY:
                deadline, wait = time.perf_counter() + cap, patience
            elif kind == _VALUE:
                values.append(value)
            else:
                return Outcome(values, value)
    except EOFError:  # it died without a word
        return Outcome(values, Outcome.FAILED)
    finally:
        child.kill()
        child.join()
        receiver.close()
    return Outcome(values, Outcome.CUT)


PREPARATION_SECONDS = 60.0
_READY, _VALUE, _END = "ready", "value", "end"


def _serve(work: Callable[[], Iterable[Any]], prepare: Callable[[], Any], sender: Connection, threads: int) -> None:
    with contextlib.closing(sender), pinned(threads), silence():
        try:
            prepare()
            sender.send((_READY, None))
            for item in work():
                sender.send((_VALUE, item))
            sender.send((_END, Outcome.DONE))
        except Exception as error:
            sender.send((_END, f"{Outcome.FAILED}: {type(error).__name__}: {error}"))
