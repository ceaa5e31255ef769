"""The failures of the current run, in the Report tab: found on request, grouped, each a way into its own attention."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.reports.report import Gallery, find_failures, gallery_as_data
from core.reports.report.gallery import Source
from core.reports.report.numerals import count, percent
from core.server import Runs
from core.storage.errors import LabError
from ui.cancelling import Cancelling
from ui.components import failure_gallery, notice
from ui.preset_form import CPU, QUIET

SECONDS_BETWEEN_NEWS = 0.2
Shown = list[Any]  # ticket, message, gallery, and the buttons Find and Cancel


@dataclass(frozen=True)
class Inputs:
    """Inputs to look for failures among."""

    source: Source
    sequences: int
    in_words: str


INPUTS = {
    "2,000 held out": Inputs("held out", 2_000, "held-out inputs"),
    "10,000 held out": Inputs("held out", 10_000, "held-out inputs"),
    "longer than trained on": Inputs("longer", 0, "inputs longer than those it was trained on"),
}

UNASKED = {"text": "The current run answers inputs that it has never seen, and what it gets wrong is shown in groups."}


def build(runs: Runs, run: gr.State) -> gr.HTML:
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
