"""ONNX files of a model's graphs, as ONNX Runtime reads them in a browser; made once for each architecture."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from core.config import Preset
from core.graphs import Graph, forward_graph, removal_graph, start_graph, token_graph, training_step_graph
from core.models import Seq2Seq
from core.models.hooks import hook_names
from core.storage.atomic import write_atomically
from core.storage.optional_imports import require_package
from core.tasks import Batch

PURPOSE = "the static site"
_SAME_AS_LOGITS = "output.hook_logits"


def cache_folder() -> Path:
    """Return where graphs and ONNX Runtime are kept between two calls."""
    folder = os.environ.get("XDG_CACHE_HOME")
    return (Path(folder) if folder else Path.home() / ".cache") / "attention-lab"


def decoding_graphs(preset: Preset, model: Seq2Seq, cache: Path) -> dict[str, bytes]:
    """Return ONNX files: ``forward`` with every hook point and, if the model decodes token by token, two more.

    Args:
        cache: a folder that keeps graphs for the next call.
    """
    sizes = [list(weight.shape) for weight in model.parameters()]
    key = {"model": preset.model.model_dump(mode="json"), "sizes": sizes}
    points = [name for name in hook_names(model) if name != _SAME_AS_LOGITS]
    graphs: dict[str, Callable[[], Graph]] = {"forward": lambda: forward_graph(model, points)}
    if "encoder-only" not in preset.model.family:
        graphs |= {"start": lambda: start_graph(model), "token": lambda: token_graph(model)}
    return {name: _made(name, key, make, cache) for name, make in graphs.items()}


def lesson_graph(preset: Preset, model: Seq2Seq, cache: Path) -> bytes:
    """Return the ONNX file of the forward pass with switches, which the lessons on attention use."""
    key = {"model": preset.model.model_dump(mode="json"), "sizes": [list(each.shape) for each in model.parameters()]}
    return _made("removals", key, lambda: removal_graph(model), cache)


def step_graph(preset: Preset, model: Seq2Seq, batch: Batch, cache: Path) -> bytes:
    """Return the ONNX file of an update for batches of this shape; see ``core.graphs.training_step``."""
    unrelated = {"steps", "evaluate_every", "seed", "validation_sequences", "training_sequences", "schedule"}
    key = {
        "model": preset.model.model_dump(mode="json"),
        "training": preset.training.model_dump(mode="json", exclude=unrelated),
        "sizes": [list(weight.shape) for weight in model.parameters()],
        "batch": [list(batch.src.shape), list(batch.tgt.shape)],
    }
    return _made("step", key, lambda: training_step_graph(model, preset.training, batch), cache)


def _made(name: str, key: Mapping[str, object], make: Callable[[], Graph], cache: Path) -> bytes:
    text = json.dumps([name, torch.__version__, key], sort_keys=True)
    path = cache / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:24]}.onnx"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _optimized(make()))
    return path.read_bytes()


def _optimized(graph: Graph) -> bytes:
    """Return a graph after ONNX Runtime's basic optimizations, which shrink an update to half of its nodes.

    Those above "basic" fuse operations into approximations.
    """
    onnxruntime = require_package("onnxruntime", purpose=PURPOSE)
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = str(Path(folder) / "optimized.onnx")
        onnxruntime.InferenceSession(graph.to_onnx().SerializeToString(), options)
        return (Path(folder) / "optimized.onnx").read_bytes()
