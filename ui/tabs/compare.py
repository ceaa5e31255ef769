"""The Compare tab: select runs of one task and compare them on the same held-out inputs."""

from collections.abc import Iterator
from typing import Any

import gradio as gr

from core.evaluation.by_length import INPUTS_PER_LENGTH
from core.reports.comparison import Comparison, ComparisonProgress, MeasurementCache, as_data, compare
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from ui.components.notice import notice
from ui.components.run_comparison import run_comparison
from ui.components.run_picker import run_picker
from ui.events import CPU, QUIET
from ui.link_values import compared_runs
from ui.run_info import can_open
from ui.serving.cancellation import Cancellation
from ui.tabs.cancellable import cancellable
from ui.updates import Updates, each_by_name

SEQUENCES = 2_000  # a second per run on two cores; the command line uses more
MAX_RUNS = 10  # compared together, on a page that others use too


class Comparer:
    """The shared state of the tab's handlers: the runs, cached measurements and cancelled tickets."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs, self.measurements, self.cancellation = runs, MeasurementCache(), Cancellation()

    def compare(self, selection: Any) -> Iterator[Updates]:
        """Measure the selected runs; see ``cancellable``.

        Args:
            selection: the picker's value, as a browser sent it.
        """
        chosen = selection.get("chosen") if isinstance(selection, dict) else None
        names = list(map(str, chosen)) if isinstance(chosen, list) else []
        yield from cancellable(self.cancellation, self._results(names))

    def _results(self, names: list[str]) -> Iterator[dict[str, Any]]:
        for event in compare_events(self.runs, names, self.measurements):
            if isinstance(event, ComparisonProgress):
                yield {"progress": {"done": event.done, "run": self.runs[event.run].title}}
            else:
                yield as_data(event)


def build(runs: VisitorRuns) -> gr.HTML:
    """Build the tab and connect its own events; return the picker, which the page fills when it opens."""
    comparer = Comparer(runs)
    ticket = gr.State(None)
    picker = run_picker(runs)
    with gr.Row(elem_classes="actions"):
        button = gr.Button("Compare", variant="primary", elem_id="compare", min_width=110)
        cancel = gr.Button("Cancel", interactive=False, elem_id="cancel-compare", min_width=100)
    message = notice(elem_id="compare-message")
    outputs = {"ticket": ticket, "message": message, "result": run_comparison(), "start": button, "cancel": cancel}
    for listen in (button.click, picker.begin):
        listen(each_by_name(comparer.compare, outputs), picker, list(outputs.values()), **QUIET, **CPU)
    cancel.click(comparer.cancellation.cancel, ticket, None, **QUIET)
    return picker


def picker_value(runs: VisitorRuns, query: dict[str, str]) -> dict[str, Any]:
    """Return the picker's value for an address: the runs it names, compared immediately if it opens this tab."""
    chosen = [name for name in compared_runs(query) if can_open(runs, name)]
    return {"chosen": chosen, "start": query.get("tab") == "compare" and len(chosen) > 1}


def compare_events(
    runs: VisitorRuns, names: list[str], measurements: MeasurementCache | None = None
) -> Iterator[ComparisonProgress | Comparison]:
    """Compare runs on ``SEQUENCES`` inputs; see ``core.reports.comparison.compare``."""
    if not 2 <= len(names) <= MAX_RUNS:
        raise InputError(f"select 2 to {MAX_RUNS} runs of one task to compare; {len(names)} selected")
    yield from compare(
        [runs[name] for name in names], sequences=SEQUENCES, per_length=INPUTS_PER_LENGTH, cache=measurements
    )
