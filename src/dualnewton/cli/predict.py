"""``dualnewton predict``: predictions of a saved model."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    import numpy as np

    from dualnewton.interop.model_file import SavedModel
    from dualnewton.io.frames import Frame

Out = Annotated[str | None, options.option("--out", "FILE", "Write to a .csv or .npy file; to the screen by default.")]
Proba = Annotated[bool, options.option("--proba", None, "The probability of each class (logistic loss).")]
Keep = Annotated[
    str | None,
    options.option(
        "--keep", "NAMES", "Columns of a table to copy to the output, separated by commas; by default its identifiers."
    ),
]
Decision = Annotated[
    bool, options.option("--decision", None, "The margins x'w + b + offset: one, or one for each class.")
]

WITHOUT_WEIGHTS = {name: None for name in options.ROLE_DEFAULTS if name != "weights"}


@options.with_groups
def predict(
    model: options.Model,
    data: options.Data,
    out: Out = None,
    proba: Proba = False,
    decision: Decision = False,
    keep: Keep = None,
    roles: options.Roles = WITHOUT_WEIGHTS,
    table: options.Table = options.FILE_DEFAULTS,
) -> None:
    """Predict the class or the value of each row of DATA by a MODEL that `fit` has saved.

    Columns are matched by name if model and data have names, in any order. Otherwise they are matched by position, and their
    number must be that of the model. A target column is ignored, and may be absent. A table is
    encoded as in the fit; its identifiers, which the fit left out, are the first columns of the output. A model that was fitted
    with --offset or --exposure looks for the same column; without it, predictions are for an offset of 0 (an exposure of 1).

    For example:

        dualnewton fit iris --out iris.model
        dualnewton predict iris.model iris --proba --out iris.csv
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import read_options
    from dualnewton.cli._tables import model_data, names_in
    from dualnewton.interop.model_file import SavedModel

    if proba and decision:
        raise DualnewtonError("--proba and --decision ask for two things: give one of them")
    write = writer(out)
    _output.ready(out)
    fitted = SavedModel.load(model)
    wanted, added = read_options(roles)
    dataset, frame, notes = model_data(fitted, data, wanted, table, added, labelled=False)
    names, values = predictions(fitted, dataset.X, dataset.offset, proba=proba, decision=decision)
    _output.warn(notes)
    if out is None or Path(out).suffix.lower() == ".csv":
        names, values = with_columns(names, values, frame, fitted, names_in(keep), data)
    if out is None:
        write_csv(sys.stdout, names, values)
        return
    with _output.writing(out):
        write(out, names, values)


def predictions(
    model: SavedModel, X: Any, offset: np.ndarray | None, *, proba: bool, decision: bool
) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns, and the columns."""
    several = [] if model.classes is None else [str(label) for label in model.classes.tolist()]
    if proba:
        return several, model.predict_proba(X, offset=offset)
    if decision:
        margins = model.decision_function(X, offset=offset)
        names = several or [f"decision_{k}" for k in range(margins.shape[-1])]
        return (["decision"], margins[:, None]) if margins.ndim == 1 else (names, margins)
    values = model.predict(X, offset=offset)
    if values.ndim == 2:
        return [f"prediction_{k}" for k in range(values.shape[1])], values
    return ["prediction"], values[:, None]


def with_columns(
    names: list[str], values: np.ndarray, frame: Frame | None, model: SavedModel, keep: Sequence[str], data: str
) -> tuple[list[str], np.ndarray]:
    """Return predictions after the identifiers of a table, and the columns of ``--keep``."""
    import numpy as np

    if keep and frame is None:
        raise DualnewtonError(f"--keep is for tables (CSV and Parquet files) and models of such, got {data}")
    if frame is None or model.table is None:
        return names, values
    absent = [name for name in keep if name not in frame.names]
    if absent:
        raise DualnewtonError(f"--keep must name columns of {data}, got {absent[0]!r}")
    kept = [name for name in frame.names if name in model.table.identifiers or name in keep]
    if not kept:
        return names, values
    columns = [frame.table.column(name).to_pylist() for name in kept] + values.T.tolist()
    wide = np.empty((len(values), len(columns)), dtype=object)
    for k, column in enumerate(columns):
        wide[:, k] = column
    return [*kept, *names], wide


def writer(out: str | None) -> Callable[[str, list[str], np.ndarray], None]:
    """Return the function that writes a file with this ending."""
    ending = ".csv" if out is None else Path(out).suffix.lower()
    if ending not in WRITERS:
        raise DualnewtonError(f"--out must end in {' or '.join(WRITERS)}, got {out!r}")
    return WRITERS[ending]


def write_csv(file: IO[str], names: list[str], values: np.ndarray) -> None:
    """Write columns with their names, numbers with all their digits."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(names)
    rows.writerows(values.tolist())


def _csv(out: str, names: list[str], values: np.ndarray) -> None:
    from dualnewton.files.replacing import replacing

    with replacing(out, "w", encoding="utf-8", newline="") as file:
        write_csv(file, names, values)


def _npy(out: str, names: list[str], values: np.ndarray) -> None:
    import numpy as np

    from dualnewton.files.replacing import replacing

    with replacing(out) as file:
        np.save(file, values[:, 0] if len(names) == 1 else values, allow_pickle=False)


WRITERS = {".csv": _csv, ".npy": _npy}
