"""Figure 2: the time of an epoch of SDNA and SDCA against τ."""

from __future__ import annotations

from collections.abc import Sequence

from dualnewton.lab import claims
from dualnewton.lab._numbers import seconds
from dualnewton.lab.figures import ORDERS, REPEATS, Grid, panel, runs_of, runs_of_method
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Chart, Curve, Section, Table
from dualnewton.lab.sets import Posed
from dualnewton.lab.watched import NICE, Limits, Watched

FULL = Grid(("sdna", "sdca"), (1, 2, 4, 8, 16, 32, 64, 128, 256), Limits(0.0, 12, 4.0))
QUICK = Grid(("sdna", "sdca"), (1, 4, 16, 64), Limits(0.0, 6, 1.0))
"""The methods, τ, and limits of each run: a goal of zero makes the number of epochs end it, so that all epochs are timed."""


def run(sets: Sequence[Posed], steps: Steps, seed: int = 0, *, quick: bool = False) -> Section:
    """Run the second experiment, as :func:`figure1.run` does the first."""
    chosen = QUICK if quick else FULL
    rows: dict[str, list] = {order: [] for order in ORDERS}
    found: list = []
    verdicts: list = []
    tables: list = []
    for posed in sets:
        for order in ORDERS:
            runs = runs_of(chosen, posed, order, steps, "figure 2", seed, REPEATS)
            by_method = {method: runs_of_method(method, runs) for method in chosen.methods}
            lines = [
                Curve(
                    method.upper(),
                    [run.tau for run in some],
                    [1e3 * run.seconds_per_epoch for run in some],
                    method.upper(),
                    shade,
                )
                for shade, (method, some) in enumerate(by_method.items())
            ]
            rows[order].append(panel(posed, order, lines))
            found += [
                (posed.name, order, method, run.tau, run.seconds_per_epoch, _code(run))
                for method, some in by_method.items()
                for run in some
            ]
            if order == NICE:
                costs = {method: {run.tau: run.seconds_per_epoch for run in some} for method, some in by_method.items()}
                verdicts += [claims.cost_grows(posed, costs["sdna"]), claims.cost_hardly_grows(posed, costs["sdca"])]
                tables.append(table(posed, by_method))
    chart = Chart(
        "figure2",
        "Figure 2. Time of an epoch against τ",
        [rows[order] for order in ORDERS],
        "τ",
        "milliseconds per epoch",
        "SDNA forms and factorises a τ×τ block in every round, so that the cost of an epoch grows with τ. SDCA updates "
        "the examples of a set separately, and the cost of an epoch hardly depends on τ. Both axes are logarithmic.",
        x_log=True,
    )
    return Section(
        "figure2",
        "Figure 2. Time of an epoch",
        "One thread. The time is the median over the epochs of a run except the first; it includes the draws and excludes the "
        f"certificates. The time of each epoch is the shortest of {REPEATS} runs. Kernels are compiled before.",
        charts=[chart],
        tables=tables,
        claims=verdicts,
        columns=("data", "order", "method", "tau", "seconds_per_epoch", "rounds"),
        records=found,
    )


def _code(run: Watched) -> str:
    return "compiled" if run.plan.compiled else "NumPy"


def table(posed: Posed, by_method: dict[str, list[Watched]]) -> Table:
    """Return the table of the times, with the implementation of the rounds."""
    some_by_numpy = any(not run.plan.compiled for some in by_method.values() for run in some)
    rows = [
        [str(one.tau), seconds(one.seconds_per_epoch), _code(one), seconds(other.seconds_per_epoch), _code(other)]
        for one, other in zip(*by_method.values(), strict=True)
    ]
    return Table(
        f"Time of an epoch, {posed.name}, independent sets",
        ("τ", "SDNA", "by", "SDCA", "by"),
        rows,
        "Blocks of more examples than features are solved by LAPACK (NumPy rounds)." if some_by_numpy else "",
    )
