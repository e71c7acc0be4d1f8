"""The one loop that draws, iterates, certifies, records and stops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.matrix.blas import one_blas_thread
from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.objective.certificates import certify_cold_starts, judge_duals, judge_models
from dualnewton.objective.problem import Problem
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.planner import plan
from dualnewton.planning.switching import Course
from dualnewton.run.checkpoint import AnyCheckpoint, identity_of, keeper_of
from dualnewton.run.methods import make_runner
from dualnewton.run.result import Progress, Result, Status, Trace
from dualnewton.run.snapshot import Anchors, Thawed
from dualnewton.samplings import Sampling
from dualnewton.solvers.outer.proximal_point import follow
from dualnewton.solvers.protocol import Runner
from dualnewton.validation import integer, positive

STALLED_CERTIFICATES = 25
"""So many certificates without a smaller gap mean that rounding has the last word, if the gap is already tiny."""

TINY_RELATIVE_GAP = 1e-9

TURNS_WITHOUT_CERTIFICATE = 10
"""A certificate costs about as much as an epoch of compiled rounds; unless one is due, so many turns go by without it. Of a
primal method, whose gradient tells the gap, half as many as there have been go by, if these are more."""


def solve(
    problem: Problem,
    *,
    method: str = "auto",
    tau: Tau = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: Result | np.ndarray | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: AnyCheckpoint = None,
    certify_every: int | None = None,
) -> Result:
    """Fit the model and prove how good it is.

    Each turn 1. draws index blocks, 2. runs the rounds on them, 3. has the problem certify the point from scratch, if a
    certificate is due, 4. records it, 5. stops when there is a reason to, 6. keeps its state, if there is a checkpoint.

    Parameters
    ----------
    problem : Problem
        What is to be solved. (Of a loss of K > 1 columns, w is K×d, the intercept a vector and alpha n×K.)
    method : {"auto", "sdna", "sdca", "newton", "ihs"}
        How; "auto" chooses by what each is expected to cost, and again while running, when the gap tells otherwise.
    tau : int or "auto"
        The number of examples per round; with "ihs", of rows in the first sketch.
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
        Start from the model and the dual point of an earlier result, of this problem or one like it, or from a dual point.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the run.
    checkpoint : path or Checkpoint, optional
        A file in which the state of the run is kept as it goes. Where it is there already, of this problem and these settings,
        the run goes on from it and ends, bit for bit, as if it had never stopped. Limits, threads and the callback may be
        others. The file stays when the run has ended.
    certify_every : int, optional
        The most turns (about an epoch each) between two certificates; 1 for a curve of every epoch. By default a certificate is
        computed when it may change what happens next, since each costs about an epoch.

    Returns
    -------
    Result
        Ctrl-C too returns it, with the best certified point so far.
    """
    return solve_many(
        [problem],
        method=method,
        tau=tau,
        sampling=sampling,
        tol=tol,
        max_epochs=max_epochs,
        time_limit=time_limit,
        n_threads=n_threads,
        random_state=random_state,
        warm_start=None if warm_start is None else [warm_start],
        callback=callback,
        checkpoint=checkpoint,
        certify_every=certify_every,
    )[0]


def solve_many(
    problems: Sequence[Problem],
    *,
    method: str = "auto",
    tau: Tau = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: Sequence[Result | np.ndarray] | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: AnyCheckpoint = None,
    certify_every: int | None = None,
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
    every = None if certify_every is None else integer("certify_every", certify_every, 1)
    settings = {"method": method, "tau": tau, "sampling": sampling, "certify_every": every}
    seeded = None if random_state is None else rng
    keeper = keeper_of(checkpoint, lambda: identity_of(problems, warm_start, seeded, tol=tol, **settings), rng)
    # Planning included: threads that a product has woken go on to wait for another for a while, and keep a core busy with it.
    with one_blas_thread:
        if problems[0].loss.kinked:
            return follow(
                solve_many,
                problems,
                lambda: _starting_pairs(problems, warm_start),
                tol=tol,
                max_epochs=max_epochs,
                deadline=deadline,
                callback=callback,
                keeper=keeper,
                n_threads=threads,
                random_state=rng,
                **settings,
            )

        def runner_of(plan: Plan, runs: Sequence[_Run]) -> Runner:
            return make_runner(plan, [(run.problem, run.best) for run in runs], sampling, tol, threads)

        began, anchors = time.perf_counter(), Anchors.of(problems)
        if (found := keeper.take()) is not None:
            at = _resumed(found, anchors, runner_of)
            began -= at.seconds
        else:
            near = warm_start is not None and all(isinstance(start, Result) for start in warm_start)
            chosen = _plan_with(problems[0], method, tau, sampling, len(problems), near=near)
            began = time.perf_counter()
            first = _starting_pairs(problems, warm_start, primal=chosen.is_primal)
            runs = [_Run(problems[k], k, pair, pair.certificate) for k, pair in enumerate(first)]
            free = method == "auto" and tau == "auto" and sampling is None
            at = _State(runs, Course(problems[0], chosen, tol, free=free), runs)
        whole = found is None or bool(_open(at.runs))  # whether this is the way of a run without limits, and is news
        try:
            while True:
                # 4. Record. 5. Stop when there is a reason to.
                now = time.perf_counter()
                for run in _open(at.runs):
                    if run.certified_at == at.turn:
                        run.record(at, now - began, tol, max_epochs, now > deadline, callback)
                if not _open(at.runs):
                    break
                if at.runner is None:
                    at.runner = runner_of(at.course.plan, _open(at.runs))
                elif len(_open(at.runs)) < len(at.moving):
                    at.runner.keep([place for place, run in enumerate(at.moving) if run.status is None])
                runner, moving = at.runner, _open(at.runs)
                at.moving = moving
                # 1. Draw, 2. move.
                most = max_epochs - at.epochs
                moved = time.perf_counter()
                spent = runner.turn(rng, deadline, most)
                at.work_seconds += time.perf_counter() - moved
                at.epochs += spent
                at.turn += 1
                # 3. Certify, from scratch, where a certificate is due.
                last = time.perf_counter() > deadline or at.epochs >= max_epochs
                whole = whole and not last and spent < most
                for place, run in enumerate(moving):
                    run.take_in(runner, place)
                slowest = max(moving, key=_Run.expected_relative_gap)
                at.course.note(at.epochs, slowest.expected_relative_gap(), slowest.surprise)
                better = (
                    None
                    if last
                    else at.course.better(stuck=any(run.stuck and run.expected_relative_gap() > tol for run in moving))
                )
                anyhow = runner.certificates_are_cheap or last or better is not None
                primal = at.course.plan.is_primal
                due = [k for k, run in enumerate(moving) if anyhow or run.is_due(at.turn, tol, every, primal=primal)]
                _certify(runner, moving, due, at.turn)
                for place, run in enumerate(moving):
                    runner.adapt(place, run.expected_gap(), run.surprise)
                if better is not None:
                    at.course.change_to(better)
                    for run in moving:
                        run.stuck, run.ratio = False, math.nan
                    runner.close()
                    at.runner = None
                # 6. Keep the state, unless a limit has cut the turn short.
                if whole and keeper.is_due(at.statuses):
                    keeper.save(at.parts(began), anchors | at.rebuilt, at.epochs)
            if whole:
                keeper.finish(at.statuses, at.parts(began), anchors, at.epochs)
        except KeyboardInterrupt:
            for run in _open(at.runs):
                run.status = Status.INTERRUPTED
        finally:
            if at.runner is not None:
                at.runner.close()
    return [run.result(at.course.plan) for run in at.runs]


@dataclass
class _State:
    """All that the turns change, so that a checkpoint can hold it.

    Attributes
    ----------
    runs, moving : lists of _Run
        All models, and those of the last turn, in the runner's order.
    course : Course
        Whether to change the method.
    runner : Runner, optional
        None where another method is to begin.
    turn, epochs, seconds : int, float, float
        How far it is; the seconds are those of earlier processes.
    work_seconds : float
        Of the turns alone, those of earlier processes included.
    """

    runs: list[_Run]
    course: Course
    moving: list[_Run]
    runner: Runner | None = None
    turn: int = 0
    epochs: float = 0.0
    seconds: float = 0.0
    work_seconds: float = 0.0

    @property
    def statuses(self) -> list[Status | None]:
        """How far each model is."""
        return [run.status for run in self.runs]

    @property
    def rebuilt(self) -> Anchors:
        """What the runner has made of the data, and need not be stored."""
        return Anchors() if self.runner is None else Anchors(self.runner.anchors())

    def parts(self, began: float) -> dict[str, Any]:
        """Return what a checkpoint holds; what has ended needs no runner."""
        loop = replace(self, runner=None, seconds=time.perf_counter() - began)
        return {"loop": loop, "runner": self.runner if _open(self.runs) else None}


def _resumed(found: Thawed, anchors: Anchors, runner_of: Callable[[Plan, Sequence[_Run]], Runner]) -> _State:
    """Return the state that a checkpoint holds: what depends on the data alone is made anew, all else is as it was."""
    found.anchors = found.anchors | anchors
    state: _State = found.part("loop", _State)
    if "runner" in found:
        fresh = runner_of(state.course.plan, state.moving)
        found.anchors = found.anchors | Anchors(fresh.anchors())
        state.runner = found.part("runner", Runner)
    return state


@dataclass
class _Run:
    """What the loop knows of one model: its best certified pair, its trace, and when the next certificate is due."""

    problem: Problem
    number: int
    best: CertifiedPair
    latest: Certificate
    certified_at: int = 0
    stalled: int = 0
    stuck: bool = False
    ratio: float = math.nan
    surprise: float = math.nan
    status: Status | None = None
    trace: Trace = field(default_factory=Trace)

    def take_in(self, runner: Runner, place: int) -> None:
        """Hear what the runner has to say after a turn."""
        self.surprise, self.stuck = runner.surprise(place), runner.is_stuck(place)
        if math.isnan(self.ratio):
            self.ratio = runner.expected_ratio

    def expected_gap(self) -> float:
        """Guess the gap from what the last turn had to say; only a certificate knows."""
        expected = self.ratio * self.surprise if self.surprise > 0.0 else 0.0  # the ratio may be infinite
        return self.best.certificate.gap if math.isnan(self.surprise) else expected

    def expected_relative_gap(self) -> float:
        """Return the same, relative to P."""
        return self.expected_gap() / (abs(self.best.certificate.primal) or 1.0)

    def is_due(self, turn: int, tol: float, every: int | None, *, primal: bool) -> bool:
        """Whether the gap may be small enough by now, or will not become so, or nobody has looked for long."""
        close = self.expected_gap() <= tol * abs(self.best.certificate.primal)
        patience = every or max(TURNS_WITHOUT_CERTIFICATE, self.certified_at // 2 if primal else 0)
        return close or self.stuck or turn - self.certified_at >= patience

    def learn(self, found: CertifiedPair, turn: int) -> None:
        """Take what the judge has found."""
        if self.surprise > 0.0:
            self.ratio = found.certificate.gap / self.surprise
        joined = found.joined_with(self.best)
        self.stalled = 0 if joined.certificate.gap < self.best.certificate.gap else self.stalled + 1
        self.best, self.latest, self.certified_at = joined, found.certificate, turn

    def record(
        self,
        at: _State,
        seconds: float,
        tol: float,
        max_epochs: int,
        out_of_time: bool,
        callback: Callable[[Progress], Any] | None,
    ) -> None:
        """Add a row to the trace, tell the callback, and stop where there is a reason to."""
        certificate = self.best.certificate
        progress = Progress(
            at.epochs, seconds, certificate, model=self.number, latest=self.latest, work_seconds=at.work_seconds
        )
        self.trace.rows.append(progress)
        stop_asked = callback is not None and bool(callback(progress))
        stalled = self.stalled >= STALLED_CERTIFICATES and certificate.relative_gap <= TINY_RELATIVE_GAP
        reasons = (
            (certificate.relative_gap <= tol, Status.CONVERGED),
            (stop_asked, Status.STOPPED_BY_CALLBACK),
            (out_of_time, Status.TIME_LIMIT),
            (stalled or self.stuck, Status.NO_PROGRESS),
            (at.epochs >= max_epochs, Status.EPOCH_LIMIT),
        )
        self.status = next((status for holds, status in reasons if holds), None)

    def result(self, chosen: Plan) -> Result:
        """Put together what was found."""
        assert self.status is not None
        return Result.of(self.best, self.status, trace=self.trace, plan=chosen)


def _certify(runner: Runner, moving: Sequence[_Run], due: Sequence[int], turn: int) -> None:
    """Have the problems judge the models that are due, by their dual or their primal points, and let both sides learn."""
    if not due:
        return
    points = [runner.candidate(place) for place in due]
    found = points[0].judged([moving[place].problem for place in due], points)  # type: ignore[arg-type]
    for place, pair in zip(due, found, strict=True):
        moving[place].learn(pair, turn)
        runner.learn(place, pair)


def _open(runs: Sequence[_Run]) -> list[_Run]:
    return [run for run in runs if run.status is None]


def _plan_with(problem: Problem, method: str, tau: Tau, sampling: Sampling | None, models: int, *, near: bool) -> Plan:
    if sampling is None:
        return plan(problem, method=method, tau=tau, models=models, near=near)
    if not isinstance(sampling, Sampling):
        raise DualnewtonError(f"sampling must be a samplings.Sampling, such as samplings.Nice(n, 8), got {sampling!r}")
    if sampling.n != problem.n:
        raise DualnewtonError(
            f"sampling must be over the {problem.n} examples of the problem, got one over {sampling.n}"
        )
    if tau != "auto":
        raise DualnewtonError(
            f"tau must be left to the sampling when one is given, got tau={tau!r} beside {sampling!r}"
        )
    if method == "newton" or not (problem.loss.kinked or problem.loss.has_dual_rounds):
        what = f'method="{method}"' if method == "newton" else repr(problem.loss)
        raise DualnewtonError(
            f"sampling must be None with {what}, for which sets of rows have no rounds, got {sampling!r}"
        )
    chosen = plan(problem, method=method, tau=max(1, round(sampling.expected_size)))
    return replace(chosen, reason=chosen.reason.replace("tau as asked", "sampling as asked"))


def _starting_pairs(
    problems: Sequence[Problem], warm_start: Sequence[Result | np.ndarray] | None, *, primal: bool = False
) -> list[CertifiedPair]:
    """Have the judge look at where the run starts: at nothing, at dual points, or at the models and dual points of results.

    A primal method has no use for the model that belongs to the dual point of a result: it has a better one.
    """
    if warm_start is None:
        return certify_cold_starts(problems)
    if len(warm_start) != len(problems):
        raise DualnewtonError(
            f"warm_start must have one entry for each of {len(problems)} problems, got {len(warm_start)}"
        )
    results = [(k, start) for k, start in enumerate(warm_start) if isinstance(start, Result)]
    pairs: dict[int, CertifiedPair] = {}
    if results:
        own = [problems[k] for k, _ in results]
        # The old intercept, where there is to be one now.
        intercepts = [start.intercept * problem.fit_intercept for problem, (_, start) in zip(own, results, strict=True)]
        duals = [problem.dual_near(start.alpha) for problem, (_, start) in zip(own, results, strict=True)]
        judged = judge_models(own, [start.w for _, start in results], intercepts, duals)
        pairs = {k: pair for (k, _), pair in zip(results, judged, strict=True)}
    points = {
        k: start.alpha if isinstance(start, Result) else start
        for k, start in enumerate(warm_start)
        if not (primal and k in pairs)
    }
    if points:
        duals = [problems[k].dual_near(alpha) for k, alpha in points.items()]
        for k, pair in zip(points, judge_duals([problems[k] for k in points], duals), strict=True):
            pairs[k] = pairs[k].joined_with(pair) if k in pairs else pair
    return [pairs[k] for k in range(len(problems))]


def _same(name: str, problem: Problem, other: Problem) -> bool:
    mine, its = getattr(problem, name), getattr(other, name)
    return mine is its or mine == its


def _alike(problems: Sequence[Problem]) -> list[Problem]:
    problems = list(problems)
    if not problems:
        raise DualnewtonError("problems must hold at least one problem, got none")
    first = problems[0]
    for k, problem in enumerate(problems):
        for name, same in (
            ("X", problem.data.same_as(first.data)),
            ("loss", _same("loss", problem, first)),
            ("regularizer", _same("regularizer", problem, first)),
            ("fit_intercept", problem.fit_intercept == first.fit_intercept),
        ):
            if not same:
                raise DualnewtonError(f"problems must share {name}: problem {k} has another than problem 0")
    return problems


def _generator(random_state: int | np.random.Generator | None) -> np.random.Generator:
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise DualnewtonError(
            f"random_state must be None, a nonnegative integer or a numpy.random.Generator, got {random_state!r}"
        ) from None
