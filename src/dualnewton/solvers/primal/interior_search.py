"""The interior-point steps of one model: on all examples first, and then on those whose slope is undecided.

At a kink the slope of a loss jumps; the slope of an example (minus its dual variable) lies within the jump. Near the optimum most
slopes are near an end of their jump: they are *decided*. Their examples are left out, so that a step costs as much as the matrix
of the others, and the gap over all examples checks that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualnewton.solvers.crossovers import Crossovers
from dualnewton.solvers.primal.interior_steps import State, Terms, step
from dualnewton.solvers.state import assign, record

PATIENCE = 6
"""Consecutive steps without a smaller gap after which rounding is assumed to have stopped the method."""

DECIDED, SMALL_MOVE, STRICTER = 0.15, 0.25, 0.2
"""A slope is decided if it is within the fraction ``DECIDED`` of its jump from an end, and the last step changed the distance of
the margin from the kink by less than the fraction ``SMALL_MOVE``; that is multiplied by ``STRICTER`` each time it was wrong."""

RESTRICTED_FROM, FEWEST = 0.3, 4.0
"""Relative gap above which decided examples are left out only if ``FEWEST`` for each unknown remain: there, nearly all slopes of
separable classes are near zero, so that too few examples might remain. (On random problems of 500 to 6000 rows 2 and 4 took
the same time, 8 took 3 % more.)"""

CLOSE, TIGHTER = 0.9, 4.0
"""The steps end when the gap is at most ``CLOSE`` times the wanted one. What the imbalance adds to it is an estimate and counts
``TIGHTER`` times: balancing the dual point may cost more. (Of 316 certificates on random data 4 exceeded the gap of the last step
by more than 10 %, all with an imbalance or at a gap below 1e-5.)"""

NEAR = 4.0
"""The gap is computed where its estimate from p s and q t, about twice as large, is within this factor of the tolerance."""


@dataclass(frozen=True, eq=False)
class SearchState:
    """What a :class:`Search` remembers between steps: its attributes of the same names, points as tuples of their fields."""

    state: tuple[Any, ...]
    best: tuple[Any, ...]
    saved: tuple[Any, ...]
    idle: int
    value: float
    gap: float
    fine: bool
    calm: float
    kept: np.ndarray | None
    p: np.ndarray | None


class Search:
    """The steps of one model."""

    def __init__(
        self,
        whole: Terms,  # losses of all examples
        state: State,  # where to start
        losses: Callable[[np.ndarray], np.ndarray],  # losses of the examples for their margins without offset
        crossovers: Crossovers,  # from which size on examples are left out
        *,
        restricts: bool = True,  # whether examples may be left out
    ) -> None:
        self.whole, self.losses, self.crossovers = whole, losses, crossovers
        self.terms = whole  # losses of all examples, or of those that are kept
        self.state, self.best = state, state  # last point of these, and that of the smallest gap
        self.idle = 0  # consecutive steps without a smaller gap
        self.gap = state.gap  # n(P − D) of all examples at the best point: an estimate, unless it was computed
        self.value = NEAR * state.gap  # n P; an upper bound until it is computed
        self.calm = SMALL_MOVE if restricts and whole.system.restricts else 0.0  # 0 if no examples are left out
        self.fine = False  # whether steps are refined
        self.kept: Any = None  # examples that are not left out; None if these are all
        self.p: Any = None  # (M, n) p of all examples, if some are left out: these stay at an end of their jump
        self.saved = state  # point at which examples were left out first

    def known(self) -> SearchState:
        """Return what is remembered between steps, as plain data."""
        return record(SearchState, self, state=tuple(self.state), best=tuple(self.best), saved=tuple(self.saved))

    def restore(self, known: SearchState) -> None:
        """Continue from what was remembered."""
        assign(self, known, state=State(*known.state), best=State(*known.best), saved=State(*known.saved))
        self.terms = self.whole if self.kept is None else self.whole.restricted(self.kept, self.p)

    @property
    def is_stuck(self) -> bool:
        """Whether rounding has stopped the steps."""
        return self.idle >= PATIENCE

    @property
    def share(self) -> float:
        """The share of the examples that are not left out."""
        return 1.0 if self.kept is None else len(self.kept) / len(self.whole.least)

    def advance(self, *, fine: bool, most: float = math.inf, **options: Any) -> float:
        """Take a step, and leave decided examples out; return the passes over the examples that were not left out.

        If there is no step, rounding has stopped the method, or the limit ``most`` on passes.
        """
        if fine and not self.fine:  # errors of steps that were not refined are in the imbalance
            self.fine, self.state = True, self.terms.at(*self.state[:3], self.state.unit, single=self.state.single)
        before = self.state
        state, length, passes = step(self.terms, before, fine=fine, most=most, **options)
        if state is None or not math.isfinite(state.gap):
            if passes < most:
                self.idle = PATIENCE
        else:
            self.state, self.idle = state, self.idle + 1
            if state.gap < self.best.gap:
                self.best, self.gap, self.idle = state, state.gap, 0
                self._restrict(before, length)
        if self.idle >= PATIENCE and self.kept is not None:
            self._go_back()
        return passes

    def is_over(self, tol: float) -> bool:
        """Whether the gap of all examples is at most ``tol``; it is computed where the estimate is near it."""
        whole, best = self.whole, self.best
        if best.gap > NEAR * tol * self.value:
            return False
        r, p = self._evaluate(best.x) - whole.kinks, self.all_p()
        over = whole.jumps * np.maximum(r, 0.0) - p * r
        imbalance = best.imbalance if self.fine else self.terms.imbalance(best.x, best.boxes[0])
        more = whole.system.gap(imbalance, best.unit)
        self.gap = whole.total(over) + more
        if self.gap + (TIGHTER - 1.0) * more <= CLOSE * tol * self.value:
            return True
        if self.kept is not None:
            over[:, self.kept] = 0.0
            if whole.total(over) > 0.5 * tol * self.value:
                self._widen(r, p, np.flatnonzero(whole.fold(over)))
        return False

    def _evaluate(self, x: np.ndarray) -> np.ndarray:
        """Compute n P; return the margins."""
        whole = self.whole
        z = whole.system.margins(x)
        losses = self.losses(z)
        self.value = float(losses.sum() if whole.c is None else whole.c @ losses) + whole.system.penalty(x)
        return z

    def all_p(self) -> np.ndarray:
        """p of all examples at the best point."""
        if self.kept is None:
            return self.best.boxes[0]
        p: np.ndarray = self.p.copy()
        p[:, self.kept] = self.best.boxes[0]
        return p

    def boxes(self) -> np.ndarray:
        """p, q, s, t of all examples at the best point."""
        if self.kept is None:
            return self.best.boxes
        p, r = self.all_p(), self.whole.system.margins(self.best.x) - self.whole.kinks
        boxes = np.stack([p, self.whole.jumps - p, np.maximum(-r, 0.0), np.maximum(r, 0.0)])
        boxes[:, :, self.kept] = self.best.boxes
        return boxes

    # Examples that are left out ----------------------------------------------------------------------------------------------

    def _restrict(self, before: State, length: float) -> None:
        """Continue with the undecided examples alone, if they are much fewer, after a step from ``before`` of this length."""
        terms, state = self.terms, self.state
        n = len(terms.least)
        if self.calm == 0.0 or state.x.size * n < self.crossovers.undecided_entries:
            return
        # A slope is decided if a whole step would hardly have moved the margin, compared with its distance from the kink.
        calm = np.abs(state.boxes[2:] - before.boxes[2:]) < length * self.calm * state.boxes[2:]
        calm &= state.boxes[:2] < DECIDED * terms.jumps
        chosen = np.flatnonzero(~(calm[0] | calm[1]).all(axis=0))
        if not 0 < len(chosen) <= self.crossovers.undecided_share * n:
            return
        ends = np.where(state.boxes[0] < state.boxes[1], 0.0, terms.jumps)
        if self.kept is None:
            self._evaluate(state.x)
        if state.gap > RESTRICTED_FROM * self.value and len(chosen) < FEWEST * state.x.size:
            return
        if self.kept is None:
            self.saved, p, kept = state, ends, chosen
        else:
            p, kept = self.p.copy(), self.kept[chosen]
            p[:, self.kept] = ends
        self._keep(state.x, state.r.take(chosen, 1), state.boxes.take(chosen, 2), kept, p)

    def _keep(self, x: np.ndarray, r: np.ndarray, boxes: np.ndarray, kept: np.ndarray, p: np.ndarray) -> None:
        """Continue with the examples ``kept``, at a point of them."""
        self.kept, self.p, self.terms = kept, p, self.whole.restricted(kept, p)
        self.state = self.best = self.terms.at(x, r, boxes, self.state.unit, single=self.state.single)
        self.gap, self.idle = self.best.gap, 0

    def _widen(self, r: np.ndarray, p: np.ndarray, wrong: np.ndarray) -> None:
        """Bring examples back that were left out, and are on the wrong side of a kink.

        If these are far on the wrong side, the steps continue from the point at which examples were left out first.
        """
        whole, best = self.whole, self.best
        if self.calm < SMALL_MOVE * STRICTER**2:
            self._go_back()
            return
        inside = np.clip(p, DECIDED * whole.jumps, (1.0 - DECIDED) * whole.jumps)
        s = np.maximum(-r, 0.0) + best.mu * whole.even / (DECIDED * whole.jumps)
        boxes = np.stack([inside, whole.jumps - inside, s, s + r])
        boxes[:, :, self.kept] = best.boxes
        kept, self.calm = np.union1d(self.kept, wrong), STRICTER * self.calm
        self._keep(best.x, r.take(kept, 1), boxes.take(kept, 2), kept, p)
        if self.best.gap > self.saved.gap:
            self._go_back()

    def _go_back(self) -> None:
        """Continue from the point at which examples were left out first, and leave none out any more."""
        self.state = self.best = self.saved._replace(single=self.state.single)
        self.terms, self.kept, self.p, self.calm, self.gap, self.idle = self.whole, None, None, 0.0, self.best.gap, 0
