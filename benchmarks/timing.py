"""Timing: in a separate child process, on pinned cores, the shortest of a few repetitions."""

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
"""Largest number of repetitions of a run."""

ENOUGH_SECONDS = 0.5
"""Total time in seconds after which a run is not repeated again; the noise of the machine is then relatively small."""


@dataclass(frozen=True)
class Timed:
    """The shortest time of some runs, and the return value of the last."""

    seconds: float
    value: Any


CLOCKS = {"wall": "perf_counter", "cpu": "process_time"}
"""The clocks, functions of ``time``, by which runs are timed. That of the processor is fair on a machine with other work, for one
thread."""

chosen_clock = "wall"
"""The clock of :func:`best_of`, in this process and those that it forks."""


def best_of(run: Callable[[], Any], repeats: int = REPEATS, enough: float = ENOUGH_SECONDS) -> Timed:
    """Run up to ``repeats`` times, fewer once the runs have taken ``enough`` seconds together; keep the shortest time.

    The shortest time is the best estimate, because other work on the machine can only lengthen a time.
    """
    times: list[float] = []
    value = None
    while len(times) < repeats and sum(times) < enough:
        clock = getattr(time, CLOCKS[chosen_clock])
        start = clock()
        value = run()
        times.append(clock() - start)
    return Timed(min(times), value)


@dataclass(frozen=True)
class Trial:
    """A run at the tolerance 10^−digits: its seconds, or None if the result is not accurate enough."""

    digits: float
    seconds: float | None

    @property
    def succeeded(self) -> bool:
        """True if the tolerance sufficed."""
        return self.seconds is not None


TIGHTEST = 10
"""The tightest tolerance of a search is 10^−TIGHTEST."""


def loosest_success(attempt: Callable[[float], float | None], first: int = 1) -> Iterator[Trial]:
    """Yield every trial of a search for the loosest tolerance that suffices.

    A solver should not spend time on more accuracy than the goal requires. The search changes the tolerance by whole decades
    until a success is next to a failure, then bisects twice, so the tolerance found is within a quarter of a decade.

    Parameters
    ----------
    attempt : callable
        Returns the seconds of a run for a tolerance, or None if the result is not accurate enough.
    first : int
        The number of digits to begin with; a good guess saves runs.
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
    """Return exp of the mean of the logarithms, for which the ratios 2 and ½ cancel; NaN for no values."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[None]:
    """Restrict this process to ``threads`` cores, and its BLAS and OpenMP pools to as many threads."""
    before = cores()
    try:
        _set_affinity(before[-threads:])  # the last cores, since the first handles most interrupts
        with threadpool_limits(limits=threads):
            yield
    finally:
        _set_affinity(before)


def cores() -> list[int]:
    """Return the cores on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _set_affinity(chosen: Iterable[int]) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, chosen)


@dataclass(frozen=True)
class Outcome:
    """The values that a child process sent, and how it ended."""

    values: list[Any]
    ending: str

    DONE = "done"
    CUT = "cut short"
    FAILED = "failed"

    def last(self, default: Any = None) -> Any:
        """Return the last value, or the default if there is none."""
        return self.values[-1] if self.values else default


def in_child(
    work: Callable[[], Iterable[Any]],
    cap: float,
    threads: int,
    prepare: Callable[[], Any] = lambda: None,
    patience: float = math.inf,
) -> Outcome:
    """Collect the values of :func:`from_child`. Those that the child sent before its end stay valid."""
    *values, ending = from_child(work, cap, lambda: pinned(threads), prepare, patience)
    return Outcome(values, ending)


def from_child(
    work: Callable[[], Iterable[Any]],
    cap: float,
    limits: Callable[[], contextlib.AbstractContextManager[Any]],
    prepare: Callable[[], Any] = lambda: None,
    patience: float = math.inf,
) -> Iterator[Any]:
    """Yield the values that ``work()`` yields in a forked child process, killed after ``cap`` seconds; then how it ended.

    A child process is needed because compiled code cannot be interrupted and another library may crash. The child inherits
    the data and the compiled kernels.

    Parameters
    ----------
    work : callable
        Returns an iterable of values.
    cap : float
        Time limit of the work in seconds, counted from the end of ``prepare``, so that it excludes imports and warm-up.
    limits : callable
        Returns the context in which the child works, such as ``pinned(threads)``.
    prepare : callable
        Called first in the child.
    patience : float
        Time limit in seconds for each value; the child is killed if one takes longer.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    # Not a daemon: joblib, by which estimators read n_jobs, counts one core in daemons. It is killed below in any case.
    child = context.Process(target=_serve, args=(work, prepare, sender, limits))
    with warnings.catch_warnings():
        # Python warns of a fork in a multi-threaded process; the threads of this process are idle at this point.
        warnings.simplefilter("ignore", DeprecationWarning)
        child.start()
    sender.close()
    longer = LONGER[chosen_clock]
    deadline, wait = time.perf_counter() + longer * PREPARATION_SECONDS, math.inf
    ending = Outcome.CUT
    try:
        while receiver.poll(max(0.0, min(wait, deadline - time.perf_counter()))):
            kind, value = receiver.recv()
            if kind == _READY:
                deadline, wait = time.perf_counter() + longer * cap, longer * patience
            elif kind == _VALUE:
                yield value
            else:
                ending = value
                break
    except EOFError:  # the child process crashed
        ending = Outcome.FAILED
    finally:
        child.kill()
        child.join()
        receiver.close()
    yield ending


LONGER = {"wall": 1.0, "cpu": 6.0}
"""Factors on time limits, by the clock of the runs: other work, which the processor's clock leaves out, may take most of a core.
Otherwise such work would end the slower contenders, and only these."""

PREPARATION_SECONDS = 60.0
"""Time limit in seconds of the preparation of a child process: imports and a warm-up fit."""

_READY, _VALUE, _END = "ready", "value", "end"


def _serve(
    work: Callable[[], Iterable[Any]],
    prepare: Callable[[], Any],
    sender: Connection,
    limits: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    with contextlib.closing(sender), limits(), silence():
        try:
            prepare()
            sender.send((_READY, None))
            for item in work():
                sender.send((_VALUE, item))
            sender.send((_END, Outcome.DONE))
        except Exception as error:
            sender.send((_END, f"{Outcome.FAILED}: {type(error).__name__}: {error}"))
