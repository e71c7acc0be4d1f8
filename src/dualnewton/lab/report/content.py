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

    @classmethod
    def of(cls, holds: bool | None) -> Verdict:
        """Return the member for a truth value; None means that the claim could not be tested."""
        return cls.UNKNOWN if holds is None else cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True)
class Claim:
    """A claim of the paper or of this library, with the measurements and the verdict.

    Attributes
    ----------
    statement : str
        The claim.
    where : str
        The data on which it was tested.
    holds : bool or None
        Whether the claim holds; None if it could not be measured.
    measured : str
        The measurements on which the verdict is based.
    reason : str
        Why the claim fails, if that is known.
    """

    statement: str
    where: str
    holds: bool | None
    measured: str
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the claim."""
        return Verdict.of(self.holds)


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart.

    Attributes
    ----------
    name : str
        The name in the legend.
    x, y : arrays
        The points; on a logarithmic axis those that are not positive are omitted.
    family : str
        The group of curves that share a line style, a key of ``palette.DASHES``.
    shade : int
        The colour, as an index into ``palette.COLOURS``.
    """

    name: str
    x: Any
    y: Any
    family: str = ""
    shade: int = 0

    def points(self, *, x_log: bool, y_log: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the points that can be drawn."""
        x, y = np.asarray(self.x, dtype=float), np.asarray(self.y, dtype=float)
        shown = np.isfinite(x) & np.isfinite(y) & ((x > 0.0) | (not x_log)) & ((y > 0.0) | (not y_log))
        return x[shown], y[shown]


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title : str
        The title.
    curves : sequence of Curve
        The lines.
    x_label : str
        The label of the x-axis, if it differs from that of the chart.
    end : float, optional
        The initial right end of a linear x-axis; curves may continue beyond it.
    """

    title: str
    curves: Sequence[Curve]
    x_label: str = ""
    end: float | None = None


@dataclass(frozen=True, eq=False)
class Chart:
    """Panels side by side with the same axes.

    Attributes
    ----------
    name : str
        The stem of the name of the PNG file.
    title, caption : str
        The title, and the explanation below the chart.
    rows : sequence of sequences of Panel
        The panels in the rows of the page.
    x_label, y_label : str
        The labels of the axes.
    x_log, y_log : bool
        True for logarithmic axes.
    lowest : float, optional
        The lower end of the y-axis; curves may continue below it.
    """

    name: str
    title: str
    rows: Sequence[Sequence[Panel]]
    x_label: str
    y_label: str
    caption: str
    x_log: bool = False
    y_log: bool = True
    lowest: float | None = None

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
    """A part of a report.

    Attributes
    ----------
    name : str
        The stem of the name of its CSV file.
    title, text : str
        The heading, and a paragraph.
    charts, tables, claims : sequences
        The contents.
    columns, records : sequences
        The measurements for the CSV file, one record per point.
    """

    name: str
    title: str
    text: str = ""
    charts: Sequence[Chart] = ()
    tables: Sequence[Table] = ()
    claims: Sequence[Claim] = ()
    columns: Sequence[str] = ()
    records: Sequence[Sequence[Any]] = ()


@dataclass(frozen=True, eq=False)
class Report:
    """A report with all its sections.

    Attributes
    ----------
    title, lead : str
        The heading, and a description of the experiment.
    sections : sequence of Section
        The sections in order.
    command : str
        The command line that repeats the experiment.
    notes : sequence of str
        Remarks before the sections, such as missing data.
    environment : mapping of str to str
        The machine and the software.
    """

    title: str
    lead: str
    sections: Sequence[Section]
    command: str
    notes: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def claims(self) -> list[Claim]:
        """The claims of all sections."""
        return [claim for section in self.sections for claim in section.claims]
