"""The model architecture: the modules of a run's model with output shapes and parameter counts."""

from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import Preset
from core.config.sections import EncoderOnlyConfig
from core.interpret.shape_trace import Shape, TensorTrace, trace_shapes
from core.models import parameters_of
from core.server.access import VisitorRuns
from core.tasks import build_task
from ui.components.component import RunRequest, component, validated

_LABELS = {
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
    "attention": "attention over the source",
    "feed_forward": "feed-forward",
    "src": "encoder input (source ids)",
    "tgt_in": "decoder input (shifted right)",
    "src_embedding": "source embedding",
    "tgt_embedding": "target embedding",
    "output": "output projection",
    "logits": "logits",
}
_INNER_MODULES = (
    "MultiHeadAttention",
    "LinearAttention",
    "AdditiveAttention",
    "LocationSensitiveAttention",
    "LastTokenAttention",
    "FeedForward",
    "GRU",
    "GRUCell",
    "RecurrentLayer",
    "LSTMCell",
    "RNNCell",
    "StackRNNCell",
)
_ENCODER_NAMES = ("src", "encoder")


def model_diagram(runs: VisitorRuns) -> gr.HTML:
    """Build the component. Value: ``{"run": name}``, or None as the name; the script asks for the diagram to show it.

    Event: ``.inspect(fn)`` with ``evt.block, evt.layer``, when the visitor opens an attention block.
    """
    functions = {"diagram": validated(RunRequest, partial(run_diagram, runs))}
    return component("model_diagram", elem_id="model", events=["inspect"], server_functions=functions)


def run_diagram(runs: VisitorRuns, request: RunRequest) -> dict[str, Any]:
    """Return the diagram of a run's model, as ``diagram_of`` does."""
    run = runs[request.run]
    if run.preset.is_watched:
        return {"columns": [], "missing": f"{run.preset.task.summary}: its modules are not here."}
    return diagram_of(run.preset, run.folder.pairs)


@lru_cache(64)
def diagram_of(preset: Preset, pairs: Path | None = None) -> dict[str, Any]:
    """Return the modules of a preset's model in two columns, encoder and decoder, or encoder and output.

    Args:
        pairs: the file with the pairs of a preset on the user's own data.
    """
    stages = _last_uses(trace_shapes(preset, pairs=pairs))
    has_decoder = not isinstance(preset.model, EncoderOnlyConfig)
    outer = [stage for stage in stages if _is_outer(stage) and (has_decoder or stage.name != "tgt_in")]
    columns = [
        {
            "title": title,
            "parts": [_part(each, stages) for each in outer if each.name.startswith(_ENCODER_NAMES) is is_encoder],
        }
        for title, is_encoder in (("Encoder", True), ("Decoder" if has_decoder else "Output", False))
    ]
    total = parameters_of(preset.model, build_task(preset.task, pairs=pairs))
    return {"batch": preset.sequences_per_batch, "parameters": total, "columns": columns}


def _last_uses(stages: list[TensorTrace]) -> list[TensorTrace]:
    """Keep the last use of each module: shared layers come after the target embedding."""
    last = {stage.name: index for index, stage in enumerate(stages)}
    return [stage for index, stage in enumerate(stages) if last[stage.name] == index]


def _is_outer(stage: TensorTrace) -> bool:
    """Return whether a stage has a box of its own: top-level modules and each layer of a stack."""
    is_top_level = stage.depth == 0 and stage.kind != "HookPoint"
    return is_top_level or (stage.depth == 1 and stage.kind.endswith("Layer"))


def _part(stage: TensorTrace, stages: list[TensorTrace]) -> dict[str, Any]:
    inner = [each for each in stages if each.name.startswith(stage.name + ".") and each.kind in _INNER_MODULES]
    inner = [each for each in inner if not each.name.endswith(".cell")]  # part of a recurrent layer, which is listed
    return _described(stage) | {"inner": [_described(each) for each in inner]}


def _described(stage: TensorTrace) -> dict[str, Any]:
    return {
        "label": _label(stage.name),
        "shape": _format(stage.shapes[""]),
        "weights": _format(stage.shapes.get("weights", ())),
        "parameters": stage.parameters,
        "calls": stage.calls,
        "block": stage.block,
        "layer": stage.layer,
    }


def _label(name: str) -> str:
    """Return a module's label: ``encoder_layers.0`` becomes ``encoder layer 1``."""
    last = name.rpartition(".")[2]
    if last.isdigit():
        stack = name.rpartition(".")[0].removesuffix("layers").strip("._")
        return f"{stack} layer {int(last) + 1}".strip()
    return _LABELS.get(last, last.replace("_", " "))


def _format(shape: Shape) -> str:
    return " × ".join(map(str, shape))
