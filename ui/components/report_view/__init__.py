"""The report view: a run's saved report, with downloads."""

import base64
import io
import zipfile
from functools import partial
from typing import Any

import gradio as gr

from core.reports.report import PAGE_FILE, REPORT_FILES
from core.runs import RunError, RunFolder
from core.server.access import VisitorRuns
from ui.components.component import RunRequest, component, validated

NO_REPORT: dict[str, Any] = {"run": None, "written": None}


def report_view(runs: VisitorRuns) -> gr.HTML:
    """Build the component. Value: ``{"run": id, "written": time, "begins": bool}``; a new time reloads the report.

    Event: ``.begin(fn)``, once for every value with ``"begins": True``, as soon as the component is visible.
    """
    functions = {
        "saved": validated(RunRequest, partial(saved, runs)),
        "bundle": validated(RunRequest, partial(bundle, runs)),
    }
    return component("report_view", elem_id="report", events=["begin"], server_functions=functions)


def saved(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Return a saved report as ``{"html": text}``."""
    page = runs[request.run].folder.report / PAGE_FILE
    if not page.is_file():
        raise RunError("this run has no report yet")
    return {"html": page.read_text(encoding="utf-8")}


def bundle(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Return a saved report's Markdown and pictures as ``{"zip": base64}``."""
    return {"zip": base64.b64encode(_zipped(runs[request.run].folder)).decode()}


def _zipped(folder: RunFolder) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in REPORT_FILES:
            if (folder.report / name).is_file():
                archive.write(folder.report / name, f"{folder.name}-report/{name}")
        if not archive.namelist():
            raise RunError("this run has no report yet")
    return file.getvalue()
