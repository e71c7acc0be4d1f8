"""The walk over the strengths of a penalty: for each, the model of all rows and, from there, those of the folds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dualnewton.estimators._validation import Data
from dualnewton.estimators.model_selection._alike import like
from dualnewton.estimators.model_selection._session import GridSession
from dualnewton.judging import AnyProblem
from dualnewton.regularizers import Regularizer
from dualnewton.result import Result


class OverFolds:
    """Makes an estimator pose its problems once for each of several weightings of the same rows, to be solved together.

    Attributes
    ----------
    weightings : sequence of arrays of shape (n,), or None for ones
        c, in the place of the weights of the data.
    """

    weightings: Sequence[np.ndarray | None] = (None,)

    def _problems_with(self, data: Data, lam: float, regularizer: Regularizer) -> Sequence[AnyProblem]:
        first, *others = self.weightings
        pose: Any = super()._problems_with  # type: ignore[misc]
        problems = pose(data._replace(sample_weight=first), lam, regularizer)
        return [*problems, *(like(problem, sample_weight=c) for c in others for problem in problems)]


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
    for name, member in members:
        session.begin(f"{name}, all rows")
        member.weightings = [c]
        before = member._results(session, data, before)
        session.begin(f"{name}, {len(of_folds)} folds")
        member.weightings = of_folds
        yield before, member._results(session, data, before * len(of_folds))
