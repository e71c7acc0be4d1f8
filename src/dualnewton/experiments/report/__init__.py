"""What an experiment has found, and the files that tell it: CSV, PNG and one HTML page."""

from dualnewton.experiments.report.content import Chart, Claim, Curve, Panel, Report, Section, Table, Verdict
from dualnewton.experiments.report.files import folder, require, write

__all__ = ["Chart", "Claim", "Curve", "Panel", "Report", "Section", "Table", "Verdict", "folder", "require", "write"]
