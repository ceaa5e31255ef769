"""The Report tab: measure the current run and read, or take away, what was found; its failures, one by one."""

import base64
import io
import zipfile
from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.reports.report import PAGE_FILE, REPORT_FILES
from core.runs import RunFolder
from core.server import Runs
from core.storage.errors import LabError
from ui.components.component import component


def report_view(runs: Runs, *, elem_id: str = "report") -> gr.HTML:
    """A run's saved report, with downloads. Value: ``{"run": id, "written": time}``; a new time reloads the report."""
    functions = {"saved": partial(saved, runs), "bundle": partial(bundle, runs)}
    return component("report_view", elem_id=elem_id, server_functions=functions)


class ReportRequest(BaseModel):
    """Which run's report a browser asks for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)


def saved(runs: Runs, request: dict[str, Any]) -> dict[str, str]:
    """Return a saved report as ``{"html": …}``, or ``{"error": …}``."""
    return _answer(request, lambda run: {"html": (runs.folder(run).report / PAGE_FILE).read_text()})


def bundle(runs: Runs, request: dict[str, Any]) -> dict[str, str]:
    """Return a saved report's Markdown and pictures as ``{"zip": base64}``, or ``{"error": …}``."""
    return _answer(request, lambda run: {"zip": base64.b64encode(_zipped(runs.folder(run))).decode()})


def _answer(request: dict[str, Any], find: Any) -> dict[str, str]:
    try:
        return find(ReportRequest.model_validate(request).run)
    except ValidationError as error:
        return {"error": f"cannot answer this: {error.errors()[0]['msg']}"}
    except LabError as error:
        return {"error": str(error)}
    except FileNotFoundError:
        return {"error": "this run has no report yet"}


def _zipped(folder: RunFolder) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in REPORT_FILES:
            if (folder.report / name).is_file():
                archive.write(folder.report / name, f"{folder.name}-report/{name}")
        if not archive.namelist():
            raise FileNotFoundError(folder.report)
    return file.getvalue()
