"""The Report tab: measure the current run, show its report, its wrong answers and the doctor's findings."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config.counting import counted, percent
from core.config.tasks import NOT_HERE
from core.reports.report import METRICS_FILE, PAGE_FILE, Gallery, find_failures, gallery_as_data, write_report
from core.reports.report.gallery import FailureSource
from core.runs import ACTIVE, Run
from core.server.access import VisitorRuns
from core.storage.errors import LabError
from ui.components.doctor import doctor
from ui.components.failure_gallery import failure_gallery
from ui.components.notice import NO_RUN, notice, problem
from ui.components.report_view import NO_REPORT, report_view
from ui.events import CPU, LATEST, QUIET
from ui.serving.cancellation import Cancellation
from ui.tabs.cancellable import cancellable, done
from ui.updates import Updates, by_name, each_by_name

SEQUENCES = 2_000  # the command line uses more


@dataclass(frozen=True)
class ReportTab:
    """The components that the page updates when the current run changes."""

    message: gr.HTML
    view: gr.HTML
    gallery: gr.HTML
    doctor: gr.HTML

    @property
    def run_outputs(self) -> dict[str, Component]:
        """The components that ``run_updates`` updates, by name."""
        return {
            "report_message": self.message,
            "report": self.view,
            "wrong_answers": self.gallery,
            "doctor": self.doctor,
        }


def build(runs: VisitorRuns, run: gr.State) -> ReportTab:
    """Build the tab and connect its own events; ``run`` holds the current run's name."""
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Write report", variant="primary", elem_id="write-report", min_width=130)
    message = notice(elem_id="report-message")
    with gr.Accordion("Wrong answers, one by one", open=False, elem_id="failures-section", elem_classes="fold"):
        gallery = build_failures(runs, run)
    with gr.Accordion("Doctor: check this run for bugs", open=False, elem_id="doctor-section", elem_classes="fold"):
        findings = doctor(runs)
    view = report_view(runs)
    outputs = {"report_message": message, "button": button, "report": view}
    event: dict[str, Any] = {"inputs": run, "outputs": list(outputs.values()), **QUIET, **LATEST}
    for listen in (button.click, view.begin):
        listen(by_name(partial(_measuring, runs), outputs), **event).then(
            by_name(partial(write, runs), outputs), **event, **CPU
        ).then(by_name(partial(_written, runs), outputs), **event)
    return ReportTab(message, view, gallery, findings)


def write(runs: VisitorRuns, run: str | None) -> Updates:
    """Measure a run and save its report; return the update of the message."""
    if run is None:
        return {"report_message": NO_RUN}
    try:
        chosen = runs[run]
        report = write_report(chosen, sequences=SEQUENCES)
        report.save(chosen.folder.report)
    except LabError as error:
        return {"report_message": problem(error)}
    return {"report_message": {"text": f"{chosen.title}: {report.summary}"}}


def run_updates(runs: VisitorRuns, run: str | None) -> Updates:
    """Return the updates for the current run: message, its saved report if any, no wrong answers, and the doctor."""
    updates: Updates = {"wrong_answers": None, "doctor": {"run": run}}
    if run is None:
        return updates | {"report_message": NO_RUN, "report": NO_REPORT}
    chosen = runs[run]
    folder, title = chosen.folder.report, chosen.title
    if chosen.preset.is_watched:
        return updates | {"report_message": {"text": f"{title} {NOT_HERE}."}, "report": NO_REPORT}
    if not (folder / PAGE_FILE).is_file():
        text = f"No report on {title} yet. Writing one decodes {SEQUENCES:,} held-out inputs."
        begins = chosen.info.status not in ACTIVE and chosen.has_weights
        return updates | {"report_message": {"text": text}, "report": {"run": run, "written": None, "begins": begins}}
    outdated = f"This report is of an earlier checkpoint of {title}. Write it again for the current weights."
    text = outdated if _is_outdated(chosen) else ""
    written = (folder / PAGE_FILE).stat().st_mtime
    return updates | {"report_message": {"text": text}, "report": {"run": run, "written": written}}


def _is_outdated(run: Run) -> bool:
    """Return whether a run's report is of other weights than a run that is not training decodes with."""
    info = run.info
    if info.status in ACTIVE:
        return False  # the weights change constantly; the report names its step
    try:
        about = json.loads((run.folder.report / METRICS_FILE).read_text(encoding="utf-8"))
        return (about["weights"], about["step"]) != ("best", info.best_step)
    except (OSError, ValueError, TypeError, KeyError):
        return True


def _measuring(runs: VisitorRuns, run: str | None) -> Updates:
    if run is None:
        return {"report_message": NO_RUN}
    try:
        title = runs[run].title
    except LabError as error:
        return {"report_message": problem(error)}
    text = f"Measuring {title} on {SEQUENCES:,} held-out inputs …"
    return {"report_message": {"text": text}, "button": gr.update(interactive=False)}


def _written(runs: VisitorRuns, run: str | None) -> Updates:
    """Enable the button again, also after an error, and show the current run's report."""
    return {"button": gr.update(interactive=True), "report": run_updates(runs, run)["report"]}


# ---- wrong answers


@dataclass(frozen=True)
class Inputs:
    """A set of inputs to search for wrong answers."""

    source: FailureSource
    sequences: int
    description: str


INPUTS = {
    "2,000 held-out inputs": Inputs("held out", 2_000, "held-out inputs"),
    "10,000 held-out inputs": Inputs("held out", 10_000, "held-out inputs"),
    "longer than in training": Inputs("longer", 0, "inputs longer than those in training"),
}
EXPLANATION = {"text": "Decodes inputs that the current run has never seen, and groups its wrong answers."}


def build_failures(runs: VisitorRuns, run: gr.State) -> gr.HTML:
    """Build the section of wrong answers and connect its own events; return the gallery."""
    finder = FailureFinder(runs)
    ticket = gr.State(None)
    inputs = gr.Radio(
        list(INPUTS), value=next(iter(INPUTS)), label="Inputs", elem_id="failure-inputs", interactive=True
    )
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Find wrong answers", elem_id="find-failures", min_width=140)
        cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-failures", min_width=100)
    message = notice(value=EXPLANATION, elem_id="failures-message")
    gallery = failure_gallery()
    outputs = {"ticket": ticket, "message": message, "result": gallery, "start": button, "cancel": cancel}
    button.click(each_by_name(finder.find, outputs), [run, inputs], list(outputs.values()), **QUIET, **CPU)
    cancel.click(finder.cancellation.cancel, ticket, None, **QUIET)
    return gallery


class FailureFinder:
    """Finds a run's wrong answers; can be cancelled."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs, self.cancellation = runs, Cancellation()

    def find(self, run: str | None, choice: str) -> Iterator[Updates]:
        """Decode inputs with the current run and group the wrong answers; see ``cancellable``."""
        if run is None:
            yield done(NO_RUN)
            return
        inputs = INPUTS.get(choice, INPUTS[next(iter(INPUTS))])
        yield from cancellable(self.cancellation, self._results(run, inputs))

    def _results(self, run: str, inputs: Inputs) -> Iterator[dict[str, Any]]:
        loaded, title = self.runs[run].trained(), self.runs[run].title
        for event in find_failures(loaded, source=inputs.source, sequences=inputs.sequences):
            if isinstance(event, Gallery):
                summary = _summary(event, title, loaded.step, inputs)
                texts = {"run": run, "summary": summary, "advice": _advice(event)}
                yield gallery_as_data(event, subwords=loaded.task.subwords is not None) | texts
            else:
                yield {"progress": {"done": event, "run": title}}


def _summary(gallery: Gallery, title: str, step: int, inputs: Inputs) -> str:
    wrong = f"{gallery.wrong:,} wrong answers" if gallery.wrong != 1 else "1 wrong answer"
    share = f" ({percent(gallery.wrong / gallery.inputs)})" if gallery.wrong else ""
    model = f"by {title} after {counted(step, 'step')}, greedy decoding"
    return f"{wrong} to {gallery.inputs:,} {inputs.description}{share}, {model}."


def _advice(gallery: Gallery) -> str:
    if gallery.wrong:
        return "Press an answer to see its attention maps; the first wrong token is marked."
    return "To see wrong answers, choose inputs longer than in training, or a run that was trained for fewer steps."
