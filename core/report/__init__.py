"""A run's report: measured on held-out sequences, answered from its own figures, written as Markdown and HTML."""

from core.report.measuring import Measured, measure
from core.report.writing import PAGE_FILE, REPORT_FILES, Report, write_report

__all__ = ["PAGE_FILE", "REPORT_FILES", "Measured", "Report", "measure", "write_report"]
