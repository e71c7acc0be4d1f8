"""``dualnewton plan``: what a fit would do, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dualnewton.cli import _options as options
from dualnewton.errors import DualnewtonError

if TYPE_CHECKING:
    from dualnewton.cli._problems import Task

METHODS = ("sdna", "sdca", "newton", "ihs")


def plan(
    data: options.Data,
    target: options.Target = None,
    weights: options.Weights = None,
    loss: options.Loss = None,
    penalty: options.Penalty = "l2",
    C: options.C = None,
    lam: options.Lam = None,
    l1_ratio: options.L1Ratio = None,
    intercept: options.Intercept = True,
    delta: options.Delta = None,
    epsilon: options.Epsilon = None,
    width: options.Width = None,
    multiclass: options.Multiclass = None,
    method: options.Method = "auto",
    json: options.Json = False,
) -> None:
    """Say by which method `fit` would begin on DATA, what that should cost, and why. Nothing is fitted.

    tau is the number of examples in a round of sdna and sdca, and of rows in the first sketch of ihs. The cost is a guess, from
    sizes and conditioning, of the seconds that a common core takes to a relative gap of 1e-6. The run itself changes its
    method when the gap falls otherwise than expected.

    For example:

        dualnewton plan breast_cancer
        dualnewton plan diabetes --penalty l1 --lam 0.5
    """
    from dualnewton.cli import _output
    from dualnewton.cli._data import loaded
    from dualnewton.cli._problems import problems_from

    dataset = loaded(data, target=target, weights=weights)
    task = problems_from(
        dataset,
        loss=loss,
        penalty=penalty,
        C=C,
        lam=lam,
        l1_ratio=l1_ratio,
        intercept=intercept,
        delta=delta,
        epsilon=epsilon,
        width=width,
        multiclass=multiclass,
    )
    chosen, others = chosen_of(task, method), alternatives(task)
    if json:
        _output.as_json({"plan": chosen, "alternatives": others})
        return
    n, d = dataset.X.shape
    _output.say("data", f"{dataset.name}: {n} examples, {d} features")
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
    """Say how many problems there are, and of what."""
    if len(task.problems) == 1:
        return "one"
    return f"{len(task.problems)}, one for each class against the rest, in shared passes over the data"


def chosen_of(task: Task, method: str) -> dict[str, Any]:
    """Return the plan of a fit, by name of its fields."""
    from dualnewton.planning.planner import plan as planned

    made = planned(task.problems[0], method=method, models=len(task.problems))
    return {
        "method": made.method,
        "tau": made.tau,
        "compiled": made.compiled,
        "cost": float(made.cost),
        "reason": made.reason,
    }


def alternatives(task: Task) -> list[dict[str, Any]]:
    """Return the plan by each method, or why it cannot serve here."""
    rows = []
    for method in METHODS:
        try:
            rows.append(chosen_of(task, method))
        except DualnewtonError as error:
            why = {"tau": None, "compiled": None, "cost": None, "reason": f"not here: {str(error).split(': ')[0]}"}
            rows.append({"method": method, **why})
    return rows


def seconds(cost: float | None) -> str:
    """Return a time in words."""
    if cost is None:
        return "-"
    return f"{cost:.0f} s" if cost >= 10.0 else f"{cost:.2g} s"
