"""Fits along a grid of penalty strengths: for each value the model of all rows, and from there the models of the folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.estimators._session import starts
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.interop.parts import Data
from dualnewton.interop.specification import Specification
from dualnewton.objective.alike import like
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.problem import Problem
from dualnewton.planning.direct import starts_cold
from dualnewton.run.result import Result

HIGHER = 2.0
"""Ratio of the dual bounds of a fold's last model and of the model of all rows above which a fit starts at the former."""


class OverFolds:
    """Mixin by which an estimator has one problem for each of several weightings of the same rows, solved together.

    Attributes
    ----------
    weightings : sequence of arrays of shape (n,), or None for ones
        c, used instead of the weights of the data.
    last : results, optional
        The models of these weightings for the preceding value.
    cold : bool
        Whether the solver starts at w = 0.
    """

    weightings: Sequence[np.ndarray | None] = (None,)
    last: Sequence[Result] | None = None
    cold: bool = False

    def _starts(self, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
        """Return the model of all rows for each problem, or that of the last value if its dual bound is clearly higher.

        With a strong penalty the model of all rows is the nearer one. With a weak penalty it may be a bad start: if the
        classes are separable without the rows that a fold leaves out, its coefficients are far from those of the fold, and
        Newton's method needs many short steps from there.
        """
        if self.cold:
            return None
        own: Any = super()
        whole, last = own._starts(problems, before), own._starts(problems, self.last)
        if whole is None or last is None:
            return whole or last
        pairs = zip(whole, last, _duals(problems, whole), _duals(problems, last), strict=True)
        return [mine if dual > HIGHER * other else start for start, mine, other, dual in pairs]

    def _posed(self, specification: Specification, data: Data) -> Sequence[Problem]:
        first, *others = self.weightings
        pose: Any = super()._posed  # type: ignore[misc]
        problems = pose(specification, data._replace(sample_weight=first))
        placed = [data.matrix.placed(c) for c in others]
        return [*problems, *(like(problem, sample_weight=c) for c in placed for problem in problems)]


def _duals(problems: Sequence[Problem], starts: Sequence[Result]) -> list[float]:
    """Return the lower bound on the minimum of each problem that its start proves."""
    alphas = [problem.dual_near(start.alpha) for problem, start in zip(problems, starts, strict=True)]
    pairs = certify_models(problems, [start.w for start in starts], [start.intercept for start in starts], alphas)
    return [pair.certificate.dual for pair in pairs]


def fit_together(
    session: GridSession,
    members: Sequence[Any],
    data: Data,
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
    session: GridSession,
    members: Iterable[tuple[str, Any]],
    data: Data,
    c: np.ndarray | None,
    of_folds: Sequence[np.ndarray],
) -> Iterator[tuple[list[Result], list[Result]]]:
    """Yield, for each member, the results of all rows and those of the folds, one fold after the other.

    Parameters
    ----------
    session : GridSession
        Two of its stages are used for each member.
    members : iterable of (str, estimator)
        Estimators of the kind :class:`OverFolds`, from the strongest penalty to the weakest, since each starts from the one
        before.
    data : Data
        All rows.
    c : array of shape (n,), optional
        The weights of the rows.
    of_folds : sequence of arrays of shape (n,)
        The weights of the rows in each fold.
    """
    before: list[Result] | None = None
    found: list[Result] | None = None
    cold = starts_cold(data.matrix.profile, session.tuning)
    for name, member in members:
        member.cold = cold
        session.begin(f"{name}, all rows")
        member.weightings = [c]
        before = member._results(session, data, before)
        session.begin(f"{name}, {len(of_folds)} folds")
        member.weightings, member.last = of_folds, found
        found = member._results(session, data, before * len(of_folds))
        yield before, found
