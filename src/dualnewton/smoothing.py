"""Losses with a kink, by smooth neighbours that follow the dual point: the method of multipliers.

The dual of a non-smooth loss has no curvature of its own. Add some around a centre α̂, and maximise

    D(α) − (μ/2n) Σ c_i (α_i − α̂_i)²,

which is a proximal step on D. Completing the square, it is the dual of the same problem with the smoothed loss
φ_μ = (φ* + μu²/2)* and the margins shifted by −μα̂: a problem with offsets, which every method of the library solves. Its
solution is the next centre. What smoothing costs is no more than (μ/2n) Σ c_i (α_i − α̂_i)², and that falls with each move of
the centre, so that the width μ need not go to zero, where the smoothed problems become as hard as the first one. (Rockafellar,
Augmented Lagrangians and applications of the proximal point algorithm in convex programming, 1976. For a piecewise linear loss
and a quadratic penalty D is piecewise quadratic, and the centre arrives after a few moves.)

Every stage is judged by the problem of the loss itself; no certificate here is one of a smoothed problem.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dualnewton.certificate import CertifiedPair
from dualnewton.losses import NonSmooth
from dualnewton.plan import Plan
from dualnewton.problem import Problem
from dualnewton.result import Progress, Result, Status, Trace

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

Callback = Callable[[Progress], Any]


def follow(
    solve_smooth: Callable[..., list[Result]],
    problems: Sequence[Problem],
    starts: Sequence[CertifiedPair],
    *,
    tol: float,
    max_epochs: int,
    deadline: float,
    callback: Callback | None,
    **settings: Any,
) -> list[Result]:
    """Solve problems that share X and a non-smooth loss, each certified on its own objective.

    Each stage 1. puts the smoothed problems around the centres, 2. solves them as well as the gaps deserve, 3. has the
    problems themselves certify what was found, 4. records it and stops where there is a reason to, 5. chooses the next width.

    Parameters
    ----------
    solve_smooth : callable
        :func:`dualnewton.solve_many`.
    problems, starts : sequences of Problem, CertifiedPair
        What is to be solved, and where to begin.
    tol, max_epochs, callback
        As in :func:`dualnewton.solve`. Within a stage the callback is told the last certificate again.
    deadline : float
        By ``time.perf_counter``.
    settings
        The rest, passed on to the stages.
    """
    began = time.perf_counter()
    models = [_Model(problem, k, pair) for k, (problem, pair) in enumerate(zip(problems, starts, strict=True))]
    width = _width(models)
    widths: list[float] = []
    epochs, plan = 0.0, Plan("none", 0, "the start was good enough")
    try:
        while True:
            # 4. Record. 5. Choose the width.
            now = time.perf_counter()
            for model in _open(models):
                model.record(epochs, now - began, tol, max_epochs, now > deadline, callback)
            if not (moving := _open(models)):
                break
            if widths and any(model.gained < GAIN for model in moving):
                width = _power_of_ten(width / NARROWER)
            widths.append(width)
            # 1. Smooth, 2. solve.
            found = solve_smooth(
                [model.smoothed(width) for model in moving],
                tol=min(model.tolerance(width) for model in moving),
                max_epochs=max(1, math.ceil(max_epochs - epochs)),
                time_limit=None if deadline == math.inf else max(0.0, deadline - now),
                warm_start=[model.start for model in moving],
                callback=_Watch(callback, moving, [model.tolerance(width) for model in moving], epochs, now - began),
                **settings,
            )
            epochs, plan = epochs + max(result.n_epochs for result in found), found[0].plan
            # 3. Certify.
            for model, result in zip(moving, found, strict=True):
                model.take_in(result)
    except KeyboardInterrupt:
        for model in _open(models):
            model.status = Status.INTERRUPTED
            if not len(model.trace):  # the first callback was interrupted before its turn
                model.trace.rows.append(Progress(epochs, 0.0, model.best.certificate, model.number))
    return [model.result(_told(plan, problems[0].loss, widths)) for model in models]


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
        loss = self.problem.loss
        assert isinstance(loss, NonSmooth)
        return replace(self.problem, loss=loss.smoothed(width), offset=self.problem.o - width * self.centre)

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

    def take_in(self, stage: Result) -> None:
        """Have the problem judge what a stage has found."""
        before = self.best.certificate.gap
        self.best = self.problem.certified_pair(stage.w, alpha=stage.alpha).joined_with(self.best)
        after = self.best.certificate.gap
        self.gained = before / after if after > 0.0 else math.inf
        self.stalled = 0 if self.gained > 1.0 else self.stalled + 1
        if self.gained < 2.0:
            self.fraction *= FINER
        self.last = stage

    def record(
        self,
        epoch: float,
        seconds: float,
        tol: float,
        max_epochs: int,
        out_of_time: bool,
        callback: Callback | None,
    ) -> None:
        """Add a row to the trace, tell the callback, and stop where there is a reason to."""
        progress = Progress(epoch, seconds, self.best.certificate, self.number)
        self.trace.rows.append(progress)
        self.asked_to_stop |= callback is not None and bool(callback(progress))
        interrupted = self.last is not None and self.last.status is Status.INTERRUPTED
        reasons = (
            (self.best.certificate.relative_gap <= tol, Status.CONVERGED),
            (self.asked_to_stop, Status.STOPPED_BY_CALLBACK),
            (interrupted, Status.INTERRUPTED),
            (out_of_time, Status.TIME_LIMIT),
            (epoch >= max_epochs, Status.EPOCH_LIMIT),
            (self.stalled >= (1 if self.best.certificate.relative_gap <= EXACT else PATIENCE), Status.NO_PROGRESS),
        )
        self.status = next((status for holds, status in reasons if holds), None)

    def result(self, plan: Plan) -> Result:
        """Put together what was found."""
        assert self.status is not None
        return Result.of(self.best, self.status, self.trace, plan)


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
        callback: Callback | None,
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
        if progress.epoch > 0.0 and self.callback is not None:
            at = (self.epochs + progress.epoch, self.seconds + progress.seconds)
            model.asked_to_stop |= bool(self.callback(Progress(*at, model.best.certificate, model.number)))
        return model.asked_to_stop or self._is_over(progress)

    def _is_over(self, progress: Progress) -> bool:
        k, gap = progress.model, progress.certificate.relative_gap
        self.idle[k] = 0 if gap <= 0.5 * self.lowest[k] else self.idle[k] + 1
        self.lowest[k] = min(self.lowest[k], gap)
        return gap <= self.tolerances[k] or (gap <= NEARLY and self.idle[k] >= IDLE)


def _told(plan: Plan, loss: Any, widths: Sequence[float]) -> Plan:
    if not widths:
        return plan
    stages = f"{len(widths)} stage{'s' if len(widths) > 1 else ''} of width {widths[0]:.0e} to {widths[-1]:.0e}"
    return replace(plan, reason=f"{type(loss).__name__} by smooth neighbours, {stages}; in the last: {plan.reason}")
