"""A run's report: measured on held-out sequences, answered from its own figures, written as Markdown and HTML."""

from core.reports.report.gallery import FailureSource, Gallery, find_failures, gallery_as_data
from core.reports.report.measurements import ReportMeasurements, measure
from core.reports.report.writing import FIGURES_FILE, PAGE_FILE, REPORT_FILES, Report, write_report

__all__ = [
    "FIGURES_FILE",
    "PAGE_FILE",
    "REPORT_FILES",
    "Gallery",
    "ReportMeasurements",
    "Report",
    "FailureSource",
    "find_failures",
    "gallery_as_data",
    "measure",
    "write_report",
]
