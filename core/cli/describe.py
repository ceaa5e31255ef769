"""``describe``: the model of a preset: parameters, shapes, and the memory that training it takes."""

import argparse
import json
from dataclasses import asdict

from core.cli.arguments import add_json, add_preset, pairs_from, preset_from
from core.config import SPECIAL_TOKENS, Preset
from core.interpret.shape_trace import TensorTrace, trace_shapes
from core.models import count_parameters, outline_model
from core.storage.errors import InputError
from core.tasks import build_task
from core.teaching.bugs.descriptions import bug_notice
from core.training.model_summary import estimate_memory, parameter_shapes, parameters_by_module


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_preset(parser)
    parser.add_argument(
        "--batch-size", type=int, metavar="N", help="sequences per batch (default: several batch sizes)"
    )
    parser.add_argument(
        "--length", type=int, metavar="N", help="tokens of source and target (default: several lengths)"
    )
    parser.add_argument(
        "--shapes", action="store_true", help="also trace the tensors of a real batch through the model, in order"
    )
    add_json(parser)


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
    for part, count in parts.items():
        print(f"  {part:24} {count:12,}")
    print("\ntensors")
    for name, shape in shapes.items():
        print(f"  {name:56} {' × '.join(map(str, shape))}")
    stages = trace_shapes(preset, pairs=pairs)
    if options.shapes:
        print("\n".join(_shape_trace(preset, stages)))
    smallest = memory[batches[0]][lengths[0]]
    fixed = smallest.total - smallest.activations
    print(f"\nmemory to train, MB: weights, gradients and Adam's two moments {_mb(fixed)}, and activations")
    print(f"  {'batch':>8}" + "".join(f"{f'{length} tokens':>14}" for length in lengths))
    for batch in batches:
        print(f"  {batch:8}" + "".join(f"{_mb(memory[batch][length].activations):>14}" for length in lengths))
    if options.json:
        trace = [asdict(stage) for stage in stages]
        print(json.dumps(_as_json(preset, parts, shapes, memory) | {"shape_trace": trace}))
    return 0


def _shape_trace(preset: Preset, stages: list[TensorTrace]) -> list[str]:
    """Format the output shapes of every module for a real batch, in order of execution, one line each."""
    lines = ["", f"output of each module for a batch of {preset.training.batch_size}, in order of execution"]
    for stage in stages:
        shapes = "   ".join(f"{name} {' × '.join(map(str, shape))}".strip() for name, shape in stage.shapes.items())
        times = f"   ({stage.calls} times)" if stage.calls > 1 else ""
        lines.append(f"  {stage.name:48} {stage.kind:20} {shapes}{times}")
    return lines


def _summary(preset: Preset) -> str:
    return f"{preset.description} {bug_notice(preset)}".strip()


def _sizes(options: argparse.Namespace, preset: Preset) -> tuple[list[int], list[int]]:
    """Return the batch sizes and lengths of the memory table: those requested, or several up to the maximum."""
    longest = preset.model.max_seq_len
    for name, value, most in (("batch-size", options.batch_size, 4096), ("length", options.length, longest)):
        if value is not None and not 1 <= value <= most:
            raise InputError(f"--{name}={value} must be from 1 to {most}")
    own = max(preset.task.longest_source, preset.task.longest_answer) + SPECIAL_TOKENS
    batches = [options.batch_size] if options.batch_size else sorted({1, 8, preset.training.batch_size})
    lengths = [options.length] if options.length else sorted({own, (own + longest) // 2, longest})
    return batches, lengths


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
            }
            for batch, by_length in memory.items()
            for length, each in by_length.items()
        ],
    }
