"""The one loop that draws, iterates, certifies, records and stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np

from dualnewton._validate import integer, positive, vector
from dualnewton.plan import Plan, plan
from dualnewton.problem import Problem
from dualnewton.result import Progress, Result, Status, Trace
from dualnewton.samplings import Sampling, Shuffled
from dualnewton.solvers import METHODS, Solver

ROUNDS_BETWEEN_LOOKS_AT_THE_CLOCK = 64

STALLED_EPOCHS = 25
"""So many epochs without a smaller gap mean that rounding has the last word, if the gap is already tiny."""

TINY_RELATIVE_GAP = 1e-9


def solve(
    problem: Problem,
    method: str = "auto",
    tau: int | Literal["auto"] = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: Result | np.ndarray | None = None,
    callback: Callable[[Progress], Any] | None = None,
) -> Result:
    """Fit the model and prove how good it is.

    Each epoch 1. draws index blocks, 2. runs the solver's rounds on them, 3. has the problem certify the point from
    scratch, 4. records, 5. stops when there is a reason to.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : {"auto", "sdna", "sdca", "ihs"}
        How.
    tau : int or "auto"
        The number of examples per round.
    sampling : Sampling, optional
        How they are drawn; by default a fresh permutation each epoch, cut into sets of τ.
    tol : float
        Stop when the certified relative gap (P − D)/|P| is at most this.
    max_epochs : int
        Stop after so many passes over the data.
    time_limit : float, optional
        Stop after so many seconds; the result is the best certified model so far.
    n_threads : int, optional
        How many threads the linear algebra may use; by default it decides for itself.
    random_state : int, numpy.random.Generator or None
        The same seed gives the same result.
    warm_start : Result or array of shape (n,), optional
        Start from the dual point of an earlier result, or from the given one.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the run.

    Returns
    -------
    Result
        Ctrl-C too returns it, with the best certified point so far.
    """
    tol = positive("tol", tol, or_zero=True)
    max_epochs = integer("max_epochs", max_epochs, 0)
    deadline = (
        math.inf if time_limit is None else time.perf_counter() + positive("time_limit", time_limit, or_zero=True)
    )
    rng = _generator(random_state)
    chosen, sampling = _plan_with(problem, method, tau, sampling)

    with _threads(n_threads):
        start = time.perf_counter()
        solver = METHODS[chosen.method](problem, sampling)
        _warm(solver, warm_start)
        trace = Trace()
        best = problem.certified_pair(solver.w, alpha=solver.alpha)
        stalled = 0
        status = None
        try:
            while True:
                # 4. Record.
                progress = Progress(len(trace), time.perf_counter() - start, best.certificate)
                trace.rows.append(progress)
                # 5. Stop when there is a reason to.
                stop_asked = callback is not None and bool(callback(progress))
                status = _reason_to_stop(progress, tol, max_epochs, deadline, stalled, stop_asked)
                if status is not None:
                    break
                # 1. Draw the index blocks of an epoch. 2. Run the rounds, with an eye on the clock.
                for block in sampling.draw(rng, sampling.rounds_per_epoch).pieces(ROUNDS_BETWEEN_LOOKS_AT_THE_CLOCK):
                    solver.run(block)
                    if time.perf_counter() > deadline:
                        break
                solver.end_epoch()
                # 3. Certify, from scratch.
                found = problem.certified_pair(solver.w, alpha=solver.alpha).joined_with(best)
                stalled = 0 if found.certificate.gap < best.certificate.gap else stalled + 1
                best = found
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    return Result.of(best, status, trace, chosen)


def _reason_to_stop(
    progress: Progress, tol: float, max_epochs: int, deadline: float, stalled: int, stop_asked: bool
) -> Status | None:
    relative_gap = progress.certificate.relative_gap
    reasons = (
        (relative_gap <= tol, Status.CONVERGED),
        (stop_asked, Status.STOPPED_BY_CALLBACK),
        (time.perf_counter() > deadline, Status.TIME_LIMIT),
        (stalled >= STALLED_EPOCHS and relative_gap <= TINY_RELATIVE_GAP, Status.NO_PROGRESS),
        (progress.epoch >= max_epochs, Status.EPOCH_LIMIT),
    )
    return next((status for holds, status in reasons if holds), None)


def _plan_with(
    problem: Problem, method: str, tau: int | Literal["auto"], sampling: Sampling | None
) -> tuple[Plan, Sampling]:
    if sampling is None:
        chosen = plan(problem, method, tau)
        return chosen, Shuffled(problem.n, chosen.tau)
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling must be a samplings.Sampling, such as samplings.Nice(n, 8), got {sampling!r}")
    if sampling.n != problem.n:
        raise ValueError(f"sampling must be over the {problem.n} examples of the problem, got one over {sampling.n}")
    if tau != "auto":
        raise ValueError(f"tau must be left to the sampling when one is given, got tau={tau!r} beside {sampling!r}")
    expected = max(1, round(sampling.expected_size))
    return Plan(plan(problem, method, expected).method, expected, "sampling as asked"), sampling


def _warm(solver: Solver, warm_start: Result | np.ndarray | None) -> None:
    if warm_start is None:
        return
    problem = solver.problem
    alpha = vector("warm_start", getattr(warm_start, "alpha", warm_start), problem.n)
    low, high = problem.loss.domain(problem.y)
    solver.alpha = problem.balanced(-np.clip(-alpha, low, high))
    solver.refresh()
    solver.intercept = problem.best_intercept(solver.w)


def _generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state must be None, a nonnegative integer or a numpy.random.Generator, got {random_state!r}"
        ) from None


def _threads(n_threads: int | None) -> AbstractContextManager[Any]:
    if n_threads is None:
        return nullcontext()
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=integer("n_threads", n_threads, 1))
