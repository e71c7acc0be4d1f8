"""Huber's regression with a joint scale: fits at one scale after the other, then Newton's method in all variables."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.huber_scale import ConcomitantProblem
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import steps_jointly
from dualnewton.planning.plan import Plan
from dualnewton.solvers.protocol import OuterMethod, Request, WholePoint

FRACTION, FINER, FINEST = 1e-3, 1e-2, 1e-15
"""Inner tolerance of the fit at one scale, as a fraction of the joint gap; the factor on it after a fit that has not halved the
gap; and the least relative gap that is asked for."""

TINY = 1e-6
"""A scale that should fall to this fraction of the first is likely to be zero, which is tried once."""

ROUNDING = 1e-14
"""A scale below this fraction of the largest target is zero but for rounding."""

STEP_EPOCHS = 1.0
"""Epochs that a step of Newton's method counts for."""

PATIENCE = 10
"""Points in a row without a smaller gap after which the run ends."""

MODEL = ("w", "intercept", "scale")


class ScaleSearch(OuterMethod):
    """A model with its scale.

    Each step is one of the run at a fixed scale or, after the first such fit and where the features are few enough, a step of
    Newton's method in all variables. Both offer points of the joint objective. The next scale is where the line through the last
    two fits says that the best scale for the residuals is the one they come from. The best scale lies on the same side of that
    point as the optimum, so every fit narrows a bracket.
    """

    def __init__(
        self, starts: Sequence[tuple[ConcomitantProblem, CertifiedPair]], request: Request, begin: Callable[..., Any]
    ) -> None:
        super().__init__([problem for problem, _ in starts], request, begin)
        if len(starts) > 1:
            raise DualnewtonError(f"problems with a joint scale are solved one at a time, got {len(starts)}")
        self.problem, start = starts[0]
        self.best = self.here = start  # the best pair, and the last one with the dual point at its own scale
        # For ε = 1 no dual point is beyond the ball: the scale is zero, or as good as zero. So it is where the residuals of most
        # examples are the rounding of their targets.
        rounding, scale = ROUNDING * float(np.abs(self.problem.unit.y).max(initial=0.0)), start.scale or 0.0
        self.search = _Search(scale if self.problem.epsilon > 1.0 and scale > rounding else 0.0)
        self.moved: tuple[np.ndarray, float, float] | None = None  # (w, b, σ) of a step that is not certified yet
        self.fits, self.steps = 0, 0
        self.stalled, self.fraction = 0, FRACTION
        self.plan: Plan | None = None  # of the last fit

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        if self.inner is None:
            self.moved = self._newton_step()
            if self.moved is not None:
                self.steps += 1
                return STEP_EPOCHS
            self.fits += 1
        of_model, of_dual = self.problem.factors(self.search.scale)
        here = self.here
        start = replace(here, w=here.w / of_model, intercept=here.intercept / of_model, alpha=here.alpha / of_dual)
        spent = self.advance([start], rng, deadline, most)
        self.plan = self.inner.plan
        return spent

    def _newton_step(self) -> tuple[np.ndarray, float, float] | None:
        """Take a step from the last point; None if there is no way down, or the features are too many for its matrix."""
        unit, scale = self.problem.unit, self.here.scale
        has_matrix = steps_jointly(unit.n, unit.d, self.request.tuning)
        if self.fits == 0 or self.search.scale == 0.0 or not scale or not has_matrix:
            return None
        return self.problem.stepped(self.here.w, self.here.intercept, scale)

    def inner_task(self) -> tuple[list[Problem], Request]:
        scale, gap = self.search.scale, min(self.best.certificate.relative_gap, 1.0)
        # In the limit σ → 0 the gap of the fit is the joint one already.
        tol = max(self.fraction * gap, FINEST) if scale > 0.0 else 0.5 * self.request.tol
        return [self.problem.at(scale)], replace(self.request, tol=tol, callback=None, near=True)

    def offers(self, k: int) -> bool:
        return self.moved is not None or super().offers(k)

    def point(self, k: int) -> Any:
        return super().point(k) if self.moved is None else WholePoint(dict(zip(MODEL, self.moved, strict=True)))

    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:  # noqa: ARG002
        scale = self.search.scale
        of_model, of_dual = self.problem.factors(scale)
        w, intercept, alpha = of_model * found.w, of_model * found.intercept, of_dual * found.alpha
        return {"w": w, "intercept": intercept, "scale": scale, "alpha": alpha}

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:
        assert found.scale is not None
        if self.moved is not None:
            self.here = found
            self.search.go_on_from(found.scale)
        elif self.is_over:  # the dual point at this scale, not the one that proves the most
            self.here = replace(found, alpha=self.outer_point(k, self.track(k).best)["alpha"])
            self.search.learn(found.scale)
        before, after = self.best.certificate, best.certificate
        self.best, self.moved = best, None
        self.fraction = FRACTION if after.gap < 0.5 * before.gap else FINER * self.fraction
        # Without a penalty no dual point may have been found yet, and P alone tells of progress.
        falls = after.gap == math.inf and after.primal < (1.0 - FRACTION) * before.primal
        self.stalled = 0 if falls or after.gap < before.gap else self.stalled + 1
        if self.is_over:
            self.close()

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        return self.stalled >= PATIENCE

    def told(self, plan: Plan) -> Plan:
        if self.plan is None:
            return plan
        done = f"a joint scale by {self.fits} fits and {self.steps} steps of Newton's method"
        return replace(self.plan, reason=f"{done}; in the last fit: {self.plan.reason}")


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
