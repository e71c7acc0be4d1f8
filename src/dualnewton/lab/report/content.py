"""What a report holds, without a word on how it is drawn."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Verdict(enum.Enum):
    """Whether a run bears out a claim; the value of each member is its word."""

    HOLDS = "borne out"
    FAILS = "not borne out"
    UNKNOWN = "not measured"

    @classmethod
    def of(cls, holds: bool | None) -> Verdict:
        """Translate a truth value; None is a claim that could not be looked at."""
        return cls.UNKNOWN if holds is None else cls.HOLDS if holds else cls.FAILS


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper (or of ours), what was measured, and the verdict.

    Attributes
    ----------
    statement : str
        The claim.
    where : str
        The data it was looked at on.
    holds : bool or None
        None where it could not be measured.
    measured : str
        The numbers that decide.
    reason : str
        Why it fails, where that is known.
    """

    statement: str
    where: str
    holds: bool | None
    measured: str
    reason: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict with its word."""
        return Verdict.of(self.holds)


@dataclass(frozen=True, eq=False)
class Curve:
    """A line of a chart.

    Attributes
    ----------
    name : str
        What the legend calls it.
    x, y : arrays
        Points; on a logarithmic axis those that are not positive are left out.
    family : str
        Curves of one family share a kind of line: see ``palette.DASHES``.
    shade : int
        The colour, by its place in ``palette.COLOURS``.
    """

    name: str
    x: Any
    y: Any
    family: str = ""
    shade: int = 0

    def points(self, *, x_log: bool, y_log: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return what can be drawn."""
        x, y = np.asarray(self.x, dtype=float), np.asarray(self.y, dtype=float)
        shown = np.isfinite(x) & np.isfinite(y) & ((x > 0.0) | (not x_log)) & ((y > 0.0) | (not y_log))
        return x[shown], y[shown]


@dataclass(frozen=True, eq=False)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    title : str
        What is in it.
    curves : sequence of Curve
        Its lines.
    x_label : str
        What is on its x-axis, if not what the chart says.
    end : float, optional
        Where a linear x-axis ends at first; curves may go on beyond it.
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
        The stem of the picture's file.
    title, caption : str
        What it is, and what there is to see in it.
    rows : sequence of sequences of Panel
        As they stand on the page.
    x_label, y_label : str
        The axes.
    x_log, y_log : bool
        Whether they are logarithmic.
    lowest : float, optional
        The lower end of the y-axis; curves may leave the chart there.
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
        """All of them, row by row."""
        return [panel for row in self.rows for panel in row]


@dataclass(frozen=True)
class Table:
    """A title, columns and rows of text; a note below where something needs to be said."""

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
        The stem of its CSV file.
    title, text : str
        The heading, and a paragraph.
    charts, tables, claims : sequences
        What it shows.
    columns, records : sequences
        The measurements in long format, one record a point.
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
    """All that a command has found.

    Attributes
    ----------
    title, lead : str
        The heading, and what was done.
    sections : sequence of Section
        In order.
    command : str
        What repeats it.
    notes : sequence of str
        What is missing, what to know before reading.
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
        """Those of all sections."""
        return [claim for section in self.sections for claim in section.claims]
