"""Problems over the same X that are evaluated by the same array operations, since they differ in labels and λ alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton._cached import cached_property
from dualnewton.matrix import RowVectors
from dualnewton.matrix.workers import workers
from dualnewton.row_arrays import is_elsewhere, stacked

if TYPE_CHECKING:
    from dualnewton.objective.problem import Problem

TOGETHER = 1 << 15
"""Number of rows, counted for each problem, up to which problems that differ in y and λ alone form a group: one call evaluates
all of them. Their arrays (256 KiB each) stay in the cache, and the operating system does not map memory for each."""

LONG = 1 << 15
"""Number of rows from which threads share the models of a pass for what each of them needs alone, about a millisecond."""


class Group:
    """Problems of a pass that are evaluated by the same array operations: one problem, or M > 1 that differ in y and λ alone.

    Arrays with an entry per row have the shape (n,), or (n, K) for a loss of K > 1 columns; for M problems (M, n). Arrays with an
    entry per feature have the shape (d,), (K, d) or (M, d).

    ``scale`` is λn, of shape (M, 1) for M problems.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        first, M = problems[0], len(problems)
        self.problems, self.first, self.M, self.K = problems, first, M, first.columns
        if M == 1:
            self.scale: Any = first.lam * first.n
            vars(self)["rows"] = first.row_vectors
        else:
            self.scale = np.array([each.lam * each.n for each in problems])[:, None]

    @cached_property
    def rows(self) -> RowVectors:
        """Labels, weights and offsets; the labels of M problems have the shape (M, n)."""
        return RowVectors(stacked([each.y for each in self.problems]), self.first.sample_weight)

    def each(self, arrays: Any) -> Any:
        """Return the part of each problem, of an array with a row per problem if there are several."""
        return (arrays,) if self.M == 1 else arrays

    def per_row(self, numbers: Sequence[float], like: Any) -> Any:
        """Return one number per column in a shape that multiplies arrays with an entry per row."""
        if self.M > 1:
            return np.array(numbers)[:, None]
        return numbers[0] if self.K == 1 else np.asarray(numbers, like=like)

    def per_feature(self, numbers: Sequence[float]) -> Any:
        """Return one number per column in a shape that multiplies arrays with an entry per feature."""
        return numbers[0] if self.M == self.K == 1 else np.array(numbers)[:, None]

    def numbers(self, found: Any) -> list[float]:
        """Return one number per column as a list."""
        return [float(found)] if self.M == self.K == 1 else found.tolist()


def groups_of(problems: Sequence[Problem]) -> list[Group]:
    """Group problems of one column on few rows that differ in y and λ alone; other problems are evaluated one by one."""
    first, size = problems[0], TOGETHER // problems[0].n
    if len(problems) == 1 or size < 2 or first.columns > 1 or is_elsewhere(first.y):
        return singles(problems)
    if not all(_evaluated_alike(each, first) for each in problems):
        return singles(problems)
    return [Group(problems[k : k + size]) for k in range(0, len(problems), size)]


def singles(problems: Sequence[Problem]) -> list[Group]:
    """Return a group for each problem."""
    return [Group((each,)) for each in problems]


def _evaluated_alike(one: Problem, other: Problem) -> bool:
    """Whether two problems over the same X differ in y and λ alone, and have no offsets; weights must be the same object."""
    same = one.sample_weight is other.sample_weight
    plain = same and one.offset is None and one.fit_intercept == other.fit_intercept
    same = one.regularizer is other.regularizer or one.regularizer == other.regularizer
    return plain and same and (one.loss is other.loss or one.loss == other.loss)


def for_each(problem: Problem, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Return ``work(item)`` for each item, such as a model, in threads if the rows of this problem are many and in memory."""
    if problem.n < LONG or is_elsewhere(problem.y) or not problem.data.capabilities.random_rows:
        return [work(item) for item in items]
    return workers().each(items, work)


def columns_of(models: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each problem, or form of one, with the columns of its margins: an index if there is one."""
    first = 0
    for model in models:
        columns = model.loss.columns
        yield model, first if columns == 1 else slice(first, first + columns)
        first += columns
