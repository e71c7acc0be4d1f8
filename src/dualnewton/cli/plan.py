"""``dualnewton plan``: the method that a fit would use, its predicted cost, and the reason."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task


@options.with_groups
def plan(
    data: options.Data,
    roles: options.Roles = options.ROLE_DEFAULTS,
    table: options.Table = options.TABLE_DEFAULTS,
    objective: options.Objective = options.OBJECTIVE_DEFAULTS,
    method: options.Method = "auto",
    json: options.Json = False,
) -> None:
    """Show the method with which `fit` would begin on DATA, its predicted cost, and the reason. Nothing is fitted.

    tau is the number of examples in a round of sdna and sdca, and of rows in the first sketch of ihs. The cost is an estimate of
    the seconds to a relative gap of 1e-6 from the sizes and the conditioning: of the chosen method on all cores, of the others
    on one core. During a fit the method may change if the gap decreases more slowly than predicted.

    For example:

        dualnewton plan breast_cancer
        dualnewton plan diabetes --penalty l1 --lam 0.5
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import read_options
    from dualnewton.cli._problems import penalised, problems_from
    from dualnewton.cli._tables import training_data

    wanted, added = read_options(roles)
    dataset = training_data(data, wanted, table, added).dataset
    task = penalised(problems_from(dataset, **objective), "plan")
    chosen, others = chosen_of(task, method), alternatives(task)
    if json:
        _output.as_json({"plan": chosen, "alternatives": others})
        return
    n, d = dataset.X.shape
    _output.say("data", f"{dataset.name}: {_output.count(n, 'example')}, {_output.count(d, 'feature')}")
    _output.say("objective", f"{task.objective} ({task.objective.loss} {task.why})")
    _output.say("problems", described(task))
    _output.say("method", f"{chosen['method']}, {'compiled' if chosen['compiled'] else 'by NumPy'}")
    _output.say("tau", chosen["tau"])
    _output.say("cost", seconds(chosen["cost"]))
    _output.say("reason", chosen["reason"])
    print()
    rows = [(each["method"], each["tau"] or "-", seconds(each["cost"]), each["reason"]) for each in others]
    _output.table(("method", "tau", "cost", "reason"), rows)


def described(task: Task) -> str:
    """Return a description of the number of problems."""
    if len(task.problems) == 1:
        return "one"
    return f"{len(task.problems)}, one for each class against the rest, in shared passes over the data"


def chosen_of(task: Task, method: str) -> dict[str, Any]:
    """Return the plan of a fit as a dictionary."""
    from dualnewton.matrix.workers import physical_cores
    from dualnewton.planning.planner import plan as planned

    made = planned(task.problems[0], method=method, models=len(task.problems), n_threads=physical_cores())
    found = {name: getattr(made, name) for name in ("method", "tau", "compiled", "cost", "reason")}
    return {**found, "cost": None if math.isnan(made.cost) else float(made.cost)}


def alternatives(task: Task) -> list[dict[str, Any]]:
    """Return the plan of each method, or the reason why the method cannot solve the problem."""
    from dualnewton.planning.planner import METHODS

    rows = []
    for method in METHODS[1:]:  # the first is "auto"
        try:
            rows.append(chosen_of(task, method))
        except DualnewtonError as error:
            why = {
                "tau": None,
                "compiled": None,
                "cost": None,
                "reason": f"not applicable: {str(error).split(': ')[0]}",
            }
            rows.append({"method": method, **why})
    return rows


def seconds(cost: float | None) -> str:
    """Format a time in seconds."""
    if cost is None:
        return "-"
    return f"{cost:.0f} s" if cost >= 10.0 else f"{cost:.2g} s"
