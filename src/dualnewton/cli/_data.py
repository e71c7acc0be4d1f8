"""Data for a saved model: its features, in its order."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dualnewton.errors import DualnewtonError
from dualnewton.interop.offsets import OffsetColumn
from dualnewton.matrix import Data

if TYPE_CHECKING:
    from dualnewton.io import Dataset
    from dualnewton.io.source import ReadOptions


class OtherColumnsError(DualnewtonError):
    """The data do not have the features of the model."""


@dataclass(frozen=True)
class Columns:
    """The columns that a model needs."""

    d: int
    # If the data have names too, they may be in any order, and other columns are ignored.
    names: Sequence[str] | None = None
    target: str | int | bool | None = None  # column of the target
    offset: OffsetColumn | None = None  # column that is added to the margins

    def read(
        self,
        source: str,
        weights: str | int | None = None,
        *,
        labelled: bool = True,
        with_offset: bool = True,
        memory: str | None = None,
    ) -> Dataset:
        """Read the data of a file or a named set; unless ``labelled`` or ``with_offset``, it may have no target or offset.

        If a memory is given, the rows are read from disk within it.
        """
        targets: list[Any] = [self.target, *([] if labelled else [False])]
        offsets = [None if self.offset is None else self.offset.name, *([] if with_offset else [None])]
        # A table may have columns that the model does not use; a sparse file may have no entry of the last features.
        widths = [self.d, None] if self.names is None else [None, self.d]
        errors: list[DualnewtonError] = []
        for offset, place, n_features in itertools.product(dict.fromkeys(offsets), targets, widths):
            try:
                found = {"target": place, "weights": weights, "offset": offset, "n_features": n_features}
                return self.of(loaded(source, memory=memory, **found))
            except DualnewtonError as error:
                errors.append(error)
        # An error about the columns is more helpful than one about an attempt to read them.
        raise next((error for error in errors if isinstance(error, OtherColumnsError)), errors[0])

    def of(self, dataset: Dataset) -> Dataset:
        """Return the data with the features of the model, in the order of the model."""
        d = dataset.X.shape[1]
        if self.names is None or dataset.feature_names is None:
            if d != self.d:
                raise OtherColumnsError(f"{dataset.name} has {d} features, the model was fitted on {self.d}")
            return dataset
        if tuple(self.names) == tuple(dataset.feature_names):
            return dataset
        place = {name: k for k, name in enumerate(dataset.feature_names)}
        absent = [name for name in self.names if name not in place]
        if absent:
            more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
            raise OtherColumnsError(f"{dataset.name} has no column {absent[0]!r}{more}, which the model was fitted on")
        own = [place[name] for name in self.names]
        X = dataset.X.with_features(np.array(own)) if isinstance(dataset.X, Data) else dataset.X[:, own]
        return replace(dataset, X=X, feature_names=tuple(self.names))


def on_disk(source: str, memory: str | None) -> bool:
    """Return True if the rows of a source stay on disk: those of a folder, and of any file if a memory is given."""
    return memory is not None or Path(source).is_dir()


def read_options(roles: Mapping[str, Any]) -> tuple[ReadOptions, OffsetColumn | None]:
    """Return the options of the readers, and the column that ``--offset`` or ``--exposure`` names, of which there may be one."""
    from dualnewton.io.source import ReadOptions

    given = dict(roles)
    offset, exposure = given.pop("offset"), given.pop("exposure")
    if offset is not None and exposure is not None:
        raise DualnewtonError(
            f"--offset and --exposure both define the offset: give one of them, got {offset!r} and {exposure!r}"
        )
    name = offset if exposure is None else exposure
    return ReadOptions(**given), None if name is None else OffsetColumn(name, exposure=exposure is not None)


def with_offsets(dataset: Dataset, column: OffsetColumn | None) -> Dataset:
    """Return the data with the offsets computed from the values of a column, which were read as offsets."""
    if column is None or dataset.offset is None:
        return dataset
    return replace(dataset, offset=column.offsets(np.asarray(dataset.offset)))


def loaded(source: str, *, memory: str | None = None, **options: Any) -> Dataset:
    """Read a file or a named set with a progress bar, or open it if its rows stay on disk.

    The options are those of ``dualnewton.data.find`` and ``dualnewton.data.open``.
    """
    from dualnewton import io
    from dualnewton.cli._transfer import stage, transfer

    if on_disk(source, memory):
        if not (Path(source).exists() or glob.has_magic(source)):
            raise DualnewtonError(
                f"--memory needs a file, a folder or a pattern, and there is none named {source!r}: leave it out for a named set"
            )
        with stage(f"opening {source}"):
            given = options if memory is None else {**options, "memory": memory}
            return io.open(source, **given)
    with transfer(f"loading {source}") as progress:
        return io.find(source, progress=progress, **options)
