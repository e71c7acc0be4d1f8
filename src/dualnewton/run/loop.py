"""The one loop that draws, iterates, certifies, records and stops."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.matrix.blas import one_blas_thread
from dualnewton.matrix.workers import threads
from dualnewton.planning.plan import Plan, Tau
from dualnewton.planning.switching import Switching
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.checkpoint import AnyCheckpoint, Keeper, identity_of, keeper_of
from dualnewton.run.direct import solved_directly
from dualnewton.run.methods import make_method
from dualnewton.run.result import Progress, Result, Status
from dualnewton.run.snapshot import FAULTS
from dualnewton.run.start import (
    Seed,
    Start,
    checked_callback,
    checked_problems,
    direct_plan_for,
    generator_source,
    has_model,
    run_plan,
    starting_pairs,
    switching_of,
    without_float_warnings,
)
from dualnewton.run.track import RunState, Track
from dualnewton.samplings import Sampling
from dualnewton.solvers.protocol import Method, Request, certified
from dualnewton.solvers.state import assign, record
from dualnewton.validation import integer, positive


def solve(
    problem: Any,
    *,
    method: str = "auto",
    tau: Tau = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: Start | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: AnyCheckpoint = None,
    certify_every: int | None = None,
    tuning: Tuning | None = None,
) -> Result:
    """Minimise the objective of a problem; return the model with a certificate of its distance from the minimum.

    Each step 1. records the last certificate and stops if a status applies, 2. updates the models (by rounds on random sets of
    examples, or by passes over the data), 3. changes the method if the gap decreases more slowly than predicted, 4. certifies
    the new point from the data, if a certificate is due; then writes the checkpoint, if it is due.

    Parameters
    ----------
    problem : Problem
        The problem to solve. (For a loss of K > 1 columns, w is K×d, the intercept a vector and alpha n×K.) It may also be a
        :class:`~dualnewton.objective.huber_scale.HuberScaleProblem` or an
        :class:`~dualnewton.objective.unpenalised.Unpenalised` risk.
    method : {"auto", "sdna", "sdca", "newton", "ihs", "interior"}
        "auto" chooses the method with the least predicted cost, and changes it if the gap decreases more slowly than predicted.
        "sdna" maximises the dual over random sets of examples, "sdca" does so for each example of a set separately; "newton" is
        Newton's method, "ihs" the same with the Hessian of a sample of rows, "interior" an interior-point method.
        Piecewise linear losses are solved without smoothing by "sdna" and "sdca" and, with a quadratic penalty, by
        "interior"; "newton" and "ihs" solve smoothed losses.
    tau : int or "auto"
        The number of examples in a set (a round updates one set); with "ihs", of rows in the first sample.
    sampling : Sampling, optional
        The distribution of the random sets. By default: a new permutation of all examples, cut into sets of τ, and between two
        permutations (compiled rounds only) sweeps over the active examples, those with a large dual residual.
    tol : float
        Stop when the certified relative gap (P − D)/|P| is at most this.
    max_epochs : int
        Limit on the epochs (passes over the data).
    time_limit : float, optional
        Limit in seconds; the result is the best certified model so far. If it is reached, the bits of the result
        depend on the clock, even if it meets ``tol`` and its status is ``CONVERGED``.
    n_threads : int, optional
        The number of threads; one by default. A given method returns the same bits for any number; "auto" may choose another
        method for another number.
    random_state : int, numpy.random.Generator or None
        The same seed gives the same result, bit for bit. None draws a new seed (estimators use a fixed one).
    warm_start : Result or array of shape (n,), optional
        Start from the model and the dual point of an earlier result, of this or a similar problem, or from a dual point.
    callback : callable, optional
        Called with a :class:`Progress` after each certificate; a true return value stops the run. If the problem is solved
        through other problems (a loss with a kink by smoothed losses), it is also called after each step of these, with the last
        certificate.
    checkpoint : path or Checkpoint, optional
        A file to which the state of the run is written. If it exists, and is of this problem and these settings, the run
        continues from it and ends, bit for bit, as if it had never stopped. Limits, threads and the callback may differ. The file
        is not removed when the run ends.
    certify_every : int, optional
        The largest number of steps (about an epoch each) between two certificates; 1 for a trace of every epoch. By default a
        certificate is computed only when it may end the run or change the method, since each costs about an epoch.
    tuning : Tuning, optional
        The numbers by which the planner predicts costs, from ``dualnewton.planning.tuning``.

    Returns
    -------
    Result
        The best certified model, also after Ctrl-C or a limit; ``result.status`` says how the run ended.

    Examples
    --------
    >>> import dualnewton as dn
    >>> problem = dn.Problem([[2.0, 1.0], [1.0, 2.0]], [1.0, -1.0], dn.losses.Logistic(), lam=0.1)
    >>> dn.solve(problem, tol=1e-8).certificate.relative_gap <= 1e-8
    True
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
        tuning=tuning,
    )[0]


def solve_many(
    problems: Sequence[Any],
    *,
    method: str = "auto",
    tau: Tau = "auto",
    sampling: Sampling | None = None,
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: Seed = None,
    warm_start: Sequence[Start] | None = None,
    callback: Callable[[Progress], Any] | None = None,
    checkpoint: AnyCheckpoint = None,
    certify_every: int | None = None,
    tuning: Tuning | None = None,
) -> list[Result]:
    """Fit several models over the same data in shared passes: classes, outputs, values of λ, weights.

    The problems must share X (the same object), the loss, the regulariser and ``fit_intercept``; labels, λ, weights and offsets
    may differ. Each has its own certificate, and is left out of the passes once that meets ``tol``. The parameters are those of
    :func:`solve`; ``warm_start`` has one entry per problem, and ``progress.model`` is the number of the model. ``random_state``
    may be a function that returns a generator: it is called only if the run uses random numbers.

    Examples
    --------
    >>> import dualnewton as dn
    >>> data = dn.data.load("diabetes")
    >>> problems = (dn.Problem(data.X, data.y, dn.losses.Squared(), lam=lam) for lam in (1.0, 0.1))
    >>> assert all(result.converged for result in dn.solve_many(list(problems)))
    """
    problems = checked_problems(problems)
    max_epochs = integer("max_epochs", max_epochs, 0)
    request = Request(
        method,
        tau,
        sampling,
        positive("tol", tol, or_zero=True),
        None if certify_every is None else integer("certify_every", certify_every, 1),
        1 if n_threads is None else integer("n_threads", n_threads, 1),
        checked_callback(callback),
        near=warm_start is not None and all(map(has_model, warm_start)),
        cold=warm_start is None,
        tuning=tuning or DEFAULT,
    )
    limit = math.inf if time_limit is None else positive("time_limit", time_limit, or_zero=True)
    deadline, numbers, keeper = time.perf_counter() + limit, generator_source(random_state), None
    if checkpoint is not None:
        rng, placed = numbers(), problems[0].data.placed
        seeded = None if random_state is None else rng
        keeper = keeper_of(checkpoint, lambda: identity_of(problems, warm_start, seeded, request), rng, placed)
    return solved(problems, request, warm_start, numbers, max_epochs, deadline, keeper)


def solved(
    problems: list[Any],
    request: Request,
    warm_start: Sequence[Start] | None,
    numbers: Callable[[], np.random.Generator],
    max_epochs: int,
    deadline: float,
    keeper: Keeper | None = None,
) -> list[Result]:
    """Do the same as :func:`solve_many` for arguments that are checked already, as those of an estimator are."""
    with one_blas_thread, threads(request.n_threads), without_float_warnings():
        interrupted, known = False, list[Any]()
        try:
            if keeper is None:
                found, known = solved_directly(problems, request, warm_start, max_epochs, deadline)
                if found:
                    return found
        except KeyboardInterrupt:
            interrupted = True
        run = _resumed(problems, request, keeper) or Run.start(problems, request, warm_start, known)
        if interrupted:
            run.interrupt()
        _drive(run, numbers(), max_epochs, deadline, keeper)
    for track in run.tracks:
        track.best = track.problem.bounded(track.best)
    return [track.result(run.plan) for track in run.tracks]


def _resumed(problems: Sequence[Any], request: Request, keeper: Keeper | None) -> Run | None:
    """Return the run restored from the checkpoint, if there is one."""
    if keeper is None or (state := keeper.take()) is None:
        return None
    try:
        run = Run.restored(problems, request, state)
        run.recertify()
    except FAULTS as error:
        raise keeper.damaged(error) from error
    return run


def _drive(run: Run, rng: np.random.Generator, max_epochs: int, deadline: float, keeper: Keeper | None) -> None:
    """Take steps until the run ends, also by Ctrl-C; save its state if there is a checkpoint."""
    unlimited = True  # while the state equals that of a run without limits
    try:
        while not run.finished:
            most = max_epochs - run.epochs
            spent = run.step(rng, deadline, most)
            unlimited = unlimited and spent < most and time.perf_counter() <= deadline
            if unlimited and keeper is not None and keeper.is_due(run.statuses):
                keeper.save(run.state(), run.epochs, run.finished)
    except KeyboardInterrupt:
        run.interrupt()


@dataclass
class Run:
    """A run on problems that share X."""

    request: Request
    tracks: list[Track]  # of all models
    moving: list[Track]  # of those in the last step, in the order of the method
    plan: Plan
    switching: Switching | None  # None for an outer scheme, whose inner runs switch
    method: Method | None = None  # None if a new one must be built
    steps: int = 0
    epochs: float = 0.0
    work_seconds: float = 0.0  # of the methods' steps alone, without certificates, in all processes
    restarted: bool = False  # whether the warm start was dropped
    seconds: float = 0.0  # in earlier processes
    since: float = field(default_factory=time.perf_counter)  # when this process began

    @classmethod
    def start(
        cls, problems: Sequence[Any], request: Request, warm_start: Sequence[Start] | None = None, known: Any = ()
    ) -> Run:
        """Plan a run, and certify its starting point; ``known``: what the direct solver of the plan found when it was called."""
        request = replace(request, cold=warm_start is None)
        plan = direct_plan_for(problems, request) or run_plan(problems[0], request, len(problems))
        switching = switching_of(problems[0], plan, request, len(problems))
        since = time.perf_counter()
        pairs = starting_pairs(problems, warm_start, primal=plan.is_primal, shared=not problems[0].own_starts)
        tracks = [Track(problems[k], k, pair, pair.certificate) for k, pair in enumerate(pairs)]
        run = cls(request, tracks, tracks, plan, switching, since=since)
        run.method = run._new_method(tracks, known) if known else None
        return run

    @property
    def finished(self) -> bool:
        """Whether all models have ended."""
        return all(track.status is not None for track in self.tracks)

    @property
    def open(self) -> list[Track]:
        """The models that have not ended."""
        return [track for track in self.tracks if track.status is None]

    @property
    def statuses(self) -> list[Status | None]:
        """The status of each model."""
        return [track.status for track in self.tracks]

    # One step ----------------------------------------------------------------------------------------------------------

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Take a step, of about ``most`` epochs at most; return how many it took."""
        # 1. Record, and stop if a status applies.
        self._record(late=time.perf_counter() > deadline, exhausted=most <= 0.0)
        if self.finished:
            return 0.0
        # 2. Update the models.
        method, began = self._current_method(), time.perf_counter()
        spent = method.step(rng, deadline, most)
        self.work_seconds += time.perf_counter() - began
        self.epochs += spent
        self.steps += 1
        last = time.perf_counter() > deadline or spent >= most
        for place, track in enumerate(self.moving):
            track.update(method, place)
        # 3. Choose another method.
        better = None if self.switching is None else self._better(self.switching, most - spent, last=last)
        # 4. Certify.
        anyway = last or better is not None or method.certificates_are_cheap
        at = self.steps, self.plan, self.request
        places = [k for k, track in enumerate(self.moving) if method.offers(k) and (anyway or track.is_due(*at))]
        self._certify({place: method.point(place) for place in places})
        for place, track in enumerate(self.moving):
            method.adapt(place, track.expected_gap(), track.residual)
        if (reported := method.reported(self.plan)) is not self.plan:
            self.plan = replace(reported, family=self.plan.family)  # the family of an inner run is not this run's
        if better is None and not last:
            better = self._after_direct()
        if better is not None:
            self._switch_to(better)
        elif not last and not self.restarted and any(track.is_misled(self.plan, self.request) for track in self.moving):
            self._restart()
        return spent

    def _after_direct(self) -> Plan | None:
        """Return the plan of an iterative method for models whose direct solution misses the tolerance, cold starts included."""
        missed = [track for track in self.moving if track.best.certificate.relative_gap > self.request.tol]
        if self.plan.family is None or not missed or (self.method is not None and self.method.restart()):
            return None
        plan = run_plan(missed[0].problem, self.request, len(missed)) if self.plan.before is None else self.plan
        plan = replace(plan, family=None)  # the steps of a direct solver, driven by the loop
        return plan.after(self.plan, f"the direct solution missed tol; {plan.reason}")

    def _record(self, *, late: bool, exhausted: bool) -> None:
        """Add the certificates of the last step to the traces, call the callback, and set the status of models that end."""
        callback, iterates = self.request.callback, self.plan.family is None
        if self.steps == 0 and not iterates and self.request.cold and not (late or exhausted):
            return  # a direct solver without a warm start: its solution is the first recorded point
        for track in self.open:
            is_new = track.certified_at == self.steps
            if not self.certified_last(track.number):
                continue
            row = self._row(track, add=is_new)
            asked = callback is not None and bool(callback(row))
            if asked and not is_new:
                self._end_early([track])
            if asked or is_new:
                track.end(self.request, asked=asked, late=late, exhausted=exhausted, iterates=iterates)

    def certified_last(self, number: int) -> bool:
        """Whether the last step has certified a point of this model, or of the same model in an inner run."""
        track, method = self.tracks[number], self.method
        if track.certified_at == self.steps or method is None or track not in self.moving:
            return track.certified_at == self.steps
        return method.certified_last(self.moving.index(track))

    def _row(self, track: Track, *, add: bool = True) -> Progress:
        at = (self.epochs, self.seconds + time.perf_counter() - self.since, track.best.certificate)
        row = Progress(*at, model=track.number, latest=track.latest, work_seconds=self.work_seconds)
        if add:
            track.trace.rows.append(row)
            track.recorded_at = self.steps
        return row

    def _current_method(self) -> Method:
        """Return the method, for the models that have not ended."""
        moving = self.open
        if self.method is None:
            self.method = self._new_method(moving)
        elif len(moving) < len(self.moving):
            self.method.keep([place for place, track in enumerate(self.moving) if track.status is None])
        self.moving = moving
        return self.method

    def _new_method(self, moving: Sequence[Track], known: Sequence[Any] = ()) -> Method:
        return self._method_at([(track.problem, track.best) for track in moving], known)

    def _method_at(self, starts: Sequence[tuple[Any, Any]], known: Sequence[Any] = ()) -> Method:
        request = replace(self.request, cold=True, near=False) if self.restarted else self.request
        return make_method(self.plan, starts, request, Run, known)

    def _better(self, switching: Switching, remaining: float, *, last: bool) -> Plan | None:
        """Return the plan of a method that is clearly better for the rest of the run."""
        slowest = max(self.moving, key=Track.expected_relative_gap)
        switching.note(self.epochs, slowest.expected_relative_gap(), slowest.residual)
        tol = self.request.tol
        stuck = any(track.stuck and track.expected_relative_gap() > tol for track in self.moving)
        return None if last else switching.better(stuck=stuck, remaining=remaining)

    def _switch_to(self, plan: Plan) -> None:
        assert self.method is not None
        if self.switching is None:
            self.switching = switching_of(self.moving[0].problem, plan, self.request, len(self.tracks))
        else:
            self.switching.change_to(plan)
        for track in self.moving:
            track.stuck, track.ratio = False, math.nan
        self.plan, self.method = plan, None

    def _restart(self) -> None:
        """Begin again without the warm start; the best points so far are kept."""
        self.restarted, problems = True, [track.problem for track in self.moving]
        pairs = starting_pairs(problems, None, shared=not problems[0].own_starts)
        self.method = self._method_at(list(zip(problems, pairs, strict=True)))
        self.plan = replace(self.plan, reason=f"{self.plan.reason}; once more without the warm start")
        for track in self.moving:
            track.stuck, track.ratio = False, math.nan

    def _certify(self, points: dict[int, Any]) -> None:
        """Have the problems certify points of the models with these indices, and pass the certified pairs to the method."""
        for place in [place for place, point in points.items() if not point.is_finite]:
            self.moving[place].fail(self.steps)
            del points[place]
        if not points:
            return
        assert self.method is not None
        found = certified([self.moving[place].problem for place in points], list(points.values()))
        if not self.request.proved:  # an inner run, whose scheme works in memory
            found = [pair.in_memory() for pair in found]
        for place, pair in zip(points, found, strict=True):
            track = self.moving[place]
            track.learn(pair, self.steps)
            self.method.learn(place, pair, track.best)
            track.stuck = self.method.is_stuck(place)

    # The end -----------------------------------------------------------------------------------------------------------

    def _end_early(self, tracks: Sequence[Track]) -> None:
        """Certify and record the best points of an inner run so far, for models that end before it does."""
        if self.method is None:
            return
        places = [place for place, track in enumerate(self.moving) if track in tracks]
        points = {k: point for k in places if (point := self.method.unfinished(k)) is not None}
        self._certify(points)
        for place in points:
            self._row(self.moving[place])

    def interrupt(self) -> None:
        """End all models, with their best points so far."""
        with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C
            self._end_early(self.open)
        for track in self.open:
            if track.recorded_at < track.certified_at:
                self._row(track)
            track.end(self.request, interrupted=True)

    def keep(self, numbers: Collection[int]) -> None:
        """Continue with these models only."""
        for track in self.open:
            if track.number not in numbers:
                track.status = Status.STOPPED_BY_CALLBACK

    # The checkpoint ----------------------------------------------------------------------------------------------------

    def recertify(self) -> None:
        """Recompute the certificates of a restored run; models whose status they do not confirm continue."""
        for track in self.tracks:
            track.recertify(self.steps, self.request.tol)

    def state(self) -> RunState:
        """Return the state of the run and of its inner runs."""
        return record(
            RunState,
            self,
            tracks=tuple(track.state() for track in self.tracks),
            moving=tuple(track.number for track in self.moving),
            switching=None if self.switching is None else self.switching.state,
            method=None if self.method is None or self.finished else self.method.state(),
            seconds=self.seconds + time.perf_counter() - self.since,
        )

    @classmethod
    def restored(cls, problems: Sequence[Any], request: Request, state: RunState) -> Run:
        """Return the run with this state: everything derived from the problems and the request is recomputed."""
        tracks = [Track.restored(problems[k], k, own) for k, own in enumerate(state.tracks)]
        moving = [tracks[k] for k in state.moving]
        switching = switching_of(problems[0], state.plan, request, len(problems))
        run = cls(request, tracks, moving, state.plan, switching)
        assign(run, state, tracks=tracks, moving=moving, switching=switching, method=None)
        if switching is not None and state.switching is not None:
            switching.state = state.switching
        if state.method is not None:
            run.method = run._new_method(run.moving)
            run.method.restore(state.method)
        return run
