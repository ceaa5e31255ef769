"""The Decode tab: type an input, see the answer and how sure the model was at every step."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from core.generation import GREEDY
from core.interpret.inspection import inspect
from core.server import Runs
from core.server.access import display_name
from core.storage.errors import LabError
from core.tasks import build_task
from ui.components.answer import answer, answer_value
from ui.components.answer_comparison import answer_comparison, comparison_value
from ui.components.beam_tree import beam_tree, tree_value
from ui.components.head_thumbnails import head_thumbnails, viewer_value
from ui.components.notice import notice
from ui.current_decode import Seen
from ui.forms import strategy_form
from ui.forms.strategy_form import StrategyForm
from ui.interventions import ALL_HEADS, RequestedInterventions

NOTHING = (None, None, None, None)  # answer, tree, glance and comparison where there is no decode


@dataclass(frozen=True)
class DecodeTab:
    """The parts of the tab that the page wires together."""

    text: gr.Textbox
    button: gr.Button
    examples: gr.Dataset
    strategy: StrategyForm
    message: gr.HTML
    edited: gr.HTML
    answer: gr.HTML
    tree: gr.HTML
    glance: gr.HTML
    side_by_side: gr.Button
    comparison: gr.HTML

    @property
    def results(self) -> list:
        """Everything that a new decode changes, in the order of ``decode``'s results behind ``seen``."""
        return [self.message, self.answer, self.tree, self.glance, self.comparison]


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
    form = strategy_form.build()
    message = notice(elem_id="decode-message")
    edited = answer_comparison(elem_id="decode-edited")
    with gr.Row():
        with gr.Column(scale=5, min_width=320):
            shown = answer()
            tree = beam_tree()
        with gr.Column(scale=2, min_width=300):
            heads = head_thumbnails()
    with gr.Row(elem_classes="actions"):
        side_by_side = gr.Button("All strategies side by side", size="sm", elem_id="side-by-side", min_width=200)
    rows = answer_comparison()
    return DecodeTab(text, button, examples, form, message, edited, shown, tree, heads, side_by_side, rows)


def decode(
    runs: Runs,
    run: str | None,
    text: str,
    kind: str = "greedy",
    prefix: str = "",
    *values: Any,
    asked: RequestedInterventions = ALL_HEADS,
) -> tuple[Seen | None, list[Any]]:
    """Let the current run answer an input.

    Args:
        kind, prefix, values: what the controls of the strategy hold; without values, the kind's defaults.
        asked: what is done to heads meanwhile; then the answer with all heads is looked into too.

    Returns:
        What was seen (None where nothing could be), and the values of ``DecodeTab.results``.
    """
    if run is None:
        return None, [{"text": "No run yet: train one first."}, *NOTHING]
    try:
        strategy = strategy_form.strategy_in(kind, values or _defaults())
        loaded = runs.loaded(run)
        text, prefix = runs.limits.check_text("input", text), runs.limits.check_text("prefix", prefix or "")
        look = partial(inspect, loaded.model, loaded.task, text, strategy=strategy, prefix=prefix)
        inspection = look(interventions=asked.on(loaded))
        seen = Seen(run, loaded.step, inspection, asked, look() if asked else None)
    except LabError as error:
        return None, [{"text": str(error), "problem": True}, *NOTHING]
    which = f"answered by {display_name(run)}, {loaded.kind} weights: after {loaded.step} steps"
    which += f", {asked}" if asked else ""
    block = seen.source_block
    heads = viewer_value(seen, block, seen.layers(block)) if seen.layers(block) else None
    return seen, [{"text": which}, answer_value(seen), tree_value(seen), heads, None]


def compare(
    runs: Runs, run: str | None, asked: RequestedInterventions, text: str, prefix: str, *values: Any
) -> tuple[Any, Any]:
    """Let the current run answer an input by every kind of strategy; return what is wrong, and what to show.

    Args:
        asked: what is done to heads meanwhile.
        values: what the controls of the settings hold, of all kinds.
    """
    if run is None:
        return {"text": "No run yet: train one first."}, None
    try:
        loaded = runs.loaded(run)
        strategies = [strategy_form.strategy_in(kind, values) for kind in strategy_form.KINDS]
        text, prefix = runs.limits.check_text("input", text), runs.limits.check_text("prefix", prefix or "")
        look = partial(inspect, loaded.model, loaded.task, text, prefix=prefix)
        interventions = asked.of_run(run).on(loaded)
        with runs.inference_priority.inference():
            inspections = [look(strategy=strategy, interventions=interventions) for strategy in strategies]
    except LabError as error:
        return {"text": str(error), "problem": True}, None
    return gr.skip(), comparison_value(inspections, asked.of_run(run))


def _defaults() -> list[Any]:
    return [update["value"] for update in strategy_form.controls_for(GREEDY)]


def examples_of(runs: Runs, run: str | None) -> list[list[str]]:
    """Return inputs to click for a run's task."""
    if not run:
        return []
    task = build_task(runs.preset(run).task, pairs=runs.folder(run).pairs)
    return [[example] for example in task.examples]
