"""Tables of the command line: CSV and Parquet files with columns of any kind, encoded for a fit or by a saved model."""

from __future__ import annotations

import csv
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dualnewton.cli._data import Columns, on_disk, with_offsets
from dualnewton.cli._transfer import stage, transfer
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.interop.offsets import OffsetColumn
    from dualnewton.io import Dataset
    from dualnewton.io.frames import Frame
    from dualnewton.io.source import ReadOptions
    from dualnewton.preprocessing import Encoding, Role
    from dualnewton.preprocessing.examples import Examples

SHOWN = 40
"""Largest number of columns that are described one by one."""


@dataclass(frozen=True, eq=False)
class Training:
    """The data of a fit."""

    dataset: Dataset
    held_out: Dataset | None = None  # examples that ``--test-size`` keeps for a score
    encoding: Encoding | None = None  # None for data that are no table
    roles: Sequence[Role] = ()  # kind of each column of the table
    described: str = ""  # the file of a table and its layout
    notes: Sequence[str] = ()  # messages for the user: rows without a target, new values

    def with_offsets(self, column: OffsetColumn | None) -> Training:
        """Return the data with the offsets computed from the values of a column, which were read as offsets."""
        held = None if self.held_out is None else with_offsets(self.held_out, column)
        return replace(self, dataset=with_offsets(self.dataset, column), held_out=held)


def names_in(text: str | None) -> tuple[str, ...]:
    """Return the names in a list separated by commas; a name with a comma is written in quotes."""
    return (
        () if text is None else tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True)) if name)
    )


def is_table(source: str) -> bool:
    """Return True if a source is a CSV or Parquet file."""
    from dualnewton.io import frames

    return frames.is_table(source)


def training_data(
    source: str,
    wanted: ReadOptions,
    table: Mapping[str, Any],
    offset: OffsetColumn | None = None,
    test_size: float | None = None,
    seed: int = 0,
) -> Training:
    """Read the data of a fit; a table is encoded.

    ``table`` has the options in ``_options.COLUMNS`` and ``_options.FILE``. The share ``test_size`` of the rows is held out,
    chosen at random; the encoding is computed without them.
    """
    from dualnewton.cli._data import loaded

    if test_size is not None and not 0.0 < test_size < 1.0:
        raise DualnewtonError(f"--test-size must be a share of the rows between 0 and 1, got {test_size:g}")
    wanted = replace(wanted, offset=None if offset is None else offset.name)
    stays = on_disk(source, wanted.memory)
    if not stays and is_table(source):
        return _encoded(source, wanted, table, test_size, seed).with_offsets(offset)
    from dualnewton.cli._options import TABLE_DEFAULTS

    asked = [word for word, value in table.items() if value != TABLE_DEFAULTS[word]]
    if asked:
        where = ", which is read in pieces" if stays else ""
        raise DualnewtonError(f"--{asked[0]} is for tables (CSV and Parquet files), got {source}{where}")
    if stays and test_size is not None:
        raise DualnewtonError(f"--test-size is for data in memory, got {source}, which is read in pieces: use --test")
    given: Any = {name: getattr(wanted, name) for name in ("target", "weights", "offset", "memory")}
    dataset = with_offsets(loaded(source, **given), offset)
    if test_size is None:
        return Training(dataset)
    fitted, held = (_rows(dataset, rows) for rows in _split(dataset.X.shape[0], dataset.y, test_size, seed))
    return Training(fitted, held)


def model_data(
    model: SavedModel,
    source: str,
    wanted: ReadOptions,
    table: Mapping[str, Any],
    offset: OffsetColumn | None = None,
    *,
    labelled: bool = True,
) -> Encoded:
    """Return data with the features of a saved model.

    Its encoding is applied to a table; other data must hold its features. Target and offsets are by default the columns of
    the model; they are required if ``labelled``.
    """
    wanted = replace(wanted, target=model.target) if wanted.target is None else wanted
    columns = Columns(model.d, model.feature_names, offset=model.offset if offset is None else offset)
    return data_for(
        model.table, columns, source, wanted, table, labelled=labelled, with_offset=labelled or offset is not None
    )


class Encoded(NamedTuple):
    """Data for a model, their table, if any, and messages for the user about the values."""

    dataset: Dataset
    frame: Frame | None = None
    notes: Sequence[str] = ()


def data_for(
    encoding: Encoding | None,
    columns: Columns,
    source: str,
    wanted: ReadOptions,
    table: Mapping[str, Any],
    *,
    labelled: bool = True,
    with_offset: bool = True,
) -> Encoded:
    """Return data with the features of a fit: a table by its encoding, other data by the columns that the model needs."""
    from dualnewton.io.columns import number_of
    from dualnewton.preprocessing.examples import examples_of

    stays = on_disk(source, wanted.memory)
    if encoding is not None and stays:
        raise DualnewtonError(
            f"the model encodes tables, and {source} is read in pieces, whose columns must be numbers: leave out --memory"
        )
    if encoding is not None and not is_table(source):
        # Numbers of the table are standardised and categories are columns of 0 and 1, in the matrix of the model alone.
        found = f"{source} is none" if Path(source).exists() else f"there is no file {source!r}"
        raise DualnewtonError(
            f"the model encodes the columns of a table, and {found}: give a CSV or Parquet file with these columns"
        )
    if encoding is None:
        required = {"labelled": labelled, "with_offset": with_offset}
        dataset = replace(columns, target=wanted.target).read(source, wanted.weights, memory=wanted.memory, **required)
        return _complete(Encoded(dataset), columns.offset)
    if wanted.target is None:
        wanted = replace(wanted, target=encoding.target)
    frame = encoding.named(_frame(source, wanted, table, encoding.categorical))
    absent = wanted.target not in frame.names
    if absent and not labelled:
        wanted = replace(wanted, target=False)
    elif absent and wanted.target is not None and wanted.target == encoding.target:
        raise DualnewtonError(
            f"{source} has no column {encoding.target!r}, the target of the model: --target names another"
        )
    if columns.offset is not None and (with_offset or number_of(frame.names, columns.offset.name) is not None):
        wanted = replace(wanted, offset=columns.offset.name)
    examples = examples_of(frame, wanted, labelled=labelled)
    with stage(f"encoding {source}"):
        X, notes = encoding.matrix(examples.frame)
    encoded = Encoded(examples.dataset(X, encoding.labels), examples.frame, [*left_out(examples), *notes])
    return _complete(encoded, columns.offset)


def _complete(encoded: Encoded, column: OffsetColumn | None) -> Encoded:
    """Return data with the offsets of a column that was read, and a note if the data do not have it."""
    dataset, frame, notes = encoded
    if column is not None and dataset.offset is None:
        assumed = "exposures of 1" if column.exposure else "offsets of 0"
        notes = [*notes, f"no column {column.name!r}: the predictions are for {assumed}"]
    return Encoded(with_offsets(dataset, column), frame, notes)


def left_out(examples: Examples) -> list[str]:
    """Return a note on the rows that have no target, if there are any."""
    from dualnewton.cli._output import count

    return [f"{count(examples.left_out, 'row')} without a target left out"] if examples.left_out else []


def _encoded(
    source: str, wanted: ReadOptions, table: Mapping[str, Any], test_size: float | None, seed: int
) -> Training:
    from dualnewton.preprocessing import Choices, Encoding, roles_of
    from dualnewton.preprocessing.examples import examples_of

    choices = Choices(**{word: names_in(table[word]) for word in ("drop", "features", "categorical", "numeric")})
    frame = _frame(source, wanted, table, choices.categorical)
    fitted, held = examples_of(frame, wanted), None
    notes = left_out(fitted)
    with stage(f"encoding {source}"):
        if test_size is not None:
            fitted, held = (fitted.some(rows) for rows in _split(len(fitted), fitted.y, test_size, seed))
        roles = roles_of(fitted.frame.table, fitted.features, choices, frame.decimal)
        how = {"standardise": table["standardise"], "choices": choices, "weights": fitted.sample_weight}
        encoding = Encoding.fit(fitted.frame, roles, target=fitted.target, **how)
        X, more = encoding.matrix(fitted.frame)
        training = Training(fitted.dataset(X, encoding.labels), None, encoding, roles, str(frame), notes + more)
        if held is None:
            return training
        X, more = encoding.matrix(held.frame)
    told = [*training.notes, *(f"held-out rows: {note}" for note in more)]
    return replace(training, held_out=held.dataset(X, encoding.labels), notes=told)


def _frame(source: str, wanted: ReadOptions, table: Mapping[str, Any], text: Collection[str]) -> Frame:
    """Read a table with a progress bar."""
    from dualnewton.io.frames import read_frame

    size = Path(source).stat().st_size
    with transfer(f"reading {source}") as progress:
        how = {"encoding": table["encoding"], "decimal": table["decimal"]}
        return read_frame(source, replace(wanted, report=lambda done: progress(done, size), **how), text)


def _split(n: int, y: np.ndarray | None, test_size: float, seed: int) -> list[np.ndarray]:
    """Divide rows at random, with the same shares of each class where the labels are classes."""
    from sklearn.model_selection import train_test_split

    from dualnewton.interop.labels import are_classes, tidy

    labels_ = None if y is None else tidy(y)
    classes = labels_ if labels_ is not None and are_classes(labels_) else None
    try:
        parts = train_test_split(np.arange(n), test_size=test_size, random_state=seed, stratify=classes)
    except ValueError as error:  # a class of one example, or no example left
        raise DualnewtonError(f"--test-size {test_size:g} cannot divide {n} examples: {error}") from None
    return [np.sort(part) for part in parts]


def _rows(dataset: Dataset, rows: np.ndarray) -> Dataset:
    from dualnewton.io.dataset import VECTORS

    picked: Any = {name: own[rows] for name in VECTORS if (own := getattr(dataset, name)) is not None}
    return replace(dataset, X=dataset.X[rows], **picked)


# Output ----------------------------------------------------------------------------------------------------------------------


def describe(training: Training) -> None:
    """Print the table, the kind of each of its columns, and its encoding."""
    from dualnewton.cli._output import say, table

    if training.encoding is None:
        return
    say("table", training.described)
    encoded = {column.name: column.described for column in training.encoding.columns}
    rows = [
        (role.name, role.kind.value, role.seen, role.missing or "", encoded.get(role.name, "left out"))
        for role in training.roles
    ]
    print()
    table(("column", "kind", "values", "missing", "used"), rows[:SHOWN])
    if len(rows) > SHOWN:
        print(f"… and {len(rows) - SHOWN} more columns")
    print()
    for note in training.notes:
        say("note", note)
