"""Drive a regression with a joint scale: fits at one scale after the other, then Newton's method in all variables."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.huber_scale import MOST, MOST_WIDE, ConcomitantProblem, ScaledPair
from dualnewton.planning.plan import Plan
from dualnewton.run.loop import solve
from dualnewton.run.result import Progress, Result, Status, Trace
from dualnewton.validation import integer, positive

FRACTION, FINER, FINEST = 1e-3, 1e-2, 1e-15
"""Of the joint gap is what the fit at one scale may leave; less after each that gained nothing; and the least relative gap."""

TINY = 1e-6
"""A scale that should fall to this fraction of the first is likely to be zero, which is tried once."""

ROUNDING = 1e-14
"""A scale below this fraction of the largest target is zero but for rounding."""

STEP_EPOCHS = 1.0
"""What a step of Newton's method counts for."""

PATIENCE = 10
"""Stages in a row without a smaller gap after which nothing more is to be hoped for."""

Callback = Callable[[Progress], Any]


@dataclass(frozen=True, eq=False)
class ScaledResult(Result):
    """A :class:`Result` with the scale σ of the residuals."""

    scale: float = math.nan


def solve_concomitant(
    problem: ConcomitantProblem,
    method: str = "auto",
    tol: float = 1e-6,
    max_epochs: int = 1000,
    time_limit: float | None = None,
    n_threads: int | None = None,
    random_state: int | np.random.Generator | None = None,
    warm_start: ScaledResult | None = None,
    callback: Callback | None = None,
) -> ScaledResult:
    """Fit w, b and σ together; ``tol`` is on the relative gap of the joint objective.

    Each stage 1. fits the model at one scale or, where that was done and the features are few enough, takes a step of Newton's
    method in all variables, 2. certifies it jointly, at the best scale for its residuals, 3. records that and stops where
    there is a reason to, 4. chooses the next scale: where the line through the last two says that the best one for the
    residuals is the one they come from. The best one lies on the same side of that point as the optimum, so every fit
    narrows a bracket.

    Parameters are those of :func:`solve`.
    """
    run = _Run(
        problem,
        positive("tol", tol, or_zero=True),
        integer("max_epochs", max_epochs, 0),
        math.inf if time_limit is None else positive("time_limit", time_limit, or_zero=True),
        callback,
        _start(problem, warm_start),
    )
    settings = {"method": method, "n_threads": n_threads, "random_state": np.random.default_rng(random_state)}
    try:
        while not run.is_over():  # 3.
            run.take_in(run.stepped() or run.fitted(settings))
    except KeyboardInterrupt:
        run.status = Status.INTERRUPTED
    return run.result()


class _Run:
    """What the stages know: the best certified pair, where the last one ended, and how far that went."""

    def __init__(
        self,
        problem: ConcomitantProblem,
        tol: float,
        max_epochs: int,
        time_limit: float,
        callback: Callback | None,
        start: ScaledPair,
    ) -> None:
        self.problem, self.tol, self.max_epochs, self.callback = problem, tol, max_epochs, callback
        self.began = time.perf_counter()
        self.deadline = self.began + time_limit
        self.best = self.here = start
        # For ε = 1 no dual point is beyond the ball: the scale is zero, or as good as zero. So it is where the residuals of most
        # examples are the rounding of their targets.
        rounding = ROUNDING * float(np.abs(problem.unit.y).max(initial=0.0))
        self.search = _Search(start.scale if problem.epsilon > 1.0 and start.scale > rounding else 0.0)
        self.trace, self.plan = Trace(), Plan("none", 0, "the start was good enough")
        self.status: Status | None = None
        self.last = Status.CONVERGED
        self.epochs, self.fraction, self.stalled, self.fits = 0.0, FRACTION, 0, 0

    def is_over(self) -> bool:
        """Add a row to the trace, tell the callback, and say whether there is a reason to stop."""
        now = time.perf_counter()
        row = Progress(self.epochs, now - self.began, self.best.certificate)
        self.trace.rows.append(row)
        asked = self.callback is not None and bool(self.callback(row))
        reasons = (
            (self.best.certificate.relative_gap <= self.tol, Status.CONVERGED),
            (asked or self.last is Status.STOPPED_BY_CALLBACK, Status.STOPPED_BY_CALLBACK),
            (self.last is Status.INTERRUPTED, Status.INTERRUPTED),
            (now > self.deadline, Status.TIME_LIMIT),
            (self.epochs >= self.max_epochs, Status.EPOCH_LIMIT),
            (self.stalled >= PATIENCE, Status.NO_PROGRESS),
        )
        self.status = next((status for holds, status in reasons if holds), None)
        return self.status is not None

    def stepped(self) -> ScaledPair | None:
        """1. Take a step from where the last stage ended, 2. and certify it; None if there is no way down, or no matrix."""
        if self.fits == 0 or self.search.scale == 0.0 or self.here.scale == 0.0 or not self._has_matrix():
            return None
        moved = self.problem.stepped(self.here.w, self.here.intercept, self.here.scale)
        if moved is None:
            return None
        self.here = self.problem.certified_pair(*moved)
        self.search.go_on_from(self.here.scale)
        self.epochs += STEP_EPOCHS
        return self.here

    def _has_matrix(self) -> bool:
        """Whether the features are few enough for steps of Newton's method in all variables."""
        unit = self.problem.unit
        return unit.d <= (MOST if unit.d <= unit.n else MOST_WIDE)

    def fitted(self, settings: dict[str, Any]) -> ScaledPair:
        """1. Fit at one scale from where the last stage ended, 2. certify, 4. choose the next scale."""
        scale = self.search.scale
        fixed, of_model, of_dual = self.problem.at(scale)
        start = replace(
            self.here,
            w=self.here.w / of_model,
            intercept=self.here.intercept / of_model,
            alpha=self.here.alpha / of_dual,
        )
        enough = max(self.fraction * min(self.best.certificate.relative_gap, 1.0), FINEST)
        found = solve(
            fixed,
            tol=enough if scale > 0.0 else 0.5 * self.tol,  # in the limit the gap is the joint one already
            max_epochs=max(1, math.ceil(self.max_epochs - self.epochs)),
            time_limit=None if self.deadline == math.inf else max(0.0, self.deadline - time.perf_counter()),
            warm_start=Result.of(start, self.last, trace=self.trace, plan=self.plan),
            callback=None if self.callback is None else self._retold,
            **settings,
        )
        self.fits += 1
        self.epochs, self.plan, self.last = self.epochs + found.n_epochs, found.plan, found.status
        w, b, alpha = of_model * found.w, of_model * found.intercept, of_dual * found.alpha
        pair = self.problem.certified_pair(w, b, scale, alpha)
        self.here = replace(pair, alpha=alpha)  # the dual point at this scale, not the one that proves the most
        self.search.learn(pair.scale)
        return pair

    def _retold(self, progress: Progress) -> bool:
        """Tell the callback of the time that goes by within a fit; what is proved is what was proved before it."""
        if self.callback is None or progress.epoch == 0.0:
            return False
        seconds = time.perf_counter() - self.began
        return bool(self.callback(Progress(self.epochs + progress.epoch, seconds, self.best.certificate)))

    def take_in(self, pair: ScaledPair) -> None:
        """Join what a stage has proved with what was known."""
        before, self.best = self.best.certificate, pair.joined_with(self.best)
        after = self.best.certificate
        self.fraction = FRACTION if after.gap < 0.5 * before.gap else FINER * self.fraction
        # Without a penalty no dual point may have been found yet, and P alone tells of progress.
        falls = after.gap == math.inf and after.primal < (1.0 - FRACTION) * before.primal
        self.stalled = 0 if falls or after.gap < before.gap else self.stalled + 1

    def result(self) -> ScaledResult:
        """Put together what was found."""
        assert self.status is not None
        if self.fits:
            done = f"a joint scale by {self.fits} fits and {len(self.trace) - 1 - self.fits} steps of Newton's method"
            self.plan = replace(self.plan, reason=f"{done}; in the last fit: {self.plan.reason}")
        return ScaledResult(
            **vars(Result.of(self.best, self.status, trace=self.trace, plan=self.plan)), scale=self.best.scale
        )


class _Search:
    """The scales that were tried, and the next: a secant method on log σ, kept in a bracket."""

    def __init__(self, scale: float) -> None:
        self.scale, self.tiny = scale, TINY * scale
        self.low, self.high = -math.inf, math.inf
        self.points: list[tuple[float, float]] = []

    def learn(self, found: float) -> None:
        """Take the best scale for the residuals of the model at ``self.scale``, and choose the next one to try."""
        if self.scale == 0.0 or found <= self.tiny:
            self.scale = found if self.scale == 0.0 else 0.0
            self.tiny = -1.0  # the limit is tried once
            return
        at, step = math.log(self.scale), math.log(found / self.scale)
        self.low, self.high = (at, self.high) if step > 0.0 else (self.low, at)
        self.points = [*self.points[-1:], (at, step)]
        there = at + step
        if len(self.points) == 2:
            (x, f), (z, g) = self.points
            if (f - g) * (z - x) > 0.0:  # as it falls through zero, so must the line
                there = z + g * (z - x) / (f - g)
        self.scale = math.exp(there if self.low < there < self.high else at + step)

    def go_on_from(self, scale: float) -> None:
        """Take the scale that Newton's method has come to as the next, or zero if it is on its way there."""
        self.scale, self.points = (0.0 if scale <= self.tiny else scale), []


def _start(problem: ConcomitantProblem, warm_start: ScaledResult | None) -> ScaledPair:
    unit = problem.unit
    if warm_start is not None:
        scale = warm_start.scale if warm_start.scale > 0.0 else None
        return problem.certified_pair(warm_start.w, warm_start.intercept, scale, warm_start.alpha)
    middle = float(np.median(unit.y[unit.c > 0.0])) if problem.fit_intercept else 0.0
    return problem.certified_pair(np.zeros(unit.d), middle)
