"""``dualnewton compare``: our methods and the other libraries that are installed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.lab.report import Report

Out = Annotated[str, options.option("--out", "DIR", "The folder for the report; created if missing.")]
Methods = Annotated[
    str,
    options.option(
        "--methods",
        "NAMES",
        "Methods of this library, separated by commas: auto, sdna, sdca, newton, ihs, interior; or all (that apply), none.",
    ),
]
Peers = Annotated[
    str,
    options.option(
        "--peers",
        "NAMES",
        "Solvers of other libraries, separated by commas; or all, none. For logistic: lbfgs, newton-cholesky, newton-cg, "
        "'liblinear dual', 'liblinear primal', saga, cyanure, snapml, glum. For a wrong name the error lists the right ones.",
    ),
]
ROLES = dict.fromkeys(("target",))
OBJECTIVE = options.only(
    "loss", "penalty", "C", "lam", "l1_ratio", "intercept", "delta", "epsilon", "q", "power", "width"
)
Seconds = Annotated[float, options.option("--time-limit", "SECONDS", "Limit for each solver.", options.RUN)]


@options.with_groups
def compare(
    ctx: typer.Context,
    data: options.Data,
    out: Out,
    methods: Methods = "all",
    peers: Peers = "all",
    roles: options.Roles = ROLES,
    table: options.Table = options.TABLE_DEFAULTS,
    objective: options.Objective = OBJECTIVE,
    time_limit: Seconds = 10.0,
    threads: options.Threads = 1,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Solve the same problem on DATA with our methods and with other libraries, and certify the suboptimality of each model.

    Each solver runs in a separate process with decreasing tolerances. Every model is certified by the duality gap, whatever the
    solver reports. The folder receives compare.html (charts, a table, the machine), compare.png and compare.csv. A solver that
    cannot solve the problem is listed with the reason; more take part with --no-intercept. A table is encoded as by `fit`.

    For example:

        dualnewton compare diabetes --out duel --methods auto,sdna --peers "ridge cholesky,ridge lsqr" --time-limit 2
        dualnewton compare diabetes --out sparse --penalty l1 --lam 1 --peers "coordinate descent" --time-limit 2
    """
    import numpy as np

    from dualnewton.cli import _output
    from dualnewton.cli._problems import penalised, problems_from
    from dualnewton.cli._tables import training_data
    from dualnewton.cli.rates import only
    from dualnewton.io.source import ReadOptions
    from dualnewton.lab import compare as comparison
    from dualnewton.lab import report

    report.require()
    folder = report.folder(out)
    dataset = training_data(data, ReadOptions(**roles), table).dataset
    if dataset.offset is not None:
        raise DualnewtonError(f"{dataset.name} has offsets, which the solvers of a comparison do not share")
    # With float32 data some of the other solvers would compute in float32 and could not reach the tolerances.
    dataset = replace(dataset, X=dataset.X.astype(np.float64, copy=False))
    task = penalised(problems_from(dataset, **objective), "compare")
    found, rows = comparison.compare(
        only(task, "compare"),
        task.objective,
        dataset.name,
        methods=methods,
        peers=peers,
        time_limit=time_limit,
        threads=threads,
        seed=seed,
        command=ctx.obj or "",
    )
    with _output.writing(out):
        paths = report.write(found, folder, "compare")
    if json:
        _output.as_json(comparison.as_json(rows))
    else:
        show(found, str(paths[0]))


def show(found: Report, path: str) -> None:
    """Print the notes and the table of a comparison, and the path of its report."""
    from dualnewton.cli import _output

    table = found.sections[0].tables[0]
    _output.say("data", found.lead.split(". ")[0])
    for note in found.notes:
        _output.say("note", note)
    print()
    _output.table(table.columns, table.rows)
    print()
    _output.paragraph(table.note)
    _output.say("report", path)
