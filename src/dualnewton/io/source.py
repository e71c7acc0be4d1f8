"""What every format offers: its examples, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualnewton.io.dataset import DataError
from dualnewton.io.streams import Report

BLOCK = 1 << 22
"""Bytes that are read, parsed and kept at a time."""


NO_INDEX = 1 << 62
"""The smallest index of no entry."""


@dataclass(frozen=True)
class Wanted:
    """What the user asks of a file; the parameters are those of :func:`dualnewton.io.read`."""

    target: str | int | bool | None = None
    weights: str | int | None = None
    n_features: int | None = None
    zero_based: bool | None = None
    block: int = BLOCK
    report: Report | None = None


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows in CSR form; ``ends`` counts entries from the first row of the block, indices are as the file has them."""

    data: np.ndarray
    indices: np.ndarray
    ends: np.ndarray
    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Some examples in their order: a dense block or sparse rows, labels and weights where the file has them."""

    X: np.ndarray | SparseRows
    y: np.ndarray | None = None
    sample_weight: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.X.ends) if isinstance(self.X, SparseRows) else len(self.X)


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A file that has been looked at and can be read from its beginning, as often as one likes.

    Parameters
    ----------
    path : path
        The file.
    wanted : Wanted
        What was asked for.
    feature_names : tuple of str, optional
        The names of the columns of X.
    target : str, optional
        Where the labels are, in words.
    weights_file : path, optional
        Another file that holds the weights.
    text_labels : bool
        Whether labels are to be kept as text even where they look like numbers.
    """

    path: Path
    wanted: Wanted
    feature_names: tuple[str, ...] | None = None
    target: str | None = None
    weights_file: Path | None = None
    text_labels: bool = False

    is_sparse = False

    @abstractmethod
    def blocks(self) -> Iterator[Rows]:
        """Yield all examples; a fault anywhere is an error, and what came before it is to be thrown away."""

    def settle(self, least: int, most: int) -> tuple[int, int]:
        """Return what to subtract from the indices of sparse rows, and the number of columns, once all were seen."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows")

    def with_text_labels(self) -> Any:
        """Return the same file, with labels as text."""
        return replace(self, text_labels=True)


def only_for_svmlight(path: Path, wanted: Wanted) -> None:
    """Refuse a choice that has no meaning in other formats."""
    if wanted.zero_based is not None:
        raise DataError(f"{path}: zero_based is for svmlight files, got {wanted.zero_based!r}")


def right_width(path: Path, d: int, wanted: Wanted) -> None:
    """Refuse a dense file with another number of features than was asked for."""
    if wanted.n_features not in (None, d):
        raise DataError(f"{path}: has {d} features, n_features={wanted.n_features} was asked for")


def weights_beside(path: Path, wanted: Wanted, what: str) -> Path | None:
    """Return the file that the weights are asked from, for a format that has none of that name itself."""
    if wanted.weights is None:
        return None
    if isinstance(wanted.weights, str) and Path(wanted.weights).is_file():
        return Path(wanted.weights)
    raise DataError(f"{path}: weights={wanted.weights!r} is neither {what} nor a file")
