"""The content of a report, independent of its rendering."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Verdict(enum.Enum):
    """The result of testing a claim; the value of each member is its text in reports."""

    HOLDS = "borne out"
    FAILS = "not borne out"
    UNKNOWN = "not measured"


@dataclass(frozen=True)
class Claim:
    """A claim of the paper or of this library, with the measurements and the verdict."""

    statement: str
    where: str  # data on which it was tested
    holds: bool | None  # whether the claim holds; None if it could not be measured
    measured: str  # measurements on which the verdict is based
    reason: str = ""  # why the claim fails, if that is known

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        if self.holds is None:
            return Verdict.UNKNOWN
        return Verdict.HOLDS if self.holds else Verdict.FAILS


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart."""

    name: str  # name in the legend
    # The points; on a logarithmic axis those that are not positive are omitted.
    x: Any
    y: Any
    family: str = ""  # group of curves that share a line style, a key of ``palette.DASHES``
    shade: int = 0  # colour, as an index into ``palette.COLOURS``

    def points(self, *, x_log: bool, y_log: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the points that can be drawn."""
        x, y = np.asarray(self.x, dtype=float), np.asarray(self.y, dtype=float)
        shown = np.isfinite(x) & np.isfinite(y) & ((x > 0.0) | (not x_log)) & ((y > 0.0) | (not y_log))
        return x[shown], y[shown]


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes."""

    title: str
    curves: Sequence[Curve]
    x_label: str = ""  # label of the x-axis, if it differs from that of the chart
    end: float | None = None  # initial right end of a linear x-axis; curves may continue beyond it


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels side by side with the same axes."""

    name: str  # stem of the name of the PNG file
    title: str
    rows: Sequence[Sequence[Panel]]
    x_label: str
    y_label: str
    caption: str  # the explanation below the chart
    # Whether the axes are logarithmic.
    x_log: bool = False
    y_log: bool = True
    lowest: float | None = None  # lower end of the y-axis; curves may continue below it

    @property
    def panels(self) -> list[Panel]:
        """All panels, row by row."""
        return [panel for row in self.rows for panel in row]


@dataclass(frozen=True)
class Table:
    """A title, column names and rows of text, with an optional note below."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, eq=False)
class Section:
    """A part of a report."""

    name: str  # stem of the name of its CSV file
    title: str
    text: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()
    # The measurements for the CSV file, one record per point.
    columns: Sequence[str] = ()
    records: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """A report with all its sections."""

    title: str
    lead: str  # a description of the experiment
    sections: Sequence[Section]
    command: str  # command line that repeats the experiment
    notes: Sequence[str] = ()  # remarks before the sections, such as missing data
    environment: dict[str, str] = field(default_factory=dict)  # the machine and the software

    @property
    def claims(self) -> list[Claim]:
        """The claims of all sections."""
        return [claim for section in self.sections for claim in section.claims]
