"""Summary, Markdown page and CSV table of the comparison of default settings."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import defaults_data as data
from benchmarks.report import MISSING, environment, grid, number, seconds
from benchmarks.timing import geometric_mean

if TYPE_CHECKING:
    from benchmarks.defaults import Cell, Results

FOLDER = Path(__file__).parent
PAGE, CELLS = FOLDER / "DEFAULTS.md", FOLDER / "DEFAULTS.csv"
DOCS = FOLDER.parent / "docs" / "performance.md"
BEGIN, END = "<!-- default against default: begin -->", "<!-- default against default: end -->"
WORST = 25


def compared(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in which both libraries have a time."""
    return [cell for cell in cells if math.isfinite(cell.ratio)]


def summary(results: Results) -> str:
    """Return the summary as Markdown: overall figures, estimators by sizes, gaps, worst cells, the two smaller sections."""
    lines: list[str] = []
    if results.cells:
        lines += [
            *_overall(results.cells),
            "",
            *by_size(results.cells),
            "",
            *gaps(results.cells),
            "",
            *worst(results.cells),
        ]
        lines += [*_not_measured(results)]
    if results.looser:
        lines += ["", "Time of half of the rows over all, and of `tol=1e-2` over `tol=1e-4` (correlated features):", ""]
        pairs = [
            [row.estimator, row.table, *(number(value) for value in (*row.half, *row.loose))] for row in results.looser
        ]
        names = ["half, ours", "half, scikit-learn", "looser, ours", "looser, scikit-learn"]
        lines += grid(["estimator", "data", *names], pairs)
    if results.rows:
        lines += ["", "One row of 10 features, µs:", ""]
        found = [(row, f"{1e6 * row.ours:.0f}", f"{1e6 * row.theirs:.0f}") for row in results.rows]
        times = [[row.estimator, row.method, ours, theirs, number(row.ratio)] for row, ours, theirs in found]
        lines += grid(["estimator", "method", "ours", "scikit-learn", "ratio"], times)
    return "\n".join(lines)


def _overall(cells: list[Cell]) -> list[str]:
    found = [cell.ratio for cell in compared(cells)]
    not_slower = sum(ratio <= 1.0 for ratio in found)
    missed = [cell for cell in cells if cell.missed]
    lines = [
        f"{len(found)} cells. Our time over scikit-learn's: geometric mean {number(geometric_mean(found))}, "
        f"not slower in {not_slower} cells ({not_slower / max(len(found), 1):.0%}), "
        f"largest ratio {number(max(found, default=math.nan))}.",
        f"Models of ours whose certified relative gap exceeds `tol`: {len(missed)}.",
    ]
    return lines + [
        f"- {cell.estimator} on {cell.table}: {cell.our_gap:.1e}{cell.note and ', '}{cell.note}" for cell in missed
    ]


def by_size(cells: list[Cell]) -> list[str]:
    """Return a table of geometric means (and largest ratios) of estimators by sizes."""
    groups = [group for group in (*data.GROUPS, data.FURTHER) if any(cell.group == group for cell in cells)]
    rows = []
    for name in [*dict.fromkeys(cell.estimator for cell in cells), "all"]:
        mine = [cell for cell in compared(cells) if name in (cell.estimator, "all")]
        parts = [[cell.ratio for cell in mine if group in (cell.group, "all")] for group in [*groups, "all"]]
        rows.append(
            [name, *(f"{number(geometric_mean(part))} ({number(max(part))})" if part else MISSING for part in parts)]
        )
    return ["Our time over scikit-learn's, geometric mean (largest):", "", *grid(["estimator", *groups, "all"], rows)]


def gaps(cells: list[Cell]) -> list[str]:
    """Return a table of the certified gaps of both libraries, per estimator: the median and the largest."""
    rows = []
    for name in dict.fromkeys(cell.estimator for cell in cells):
        mine = [cell for cell in cells if cell.estimator == name]
        columns = [
            sorted(gap for cell in mine if not math.isnan(gap := getattr(cell, key)))
            for key in ("our_gap", "their_gap")
        ]
        texts = [f"{part[len(part) // 2]:.0e}, {part[-1]:.0e}" if part else MISSING for part in columns]
        without = sum(math.isnan(cell.their_gap) for cell in mine)
        rows.append([name, f"{mine[0].tol:.0e}", *texts, str(without) if without else ""])
    title = "Certified relative gaps, median and largest; the last column counts models of scikit-learn without a certificate:"
    return [title, "", *grid(["estimator", "our `tol`", "ours", "scikit-learn", "not certified"], rows)]


def worst(cells: list[Cell], most: int = WORST) -> list[str]:
    """Return a table of the cells with the largest ratios."""
    found = sorted(compared(cells), key=lambda cell: -cell.ratio)[:most]
    return ["Largest ratios:", "", *grid(COLUMNS, [_row(cell) for cell in found])]


COLUMNS = ["estimator", "table", "ours", "scikit-learn", "ratio", "our gap", "scikit-learn's gap", ""]


def _row(cell: Cell) -> list[str]:
    gaps = [MISSING if math.isnan(gap) else f"{gap:.0e}" for gap in (cell.our_gap, cell.their_gap)]
    ratio = number(cell.ratio) if math.isfinite(cell.ratio) else MISSING
    return [cell.estimator, cell.table, seconds(cell.ours), seconds(cell.theirs), ratio, *gaps, cell.note]


def _not_measured(results: Results) -> list[str]:
    notes = [f"- {name} is left out: {reason}" for name, reason in results.left_out.items()]
    notes += [f"- {cell.estimator} on {cell.table}: {cell.note.strip()}" for cell in results.cells if cell.note]
    return ["", *notes] if notes else []


def write(results: Results, command: str) -> None:
    """Write the page, the table of all cells, and the section of the documentation."""
    heading = [f"Written by `{command}` on {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, one thread.", ""]
    heading += [f"- {name}: {value}" for name, value in environment().items()]
    note = "All cells: [DEFAULTS.csv](DEFAULTS.csv) (times in seconds)."
    PAGE.write_text(
        "\n".join(["# Default against default", "", *heading, "", note, "", summary(results)]) + "\n", "utf-8"
    )
    with CELLS.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        if results.cells:
            table.writerow([*asdict(results.cells[0]), "ratio"])
        for cell in results.cells:
            values = [*asdict(cell).values(), cell.ratio]
            table.writerow([f"{value:.4g}" if isinstance(value, float) else value for value in values])
    page = DOCS.read_text("utf-8")
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    section = [*_overall(results.cells)[:2], "", *by_size(results.cells)]
    made = f"\n`{command}`, {datetime.now(UTC):%Y-%m-%d} ([benchmarks/DEFAULTS.md](../benchmarks/DEFAULTS.md)). "
    lines = "\n".join(section)
    DOCS.write_text(f"{before}{BEGIN}\n{made}{lines}\n\n{END}{after}", "utf-8")
