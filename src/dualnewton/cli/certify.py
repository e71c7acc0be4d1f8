"""``dualnewton certify``: a bound on the suboptimality of a saved model or of given coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    import numpy as np

    from dualnewton.cli._problems import Task
    from dualnewton.interop.offsets import OffsetColumn
    from dualnewton.io import Dataset
    from dualnewton.io.source import Wanted
    from dualnewton.objective.certificate import Certificate

Given = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A file that `fit --out` or dualnewton.save has written, or coefficients in a .csv, .tsv or .txt file.",
    ),
]

Exact = Annotated[
    bool,
    options.option("--exact", None, "Recompute P and D in extended precision, if rounding errors exceed the gap."),
]


@options.with_groups
def certify(
    model: Given,
    data: options.Data,
    roles: options.Roles = options.UNNAMED,
    table: options.Table = options.AS_WRITTEN,
    objective: options.Objective = options.UNASKED,
    exact: Exact = False,
    json: options.Json = False,
) -> None:
    """Prove how far a MODEL is from the minimum of its objective on DATA, whatever program fitted it.

    The primal value P and a dual value D are computed from the data and the coefficients: P - D bounds how far P is from its
    minimum. The objective of a saved model is in its file. For coefficients in a text file the options below state the objective;
    the file has the columns feature,coefficient (and a row named intercept; without it the best intercept is computed), one
    column of coefficients for each class if there are more than two, or is one line or one column of numbers.

    For example:

        dualnewton fit breast_cancer --out cancer.model
        dualnewton certify cancer.model breast_cancer
    """
    from dualnewton.cli import _output
    from dualnewton.cli._coefficients import ENDINGS
    from dualnewton.cli._data import asked

    wanted, added = asked(roles)
    read = of_coefficients if Path(model).suffix.lower() in ENDINGS else of_model
    task, dataset, coef, intercepts, said, notes = read(model, data, wanted, added, table, objective)
    certificates = certified(task, coef, intercepts, exact=exact)
    if json:
        _output.as_json(_output.certificate_json(certificates))
        return
    _output.say("model", said)
    n, d = dataset.X.shape
    _output.say("data", f"{dataset.name}: {_output.count(n, 'example')}, {_output.count(d, 'feature')}")
    _output.say("objective", task.objective)
    for note in notes:
        _output.say("note", note)
    for key, line in _output.certificate_lines(certificates, task.names):
        _output.say(key, line)


Certifiable = tuple["Task", "Dataset", "np.ndarray", "np.ndarray | None", str, list[str]]
"""The problems, their data, coefficients, intercepts (None for the best), the source of these, and notes on the data."""


def of_model(
    model: str,
    data: str,
    wanted: Wanted,
    offset: OffsetColumn | None,
    table: options.Table,
    objective: options.Objective,
) -> Certifiable:
    """Read a saved model, with its own objective on these data."""
    from dualnewton.cli._problems import Task, objectives_of
    from dualnewton.cli._tables import model_data
    from dualnewton.interop.model_file import SavedModel

    asked = [name for name, value in objective.items() if value != options.UNASKED[name]]
    if asked:
        raise DualnewtonError(
            f"a saved model has its own objective, so {asked[0]} must be left out; it is for coefficients (.csv)"
        )
    fitted = SavedModel.load(model)
    dataset, _, told = model_data(fitted, data, wanted, table, offset)
    notes = list(told)
    problems = objectives_of(fitted, dataset)
    said = f"{model}, fitted on {fitted.n} examples with a proven relative gap of {fitted.certificate.relative_gap:.2e}"
    if fitted.table is not None:
        notes.append(
            "the certificate is about the encoded matrix: columns as they were standardised and encoded for the fit"
        )
    task = Task(problems, fitted.objective, fitted.classes, "as saved")
    return task, dataset, fitted.coef, fitted.intercept, said, notes


def of_coefficients(
    model: str,
    data: str,
    wanted: Wanted,
    offset: OffsetColumn | None,
    table: options.Table,
    objective: options.Objective,
) -> Certifiable:
    """Read coefficients from a text file, for the objective that the options describe."""
    from dualnewton.cli._coefficients import read_coefficients
    from dualnewton.cli._data import loaded, with_offsets
    from dualnewton.cli._problems import problems_from

    found = read_coefficients(model)
    given: Any = {name: getattr(wanted, name) for name in ("target", "weights", "memory")}
    added = None if offset is None else offset.name
    dataset = with_offsets(loaded(data, offset=added, **given, **table), offset)
    task = problems_from(dataset, **objective)
    coef, intercepts = found.ordered(task, dataset)
    free = task.objective.fit_intercept and intercepts is None
    said = f"{model}, {coef.size} coefficients{' with the intercept that is best for them' if free else ''}"
    return task, dataset, coef, intercepts, said, []


def certified(task: Task, coef: np.ndarray, intercepts: np.ndarray | None, *, exact: bool) -> list[Certificate]:
    """Certify each problem at its coefficients; where the loss has a kink, a solver searches for a good dual point."""
    from dualnewton.interop.parts import Part

    if task.objective.is_softmax:
        return [Part(task.problems[0], coef, intercepts).certificate(exact=exact)]
    each = [None] * len(coef) if intercepts is None else intercepts.tolist()
    return [Part(*of).certificate(exact=exact) for of in zip(task.problems, coef, each, strict=True)]
