"""A report as one self-contained HTML page, with plotly.js, styles and data inside."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from importlib import resources
from typing import Any

import numpy as np

from dualnewton.lab.report.content import Chart, Claim, Curve, Panel, Report, Section, Table
from dualnewton.lab.report.palette import colour, dash, has_markers

TICKS = 8
"""Approximate number of labels on a logarithmic axis."""

PLOT, TOP, TITLE, ENTRY, REST = 300, 28, 56, 21, 8
"""Heights in pixels: of the axes, of the space for the buttons above, for the title below, and for a row of the legend."""

NARROW = 560
"""Width of a chart in pixels below which its legend has one column: longer names of curves take 270 pixels."""


def page(report: Report) -> str:
    """Return the page of a report."""
    from plotly.offline import get_plotlyjs

    charts = [chart for section in report.sections for chart in section.charts]
    specs = [_spec(chart, panel, number) for chart in charts for number, panel in enumerate(chart.panels)]
    body = "\n".join(_body(report))
    # "</" inside a script element would end the element.
    data = json.dumps(specs, ensure_ascii=False, allow_nan=False).replace("</", "<\\/")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escape(report.title)}</title>
<style>
{_part("page.css")}</style>
</head>
<body>
{body}
<script id="charts" type="application/json">{data}</script>
<script>{get_plotlyjs()}</script>
<script>
{_part("page.js")}</script>
</body>
</html>
"""


def _part(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _body(report: Report) -> Iterator[str]:
    yield f"<header><h1>{escape(report.title)}</h1><p>{escape(report.lead)}</p>"
    yield from (f'<p class="note">{escape(note)}</p>' for note in report.notes)
    yield "</header>"
    if report.claims:
        yield from _claims(report.claims)
    for section in report.sections:
        yield from _section(section)
    yield "<h2>To repeat it</h2>"
    yield f"<pre>{escape(report.command)}</pre>"
    yield '<div class="scroll"><table>'
    for name, value in report.environment.items():
        yield f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>"
    yield "</table></div>"


def _claims(claims: Sequence[Claim]) -> Iterator[str]:
    held = sum(claim.holds is True for claim in claims)
    yield f"<h2>{held} of {len(claims)} claims borne out by this run</h2>"
    head = "".join(f"<th>{name}</th>" for name in ("claim", "data", "verdict", "measured"))
    yield f'<div class="scroll"><table class="claims"><thead><tr>{head}</tr></thead><tbody>'
    for claim in claims:
        verdict = f'<td class="verdict {claim.verdict.name.lower()}">{escape(claim.verdict.value)}</td>'
        reason = f'<span class="reason">{escape(claim.reason)}</span>' if claim.reason else ""
        yield (
            f"<tr><td>{escape(claim.statement)}</td><td>{escape(claim.where)}</td>{verdict}"
            f"<td>{escape(claim.measured)}{reason}</td></tr>"
        )
    yield "</tbody></table></div>"


def _section(section: Section) -> Iterator[str]:
    yield f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>'
    yield from (f"<p>{escape(text)}</p>" for text in section.text.split("\n") if text)
    for chart in section.charts:
        yield f'<figure><h3>{escape(chart.title)}</h3><div class="panels">'
        for number, panel in enumerate(chart.panels):
            yield f'<div class="panel"><h4>{escape(panel.title)}</h4>'
            style = f"height: {PLOT + TOP + _below(panel)}px"
            yield f'<div class="chart" id="{_identity(chart, number)}" style="{style}"></div></div>'
        yield f"</div><figcaption>{escape(chart.caption)}</figcaption></figure>"
    for table in section.tables:
        yield from _table(table)
    yield "</section>"


def _table(table: Table) -> Iterator[str]:
    head = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    yield f'<h3>{escape(table.title)}</h3><div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>'
    for row in table.rows:
        yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
    yield "</tbody></table></div>"
    if table.note:
        yield f'<p class="small">{escape(table.note)}</p>'


# Charts as plotly specifications -------------------------------------------------------------------------------------


def _identity(chart: Chart, number: int) -> str:
    return f"{chart.name}-{number}"


def _below(panel: Panel) -> int:
    """Return the height in pixels below the axes, for their title and a legend of two columns."""
    return TITLE + ENTRY * math.ceil(len(panel.curves) / 2) + REST


def _room(panel: Panel) -> dict[str, int]:
    """Return the heights in pixels of which a chart consists, for the page's script, which has the width of the screen."""
    heights = {"plot": PLOT, "top": TOP, "title": TITLE, "entry": ENTRY, "rest": REST}
    return {**heights, "entries": len(panel.curves), "narrow": NARROW}


def _spec(chart: Chart, panel: Panel, number: int) -> dict[str, Any]:
    points = [curve.points(x_log=chart.x_log, y_log=chart.y_log) for curve in panel.curves]
    x_axis = {} if panel.end is None else {"range": [0.0, panel.end]}
    every = [np.concatenate(side) if points else np.empty(0) for side in zip(*points, strict=True)] or [np.empty(0)] * 2
    return {
        "id": _identity(chart, number),
        "room": _room(panel),
        "data": [
            _trace(curve, *where, panel.x_label or chart.x_label, chart.y_label)
            for curve, where in zip(panel.curves, points, strict=True)
        ],
        "layout": {
            "margin": {"l": 70, "r": 18, "t": TOP, "b": _below(panel)},
            "font": {"family": "system-ui, sans-serif", "size": 13},
            "showlegend": True,
            "legend": {"orientation": "h", "x": 0, "y": -TITLE / PLOT, "yanchor": "top"},
            "hovermode": "closest",
            "xaxis": _axis(panel.x_label or chart.x_label, chart.x_log, every[0]) | x_axis,
            "yaxis": _axis(chart.y_label, chart.y_log, every[1], chart.lowest),
        },
    }


def _trace(curve: Curve, x: np.ndarray, y: np.ndarray, x_label: str, y_label: str) -> dict[str, Any]:
    where = f"{escape(x_label)}: %{{x:.4g}}<br>{escape(y_label)}: %{{y:.3g}}"
    return {
        "type": "scatter",
        "mode": "lines+markers" if has_markers(curve, len(x)) else "lines",
        "name": curve.name,
        "x": [float(f"{value:.8g}") for value in x],
        "y": [float(f"{value:.8g}") for value in y],
        "line": {"color": colour(curve.shade), "dash": dash(curve.family), "width": 2},
        "marker": {"size": 6},
        "hovertemplate": f"{escape(curve.name)}<br>{where}<extra></extra>",
    }


def _axis(label: str, logarithmic: bool, values: np.ndarray, lowest: float | None = None) -> dict[str, Any]:
    axis: dict[str, Any] = {
        "title": {"text": label, "standoff": 8},
        "automargin": True,
        "zeroline": False,
        "showline": True,
    }
    if not logarithmic:
        return axis | {"rangemode": "tozero"}
    axis |= {"type": "log", "exponentformat": "power"}
    if len(values):
        ends = [math.log10(values.min() if lowest is None else max(lowest, values.min())), math.log10(values.max())]
        if lowest is not None:
            axis["range"] = [ends[0], ends[1] + 0.03 * (ends[1] - ends[0])]
        if ends[1] - ends[0] >= 2.0:
            axis["dtick"] = math.ceil((ends[1] - ends[0]) / TICKS)
    return axis
