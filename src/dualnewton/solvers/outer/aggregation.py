"""Many examples and few features: the interior-point method on few rows and a mean row per slope for the others.

If the margins of some examples all lie between the same two kinks, their piecewise linear losses have one slope there, and if
φ(z; y) is a function of z − y, their sum is the loss of one example: the mean of their rows and of their labels, with their total
weight. For margins elsewhere the loss of the mean is a lower bound (Jensen's inequality). Hence, for any division of the examples
into kept ones and groups, the smaller problem has a dual point that is feasible for all examples (those of a group share the α of
their mean) with the same dual value, and its model is optimal if no margin has left the piece of its group. (For quantile
regression: Portnoy and Koenker, The Gaussian hare and the Laplacian tortoise, 1997, Section 5.)

1. Solve the problem on a sample of rows. Of the margins of all rows, keep those that are nearest to a kink.
2. Solve the problem on the kept rows and the means of the others; the complete problem certifies the model and its dual point.
3. Also keep the examples whose margins have left the piece of their group, and repeat from 2. If these are more than were
   kept, the margins of the better model of the two are grouped again, and twice as many are kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dualnewton.matrix import linear
from dualnewton.objective.certificate import CertifiedPair
from dualnewton.objective.problem import Problem
from dualnewton.run.result import Status
from dualnewton.solvers.protocol import OuterMethod, Request, WholePoint

SAMPLED = 1e-4
"""Relative gap of the fit on a sample."""

FINER = 0.5
"""Relative gap of the fits on kept rows and means, as a fraction of the requested gap."""

KEPT = 1.5
"""Number of rows kept at first, as a multiple of the sample."""

PASSES = 5.0
"""Passes over all rows per step, in addition to the work on its smaller problem."""

KEEP = -1
"""Marks an example that is kept, among the numbers of groups."""


@dataclass(frozen=True, eq=False)
class State:
    """The state of one model."""

    # The model, and a dual point of all examples.
    w: np.ndarray
    intercept: Any
    alpha: np.ndarray
    rows: np.ndarray | None = None  # sample, while its problem is solved
    # (n,) The group of each example, which is the number of kinks below its margin, or KEEP; None before the sample is
    # solved.
    groups: np.ndarray | None = None
    kept: int = 0  # number of kept examples
    settled: bool = False  # whether all margins were in the pieces of their groups


@dataclass
class _Model:
    """One model: its problem and its state."""

    problem: Any
    known: State


class Aggregation(OuterMethod):
    """Models over the same data, each with its own smaller problems.

    A step is a step of the run on a smaller problem of one model. When that run has ended, the next model follows.
    """

    def __init__(
        self,
        # Problems with a piecewise linear loss of z − y, and their starting points.
        starts: Sequence[tuple[Any, CertifiedPair]],
        request: Request,  # settings of the run
        runs: Any,  # starts the runs on smaller problems
        *,
        sample: int,  # number of rows in the sample
    ) -> None:
        # Smaller problems are not sampled again: their mean rows have most of the weight.
        tuning = replace(request.tuning, aggregated=math.inf)
        own = replace(request, method="interior", tau="auto", callback=None, near=False, tuning=tuning)
        super().__init__(
            [_Model(problem, State(pair.w, pair.intercept, pair.alpha)) for problem, pair in starts], own, runs
        )
        self.sample, self.turn = sample, 0
        self.numbers: list[int] = []  # numbers of the groups in the smaller problem
        self.ready: int | None = None  # the model for which the last step has given a point of all examples
        for model in self.models if request.near else ():
            model.known = _divided(model.problem, model.known, round(KEPT * sample))

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        model = self.models[self.turn]
        if model.known.groups is None and model.known.rows is None:
            rows = np.sort(rng.choice(model.problem.n, self.sample, replace=False))
            model.known = replace(model.known, rows=rows)
        size = len(model.known.rows) if model.known.groups is None else model.known.kept
        share, self.ready = size / model.problem.n, None
        spent = self.advance(None, rng, deadline, most / share)
        passes = max(most, spent * share) if spent >= most / share else spent * share
        if not self.is_over:
            return passes
        track = self.track(self.turn)
        self._end_stage(model, track.best, whole=track.status in (Status.CONVERGED, Status.NO_PROGRESS))
        self.inner = None
        self.turn = (self.turn + 1) % len(self.models)
        return passes + PASSES

    def inner_task(self) -> tuple[list[Any], Request]:
        model = self.models[self.turn]
        problem, known = model.problem, model.known
        if known.groups is not None:
            few, self.numbers = aggregated(problem, known.groups)
            return [few], replace(self.request, tol=FINER * self.request.tol)
        unit, rows = problem.unit, known.rows
        few = _smaller(problem, problem.data.rows(rows), (unit.y - unit.o)[rows], unit.c[rows] * (unit.n / len(rows)))
        return [few], replace(self.request, tol=SAMPLED)

    def outer_point(self, k: int, found: CertifiedPair) -> dict[str, Any]:
        problem, known = self.models[k].problem, self.models[k].known
        alpha = problem.unit.no_dual() if known.groups is None else expanded(known.groups, self.numbers, found.alpha)
        return {"w": found.w, "intercept": found.intercept, "alpha": alpha}

    def _end_stage(self, model: _Model, found: CertifiedPair, *, whole: bool) -> None:
        """Use the solution of a smaller problem, which a limit may have ended, and group the examples for the next."""
        problem, known = model.problem, model.known
        reached = State(**self.outer_point(self.turn, found))
        if known.groups is None:
            model.known = _divided(problem, reached, round(KEPT * self.sample)) if whole else reached
            self.ready = None if whole else self.turn
            return
        self.ready = self.turn
        pieces, _ = _pieces(problem, found.w, found.intercept)
        left = (known.groups != KEEP) & (pieces != known.groups) & (problem.unit.c > 0.0)
        count = int(np.count_nonzero(left))
        if count > known.kept:
            better = min(known, reached, key=lambda own: problem.unit.primal(own.w, own.intercept))
            model.known = _divided(problem, replace(better, alpha=reached.alpha), 2 * known.kept)
        else:
            groups = np.where(left, np.int8(KEEP), known.groups)
            model.known = replace(reached, groups=groups, kept=int(known.kept + count), settled=whole and count == 0)

    # The interface of the loop ------------------------------------------------------------------------------------------------

    def track(self, k: int) -> Any:  # noqa: ARG002
        return self.inner.tracks[0]

    def point(self, k: int) -> WholePoint:
        known = self.models[k].known
        return WholePoint({"w": known.w, "intercept": known.intercept, "alpha": known.alpha})

    def offers(self, k: int) -> bool:
        return k == self.ready

    def certified_last(self, k: int) -> bool:
        return k == self.turn and self.inner is not None and bool(self.inner.certified_last(0))

    def unfinished(self, k: int) -> WholePoint | None:
        return super().unfinished(k) if k == self.turn else None

    def is_stuck(self, k: int) -> bool:
        return bool(self.models[k].known.settled)

    def keep(self, wanted: Sequence[int]) -> None:
        if self.turn not in wanted:
            self.inner = None
        self.models, self.ready = [self.models[k] for k in wanted], None
        self.turn = sum(k < self.turn for k in wanted) % len(wanted)

    def reported(self, plan: Any) -> Any:
        kept = max(model.known.kept for model in self.models)
        done = f"; on {self.sample} sampled rows, then on {kept} rows near a kink and the means of the others"
        return replace(plan, reason=plan.reason.partition("; on ")[0] + done)

    def own_state(self) -> tuple[int, tuple[State, ...]]:
        return self.turn, tuple(model.known for model in self.models)

    def restore_own(self, state: tuple[int, tuple[State, ...]]) -> None:
        self.turn, known = state
        self.models = [_Model(model.problem, own) for model, own in zip(self.models, known, strict=True)]


def _divided(problem: Any, state: State, count: int) -> State:
    """Keep the given number of rows whose margins are nearest to a kink, in units of the effect of an error of w."""
    from dualnewton.solvers.primal.kinked_view import root_mean_squares

    pieces, distance = _pieces(problem, state.w, state.intercept)
    scores = problem.data.row_scores(1.0 / np.square(root_mean_squares(problem.data)))
    distance /= np.sqrt(1.0 + scores)
    count = min(problem.n, max(1, count))
    pieces[np.argpartition(distance, count - 1)[:count]] = KEEP
    return replace(state, groups=pieces, kept=int(count))


def aggregated(problem: Any, groups: np.ndarray) -> tuple[Any, list[int]]:
    """Return the problem on the kept rows and the means of the groups that have any weight, and the numbers of these groups."""
    unit, kept = problem.unit, np.flatnonzero(groups == KEEP)
    members = {g: np.where(groups == g, unit.c, 0.0) for g in range(int(groups.max(initial=KEEP)) + 1)}
    totals = {g: float(mass.sum()) for g, mass in members.items() if mass.any()}
    numbers, labels = list(totals), unit.y - unit.o
    shares = [members[g] / totals[g] for g in numbers]
    means = [problem.data.transposed_times(share) for share in shares]
    rows = problem.data.rows(kept)
    X = linear.stacked([rows, np.reshape(means, (len(means), problem.d))], dense=not linear.is_sparse(rows))
    y = np.append(labels[kept], [float(share @ labels) for share in shares])
    return _smaller(problem, X, y, np.append(unit.c[kept], list(totals.values()))), numbers


def expanded(groups: np.ndarray, numbers: Sequence[int], alpha: np.ndarray) -> np.ndarray:
    """Return the dual point of all examples, given that of kept rows and means."""
    kept = groups == KEEP
    first = int(np.count_nonzero(kept))
    whole = np.zeros(len(groups))
    whole[kept] = alpha[:first]
    for g, own in zip(numbers, alpha[first:], strict=True):
        whole[groups == g] = own
    return whole


def _pieces(problem: Any, w: np.ndarray, intercept: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of kinks below each margin, and the distance of the nearest one."""
    unit: Problem = problem.unit
    z, below, distance = unit.margins(w, intercept), np.zeros(unit.n, dtype=np.int8), np.full(unit.n, np.inf)
    for kink in unit.loss.kinks(unit.y):
        beyond = z - kink.position
        below += beyond > 0.0
        np.minimum(distance, np.abs(beyond), out=distance)
    return below, distance


def _smaller(problem: Any, X: linear.Matrix, y: np.ndarray, c: np.ndarray) -> Any:
    """Return the problem on other rows, with n P as its sum."""
    more = {"lam": problem.lam * problem.n / len(y)} if problem.lam > 0.0 else {}
    return replace(problem, X=X, y=y, sample_weight=c, offset=None, **more)
