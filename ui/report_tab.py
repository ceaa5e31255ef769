"""The Report tab: measure the current run and read, or take away, what was found; its failures, one by one."""

import base64
import io
import json
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.reports.report import FIGURES_FILE, PAGE_FILE, REPORT_FILES, write_report
from core.runs import ACTIVE, RunFolder
from core.server import Runs
from core.storage.errors import LabError
from ui import failures_section
from ui.components import notice, report_view
from ui.preset_form import CPU, QUIET

SEQUENCES = 2_000  # a few seconds on two cores; the command line takes more
EMPTY = {"run": None, "written": None}
NO_RUN = {"text": "No run yet: train one first."}


@dataclass(frozen=True)
class ReportTab:
    """The parts of the tab that the page sets when the current run changes, and the failures, which it opens."""

    message: gr.HTML
    view: gr.HTML
    gallery: gr.HTML

    @property
    def of_run(self) -> list:
        """Everything that follows the current run, in the order of ``run_shown``."""
        return [self.message, self.view, self.gallery]


def build(runs: Runs, run: gr.State) -> ReportTab:
    """Build the tab and wire its own events; ``run`` holds the current run's name."""
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Write report", variant="primary", elem_id="write-report", min_width=130)
    message = notice(elem_id="report-message")
    with gr.Accordion("Failures, one by one", open=False, elem_id="failures-section"):
        gallery = failures_section.build(runs, run)
    view = report_view(partial(saved, runs), partial(bundle, runs))
    tab = ReportTab(message, view, gallery)
    button.click(_measuring, run, [message, button], **QUIET).then(
        partial(write, runs), run, message, **QUIET, **CPU
    ).then(partial(_written, runs), run, [button, view], **QUIET)
    return tab


def write(runs: Runs, run: str | None) -> dict[str, Any]:
    """Measure a run and save its report; return the message to show."""
    if run is None:
        return NO_RUN
    try:
        report = write_report(runs, run, sequences=SEQUENCES)
        report.save(runs.folder(run).report)
    except LabError as error:
        return {"text": str(error), "problem": True}
    return {"text": f"{run}: {report.summary}"}


def run_shown(runs: Runs, run: str | None) -> list[Any]:
    """Return what the tab shows of the current run: whether there is a report, and which; no failures yet."""
    if run is None:
        return [NO_RUN, EMPTY, None]
    folder = runs.folder(run).report
    if not (folder / PAGE_FILE).is_file():
        text = f"No report on {run} yet. Writing one measures it on {SEQUENCES:,} held-out inputs: a few seconds."
        return [{"text": text}, {"run": run, "written": None}, None]
    text = f"This report is of other weights than {run} has now; write it again." if _is_old(runs, run, folder) else ""
    return [{"text": text}, {"run": run, "written": (folder / PAGE_FILE).stat().st_mtime}, None]


def _is_old(runs: Runs, run: str, folder: Path) -> bool:
    """Tell whether a report is of weights that the run, done training, would not answer with."""
    info = runs.info(run)
    if info.status in ACTIVE:
        return False  # its weights change every moment; the report says of which step it is
    try:
        about = json.loads((folder / FIGURES_FILE).read_text())
        return (about["weights"], about["step"]) != ("best", info.best_step)
    except (OSError, ValueError, TypeError, KeyError):
        return True


def _measuring(run: str | None) -> tuple[dict[str, str], Any]:
    if run is None:
        return NO_RUN, gr.skip()
    return {"text": f"Measuring {run} on {SEQUENCES:,} held-out inputs …"}, gr.update(interactive=False)


def _written(runs: Runs, run: str | None) -> tuple[Any, dict[str, Any]]:
    """Make the button ready again, whatever happened, and show the current run's report."""
    return gr.update(interactive=True), run_shown(runs, run)[1]


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
