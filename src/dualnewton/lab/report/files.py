"""The files of a report: a CSV file for every section, a PNG file for every chart, and the HTML page."""

from __future__ import annotations

import csv
import errno
import importlib.util
import io
import os
from pathlib import Path
from typing import IO, Any

from dualnewton.errors import MissingPackageError
from dualnewton.files.replacing import replacing
from dualnewton.lab.report.content import Chart, Panel, Report
from dualnewton.lab.report.page import page
from dualnewton.lab.report.palette import LINES, colour, dash, has_markers

NEEDED = ("matplotlib", "plotly")

WIDTH, HEIGHT = 5.8, 4.3
"""Width and height of a panel in inches."""

LEGEND_COLUMNS = 3
"""Number of columns of the legend below a panel."""


def require() -> None:
    """Raise an error that names the packages to install if a report cannot be drawn; called before any work is done."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingPackageError(
            f"a report needs {' and '.join(missing)}, not installed here: pip install 'dualnewton[report]'"
        )


def folder(path: str) -> Path:
    """Create the folder of a report before any work is done; raise ``OSError`` if that is impossible."""
    made = Path(path)
    if made.exists() and not made.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
    made.mkdir(parents=True, exist_ok=True)
    if not os.access(made, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return made


def write(report: Report, folder: Path | str, stem: str) -> list[Path]:
    """Write all files of a report into an existing folder; return their paths, that of the HTML page (``stem``.html) first."""
    folder = Path(folder)
    text = page(report)
    paths = [folder / f"{stem}.html"]
    with replacing(paths[0], "w", encoding="utf-8") as file:
        file.write(text)
    for section in report.sections:
        if section.records:
            paths.append(folder / f"{section.name}.csv")
            with replacing(paths[-1], "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(section.columns)
                # repr of a float is text from which the same value can be read back
                rows = ([repr(float(x)) if isinstance(x, float) else x for x in record] for record in section.records)
                writer.writerows(rows)
        for chart in section.charts:
            paths.append(folder / f"{chart.name}.png")
            picture = io.BytesIO()
            draw(chart, picture)
            with replacing(paths[-1]) as file:
                file.write(picture.getvalue())
    return paths


def draw(chart: Chart, file: IO[bytes]) -> None:
    """Write a chart to a binary stream, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # works without a display and with any user settings
    from matplotlib.figure import Figure

    columns = max(len(row) for row in chart.rows)
    figure = Figure(figsize=(WIDTH * columns, HEIGHT * len(chart.rows) + 0.6), layout="constrained", dpi=140)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(chart.rows), columns, squeeze=False)
    for line, row in zip(axes, chart.rows, strict=True):
        for ax in line[len(row) :]:
            ax.set_visible(False)
        for ax, panel in zip(line, row, strict=False):
            _panel(ax, panel, chart)
    figure.suptitle(chart.title, fontsize=13, fontweight="bold")
    figure.savefig(file, format="png")


def _panel(ax: Any, panel: Panel, chart: Chart) -> None:
    drawn = 0
    for curve in panel.curves:
        x, y = curve.points(x_log=chart.x_log, y_log=chart.y_log)
        drawn += len(x)
        marker = {"marker": "o", "markersize": 3.5} if has_markers(curve, len(x)) else {}
        ax.plot(
            x, y, color=colour(curve.shade), linestyle=LINES[dash(curve.family)], label=curve.name, lw=1.6, **marker
        )
    ax.set_title(panel.title, fontsize=11)
    ax.set_xlabel(panel.x_label or chart.x_label)
    ax.set_ylabel(chart.y_label)
    if chart.x_log and drawn:  # matplotlib warns about a logarithmic axis without data
        ax.set_xscale("log")
    if chart.y_log and drawn:
        ax.set_yscale("log")
    if chart.lowest is not None and drawn:
        ax.set_ylim(bottom=chart.lowest)
    if panel.end is not None:
        ax.set_xlim(0.0, panel.end)
    ax.grid(visible=True, which="major", alpha=0.25)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if panel.curves:
        ax.legend(fontsize=8.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=LEGEND_COLUMNS)
