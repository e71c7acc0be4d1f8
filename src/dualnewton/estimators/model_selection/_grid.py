"""The walk over the strengths of a penalty: for each, the model of all rows and, from there, those of the folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.interop.parts import Data
from dualnewton.interop.specification import Specification
from dualnewton.objective.alike import like
from dualnewton.objective.certificates import certify_models
from dualnewton.objective.problem import Problem
from dualnewton.run.result import Result

HIGHER = 2.0
"""The dual bound of a fold's own last model must be so many times that of the model of all rows, for the fit to start from it."""


class OverFolds:
    """Makes an estimator pose its problems once for each of several weightings of the same rows, to be solved together.

    Attributes
    ----------
    weightings : sequence of arrays of shape (n,), or None for ones
        c, in the place of the weights of the data.
    last : results, optional
        The models of these weightings for the value before this one.
    """

    weightings: Sequence[np.ndarray | None] = (None,)
    last: Sequence[Result] | None = None

    def _starts(self, problems: Sequence[Problem], before: Sequence[Result] | None) -> list[Result] | None:
        """Return the model of all rows for each problem, or that of the last value where its dual bound is clearly higher.

        With a strong penalty the model of all rows is the nearer one. With a weak penalty it may be a bad start, whatever its
        objective: if the rows that a fold leaves out are those that keep the classes from being separated, its coefficients
        are far too large for the fold, and Newton's method comes back from there in many short steps.
        """
        own: Any = super()
        whole, last = own._starts(problems, before), own._starts(problems, self.last)
        if whole is None or last is None:
            return whole or last
        duals = _duals([*problems, *problems], [*whole, *last])  # in shared passes
        pairs = zip(whole, last, duals[: len(whole)], duals[len(whole) :], strict=True)
        return [mine if dual > HIGHER * other else start for start, mine, other, dual in pairs]

    def _posed(self, specification: Specification, data: Data) -> Sequence[Problem]:
        first, *others = self.weightings
        pose: Any = super()._posed  # type: ignore[misc]
        problems = pose(specification, data._replace(sample_weight=first))
        placed = [data.matrix.placed(c) for c in others]
        return [*problems, *(like(problem, sample_weight=c) for c in placed for problem in problems)]


def _duals(problems: Sequence[Problem], starts: Sequence[Result]) -> list[float]:
    """Return the lower bound of each problem that a start proves."""
    alphas = [problem.dual_near(start.alpha) for problem, start in zip(problems, starts, strict=True)]
    pairs = certify_models(problems, [start.w for start in starts], [start.intercept for start in starts], alphas)
    return [pair.certificate.dual for pair in pairs]


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
        Each poses its problems :class:`OverFolds`; from the strongest penalty to the weakest, since each starts from the last.
    data : Data
        All rows.
    c : array of shape (n,), optional
        The weights of the rows.
    of_folds : sequence of arrays of shape (n,)
        Those of each fold.
    """
    before: list[Result] | None = None
    found: list[Result] | None = None
    for name, member in members:
        session.begin(f"{name}, all rows")
        member.weightings = [c]
        before = member._results(session, data, before)
        session.begin(f"{name}, {len(of_folds)} folds")
        member.weightings, member.last = of_folds, found
        found = member._results(session, data, before * len(of_folds))
        yield before, found
