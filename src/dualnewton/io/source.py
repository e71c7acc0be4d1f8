"""The interface of a format that is read sequentially: its examples, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dualnewton.io.dataset import DataError
from dualnewton.io.streams import Report

BLOCK = 1 << 22
"""Bytes of a file that are read and parsed at a time: 4 MiB, large against the cost of a call and small in memory."""

NO_INDEX = 1 << 62
"""The minimum over the indices of a block without entries; larger than any index, so that ``min`` ignores it."""


@dataclass(frozen=True)
class Wanted:
    """The options of the user; the parameters are those of :func:`dualnewton.io.read` and :func:`dualnewton.io.open`."""

    target: str | int | bool | None = None
    weights: str | int | None = None
    offset: str | int | None = None
    n_features: int | None = None
    zero_based: bool | None = None
    encoding: str | None = None
    decimal: str | None = None
    memory: str | None = None
    block: int = BLOCK
    report: Report | None = None


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows in CSR form; ``ends`` counts entries from the first row of the block, and indices are those of the file."""

    data: np.ndarray
    indices: np.ndarray
    ends: np.ndarray
    least: int
    most: int


@dataclass(frozen=True, eq=False)
class Rows:
    """Consecutive examples: a dense block or sparse rows, with labels, weights and offsets if the file has them."""

    X: np.ndarray | SparseRows
    y: np.ndarray | None = None
    sample_weight: np.ndarray | None = None
    offset: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.X.ends) if isinstance(self.X, SparseRows) else len(self.X)


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A file whose columns are known and whose examples can be read from the beginning any number of times."""

    path: Path
    wanted: Wanted  # options of the user
    feature_names: tuple[str, ...] | None = None  # names of the columns of X
    target: str | None = None  # description of where the labels are, such as "the column 'price'"
    # Other files that hold the weights and the offsets.
    weights_file: Path | None = None
    offset_file: Path | None = None
    text_labels: bool = False  # whether labels that look like numbers are kept as text

    is_sparse = False

    @abstractmethod
    def blocks(self) -> Iterator[Rows]:
        """Yield all examples; an invalid line raises ``DataError``, and the caller discards the blocks before it."""

    def shift_and_width(self, least: int, most: int) -> tuple[int, int]:
        """Return the number to subtract from sparse indices and the number of columns, from the extreme indices of the file."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows")


def refuse_zero_based(path: Path, wanted: Wanted) -> None:
    """Raise an error if ``zero_based`` is given for a format other than svmlight."""
    if wanted.zero_based is not None:
        raise DataError(f"{path}: zero_based is for svmlight files, got {wanted.zero_based!r}")


def check_width(path: Path, d: int, wanted: Wanted) -> None:
    """Raise an error if a dense file does not have the requested number of features."""
    if wanted.n_features not in (None, d):
        raise DataError(f"{path}: has {d} features, expected n_features={wanted.n_features}")


def separate_file(path: Path, name: str, asked: str | int | None, what: str) -> Path | None:
    """Return the separate file that the option ``name`` gives, or None; raise an error if the file does not exist."""
    if asked is None:
        return None
    if isinstance(asked, str) and Path(asked).is_file():
        return Path(asked)
    raise DataError(f"{path}: {name}={asked!r} is neither {what} nor a file")
