"""The Report tab: measure the current run and read, or take away, what was found; its failures, one by one."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.reports.formatting import count, percent
from core.reports.report import (
    METRICS_FILE,
    PAGE_FILE,
    Gallery,
    find_failures,
    gallery_as_data,
    write_report,
)
from core.reports.report.gallery import FailureSource
from core.runs import ACTIVE
from core.server import Runs
from core.storage.errors import LabError
from ui.components.failure_gallery import failure_gallery
from ui.components.notice import notice
from ui.components.report_view import report_view
from ui.events import CPU, QUIET
from ui.serving.cancellation import Cancelling

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
        gallery = build_failures(runs, run)
    view = report_view(runs)
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
        about = json.loads((folder / METRICS_FILE).read_text())
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


SECONDS_BETWEEN_NEWS = 0.2
Shown = list[Any]  # ticket, message, gallery, and the buttons Find and Cancel


@dataclass(frozen=True)
class Inputs:
    """Inputs to look for failures among."""

    source: FailureSource
    sequences: int
    in_words: str


INPUTS = {
    "2,000 held out": Inputs("held out", 2_000, "held-out inputs"),
    "10,000 held out": Inputs("held out", 10_000, "held-out inputs"),
    "longer than trained on": Inputs("longer", 0, "inputs longer than those it was trained on"),
}
UNASKED = {"text": "The current run answers inputs that it has never seen, and what it gets wrong is shown in groups."}


def build_failures(runs: Runs, run: gr.State) -> gr.HTML:
    """Build the section and wire its own events; return the gallery, which the page opens attention from."""
    finder = Finder(runs)
    ticket = gr.State(None)
    inputs = gr.Radio(
        list(INPUTS), value=next(iter(INPUTS)), label="Look among", elem_id="failure-inputs", interactive=True
    )
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Find failures", elem_id="find-failures", min_width=140)
        cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-failures", min_width=100)
    message = notice(value=UNASKED, elem_id="failures-message")
    gallery = failure_gallery()
    button.click(finder.found, [run, inputs], [ticket, message, gallery, button, cancel], **QUIET, **CPU)
    cancel.click(finder.cancelling.cancel, ticket, None, **QUIET)
    return gallery


class Finder:
    """Finds failures, and breaks off when asked to."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.cancelling = runs, Cancelling()

    def found(self, run: str | None, choice: str) -> Iterator[Shown]:
        """Let the current run answer inputs; yield what the section shows, again and again until there is a result."""
        if run is None:
            yield _done({"text": "No run yet: train one first."}, None)
            return
        ticket, told, inputs = self.cancelling.ticket(), 0.0, INPUTS.get(choice, INPUTS[next(iter(INPUTS))])
        try:
            loaded = self.runs.loaded(run)
            for event in find_failures(loaded, source=inputs.source, sequences=inputs.sequences):
                if self.cancelling.is_cancelled(ticket):
                    yield _done({"text": "Cancelled."}, None)
                    return
                if isinstance(event, Gallery):
                    said = {
                        "run": run,
                        "summary": _summary(event, run, loaded.step, inputs),
                        "advice": _advice(event),
                    }
                    yield _done({"text": ""}, gallery_as_data(event) | said)
                elif time.monotonic() - told > SECONDS_BETWEEN_NEWS:
                    told = time.monotonic()
                    yield _working(ticket, {"progress": {"done": event, "run": run}})
        except LabError as error:
            yield _done({"text": str(error), "problem": True}, None)


def _summary(gallery: Gallery, run: str, step: int, inputs: Inputs) -> str:
    wrong = f"{gallery.wrong:,} wrong answers" if gallery.wrong != 1 else "1 wrong answer"
    share = f" ({percent(gallery.wrong / gallery.inputs)})" if gallery.wrong else ""
    who = f"by {run} after {count(step, 'step')}, decoding greedily"
    return f"{wrong} to {gallery.inputs:,} {inputs.in_words}{share}, {who}."


def _advice(gallery: Gallery) -> str:
    if gallery.wrong:
        return "Press one to see where every head looked while it was written; the first wrong token is marked."
    return (
        "To see failures, look among inputs longer than trained on, or at a run that was trained for fewer steps, or "
        "stopped early."
    )


def _working(ticket: str, view: dict[str, Any]) -> Shown:
    return [ticket, {"text": ""}, view, gr.update(interactive=False), gr.update(interactive=True)]


def _done(message: dict[str, Any], view: Any) -> Shown:
    return [None, message, view, gr.update(interactive=True), gr.update(interactive=False)]
