"""``describe``: the model of a preset: parameters, shapes, and the memory that training it takes."""

import argparse
import json
from dataclasses import asdict

from core.cli.arguments import pairs_from, preset_from
from core.config import Preset
from core.interpret.shape_trace import TensorTrace, named_shape, trace_shapes
from core.models import count_parameters, outline_model
from core.storage.errors import InputError
from core.tasks import build_task
from core.teaching.bugs.descriptions import bug_notice
from core.training.memory import (
    MemoryEstimate,
    estimate_memory,
    long_sequence_warning,
    machine_memory,
    training_memory,
)
from core.training.model_summary import layer_groups, parameter_shapes, parameters_by_module


def run(options: argparse.Namespace) -> int:
    """Print parameters by part, the shape of every parameter, and memory by batch size and length."""
    preset, pairs = preset_from(options), pairs_from(options)
    batches, lengths = _sizes(options, preset)
    model = outline_model(preset.model, build_task(preset.task, pairs=pairs))
    parts, shapes = parameters_by_module(model), parameter_shapes(model)
    memory = {
        batch: {length: estimate_memory(preset, batch_size=batch, length=length, pairs=pairs) for length in lengths}
        for batch in batches
    }
    print(f"{preset.name}: {_summary(preset)}\n\n{count_parameters(model):,} parameters, by part")
    for part, count, layers in layer_groups(parts):
        print(f"  {part:24} {count:12,}" + f" × {layers}" * (layers > 1))
    print("\ntensors")
    for name, shape, _ in layer_groups(shapes):
        print(f"  {name:56} {' × '.join(map(str, shape))}")
    stages = trace_shapes(preset, pairs=pairs)
    if options.shapes:
        print("\n".join(_shape_trace(preset, stages)))
    print("\n".join(_memory_table(preset, memory, training_memory(preset, pairs))))
    if options.json:
        trace = [asdict(stage) for stage in stages]
        print(json.dumps(_as_json(preset, parts, shapes, memory) | {"shape_trace": trace}))
    return 0


def _memory_table(preset: Preset, memory: dict[int, dict[int, MemoryEstimate]], own: MemoryEstimate) -> list[str]:
    """Format the memory by part for the preset's batches, and the activations by batch size and length."""
    lines = ["", f"memory to train with batches of {_batch(preset)} and the longest sequences, MB"]
    parts = {**own.weights_by_part, **own.activations_by_part}
    lines.append(f"  {'part':36}{'weights':>12}{'activations':>14}")
    sizes = {part: (_mb(own.weights_by_part.get(part, 0)), _mb(own.activations_by_part.get(part, 0))) for part in parts}
    for part, (weights, activations), layers in layer_groups(sizes):
        lines.append(f"  {part:36}{weights:>12}{activations:>14}" + f" × {layers}" * (layers > 1))
    lines.append(f"  {'gradients':36}{_mb(own.gradients):>12}")
    lines.append(f"  {'optimizer':36}{_mb(own.optimizer):>12}")
    lines.append(f"  {'temporary tensors':36}{'':>12}{_mb(own.temporary):>14}")
    lines.append(f"  {'kernels, and freed blocks kept':36}{_mb(own.overhead):>12}")
    available = machine_memory()
    lines.append(f"  {'in all':36}{_mb(own.total):>12}   of {_mb(available)} that this machine has")
    if own.total > available:
        lines.append("  warning: more than this machine has")
    lengths = next(iter(memory.values()))
    lines += ["", "activations by batch size and length, MB"]
    lines.append(f"  {'batch':>8}" + "".join(f"{f'{length} tokens':>14}" for length in lengths))
    for batch, by_length in memory.items():
        lines.append(f"  {batch:8}" + "".join(f"{_mb(each.activations):>14}" for each in by_length.values()))
    too_large = [
        f"{batch} × {length} tokens takes {_mb(each.total)}"
        for batch, by_length in memory.items()
        for length, each in by_length.items()
        if each.total > available
    ]
    if length_warning := long_sequence_warning(preset):
        lines.append(f"  warning: {length_warning}")
    if too_large:
        lines.append(f"  warning: more than this machine has, in all: {'; '.join(too_large)}")
    return lines


def _shape_trace(preset: Preset, stages: list[TensorTrace]) -> list[str]:
    """Format dtype and shape of every module's output for a real batch, in order of execution, one line each."""
    lines = ["", f"output of each module for a batch of {preset.sequences_per_batch}, in order of execution"]
    lines.append(
        "  B sequences, S source and T target tokens, Tq queries, Tk keys, D width, H heads, K width of a head,"
    )
    lines.append("  F width of the feed-forward network, E of embeddings, V vocabulary, L layers")
    for stage in stages:
        shapes = "   ".join(
            f"{name} {named_shape(shape, stage.axes[name])}".strip() for name, shape in stage.shapes.items()
        )
        times = f"   ({stage.calls} times)" if stage.calls > 1 else ""
        lines.append(f"  {stage.name:48} {stage.kind:20} {stage.dtype:8} {shapes}{times}")
    return lines


def _summary(preset: Preset) -> str:
    return f"{preset.description} {bug_notice(preset)}".strip()


def _sizes(options: argparse.Namespace, preset: Preset) -> tuple[list[int], list[int]]:
    """Return the batch sizes and lengths of the memory table: those requested, or several up to the maximum."""
    longest = preset.model.max_seq_len
    for name, value, most in (("batch-size", options.batch_size, 4096), ("length", options.length, longest)):
        if value is not None and not 1 <= value <= most:
            raise InputError(f"--{name}={value} must be from 1 to {most}")
    own = preset.longest_sequence
    batches = [options.batch_size] if options.batch_size else sorted({1, 8, preset.sequences_per_batch})
    lengths = [options.length] if options.length else sorted({own, (own + longest) // 2, longest})
    return batches, lengths


def _batch(preset: Preset) -> str:
    tokens = preset.training.tokens_per_batch
    return f"{tokens:,} tokens" if tokens else str(preset.training.batch_size)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _as_json(preset: Preset, parts: dict, shapes: dict, memory: dict) -> dict:
    return {
        "preset": preset.name,
        "parameters": sum(parts.values()),
        "parts": parts,
        "shapes": shapes,
        "memory_bytes": [
            {
                "batch_size": batch,
                "length": length,
                "weights": each.weights,
                "gradients": each.gradients,
                "optimizer": each.optimizer,
                "activations": each.activations,
                "activations_by_part": each.activations_by_part,
                "temporary": each.temporary,
                "overhead": each.overhead,
            }
            for batch, by_length in memory.items()
            for length, each in by_length.items()
        ],
    }
