"""Splits of the rows into training and test rows, as weights over the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.parts import Examples

LARGEST_CODE = 1 << 30
"""Bound of the codes of the training sets that a row is in."""


@dataclass(frozen=True, eq=False)
class Folds:
    """The training and the test rows of each split."""

    # (folds, n) How often each row is in the training set: 0 or 1, or more if the splitter repeats rows.
    counts: np.ndarray
    tests: list[np.ndarray]  # test rows

    @classmethod
    def of(cls, splits: Iterable[tuple[Any, Any]], n: int, sample_weight: np.ndarray | None = None) -> Folds:
        """Read the splits of n rows, given by row numbers or by masks; training and test set must each have a positive weight."""
        rows = np.arange(n)
        pairs = [(_selected_rows(rows, train), _selected_rows(rows, test)) for train, test in splits]
        if not pairs:
            raise DualnewtonError("cv must yield at least one split (train, test), got none")
        for k, (train, test) in enumerate(pairs):
            if not (train.size and test.size):
                raise DualnewtonError(
                    f"cv must leave training rows and test rows, got {train.size} and {test.size} in split {k}"
                )
            if sample_weight is not None and not (sample_weight[train].any() and sample_weight[test].any()):
                raise DualnewtonError(
                    "sample_weight must be positive for at least one training row and one test row of each split, got "
                    f"only zeros in split {k}"
                )
        counts = np.empty((len(pairs), n))
        # Counts of all folds in one array at first, and copied as floats, would take longer than the counting.
        for own, (train, _) in zip(counts, pairs, strict=True):
            own[:] = np.bincount(train, minlength=n)
        return cls(counts, [test for _, test in pairs])

    def __len__(self) -> int:
        return len(self.tests)

    def weights(self, c: np.ndarray | None) -> list[np.ndarray]:
        """Return the weights of the rows in each fold, given the weights c of all rows; held-out rows have weight zero."""
        return list(self.counts if c is None else self.counts * c)

    def relative_weights(self, c: np.ndarray | None) -> list[np.ndarray]:
        """Return the same weights, scaled to mean one: the objective of a fold is divided by their sum, and P by n."""
        return [each / each.mean() for each in self.weights(c)]

    def and_all_rows(self) -> Folds:
        """Return the folds and one more, which holds out no row."""
        n = self.counts.shape[1]
        return Folds(np.vstack([self.counts, np.ones(n)]), [*self.tests, np.arange(0)])

    @cached_property
    def patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """Groups of rows in the same training sets: their counts, of shape (folds, groups), and the group of each row."""
        codes, most = np.zeros(self.counts.shape[1], dtype=np.int64), 1
        for counts in self.counts.astype(np.int64):  # one sort of codes, since sorting columns takes longer than a pass
            size = int(counts.max()) + 1
            if most * size > LARGEST_CODE:
                _, codes = np.unique(codes, return_inverse=True)
                most = int(codes.max()) + 1
            codes, most = codes * size + counts, most * size
        _, first, group = np.unique(codes, return_index=True, return_inverse=True)
        return self.counts[:, first], group


def _selected_rows(rows: np.ndarray, part: Any) -> np.ndarray:
    """Return the rows selected by their numbers or by a mask; an empty list, which has neither type, selects no rows."""
    return rows[np.asarray(part)] if np.size(part) else rows[:0]


def indexed(data: Examples) -> Any:
    """Return X for scikit-learn's splitters, which use its number of rows; for rows on disk, a column of zeros."""
    return data.X if data.matrix.capabilities.whole else np.broadcast_to(0.0, (data.matrix.n, 1))
