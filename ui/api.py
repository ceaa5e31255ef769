"""What a program may ask of the lab: the same actions as on the page, with plain data, under clean names."""

from collections.abc import Callable
from typing import Any

import gradio as gr

from core.config import load_preset
from core.generation import GREEDY, Strategy, parse_strategy
from core.interpret.ablation import parse_ablation
from core.interpret.inspection import inspect
from core.reports.comparison import as_data
from core.reports.report import write_report
from core.server import Runs
from core.storage.errors import InputError
from ui.attention_blocks import BLOCK_NAMES, Block
from ui.components.answer import answer_value
from ui.components.head_importance import ablated
from ui.components.head_thumbnails import viewer_value
from ui.current_decode import Seen
from ui.events import CPU
from ui.interventions import ALL_HEADS, RequestedInterventions, from_text
from ui.run_info import progress_since, run_list
from ui.serving.argument_validation import checked
from ui.serving.errors import show_errors
from ui.tabs.compare import events_of
from ui.tabs.report import SEQUENCES


def expose(runs: Runs) -> None:
    """Add the endpoints to the page being built."""

    def list_runs() -> dict[str, Any]:
        """List all runs: name, preset, status, step, exact match."""
        return run_list(runs)

    def train(preset: str, changes: dict[str, Any]) -> dict[str, Any]:
        """Start a run from a preset's name, with values changed by key such as training.steps."""
        return {"run": runs.start(load_preset(preset).with_changes(changes or {}))}

    def stop(run: str) -> dict[str, Any]:
        """Stop a run after its present step."""
        runs.stop(run)
        return {"run": run}

    def resume(run: str) -> dict[str, Any]:
        """Continue a stopped or interrupted run."""
        runs.resume(run)
        return {"run": run}

    def progress(run: str, since_step: int = -1) -> dict[str, Any]:
        """Return where a run stands, and its figures after a step."""
        return progress_since(runs, run, since_step=since_step, since_evaluation=since_step)

    def decode(
        run: str,
        input: str,
        strategy: dict[str, Any] | None = None,
        prefix: str = "",
        ablate: str = "",
        force: str = "",
        ablation: str = "zero",
    ) -> dict[str, Any]:
        """Let a run answer an input: output, expected, correct, the likeliest tokens of each step, and n-best.

        A strategy looks like {"kind": "beam", "beam_size": 4} or {"kind": "sample", "temperature": 0.8, "seed": 1}.
        Heads are knocked out as in "cross.2.1, cross.1", with their mean in place of their output if ablation is
        "mean", and forced as in "cross.2.1=anti-diagonal, cross.1.2=position 3".
        """
        asked = from_text(run, ablate, force, parse_ablation(ablation))
        with runs.inference_priority.inference():
            return answer_value(_see(runs, run, input, parse_strategy(strategy or {}), prefix, asked))

    def attention(
        run: str, input: str, block: Block, layer: int, ablate: str = "", force: str = "", ablation: str = "zero"
    ) -> dict[str, Any]:
        """Decode an input and return every head of one layer: encoder, decoder or cross; layers from 1.

        Heads are knocked out and forced as for decode; where a knocked-out head looked is told all the same.
        """
        asked = from_text(run, ablate, force, parse_ablation(ablation))
        with runs.inference_priority.inference():
            seen = _see(runs, run, input, asked=asked)
            if block not in BLOCK_NAMES or not 1 <= layer <= seen.layers(block):
                raise InputError(f"block={block!r}, layer={layer}: this run has {_layers(seen)}")
            return viewer_value(seen, block, layer)

    def report(run: str) -> dict[str, Any]:
        """Measure a run on held-out inputs and return the report as Markdown, with its first sentence apart."""
        written = write_report(runs, run, sequences=SEQUENCES)
        return {"run": run, "summary": written.summary, "markdown": written.markdown}

    def compare(names: list[str]) -> dict[str, Any]:
        """Compare runs of one task on the same held-out inputs: figures, wins and losses of every two, by length."""
        *_, found = events_of(runs, names)
        return as_data(found)

    def ablate(run: str, ablation: str = "zero") -> dict[str, Any]:
        """Measure exact match on held-out inputs without each head, and without each layer: head 0.

        The first call takes seconds or more; its result is kept with the run.
        """
        return ablated(runs, run, parse_ablation(ablation))

    def public(function: Callable) -> Callable:
        return show_errors(checked(function, max_input=runs.limits.max_input))

    for function in (list_runs, train, stop, resume, progress, decode, attention):
        gr.api(public(function), api_name=function.__name__, concurrency_limit=4, concurrency_id="api")
    for function in (report, compare, ablate):
        gr.api(public(function), api_name=function.__name__, **CPU)


def _layers(seen: Seen) -> str:
    return ", ".join(f"{seen.layers(block)} {block} layers" for block in BLOCK_NAMES)


def _see(
    runs: Runs,
    run: str,
    text: str,
    strategy: Strategy = GREEDY,
    prefix: str = "",
    asked: RequestedInterventions = ALL_HEADS,
) -> Seen:
    loaded = runs.loaded(run)
    interventions = asked.on(loaded)
    inspection = inspect(loaded.model, loaded.task, text, strategy=strategy, prefix=prefix, interventions=interventions)
    return Seen(run, loaded.step, inspection)
