"""Colours and line styles shared by both renderers."""

from __future__ import annotations

from dualnewton.lab.report.content import Curve

COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c6bb1",
    "#7f7f7f",
    "#a6761d",
    "#66a61e",
    "#e7298a",
    "#3b4cc0",
    "#17becf",
    "#b40426",
)
"""Colours that can be distinguished with most kinds of colour blindness, on light and dark backgrounds."""

DASHES = {"": "solid", "SDNA": "solid", "SDCA": "dash", "bound": "dot", "default": "dashdot"}
"""The line style of each family of curves, by its name in plotly."""

LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
"""The names of the line styles in matplotlib."""

FEW = 40
"""Number of points above which a curve is drawn without markers, which would overlap."""


def colour(shade: int) -> str:
    """Return the colour of an index, modulo the number of colours."""
    return COLOURS[shade % len(COLOURS)]


def dash(family: str) -> str:
    """Return the line style of a family."""
    return DASHES.get(family, "solid")


def has_markers(curve: Curve, points: int) -> bool:
    """Return True if the points are marked: if they are few, and measured rather than computed bounds."""
    return points < FEW and curve.family != "bound"
