"""Shape trace: the name and shape of every tensor that a batch produces on its way through a model, in order."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from core.config import Preset
from core.models import outline_model
from core.models.attention import AdditiveAttention, MultiHeadAttention
from core.models.dropout import Dropout
from core.models.heads import Block
from core.models.positions import RelativeEncoding
from core.tasks import build_task

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ModuleTrace:
    """The output of one module, or an input or output of the whole model.

    Attributes:
        name: of the module, as in the names of its weights.
        kind: its class.
        shapes: output shapes by name, "" for the output itself; of attention also "weights", (B, H, Tq, Tk).
        parameters: of the module, those of its submodules included.
        depth: number of modules that contain it.
        calls: uses per batch; a recurrent decoder's modules are used once per step.
        block: of attention, the block that its heads belong to.
        layer: of attention, numbered from 1.
    """

    name: str
    kind: str
    shapes: dict[str, Shape]
    parameters: int = 0
    depth: int = 0
    calls: int = 1
    block: Block | None = None
    layer: int | None = None


def trace_shapes(preset: Preset, *, pairs: Path | None = None) -> list[ModuleTrace]:
    """Run a training batch through the preset's model on the meta device, and record the shape each module returns.

    The batch has the shape of a real one. Meta tensors have a shape and no content, so this takes no time.

    Args:
        preset: of the model, its task and its batch size.
        pairs: the file of the task's own pairs, if it has any.
    """
    task = build_task(preset.task, pairs=pairs)
    batch = task.sample(preset.training.batch_size, split="train", generator=torch.Generator().manual_seed(0))
    model = outline_model(preset.model, task).eval()
    calls: list[tuple[str, nn.Module, dict[str, Shape]]] = []
    patterns: dict[str, Shape] = {}
    for attention in model.attention.values():
        name = attention.hook_pattern.name
        attention.hook_pattern.permanent = lambda pattern, name=name: patterns.update({name: tuple(pattern.shape)})
    for name, module in model.named_modules():
        if name and not isinstance(module, Dropout | nn.Identity | nn.ModuleList | RelativeEncoding):
            module.register_forward_hook(
                lambda module, args, output, name=name: calls.append(
                    (name, module, _shapes(output, patterns.get(f"{name}.hook_pattern")))
                )
            )
    src, tgt_in = batch.src.to("meta"), batch.tgt_in.to("meta")
    logits = model(src, tgt_in)
    counts = Counter((name, tuple(shapes.values())) for name, _, shapes in calls)
    traces = {
        (name, key): _trace(name, module, shapes, counts[name, key])
        for name, module, shapes in calls
        if (key := tuple(shapes.values()))
    }
    inputs = [
        ModuleTrace("src", "ids", {"": tuple(src.shape)}),
        ModuleTrace("tgt_in", "ids", {"": tuple(tgt_in.shape)}),
    ]
    return [*inputs, *traces.values(), ModuleTrace("logits", "scores", {"": tuple(logits.shape)})]


def _trace(name: str, module: nn.Module, shapes: dict[str, Shape], calls: int) -> ModuleTrace:
    parameters = sum(each.numel() for each in module.parameters())
    block, layer = _block_and_layer(name, module)
    return ModuleTrace(name, type(module).__name__, shapes, parameters, name.count("."), calls, block, layer)


def _block_and_layer(name: str, module: nn.Module) -> tuple[Block | None, int | None]:
    """Return the block and layer of an attention module, or (None, None) for other modules."""
    if not isinstance(module, MultiHeadAttention | AdditiveAttention):
        return None, None
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    block: Block = (
        "encoder" if name.startswith("encoder") else "decoder" if name.endswith("self_attention") else "cross"
    )
    return block, numbers[0] + 1 if numbers else 1


def _shapes(output: object, pattern: Shape | None) -> dict[str, Shape]:
    """Return the shapes of a module's output, and of its attention weights if it has any."""
    outputs = [each for each in (output if isinstance(output, tuple) else (output,)) if isinstance(each, torch.Tensor)]
    return {"": tuple(outputs[0].shape)} | ({} if pattern is None else {"weights": pattern})
