"""Fits along a grid of penalty strengths: for each value the model of all rows, and from there the models of the folds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import cycle
from typing import Any

import numpy as np

from dualnewton.estimators._session import starts
from dualnewton.estimators.model_selection._combinations import Known, lowest, with_margins
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.interop.parts import Examples
from dualnewton.interop.specification import Specification
from dualnewton.matrix import Data
from dualnewton.objective.alike import like
from dualnewton.objective.groups import for_each
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import combines, starts_cold
from dualnewton.run.result import Result

FARTHEST = 2.0
"""Largest distance of a start from the last model, as a multiple of the distance of the last two models."""


class OverFolds:
    """Mixin by which an estimator has one problem for each of several weightings of the same rows, solved together."""

    # Weights c, of shape (n,) or None for ones, used instead of those of the data.
    weightings: Sequence[np.ndarray | None] = (None,)
    # Where the models of these weightings start, by their models for the preceding values.
    last: Sequence[Result] | None = None
    cold: bool = False  # whether the solver starts at w = 0

    @property
    def _log_strength(self) -> float:
        """The logarithm of the strength of the penalty, −∞ for none."""
        own: Any = self
        return math.log(own.alpha) if own.alpha > 0.0 else -math.inf

    def _starts(self, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
        """Return the starts of these weightings, with the dual point of all rows for this value.

        With a weak penalty the model of all rows may be a bad start: if the classes are separable without the rows that a fold
        leaves out, its coefficients are far from those of the fold, and Newton's method needs many short steps from there.
        """
        if self.cold:
            return None
        own: Any = super()
        whole, last = own._starts(problems, before), own._starts(problems, self.last)
        if whole is None or last is None:
            return whole or last
        return [replace(start, w=mine.w, intercept=mine.intercept) for start, mine in zip(whole, last, strict=True)]

    def _posed(self, specification: Specification, data: Examples) -> Sequence[Problem]:
        first, *others = self.weightings
        pose: Any = super()._posed  # type: ignore[misc]
        problems = pose(specification, data._replace(sample_weight=first))
        placed = [data.matrix.placed(c) for c in others]
        return [*problems, *(like(problem, sample_weight=c) for c in placed for problem in problems)]


def _over_folds(kind: Any) -> Any:
    return type(f"{kind.__name__}OverFolds", (OverFolds, kind), {})


over_folds: Callable[[Any], Any] = cache(_over_folds)
"""Returns the class of estimators like a given one that have one problem for each weighting of the rows."""


class _Trail:
    """The models of some problems for the last two values of a grid, from which those of the next value start."""

    def __init__(self) -> None:
        self.strengths: list[float] = []
        self.models: list[Sequence[Result]] = []
        self.known: list[Sequence[Known]] = []  # the same with their margins, once these are needed

    def add(self, strength: float, models: Sequence[Result]) -> None:
        """Store the models of a value, whose logarithm is given."""
        self.strengths, self.models = [*self.strengths[-1:], strength], [*self.models[-1:], models]
        self.known = [*self.known[-1:], ()]

    def with_margins(self, data: Data) -> list[Sequence[Known]]:
        """Return the models of the last two values with their margins."""
        pairs = zip(self.known, self.models, strict=True)
        self.known = [known or with_margins(data, models) for known, models in pairs]
        return self.known

    @property
    def passes(self) -> float:
        """The largest number of passes to a model of the last value; 0 if there are not yet two values."""
        return max(model.n_epochs for model in self.models[-1]) if len(self.models) == 2 else 0.0

    def part(self, strength: float) -> float:
        """Return how far a value is from the last one, as a multiple of the distance of the last two."""
        before, last = self.strengths
        part = (strength - last) / (last - before) if last != before else 0.0
        return min(part, FARTHEST) if math.isfinite(part) else 0.0

    def ahead(self, strength: float) -> list[Result] | None:
        """Return starts on the line through the last two models; None if there are no models.

        With weaker penalties coefficients grow, of separable classes about linearly in log C. In a model with zeros, a
        coefficient that would change its sign, or is zero, stays where it is. In others all coefficients move, and so the margins
        lie on a line, too: with features far from zero, single coefficients that stay would move all margins.
        """
        if len(self.models) < 2:
            return list(self.models[0]) if self.models else None
        part, found = self.part(strength), []
        for old, new in zip(*self.models, strict=True):
            moved = new.w + part * (new.w - old.w)
            w = moved if new.w.all() else np.where(moved * new.w > 0.0, moved, new.w)
            found.append(replace(new, w=w, intercept=new.intercept + part * (new.intercept - old.intercept)))
        return found


def _corrected(
    starts: list[Result] | None, expected: list[Result] | None, whole: Sequence[Result]
) -> list[Result] | None:
    """Return the starts of the folds, moved as the models of all rows are from where they were expected.

    Models of folds differ little from that of all rows, and by nearly the same for neighbouring values. A zero stays zero.
    """
    if starts is None or expected is None:
        return starts
    moved = []
    for start, old, new in zip(starts, cycle(expected), cycle(whole), strict=False):
        w = np.where(start.w == 0.0, 0.0, start.w + (new.w - old.w))
        moved.append(replace(start, w=w, intercept=start.intercept + (new.intercept - old.intercept)))
    return moved


def _combined(
    problems: Sequence[Problem], strength: float, wholes: _Trail, folds: _Trail, whole: Sequence[Result], tol: float
) -> list[Result]:
    """Return the lowest combinations of the models of each fold, and of all rows, for this value and the last two.

    They start from those of :meth:`_Trail.ahead` and :func:`_corrected`.
    """
    data, part = problems[0].data, folds.part(strength)
    first = np.array([1.0 + part, -part, 1.0, -1.0 - part, part])
    older, last, now = *wholes.with_margins(data), with_margins(data, whole)
    olds, news = folds.with_margins(data)

    def combined(k: int) -> Result:
        own = k % len(whole)
        return lowest(problems[k], [news[k], olds[k], now[own], last[own], older[own]], first, tol)

    return for_each(problems[0], range(len(problems)), combined)


def fit_together(
    session: GridSession,
    members: Sequence[Any],
    data: Examples,
    weightings: Sequence[np.ndarray | None],
    before: Sequence[Sequence[Result]] | None = None,
) -> list[list[Result]]:
    """Return the results of each member for all weightings, from fits of all members in shared passes.

    They start from earlier results of the same problems, if there are any, and not from one another.
    """
    each = []
    for member in members:
        member.weightings = weightings
        each.append(member._problems(data))
    problems = [problem for own in each for problem in own]
    earlier = None if before is None else starts(problems, [result for own in before for result in own])
    results = iter(session.solve(problems, earlier))
    return [[next(results) for _ in own] for own in each]


def walk_values(
    session: GridSession,  # two of its stages are used for each member
    # Estimators of the kind :class:`OverFolds`, from the strongest penalty to the weakest, since each starts from those
    # before.
    members: Iterable[tuple[str, Any]],
    data: Examples,  # all rows
    c: np.ndarray | None,  # (n,) weights of the rows
    of_folds: Sequence[np.ndarray],  # (n,) weights of the rows in each fold
) -> Iterator[tuple[list[Result], list[Result]]]:
    """Yield, for each member, the results of all rows and those of the folds, one fold after the other."""
    wholes, folds = _Trail(), _Trail()
    cold = starts_cold(data.matrix.profile, session.tuning)
    for name, member in members:
        member.cold, strength = cold, member._log_strength
        session.begin(f"{name}, all rows")
        member.weightings, expected = [c], wholes.ahead(strength)
        whole = member._results(session, data, expected)
        session.begin(f"{name}, {len(of_folds)} folds")
        member.weightings, member.last = of_folds, _corrected(folds.ahead(strength), expected, whole)
        if not cold and math.isfinite(strength) and folds.passes >= session.tuning.combined_passes:
            problems = member._problems(data)
            if combines(problems[0], session.tuning):
                member.last = _combined(problems, strength, wholes, folds, whole, session.tol)
        found = member._results(session, data, whole * len(of_folds))
        wholes.add(strength, whole)
        folds.add(strength, found)
        yield whole, found
