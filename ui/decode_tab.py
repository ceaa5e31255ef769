"""The Decode tab: type an input, see the answer and how sure the model was at every step."""

from dataclasses import dataclass
from typing import Any

import gradio as gr

from core.errors import LabError
from core.inspection import inspect
from core.runs import Runs
from core.tasks import build_task
from ui.components import answer, attention_viewer, notice
from ui.views import Seen, answer_value, viewer_value


@dataclass(frozen=True)
class DecodeTab:
    """The parts of the tab that the page wires together."""

    text: gr.Textbox
    button: gr.Button
    examples: gr.Dataset
    message: gr.HTML
    answer: gr.HTML
    glance: gr.HTML

    @property
    def results(self) -> list:
        """Everything that a new decode changes, in the order of ``decode``'s results behind ``seen``."""
        return [self.message, self.answer, self.glance]


def build() -> DecodeTab:
    """Build the tab; the page wires it, since a decode also changes the Attention tab."""
    with gr.Row(equal_height=True, elem_classes="ask"):
        text = gr.Textbox(
            label="Input",
            placeholder="type an input, or pick an example",
            max_lines=1,
            max_length=2000,
            scale=5,
            elem_id="input",
        )
        button = gr.Button("Decode", variant="primary", scale=0, min_width=110, elem_id="decode")
    examples = gr.Dataset(
        components=[gr.Textbox(visible=False)], samples=[[""]], label="Examples", elem_id="examples", type="values"
    )
    message = notice(elem_id="decode-message")
    with gr.Row():
        with gr.Column(scale=5, min_width=320):
            shown = answer()
        with gr.Column(scale=2, min_width=300):
            glance = attention_viewer(None, compact=True)
    return DecodeTab(text, button, examples, message, shown, glance)


def decode(runs: Runs, run: str | None, text: str) -> tuple[Seen | None, list[Any]]:
    """Let the current run answer an input.

    Returns:
        What was seen (None where nothing could be), and the values of ``DecodeTab.results``.
    """
    if run is None:
        return None, [{"text": "No run yet: train one first."}, None, None]
    try:
        published = runs.published(run)
        seen = Seen(run, published.step, inspect(published.model, published.task, text))
    except LabError as error:
        return None, [{"text": str(error), "problem": True}, None, None]
    which = f"answered by {run}, {published.kind} weights: after {published.step} steps"
    block = seen.source_block
    glance = viewer_value(seen, block, seen.layers(block)) if seen.layers(block) else None
    return seen, [{"text": which}, answer_value(seen), glance]


def examples_of(runs: Runs, run: str | None) -> list[list[str]]:
    """Return inputs to click for a run's task."""
    return [[example] for example in build_task(runs.preset(run).task).examples] if run else []
