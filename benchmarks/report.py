"""The tables and targets of a run, shown on the terminal and written as Markdown."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from dualnewton.lab.report.environment import memory, processor
from dualnewton.run.checkpoint import installed_version

PACKAGES = ("dualnewton", "numpy", "scipy", "numba", "scikit-learn", "cyanure", "snapml", "glum", "statsmodels")

MISSING = "–"


@dataclass(frozen=True)
class Target:
    """A claim, its measurements, and whether it holds; None if it could not be measured."""

    claim: str
    measured: str
    passed: bool | None

    @property
    def verdict(self) -> str:
        """PASS, FAIL or "not measured"."""
        return {True: "PASS", False: "FAIL", None: "not measured"}[self.passed]

    @classmethod
    def at_most(cls, claim: str, values: Iterable[float], bound: float, unit: str = "×") -> Target:
        """Return the target that every value is at most the bound; a missing value (NaN) fails it."""
        values = list(values)
        return cls(claim, spread(values, unit), all(value <= bound for value in values) if values else None)

    @classmethod
    def at_least(cls, claim: str, values: Iterable[float], bound: float, unit: str = "×") -> Target:
        """Return the target that every value is at least the bound; a missing value (NaN) fails it."""
        values = list(values)
        return cls(claim, spread(values, unit), all(value >= bound for value in values) if values else None)


@dataclass(frozen=True)
class Table:
    """A title, column names and rows, with an optional note below."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


@dataclass
class Section:
    """One part of the benchmark."""

    title: str
    tables: list[Table] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)


# Numbers as text -------------------------------------------------------------------------------------------------------


def seconds(value: float | None) -> str:
    """Format a time in milliseconds or seconds, with three significant digits."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{1e3 * value:.3g} ms" if value < 0.9995 else f"{value:.3g} s"


def ratio(value: float) -> str:
    """Format a ratio with two decimals, or with two significant digits if it is small."""
    return f"{number(value)}×" if math.isfinite(value) else MISSING


def number(value: float) -> str:
    """Format a number with two decimals, or with two significant digits below 0.1."""
    return f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def spread(values: list[float], unit: str = "×") -> str:
    """Return the smallest and the largest value as text, with the number of missing values."""
    found = [value for value in values if math.isfinite(value)]
    missing = len(values) - len(found)
    ends = [f"{number(value)}{unit}" for value in (min(found), max(found))] if found else [MISSING]
    return " to ".join(dict.fromkeys(ends)) + (f", {missing} of {len(values)} without a result" if missing else "")


# The machine -------------------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return the hardware and software of the run, without host names or paths."""
    return {
        "Machine": f"{processor()}, {os.cpu_count()} cores, {memory() / 2**30:.0f} GiB",
        "System": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "BLAS": _blas(),
        "Versions": ", ".join(f"{name} {found}" for name in PACKAGES if (found := installed_version(name))),
    }


def _blas() -> str:
    from threadpoolctl import threadpool_info

    pools: list[dict[str, Any]] = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(sorted({f"{pool['internal_api']} {pool['version']}" for pool in pools})) or "unknown"


# The two outputs ---------------------------------------------------------------------------------------------------------


def show(section: Section) -> None:
    """Print a section to the terminal."""
    from rich import table
    from rich.console import Console

    console = Console()
    console.rule(section.title)
    for part in section.tables:
        grid = table.Table(*part.columns, title=part.title, caption=part.note or None, title_justify="left")
        for row in part.rows:
            grid.add_row(*row)
        console.print(grid)
    for target in section.targets:
        colour = {True: "green", False: "red", None: "yellow"}[target.passed]
        console.print(f"[{colour}]{target.verdict}[/]  {target.claim}: {target.measured}", highlight=False)


def markdown(sections: list[Section], command: str, notes: list[str]) -> str:
    """Write all sections as one Markdown page."""
    lines = ["# Benchmark results", "", f"Written by `{command}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC.", ""]
    lines += [f"- {name}: {value}" for name, value in environment().items()]
    lines += [f"- {note}" for note in notes]
    for section in sections:
        lines += ["", f"## {section.title}", ""]
        verdicts = [[target.claim, target.measured, target.verdict] for target in section.targets]
        lines += grid(["target", "measured", "verdict"], verdicts) if verdicts else []
        for part in section.tables:
            lines += ["", f"### {part.title}", "", *grid(part.columns, part.rows)]
            lines += ["", part.note] if part.note else []
    return "\n".join(lines) + "\n"


def grid(columns: list[str], rows: list[list[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]
