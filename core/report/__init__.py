"""A run's report: measured on held-out sequences, answered from its own figures, written as Markdown and HTML."""

from core.report.measuring import Measured, measure
from core.report.writing import Report, write_report

__all__ = ["Measured", "Report", "measure", "write_report"]
