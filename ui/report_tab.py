"""The Report tab: measure the current run and read, or take away, what was found."""

import base64
import io
import zipfile
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import LabError
from core.report import PAGE_FILE, REPORT_FILES, write_report
from core.run_folder import RunFolder
from core.runs import Runs
from ui.components import notice, report_view
from ui.preset_form import QUIET

SEQUENCES = 2_000  # a few seconds on two cores; the command line takes more
EMPTY = {"run": None, "written": None}


@dataclass(frozen=True)
class ReportTab:
    """The parts of the tab that the page sets when the current run changes."""

    message: gr.HTML
    view: gr.HTML

    @property
    def of_run(self) -> list:
        """Everything that follows the current run, in the order of ``run_shown``."""
        return [self.message, self.view]


def build(runs: Runs, run: gr.State) -> ReportTab:
    """Build the tab and wire its own events; ``run`` holds the current run's name."""
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Write report", variant="primary", elem_id="write-report", min_width=130)
    message = notice(elem_id="report-message")
    view = report_view(partial(saved, runs), partial(bundle, runs))
    tab = ReportTab(message, view)
    button.click(_measuring, run, [message, button], **QUIET).then(
        partial(write, runs), run, [message, button], concurrency_id="cpu", concurrency_limit=2, **QUIET
    ).then(lambda current: run_shown(runs, current)[1], run, view, **QUIET)
    return tab


def write(runs: Runs, run: str | None) -> tuple[dict[str, Any], Any]:
    """Measure a run and save its report; return the message to show, and the button as it was."""
    again = gr.update(interactive=True)
    if run is None:
        return {"text": "No run yet: train one first."}, again
    try:
        report = write_report(runs, run, sequences=SEQUENCES)
        report.save(RunFolder(runs.root, run).report)
    except LabError as error:
        return {"text": str(error), "problem": True}, again
    return {"text": report.summary}, again


def run_shown(runs: Runs, run: str | None) -> list[Any]:
    """Return what the tab shows of the current run: whether there is a report, and which."""
    if run is None:
        return [{"text": "No run yet: train one first."}, EMPTY]
    folder = RunFolder(runs.root, run)
    page = folder.report / PAGE_FILE
    if not page.is_file():
        text = f"No report on {run} yet. Writing one measures it on {SEQUENCES:,} held-out inputs: a few seconds."
        return [{"text": text}, {"run": run, "written": None}]
    written = page.stat().st_mtime
    is_old = folder.best.exists() and folder.best.stat().st_mtime > written
    text = f"{run} was trained on since this report; write it again." if is_old else ""
    return [{"text": text}, {"run": run, "written": written}]


def _measuring(run: str | None) -> tuple[dict[str, str], Any]:
    return {"text": f"Measuring {run} on {SEQUENCES:,} held-out inputs …"}, gr.update(interactive=False)


class ReportRequest(BaseModel):
    """Which run's report a browser asks for; anybody may, so it is checked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    run: str = Field(max_length=100)


def saved(runs: Runs, request: dict[str, Any]) -> dict[str, str]:
    """Return a saved report as ``{"html": …}``, or ``{"error": …}``."""
    return _answer(request, lambda run: {"html": (RunFolder(runs.root, run).report / PAGE_FILE).read_text()})


def bundle(runs: Runs, request: dict[str, Any]) -> dict[str, str]:
    """Return a saved report's Markdown and pictures as ``{"zip": base64}``, or ``{"error": …}``."""
    return _answer(request, lambda run: {"zip": base64.b64encode(_zipped(RunFolder(runs.root, run))).decode()})


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
