"""The report of an experiment, and its files: CSV, PNG and one HTML page."""

from dualnewton.lab.report.content import Chart, Claim, Curve, Panel, Report, Section, Table, Verdict
from dualnewton.lab.report.files import folder, require, write

__all__ = ["Chart", "Claim", "Curve", "Panel", "Report", "Section", "Table", "Verdict", "folder", "require", "write"]
