"""The one loop that draws, iterates, certifies, records and stops."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from dualnewton._validate import integer, positive, vector
from dualnewton.certificate import CertifiedPair
from dualnewton.plan import Plan, plan
from dualnewton.problem import Problem, certified_pairs
from dualnewton.result import Progress, Result, Status, Trace
from dualnewton.samplings import IndexBlock, Sampling, Shuffled
from dualnewton.solvers import METHODS
from dualnewton.solvers.engine import Engine

PIECE = 1 << 14
"""Examples visited between two looks at the clock, by compiled rounds; by NumPy rounds a hundredth of it."""

STALLED_CERTIFICATES = 25
"""So many certificates without a smaller gap mean that rounding has the last word, if the gap is already tiny."""

TINY_RELATIVE_GAP = 1e-9

TURNS_WITHOUT_CERTIFICATE = 10
"""A certificate costs about as much as an epoch of compiled rounds; unless one is due, so many turns go by without it."""

FOCUSED_SWEEPS = 10
"""The most sweeps over examples that are awake between two over all."""

ENOUGH = 0.1
"""They end when the surprise has fallen to this fraction of what it was in the last sweep over all."""

MOSTLY_AWAKE = 0.7
"""With more of the examples awake, a sweep over all costs little more."""

EXPECTED_RATIO = 0.5
"""Of the gap after an epoch to the mean surprise during it, before the first certificate tells."""


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

    Each turn 1. draws index blocks, 2. runs the rounds on them, 3. has the problem certify the point from scratch, if a
    certificate is due, 4. records it, 5. stops when there is a reason to.

    Parameters
    ----------
    problem : Problem
        What is to be solved.
    method : {"auto", "sdna", "sdca", "ihs"}
        How.
    tau : int or "auto"
        The number of examples per round.
    sampling : Sampling, optional
        How they are drawn. By default: a fresh permutation of all examples, cut into sets of τ, and between two of these
        (compiled rounds only) some of the examples that still have something to learn.
    tol : float
        Stop when the certified relative gap (P − D)/|P| is at most this.
    max_epochs : int
        Stop after so many passes over the data.
    time_limit : float, optional
        Stop after so many seconds; the result is the best certified model so far.
    n_threads : int, optional
        How many threads may work; one by default. The result does not depend on it.
    random_state : int, numpy.random.Generator or None
        The same seed gives the same result, bit for bit.
    warm_start : Result or array of shape (n,), optional
        Start from the dual point of an earlier result, or from the given one.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the run.

    Returns
    -------
    Result
        Ctrl-C too returns it, with the best certified point so far.
    """
    return solve_many(
        [problem],
        method,
        tau,
        sampling,
        tol,
        max_epochs,
        time_limit,
        n_threads,
        random_state,
        None if warm_start is None else [warm_start],
        callback,
    )[0]


def solve_many(
    problems: Sequence[Problem],
    method: str = "auto",
    tau: int | Literal["auto"] = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: Sequence[Result | np.ndarray] | None = None,
    callback: Callable[[Progress], Any] | None = None,
) -> list[Result]:
    """Fit several models over the same data in shared passes: classes, outputs, values of λ, weights.

    The problems must share X (the same object), the loss, the regulariser and ``fit_intercept``; labels, λ, weights and offsets
    may differ. Each has its own certificate, and leaves the passes when that meets ``tol``. The parameters are those of
    :func:`solve`; ``warm_start`` has one entry per problem, and a callback is told of the model by ``progress.model``.
    """
    problems = _alike(problems)
    tol = positive("tol", tol, or_zero=True)
    max_epochs = integer("max_epochs", max_epochs, 0)
    threads = 1 if n_threads is None else integer("n_threads", n_threads, 1)
    deadline = (
        math.inf if time_limit is None else time.perf_counter() + positive("time_limit", time_limit, or_zero=True)
    )
    rng = _generator(random_state)
    sampling_given = sampling
    chosen, sampling = _plan_with(problems[0], method, tau, sampling)
    starts = _starting_points(problems, warm_start)

    with _one_blas_thread:
        began = time.perf_counter()
        first = certified_pairs(problems, starts)
        runs = [_Run(problem, k, pair) for k, (problem, pair) in enumerate(zip(problems, first, strict=True))]
        engine: Engine | None = None
        moving, turn, epochs = runs, 0, 0.0
        # Sets of examples that are awake have another law than the one minibatch SDCA has its v from.
        focus = sampling_given is None and (chosen.method == "sdna" or chosen.tau == 1)
        try:
            while True:
                # 4. Record. 5. Stop when there is a reason to.
                now = time.perf_counter()
                for run in _open(runs):
                    if run.certified_at == turn:
                        run.record(epochs, now - began, tol, max_epochs, now > deadline, callback)
                if not _open(runs):
                    break
                engine = engine or _engine(problems, chosen, sampling, starts, threads)
                if len(_open(runs)) < len(moving):
                    engine.keep([place for place, run in enumerate(moving) if run.status is None])
                moving = _open(runs)
                # 1. Draw index blocks. 2. Run the rounds, with an eye on the clock: what is awake first, then all.
                if focus:
                    epochs += _focused_sweeps(engine, moving, sampling, rng, deadline, max_epochs - epochs)
                if epochs < max_epochs:
                    epochs += _sweep(engine, sampling.draw(rng, sampling.rounds_per_epoch), sampling, deadline)
                turn += 1
                # 3. Certify, from scratch, where a certificate is due.
                last = time.perf_counter() > deadline or epochs >= max_epochs
                due = []
                for place, run in enumerate(moving):
                    run.surprise = engine.surprise(place)
                    if engine.certificates_are_cheap or last or run.is_due(turn, tol):
                        due.append(place)
                _certify(engine, moving, due, turn)
                for place, run in enumerate(moving):
                    engine.adapt(place, run.expected_gap(run.surprise), run.surprise)
        except KeyboardInterrupt:
            for run in _open(runs):
                run.status = Status.INTERRUPTED
        finally:
            if engine is not None:
                engine.close()
    return [run.result(chosen) for run in runs]


@dataclass
class _Run:
    """What the loop knows of one model: its best certified pair, its trace, and when the next certificate is due."""

    problem: Problem
    number: int
    best: CertifiedPair
    certified_at: int = 0
    stalled: int = 0
    ratio: float = EXPECTED_RATIO
    surprise: float = math.nan
    status: Status | None = None
    trace: Trace = field(default_factory=Trace)

    def expected_gap(self, surprise: float) -> float:
        """Guess the gap from what surprised the last epoch; only a certificate knows."""
        return self.best.certificate.gap if math.isnan(surprise) else self.ratio * surprise

    def is_due(self, turn: int, tol: float) -> bool:
        """Whether the gap may be small enough by now, or nobody has looked for long."""
        close = self.expected_gap(self.surprise) <= tol * abs(self.best.certificate.primal)
        return close or turn - self.certified_at >= TURNS_WITHOUT_CERTIFICATE

    def learn(self, found: CertifiedPair, turn: int) -> None:
        """Take what the judge has found."""
        if self.surprise > 0.0:
            self.ratio = found.certificate.gap / self.surprise
        joined = found.joined_with(self.best)
        self.stalled = 0 if joined.certificate.gap < self.best.certificate.gap else self.stalled + 1
        self.best, self.certified_at = joined, turn

    def record(
        self,
        epoch: float,
        seconds: float,
        tol: float,
        max_epochs: int,
        out_of_time: bool,
        callback: Callable[[Progress], Any] | None,
    ) -> None:
        """Add a row to the trace, tell the callback, and stop where there is a reason to."""
        certificate = self.best.certificate
        progress = Progress(epoch, seconds, certificate, self.number)
        self.trace.rows.append(progress)
        stop_asked = callback is not None and bool(callback(progress))
        stuck = self.stalled >= STALLED_CERTIFICATES and certificate.relative_gap <= TINY_RELATIVE_GAP
        reasons = (
            (certificate.relative_gap <= tol, Status.CONVERGED),
            (stop_asked, Status.STOPPED_BY_CALLBACK),
            (out_of_time, Status.TIME_LIMIT),
            (stuck, Status.NO_PROGRESS),
            (epoch >= max_epochs, Status.EPOCH_LIMIT),
        )
        self.status = next((status for holds, status in reasons if holds), None)

    def result(self, chosen: Plan) -> Result:
        """Put together what was found."""
        assert self.status is not None
        return Result.of(self.best, self.status, self.trace, chosen)


def _certify(engine: Engine, moving: Sequence[_Run], due: Sequence[int], turn: int) -> None:
    """Have the problems judge the dual points of the models that are due, and let both sides learn from it."""
    if not due:
        return
    found = certified_pairs([moving[place].problem for place in due], [engine.alpha(place) for place in due])
    for place, pair in zip(due, found, strict=True):
        moving[place].learn(pair, turn)
        engine.correct(place, pair.w)


def _open(runs: Sequence[_Run]) -> list[_Run]:
    return [run for run in runs if run.status is None]


def _engine(
    problems: Sequence[Problem], chosen: Plan, sampling: Sampling, starts: Sequence[np.ndarray], threads: int
) -> Engine:
    if not chosen.compiled:
        return Engine(problems, sampling, METHODS[chosen.method], starts)
    from dualnewton.solvers.compiled import CompiledEngine  # loads Numba

    return CompiledEngine(problems, sampling, starts, separable_rounds=chosen.method == "sdca", n_threads=threads)


def _sweep(engine: Engine, block: IndexBlock, sampling: Sampling, deadline: float) -> float:
    """Do the rounds of a block, until the deadline; return how many epochs that was."""
    visited = 0
    examples = PIECE // 100 if engine.certificates_are_cheap else PIECE
    rounds = max(1, round(examples / sampling.expected_size))
    for piece in block.pieces(rounds) if deadline < math.inf else [block]:
        engine.run(piece)
        visited += piece.indices.size
        if time.perf_counter() > deadline:
            break
    engine.end_epoch()
    return visited / sampling.n


def _focused_sweeps(
    engine: Engine, moving: Sequence[_Run], sampling: Sampling, rng: np.random.Generator, deadline: float, most: float
) -> float:
    """Visit the examples that still surprise, until they do so little; return how many epochs that was.

    What most examples of a classification have to say is soon learned: their dual variables rest while the others are being
    settled. Those that sleep too soon are found by the sweep over all that follows.
    """
    epochs = 0.0
    for _ in range(FOCUSED_SWEEPS):
        awake = engine.awake()
        if awake is None or not 0 < awake.size <= MOSTLY_AWAKE * sampling.n or time.perf_counter() > deadline:
            break
        order = rng.permutation(awake)
        block = IndexBlock(order, np.append(np.arange(0, order.size, sampling.max_size), order.size))
        epochs += _sweep(engine, block, sampling, deadline)
        left = [_fraction(engine.surprise(place), run.surprise) for place, run in enumerate(moving)]
        if max(left) <= ENOUGH or epochs >= most:
            break
    return epochs


def _fraction(now: float, before: float) -> float:
    return now / before if before > 0.0 else 0.0


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
    chosen = plan(problem, method, expected)
    return replace(chosen, reason=chosen.reason.replace("tau as asked", "sampling as asked")), sampling


def _starting_points(problems: Sequence[Problem], warm_start: Sequence[Result | np.ndarray] | None) -> list[np.ndarray]:
    if warm_start is None:
        return [np.zeros(problem.n) for problem in problems]
    if len(warm_start) != len(problems):
        raise ValueError(f"warm_start must have one entry for each of {len(problems)} problems, got {len(warm_start)}")
    points = []
    for problem, start in zip(problems, warm_start, strict=True):
        alpha = vector("warm_start", getattr(start, "alpha", start), problem.n)
        low, high = problem.loss.domain(problem.y)
        points.append(problem.balanced(-np.clip(-alpha, low, high)))
    return points


def _same_data(X: Any, other: Any) -> bool:
    """Whether two matrices are views of the same memory, read the same way."""
    return X is other or (
        X.shape == other.shape and [_place(part) for part in _parts(X)] == [_place(part) for part in _parts(other)]
    )


def _parts(X: Any) -> tuple[np.ndarray, ...]:
    return (X.data, X.indices, X.indptr) if hasattr(X, "indptr") else (X,)


def _place(part: np.ndarray) -> tuple[Any, ...]:
    return part.__array_interface__["data"][0], part.shape, part.strides, part.dtype


def _alike(problems: Sequence[Problem]) -> list[Problem]:
    problems = list(problems)
    if not problems:
        raise ValueError("problems must hold at least one problem, got none")
    first = problems[0]
    for k, problem in enumerate(problems):
        for name, same in (
            ("X", _same_data(problem.X, first.X)),
            ("loss", problem.loss == first.loss),
            ("regularizer", problem.regularizer is first.regularizer or problem.regularizer == first.regularizer),
            ("fit_intercept", problem.fit_intercept == first.fit_intercept),
        ):
            if not same:
                raise ValueError(f"problems must share {name}: problem {k} has another than problem 0")
    return problems


def _generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            f"random_state must be None, a nonnegative integer or a numpy.random.Generator, got {random_state!r}"
        ) from None


class _OneBlasThread:
    """Keep the linear algebra of the judge to one thread, on whose number its last bits would depend.

    The limit is the process's, so it is set by the first of several solves that run side by side and lifted by the last.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.inside == 0:
                self.limit = _blas_controller().limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limit.restore_original_limits()


_one_blas_thread = _OneBlasThread()


@lru_cache(maxsize=1)
def _blas_controller() -> Any:
    import scipy.linalg  # noqa: F401  (so that its library is among those found)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
