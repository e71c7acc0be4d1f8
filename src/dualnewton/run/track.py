"""The record of one model of a run, and the state of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dualnewton.objective.certificate import Certificate, CertifiedPair
from dualnewton.planning.plan import Plan
from dualnewton.planning.switching import SwitchingState
from dualnewton.run.result import Result, Status, Trace
from dualnewton.run.start import starting_pairs
from dualnewton.solvers.protocol import Method, Request

STALLED_CERTIFICATES, TINY_RELATIVE_GAP = 25, 1e-9
"""Number of consecutive certificates without a smaller gap, and relative gap below which these are attributed to rounding."""

REDUCIBLE = 0.9
"""Rounding errors, as a fraction of the wanted gap, up to which a smaller gap is expected to make both together small enough."""

STEPS_WITHOUT_CERTIFICATE = 10
"""Largest number of steps without a certificate, which costs about as much as an epoch of compiled rounds. In primal methods,
whose gradient gives the gap, it is twice as large, or half the number of steps at the last certificate, if that is more."""


@dataclass(frozen=True, eq=False)
class RunState:
    """The state of a run between two steps, as plain data; the fields are those of :class:`~dualnewton.run.loop.Run`."""

    tracks: tuple[dict[str, Any], ...]
    moving: tuple[int, ...]  # numbers of the models
    plan: Plan
    switching: SwitchingState | None
    method: Any  # also None if the run has ended
    steps: int
    epochs: float
    work_seconds: float
    restarted: bool
    seconds: float  # so far


@dataclass(eq=False)
class Track:
    """The record of one model of a run."""

    problem: Any
    number: int  # index of the problem in the run
    best: CertifiedPair  # best pair so far
    latest: Certificate  # last certificate
    # The steps of the last certificate and of the last row of the trace.
    certified_at: int = 0
    recorded_at: int = -1
    stalled: int = 0  # number of consecutive certificates without a smaller gap
    stuck: bool = False  # whether the method can make no further progress
    ratio: float = math.nan  # gap divided by the residual, at the last certificate
    # The residual and the objective P of the last step (see :class:`Method`); NaN where unknown.
    residual: float = math.nan
    objective: float = math.nan
    gap: float = math.nan  # the method's estimate of the gap after the last step; NaN where unknown
    status: Status | None = None  # of a model that has ended
    trace: Trace = field(default_factory=Trace)  # certificates so far

    def state(self) -> dict[str, Any]:
        """Return the record without the problem and the number, as plain data."""
        own = {name: value for name, value in vars(self).items() if name not in ("problem", "number")}
        return own | {"status": self.status and self.status.name, "trace": tuple(self.trace.rows)}

    @classmethod
    def restored(cls, problem: Any, number: int, state: dict[str, Any]) -> Track:
        """Return the track with this state."""
        status, trace = state["status"] and Status[state["status"]], Trace(list(state["trace"]))
        return cls(problem, number, **state | {"status": status, "trace": trace})

    def update(self, method: Method, place: int) -> None:
        """Store the residual and the objective of the method's last step, and whether the method is stuck."""
        self.residual, self.objective = method.residual(place), method.objective(place)
        self.gap = method.gap(place)
        self.stuck = method.is_stuck(place)
        if math.isnan(self.ratio):
            self.ratio = method.expected_ratio

    def expected_gap(self) -> float:
        """Return an estimate of the gap: the method's, or one from the residual of the last step."""
        if not math.isnan(self.gap):
            return self.gap
        expected = self.ratio * self.residual if self.residual > 0.0 else 0.0  # the ratio may be infinite
        return self.best.certificate.gap if math.isnan(self.residual) else expected

    def expected_relative_gap(self) -> float:
        """Return this estimate divided by |P| of the last step, or of the best certificate if the method does not compute it.

        P may have decreased much since the last certificate, often that of the start.
        """
        known = self.objective if math.isfinite(self.objective) else self.best.certificate.primal
        return self.expected_gap() / (abs(known) or 1.0)

    def is_due(self, steps: int, plan: Plan, request: Request) -> bool:
        """Whether the expected gap is small enough, the method is stuck, or the last certificate was many steps ago.

        In a long run certificates of a primal method become rare, except near rounding, where they decide when to stop.
        """
        close = self.expected_relative_gap() <= request.tol
        rare = plan.is_primal and self.best.certificate.relative_gap > TINY_RELATIVE_GAP
        longest = max(2 * STEPS_WITHOUT_CERTIFICATE, self.certified_at // 2) if rare else STEPS_WITHOUT_CERTIFICATE
        return close or self.stuck or steps - self.certified_at >= (request.certify_every or longest)

    def is_misled(self, plan: Plan, request: Request) -> bool:
        """Whether an iterative method makes no further progress from a warm start, with a gap that is not due to rounding."""
        able = request.proved and not request.cold and plan.family is None
        return able and self.stuck and self.best.certificate.relative_gap > max(request.tol, TINY_RELATIVE_GAP)

    def learn(self, found: CertifiedPair, steps: int) -> None:
        """Update the record with a certified pair."""
        if self.residual > 0.0:
            self.ratio = found.certificate.gap / self.residual
        joined = found.joined_with(self.best)
        self.stalled = 0 if joined.certificate.gap < self.best.certificate.gap else self.stalled + 1
        self.best, self.latest, self.certified_at = joined, found.certificate, steps

    def fail(self, steps: int) -> None:
        """Record that the arithmetic of the method has overflowed: the model ends at its best point so far."""
        self.learn(self.best, steps)
        self.stuck = True

    def recertify(self, steps: int, tol: float) -> None:
        """Recompute the certificate of the best pair: the values in a checkpoint file are not trusted.

        A certificate that agrees keeps its bits; otherwise the pair is certified like the start of a run. The recomputed
        certificate decides whether the model has ended.
        """
        given, is_proved = self.best.certificate, self.best.certificate.rounding is not None
        found = self.problem.bounded(replace(self.best, certificate=self.problem.recomputed(self.best)))
        if not given.agrees_with(found.certificate):
            shared = not self.problem.own_starts
            (self.best,) = starting_pairs([self.problem], [self.best], primal=True, shared=shared)
            self.latest, self.certified_at = self.best.certificate, steps
        if is_proved:
            self.best = proved(self.problem, self.best.with_rounding(None), tol)
        met = self.best.certificate.relative_gap <= tol
        if self.status is not None and (self.status in (Status.CONVERGED, Status.ROUNDING)) != met:
            self.status, self.certified_at = None, steps
        elif self.status is not None and met:
            self.status = Status.of_final(self.best.certificate, tol)

    def end(
        self,
        request: Request,
        *,
        asked: bool = False,
        interrupted: bool = False,
        late: bool = False,
        exhausted: bool = False,
        iterates: bool = False,
    ) -> None:
        """Set the first status that applies to the model, if any; ``iterates`` if the method can decrease the gap further."""
        tol, gap, proof = request.tol, self.best.certificate.relative_gap, self.best
        stalled = self.stalled >= STALLED_CERTIFICATES and gap <= TINY_RELATIVE_GAP
        if request.proved and (gap <= tol or stalled or self.stuck):
            moves = iterates and not (asked or interrupted or late or exhausted or self.stalled or self.stuck)
            proof = proved(self.problem, self.best, tol, moves=moves)
        reasons = {
            Status.STOPPED_BY_CALLBACK: asked,
            Status.INTERRUPTED: interrupted,
            Status.TIME_LIMIT: late,
            Status.NO_PROGRESS: stalled or self.stuck,
            Status.EPOCH_LIMIT: exhausted,
        }
        self.status = Status.of(proof.certificate, tol, reasons)
        if self.status is not None:
            self.best = proof  # during the run, certificates in float64 are compared with each other

    def result(self, plan: Plan) -> Result:
        """Return the result of the model."""
        assert self.status is not None
        return Result.of(self.best, self.status, trace=self.trace, plan=plan)


def proved(problem: Any, pair: CertifiedPair, tol: float, *, moves: bool = False) -> CertifiedPair:
    """Return a pair with a bound on the rounding errors of its certificate.

    If the bound may miss the tolerance because of these errors alone, the certificate is computed in extended precision, if the
    problem supports it; but not while the method ``moves`` and a smaller gap would suffice: a step and a certificate take a
    fraction of the time.
    """
    pair = problem.bounded(pair, tol)
    found = pair.certificate
    if found.rounding is None or found.meets(tol) or found.gap - found.rounding > tol * abs(found.primal):
        return pair
    if not problem.extends or (moves and found.rounding <= REDUCIBLE * tol * abs(found.primal)):
        return pair
    sharper = problem.extended(pair)
    return sharper if sharper.certificate.bound < found.bound else pair
