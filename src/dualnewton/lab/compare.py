"""Comparison of our methods with other libraries on one problem: certified suboptimality against time and iterations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dualnewton.errors import DualnewtonError
from dualnewton.interop.specification import Specification
from dualnewton.lab._numbers import MISSING, ROUNDING, gap, seconds
from dualnewton.lab.child import CUT, DONE, values_of
from dualnewton.lab.contenders import ALL_PEERS, RATIOS, SHOWN, Attempt, Match, Ours, Theirs
from dualnewton.lab.peers import Peer
from dualnewton.lab.progress import Steps
from dualnewton.lab.report import Chart, Curve, Panel, Report, Section, Table
from dualnewton.lab.report.environment import environment
from dualnewton.objective.problem import Problem
from dualnewton.planning.planner import METHODS, plan
from dualnewton.run.checkpoint import installed_version
from dualnewton.run.loop import solve
from dualnewton.run.result import Result
from dualnewton.validation import finite_or_none

LEVELS = (1e-2, 1e-4, 1e-6)
"""Relative suboptimalities for which the table shows the time to reach them."""

REFERENCE = 1e-9
"""Relative gap of the reference fit, whose dual point certifies all models; it is far below the smallest level."""

OURS = "dualnewton"


@dataclass(frozen=True)
class Row:
    """The attempts of one contender."""

    # The name of the contender, and the package that contains it.
    name: str
    by: str
    attempts: list[Attempt] = field(default_factory=list)  # fits, from the loosest tolerance to the tightest
    ending: str = DONE  # why the attempts ended; empty if the goal was reached or no tolerance gave a better model

    def time_to(self, level: float) -> float:
        """The shortest time in seconds of a fit whose certified suboptimality is at most ``level``."""
        return min((one.seconds for one in self.attempts if one.suboptimality <= level), default=math.inf)

    @property
    def best(self) -> float:
        """The smallest certified suboptimality of all attempts."""
        return min((one.suboptimality for one in self.attempts), default=math.inf)


def chosen_names(what: str, asked: str, known: Sequence[str]) -> list[str]:
    """Return the names in a comma-separated list, which may be "all" or "none"; an error names the option (``what``)."""
    names = {"all": list(known), "none": []}.get(asked, [name.strip() for name in asked.split(",")])
    for name in names:
        if name not in known:
            raise DualnewtonError(f"{what} must be all, none or some of {', '.join(known) or 'nothing'}, got {name!r}")
    return names


def compare(
    problem: Problem,
    objective: Specification,
    name: str,
    *,
    methods: str = "all",
    peers: str = "all",
    time_limit: float = 10.0,
    threads: int = 1,
    seed: int = 0,
    command: str = "",
) -> tuple[Report, list[Row]]:
    """Solve a problem with all contenders, and certify the model of each by the duality gap.

    The specification is that of the same problem, with the penalty l2, l1 or elasticnet. ``methods`` and ``peers`` are lists with
    commas, "all" (of those that can solve the problem) or "none". The time limit is for all attempts of one
    contender; ``command`` is the command line that repeats the report.
    """
    if objective.penalty not in RATIOS:
        raise DualnewtonError(f"--penalty must be one of {', '.join(RATIOS)} here, got {objective.penalty!r}")
    table = ALL_PEERS.get(objective.loss, ())
    ours = chosen_names("--methods", methods, METHODS)
    others = chosen_names("--peers", peers, [peer.name for peer in table])
    if methods == "all":
        ours = [method for method in ours if applies(problem, method)]
    if not ours and not others:
        raise DualnewtonError("no solver takes part: --methods and --peers are both none")
    with Steps(len(ours) + len(others) + 1.0) as steps:
        reference = reference_of(problem, threads, seed, max(30.0, time_limit), steps)
        match = Match(problem, objective, reference.alpha, LEVELS[-1], threads, seed)
        rows = [measured(Ours(match, method), OURS, time_limit, steps) for method in ours]
        known = {peer.name: peer for peer in table}
        rows += [of_peer(match, known[other], time_limit, steps) for other in others]
    rows.sort(key=lambda row: tuple(row.time_to(level) for level in reversed(LEVELS)))
    n, d = problem.X.shape
    report = Report(
        f"{name}: comparison of solvers",
        f"{n} × {d}, {objective}. Each solver was run with the "
        f"tolerances 10⁻¹ to 10⁻¹⁰ in turn, {time_limit:g} s in all. Every model was certified with the same dual point.",
        [section(rows)],
        command,
        _notes(objective, reference.certificate.relative_gap, alone=not table),
        environment(threads, sorted({row.by for row in rows} - {OURS, "scikit-learn"})),
    )
    return report, rows


def _notes(objective: Specification, gap: float, *, alone: bool) -> list[str]:
    """Return the limits of a comparison: no other library has the loss, or the reference has a large relative gap."""
    notes = []
    if alone:
        notes.append(
            f"No other library in the comparison has the loss {objective.loss}: only our own methods take part."
        )
    if gap > 0.1 * LEVELS[-1]:
        notes.append(f"The reference has a relative gap of {gap:.0e}, so no smaller suboptimality can be certified.")
    return notes


def applies(problem: Problem, method: str) -> bool:
    """Return True if a method can solve a problem."""
    try:
        plan(problem, method=method)
    except DualnewtonError:
        return False
    return True


def reference_of(problem: Problem, threads: int, seed: int, time_limit: float, steps: Steps) -> Result:
    """Solve the problem accurately, for a dual point that certifies the models of all contenders."""
    tell = steps.begin("reference solution", REFERENCE)
    return solve(
        problem,
        tol=REFERENCE,
        n_threads=threads,
        random_state=seed,
        time_limit=time_limit,
        max_epochs=100_000,
        callback=lambda progress: tell(progress.epoch, progress.certificate.relative_gap),
    )


def of_peer(match: Match, peer: Peer, time_limit: float, steps: Steps) -> Row:
    """Run a solver of another library, or return a row with the reason why it cannot take part."""
    by = SHOWN.get(peer.package, peer.package)
    reason = match.excuse(peer)
    if not reason:
        return measured(Theirs(match, peer.name), by, time_limit, steps)
    steps.begin(peer.name)
    return Row(peer.name, by, [], reason)


def measured(contender: Ours | Theirs, by: str, time_limit: float, steps: Steps) -> Row:
    """Run a contender in a child process."""
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


# The report ----------------------------------------------------------------------------------------------------------


def section(rows: Sequence[Row]) -> Section:
    """Return the section of the report: one chart and one table."""
    return Section(
        "compare",
        "Certified suboptimality",
        "",
        charts=[chart(rows)],
        tables=[table_of(rows)],
        columns=("contender", "package", "version", "tol", "seconds", "iterations", "suboptimality"),
        records=[
            (row.name, row.by, installed_version(row.by), one.tol, one.seconds, one.iterations, one.suboptimality)
            for row in rows
            for one in row.attempts
        ],
    )


def chart(rows: Sequence[Row]) -> Chart:
    """Draw suboptimality against time, and against iterations."""
    return Chart(
        "compare",
        "Suboptimality of the models against time and iterations",
        [
            [
                Panel("against time", _curves(rows, "seconds")),
                Panel("against iterations", _curves(rows, "iterations"), "iterations"),
            ]
        ],
        "seconds",
        "certified (P(w) − D)/P",
        "Each point is a complete fit at one tolerance; lower and further left is better. Solid: our methods; dashed: other "
        "libraries. An iteration is an epoch of our methods, and the solver's own count for the others; solvers without a "
        "count are missing on the right. Both axes are logarithmic.",
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
    """Return the table of the times to the three levels."""
    return Table(
        "Time to a certified suboptimality",
        ("solver", "package", *(f"{level:.0e}".replace("e-0", "e-") for level in LEVELS), "best", "remark"),
        [_line(row) for row in rows],
        "The time of the shortest fit, over all tolerances tried, whose certified relative suboptimality is at most the level. "
        f"Short fits are repeated and the shortest time counts. {MISSING}: not reached.",
    )


def _line(row: Row) -> list[str]:
    times = [seconds(row.time_to(level)) for level in LEVELS]
    remark = row.ending if row.ending != CUT or row.best > LEVELS[-1] else ""
    if not remark and row.best > LEVELS[-1]:
        remark = "no tolerance gave a better model"
    return [row.name, row.by, *times, gap(row.best), remark]


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the table as values for JSON."""
    return [
        {
            "solver": row.name,
            "package": row.by,
            "seconds_to": {f"{level:g}": finite_or_none(row.time_to(level)) for level in LEVELS},
            "best": finite_or_none(row.best),
            "remark": _line(row)[-1],
        }
        for row in rows
    ]
