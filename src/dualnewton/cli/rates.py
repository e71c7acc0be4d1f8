"""``dualnewton rates``: the rates and bounds of the theory on the user's data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task
    from dualnewton.objective.problem import Problem

Taus = Annotated[str, options.option("--tau", "NUMBERS", "Sizes of the random sets, separated by commas.")]
Gap = Annotated[float, options.option("--gap", "NUMBER", "The relative gap to reach.")]
Out = Annotated[str | None, options.option("--out", "FILE", "Also write the table to a CSV file.")]
MaxEpochs = Annotated[int, options.option("--max-epochs", "NUMBER", "The limit for each run.", options.RUN)]
ROLES = dict.fromkeys(("target", "weights"))
OBJECTIVE = options.only("loss", "C", "lam", "delta", "width")
Seconds = Annotated[float, options.option("--time-limit", "SECONDS", "The limit for each run.", options.RUN)]


@options.with_groups
def rates(
    data: options.Data,
    tau: Taus = "1,8,32",
    gap: Gap = 1e-3,
    out: Out = None,
    json: options.Json = False,
    roles: options.Roles = ROLES,
    table: options.Table = options.TABLE_DEFAULTS,
    objective: options.Objective = OBJECTIVE,
    max_epochs: MaxEpochs = 1000,
    time_limit: Seconds = 20.0,
    seed: options.Seed = 0,
) -> None:
    """Compute the rates and bounds of the paper's theorems on DATA, and compare them with runs of the methods.

    SDNA maximises the dual exactly over a random set of tau examples; SDCA updates the examples of the set separately. For each
    tau the table has the rates theta of SDCA and sigma1_prox of SDNA, the bounds of Theorems 6 and 8 on the epochs (passes over
    the data) to the relative gap --gap, and the epochs of a run until its certificate reached that gap. The penalty is l2, and
    there is no intercept, since the theorems do not cover one.

    For example:

        dualnewton rates diabetes --tau 1,8,32
        dualnewton rates diabetes --tau 1,64 --gap 1e-6 --lam 0.001 --json
    """
    from dualnewton.cli import _output
    from dualnewton.cli._problems import penalised, problems_from
    from dualnewton.cli._tables import training_data
    from dualnewton.io.source import ReadOptions
    from dualnewton.lab import forecast
    from dualnewton.lab.watched import Limits

    _output.ready(out)
    dataset = training_data(data, ReadOptions(**roles), table).dataset
    task = penalised(problems_from(dataset, intercept=False, **objective), "rates")
    problem = only(task, "rates")
    taus = forecast.taus_of(tau, problem.n)
    rows = forecast.forecast(problem, taus, Limits(gap, max_epochs, time_limit), seed)
    if out is not None:
        with _output.writing(out):
            forecast.write(rows, out)
    if json:
        _output.as_json(forecast.as_json(rows))
        return
    shown = forecast.table(rows, gap)
    _output.say("data", f"{dataset.name}: {_output.count(problem.n, 'example')}, {_output.count(problem.d, 'feature')}")
    _output.say("objective", task.objective)
    print()
    _output.paragraph(shown.title)
    _output.table(shown.columns, shown.rows)
    print()
    _output.paragraph(shown.note)


def only(task: Task, command: str) -> Problem:
    """Return the only problem of a task, or raise an error if there are more than two classes."""
    if task.classes is not None and len(task.classes) > 2:
        raise DualnewtonError(
            f"{command} takes numbers or two classes, got a target of {len(task.classes)} classes: --loss squared "
            "treats them as numbers"
        )
    return task.problems[0]
