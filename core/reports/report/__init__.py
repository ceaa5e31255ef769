"""A run's report: measured on held-out inputs, written as Markdown and HTML. Also its failure gallery."""

from core.reports.report.gallery import FailureSource, Gallery, find_failures, gallery_as_data
from core.reports.report.measurements import ReportMeasurements, measure
from core.reports.report.writing import METRICS_FILE, PAGE_FILE, REPORT_FILES, Report, write_report

__all__ = [
    "METRICS_FILE",
    "PAGE_FILE",
    "REPORT_FILES",
    "FailureSource",
    "Gallery",
    "Report",
    "ReportMeasurements",
    "find_failures",
    "gallery_as_data",
    "measure",
    "write_report",
]
