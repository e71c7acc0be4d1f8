"""Losses with a kink, by smoothed problems around the last dual point: the method of multipliers.

The dual of a non-smooth loss is not strongly concave. Instead of it, maximise around a centre α̂

    D(α) − (μ/2n) Σ c_i (α_i − α̂_i)²,

which is a proximal step on D. Completing the square, it is the dual of the same problem with the smoothed loss
φ_μ = (φ* + μu²/2)* and the margins shifted by −μα̂: a problem with offsets, which every method of the library solves. Its
solution is the next centre. Smoothing changes the optimal value by at most (μ/2n) Σ c_i (α_i − α̂_i)², which falls with each
move of the centre: the width μ need not go to zero, where the smoothed problems would be as hard as the original. (Rockafellar,
Augmented Lagrangians and applications of the proximal point algorithm in convex programming, 1976. For a piecewise linear loss
and a quadratic penalty D is piecewise quadratic, and a few moves of the centre reach the optimum.)

Once the examples on a kink are known, their linear system (:mod:`~dualnewton.solvers.dual.kink_system`) gives the optimum up to
rounding. A stage determines the margins only up to the square root of the rounding error of its own gap.

A stage is a run on the smoothed problems. Its points are certified by the original problem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import solves_kinks
from dualnewton.planning.plan import Plan
from dualnewton.planning.tuning import DEFAULT, Tuning
from dualnewton.run.result import Progress, Result, Status
from dualnewton.solvers.dual.kink_system import Pair, solved_on_kinks
from dualnewton.solvers.dual.piecewise import free_kinks
from dualnewton.solvers.protocol import OuterMethod, Request, SinglePoint

FRACTION = 0.5
"""Inner tolerance of a stage, as a fraction of the outer gap."""

GAIN = 10.0
"""After a stage that divides the gap by less than this factor, the width shrinks."""

NARROWER = 10.0
"""Factor by which the width shrinks."""

FINER = 0.3
"""Factor on FRACTION after a stage that has not halved the gap."""

ROUNDING = 4e-15
"""The least relative gap requested from a stage: a smaller one is below rounding."""

NEARLY, IDLE = 1e-8, 10
"""A model whose stage has this relative gap or less ends after this many consecutive certificates that did not halve it."""

PATIENCE, EXACT = 6, 1e-13
"""Consecutive stages without a smaller gap after which a model is stuck; one suffices if its relative gap is at most EXACT."""

MARGINS = 1e-15
"""Rounding of margins, relative to their mean size."""

NATURAL = (Status.CONVERGED, Status.NO_PROGRESS, Status.STOPPED_BY_CALLBACK)
"""Statuses of a stage that was not ended by a limit; the callback is :class:`_Watch`."""


class ProximalPoint(OuterMethod):
    """Problems that share X and a non-smooth loss.

    Each step is a step of the run on the smoothed problems. When that run has ended, its points are certified and become the
    next centres. The next stage has a smaller width if this one gained little.
    """

    def __init__(self, starts: Sequence[tuple[Problem, CertifiedPair]], request: Request, runs: Any) -> None:
        super().__init__([_Model(problem, Known(pair)) for problem, pair in starts], request, runs)
        self.widths: list[float] = []  # of all stages so far
        self.watch = _Watch([])

    def own_state(self) -> tuple[Any, ...]:
        return tuple(self.widths), tuple(model.known for model in self.models), tuple(self.watch.known)

    def restore_own(self, state: tuple[Any, ...]) -> None:
        self.widths, known, self.watch.known = list(state[0]), state[1], list(state[2])
        for model, own in zip(self.models, known, strict=True):
            model.known = own

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        if self.inner is None or self.is_over:
            self.inner = None
            self._narrow()
            self.watch = _Watch([Watched(model.tolerance(self.widths[-1])) for model in self.models])
            self.places = list(range(len(self.models)))
        return self.advance([model.start for model in self.models], rng, deadline, most)

    def _narrow(self) -> None:
        """Choose the width of the next stage."""
        if not self.widths:
            self.widths.append(_width(self.models))
        elif any(model.known.gained < GAIN for model in self.models):
            self.widths.append(_power_of_ten(self.widths[-1] / NARROWER))
        else:
            self.widths.append(self.widths[-1])

    def inner_task(self) -> tuple[list[Problem], Request]:
        near = all(model.known.last is not None for model in self.models)
        tol = min(watched.tolerance for watched in self.watch.known)
        request = replace(self.request, tol=tol, callback=self.watch, near=near)
        return [model.smoothed(self.widths[-1]) for model in self.models], request

    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:  # noqa: ARG002
        return {"w": found.w, "alpha": found.alpha}

    def point(self, k: int) -> StagePoint:
        asked = self.request
        return StagePoint(self._stage(k), self.track(k).problem, self.models[k].known.best, asked.tol, asked.tuning)

    def _stage(self, k: int) -> Result:
        result: Result = self.track(k).result(self.inner.plan)
        return result

    def is_stuck(self, k: int) -> bool:
        return bool(self.models[k].known.stuck)

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:  # noqa: ARG002
        if self.is_over:
            self.models[k].end_stage(self.track(k).best, best)

    def reported(self, plan: Plan) -> Plan:
        if self.inner is None:
            return plan
        count, loss = len(self.widths), type(self.models[0].problem.loss).__name__
        stages = f"{count} stage{'s' if count > 1 else ''} of width {self.widths[0]:.0e} to {self.widths[-1]:.0e}"
        inner: Plan = self.inner.plan
        reason = f"{loss} through smoothed losses, {stages}; the last by {inner.reason}"
        return replace(inner, reason=reason, smoothed=True)


@dataclass(frozen=True, eq=False)
class Known:
    """The state of one model between stages."""

    best: CertifiedPair  # of the problem itself
    last: CertifiedPair | None = None  # of the smoothed problem, at the end of the last stage
    gained: float = math.inf  # the factor by which the last stage divided the gap
    fraction: float = FRACTION  # the inner tolerance of the next stage, as a fraction of the outer gap
    stalled: int = 0  # consecutive stages without a smaller gap
    stuck: bool = False


@dataclass(frozen=True)
class Watched:
    """The tolerance of a stage, its lowest relative gap so far, and the consecutive certificates that did not halve it."""

    tolerance: float
    lowest: float = math.inf
    idle: int = 0


@dataclass
class _Model:
    """One model: its problem, and its state between stages."""

    problem: Problem
    known: Known

    @property
    def start(self) -> CertifiedPair | np.ndarray:
        """The start of the next stage."""
        return self.known.best.alpha if self.known.last is None else self.known.last

    @property
    def centre(self) -> np.ndarray:
        """α̂: the end of the last stage. Starting from the best dual point, which may be an earlier one, would repeat steps."""
        return (self.known.last or self.known.best).alpha

    def smoothed(self, width: float) -> Problem:
        """Return the problem of a proximal step of the given width."""
        loss = self.problem.loss.smoothed(width)
        return replace(self.problem, loss=loss, offset=self.problem.o - width * self.centre)

    def tolerance(self, width: float) -> float:
        """Return the relative gap requested from the next stage.

        A gap of e leaves the margins of the smoothed problem, whose dual is μ-strongly concave, uncertain by δ_i with
        mean c_i δ_i² ≤ 2μe, and so P by √(2μe mean c_i), since no slope exceeds one. This must be a fraction of the gap. P of
        the smoothed problem, by which e is divided, is larger than ours by the shift of its margins.
        """
        c, certificate = self.problem.c, self.known.best.certificate
        enough = min(
            (self.known.fraction * certificate.gap) ** 2 / (2.0 * width * float(c.mean())), 0.1 * certificate.gap
        )
        primal = abs(certificate.primal) + 0.5 * width * float(c @ np.square(self.centre)) / self.problem.n
        return max(enough / primal, ROUNDING)

    def end_stage(self, last: CertifiedPair, best: CertifiedPair) -> None:
        """Move the centre to the end of a stage, and compute the decrease of the gap."""
        before, after = self.known.best.certificate.gap, best.certificate.gap
        gained = before / after if after > 0.0 else math.inf
        stalled = 0 if gained > 1.0 else self.known.stalled + 1
        fraction = self.known.fraction * (FINER if gained < 2.0 else 1.0)
        stuck = stalled >= PATIENCE or (stalled > 0 and self._is_exact(best))
        self.known = Known(best, last, gained, fraction, stalled, stuck)

    def _is_exact(self, best: CertifiedPair) -> bool:
        """Whether the gap is rounding of P or, if the losses are much smaller than their margins, of the margins."""
        if best.certificate.relative_gap <= EXACT:
            return True
        sizes = np.abs(self.problem.margins(best.w, best.intercept))
        return best.certificate.gap <= MARGINS * float(self.problem.c @ sizes) / self.problem.n


@dataclass(frozen=True, eq=False)
class StagePoint(SinglePoint):
    """The point of a stage for one model; if it misses ``tol``, that of its kinks is certified as well."""

    stage: Result  # of the smoothed problem
    smoothed: Problem
    best: CertifiedPair  # of the problem itself, before the stage
    tol: float
    tuning: Any

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.stage.w, self.stage.alpha

    def certified_by(self, problem: Problem) -> CertifiedPair:
        """Have the problem certify the point; after a stage that was ended by a limit, the linear system is not tried."""
        pair = problem.certified_pair(self.stage.w, alpha=self.stage.alpha)
        gap = pair.joined_with(self.best).certificate.relative_gap
        if gap <= self.tol or self.stage.status not in NATURAL:
            return pair
        found = solved_on_found_kinks(problem, self.smoothed, self.stage, gap, self.tuning)
        return pair if found is None else problem.certified_pair(found[0], alpha=found[1]).joined_with(pair)


def solved_on_found_kinks(
    problem: Problem,  # problem with the original loss
    smoothed: Problem,  # same with φ_μ and the offsets o − μα̂
    stage: Result,  # result of a method for the smoothed problem; the linear system may cost as much as this run
    relative_gap: float,  # certified relative gap of the problem so far
    tuning: Tuning = DEFAULT,  # numbers by which costs are predicted
) -> Pair | None:
    """Return w and α that put the free examples of a smoothed problem on their kinks; None if they are infeasible.

    At its margin s the smoothed loss has the slope u = (s − k)/μ if that lies strictly between the slopes of φ at the kink k,
    which tells that the example is free, and a vertex otherwise. A loss whose kinks do not cover all its slopes is not piecewise
    linear, and is left to the stages.

    1. Find the set by the kinks of the loss. 2. Take every α_i from the smoothed problem, and solve for the free ones.
    """
    pieces = problem.pieces if problem.data.capabilities.local else None
    if pieces is None or not problem.regularizer.form.is_quadratic:
        return None
    # 1. The free examples, by the slopes of the smoothed losses
    alpha = -smoothed.loss.derivative(smoothed.margins(stage.w, stage.intercept), problem.y)
    at = free_kinks(pieces, alpha)
    free = int(np.count_nonzero(~np.isnan(at) & (problem.c > 0.0)))
    if not solves_kinks(problem, free, relative_gap, stage.plan, stage.n_epochs, tuning):
        return None
    # 2. The vertices from the smoothed problem, the free ones from the system
    return solved_on_kinks(problem, alpha, at)


def _width(models: Sequence[_Model]) -> float:
    """Return the first width, for which smoothing costs about the gap: (μ/2n) Σ c_i, since |α_i| ≤ 1 for slopes up to one."""
    most = max(2.0 * model.known.best.certificate.gap / float(model.problem.c.mean()) for model in models)
    return _power_of_ten(most) if 0.0 < most < math.inf else 1.0


def _power_of_ten(width: float) -> float:
    """Return the next lower power of ten, so that one compiled loss serves many fits."""
    return float(10.0 ** math.floor(math.log10(width) + 1e-9))


class _Watch:
    """The callback of a stage: it ends each model that has reached its tolerance, or is stopped by rounding close to it."""

    def __init__(self, known: list[Watched]) -> None:
        self.known = known

    def __call__(self, progress: Progress) -> bool:
        gap, known = progress.certificate.relative_gap, self.known[progress.model]
        idle = 0 if gap <= 0.5 * known.lowest else known.idle + 1
        self.known[progress.model] = replace(known, lowest=min(known.lowest, gap), idle=idle)
        return gap <= known.tolerance or (gap <= NEARLY and idle >= IDLE)
