"""Many examples and few features: the interior-point method on few rows, with the others as one mean row for each slope.

Where the margins of some examples all lie between the same two kinks, their piecewise linear losses have one slope there, and if
φ(z; y) is a function of z − y, their sum is the loss of one example: the mean of their rows and of their labels, with their total
weight. For margins elsewhere the loss of the mean is a lower bound (Jensen's inequality). Hence, for any division of the examples
into kept ones and groups, the smaller problem has a dual point that is feasible for all examples (those of a group share the α of
their mean) with the same dual value, and its model is optimal if no margin has left the piece of its group. (For quantile
regression: Portnoy and Koenker, The Gaussian hare and the Laplacian tortoise, 1997, Section 5.)

1. Solve the problem on a sample of rows. Of the margins of all rows, keep those that are nearest to a kink.
2. Solve the problem on the kept rows and the means of the others; the complete problem certifies the model and its dual point.
3. Keep the examples whose margins have left the piece of their group as well, and repeat from 2. Where these are more than were
   kept, the margins of the better model of the two are divided anew, and twice as many are kept.
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
from dualnewton.solvers.primal.kinked_view import root_mean_squares
from dualnewton.solvers.protocol import Method, Request, WholePoint

SAMPLED = 1e-4
"""Relative gap of the fit on a sample."""

FINER = 0.5
"""Relative gap of the fits on kept rows and means, as a fraction of what is asked for."""

KEPT = 1.5
"""Rows that are kept at first, as a multiple of the sample."""

PASSES = 5.0
"""Passes over all rows that a step counts for, beside those of its smaller problem."""

KEEP = -1
"""Marks an example that is kept, among the numbers of groups."""


@dataclass(frozen=True, eq=False)
class State:
    """One model.

    Attributes
    ----------
    w, intercept, alpha
        The model, and a dual point of all examples.
    groups : array of shape (n,), optional
        The group of each example, which is the number of kinks below its margin, or KEEP; None before the first step.
    kept : int
        How many are kept.
    offered : bool
        Whether the model belongs to all examples, or a limit has ended the fit.
    settled : bool
        Whether all margins were in the pieces of their groups.
    """

    w: np.ndarray
    intercept: Any
    alpha: np.ndarray
    groups: np.ndarray | None = None
    kept: int = 0
    offered: bool = False
    settled: bool = False


class Aggregation(Method):
    """Models over the same data, each with its own smaller problems.

    Parameters
    ----------
    starts : sequence of (Problem or Unpenalised, CertifiedPair)
        Problems with a piecewise linear loss of z − y, and where each starts.
    request : Request
        What the run is asked for.
    runs : type of Run
        Starts the runs on smaller problems.
    sample : int
        Number of rows in the sample.
    """

    certificates_are_cheap = True

    def __init__(
        self, starts: Sequence[tuple[Any, CertifiedPair]], request: Request, runs: Any, *, sample: int
    ) -> None:
        self.problems, self.runs, self.sample = [problem for problem, _ in starts], runs, sample
        # What is left of a problem is not sampled again: its mean rows count for most of it.
        tuning = replace(request.tuning, aggregated=math.inf)
        self.request = replace(request, method="interior", tau="auto", callback=None, near=False, tuning=tuning)
        self.states = [self._start(problem, pair, near=request.near) for problem, pair in starts]

    def _start(self, problem: Any, pair: CertifiedPair, *, near: bool) -> State:
        state = State(pair.w, pair.intercept, pair.alpha)
        return self._divided(problem, state, round(KEPT * self.sample)) if near else state

    def step(self, rng: np.random.Generator, deadline: float, most: float) -> float:
        return max(self._advance(k, rng, deadline, most) for k in range(len(self.states)))

    def _advance(self, k: int, rng: np.random.Generator, deadline: float, most: float) -> float:
        """Take a step of model k, and return about how many passes over the data it took."""
        problem, state = self.problems[k], self.states[k]
        limits = (rng, deadline, max(0.0, most - PASSES))
        if state.groups is None:
            rows = np.sort(rng.choice(problem.n, self.sample, replace=False))
            unit, share = problem.unit, self.sample / problem.n
            few = _smaller(problem, problem.data.rows(rows), (unit.y - unit.o)[rows], unit.c[rows] / share)
            pair, whole, epochs = self._solved(few, SAMPLED, limits)
            reached = State(pair.w, pair.intercept, unit.no_dual(), offered=not whole)
            self.states[k] = self._divided(problem, reached, round(KEPT * self.sample)) if whole else reached
        else:
            few, numbers = aggregated(problem, state.groups)
            pair, _, epochs = self._solved(few, FINER * self.request.tol, limits)
            alpha = expanded(state.groups, numbers, pair.alpha)
            pieces, _ = _pieces(problem, pair.w, pair.intercept)
            left = (state.groups != KEEP) & (pieces != state.groups) & (problem.unit.c > 0.0)
            count, reached = int(np.count_nonzero(left)), State(pair.w, pair.intercept, alpha, offered=True)
            if count > state.kept:
                better = min(state, reached, key=lambda own: problem.unit.primal(own.w, own.intercept))
                self.states[k] = self._divided(problem, replace(better, alpha=alpha, offered=True), 2 * state.kept)
            else:
                groups = np.where(left, np.int8(KEEP), state.groups)
                self.states[k] = replace(reached, groups=groups, kept=int(state.kept + count), settled=count == 0)
        return PASSES + epochs * few.n / problem.n

    def _solved(
        self, few: Any, tol: float, limits: tuple[np.random.Generator, float, float]
    ) -> tuple[CertifiedPair, bool, float]:
        """Solve a smaller problem; return its solution, whether no limit has ended the run before, and its epochs."""
        rng, deadline, most = limits
        most *= self.problems[0].n / few.n
        run = self.runs.start([few], replace(self.request, tol=tol), None)
        try:
            while not run.finished:
                run.step(rng, deadline, most - run.epochs)
        finally:
            run.close()
        (track,) = run.tracks
        return track.best, track.status in (Status.CONVERGED, Status.NO_PROGRESS), run.epochs

    def _divided(self, problem: Any, state: State, count: int) -> State:
        """Keep so many rows whose margins are nearest to a kink, in units of what an error of w makes of them."""
        pieces, distance = _pieces(problem, state.w, state.intercept)
        scores = problem.data.row_scores(1.0 / np.square(root_mean_squares(problem.data)))
        distance /= np.sqrt(1.0 + scores)
        count = min(problem.n, count)
        pieces[np.argpartition(distance, count - 1)[:count]] = KEEP
        return replace(state, groups=pieces, kept=int(count))

    # What the loop asks ------------------------------------------------------------------------------------------------

    def point(self, k: int) -> WholePoint:
        state = self.states[k]
        return WholePoint({"w": state.w, "intercept": state.intercept, "alpha": state.alpha})

    def offers(self, k: int) -> bool:
        return self.states[k].offered

    def is_stuck(self, k: int) -> bool:
        return self.states[k].settled

    def keep(self, wanted: Sequence[int]) -> None:
        self.problems, self.states = ([own[k] for k in wanted] for own in (self.problems, self.states))

    def reported(self, plan: Any) -> Any:
        kept = max(state.kept for state in self.states)
        done = f"; on {self.sample} sampled rows, then on {kept} rows near a kink and the means of the others"
        return replace(plan, reason=plan.reason.partition("; on ")[0] + done)

    def state(self) -> tuple[State, ...]:
        return tuple(self.states)

    def restore(self, state: tuple[State, ...]) -> None:
        self.states = list(state)


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
