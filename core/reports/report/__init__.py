"""A run's report: measured on held-out sequences, answered from its own figures, written as Markdown and HTML."""

from core.reports.report.gallery import Gallery, Source, find_failures, gallery_as_data
from core.reports.report.measuring import Measured, measure
from core.reports.report.writing import FIGURES_FILE, PAGE_FILE, REPORT_FILES, Report, write_report

__all__ = [
    "FIGURES_FILE",
    "PAGE_FILE",
    "REPORT_FILES",
    "Gallery",
    "Measured",
    "Report",
    "Source",
    "find_failures",
    "gallery_as_data",
    "measure",
    "write_report",
]
