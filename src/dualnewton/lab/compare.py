"""Our methods and other libraries on one problem: the certified suboptimality of their models against time and iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.lab._numbers import MISSING, gap, seconds
from dualnewton.lab.child import CUT, DONE, values_of
from dualnewton.lab.contenders import ALL_PEERS, METHODS, SHOWN, Attempt, Match, Ours, Theirs
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Chart, Curve, Panel, Report, Section, Table
from dualnewton.lab.report.environment import environment, version
from dualnewton.objective.problem import Problem
from dualnewton.regularizers import L2
from dualnewton.run.loop import solve

LEVELS = (1e-2, 1e-4, 1e-6)
"""The suboptimalities whose times are in the table."""

REFERENCE = 1e-9
"""The relative gap of the fit that all are judged by."""

ROUNDING = 1e-16
"""Where a gap of zero is drawn."""

OURS = "dualnewton"


@dataclass(frozen=True)
class Row:
    """A contender with all it has done.

    Attributes
    ----------
    name, by : str
        It, and the package it comes from.
    attempts : list of Attempt
        From loose to tight.
    ending : str
        Why there are no more; empty where it reached the goal or had nothing more to give.
    """

    name: str
    by: str
    attempts: list[Attempt] = field(default_factory=list)
    ending: str = DONE

    def time_to(self, level: float) -> float:
        """The shortest time in which it has made a model that is proved to be so good."""
        return min((one.seconds for one in self.attempts if one.suboptimality <= level), default=math.inf)

    @property
    def best(self) -> float:
        """The smallest suboptimality."""
        return min((one.suboptimality for one in self.attempts), default=math.inf)


def chosen(what: str, asked: str, known: Sequence[str]) -> list[str]:
    """Return the names in a list with commas; "all" and "none" are lists, too.

    Parameters
    ----------
    what : str
        The option.
    asked : str
        The list.
    known : sequence of str
        What may be in it.
    """
    names = {"all": list(known), "none": []}.get(asked, [name.strip() for name in asked.split(",")])
    for name in names:
        if name not in known:
            raise DualnewtonError(f"{what} must be all, none or some of {', '.join(known) or 'nothing'}, got {name!r}")
    return names


def compare(
    problem: Problem,
    loss: str,
    name: str,
    *,
    methods: str = "all",
    peers: str = "all",
    time_limit: float = 10.0,
    threads: int = 1,
    seed: int = 0,
    command: str = "",
) -> tuple[Report, list[Row]]:
    """Let all contenders solve a problem, and judge their models by its certificate.

    Parameters
    ----------
    problem : Problem
        With the penalty l2 and without an intercept: what all of them can be asked.
    loss : str
        The name of its loss on the command line.
    name : str
        Of the data.
    methods, peers : str
        Lists with commas, "all" or "none".
    time_limit : float
        Seconds for each contender, over all its attempts.
    threads, seed : int
        For each contender.
    command : str
        What repeats the report.
    """
    if not isinstance(problem.regularizer, L2) or problem.fit_intercept:
        raise DualnewtonError(
            f"the penalty must be l2, without an intercept, which is what all solvers share; got {problem.regularizer!r}"
        )
    table = ALL_PEERS.get(loss, ())
    ours, others = chosen("--methods", methods, METHODS), chosen("--peers", peers, [peer.name for peer in table])
    if not ours and not others:
        raise DualnewtonError("nobody takes part: --methods and --peers are both none")
    known = {peer.name: peer for peer in table}
    with Steps(len(ours) + len(others) + 1.0) as steps:
        tell = steps.begin("the optimum, to judge by", REFERENCE)
        reference = solve(
            problem,
            tol=REFERENCE,
            n_threads=threads,
            random_state=seed,
            time_limit=max(30.0, time_limit),
            max_epochs=100_000,
            callback=lambda progress: tell(progress.epoch, progress.certificate.relative_gap),
        )
        match = Match(problem, loss, reference.alpha, LEVELS[-1], threads, seed)
        rows = [measured(Ours(match, method), OURS, time_limit, steps) for method in ours]
        for other in others:
            peer = known[other]
            by = SHOWN.get(peer.package, peer.package)
            reason = peer.refuses(problem.X) if peer.installed else "not installed"
            row = Row(other, by, [], reason) if reason else measured(Theirs(match, other), by, time_limit, steps)
            if reason:
                steps.begin(other)
            rows.append(row)
    rows.sort(key=lambda row: tuple(row.time_to(level) for level in reversed(LEVELS)))
    notes = (
        [] if table else [f"No other library that is known here has the loss {loss}: only our own methods take part."]
    )
    if reference.certificate.relative_gap > 0.1 * LEVELS[-1]:
        sharp = reference.certificate.relative_gap
        notes.append(f"The optimum is known to {sharp:.0e} only, so no model can be proved to be better than that.")
    n, d = problem.X.shape
    report = Report(
        f"{name}: who is how fast",
        f"{n} × {d}, {loss} loss, penalty l2 with λ = {problem.lam:.3g}, no intercept. Each contender was given "
        "one tolerance after the "
        f"other, 10⁻¹ to 10⁻¹⁰, and {time_limit:g} s in all. Every model was judged by the same certificate.",
        [section(rows)],
        command,
        notes,
        environment(threads, sorted({row.by for row in rows} - {OURS, "scikit-learn"})),
    )
    return report, rows


def measured(contender: Ours | Theirs, by: str, time_limit: float, steps: Steps) -> Row:
    """Run a contender in a process of its own."""
    tell = steps.begin(contender.name, LEVELS[-1])
    attempts: list[Attempt] = []
    ending = DONE
    for value in values_of(contender, time_limit, contender.match.threads):
        if isinstance(value, Attempt):
            attempts.append(value)
            tell(value.iterations, value.suboptimality)
        else:
            ending = value
    return Row(contender.name, by, attempts, ending)


# What it shows -------------------------------------------------------------------------------------------------------


def section(rows: Sequence[Row]) -> Section:
    """One chart, one table."""
    return Section(
        "compare",
        "Certified suboptimality",
        "",
        charts=[chart(rows)],
        tables=[table_of(rows)],
        columns=("contender", "package", "version", "tol", "seconds", "iterations", "suboptimality"),
        records=[
            (row.name, row.by, version(row.by), one.tol, one.seconds, one.iterations, one.suboptimality)
            for row in rows
            for one in row.attempts
        ],
    )


def chart(rows: Sequence[Row]) -> Chart:
    """Suboptimality against time, and against iterations."""
    return Chart(
        "compare",
        "Suboptimality of the models against what they cost",
        [
            [
                Panel("against time", _curves(rows, "seconds")),
                Panel("against iterations", _curves(rows, "iterations"), "iterations"),
            ]
        ],
        "seconds",
        "certified (P(w) − D)/P",
        "Each point is a whole fit at some tolerance; left and low is good. Solid: ours; dashed: the others. An "
        "iteration is an "
        "epoch of ours, and of the others whatever they count; who does not count is missing on the right. Axes "
        "are logarithmic.",
        x_log=True,
    )


def _curves(rows: Sequence[Row], x: str) -> list[Curve]:
    lines = []
    for shade, row in enumerate(rows):
        points = [(getattr(one, x), max(one.suboptimality, ROUNDING)) for one in row.attempts]
        if any(math.isfinite(a) and a > 0.0 for a, _ in points):
            family = "SDNA" if row.by == OURS else "SDCA"
            lines.append(Curve(row.name, [a for a, _ in points], [b for _, b in points], family, shade))
    return lines


def table_of(rows: Sequence[Row]) -> Table:
    """The times to three levels."""
    return Table(
        "Time to a certified suboptimality",
        ("solver", "package", *(f"{level:.0e}".replace("e-0", "e-") for level in LEVELS), "best", "remark"),
        [_line(row) for row in rows],
        "The shortest fit, over all tolerances tried, whose model is proved to be so close to the optimum, "
        "relatively. Short fits are "
        f"repeated and the shortest time counts. {MISSING}: not reached.",
    )


def _line(row: Row) -> list[str]:
    times = [seconds(row.time_to(level)) for level in LEVELS]
    remark = row.ending if row.ending != CUT or row.best > LEVELS[-1] else ""
    if not remark and row.best > LEVELS[-1]:
        remark = "no tolerance gave a better model"
    return [row.name, row.by, *times, gap(row.best), remark]


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The table for other programs."""
    return [
        {
            "solver": row.name,
            "package": row.by,
            "seconds_to": {f"{level:g}": _finite(row.time_to(level)) for level in LEVELS},
            "best": _finite(row.best),
            "remark": _line(row)[-1],
        }
        for row in rows
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
