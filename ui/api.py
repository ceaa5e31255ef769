"""The HTTP API: the page's actions as named endpoints with plain data."""

from collections.abc import Callable
from typing import Any, cast

import gradio as gr

from core.config import load_preset
from core.generation import GREEDY, Strategy, parse_strategy
from core.interpret.ablation import parse_ablation
from core.reports.comparison import Comparison, as_data
from core.reports.report import write_report
from core.runs import Run
from core.server.access import VisitorRuns
from core.storage.errors import InputError
from ui import run_info
from ui.attention_blocks import BLOCK_NAMES, Block
from ui.components.answer import answer_value
from ui.components.head_importance import measure_heads
from ui.components.head_thumbnails import layer_value
from ui.current_decode import CurrentDecode
from ui.events import CPU
from ui.interventions import NO_INTERVENTIONS, InterventionSpec, from_text
from ui.serving.argument_validation import validate_arguments
from ui.serving.errors import show_errors
from ui.tabs.compare import compare_events
from ui.tabs.report import SEQUENCES


def expose(runs: VisitorRuns) -> None:
    """Add the endpoints to the page that is being built."""
    api = Api(runs)

    def add(function: Callable, **options: Any) -> None:
        public = show_errors(validate_arguments(function, max_input=runs.limits.max_input))
        gr.api(public, api_name=function.__name__, **options)

    about_runs = (api.list_runs, api.train, api.stop, api.resume, api.rename_run, api.progress)
    for quick in (*about_runs, api.decode, api.attention):
        add(quick, concurrency_limit=4, concurrency_id="api")
    for slow in (api.report, api.compare, api.head_importance):
        add(slow, **CPU)


class Api:
    """The endpoints; their docstrings and type hints are the public documentation."""

    def __init__(self, runs: VisitorRuns) -> None:
        self.runs = runs

    def list_runs(self) -> dict[str, Any]:
        """List runs with title, preset, task, status, step, validation metrics and when they were created.

        These are the latest 100; unlisted is the number of the others.
        """
        return run_info.list_runs(self.runs)

    def train(self, preset: str, changes: dict[str, Any], start_from: str = "") -> dict[str, Any]:
        """Train a new run in the background and return its name; progress says how far it is.

        Args:
            preset: name of a preset, such as tiny or digits-reversal; an unknown name is answered with all names.
                Empty with start_from: the preset of that run.
            changes: settings that differ from the preset's, such as {"training.steps": 500}; {} for none.
            start_from: name of a run whose best weights it begins with; empty for random weights.
        """
        chosen = self.runs[start_from].preset if start_from and not preset else load_preset(preset)
        return {"run": self.runs.start(chosen.with_changes(changes or {}), start_from=start_from)}

    def stop(self, run: str) -> dict[str, Any]:
        """Stop a run after its current step; it is saved and can be resumed.

        Args:
            run: name of a run, the id in list_runs.
        """
        self.runs.stop(run)
        return {"run": run}

    def resume(self, run: str) -> dict[str, Any]:
        """Resume a stopped, failed or interrupted run.

        Args:
            run: name of a run, the id in list_runs.
        """
        self.runs.resume(run)
        return {"run": run}

    def rename_run(self, run: str, title: str) -> dict[str, Any]:
        """Give a run another title, which the page shows instead of its name.

        Args:
            run: name of a run, the id in list_runs.
            title: 1 to 60 characters; an empty one restores the default.
        """
        return {"run": run, "title": self.runs.rename(run, title)}

    def progress(self, run: str, since_step: int = -1) -> dict[str, Any]:
        """Return the state of a run, and its metrics after a step; a run of over 8,000 steps records a part of them.

        Args:
            run: name of a run, the id in list_runs.
            since_step: only metrics after this step are returned; -1 for all.
        """
        return run_info.recorded_since(self.runs[run], since_step)

    def decode(
        self,
        run: str,
        input: str,
        strategy: dict[str, Any] | None = None,
        prefix: str = "",
        ablate: str = "",
        pattern: str = "",
        ablate_with: str = "zero",
    ) -> dict[str, Any]:
        """Decode an input: output, expected output, correctness, the most probable tokens of each step, and n-best.

        Args:
            run: name of a run, the id in list_runs.
            input: what the model reads, such as 4829 for the reversal of digits.
            strategy: for example {"kind": "beam", "beam_size": 4} or {"kind": "sample", "temperature": 0.8, "seed": 1}.
            prefix: tokens that the output starts with.
            ablate: heads and layers to ablate, such as "cross.2.1, cross.1".
            pattern: pattern interventions, such as "cross.2.1=anti-diagonal, cross.1.2=position 3".
            ablate_with: "zero", or "mean" for the head's mean output.
        """
        spec = from_text(run, ablate, pattern, parse_ablation(ablate_with))
        with self.runs.inference_priority.inference():
            return answer_value(_decoded(self.runs[run], input, parse_strategy(strategy or {}), prefix, spec))

    def attention(
        self,
        run: str,
        input: str,
        block: Block,
        layer: int,
        ablate: str = "",
        pattern: str = "",
        ablate_with: str = "zero",
    ) -> dict[str, Any]:
        """Decode an input and return the attention maps of one layer. The maps of ablated heads are returned too.

        Args:
            run: name of a run, the id in list_runs.
            input: what the model reads, such as 4829 for the reversal of digits.
            block: which attention: that of the encoder, of the decoder, or cross, of the decoder to the encoder.
            layer: number of the layer, from 1.
            ablate: heads and layers to ablate, such as "cross.2.1, cross.1".
            pattern: pattern interventions, such as "cross.2.1=anti-diagonal, cross.1.2=position 3".
            ablate_with: "zero", or "mean" for the head's mean output.
        """
        spec = from_text(run, ablate, pattern, parse_ablation(ablate_with))
        with self.runs.inference_priority.inference():
            current = _decoded(self.runs[run], input, spec=spec)
            if block not in BLOCK_NAMES or not 1 <= layer <= current.num_layers(block):
                layers = ", ".join(f"{current.num_layers(each)} {each} layers" for each in BLOCK_NAMES)
                raise InputError(f"block={block!r}, layer={layer}: this run has {layers}")
            return layer_value(current, block, layer)

    def report(self, run: str) -> dict[str, Any]:
        """Measure a run on held-out inputs; return the report as Markdown, and its summary.

        Args:
            run: name of a run, the id in list_runs.
        """
        written = write_report(self.runs[run], sequences=SEQUENCES)
        return {"run": run, "summary": written.summary, "markdown": written.markdown}

    def compare(self, names: list[str]) -> dict[str, Any]:
        """Compare runs of one task on the same held-out inputs: metrics, paired wins and losses, accuracy by length.

        Args:
            names: names of 2 to 10 runs, the ids in list_runs.
        """
        *_, result = compare_events(self.runs, names)
        return as_data(cast(Comparison, result))  # the last event

    def head_importance(self, run: str, ablate_with: str = "zero") -> dict[str, Any]:
        """Measure exact match on held-out inputs with each head ablated, and with each layer ablated (head 0).

        The first call takes seconds or more; the result is saved with the run.

        Args:
            run: name of a run, the id in list_runs.
            ablate_with: "zero", or "mean" for the head's mean output.
        """
        return measure_heads(self.runs[run], parse_ablation(ablate_with))


def _decoded(
    run: Run,
    text: str,
    strategy: Strategy = GREEDY,
    prefix: str = "",
    spec: InterventionSpec = NO_INTERVENTIONS,
) -> CurrentDecode:
    trained = spec.applied_to(run.trained())
    inspection = trained.decode(text, strategy=strategy, prefix=prefix)
    return CurrentDecode(run.name, run.title, trained.step, inspection, spec)
