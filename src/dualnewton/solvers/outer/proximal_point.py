"""Losses with a kink, by smooth neighbours that follow the dual point: the method of multipliers.

The dual of a non-smooth loss has no curvature of its own. Add some around a centre α̂, and maximise

    D(α) − (μ/2n) Σ c_i (α_i − α̂_i)²,

which is a proximal step on D. Completing the square, it is the dual of the same problem with the smoothed loss
φ_μ = (φ* + μu²/2)* and the margins shifted by −μα̂: a problem with offsets, which every method of the library solves. Its
solution is the next centre. What smoothing costs is no more than (μ/2n) Σ c_i (α_i − α̂_i)², and that falls with each move of
the centre, so that the width μ need not go to zero, where the smoothed problems become as hard as the first one. (Rockafellar,
Augmented Lagrangians and applications of the proximal point algorithm in convex programming, 1976. For a piecewise linear loss
and a quadratic penalty D is piecewise quadratic, and the centre arrives after a few moves.)

When the stages have found out which examples lie on a kink, :mod:`~dualnewton.solvers.outer.active_kinks` finds the optimum by
linear algebra.

Every stage is judged by the problem of the loss itself; no certificate here is one of a smoothed problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.planning.plan import Plan
from dualnewton.run.checkpoint import Keeper, StageKeeper
from dualnewton.run.result import Progress, Result, Status, Trace
from dualnewton.run.snapshot import Anchors
from dualnewton.solvers.outer.active_kinks import finish

FRACTION = 0.5
"""Of the gap is what the error of a stage may add to the next one."""

GAIN = 10.0
"""A stage that divides the gap by less calls for a narrower width."""

NARROWER = 10.0
"""By so much."""

FINER = 0.3
"""A stage that gains nothing makes FRACTION so much smaller."""

ROUNDING = 4e-15
"""No smaller relative gap is asked of a stage: rounding would have the last word."""

NEARLY, IDLE = 1e-8, 10
"""A stage this near to its own optimum is left after so many certificates in a row that have not halved its relative gap."""

PATIENCE, EXACT = 6, 1e-13
"""Stages in a row without a smaller gap after which nothing more is to be hoped for; one, where the relative gap is rounding."""

MARGINS = 1e-15
"""Rounding of margins, relative to their mean size."""

NATURAL = (Status.CONVERGED, Status.NO_PROGRESS, Status.STOPPED_BY_CALLBACK)
"""How a stage ends that no limit has cut short; the callback is that of the stages themselves."""

Callback = Callable[[Progress], Any]


def follow(
    solve_smooth: Callable[..., list[Result]],
    problems: Sequence[Problem],
    starts: Callable[[], Sequence[CertifiedPair]],
    *,
    tol: float,
    max_epochs: int,
    deadline: float,
    callback: Callback | None,
    keeper: Keeper,
    **settings: Any,
) -> list[Result]:
    """Solve problems that share X and a non-smooth loss, each certified on its own objective.

    Each stage 1. puts the smoothed problems around the centres, 2. solves them as well as the gaps deserve, 3. has the
    problems themselves certify what was found, and what follows from it by linear algebra, 4. records it and stops where there
    is a reason to, 5. chooses the next width, 6. keeps its state, if there is a checkpoint.

    Parameters
    ----------
    solve_smooth : callable
        :func:`dualnewton.solve_many`.
    problems : sequence of Problem
        What is to be solved.
    starts : callable
        Returns a CertifiedPair for each: where to begin.
    tol, max_epochs, callback
        As in :func:`dualnewton.run.loop`. Within a stage the callback is told the last certificate again.
    deadline : float
        By ``time.perf_counter``.
    keeper : Keeper
        Of the state of the stages, and of the one under way.
    settings
        The rest, passed on to the stages.
    """
    began, told = time.perf_counter(), _nobody if callback is None else callback
    anchors = Anchors.of(problems, "given problem") | Anchors({"callback": told})
    if (found := keeper.take()) is not None:
        found.anchors = found.anchors | anchors
        at: _Stages = found.part("stages", _Stages)
        began -= at.seconds
    else:
        at = _Stages(
            [_Model(problem, k, pair) for k, (problem, pair) in enumerate(zip(problems, starts(), strict=True))]
        )
    whole = found is None or bool(_open(at.models))  # whether this is the way of a run without limits, and is news
    inside = found if found is not None and "loop" in found else None
    try:
        while True:
            now = time.perf_counter()
            if at.watch is None:
                # 4. Record. 5. Choose the width.
                for model in _open(at.models):
                    model.record(at.epochs, now - began, tol, max_epochs, now > deadline, told)
                if not (moving := _open(at.models)):
                    break
                at.narrow(moving)
                tolerances = [model.tolerance(at.width) for model in moving]
                at.watch = _Watch(told, moving, tolerances, at.epochs, now - began)
            moving = list(at.watch.moving)
            # 1. Smooth, 2. solve.
            inner = StageKeeper(keeper, partial(at.parts, began), lambda: at.statuses, anchors, at.epochs, inside)
            neighbours = [model.smoothed(at.width) for model in moving]
            results = solve_smooth(
                neighbours,
                tol=min(at.watch.tolerances),
                max_epochs=max(1, math.ceil(max_epochs - at.epochs)),
                time_limit=None if deadline == math.inf else max(0.0, deadline - now),
                warm_start=[model.start for model in moving],
                callback=at.watch,
                checkpoint=inner if whole else None,
                **settings,
            )
            inside = None
            at.epochs, at.plan = at.epochs + max(result.n_epochs for result in results), results[0].plan
            # 3. Certify.
            for model, neighbour, result in zip(moving, neighbours, results, strict=True):
                model.take_in(result, neighbour, tol)
            at.watch = None
            # 6. Keep the state, unless a limit or the user has cut the stage short.
            whole = whole and all(result.status in NATURAL for result in results)
            if whole and keeper.is_due(at.statuses):
                keeper.save(at.parts(began), anchors, at.epochs)
        if whole:
            keeper.finish(at.statuses, at.parts(began), anchors, at.epochs)
    except KeyboardInterrupt:
        for model in _open(at.models):
            model.status = Status.INTERRUPTED
            if not len(model.trace):  # the first callback was interrupted before its turn
                model.trace.rows.append(Progress(at.epochs, 0.0, model.best.certificate, model=model.number))
    return [model.result(_told(at.plan, problems[0].loss, at.widths)) for model in at.models]


@dataclass
class _Stages:
    """All that the stages change, so that a checkpoint can hold it.

    Attributes
    ----------
    models : list of _Model
        In the order of the problems.
    widths : list of float
        Of all stages so far.
    watch : _Watch, optional
        Of the stage that is under way.
    epochs, seconds : float
        How far it is; the seconds are those of earlier processes.
    plan : Plan
        Of the last stage.
    """

    models: list[_Model]
    widths: list[float] = field(default_factory=list)
    watch: _Watch | None = None
    epochs: float = 0.0
    seconds: float = 0.0
    plan: Plan = field(default_factory=lambda: Plan("none", 0, "the start was good enough"))

    @property
    def width(self) -> float:
        """Of the last stage."""
        return self.widths[-1]

    def narrow(self, moving: Sequence[_Model]) -> None:
        """Choose the width of the next stage."""
        if not self.widths:
            self.widths.append(_width(self.models))
        elif any(model.gained < GAIN for model in moving):
            self.widths.append(_power_of_ten(self.width / NARROWER))
        else:
            self.widths.append(self.width)

    @property
    def statuses(self) -> list[Status | None]:
        """How far each model is; one that the user's callback has asked to stop will say so."""
        return [Status.STOPPED_BY_CALLBACK if model.asked_to_stop else model.status for model in self.models]

    def parts(self, began: float) -> dict[str, Any]:
        """Return what a checkpoint holds."""
        return {"stages": replace(self, seconds=time.perf_counter() - began)}


@dataclass
class _Model:
    """What the stages know of one model: its best certified pair, the centre, and how well the last stage went."""

    problem: Problem
    number: int
    best: CertifiedPair
    stalled: int = 0
    gained: float = math.inf
    fraction: float = FRACTION
    last: Result | None = None
    asked_to_stop: bool = False
    status: Status | None = None
    trace: Trace = field(default_factory=Trace)

    @property
    def start(self) -> Result | np.ndarray:
        """Where the next stage starts."""
        return self.best.alpha if self.last is None else self.last

    @property
    def centre(self) -> np.ndarray:
        """α̂: where the last stage ended, not the best dual point, from which the steps would be repeated."""
        return self.best.alpha if self.last is None else self.last.alpha

    def smoothed(self, width: float) -> Problem:
        """Return the problem of a proximal step of the given width."""
        loss = self.problem.loss.smoothed(width)
        return replace(self.problem, loss=loss, offset=self.problem.o - width * self.centre)

    def tolerance(self, width: float) -> float:
        """Return the relative gap that the next stage deserves.

        A gap of e leaves the margins of the smoothed problem, whose dual is μ-strongly concave, uncertain by δ_i with
        mean c_i δ_i² ≤ 2μe, and so P by √(2μe mean c_i), since no slope exceeds one. This shall be a fraction of the gap. P of
        the smoothed problem, by which e is divided, is larger than ours by the shift of its margins.
        """
        c, certificate = self.problem.c, self.best.certificate
        enough = min((self.fraction * certificate.gap) ** 2 / (2.0 * width * float(c.mean())), 0.1 * certificate.gap)
        primal = abs(certificate.primal) + 0.5 * width * float(c @ np.square(self.centre)) / self.problem.n
        return max(enough / primal, ROUNDING)

    def take_in(self, stage: Result, neighbour: Problem, tol: float) -> None:
        """Have the problem judge what a stage has found and, where that falls short, what follows from it by linear algebra."""
        before = self.best.certificate.gap
        self.best = self.problem.certified_pair(stage.w, alpha=stage.alpha).joined_with(self.best)
        gap, whole = self.best.certificate.relative_gap, stage.status in NATURAL and not self.asked_to_stop
        if gap > tol and whole and (found := finish(self.problem, neighbour, stage, gap)) is not None:
            self.best = self.problem.certified_pair(found[0], alpha=found[1]).joined_with(self.best)
        after = self.best.certificate.gap
        self.gained = before / after if after > 0.0 else math.inf
        self.stalled = 0 if self.gained > 1.0 else self.stalled + 1
        if self.gained < 2.0:
            self.fraction *= FINER
        self.last = stage

    @property
    def is_exact(self) -> bool:
        """Whether the gap is rounding: of P or, where its losses are much smaller than their margins, of these."""
        if self.best.certificate.relative_gap <= EXACT:
            return True
        sizes = np.abs(self.problem.margins(self.best.w, self.best.intercept))
        return self.best.certificate.gap <= MARGINS * float(self.problem.c @ sizes) / self.problem.n

    def record(
        self,
        epoch: float,
        seconds: float,
        tol: float,
        max_epochs: int,
        out_of_time: bool,
        callback: Callback,
    ) -> None:
        """Add a row to the trace, tell the callback, and stop where there is a reason to."""
        progress = Progress(epoch, seconds, self.best.certificate, model=self.number)
        self.trace.rows.append(progress)
        self.asked_to_stop |= bool(callback(progress))
        interrupted = self.last is not None and self.last.status is Status.INTERRUPTED
        reasons = (
            (self.best.certificate.relative_gap <= tol, Status.CONVERGED),
            (self.asked_to_stop, Status.STOPPED_BY_CALLBACK),
            (interrupted, Status.INTERRUPTED),
            (out_of_time, Status.TIME_LIMIT),
            (epoch >= max_epochs, Status.EPOCH_LIMIT),
            (self.stalled >= PATIENCE or (self.stalled > 0 and self.is_exact), Status.NO_PROGRESS),
        )
        self.status = next((status for holds, status in reasons if holds), None)

    def result(self, plan: Plan) -> Result:
        """Put together what was found."""
        assert self.status is not None
        return Result.of(self.best, self.status, trace=self.trace, plan=plan)


def _open(models: Sequence[_Model]) -> list[_Model]:
    return [model for model in models if model.status is None]


def _width(models: Sequence[_Model]) -> float:
    """Begin where smoothing may cost about as much as the gap: (μ/2n) Σ c_i, since |α_i| ≤ 1 for a loss of slopes up to one."""
    most = max(2.0 * model.best.certificate.gap / float(model.problem.c.mean()) for model in models)
    return _power_of_ten(most) if 0.0 < most < math.inf else 1.0


def _power_of_ten(width: float) -> float:
    """Return the nearest one below, so that one compiled loss serves many fits."""
    return float(10.0 ** math.floor(math.log10(width) + 1e-9))


class _Watch:
    """The callback of a stage: it ends each model where that has what it deserves, or where rounding holds it up.

    The user's callback is told of the time that goes by. What is proved within a stage is what was proved before it, until the
    problem itself judges.
    """

    def __init__(
        self,
        callback: Callback,
        moving: Sequence[_Model],
        tolerances: Sequence[float],
        epochs: float,
        seconds: float,
    ) -> None:
        self.callback, self.moving, self.epochs, self.seconds = callback, moving, epochs, seconds
        self.tolerances = tolerances
        self.lowest = [math.inf] * len(moving)
        self.idle = [0] * len(moving)

    def __call__(self, progress: Progress) -> bool:
        model = self.moving[progress.model]
        if progress.epoch > 0.0:
            at = (self.epochs + progress.epoch, self.seconds + progress.seconds)
            model.asked_to_stop |= bool(self.callback(Progress(*at, model.best.certificate, model=model.number)))
        return model.asked_to_stop or self._is_over(progress)

    def _is_over(self, progress: Progress) -> bool:
        k, gap = progress.model, progress.certificate.relative_gap
        self.idle[k] = 0 if gap <= 0.5 * self.lowest[k] else self.idle[k] + 1
        self.lowest[k] = min(self.lowest[k], gap)
        return gap <= self.tolerances[k] or (gap <= NEARLY and self.idle[k] >= IDLE)


def _nobody(progress: Progress) -> bool:  # noqa: ARG001
    """Listen in the place of a callback that was not given; it asks for nothing."""
    return False


def _told(plan: Plan, loss: Any, widths: Sequence[float]) -> Plan:
    if not widths:
        return plan
    stages = f"{len(widths)} stage{'s' if len(widths) > 1 else ''} of width {widths[0]:.0e} to {widths[-1]:.0e}"
    return replace(plan, reason=f"{type(loss).__name__} by smooth neighbours, {stages}; in the last: {plan.reason}")
