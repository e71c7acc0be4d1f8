"""``dualnewton predict``: predictions of a saved model."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    import numpy as np

    from dualnewton.interop.model_file import SavedModel

Out = Annotated[str | None, options.option("--out", "FILE", "Write to a .csv or .npy file; to the screen by default.")]
Proba = Annotated[bool, options.option("--proba", None, "The probability of each class (logistic loss).")]
Decision = Annotated[bool, options.option("--decision", None, "The margins x'w + b: one, or one for each class.")]


def predict(
    model: options.Model,
    data: options.Data,
    out: Out = None,
    proba: Proba = False,
    decision: Decision = False,
    target: options.Target = None,
) -> None:
    """Predict the class or the value of each row of DATA by a MODEL that `fit` has saved.

    Columns are found by their names where model and data have names, whatever their order. Otherwise they are taken by
    position, and there have to be as many as the model has. A target among them is left out, and need not be there.

    For example:

        dualnewton fit iris --out iris.model
        dualnewton predict iris.model iris --proba --out iris.csv
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import Columns
    from dualnewton.interop.model_file import SavedModel

    if proba and decision:
        raise DualnewtonError("--proba and --decision ask for two things: give one of them")
    write = writer(out)
    _output.ready(out)
    fitted = SavedModel.load(model)
    dataset = Columns(fitted.d, fitted.feature_names, fitted.target).read(data, target, labelled=False)
    names, values = predictions(fitted, dataset.X, proba=proba, decision=decision)
    if out is None:
        write_csv(sys.stdout, names, values)
        return
    with _output.writing(out):
        write(out, names, values)


def predictions(model: SavedModel, X: Any, *, proba: bool, decision: bool) -> tuple[list[str], np.ndarray]:
    """Return the names of the columns, and the columns."""
    several = [] if model.classes is None else [str(label) for label in model.classes.tolist()]
    if proba:
        return several, model.predict_proba(X)
    if decision:
        margins = model.decision_function(X)
        names = several or [f"decision_{k}" for k in range(margins.shape[-1])]
        return (["decision"], margins[:, None]) if margins.ndim == 1 else (names, margins)
    values = model.predict(X)
    if values.ndim == 2:
        return [f"prediction_{k}" for k in range(values.shape[1])], values
    return ["prediction"], values[:, None]


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
