"""``dualnewton certify``: a bound on the suboptimality of a saved model or of given coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.interop.offsets import OffsetColumn
    from dualnewton.interop.parts import Part
    from dualnewton.interop.specification import Specification
    from dualnewton.io import Dataset
    from dualnewton.io.source import ReadOptions

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
    roles: options.Roles = options.ROLE_DEFAULTS,
    table: options.Table = options.FILE_DEFAULTS,
    objective: options.Objective = options.OBJECTIVE_DEFAULTS,
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
    from dualnewton.cli._data import read_options

    wanted, added = read_options(roles)
    read = of_coefficients if Path(model).suffix.lower() in ENDINGS else of_model
    parts, specification, classes, dataset, said, notes = read(model, data, wanted, added, table, objective)
    certificates = [part.certificate(exact=exact) for part in parts]
    if json:
        _output.as_json(_output.certificate_json(certificates))
        return
    _output.say("model", said)
    n, d = dataset.X.shape
    _output.say("data", f"{dataset.name}: {_output.count(n, 'example')}, {_output.count(d, 'feature')}")
    _output.say("objective", specification)
    for note in notes:
        _output.say("note", note)
    for key, line in _output.certificate_lines(certificates, classes):
        _output.say(key, line)


Certifiable = tuple[Sequence["Part"], "Specification", Sequence[Any], "Dataset", str, list[str]]
"""The parts of a model, its objective and its classes, the data, the source of the model, and notes on the data."""


def of_model(
    model: str,
    data: str,
    wanted: ReadOptions,
    offset: OffsetColumn | None,
    table: options.Table,
    objective: options.Objective,
) -> Certifiable:
    """Read a saved model, with its own objective on these data."""
    from dualnewton.cli._problems import objectives_of
    from dualnewton.cli._tables import model_data
    from dualnewton.interop.model_file import SavedModel
    from dualnewton.interop.parts import parts_of

    asked = [name for name, value in objective.items() if value != options.OBJECTIVE_DEFAULTS[name]]
    if asked:
        raise DualnewtonError(
            f"a saved model has its own objective, so {asked[0]} must be left out; it is for coefficients (.csv)"
        )
    fitted = SavedModel.load(model)
    dataset, _, told = model_data(fitted, data, wanted, table, offset)
    notes = list(told)
    parts = list(parts_of(fitted, dataset.X, objectives_of(fitted, dataset)))
    said = f"{model}, fitted on {fitted.n} examples with a proven relative gap of {fitted.certificate.relative_gap:.2e}"
    if fitted.table is not None:
        notes.append(
            "the certificate is about the encoded matrix: columns as they were standardised and encoded for the fit"
        )
    classes = [] if fitted.classes is None else fitted.classes.tolist()
    return parts, fitted.objective, classes, dataset, said, notes


def of_coefficients(
    model: str,
    data: str,
    wanted: ReadOptions,
    offset: OffsetColumn | None,
    table: options.Table,
    objective: options.Objective,
) -> Certifiable:
    """Read coefficients from a text file, for the objective that the options describe."""
    from dualnewton.cli._coefficients import read_coefficients
    from dualnewton.cli._data import loaded, with_offsets
    from dualnewton.cli._problems import problems_from
    from dualnewton.interop.parts import Part

    found = read_coefficients(model)
    given: Any = {name: getattr(wanted, name) for name in ("target", "weights", "memory")}
    added = None if offset is None else offset.name
    dataset = with_offsets(loaded(data, offset=added, **given, **table), offset)
    task = problems_from(dataset, **objective)
    coef, intercepts = found.ordered(task, dataset)
    free = task.objective.fit_intercept and intercepts is None
    said = f"{model}, {coef.size} coefficients{' with the intercept that is best for them' if free else ''}"
    each = [None] * len(coef) if intercepts is None else intercepts.tolist()
    points: Any = [(coef, intercepts)] if task.objective.is_softmax else zip(coef, each, strict=True)
    parts = [Part(problem, *point) for problem, point in zip(task.problems, points, strict=True)]
    return parts, task.objective, task.names, dataset, said, []
