"""Colours and lines that both renderers share."""

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
"""Told apart by most kinds of eyes, on a white and on a dark page."""

DASHES = {"": "solid", "SDNA": "solid", "SDCA": "dash", "bound": "dot", "default": "dashdot"}
"""A kind of line for each family of curves, in plotly's words."""

LINES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
"""The same in matplotlib's."""

FEW = 40
"""With fewer points than this a curve shows them."""


def colour(shade: int) -> str:
    """The colour of a place, around and around."""
    return COLOURS[shade % len(COLOURS)]


def dash(family: str) -> str:
    """The line of a family."""
    return DASHES.get(family, "solid")


def has_markers(curve: Curve, points: int) -> bool:
    """Whether the points are shown: where they are few, and measured."""
    return points < FEW and curve.family != "bound"
