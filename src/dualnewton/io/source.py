"""The interface of a format that is read sequentially: its examples, block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from dualnewton.io.dataset import OPTIONS, DataError
from dualnewton.io.streams import Report

BLOCK = 1 << 22
"""Bytes of a file that are read and parsed at a time: 4 MiB, large against the cost of a call and small in memory."""

NO_INDEX = 1 << 62
"""The minimum over the indices of a block without entries; larger than any index, so that ``min`` ignores it."""


@dataclass(frozen=True)
class ReadOptions:
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
    """Consecutive examples: a dense block or sparse rows, and the vectors that the file has, by their field of a data set."""

    X: np.ndarray | SparseRows
    vectors: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.X.ends) if isinstance(self.X, SparseRows) else len(self.X)


@dataclass(frozen=True, eq=False)
class Source(ABC):
    """A file whose columns are known and whose examples can be read from the beginning any number of times."""

    path: Path
    wanted: ReadOptions  # options of the user
    feature_names: tuple[str, ...] | None = None  # names of the columns of X
    target: str | None = None  # description of where the labels are, such as "the column 'price'"
    files: Mapping[str, Path] = field(default_factory=dict)  # other files that hold the weights or the offsets
    text_labels: bool = False  # whether labels that look like numbers are kept as text

    is_sparse = False

    @abstractmethod
    def blocks(self) -> Iterator[Rows]:
        """Yield all examples; an invalid line raises ``DataError``, and the caller discards the blocks before it."""

    def shift_and_width(self, least: int, most: int) -> tuple[int, int]:
        """Return the number to subtract from sparse indices and the number of columns, from the extreme indices of the file."""
        raise NotImplementedError(f"{type(self).__name__} has no sparse rows")


def refuse_zero_based(path: Path, wanted: ReadOptions) -> None:
    """Raise an error if ``zero_based`` is given for a format other than svmlight."""
    if wanted.zero_based is not None:
        raise DataError(f"{path}: zero_based is for svmlight files, got {wanted.zero_based!r}")


def check_width(path: Path, d: int, wanted: ReadOptions) -> None:
    """Raise an error if a dense file does not have the requested number of features."""
    if wanted.n_features not in (None, d):
        raise DataError(f"{path}: has {d} features, expected n_features={wanted.n_features}")


def separate_files(path: Path, wanted: ReadOptions, what: str, known: Collection[str] = ()) -> dict[str, Path]:
    """Return the separate files of the weights and the offsets, by their field, without the fields that are ``known``.

    An option that names no file is an error; ``what`` says what else it could have named.
    """
    files = {}
    for name, option in OPTIONS.items():
        asked = getattr(wanted, option)
        if asked is None or name in known:
            continue
        if not isinstance(asked, str) or not Path(asked).is_file():
            raise DataError(f"{path}: {option}={asked!r} is neither {what} nor a file")
        files[name] = Path(asked)
    return files
