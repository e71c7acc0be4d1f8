"""Huber's regression with a joint scale: fits at fixed scales, and Newton's method or interior points in all variables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.errors import DualnewtonError
from dualnewton.objective.alike import on_rows
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.huber_scale import VANISHING, HuberScaleProblem, JointStep
from dualnewton.objective.problem import Problem
from dualnewton.planning.costs import is_small, prepared
from dualnewton.planning.direct import scale_is_small, steps_inside, steps_jointly
from dualnewton.planning.facts import Facts
from dualnewton.planning.interior import in_single
from dualnewton.planning.plan import Plan
from dualnewton.solvers.deadline import Deadline, OutOfTime
from dualnewton.solvers.primal.samples import represents
from dualnewton.solvers.protocol import OuterMethod, Request, WholePoint

if TYPE_CHECKING:
    from dualnewton.solvers.primal.scale_steps import ScalePoint, ScaleTerms

FRACTION, FINER, FINEST = 1e-3, 1e-2, 1e-15
"""Inner tolerance of the fit at one scale, as a fraction of the joint gap; the factor on it after a fit that has not halved the
gap; and the least requested relative gap."""

SAMPLED = 0.1
"""Relative gap of the solution on a sample, which is farther from the optimum of all rows."""

TINY, FALLS, EXACT = 1e-3, 2, 1e-6
"""A scale below this fraction of the first one, or of the spread of the targets, is treated as zero, once, after this many
consecutive fits or steps that halved it: the scale of small but real residuals changes little from one to the next. A scale
smaller by the third number is treated as zero at once."""

REACH = math.log(1e3)
"""How far a secant may lead beyond the best scale for the residuals of a fit, on the logarithmic scale; one that leads farther
down says that the scale falls towards zero."""

ROUNDING = 1e-14
"""A scale below this fraction of the largest target is zero up to rounding."""

RESIDUALS = 1e-15
"""A gap below this fraction of the mean |y_i| is rounding of the residuals: if P is this small, margins are about y_i."""

STEP_EPOCHS = 1.0
"""Work of a step of Newton's method, in epochs."""

NEAR = 10.0
"""Without a penalty a certificate takes several d×d matrices: interior points are certified from an expected gap of this multiple
of the tolerance on."""

SLOW, SHORTENED = 9, 3
"""Newton steps without halving the gap, after which interior points or a fit at one scale follow; a shortened step counts as
several."""

PATIENCE = 10
"""Consecutive points without a smaller gap after which the model is stuck, or interior points end: rounding is left."""

MODEL = ("w", "intercept", "scale", "alpha")


@dataclass(frozen=True, eq=False)
class ScaleState:
    """The state of the search."""

    best: CertifiedPair
    here: CertifiedPair  # the last pair, with the dual point that belongs to its own scale
    scales: Scales
    moved: tuple[np.ndarray, float, float, np.ndarray | None] | None = (
        None  # result of a Newton step that is not certified yet
    )
    fits: int = 0  # at one scale
    steps: int = 0  # of Newton's method
    slow: int = 0  # Newton steps since the gap was last halved; a shortened one counts as several
    stalled: int = 0  # consecutive points without a smaller gap
    fraction: float = FRACTION  # the inner tolerance of the next fit, as a fraction of the joint gap
    plan: Plan | None = None  # of the last fit
    sample: int = 0  # rows of the sample whose solution is the start
    inside: ScalePoint | None = None  # the last interior point; None before the first and after the last
    insides: int = 0  # interior-point steps
    least: float = math.inf  # smallest gap of an interior point, by its own estimate
    idle: int = 0  # interior-point steps since then


class ScaleSearch(OuterMethod):
    """A model with its scale.

    Each step is a step of the run at a fixed scale or, after the first such fit and if the features are few enough, a step of
    Newton's method in all variables. Where the best scale is nearly zero, by the numbers of examples and features or because
    these steps turn out to be slow, interior points are followed instead (``solvers/primal/scale_steps.py``), once. All give
    points of the joint objective. At the optimum, the best scale for the residuals of a fit equals the scale of the fit: the next
    scale is the zero of the line through the last two differences. The sign of a difference shows on which side the optimum lies,
    so every fit narrows a bracket.
    """

    def __init__(self, starts: Sequence[tuple[HuberScaleProblem, CertifiedPair]], request: Request, runs: Any) -> None:
        super().__init__([problem for problem, _ in starts], request, runs)
        if len(starts) > 1:
            raise DualnewtonError(f"problems with a joint scale are solved one at a time, got {len(starts)}")
        self.problem, start = starts[0]
        self.known = ScaleState(start, start, self._first_scales(start))
        self.rounding = RESIDUALS * float(self.problem.unit.c @ np.abs(self.problem.unit.y)) / self.problem.unit.n

    def _first_scales(self, start: CertifiedPair) -> Scales:
        """Return the first scale; that of a direct solution which ended at a vanishing one is treated as zero."""
        unit, scale = self.problem.unit, self._first_scale(start)
        total = float(unit.c.sum())
        spread = math.sqrt(float(unit.c @ np.square(unit.y - unit.c @ unit.y / total)) / total)
        fell = start.w.any() and scale <= VANISHING * spread
        return Scales(scale, TINY * max(scale, spread), falls=FALLS if fell else 0)

    def _first_scale(self, start: CertifiedPair) -> float:
        """Return the best scale of the start; if that is zero up to rounding, its root mean squared residual.

        At w = 0 the best scale is zero if most targets are one number, whatever the best scale of other models is. A fit at scale
        zero has a loss with a kink and costs many fits at another scale, so that the search does not begin there, except for
        ε = 1, where no dual point is beyond the ball, and the best scale of every model is zero up to rounding.
        """
        unit, scale = self.problem.unit, start.scale or 0.0
        if self.problem.epsilon == 1.0:
            return 0.0
        if scale > ROUNDING * float(np.abs(unit.y).max()):
            return scale
        r = unit.margins(start.w, start.intercept) - unit.y
        return math.sqrt(float(unit.c @ np.square(r) / unit.c.sum()))

    def own_state(self) -> ScaleState:
        return self.known

    def restore_own(self, state: ScaleState) -> None:
        self.known = state

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        known = self.known
        if self.inner is None and known.fits == 0 and (started := self._solve_sample(rng, deadline)):
            return started
        if self.inner is None and self._steps_inside():
            return self._step_inside(deadline)
        if self.inner is None:
            moved = self._newton_step()
            if moved is not None:
                slow = known.slow + (SHORTENED if moved.shortened else 1)
                self.known = replace(known, moved=moved[:4], steps=known.steps + 1, slow=slow)
                return STEP_EPOCHS
            known = self.known = replace(known, fits=known.fits + 1, scales=known.scales.before_fit())
        of_model, of_dual = self.problem.factors(known.scales.scale)
        here = known.here
        start = replace(here, w=here.w / of_model, intercept=here.intercept / of_model, alpha=here.alpha / of_dual)
        if known.scales.scale > 0.0 and self._has_matrix:
            longest = self.request.tuning.scale_epochs
            most = min(most, longest - (0.0 if self.inner is None else self.inner.epochs))
        spent = self.advance([start], rng, deadline, most)
        self.known = replace(known, plan=self.inner.plan)
        return spent

    def _solve_sample(self, rng: np.random.Generator, deadline: float) -> float:
        """Move from w = 0 to the solution on a sample of the rows, if there are many more rows than unknowns; return the epochs.

        As for other smooth losses (``solvers/primal/samples.py``) it is so close to the optimum that Newton's method converges
        in a few steps, and solving the sample costs little.
        """
        unit, request, known = self.problem.unit, self.request, self.known
        sizes = Facts.of(unit, request.tuning, near=bool(known.here.w.any())).samples
        if known.sample or not sizes or request.method != "auto" or known.scales.scale == 0.0:
            return 0.0
        size = sizes[-1]
        rows = unit.data.strata(rng, size)
        ((data, (of_unit, sampled)),) = on_rows([unit, self.problem], unit.data, [rows])
        if not represents(data, [of_unit]):
            return 0.0
        run = self.runs.start([sampled], replace(request, tol=SAMPLED, callback=None), None)
        while not run.finished:
            run.step(rng, deadline, math.inf)
        best = run.tracks[0].best
        if not best.scale:
            return 0.0
        moved = best.w, best.intercept, best.scale, None
        plan = Plan("newton", unit.n, "Newton's method in all variables", compiled=run.plan.compiled)
        self.known = replace(known, moved=moved, fits=1, sample=size, plan=plan)
        return float(run.epochs) * size / unit.n

    def _newton_step(self) -> JointStep | None:
        """Take a step from the last point; None if no step decreases P, the last ones were slow, or its matrix is too large.

        If the best scale is zero, steps are short and each lowers σ by only a few per cent. A fit at one scale finds the best
        scale of its residuals, which may be far lower.
        """
        here = self.known.here
        begun = self.known.fits > 0 and self.known.scales.scale > 0.0
        if not (begun and here.scale and self._has_matrix) or self.known.slow >= SLOW:
            return None
        return self.problem.stepped(here.w, here.intercept, here.scale)

    def _steps_inside(self) -> bool:
        """Whether the next step is an interior-point step: they begin where the best scale is expected to be nearly zero."""
        known, unit, tuning = self.known, self.problem.unit, self.request.tuning
        if known.inside is not None:
            return True
        if known.insides or self.request.method != "auto" or known.scales.scale == 0.0:
            return False
        # A cold start with a model is what the direct solver has found, which is Newton's method.
        slow = known.slow >= SLOW or (self.request.cold and known.fits == 0 and known.here.w.any())
        few = not known.here.w.any() and scale_is_small(unit, tuning)
        return (few or slow or known.scales.falls >= FALLS) and steps_inside(unit, tuning)

    @cached_property
    def _terms(self) -> ScaleTerms:
        """The examples in the form of the interior-point method."""
        from dualnewton.solvers.primal.scale_steps import ScaleTerms  # loads scipy.linalg
        from dualnewton.solvers.primal.step_systems import Passes

        unit, tuning = self.problem.unit, self.request.tuning
        data = prepared(unit.data, compiled=not is_small(tuning, unit.n, unit.d), tuning=tuning)
        ridge = np.append(np.full(unit.d, self.problem.lam * unit.n), np.zeros(1 if unit.fit_intercept else 0))
        return ScaleTerms(Passes(data, ridge), unit.y, unit.c, self.problem.epsilon)

    def _step_inside(self, deadline: float) -> float:
        """Take an interior-point step; after the last one Newton's method goes on from the best point."""
        known, check, terms = self.known, Deadline(deadline).check, self._terms
        with np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore"):
            try:
                before = known.inside or terms.started(single=in_single(self.problem.unit, self.request.tuning))
                at = None if before is None else terms.step(before, check)
            except OutOfTime:
                return STEP_EPOCHS
            gap = math.nan if at is None else terms.gap(at)
        at, last = (at, at) if math.isfinite(gap) else (None, known.inside)
        idle = 0 if gap < known.least else known.idle + 1
        if idle >= PATIENCE:
            at = None
        enough = NEAR * self.request.tol * self.problem.n * known.best.certificate.primal
        offers = last is not None and (at is None or self.problem.lam > 0.0 or gap <= enough)
        moved = terms.model(last) if last is not None and offers else None
        known = replace(known, insides=known.insides + 1, least=min(known.least, gap), idle=idle)
        self.known = replace(known, inside=at, moved=moved, fits=max(known.fits, 1), slow=0)
        return STEP_EPOCHS

    def unfinished(self, k: int) -> WholePoint | None:
        at = self.known.inside
        return super().unfinished(k) if at is None else WholePoint(dict(zip(MODEL, self._terms.model(at), strict=True)))

    @property
    def _has_matrix(self) -> bool:
        """Whether Newton steps in all variables are affordable."""
        return steps_jointly(self.problem.unit.n, self.problem.unit.d, self.request.tuning)

    def inner_task(self) -> tuple[list[Problem], Request]:
        scale, certificate = self.known.scales.scale, self.known.best.certificate
        tol = max(self.known.fraction * min(certificate.relative_gap, 1.0), FINEST)
        if scale == 0.0:  # in the limit σ → 0 the gap of the fit is the joint gap, and D a lower bound of its P
            least = certificate.dual if certificate.dual > 0.0 else certificate.primal
            tol = max(0.5 * self.request.tol, self.rounding / least)
        return [self.problem.at(scale)], replace(self.request, tol=tol, callback=None, near=True)

    def offers(self, k: int) -> bool:
        return self.known.moved is not None or super().offers(k)

    def point(self, k: int) -> Any:
        moved = self.known.moved
        return super().point(k) if moved is None else WholePoint(dict(zip(MODEL, moved, strict=True)))

    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:  # noqa: ARG002
        scale = self.known.scales.scale
        of_model, of_dual = self.problem.factors(scale)
        w, intercept, alpha = of_model * found.w, of_model * found.intercept, of_dual * found.alpha
        return {"w": w, "intercept": intercept, "scale": scale, "alpha": alpha}

    def learn(self, k: int, found: CertifiedPair, best: CertifiedPair) -> None:
        assert found.scale is not None
        known = self.known
        here, scales = known.here, known.scales
        if known.moved is not None:
            here, scales = found, scales.continued_from(found.scale)
        elif self.is_over:  # the dual point at this scale, not the one with the largest dual value
            here = replace(found, alpha=self.outer_point(k, self.track(k).best)["alpha"])
            scales = scales.after(found.scale)
        before, after = known.best.certificate, best.certificate
        halved = after.gap < 0.5 * before.gap
        fitted = known.moved is None  # a step of Newton's method does not tell whether the fits are accurate enough
        fraction = FRACTION if halved else FINER * known.fraction if fitted else known.fraction
        slow = 0 if halved or fitted else known.slow
        # The first interior points may have a larger gap than the point from which other methods were slow.
        stalled = 0 if after.gap < before.gap else known.stalled + (known.inside is None)
        known = replace(known, best=best, here=here, scales=scales, moved=None)
        self.known = replace(known, fraction=fraction, slow=slow, stalled=stalled)
        if self.is_over:
            self.inner = None

    def is_stuck(self, k: int) -> bool:  # noqa: ARG002
        return self.known.stalled >= PATIENCE or self.known.best.certificate.gap <= self.rounding

    def reported(self, plan: Plan) -> Plan:
        known = self.known
        if known.plan is None and not known.insides:
            return plan
        inside = f"{known.insides} interior-point steps and " if known.insides else ""
        if known.plan is None:
            done = f"a joint scale by {inside}{known.steps} steps of Newton's method, in all variables"
            return Plan("interior", self.problem.unit.n, done)
        start = f"a sample of {known.sample} rows, {known.fits - 1}" if known.sample else str(known.fits)
        done = f"a joint scale by {start} fits, {inside}{known.steps} steps of Newton's method"
        return replace(known.plan, reason=f"{done}; in the last fit: {known.plan.reason}")


@dataclass(frozen=True)
class Scales:
    """The scales that were tried, and the next: a secant method on log σ, kept within a bracket."""

    scale: float  # next scale to try
    tiny: float  # best scale of at most this is treated as zero, if it decreases; −1 once zero has been tried
    # The bracket of log σ.
    low: float = -math.inf
    high: float = math.inf
    # The last two log σ, each with the logarithm of the best scale for its residuals over σ.
    points: tuple[tuple[float, float], ...] = ()
    # Consecutive fits whose residuals have a best scale below half their scale, and steps that halved the scale.
    falls: int = 0

    def after(self, found: float) -> Scales:
        """Return the scales after a fit at ``scale`` whose residuals have the best scale ``found``."""
        falls = self.falls + 1 if found < 0.5 * self.scale else 0
        if 0.0 in (self.scale, found) or found <= EXACT * self.tiny:
            return replace(self, scale=found if self.scale == 0.0 else 0.0, tiny=-1.0)
        at = math.log(self.scale)
        step = math.log(found) - at
        low, high = (at, self.high) if step > 0.0 else (self.low, at)
        points, there = (*self.points[-1:], (at, step)), at + step
        if len(points) == 2:
            (x, f), (z, g) = points
            if (f - g) * (z - x) > 0.0:  # the difference decreases through zero at the optimum
                secant = z + g * (z - x) / (f - g)
                falls = FALLS if secant < there - REACH else falls
                there = min(max(secant, there - REACH), there + REACH)
        return Scales(math.exp(there if low < there < high else at + step), self.tiny, low, high, points, falls)

    def continued_from(self, scale: float) -> Scales:
        """Return the scales after a step of Newton's method to ``scale``, which is the next."""
        return replace(self, scale=scale, points=(), falls=self.falls + 1 if scale < 0.5 * self.scale else 0)

    def before_fit(self) -> Scales:
        """Return the scales with zero as the next, if the scale falls towards it."""
        return replace(self, scale=0.0, tiny=-1.0) if self.falls >= FALLS and self.scale <= self.tiny else self
