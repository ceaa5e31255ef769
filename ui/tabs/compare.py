"""The Compare tab: tick runs of one task, and see them side by side on the same held-out inputs."""

import time
from collections.abc import Iterator
from typing import Any

import gradio as gr

from core.evaluation.by_length import INPUTS_PER_LENGTH
from core.reports.comparison import Comparison, ComparisonProgress, MeasurementCache, as_data, compare
from core.server import Runs
from core.storage.errors import InputError, LabError
from ui.components.notice import notice
from ui.components.run_comparison import run_comparison
from ui.components.run_picker import run_picker
from ui.events import CPU, QUIET
from ui.run_info import LISTED_RUNS, can_open
from ui.serving.cancellation import Cancelling

SEQUENCES = 2_000  # a second a run on two cores; the command line takes more
MOST_RUNS = 10  # at once, on a page that others use too
SECONDS_BETWEEN_NEWS = 0.2
Shown = list[Any]  # ticket, message, view, and the buttons Compare and Cancel


class Comparer:
    """What the tab's handlers share: the runs, what was measured of them, and what was cancelled."""

    def __init__(self, runs: Runs) -> None:
        self.runs, self.measurements, self.cancelling = runs, MeasurementCache(), Cancelling()

    def compared(self, ticks: Any) -> Iterator[Shown]:
        """Measure the ticked runs; yield what the tab shows, again and again until there is a result.

        Args:
            ticks: the picker's value, which comes from a browser.
        """
        chosen = ticks.get("chosen") if isinstance(ticks, dict) else None
        chosen = [str(name) for name in chosen[:LISTED_RUNS]] if isinstance(chosen, list) else []
        ticket, told = self.cancelling.ticket(), 0.0
        try:
            for event in events_of(self.runs, chosen, self.measurements):
                if self.cancelling.is_cancelled(ticket):
                    yield _done({"text": "Cancelled."}, None)
                    return
                if not isinstance(event, ComparisonProgress):
                    yield _done({"text": ""}, as_data(event))
                elif time.monotonic() - told > SECONDS_BETWEEN_NEWS:
                    told = time.monotonic()
                    yield _working(ticket, {"progress": {"done": event.done, "run": event.run}})
        except LabError as error:
            yield _done({"text": str(error), "problem": True}, gr.skip())


def build(runs: Runs) -> gr.HTML:
    """Build the tab and wire its own events; return the picker, which the page ticks when it opens."""
    comparer = Comparer(runs)
    ticket = gr.State(None)
    picker = run_picker(runs)
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Compare", variant="primary", elem_id="compare", min_width=110)
        cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-compare", min_width=100)
    message = notice(elem_id="compare-message")
    shown = [ticket, message, run_comparison(), button, cancel]
    for listen in (button.click, picker.begin):
        listen(comparer.compared, picker, shown, **QUIET, **CPU)
    cancel.click(comparer.cancelling.cancel, ticket, None, **QUIET)
    return picker


def ticks_of(runs: Runs, asked: dict[str, str]) -> dict[str, Any]:
    """Return the picker's value for an address: the runs it names, compared at once if it opens this tab."""
    named = dict.fromkeys(asked.get("compare", "")[:1_000].split(","))
    chosen = [name for name in named if can_open(runs, name)]
    return {"chosen": chosen, "at_once": asked.get("tab") == "compare" and len(chosen) > 1}


def events_of(
    runs: Runs, names: list[str], measurements: MeasurementCache | None = None
) -> Iterator[ComparisonProgress | Comparison]:
    """Compare runs on as many inputs as a page can; see ``core.reports.comparison.compare``."""
    if not 2 <= len(names) <= MOST_RUNS:
        raise InputError(f"pick from 2 to {MOST_RUNS} runs of one task to compare here; these are {len(names)}")
    yield from compare(runs, names, sequences=SEQUENCES, per_length=INPUTS_PER_LENGTH, cache=measurements)


def _working(ticket: str, view: dict[str, Any]) -> Shown:
    return [ticket, {"text": ""}, view, gr.update(interactive=False), gr.update(interactive=True)]


def _done(message: dict[str, Any], view: Any) -> Shown:
    return [None, message, view, gr.update(interactive=True), gr.update(interactive=False)]
