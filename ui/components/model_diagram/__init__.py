"""The current run's model as a diagram: its parts with sizes and parameters, each attention a link to its maps."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import gradio as gr

from core.config import Preset
from core.interpret.shape_trace import ModuleTrace, Shape, trace_shapes
from core.models import parameters_of
from core.server.access import VisitorRuns
from core.tasks import build_task
from ui.components.component import component


def model_diagram(*, elem_id: str = "model") -> gr.HTML:
    """A model's modules with shapes and parameter counts; each attention block links to its maps.

    Value: ``model_diagram_value``. Event: ``.look(fn)`` with ``evt.block, evt.layer``.
    """
    return component("model_diagram", elem_id=elem_id)


_PARTS = {
    "self_attention": "self-attention",
    "cross_attention": "cross-attention",
    "attention": "attention over the source",
    "feed_forward": "feed-forward",
    "src": "source ids",
    "tgt_in": "ids read of the target",
    "src_embedding": "source embedding",
    "tgt_embedding": "target embedding",
    "output": "output projection",
    "logits": "logits",
}
_INNER = ("MultiHeadAttention", "AdditiveAttention", "FeedForward", "GRU", "GRUCell")
_LEFT = ("src", "encoder")


def model_shown(runs: VisitorRuns, run: str | None) -> dict[str, Any]:
    """Return the diagram of a run's model."""
    return {"columns": []} if run is None else diagram_of(runs.preset(run), runs.folder(run).pairs)


@lru_cache(64)
def diagram_of(preset: Preset, pairs: Path | None = None) -> dict[str, Any]:
    """Return a preset's model for the component: what reads the source, and what writes the answer, part by part."""
    stages = _last_uses(trace_shapes(preset, pairs=pairs))
    outer = [stage for stage in stages if _is_outer(stage)]
    columns = [
        {"title": title, "parts": [_part(stage, stages) for stage in outer if stage.name.startswith(_LEFT) is left]}
        for title, left in (("reads the source", True), ("writes the answer", False))
    ]
    total = parameters_of(preset.model, build_task(preset.task, pairs=pairs))
    return {"batch": preset.training.batch_size, "parameters": total, "columns": columns}


def _last_uses(stages: list[ModuleTrace]) -> list[ModuleTrace]:
    """Return each part where it is used last: layers that read source and target, behind what embeds the target."""
    last = {stage.name: at for at, stage in enumerate(stages)}
    return [stage for at, stage in enumerate(stages) if last[stage.name] == at]


def _is_outer(stage: ModuleTrace) -> bool:
    """Tell whether a stage is a part of its own in the diagram: each layer of a stack is, the stack is not."""
    return stage.depth == 0 or (stage.depth == 1 and stage.kind.endswith("Layer"))


def _part(stage: ModuleTrace, stages: list[ModuleTrace]) -> dict[str, Any]:
    inner = [each for each in stages if each.name.startswith(stage.name + ".") and each.kind in _INNER]
    return _described(stage) | {"inner": [_described(each) for each in inner]}


def _described(stage: ModuleTrace) -> dict[str, Any]:
    return {
        "label": _label(stage.name),
        "shape": _written(stage.shapes[""]),
        "weights": _written(stage.shapes.get("weights", ())),
        "parameters": stage.parameters,
        "calls": stage.calls,
        "block": stage.block,
        "layer": stage.layer,
    }


def _label(name: str) -> str:
    """Name a part for people: ``encoder_layers.0`` becomes ``encoder layer 1``."""
    last = name.rpartition(".")[2]
    if last.isdigit():
        stack = name.rpartition(".")[0].removesuffix("layers").strip("._")
        return f"{stack} layer {int(last) + 1}".strip()
    return _PARTS.get(last, last.replace("_", " "))


def _written(shape: Shape) -> str:
    return " × ".join(map(str, shape))
