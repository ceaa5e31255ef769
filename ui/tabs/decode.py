"""The input, and the Decode tab: the output with the model's probabilities at each step."""

from dataclasses import dataclass
from typing import Any

import gradio as gr
from gradio.components import Component

from core.config.counting import counted
from core.config.tasks import NOT_HERE
from core.generation import Strategy
from core.generation.reading import typed_tokens
from core.generation.translation import Translation, translate
from core.interpret.health import HeadMarks, head_marks
from core.interpret.health_course import health_steps
from core.interpret.trained import Trained
from core.runs import Run
from core.server.access import VisitorRuns
from core.storage.errors import InputError, LabError
from core.tasks import Task
from core.text.sentences import split_sentences
from core.text.vocab import UNK_ID
from ui.components.answer import FAILED, answer, answer_value
from ui.components.answer_comparison import answer_comparison, strategies_value
from ui.components.beam_tree import beam_tree, tree_value
from ui.components.head_thumbnails import head_thumbnails, layer_value
from ui.components.notice import NO_RUN, notice, problem
from ui.components.translations import translations, translations_value
from ui.current_decode import CurrentDecode
from ui.decode_record import ribbon_record
from ui.forms import strategy_form
from ui.forms.strategy_form import StrategyForm
from ui.interventions import NO_INTERVENTIONS, InterventionSpec
from ui.updates import Updates

_SHOWN_CHARACTERS = 60  # of an input in a message
_EMPTY: Updates = {
    "answer": None,
    "tree": None,
    "thumbnails": None,
    "strategies": None,
    "strategies_message": {"text": ""},
    "translations": None,
}
MAX_SENTENCES = 50  # of an input that is translated sentence by sentence


@dataclass(frozen=True)
class InputRow:
    """The input, which the tabs Decode and Look inside share, and what became of it."""

    text: gr.Textbox
    button: gr.Button
    message: gr.HTML


@dataclass(frozen=True)
class DecodeTab:
    """The components that the page connects."""

    examples: gr.Dataset
    strategy: StrategyForm
    interventions: gr.HTML
    translations: gr.HTML
    answer: gr.HTML
    tree: gr.HTML
    thumbnails: gr.HTML
    compare: gr.Button
    compare_message: gr.HTML
    comparison: gr.HTML

    @property
    def outputs(self) -> dict[str, Component]:
        """The components that ``decode`` updates, by name, besides the message."""
        return {
            "answer": self.answer,
            "tree": self.tree,
            "thumbnails": self.thumbnails,
            "strategies": self.comparison,
            "strategies_message": self.compare_message,
            "translations": self.translations,
        }


def build_input() -> InputRow:
    """Build the row with the input; style sheets show it on the tabs that decode."""
    with gr.Column(elem_id="ask"):
        with gr.Row(equal_height=True, elem_classes="ask"):
            text = gr.Textbox(
                label="Input",
                placeholder="Type an input or choose an example",
                lines=1,
                max_lines=6,
                scale=5,
                elem_id="input",
            )
            button = gr.Button("Decode", variant="primary", scale=0, min_width=110, elem_id="decode")
        message = notice(elem_id="decode-message")
    return InputRow(text, button, message)


def build() -> DecodeTab:
    """Build the tab; the page connects it, because a decode also updates the tab Look inside."""
    with gr.Row(elem_id="decode-columns"):
        with gr.Column(scale=5, min_width=560):
            interventions = answer_comparison(elem_id="decode-edited")
            translated = translations()
            output = answer()
            tree = beam_tree()
            with gr.Row(elem_classes="actions"):
                compare = gr.Button("Compare decoding strategies", size="sm", elem_id="side-by-side", min_width=200)
            compare_message = notice(elem_id="strategies-message")
            comparison = answer_comparison()
        with gr.Column(scale=2, min_width=300):
            examples = gr.Dataset(
                components=[gr.Textbox(visible=False)],
                samples=[],
                label="Examples",
                elem_id="examples",
                type="values",
            )
            form = strategy_form.build()
            thumbnails = head_thumbnails()
    return DecodeTab(
        examples=examples,
        strategy=form,
        interventions=interventions,
        translations=translated,
        answer=output,
        tree=tree,
        thumbnails=thumbnails,
        compare=compare,
        compare_message=compare_message,
        comparison=comparison,
    )


def decode(
    runs: VisitorRuns,
    run: str | None,
    text: str,
    kind: str = "greedy",
    prefix: str = "",
    *values: Any,
    interventions: InterventionSpec = NO_INTERVENTIONS,
) -> tuple[CurrentDecode | None, Updates]:
    """Decode an input with the current run.

    An input of several sentences, for a task that translates, is translated sentence by sentence; the decode is that of
    the first sentence that can be read.

    Args:
        kind, prefix, values: the controls of the strategy form; without ``values``, the kind's defaults.
        interventions: interventions during the decode; if there are any, the input is also decoded without them.

    Returns:
        The decode (None if it failed), and the updates of the message and of ``DecodeTab.outputs``.
    """
    if run is None:
        return None, {"message": NO_RUN} | _EMPTY
    asked = text
    try:
        strategy = strategy_form.strategy_in(kind, values or strategy_form.default_values())
        text, prefix = runs.limits.check_text("input", text), runs.limits.check_text("prefix", prefix or "")
        chosen = runs[run]
        if chosen.preset.is_watched:
            return None, _EMPTY | {"message": {"text": f"{chosen.title} {NOT_HERE}."}}
        with runs.inference_priority.inference():
            loaded = chosen.trained()
            changed = interventions.applied_to(loaded)
            sentences = _sentences(loaded.task, text)
            results = _translate(changed, sentences, strategy) if len(sentences) > 1 else []
            readable = (sentence for sentence, each in zip(sentences, results, strict=False) if not each.problem)
            text = next(readable, sentences[0]).strip() if results else text
            inspection = changed.decode(text, strategy=strategy, prefix=prefix)
            baseline = loaded.decode(text, strategy=strategy, prefix=prefix) if interventions else None
            marks = _marks_near(chosen, loaded.step)
            current = CurrentDecode(run, chosen.title, loaded.step, inspection, interventions, baseline, marks)
    except LabError as error:
        return None, {"message": problem(error)} | _EMPTY | {"answer": FAILED}
    message = f"Decoded with {current.title} ({loaded.kind} weights, after {counted(loaded.step, 'training step')})"
    message += f", {interventions}" if interventions else ""
    message += f". Steps and attention are those of “{_shortened(text)}”" if results else ""
    message += f". Its task: {loaded.preset.task.summary}"
    block = current.source_block
    heads = None if block is None else layer_value(current, block, current.num_layers(block))
    return current, _EMPTY | {
        "message": {"text": message},
        "answer": answer_value(current) | {"record": ribbon_record(current), "asked": asked, "explained": True},
        "tree": tree_value(current),
        "thumbnails": heads,
        "translations": translations_value(sentences, results) if results else None,
    }


def compare(
    runs: VisitorRuns, run: str | None, interventions: InterventionSpec, text: str, prefix: str, *values: Any
) -> Updates:
    """Decode an input, or its first sentence, with every strategy.

    Args:
        values: the settings of all strategies.
    """
    if run is None:
        return {"strategies_message": NO_RUN, "strategies": None}
    try:
        trained = interventions.for_run(run).applied_to(runs[run].trained())
        strategies = [strategy_form.strategy_in(kind, values) for kind in strategy_form.KINDS]
        text, prefix = runs.limits.check_text("input", text), runs.limits.check_text("prefix", prefix or "")
        sentence = _sentences(trained.task, text)[0]
        with runs.inference_priority.inference():
            inspections = [trained.decode(sentence, strategy=strategy, prefix=prefix) for strategy in strategies]
    except LabError as error:
        return {"strategies_message": problem(error), "strategies": None}
    comparison = strategies_value(inspections, interventions.for_run(run))
    return {"strategies_message": {"text": ""}, "strategies": comparison}


def readable_input(run: Run, text: str) -> tuple[str, str]:
    """Return the input if the run's task can read it, else the task's first example; and a note if it was replaced."""
    if run.preset.is_watched:
        return text, ""
    task = run.task()
    longest = run.preset.model.max_seq_len
    try:
        sentences = _sentences(task, text)
    except InputError:
        sentences = []
    # Subwords read any text, also the digits of another task.
    is_text = not run.preset.task.has_subwords or any(each.isalpha() for each in text)
    if is_text and any(_is_readable(task, sentence, longest) for sentence in sentences):
        return text, ""
    example = task.examples[0]
    shown = _shortened(text)
    return example, f"“{shown}” is not an input of {run.title}. This is an example of its task." if shown else ""


def _is_readable(task: Task, text: str, max_seq_len: int) -> bool:
    try:
        ids = task.src_vocab.encode(typed_tokens(task, text))
    except InputError:
        return False
    return len(ids) + 2 <= max_seq_len and any(each != UNK_ID for each in ids)


def _sentences(task: Task, text: str) -> list[str]:
    """Return the sentences of an input, each with the white space after it; the whole unless the task translates.

    Raises:
        InputError: there are too many, or none.
    """
    if task.is_translation and not text.strip():
        raise InputError("input is empty: type a sentence")
    sentences = split_sentences(text) if task.is_translation else []
    if len(sentences) > MAX_SENTENCES:
        raise InputError(f"input has {len(sentences)} sentences; the maximum is {MAX_SENTENCES}")
    return sentences if len(sentences) > 1 else [text]


def _translate(trained: Trained, sentences: list[str], strategy: Strategy) -> list[Translation]:
    """Decode the sentences of an input together."""
    with trained.changed():
        return list(translate(trained.model, trained.task, sentences, strategy=strategy))


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def examples_of(run: Run) -> list[list[str]]:
    """Return example inputs of a run's task, one per row; [] for a training by a user's own loop."""
    if run.preset.is_watched:
        return []
    return [[example] for example in run.task().examples]


def _marks_near(run: Run, step: int) -> HeadMarks:
    """Return the marks of the heads at the snapshot nearest to a step; {} for a run without any."""
    course = health_steps(run.replay.snapshots())
    return head_marks(min(course, key=lambda each: abs(each[0] - step))[1].heads) if course else {}
